"""Operators through Spark Connect: the verbs of `spark-submit`, on a server that runs, without a JVM here."""

import os
import re
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_ducklake.hooks import spark_connect_submitter
from airflow_provider_ducklake.hooks.spark_connect_submitter import SparkConnectSubmitter
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, SparkJobError
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.sessions import remote
from airflow_provider_ducklake.lake.spark.sessions.settings import reach_buckets
from airflow_provider_ducklake.operators.compact import (
    DuckLakeSparkMergeAdjacentFilesOperator,
    DuckLakeSparkRewriteDataFilesOperator,
)
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.stream import DuckLakeSparkStreamOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from tests.airflow.dags import context_of, parse, succeeded, xcom
from tests.airflow.spark_submit import ROOT
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.connect_server import ConnectServer, connect_server
from tests.reference.duckdb_lake import open_lake
from tests.reference.processes import free_port

EXAMPLE = ROOT / "example_dags" / "example_ducklake_spark_connect.py"
ZONE = "spark.sql.session.timeZone"
CONNECT = {"spark_connect_conn_id": "connect"}


@pytest.fixture
def lake(connect, set_connection, sqlite_catalog: CatalogDatabase, server, monkeypatch) -> Iterator[Lake]:
    """A lake whose tasks find no `spark-submit` and no Java."""
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=server.port)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE orders (id BIGINT, name VARCHAR, price DOUBLE)")
        reference.sql("CREATE TABLE totals (name VARCHAR, total DOUBLE)")
    lake = Lake.connect(sqlite_catalog.sqlalchemy_url)
    yield lake
    lake.close()


_numbers = count()


def run(operator: type, **arguments: Any) -> Any:
    name = f"task_{next(_numbers)}"
    task = operator(task_id=name, **CONNECT, **arguments)
    return task.execute(context_of(name))


def test_each_verb_does_what_it_does_by_spark_submit(lake, sqlite_catalog, tmp_path):
    (tmp_path / "orders.csv").write_text("id,name,price\n1,a,1.5\n2,b,2.5\n3,c,3.5\n")
    (tmp_path / "changes.csv").write_text("id,name,price\n3,c,30\n4,d,40\n")
    before = dict(os.environ)

    for _ in range(2):
        done = run(DuckLakeSparkInsertOperator, table="orders", source=str(tmp_path / "orders.csv"))
    assert done["rows_added"] == 3
    deleted = run(DuckLakeSparkDeleteOperator, table="orders", where="id = 2")
    assert deleted["rows_deleted"] == 2
    updated = run(DuckLakeSparkUpdateOperator, table="orders", set={"price": "price + 1"}, where="id = 1")
    assert updated["rows_updated"] == 2
    merged = run(
        DuckLakeSparkMergeOperator,
        table="orders",
        on=["id"],
        source=str(tmp_path / "changes.csv"),
        when_matched=[{"update": {"price": "CAST(source.price AS DOUBLE)"}}],
        when_not_matched=[
            {"insert": {"id": "CAST(source.id AS BIGINT)", "price": "CAST(source.price AS DOUBLE)"}}
        ],
    )
    assert (merged["rows_updated"], merged["rows_added"]) == (2, 1)
    run(DuckLakeSparkSQLOperator, sql="INSERT INTO totals SELECT name, sum(price) FROM orders GROUP BY name")
    rewritten = run(DuckLakeSparkRewriteDataFilesOperator, table="orders", delete_threshold=0.01)
    compacted = run(DuckLakeSparkMergeAdjacentFilesOperator, table="orders")
    assert rewritten["files_removed"] + compacted["files_removed"] > 2

    with open_lake(sqlite_catalog) as theirs:
        assert theirs.sql("FROM orders ORDER BY ALL") == [
            *[(1, "a", 2.5)] * 2,
            *[(3, "c", 30.0)] * 2,
            (4, None, 40.0),
        ]
        assert theirs.sql("FROM totals ORDER BY ALL") == [("a", 5.0), ("c", 60.0), (None, 40.0)]
    assert lake.verify() == []
    assert not [name for name in os.environ if name not in before]


