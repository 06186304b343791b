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

import pyarrow as pa

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402
from tests.scale.contents import add_files  # noqa: E402
from tests.scale.fill import filling  # noqa: E402


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
            with filling(catalog) as open_filling:
                add_files(open_filling, table_id=1, count=size, per_snapshot=1, rows=1)
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
