"""A process that appends twenty rows to table `t` (i BIGINT) under the key `k`.

    python -m tests.concurrency.keyed_writer <catalog url> [before|after]

It prints `ready`, waits for a line, and prints the snapshot and whether another process made it. With
`before` or `after` it kills itself there, seen from its COMMIT.
"""

import json
import os
import signal
import sys

import pyarrow as pa
from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.lake import Lake

ROWS = pa.table({"i": pa.array(range(20), pa.int64())})  # more than are inlined


def append_once(lake: Lake, on_commit=None) -> list:
    """Append the rows and say which snapshot holds them, and whether it was there already."""
    tx = lake.transaction(commit_key="k")
    with tx:
        tx.append_arrow("t", ROWS)
        if on_commit is not None:
            event.listen(lake.opened.catalog.dialect.engine, "commit", on_commit)
    return [tx.committed.id, tx.committed.is_earlier]


def commit_then_die(connection) -> None:
    connection.connection.driver_connection.commit()
    os.kill(os.getpid(), signal.SIGKILL)


def die(_connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    url, *when = sys.argv[1:]
    with Lake.connect(url) as lake:
        print("ready", flush=True)  # noqa: T201 - read by the test
        sys.stdin.readline()
        act = {"before": die, "after": commit_then_die}[when[0]] if when else None
        print(json.dumps(append_once(lake, act)))  # noqa: T201 - read by the test