def test_a_staged_write_leaves_what_its_commit_reads(lake, tmp_path):
    from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator  # noqa: PLC0415

    (tmp_path / "orders.csv").write_text("id,name,price\n1,a,1.5\n")
    staged = run(
        DuckLakeSparkInsertOperator, table="orders", source=str(tmp_path / "orders.csv"), stage_only=True
    )

    commit = DuckLakeCommitOperator(task_id="commit", staged=[staged])
    commit.execute(context_of("commit"))

    assert lake.row_count("orders") == 1
    left = [path.name for path in Path(lake.table_snapshot("orders").root).rglob("*.json")]
    assert left == []


@pytest.mark.parametrize(
    ("operator", "arguments", "message"),
    [
        (DuckLakeSparkDeleteOperator, {"where": "nowhere = 1"}, "nowhere"),
        (DuckLakeSparkDeleteOperator, {"where": "rand() > 0.5"}, "not deterministic"),
        (DuckLakeSparkDeleteOperator, {"where": "id = (SELECT 1)"}, "subquery"),
        (DuckLakeSparkDeleteOperator, {"where": "id ="}, "cannot be run"),
        (DuckLakeSparkInsertOperator, {"source": "/nowhere/at/all.csv"}, "/nowhere/at/all.csv"),
        (DuckLakeSparkInsertOperator, {"sql": "SELECT 'x' AS id"}, "id"),
        (DuckLakeSparkInsertOperator, {"sql": "SELECT no FROM nothing"}, "nothing"),
        (DuckLakeSparkDeleteOperator, {"where": "true", "conf": {"spark.cores.max": "1"}}, "spark.cores.max"),
        (DuckLakeSparkDeleteOperator, {"where": "true", "conf": {ZONE: "Nowhere"}}, f"{ZONE}' has a value"),
        (DuckLakeSparkDeleteOperator, {"where": "true", "py_files": "/nowhere.zip"}, "/nowhere.zip"),
    ],
)
def test_errors_have_the_classes_that_spark_submit_gives_them(
    lake, sqlite_catalog, operator, arguments, message
):
    by_duckdb(sqlite_catalog, "INSERT INTO orders VALUES (1, 'a', 1.5)")

    with pytest.raises((AirflowFailException, DuckLakeError), match=re.escape(message)) as caught:
        run(operator, table="orders", **arguments)

    of_airflow = isinstance(caught.value, AirflowFailException)
    name = str(caught.value).partition(":")[0] if of_airflow else type(caught.value).__name__
    assert issubclass(getattr(errors, name), DuckLakeError)
    assert name != "SparkJobError"
    assert lake.current_snapshot().id == 3
    assert not list(Path(lake.table_snapshot("orders").root).rglob("ducklake-*-*/*"))


@pytest.mark.usefixtures("lake")
def test_what_it_cannot_do_is_refused_by_name(set_connection, tmp_path):
    with pytest.raises(AirflowFailException, match="A stream cannot run through Spark Connect"):
        run(DuckLakeSparkStreamOperator, table="orders", transform="m:f", checkpoint=str(tmp_path / "point"))
    set_connection("shop", conn_type="postgres", host="db", login="u", password="hunter2")
    source = {"format": "jdbc", "conn_id": "shop", "options": {"dbtable": "orders"}}
    with pytest.raises(AirflowFailException, match="with a password cannot be read through Spark Connect"):
        run(DuckLakeSparkInsertOperator, table="orders", source=source)


def test_a_server_that_is_not_there_is_told_at_once(lake, set_connection):
    set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=9)
    with pytest.raises(SparkJobError, match=r"No Spark Connect server answers at 127\.0\.0\.1:9"):
        run(DuckLakeSparkDeleteOperator, table="orders", where="true")
    with pytest.raises(AirflowFailException, match="'elsewhere' does not exist"):
        DuckLakeSparkDeleteOperator(
            task_id="t", table="orders", where="true", spark_connect_conn_id="elsewhere"
        ).execute(context_of("t"))
    assert lake.current_snapshot().id == 2


def submitter() -> SparkConnectSubmitter:
    task = DuckLakeSparkDeleteOperator(task_id="task", table="orders", where="true", **CONNECT)
    return SparkConnectSubmitter(task, {}, "connect")


SECRET = "hunter2/SECRET+token=="
ROW = "SELECT 1L AS id, 'a' AS name, 1.5D AS price"


