"""Time the commit of deletes in many files that had deletes before, and of millions of rows in one file.

The delete files of such a commit hold the id of its snapshot: they are written before the lock is taken, and
once more where somebody else committed meanwhile.

    python benchmarks/row_deletes.py                      # 1,000 files, 10 million rows
    python benchmarks/row_deletes.py --files 200 --rows 1000000
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from airflow_provider_ducklake.lake.catalog.committing.commit import PlannedCommit, commit  # noqa: E402
from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo  # noqa: E402
from tests.interop.jobs import commit_changes, row_changes  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_ROWS_OF_A_FILE = 100


@contextmanager
def new_lake(rows: pa.Table, files: int) -> Iterator[Lake]:
    """Yield a lake whose table ``t`` has so many files with the rows."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Lake.create(f"sqlite:///{folder}/lake.sqlite", f"{folder}/data/") as lake,
    ):
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            for _ in range(files):
                tx.append_arrow("t", rows)
        yield lake


def many_files(files: int) -> None:
    """Delete a row of each file, and then another one: alone, and while somebody else commits."""
    rows = pa.table({"i": pa.array(range(_ROWS_OF_A_FILE), pa.int64())})
    with new_lake(rows, files) as lake:
        for position, name in enumerate(
            ("first deletes", "second deletes", "second deletes, another commit between")
        ):
            table = lake.table_snapshot("t", with_files=True)
            changes = row_changes(lake, table, {file.id: [position] for file in table.files or ()})
            others = _Others(lake, 1 if "another" in name else 0)
            started = time.monotonic()
            stage = lake.writes.row_changes(table, changes)
            planned = time.monotonic()
            commit(lake.opened.catalog, PlannedCommit((stage,), CommitInfo()), others.locate)
            print(
                f"{files} files, {name}: planned in {planned - started:.2f} s, committed in "
                f"{time.monotonic() - planned:.2f} s"
            )


class _Others:
    """Commits something when the first delete file is about to be written."""

    def __init__(self, lake: Lake, count: int) -> None:
        self._lake, self._left = lake, count

    def locate(self, path: str) -> Location:
        if self._left and path.endswith("-delete.parquet"):
            self._left -= 1
            with self._lake.transaction() as tx:
                tx.create_schema("other")
        return self._lake.locate(path)


def many_rows(count: int) -> None:
    """Delete every other row of a file, half of them at a time."""
    with new_lake(pa.table({"i": pa.array(range(count), pa.int64())}), 1) as lake:
        for first in (0, 2):
            table = lake.table_snapshot("t", with_files=True)
            (file,) = table.files or ()
            changes = row_changes(lake, table, {file.id: range(first, count, 4)})
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            started = time.monotonic()
            commit_changes(lake, table, changes)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(
                f"{count // 4:,} rows of a file deleted, {'first' if not first else 'merged with as many'}: "
                f"{time.monotonic() - started:.2f} s, {grown // 1024} MB more memory at most"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    many_files(given.files)
    many_rows(given.rows)
