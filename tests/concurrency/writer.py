"""A process that appends to table `t` (i BIGINT) again and again: ours, or the reference.

    python -m tests.concurrency.writer ours|reference <catalog url or attach string> <first> <appends> <rows>

It prints `ready`, waits for a line, and prints the attempts of each append as JSON. Append number n has the
rows `first + n * rows …`.
"""

import json
import sys
import time

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake


def append_as_ours(url: str, first: int, appends: int, rows: int) -> list[int]:
    attempts = []
    with Lake.connect(url) as lake:
        _wait()
        for number in range(appends):
            start = first + number * rows
            with lake.transaction() as tx:
                tx.append_arrow("t", pa.table({"i": pa.array(range(start, start + rows), pa.int64())}))
            attempts.append(tx.committed.attempts)
    return attempts


def append_as_reference(attach_string: str, first: int, appends: int, rows: int) -> list[int]:
    options = {"busy_timeout": 20_000} if ":sqlite:" in attach_string else {}
    attempts = []
    with open_lake(attach_string, **options) as lake:
        lake.sql("SET ducklake_max_retry_count = 100")
        _wait()
        for number in range(appends):
            start = first + number * rows
            attempts.append(_until_it_lands(lake, f"INSERT INTO t FROM range({start}, {start + rows})"))
    return attempts


def _until_it_lands(lake, statement: str) -> int:
    """Repeat what failed for a lock that SQLite gave to somebody else: the reference takes that for final."""
    for attempt in range(1, 200):
        try:
            lake.sql(statement)
        except duckdb.Error as error:
            if "locked" not in str(error):
                raise
            time.sleep(0.01)
        else:
            return attempt
    raise AssertionError(statement)


def _wait() -> None:
    print("ready", flush=True)  # noqa: T201 - read by the test
    sys.stdin.readline()


if __name__ == "__main__":
    who, catalog, *numbers = sys.argv[1:]
    act = append_as_ours if who == "ours" else append_as_reference
    print(json.dumps(act(catalog, *map(int, numbers))))  # noqa: T201 - read by the test
