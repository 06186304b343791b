"""Measure what waiting for tables costs a triggerer.

Polls of lakes with ever more snapshots, by the poller's own question; the same question by a thread and by an
async driver, where one is installed; and many deferred sensors in one process.

    python benchmarks/trigger_poll.py                       # all, minutes
    python benchmarks/trigger_poll.py --snapshots 1000 100000 --sensors 0
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from commit import new_catalog  # noqa: E402
from sqlalchemy import make_url  # noqa: E402
from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import progress_query  # noqa: E402
from tests.reference.postgres import PostgresServer  # noqa: E402
from tests.scale.models import DIRECTIONS, Model, make  # noqa: E402

if TYPE_CHECKING:
    from tests.reference.catalogs import CatalogDatabase

ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg"}
POLLS = 50


def milliseconds(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):6.2f} ms"


def poll_cost(catalog: CatalogDatabase) -> list[float]:
    """Poll as the poller does: ask, then close the connection."""
    times = []
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        head = lake.current_snapshot().id
        for _ in range(POLLS):
            begin = time.perf_counter()
            assert lake.reads.news(head).table_ids is None
            lake.close()
            times.append(time.perf_counter() - begin)
    return times


async def by_thread(catalog: CatalogDatabase) -> list[float]:
    times = []
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        head = lake.current_snapshot().id
        for _ in range(POLLS):
            begin = time.perf_counter()
            await asyncio.to_thread(lake.reads.news, head)
            await asyncio.to_thread(lake.close)
            times.append(time.perf_counter() - begin)
    return times


async def by_async_driver(catalog: CatalogDatabase) -> list[float] | None:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        head, tables = lake.current_snapshot().id, lake.opened.catalog.tables
        url = make_url(catalog.sqlalchemy_url).set(drivername=ASYNC_DRIVERS[catalog.kind])
    question, times = progress_query(tables, head, None), []
    try:
        engine = create_async_engine(url)
    except ImportError:
        return None
    for _ in range(POLLS):
        begin = time.perf_counter()
        async with engine.connect() as connection:
            question.read((await connection.execute(question.query, dict(question.parameters))).all())
        await engine.dispose()
        times.append(time.perf_counter() - begin)
    return times


def measure_polls(sizes: list[int]) -> None:
    server = PostgresServer()
    try:
        for kind in (None, server):
            for size in sizes:
                with new_catalog(kind) as catalog:
                    make(Model(catalog, DIRECTIONS["snapshots"], size))
                    line = f"{catalog.kind:9} {size:9,} snapshots  poll {milliseconds(poll_cost(catalog))}"
                    line += f"  by thread {milliseconds(asyncio.run(by_thread(catalog)))}"
                    found = asyncio.run(by_async_driver(catalog))
                    line += f"  by async driver {'not installed' if found is None else milliseconds(found)}"
                    print(line, flush=True)
    finally:
        server.stop()


def resident() -> float:
    """Return the memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def many_sensors(count: int, seconds: float) -> None:
    from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger

    async def wait(number: int) -> None:
        trigger = DuckLakeSnapshotTrigger(table=f"t{number}", since=10, poll_interval=1.0, once=True)
        async for _ in trigger.run():
            return

    before = resident()
    waiting = [asyncio.create_task(wait(number)) for number in range(count)]
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    settled = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    held = resident() - before
    assert not any(one.done() for one in waiting)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    busy = (after.ru_utime + after.ru_stime - settled.ru_utime - settled.ru_stime) / seconds
    print(
        f"{count:,} deferred sensors of one lake: {held:.0f} MB beside the {before:.0f} MB of the process, "
        f"{100 * busy:.1f} % of a core at a poll a second, after {time.perf_counter() - begin:.0f} s",
        flush=True,
    )


def measure_sensors(count: int) -> None:
    with new_catalog(None) as catalog:
        lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path)
        with lake, lake.transaction() as tx:
            for number in range(count):
                tx.create_table(f"t{number}", {"id": "int32"})
        connection = {
            "conn_type": "ducklake",
            "schema": catalog.location,
            "extra": {"catalog_type": "sqlite"},
        }
        os.environ["AIRFLOW_CONN_DUCKLAKE_DEFAULT"] = json.dumps(connection)
        asyncio.run(many_sensors(count, 30))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--snapshots", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--sensors", type=int, default=1_000)
    arguments = parser.parse_args()
    measure_polls(arguments.snapshots)
    if arguments.sensors:
        measure_sensors(arguments.sensors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
