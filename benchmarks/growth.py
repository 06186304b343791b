"""Time one-row appends to lakes of 1,000, 100,000 and 1,000,000 snapshots and data files of the table.

Target: within 1.5 times of the smallest. The catalogs are filled by SQL; their files do not exist, and no
append looks at them. An append to each lake in turn, so that a busy moment hits them all alike.

    python benchmarks/growth.py
    python benchmarks/growth.py --catalog sqlite --sizes 1000 100000
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import create_engine, text

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402

from airflow_provider_ducklake.catalog.database.connect import parse_url  # noqa: E402
from airflow_provider_ducklake.catalog.lake import Lake  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402

if TYPE_CHECKING:
    from tests.reference.catalogs import CatalogDatabase

# What a commit of one file adds, for the numbers from :first to :last.
_NUMBERS = {
    "postgres": "SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n",
    "sqlite": (
        "WITH RECURSIVE r(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM r WHERE n < :last) SELECT n FROM r"
    ),
}
_FILL = (
    """INSERT INTO ducklake_snapshot
       SELECT n, (SELECT max(snapshot_time) FROM ducklake_snapshot), 1, 2, n FROM ({numbers}) AS numbers""",
    """INSERT INTO ducklake_snapshot_changes
       SELECT n, 'inserted_into_table:1', NULL, NULL, NULL FROM ({numbers}) AS numbers""",
    """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
           file_format, record_count, file_size_bytes, footer_size, row_id_start)
       SELECT n - 1, 1, n, 'ducklake-' || n || '.parquet', {true}, 'parquet', 1, 500, 200, n
       FROM ({numbers}) AS numbers""",
    """INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,
           value_count, null_count, min_value, max_value)
       SELECT n - 1, 1, c, 40, 1, 0, '1', '1'
       FROM ({numbers}) AS numbers, (SELECT 1 AS c UNION ALL SELECT 2) AS columns""",
    """UPDATE ducklake_table_stats
       SET record_count = :last, next_row_id = :last + 1, file_size_bytes = 500 * :last""",
)


def fill(catalog: CatalogDatabase, last: int) -> None:
    """Add snapshots of one file each to a lake that has one, up to a number."""
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    is_true = "true" if catalog.kind == "postgres" else "1"
    with engine.begin() as connection:
        first = connection.execute(text("SELECT max(snapshot_id) + 1 FROM ducklake_snapshot")).scalar_one()
        for template in _FILL:
            statement = text(template.format(numbers=_NUMBERS[catalog.kind], true=is_true))
            names = statement.compile().params
            connection.execute(statement, {name: {"first": first, "last": last}[name] for name in names})
    if catalog.kind == "postgres":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # as autovacuum does in time
    engine.dispose()


def measure(kind: str, sizes: list[int], appends: int, server: PostgresServer | None) -> None:
    rows = pa.table({"i": pa.array([1], pa.int64()), "s": ["x"]})
    with ExitStack() as open_things:
        lakes = {}
        for size in sizes:
            catalog = open_things.enter_context(new_catalog(server))
            lakes[size] = open_things.enter_context(Lake.create(catalog.sqlalchemy_url, catalog.data_path))
            lakes[size].set_option("data_inlining_row_limit", 0)
            with lakes[size].transaction() as tx:
                tx.create_table("t", {"i": "int64", "s": "varchar"})
                tx.append_arrow("t", rows)
            fill(catalog, size)
        times: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(appends + 10):
            for size, lake in lakes.items():
                begin = time.perf_counter()
                lake.append_arrow("t", rows)
                if number >= 10:
                    times[size].append(1000 * (time.perf_counter() - begin))
    smallest = statistics.median(times[sizes[0]])
    for size in sizes:
        found = sorted(times[size])
        p50, p95 = statistics.median(found), found[int(0.95 * len(found))]
        print(
            f"{kind:9} {size:8} snapshots and files: p50 {p50:6.2f} ms, p95 {p95:6.2f} ms; "
            f"{p50 / smallest:.2f} times the smallest",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="all")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--appends", type=int, default=200)
    arguments = parser.parse_args()
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            measure(kind, arguments.sizes, arguments.appends, server)
        finally:
            if server is not None:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
