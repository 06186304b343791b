"""Measure a backfill: tasks that overwrite each its own day of one table, several at a time, on PostgreSQL.

DuckLakeSparkInsertOperators are executed in threads, their jobs run on one warm Spark Connect server. Each
day has rows in files and inlined rows before. A day whose task fails by a conflict is tried again, up to
``--tries`` times, and keeps its rows otherwise; DuckDB counts the rows that are not as they should be.
Targets: no conflict, wherever files have rows of one day; no wrong row.

    python benchmarks/backfill.py                      # 90 days, 8 at a time
    python benchmarks/backfill.py --days 8 --at-once 4 --tables day none --tries 20
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["PYSPARK_PYTHON"] = sys.executable

from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: E402
from airflow_provider_ducklake.lake.errors import TransactionConflictError  # noqa: E402
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator  # noqa: E402
from tests.reference.catalogs import CatalogDatabase, data_directory  # noqa: E402
from tests.reference.connect_server import connect_server  # noqa: E402
from tests.reference.duckdb_lake import open_lake  # noqa: E402
from tests.reference.postgres import PostgresServer, fresh_database  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

# Partition keys; of "shared files" each file has rows of all days, as after a compaction.
TABLES = {
    "day": ["day"],
    "year-month-day": ["year(day)", "month(day)", "day(day)"],
    "bucket": ["bucket(4, id)"],
    "none": [],
    "shared-files": [],
}
WAYS = {"filter": [*TABLES], "partitions": ["day", "year-month-day"]}  # where days are partitions
FIRST = date(2026, 1, 1)
IN_FILES, INLINED, NEW = range(20), range(20, 25), range(30)  # the ids of each day; up to 10 rows are inlined


@dataclass
class Figures:
    """What became of one backfill."""

    seconds: float = 0
    conflicts: int = 0
    days_landed: int = 0
    wrong: int = 0

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.1f} s  conflicts {self.conflicts:4}  days landed {self.days_landed:3}  "
            f"rows wrong {self.wrong}"
        )


@contextmanager
def new_lake(server: PostgresServer, table: str, days: list[date]) -> Iterator[CatalogDatabase]:
    """Make a lake whose table has rows of the days, and name it as the operators' connection."""
    with tempfile.TemporaryDirectory() as folder, fresh_database(server.port) as database:
        catalog = CatalogDatabase("postgres", database, data_directory(Path(folder)))
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            with lake.transaction() as tx:
                tx.create_table("t", {"id": "int64", "day": "date", "version": "int32"}, TABLES[table])
            for part in [days] if table == "shared-files" else [[day] for day in days]:
                lake.append_arrow("t", rows_of(part, IN_FILES))
            for day in days:
                lake.append_arrow("t", rows_of([day], INLINED))
        fields = {
            "conn_type": "ducklake",
            "host": catalog.server["host"],
            "port": int(catalog.server["port"]),
            "login": catalog.server["user"],
            "schema": catalog.database,
            "extra": {"catalog_type": "postgres"},
        }
        os.environ["AIRFLOW_CONN_DUCKLAKE_DEFAULT"] = json.dumps(fields)
        yield catalog


def rows_of(days: list[date], ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([*ids] * len(days), pa.int64()),
            "day": [day for day in days for _ in ids],
            "version": pa.array([0] * len(ids) * len(days), pa.int32()),
        }
    )


def overwrite(way: str, day: date, tries: int) -> tuple[bool, int]:
    """Run the task of a day; return whether its rows landed, and after how many conflicts."""
    replaced = (
        {"overwrite_where": f"day = DATE '{day}'"} if way == "filter" else {"mode": "overwrite_partitions"}
    )
    operator = DuckLakeSparkInsertOperator(
        task_id="day",
        table="t",
        sql=f"SELECT id, DATE '{day}' AS day, 1 AS version FROM range({len(NEW)})",
        spark_connect_conn_id="spark_connect_default",
        **replaced,
    )
    for number in range(tries):
        try:
            operator.execute(context(day, number + 1, tries))
        except TransactionConflictError:
            continue
        return True, number
    return False, tries


def context(day: date, try_number: int, tries: int) -> Any:  # noqa: ANN401 - Airflow's
    ti = SimpleNamespace(
        dag_id="backfill", run_id=f"run of {day}", task_id="day", map_index=-1, try_number=try_number
    )
    ti.max_tries, ti.id, ti.log_url = tries - 1, uuid4(), "http://localhost:8080/dags/backfill"
    return {"ti": ti, "logical_date": None}


def measure(server: PostgresServer, way: str, table: str, arguments: argparse.Namespace) -> Figures:
    days = [FIRST + timedelta(days=number) for number in range(arguments.days)]
    others = [FIRST - timedelta(days=1), days[-1] + timedelta(days=1)]
    with new_lake(server, table, [*days, *others]) as catalog:
        began = time.perf_counter()
        with ThreadPoolExecutor(arguments.at_once) as threads:
            done = list(threads.map(lambda day: overwrite(way, day, arguments.tries), days))
        seconds = time.perf_counter() - began
        landed = {day for day, (is_landed, _) in zip(days, done, strict=True) if is_landed}
        wrong = count_wrong(catalog, landed, {*days, *others} - landed)
    return Figures(seconds, sum(conflicts for _, conflicts in done), len(landed), wrong)


def count_wrong(catalog: CatalogDatabase, landed: set[date], kept: set[date]) -> int:
    """Count the rows that are missing and those that should not be there."""
    expected = [(one, day, 1) for day in landed for one in NEW]
    expected += [(one, day, 0) for day in kept for one in (*IN_FILES, *INLINED)]
    with open_lake(catalog) as lake:
        found = lake.sql("SELECT id, day, version FROM t")
    return len(set(expected) ^ set(found)) + len(found) - len(set(found))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    arguments = parser.parse_args()
    logging.disable()  # of each task
    server, out, are_right = PostgresServer(durable=True), sys.stdout, True
    try:
        with (
            redirect_stdout(io.StringIO()),  # as well
            tempfile.TemporaryDirectory() as folder,
            connect_server(Path(folder) / "server") as spark,
        ):
            fields = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": spark.port}
            os.environ["AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"] = json.dumps(fields)
            warm_up = argparse.Namespace(days=arguments.at_once, at_once=arguments.at_once, tries=1)
            measure(server, "filter", "none", warm_up)
            for way in arguments.ways:
                for table in [one for one in arguments.tables if one in WAYS[way]]:
                    found = measure(server, way, table, arguments)
                    are_right = are_right and not found.wrong
                    print(f"by {way:10}  table by {table:14}  {found}", file=out, flush=True)
    finally:
        server.stop()
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())
