"""Time the planning of a point query on a table of 10,000 data files, of which one may hold the row.

Target: under 100 ms on PostgreSQL. The catalogs are filled by SQL; of the files only that one exists.

    python benchmarks/scan.py
    python benchmarks/scan.py --catalog sqlite --files 1000
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from tests.interop.many_files import POINT_FILTERS, make_many_files  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402


def measure(kind: str, files: int, times: int, server: PostgresServer | None) -> None:
    with new_catalog(server) as catalog:
        make_many_files(catalog, files)
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            for where, what in POINT_FILTERS.items():
                planned = lake.scan("t", filter=where)  # loads sqlglot, and opens the connection
                took: list[float] = []
                for _ in range(times):
                    begin = time.perf_counter()
                    planned = lake.scan("t", filter=where)
                    took.append(1000 * (time.perf_counter() - begin))
                took.sort()
                print(
                    f"{kind:9} {files:6} files: p50 {statistics.median(took):6.1f} ms, "
                    f"p95 {took[int(0.95 * len(took))]:6.1f} ms, {len(planned.files)} planned, by {what}",
                    flush=True,
                )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="all")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=30)
    arguments = parser.parse_args()
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            measure(kind, arguments.files, arguments.times, server)
        finally:
            if server is not None:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
