"""Ten inserts on one warm Spark: a Connect server is started for the run, used by every task and stopped.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_connect_default`` (type
``spark_connect``, for example with host ``localhost`` and port ``15002``). Where a server runs all the time,
leave the first and the last task out. Tasks that start a server need ``spark-submit``; those that use it need
neither that nor a Java.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime

from airflow.sdk import DAG, BaseHook, chain, setup, task, teardown

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

CONNECTION = "spark_connect_default"
HOURS = range(10)
SECONDS_TO_START = 120


@setup
def start_server() -> int:
    """Start a server at the connection's port, on this machine; return the id of its process."""
    port = BaseHook.get_connection(CONNECTION).port or 15002
    command = [
        *("spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        "spark-internal",
    ]
    server = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
    until = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return server.pid
        time.sleep(0.5)
    server.terminate()
    message = f"No server came up at port {port}: is the port free, and is spark-submit on the PATH?"
    raise RuntimeError(message)


@teardown
def stop_server(pid: int) -> None:
    """Stop the server, whatever became of the inserts."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


@task
def count_readings() -> int:
    """Count the rows of all inserts; no Spark is needed for that."""
    return int(DuckLakeHook().read_arrow("sensors.readings", columns=["hour"]).num_rows)


with DAG(
    "example_ducklake_spark_connect",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    tags=["ducklake"],
):
    create_table = DuckLakeDDLOperator(
        task_id="create_table",
        create_lake=True,
        sql=[
            "CREATE SCHEMA IF NOT EXISTS sensors",
            "CREATE TABLE IF NOT EXISTS sensors.readings (hour INTEGER, sensor BIGINT, value DOUBLE)",
        ],
    )
    server = start_server()
    inserts = [
        DuckLakeSparkInsertOperator(
            task_id=f"insert_hour_{hour}",
            table="sensors.readings",
            sql=f"SELECT {hour} AS hour, id AS sensor, sin(id) AS value FROM range(1000)",  # noqa: S608 - a number
            spark_connect_conn_id=CONNECTION,
        )
        for hour in HOURS
    ]
    [create_table, server] >> inserts[0]
    chain(*inserts)  # one after the other: what is shown is what a warm start takes
    inserts[-1] >> count_readings()
    stopped = stop_server(server)
    inserts[-1] >> stopped