def test_user_and_token_may_have_any_character_and_no_error_shows_them(lake, server, set_connection, capfd):
    fields = {"conn_type": "spark_connect", "host": "localhost", "port": server.port, "login": "etl/;prod"}
    set_connection("connect", **fields, password=SECRET)
    assert run(DuckLakeSparkInsertOperator, table="orders", sql=ROW)["rows_added"] == 1

    set_connection("connect", **fields, password=f"{SECRET}\n")
    with pytest.raises(AirflowFailException, match="'connect' has a token with line ends") as refused:
        run(DuckLakeSparkDeleteOperator, table="orders", where="true")
    with pytest.raises(InvalidInputError, match="URL of the Spark Connect server is wrong") as wrong:
        remote.create(f"sc://host/;token={SECRET}")

    shown = "".join(traceback.format_exception(refused.value) + traceback.format_exception(wrong.value))
    assert "hunter2" not in shown + "".join(capfd.readouterr()) + server.log
    assert lake.row_count("orders") == 1


@pytest.mark.parametrize("use_ssl", ["yes", "on", 1, "1", "TLS"])
def test_a_channel_is_plain_only_if_the_connection_says_so(set_connection, use_ssl):
    fields = {"conn_type": "spark_connect", "host": "host", "login": "etl"}
    for given, parameter in {"True": ";use_ssl=true", True: ";use_ssl=true", "false": "", False: ""}.items():
        set_connection("connect", **fields, extra={"use_ssl": given})
        assert submitter()._url() == f"sc://host:15002/;user_id=etl{parameter}"

    set_connection("connect", **fields, extra={"use_ssl": use_ssl})
    with pytest.raises(InvalidInputError, match=f"'connect' has use_ssl {use_ssl!r} in its extras"):
        submitter()._url()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "no host"),
        ({"host": "host/x"}, "a path"),
        ({"host": "sc://host;token=hunter2"}, "neither a name"),
        ({"host": "etl:hunter2@host"}, "a user"),
        ({"host": "host:99999"}, "port or IPv6 address is invalid"),
        ({"host": "host:hunter2"}, "port or IPv6 address is invalid"),
        ({"host": "host:0"}, "invalid port 0"),
        ({"host": "host", "port": 99999}, "invalid port 99999"),
        ({"host": "host:1", "port": 2}, "a port in its host"),
        ({"host": "1::2::3"}, "IPv6 address is invalid"),
        ({"host": "[::1"}, "IPv6 address is invalid"),
    ],
)
def test_an_invalid_address_is_refused_by_name(set_connection, fields, message):
    set_connection("connect", conn_type="spark_connect", **fields)

    with pytest.raises(
        InvalidInputError, match=f"The Spark Connect connection 'connect' has .*{message}"
    ) as caught:
        submitter().ready()

    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("sc://host", "sc://host:15002/;"),
        ("my_host.x-y:7", "sc://my_host.x-y:7/;"),
        ("[fd00::1]:7", "sc://[fd00::1]:7/;"),
        ("::1", "sc://[::1]:15002/;"),
    ],
)
def test_a_host_may_be_an_ipv6_address_and_have_a_port(set_connection, host, url):
    set_connection("connect", conn_type="spark_connect", host=host)

    assert submitter()._url() == url
    spark = remote.create(url)
    endpoint = spark.client._builder.endpoint  # type: ignore[attr-defined]  # of its only subclass
    assert endpoint == url.removeprefix("sc://").removesuffix("/;")
    spark.release_session_on_close = False  # type: ignore[attr-defined]  # Connect only; there is no server
    spark.stop()


@pytest.mark.submits
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # until the teardown
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("airflow_db")
def test_the_example_runs_ten_inserts_on_one_server(connect, set_connection, sqlite_catalog, monkeypatch):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    port = free_port()
    set_connection("spark_connect_default", conn_type="spark_connect", host="127.0.0.1", port=port)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    run = succeeded(parse(EXAMPLE))

    assert xcom(run, "count_readings") == 10_000
    with pytest.raises(ConnectionRefusedError):
        wait_until_refused(port)


def wait_until_refused(port: int) -> None:
    for _ in range(100):
        socket.create_connection(("127.0.0.1", port), 1).close()
        time.sleep(0.2)


def test_an_outage_while_settings_are_made_is_for_the_next_try(lake, set_connection, monkeypatch):
    """The server, or a proxy before it, listens and closes each connection: the task is to be retried."""
    monkeypatch.setattr(remote, "_RETRIES", 1)
    with closing_server() as port:
        set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=port)
        with pytest.raises(SparkJobError, match="The Spark Connect server stopped answering"):
            run(DuckLakeSparkInsertOperator, table="orders", sql=ROW, conf={ZONE: "UTC"})
    assert lake.current_snapshot().id == 2


