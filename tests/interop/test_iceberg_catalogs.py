"""Catalogs that name an Iceberg table: the place of its metadata is all that is taken from them."""

import json
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.foreign import source
from tests.interop.iceberg_source import append, local, new_table
from tests.reference.silent import silent_server, talking_server

ID = {"id": "long"}
SOURCE = "sales.orders"
EVIL = "ran_by_name"  # a module, which must never be imported


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as made:
        yield made


@pytest.fixture
def evil(tmp_path, monkeypatch) -> Iterator[str]:
    """Return the name of a class; no process has imported its module by the end of the test."""
    ran = tmp_path / "ran"
    (tmp_path / f"{EVIL}.py").write_text(
        f"open({str(ran)!r}, 'w')\nclass Named:\n    def __init__(self, *_, **__): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield f"{EVIL}.Named"
    assert not ran.exists()


class RestServer:
    """Iceberg's REST API with one table: ``config`` and ``of_table`` are what it says beside the metadata."""

    def __init__(self, metadata: str) -> None:
        self.config: dict[str, Any] = {}
        self.of_table: dict[str, Any] = {}
        self.metadata = json.loads(local(metadata).read_text())
        table = {"metadata-location": metadata, "metadata": self.metadata}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("/config"):
                    said: dict[str, Any] = {"defaults": {}, "overrides": server.config}
                else:
                    said = {**table, "config": server.of_table}
                status = 200 if self.path.endswith(("/config", "/orders")) else 404
                if status != 200:
                    said = {"error": {"message": "", "type": "NoSuchTableException", "code": 404}}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.properties = {"type": "rest", "uri": f"http://127.0.0.1:{self.server.server_port}"}
        Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def rest(tmp_path) -> Iterator[RestServer]:
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1, 2])
    one = RestServer(table.metadata_location)
    yield one
    one.server.shutdown()
    one.server.server_close()


def add(lake: Lake, catalog: dict[str, Any], name: str = SOURCE) -> int:
    lake.add_table("t", name, "iceberg", catalog=catalog, create_table=True)
    return lake.row_count("t")


def test_a_rest_catalog_names_the_metadata(lake, rest):
    assert add(lake, rest.properties) == 2
    with pytest.raises(errors.SourceNotFoundError, match=r"sales\.none"):
        add(lake, rest.properties, "sales.none")


