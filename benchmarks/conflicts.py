"""Time commits of overwrites beside many files that others added since their plan, and beside none.

Each overwrite replaces a day that it has for itself; the files of others are of days after it, so that no
commit is a conflict. Of the files only the catalog's rows exist. Target: beside 10,000 new files ≤ 1.2 times.

    python benchmarks/conflicts.py
    python benchmarks/conflicts.py --catalog sqlite --files 1000 --commits 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import date, timedelta
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile  # noqa: E402
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, CommitInfo  # noqa: E402
from airflow_provider_ducklake.lake.transaction.changes import AppendFiles, ChangeSet  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402

LAYOUTS = {
    "by day": ["day"],
    "by year, month, day": ["year(day)", "month(day)", "day(day)"],
    "not at all": [],
}
FIRST = date(2026, 1, 1)


DAY = ColumnId(1)  # the first column of the table


def file_of(day: date, number: int, keys: list[str]) -> DataFile:
    values = {
        "day": str(day),
        "year(day)": str(day.year),
        "month(day)": str(day.month),
        "day(day)": str(day.day),
    }
    stats = {DAY: ColumnStats(DAY, 10, 0, str(day), str(day))}
    partition = tuple(values[key] for key in keys)
    return DataFile(f"f{number}.parquet", 10, 1000, 100, stats, partition)


def plan_overwrites(lake: Lake, keys: list[str], days: range) -> list[ChangeSet]:
    """Plan an overwrite of each day."""
    table = lake.table_snapshot("t")
    spec = table.partition_spec
    change_sets = []
    for number in days:
        day = FIRST + timedelta(days=number)
        replaced = lake.writes.replacing_where(table, f"day = DATE '{day}'")
        added = AppendFiles(
            *(table.table_id, table.name, table.schema, (file_of(day, -number, keys),)),
            *(None if spec is None else spec.id, table.root),
            is_partitioned=bool(keys),
        )
        change_sets.append(ChangeSet(table.snapshot.id, (*replaced, added)))
    return change_sets


def seconds_of(lake: Lake, change_sets: list[ChangeSet]) -> list[float]:
    took = []
    for change_set in change_sets:
        begin = time.perf_counter()
        lake.committer.commit_change_sets([change_set], CommitInfo())
        took.append(time.perf_counter() - begin)
    return took


def measure(kind: str, layout: str, files: int, commits: int, server: PostgresServer | None) -> None:
    keys = LAYOUTS[layout]
    with new_catalog(server) as catalog, Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"day": "date", "id": "int64"}, keys)
        later = [file_of(FIRST + timedelta(days=1000 + one), one, keys) for one in range(files)]
        with lake.transaction() as tx:  # as many files as before, so that both find a table of one size
            tx.append_files("t", later)
        alone, beside = (plan_overwrites(lake, keys, range(one * 50, one * 50 + commits)) for one in (1, 2))
        none = statistics.median(seconds_of(lake, alone))
        with lake.transaction() as tx:
            tx.append_files(
                "t", [file_of(FIRST + timedelta(days=9000 + n), files + n, keys) for n in range(files)]
            )
        many = statistics.median(seconds_of(lake, beside))
    times = (
        f"beside none {1000 * none:6.1f} ms, beside {files} files {1000 * many:6.1f} ms, x{many / none:.2f}"
    )
    print(f"{kind:9} {layout:20} {times}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", choices=["postgres", "sqlite", "all"], default="all")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=30)
    arguments = parser.parse_args()
    for kind in ("postgres", "sqlite") if arguments.catalog == "all" else (arguments.catalog,):
        server = PostgresServer(durable=True) if kind == "postgres" else None
        try:
            for layout in LAYOUTS:
                measure(kind, layout, arguments.files, arguments.commits, server)
        finally:
            if server is not None:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