@contextmanager
def closing_server() -> Iterator[int]:
    class Closing(socketserver.BaseRequestHandler):
        """Ends each connection at once."""

    with socketserver.TCPServer(("127.0.0.1", 0), Closing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_settings_of_s3a_in_the_tasks_conf_come_before_the_connections_options(server):
    own = {
        "spark.hadoop.fs.s3a.bucket.own.endpoint": "http://own:9000",
        "spark.hadoop.fs.s3a.access.key": "own",
    }
    with remote.remote_mode():
        spark = remote.create(server.url)
        try:
            remote.configure(spark, own, ())
            options = {"key": "ours", "secret": SECRET, "endpoint_url": "http://ours:9000"}
            reach_buckets(spark, ["s3://own/lake/", "s3://other/lake/"], options)
            found = {name: value for name, value in spark.conf.getAll.items() if "s3a.bucket" in name}
        finally:
            spark.stop()

    assert found == {
        "fs.s3a.bucket.own.endpoint": "http://own:9000",
        "fs.s3a.bucket.other.endpoint": "http://ours:9000",
        "fs.s3a.bucket.other.path.style.access": "true",
    }


def test_a_session_that_the_server_has_ended_is_named(server):
    with remote.remote_mode():
        spark = remote.create(server.url)
        spark.range(1).count()
        spark.client.release_session()
        with pytest.raises(Exception, match="SESSION_CLOSED") as caught:
            spark.range(1).count()
        spark.stop()

    assert str(typed(caught.value)).startswith(
        "The Spark Connect server stopped answering, or was started again"
    )


SLOW = "SELECT count(*) AS id FROM range(1e12) AS a WHERE hash(a.id) = 0"


def signal_at_work(server: ConnectServer, number: int, jobs: int = 0) -> None:
    """Send a signal to a server once it runs a job: the log of its events is on the disk from then on."""
    for _ in range(1_000):
        if server.events.count("SparkListenerJobStart") > jobs:
            break
        time.sleep(0.2)
    os.killpg(server.process_id, number)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.drawn(one_in=5)
def test_a_frozen_server_does_not_hold_a_task_beyond_its_time_out(lake, server, monkeypatch, capfd):
    monkeypatch.setattr(spark_connect_submitter, "_SECONDS_TO_END", 1.0)
    sql = f"SELECT id, 'a' AS name, 1.5D AS price FROM ({SLOW})"
    jobs = server.events.count("SparkListenerJobStart")
    freezer = threading.Thread(target=signal_at_work, args=(server, signal.SIGSTOP, jobs), daemon=True)
    thaw = threading.Timer(60, os.killpg, (server.process_id, signal.SIGCONT))
    freezer.start()
    thaw.start()
    try:
        with pytest.raises(AirflowTaskTimeout), timeout(12):
            run(DuckLakeSparkInsertOperator, table="orders", sql=sql)
        assert thaw.is_alive()
        freezer.join(0)
        assert not freezer.is_alive()
    finally:
        thaw.cancel()
        os.killpg(server.process_id, signal.SIGCONT)
    assert "may run on for some minutes" in "".join(capfd.readouterr())
    assert lake.row_count("orders") == 0


@pytest.mark.kills
def test_a_server_that_dies_leaves_nothing(connect, set_connection, sqlite_catalog, tmp_path, monkeypatch):
    """The job waits for input that never comes; its server is killed, and comes back."""
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    monkeypatch.setattr(remote, "_RETRIES", 2)
    by_duckdb(sqlite_catalog, "CREATE TABLE orders (id BIGINT)")
    with connect_server(tmp_path / "first") as first:
        set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=first.port)
        killer = threading.Thread(target=signal_at_work, args=(first, signal.SIGKILL))
        killer.start()
        with pytest.raises(SparkJobError, match="The Spark Connect server stopped answering"):
            run(DuckLakeSparkInsertOperator, table="orders", sql=SLOW)
        killer.join()

    lake = Lake.connect(sqlite_catalog.sqlalchemy_url)
    assert lake.row_count("orders") == 0
    assert lake.verify() == []
    assert not list(Path(lake.table_snapshot("orders").root).rglob("ducklake-*-*/*"))
    lake.close()
