"""Time an expiry of 100,000 snapshots of a lake that has a million files, half of which it takes with it.

Targets, on PostgreSQL: below 60 s, and linear: the largest within 1.5 times of the smallest, for a file.
The catalogs are filled by SQL; their files do not exist, and no expiry looks at them.

    python benchmarks/expire.py
    python benchmarks/expire.py --catalog sqlite --sizes 1000 10000
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import create_engine, text

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url  # noqa: E402
from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402

if TYPE_CHECKING:
    from tests.reference.catalogs import CatalogDatabase

FILES_OF_EACH = 10  # new with each snapshot; the first five live on, the others end with the next one
_NUMBERS = {
    "postgres": "SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n",
    "sqlite": (
        "WITH RECURSIVE r(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM r WHERE n < :last) SELECT n FROM r"
    ),
}
_FILL = (
    """INSERT INTO ducklake_snapshot
       SELECT n, (SELECT max(snapshot_time) FROM ducklake_snapshot), 1, 2, (n + 1) * 10
       FROM ({numbers}) AS numbers""",
    """INSERT INTO ducklake_snapshot_changes
       SELECT n, 'inserted_into_table:1', NULL, NULL, NULL FROM ({numbers}) AS numbers""",
    """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, end_snapshot, path,
           path_is_relative, file_format, record_count, file_size_bytes, footer_size, row_id_start)
       SELECT n * 10 + k, 1, n, CASE WHEN k < 5 THEN NULL ELSE n + 1 END,
           'ducklake-' || n || '-' || k || '.parquet', {true}, 'parquet', 1, 500, 200, n * 10 + k
       FROM ({numbers}) AS numbers, ({each}) AS each""",
    """INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,
           value_count, null_count, min_value, max_value)
       SELECT n * 10 + k, 1, c, 40, 1, 0, '1', '1'
       FROM ({numbers}) AS numbers, ({each}) AS each, (SELECT 1 AS c UNION ALL SELECT 2) AS columns""",
)


def fill(catalog: CatalogDatabase, last: int) -> None:
    """Add snapshots of ten files each, up to a number."""
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    is_true = "true" if catalog.kind == "postgres" else "1"
    each = " UNION ALL ".join(f"SELECT {number} AS k" for number in range(FILES_OF_EACH))
    with engine.begin() as connection:
        first = connection.execute(text("SELECT max(snapshot_id) + 1 FROM ducklake_snapshot")).scalar_one()
        for template in _FILL:
            statement = text(template.format(numbers=_NUMBERS[catalog.kind], true=is_true, each=each))
            names = statement.compile().params
            connection.execute(statement, {name: {"first": first, "last": last}[name] for name in names})
    if catalog.kind == "postgres":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # as autovacuum does in time
    engine.dispose()


def measure(kind: str, snapshots: int, server: PostgresServer | None) -> float:
    """Return the microseconds that each file took."""
    with new_catalog(server) as catalog, Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "s": "varchar"})
            tx.append_arrow("t", pa.table({"i": pa.array([1], pa.int64()), "s": ["x"]}))
        fill(catalog, snapshots)
        begin = time.perf_counter()
        result = lake.expire_snapshots(keep_last=1)
        seconds = time.perf_counter() - begin
    files = snapshots * FILES_OF_EACH
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{kind:9} {len(result.snapshots):7} snapshots, {files:8} files, {result.data_files:7} of them "
        f"scheduled: {seconds:6.2f} s, {1e6 * seconds / files:5.1f} µs a file, peak memory {memory:.0f} MB",
        flush=True,
    )
    return 1e6 * seconds / files


def main() -> int:
    """Measure each size on each catalog."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="postgres")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="snapshots")
    arguments = parser.parse_args()
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            times = [measure(kind, size, server) for size in arguments.sizes]
        finally:
            if server is not None:
                server.stop()
        print(
            f"{kind:9} the largest takes {times[-1] / times[0]:.2f} times as long for a file as the smallest"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
