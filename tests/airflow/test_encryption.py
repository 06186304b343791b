"""DAG runs on an encrypted lake: right rows, and no key where it could be seen."""

import base64
import json
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from airflow.sdk import BaseHook

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook, open_catalog
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger import jobs
from airflow_provider_ducklake.lake.errors import CatalogError, InvalidOptionError, StorageError
from airflow_provider_ducklake.lake.storage.files import writing
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import parse, rendered_fields, sync_dag, xcom
from tests.airflow.spark_submit import SparkSubmit, recorded
from tests.interop.lakes import alone
from tests.interop.test_encrypted_lakes import COLUMNS, check_equal, check_sealed, contents_seen, keys, rows
from tests.reference.duckdb_lake import open_lake

TASKS = ("load", "change", "merge", "staged", "commit", "compact")
DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG
from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator

with DAG(
    "sealed", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, default_args={{"conf": {conf!r}}}
):
    load = DuckLakeSparkInsertOperator(task_id="load", table="t", source={source!r})
    change = DuckLakeSparkUpdateOperator(
        task_id="change", table="t", set={{"word": "'x'"}}, where="id % 100 = 1"
    )
    merge = DuckLakeSparkMergeOperator(
        task_id="merge",
        table="t",
        source={source!r},
        on=["id"],
        when_matched=[{{"update": {{"word": "source.word"}}}}],
    )
    staged = DuckLakeSparkInsertOperator(task_id="staged", table="t", source={source!r}, stage_only=True)
    commit = DuckLakeCommitOperator(task_id="commit", staged=[staged.output])
    compact = DuckLakeSparkMergeAdjacentFilesOperator(task_id="compact", table="t")
    load >> change >> merge >> staged >> commit >> compact
"""


@pytest.fixture
def submit(tmp_path, monkeypatch) -> SparkSubmit:
    return recorded(tmp_path / "bin", monkeypatch)


def seen_by_others(catalog) -> AbstractContextManager[set[bytes]]:
    """Collect what others see meanwhile: documents below the data path, and arguments of all processes."""
    root, processes = Path(catalog.data_path), Path("/proc")
    return contents_seen(
        lambda: [*root.rglob("*.json"), *root.rglob("_*"), *processes.glob("[0-9]*/cmdline")]
    )


def forms_of(key: str) -> list[bytes]:
    """Return the forms in which a key could lie somewhere."""
    raw = base64.b64decode(key)
    return [key.encode(), raw, raw.hex().encode(), raw.hex().upper().encode(), json.dumps(key).encode()[1:-1]]


@pytest.mark.submits
@pytest.mark.usefixtures("airflow_db")
def test_a_dag_run_shows_no_key(sqlite_catalog, set_connection, submit, tmp_path, capfd):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
    set_connection(**connection_fields(sqlite_catalog))
    set_connection("spark_default", conn_type="spark", host="local[2]")
    pq.write_table(rows(), tmp_path / "rows.parquet")
    events = tmp_path / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    conf |= {"spark.eventLog.dir": f"file://{events}"}
    (tmp_path / "sealed.py").write_text(DAG_FILE.format(conf=conf, source=str(tmp_path / "rows.parquet")))

    with seen_by_others(sqlite_catalog) as seen:
        run = sync_dag(parse(tmp_path / "sealed.py")).test()

    log = "".join(capfd.readouterr())
    assert run.state == "success", log
    check_sealed(sqlite_catalog)
    check_equal(sqlite_catalog)
    with open_lake(sqlite_catalog, encrypted=True) as reference:
        assert reference.sql("SELECT count(*), count(DISTINCT id) FROM t") == [(10_000, 5_000)]
    documents = [one for one in seen if one.startswith(b"DLS2")]
    assert len(documents) > 10, "requests, results, a staged write and records of bins"
    seen |= {file.read_bytes() for file in events.rglob("*") if file.is_file()}
    assert any(b"SparkListenerEnvironmentUpdate" in one for one in seen)
    seen |= {
        log.encode(),
        json.dumps([call.arguments for call in submit.calls]).encode(),
        *(json.dumps(rendered_fields(run, task_id), default=str).encode() for task_id in TASKS),
        *(str(xcom(run, task_id)).encode() for task_id in TASKS),
    }
    secrets = [*keys(sqlite_catalog), document_key(sqlite_catalog)]
    assert len(secrets) > 4
    assert not [one for key in secrets for form in forms_of(key) for one in seen if form in one]


def test_a_connection_can_insist_on_encryption(sqlite_catalog, connect):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    connect(sqlite_catalog, encrypted="true")

    with pytest.raises(InvalidOptionError, match=r"Encrypted.*this lake's files are not encrypted"):
        DuckLakeHook().lake()


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"key_bytes": 17}, "17 is not a length of AES keys"),
        ({"key_bytes": True}, "True is not a length of AES keys"),
        ({"encrypted": "yes"}, "'yes' is neither true nor false"),
        ({"document_key_file": "key"}, "'key' is not the absolute path of a file"),
        ({"document_key_file": "/no/such/file"}, "Cannot read document_key_file /no/such/file"),
    ],
)
def test_a_field_of_encryption_that_is_wrong_is_named(sqlite_catalog, connect, extra, problem):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True).close()
    connect(sqlite_catalog, **extra)

    with pytest.raises((InvalidOptionError, StorageError), match=problem):
        DuckLakeHook().lake()


def test_a_lake_is_watched_where_its_key_file_is_not(sqlite_catalog, connect):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True).close()
    conn_id = connect(sqlite_catalog, encrypted=True, document_key_file="/run/secrets/on/workers/alone")

    with open_catalog(BaseHook.get_connection(conn_id)) as lake:
        assert lake.current_snapshot().id == 0


def test_a_key_file_without_a_key_says_how_to_make_one(sqlite_catalog, connect, tmp_path):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True).close()
    (tmp_path / "key").write_text("secret words")
    connect(sqlite_catalog, document_key_file=str(tmp_path / "key"))

    with pytest.raises(StorageError, match="openssl rand -base64 32") as raised:
        DuckLakeHook().lake()

    assert "secret words" not in str(raised.value)


def document_key(catalog) -> str:
    with open_lake(catalog, encrypted=True) as duckdb:
        name = "__ducklake_metadata_lake.airflow_ducklake_document_key"
        ((key,),) = duckdb.sql(f"SELECT document_key FROM {name}")
    return key


def test_two_keys_for_documents_are_refused_with_what_to_do(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        key = jobs.ensure_document_key(lake.opened.catalog, writing.new_key())
        with closing(sqlite3.connect(sqlite_catalog.location)) as connection:
            connection.execute("INSERT INTO airflow_ducklake_document_key VALUES (2, 'abc')")
            connection.commit()

        for ask in (jobs.document_key, lambda catalog: jobs.ensure_document_key(catalog, key)):
            with pytest.raises(CatalogError, match="delete all rows but the one with id 1"):
                ask(lake.opened.catalog)