@pytest.mark.parametrize("location", ["file:///", "{}", "s3://bucket"])
def test_the_location_that_a_rest_catalog_says_is_not_the_folder(lake, tmp_path, location):
    elsewhere = tmp_path / "payroll" / "p.parquet"
    elsewhere.parent.mkdir(mode=0o700)
    pq.write_table(pa.table({"id": [42]}), elsewhere)
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1, 2])
    honest = RestServer(table.metadata_location)
    table.add_files([f"file://{elsewhere}"])
    one = RestServer(table.metadata_location)
    honest.metadata["location"] = one.metadata["location"] = location.format(tmp_path)

    with pytest.raises(errors.UntrustedValueError, match="lies in none of the folders"):
        add(lake, one.properties)
    assert add(lake, honest.properties) == 2
    for server in (one.server, honest.server):
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("again", [None, b"HTTP/1.1 200 OK\r\n", b" "], ids=["silent", "head", "body"])
def test_a_rest_catalog_that_never_ends_its_answer_is_an_error_after_the_limit(lake, monkeypatch, again):
    monkeypatch.setattr(source, "MOST_SECONDS", 10)
    head = b"HTTP/1.1 200 OK\r\n\r\n" if again == b" " else b""
    server = silent_server() if again is None else talking_server(lambda one: one.sendall(head), again)
    with (
        server as port,
        pytest.raises(errors.StorageError, match=r"sales\.orders: it took more than 10 seconds"),
    ):
        add(lake, {"uri": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize(
    "properties",
    [
        {"py-catalog-impl": EVIL},
        {"Py-IO-Impl": EVIL},
        {"s3.retry-strategy-impl": EVIL},
        {"write.py-location-provider.impl": EVIL},
        {"auth": {"type": "custom", "impl": EVIL}},
        {"auth": {"type": EVIL}},
        {"auth.type": EVIL},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("kind", ["rest", "in-memory"])
def test_no_property_of_a_user_names_a_class(lake, evil, properties, kind):
    text = json.dumps({"type": kind, "uri": "http://127.0.0.1:9", **properties}).replace(EVIL, evil)

    with pytest.raises(errors.InvalidInputError, match="classes are not taken"):
        add(lake, json.loads(text))


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest", "uri": "http://127.0.0.1:9", "token": "s3cr3t\n"},
        {"type": "rest", "uri": "http://127.0.0.1:9", "header.Authorization": "Bearer s3cr3t\n"},
        {"type": "rest", "uri": "htp://user:s3cr3t@127.0.0.1:9"},
        {"type": "rest", "uri": "user:s3cr3t@127.0.0.1:9"},
        {"type": "rest", "uri": "http://127.0.0.1:9?token=s3cr3t"},
        {"type": "sql", "uri": "postgresql://user:x@s3cr3t@nowhere.invalid/db"},
        {"type": "sql", "uri": "postgresql://user:x@s3cr3t:s3cr3t@nowhere.invalid/db"},
        {"type": "sql", "uri": "user:s3cr3t@nowhere.invalid/db"},
        {"type": "rest", "uri": "http://127.0.0.1:9", "py-catalog-impl": "s3cr3t"},
    ],
    ids=json.dumps,
)
def test_no_secret_is_in_an_error(lake, properties):
    with pytest.raises((errors.StorageError, errors.InvalidInputError)) as failed:
        add(lake, properties)

    assert "s3cr3t" not in "".join(traceback.format_exception(failed.value)).lower()


@pytest.mark.parametrize(
    "properties",
    [
        {"py-io-impl": EVIL},
        {"auth": {"type": "custom", "impl": EVIL, "custom": {}}},
        {"auth": {"type": EVIL}},
    ],
    ids=json.dumps,
)
def test_no_answer_of_a_rest_catalog_names_a_class(lake, rest, evil, properties):
    rest.config = json.loads(json.dumps(properties).replace(EVIL, evil))

    with pytest.raises(errors.UntrustedValueError, match="imported and called"):
        add(lake, rest.properties)


def test_a_class_that_a_table_names_is_not_imported(lake, rest, evil):
    rest.of_table = {"py-io-impl": evil}

    assert add(lake, rest.properties) == 2


def test_a_class_that_the_properties_of_a_table_name_is_not_imported(lake, evil, tmp_path):
    table = new_table(tmp_path / "ice", ID, name="clicks")
    append(table, id=[1])
    metadata = local(table.metadata_location)
    document = json.loads(metadata.read_text())
    document["properties"]["py-io-impl"] = evil
    metadata.write_text(json.dumps(document))

    assert add(lake, sql_catalog(tmp_path), "sales.clicks") == 1


def sql_catalog(folder: Path) -> dict[str, str]:
    return {"name": "source", "type": "sql", "uri": f"sqlite:///{folder}/ice/catalog.db"}


def test_the_metadata_file_of_a_sql_catalog_does_not_choose_the_folder(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1, 2])
    other = new_table(tmp_path / "other", ID)
    append(other, id=[3])
    said = json.loads(local(other.metadata_location).read_text()) | {"location": "file:///"}
    local(table.metadata_location).write_text(json.dumps(said))

    with pytest.raises(errors.UntrustedValueError, match="lies in none of the folders"):
        add(lake, sql_catalog(tmp_path))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("sqlite:///{}/new.db", "new.db' does not exist"),
        ("sqlite:///file:{}/new.db?mode=rwc&uri=true", "does not exist"),
        ("sqlite://", "does not exist"),
        ("duckdb:///{}/new.db", "'duckdb' is not supported"),
        ("no url", "'no scheme' is not supported"),
    ],
)
def test_no_database_is_made(lake, tmp_path, uri, words):
    there = sorted(Path(tmp_path).rglob("*"))

    with pytest.raises(errors.InvalidInputError, match=words):
        add(lake, {"type": "sql", "uri": uri.format(tmp_path)})
    assert sorted(Path(tmp_path).rglob("*")) == there


def test_no_table_is_made_in_a_database(lake, tmp_path):
    (tmp_path / "empty.db").touch()

    with pytest.raises(errors.StorageError, match="iceberg_tables"):
        add(lake, {"type": "sql", "uri": f"sqlite:///{tmp_path}/empty.db"})
    assert (tmp_path / "empty.db").read_bytes() == b""


@pytest.mark.parametrize("key", ["uri", "oauth2-server-uri", "s3.endpoint"])
def test_credentials_of_the_worker_go_to_the_server_that_they_are_for(lake, rest, monkeypatch, key):
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", rest.properties["uri"])
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", "hidden-word")
    given = {"name": "prod", "type": "rest"}

    named = pytest.raises(errors.InvalidInputError, match=f"another {key} .*'prod'")
    with silent_server() as elsewhere, named as refused:
        add(lake, {**given, key: f"http://127.0.0.1:{elsewhere}"})
    assert "hidden-word" not in str(refused.value)
    assert add(lake, {**given, "uri": rest.properties["uri"]}) == 2
