"""Each field of a connection, right and wrong, connections to clouds, and ATTACH statements.

The server that stores connections checks nothing.
"""

import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pytest
from airflow.sdk import Connection
from airflow.sdk.log import redact  # type: ignore[attr-defined]
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import URL

from airflow_provider_ducklake.hooks.connection import ConnectionSettings, attach_statement, read_settings
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidOptionError
from airflow_provider_ducklake.lake.storage.files.filesystem import exists
from tests.airflow.conftest import SetConnection, connection_fields
from tests.interop.lakes import by_duckdb
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import load_extension

SECRET = "s3cr3t/ p@ss"


def connection(extra: dict[str, Any] | str | None = None, **fields: Any) -> Connection:
    text = json.dumps(extra) if isinstance(extra, dict) else extra
    return Connection(conn_id="lake", conn_type="ducklake", extra=text, **fields)


def sqlite(path: str | None = "/data/lake.sqlite", **extra: Any) -> ConnectionSettings:
    return read_settings(connection({"catalog_type": "sqlite", **extra}, schema=path))


def postgres(extra: dict[str, Any] | None = None, **fields: Any) -> ConnectionSettings:
    fields = {"host": "db.example.com", "schema": "lakehouse", **fields}
    return read_settings(connection({"catalog_type": "postgres", **(extra or {})}, **fields))


def test_a_sqlite_connection_names_a_file():
    settings = sqlite()

    assert str(settings.url) == "sqlite:////data/lake.sqlite"
    assert (settings.metadata_schema, settings.data_path, settings.storage_options) == (None, None, {})


def test_a_postgres_connection_names_server_user_and_database():
    settings = postgres({"metadata_schema": "lake"}, login="etl", password=SECRET, port=5433)

    assert settings.url.render_as_string(hide_password=False) == (
        "postgresql+psycopg://etl:s3cr3t%2F p%40ss@db.example.com:5433/lakehouse"
    )
    assert settings.metadata_schema == "lake"
    assert settings.commit_namespace is None


def test_a_connection_may_name_the_namespace_of_commits():
    assert postgres({"commit_namespace": "prod"}).commit_namespace == "prod"


def test_a_connection_may_limit_how_long_a_task_waits():
    settings = sqlite(lock_timeout_seconds=30, statement_timeout_seconds="40.5")

    assert settings.url.query == {"lock_timeout_seconds": "30", "statement_timeout_seconds": "40.5"}


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"lock_timeout_seconds": "soon"}, r"field Lock timeout \(lock_timeout_seconds\): .*'soon'"),
        ({"statement_timeout_seconds": -1}, r"field Statement timeout \(statement_timeout_seconds\): .*-1"),
        ({"lock_timeout_seconds": 700}, r"field Statement timeout .* 600, lock_timeout_seconds 700"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_the_name_of_its_field(extra, field):
    with pytest.raises(InvalidOptionError, match=field):
        sqlite(**extra)


def test_a_mysql_connection_names_server_user_and_database():
    settings = postgres({"catalog_type": "mysql"}, login="etl", password=SECRET, port=3307)

    assert settings.url.render_as_string(hide_password=False) == (
        "mysql+pymysql://etl:s3cr3t%2F p%40ss@db.example.com:3307/lakehouse"
    )


def test_a_duckdb_connection_names_a_file_and_perhaps_a_schema():
    settings = read_settings(
        connection({"catalog_type": "duckdb", "metadata_schema": "meta"}, schema="/data/lake.duckdb")
    )

    assert (str(settings.url), settings.metadata_schema) == ("duckdb:////data/lake.duckdb", "meta")


def test_user_password_and_port_may_be_left_to_the_database():
    assert str(postgres().url) == "postgresql+psycopg://db.example.com/lakehouse"


@pytest.mark.parametrize("port", [5432, "5432"])
def test_a_port_may_come_as_text(port):
    assert postgres(port=port).url.port == 5432


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/data/files", "/data/files/"),
        ("/data/files/", "/data/files/"),
        ("s3://bucket/lake", "s3://bucket/lake/"),
    ],
)
def test_a_data_path_ends_in_a_slash(path, kept):
    assert sqlite(data_path=path).data_path == kept


@pytest.mark.parametrize("options", [{"key": "k", "secret": "s"}, '{"key": "k", "secret": "s"}'])
def test_storage_options_may_come_as_the_text_of_an_object(options):
    assert sqlite(storage_options=options).storage_options == {"key": "k", "secret": "s"}


@pytest.mark.parametrize("port", [0, None, ""])
def test_a_port_of_zero_is_an_empty_field_of_airflows_form(port):
    assert postgres(port=port).url.port is None


def test_a_connection_to_something_else_is_named_with_its_type():
    other = Connection(conn_id="crm", conn_type="postgres", host="db", extra='{"sslmode": "require"}')

    with pytest.raises(
        InvalidOptionError, match=r"'crm' is of type 'postgres'; a lake needs .* type 'ducklake'"
    ):
        read_settings(other)


def test_fields_left_empty_in_the_form_count_as_absent():
    settings = postgres(
        {"metadata_schema": "", "data_path": None, "storage_options": None}, login="", password=""
    )

    assert settings == postgres()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"extra": {}}, ["catalog_type", "is empty", "postgres, mysql, sqlite, duckdb"]),
        (
            {"extra": {"catalog_type": "oracle"}},
            ["catalog_type", "'oracle'", "postgres, mysql, sqlite, duckdb"],
        ),
        ({"extra": {"catalog_type": ["sqlite"]}}, ["catalog_type", "['sqlite']"]),
        ({"port": "abc"}, ["Port", "'abc'", "1 to 65535"]),
        ({"port": 70000}, ["Port", "70000"]),
        ({"port": 54.5}, ["Port", "54.5"]),
        ({"host": None}, ["Host", "is empty"]),
        ({"schema": ""}, ["Database (schema)", "is empty"]),
        ({"extra": {"catalog_type": "sqlite"}, "schema": None}, ["Database (schema)", "SQLite file"]),
        (
            {"extra": {"catalog_type": "sqlite"}, "schema": "lake.db"},
            ["Database (schema)", "'lake.db'", "relative"],
        ),
        ({"extra": {"catalog_type": "sqlite"}, "schema": ":memory:"}, ["Database (schema)", "':memory:'"]),
        ({"extra": {"catalog_type": "duckdb"}, "schema": None}, ["Database (schema)", "DuckDB file"]),
        (
            {"extra": {"catalog_type": "duckdb"}, "schema": "lake.duckdb"},
            ["Database (schema)", "relative", "/data/lake.duckdb"],
        ),
        ({"extra": {"catalog_type": "mysql"}, "host": None}, ["Host", "is empty", "MySQL"]),
        ({"extra": {"catalog_type": "mysql"}, "schema": None}, ["Database (schema)", "is empty", "MySQL"]),
        (
            {"extra": {"catalog_type": "mysql", "metadata_schema": "lake"}},
            ["Metadata schema (metadata_schema)", "'lake'", "is a database"],
        ),
        (
            {"extra": {"catalog_type": "sqlite", "metadata_schema": "lake"}, "schema": "/data/l"},
            ["Metadata schema (metadata_schema)", "'lake'", "Clear"],
        ),
        (
            {"extra": {"catalog_type": "postgres", "metadata_schema": 7}},
            ["Metadata schema (metadata_schema)", "7"],
        ),
        (
            {"extra": {"catalog_type": "postgres", "data_path": "files/"}},
            ["Data path (data_path)", "'files/'", "relative"],
        ),
        ({"extra": {"catalog_type": "postgres", "data_path": 7}}, ["Data path (data_path)", "7"]),
        (
            {"extra": {"catalog_type": "postgres", "foreign_files": "perhaps"}},
            ["Foreign files (foreign_files)", "'perhaps'"],
        ),
        (
            {"extra": {"catalog_type": "postgres", "commit_namespace": ["prod"]}},
            ["Commit namespace (commit_namespace)", "['prod']"],
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_to_do(fields, said):
    fields = {"host": "db", "schema": "lakehouse", "extra": {"catalog_type": "postgres"}, **fields}

    with pytest.raises(InvalidOptionError) as raised:
        read_settings(connection(**fields))

    assert str(raised.value).startswith("Connection 'lake', field ")
    assert [part for part in said if part not in str(raised.value)] == []


@pytest.mark.parametrize(
    "extra",
    [
        {"catalog_type": "postgres", "storage_options": f'{{"secret": "{SECRET}"'},
        {"catalog_type": "postgres", "storage_options": [SECRET]},
        {"catalog_type": "postgres", "storage_options": f'"{SECRET}"'},
        {"catalog_type": "postgres", "pasword": SECRET},
        f'{{"storage_options": "{SECRET}"',
        f'["{SECRET}"]',
    ],
)
def test_a_value_that_may_be_secret_is_not_shown(extra):
    with pytest.raises(InvalidOptionError) as raised:
        read_settings(connection(extra, host="db", schema="lakehouse"))

    shown = "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown
    assert "Connection 'lake'" in str(raised.value)


def test_an_unknown_key_is_named_and_so_are_the_known_ones():
    with pytest.raises(InvalidOptionError, match=r"'s3_region'.*catalog_type, data_path, storage_conn_id"):
        sqlite(s3_region="eu-central-1")


def test_settings_show_no_secret():
    settings = postgres(
        {"storage_options": {"secret": SECRET, "client_kwargs": {"aws_secret_access_key": SECRET}}},
        login="etl",
        password=SECRET,
    )

    assert SECRET not in f"{settings} {settings!r} {settings.url} {settings.url!r}"
    assert "s3cr3t" not in f"{settings!r}"


def test_secrets_are_masked_in_logs_from_then_on():
    storage = {
        "key": "AKIAEXAMPLE",
        "secret": "wJalrXUtnFEMI",
        "kw": {"session_token": "FwoGZXIvYXdz"},
        "region": "eu-1",
    }
    postgres({"storage_options": storage}, login="etl", password="tr0ub4dor&3")

    line = redact(
        "connecting to postgresql+psycopg://etl:tr0ub4dor%263@db.example.com/lakehouse, "
        "password tr0ub4dor&3, AKIAEXAMPLE wJalrXUtnFEMI FwoGZXIvYXdz eu-1"
    )

    assert line == "connecting to ***, password ***, *** *** *** eu-1"


def test_all_that_stands_below_a_secrets_name_is_masked():
    storage = {
        "credentials": {"account": "inner-value-1", "more": ["inner-value-2", {"x": {"y": "inner-value-3"}}]},
        "passwords": ["inner-value-4", 123456789, True],
        "profiles": [{"region": "outer-value", "secret": "inner-value-5"}],
        "token": {"private_key": "-----BEGIN\nMIIEvQIBADANBg\n-----END"},
    }
    postgres({"storage_options": storage}, login="etl")

    line = redact(" ".join(f"inner-value-{number}" for number in range(1, 6)))

    assert line == "*** *** *** *** ***"
    assert redact(f"123456789 True outer-value {json.dumps(storage['token'])}") == (
        '*** True outer-value {"private_key": "***"}'
    )


@pytest.mark.parametrize(("value", "meant"), [(None, False), (False, False), ("True", True), (True, True)])
def test_files_elsewhere_are_written_and_deleted_where_the_connection_says_so(value, meant):
    assert postgres({"foreign_files": value}).foreign_files is meant


def test_checking_a_connection_logs_nothing():
    class Seen(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record.getMessage())

    seen = Seen()
    logging.getLogger().addHandler(seen)
    try:
        postgres({"storage_options": {"secret": SECRET}}, password=SECRET)
    finally:
        logging.getLogger().removeHandler(seen)

    assert seen.lines == []


# --- connections to clouds open the lake's store ---

BUCKET = "storage-connection"
KEYFILE = {"type": "service_account", "private_key": "pem-of-this-test", "client_email": "etl@example.com"}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "amazon": (
        {
            "conn_type": "aws",
            "login": "id",
            "password": "x",
            "extra": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
        },
        {
            "key": "id",
            "secret": "x",
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"region_name": "eu-west-1"},
        },
    ),
    "amazon, for s3 alone": (
        {
            "conn_type": "aws",
            "extra": {
                "aws_access_key_id": "id",
                "aws_secret_access_key": "x",
                "aws_session_token": "t",
                "endpoint_url": "http://other",
                "service_config": {"s3": {"endpoint_url": "http://minio:9000"}},
                "verify": False,
            },
        },
        {
            "key": "id",
            "secret": "x",
            "token": "t",
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"verify": False},
        },
    ),
    "amazon, the machine's role": ({"conn_type": "aws"}, {}),
    "google": (
        {
            "conn_type": "google_cloud_platform",
            "extra": {"keyfile_dict": json.dumps(KEYFILE), "project": "p"},
        },
        {"token": KEYFILE, "project": "p"},
    ),
    "google, of an old form": (
        {
            "conn_type": "google_cloud_platform",
            "extra": {"extra__google_cloud_platform__key_path": "/k.json"},
        },
        {"token": "/k.json"},
    ),
    "google, the machine's": ({"conn_type": "google_cloud_platform"}, {"token": "google_default"}),
    "azure, by key": (
        {"conn_type": "wasb", "login": "account", "password": "x"},
        {"account_name": "account", "account_key": "x"},
    ),
    "azure, by signature": (
        {"conn_type": "wasb", "login": "account", "extra": {"sas_token": "https://a.net/?sig=x&se=1"}},
        {"account_name": "account", "sas_token": "sig=x&se=1"},
    ),
    "azure, by client": (
        {
            "conn_type": "wasb",
            "host": "https://account.blob.core.windows.net/",
            "login": "client",
            "password": "x",
            "extra": {"tenant_id": "t"},
        },
        {"account_name": "account", "client_id": "client", "client_secret": "x", "tenant_id": "t"},
    ),
    "azure, by string": (
        {"conn_type": "wasb", "extra": {"connection_string": "AccountName=a;AccountKey=x"}},
        {"connection_string": "AccountName=a;AccountKey=x"},
    ),
}
REFUSED = [
    (None, "'store' does not exist. Create it"),
    ({"conn_type": "postgres"}, "of type 'postgres'. Name one of type aws, google_cloud_platform"),
    (
        {"conn_type": "google_cloud_platform", "extra": {"impersonation_chain": "sa"}},
        "impersonation_chain, which",
    ),
    (
        {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": "{"}},
        "'store' has a keyfile_dict that is not valid JSON",
    ),
    (
        {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": "[" * 100_000}},
        "'store' has a keyfile_dict that is not valid JSON",
    ),
    ({"conn_type": "aws", "extra": "[1]"}, "'store' is not a valid JSON object"),
]


@pytest.fixture
def lake_hook(set_connection: SetConnection) -> DuckLakeHook:
    extra = {"catalog_type": "sqlite", "storage_conn_id": "store"}
    return DuckLakeHook(set_connection(conn_type="ducklake", schema="/data/lake.sqlite", extra=extra))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_connection_stands_for_storage_options(lake_hook, set_connection, name):
    fields, options = OPTIONS[name]
    set_connection("store", **fields)

    assert lake_hook.settings().storage_options == options


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_cannot_be_handed_on_is_refused_by_name(lake_hook, set_connection, fields, message):
    if fields is not None:
        set_connection("store", **fields)

    with pytest.raises(InvalidOptionError, match=rf"\(storage_conn_id\): the .*{message}"):
        lake_hook.settings()


def test_the_lakes_own_options_count_before_it(set_connection):
    set_connection("store", **OPTIONS["amazon"][0])
    own = {"secret": "own", "client_kwargs": {"verify": False}}
    extra = {"catalog_type": "sqlite", "storage_conn_id": "store", "storage_options": own}
    lake = set_connection(conn_type="ducklake", schema="/data/lake.sqlite", extra=extra)

    options = DuckLakeHook(lake).settings().storage_options

    assert (options["key"], options["secret"]) == ("id", "own")
    assert options["client_kwargs"] == {"region_name": "eu-west-1", "verify": False}


def test_a_role_is_taken_on_by_the_amazon_provider(lake_hook, set_connection, monkeypatch):
    with s3.bucket(BUCKET) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)  # of its token service, too
        keys = {"aws_access_key_id": "id", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        role = boto3.client("iam", **keys).create_role(RoleName="lake", AssumeRolePolicyDocument=trust)
        extra = {"role_arn": role["Role"]["Arn"], "region_name": "us-east-1", "endpoint_url": endpoint}
        set_connection("store", conn_type="aws", login="id", password="x", extra=extra)

        options = lake_hook.settings().storage_options

        assert options["key"] != "id"
        assert options["token"]
        assert not exists(f"s3://{BUCKET}/lake/", options)


def test_without_the_provider_a_role_is_refused(lake_hook, set_connection, monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    set_connection("store", conn_type="aws", extra={"role_arn": "arn:aws:iam::1:role/lake"})

    with pytest.raises(
        InvalidOptionError, match=r"takes on a role or a profile\. Install apache-airflow-providers-amazon"
    ):
        lake_hook.settings()


# --- the ATTACH statement of a connection, run by DuckDB ---

SCANNERS = {"sqlite": ["sqlite_scanner"], "postgres": ["postgres_scanner"], "mariadb": ["mysql_scanner"]}


def tables_seen_by_duckdb(kind: str, statement: str, alias: str) -> list[tuple[str]]:
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for extension in [*SCANNERS.get(kind, []), "ducklake"]:
            load_extension(connection, extension)
        connection.execute(statement)
        return connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [alias]
        ).fetchall()


@pytest.mark.every_catalog
def test_duckdb_attaches_the_lake_of_a_connection(catalog: CatalogDatabase, connect):
    by_duckdb(catalog, "CREATE TABLE orders (id INT)")
    connect(catalog)

    statement = DuckLakeHook().duckdb_attach(alias="the lake")

    assert tables_seen_by_duckdb(catalog.kind, statement, "the lake") == [("orders",)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_duckdb_attaches_a_file_of_any_name(kind, tmp_path: Path, set_connection):
    catalog = CatalogDatabase(kind, f'{tmp_path}/it\'s a "lake".{kind}', f"{tmp_path}/data/")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("orders", {"id": "int64"})
    set_connection(**connection_fields(catalog))

    assert tables_seen_by_duckdb(kind, DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]


def test_duckdb_attaches_a_lake_in_a_schema_of_its_own(postgres_catalog, set_connection):
    fields = connection_fields(
        postgres_catalog, data_path=postgres_catalog.data_path, metadata_schema="The Lake"
    )
    set_connection(**fields)
    with DuckLakeHook().get_or_create_lake() as lake, lake.transaction() as tx:
        tx.create_table("orders", {"id": "int64"})

    assert tables_seen_by_duckdb("postgres", DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]


# DuckDB 1.5.5 cannot name a MySQL database with a backslash: it asks for two.
@pytest.mark.parametrize(("kind", "name"), [("postgres", "it's a \\ lake=1"), ("mariadb", "it's a lake=1")])
def test_duckdb_attaches_a_database_of_any_name(kind, name, new_catalog, set_connection):
    catalog = new_catalog(kind)
    engine = open_engine(parse_url(catalog.sqlalchemy_url))
    quoted = engine.dialect.identifier_preparer.quote_identifier(name)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {quoted}")
    fields = connection_fields(catalog, data_path=catalog.data_path)
    set_connection(**fields | {"schema": name})
    try:
        with DuckLakeHook().get_or_create_lake() as lake, lake.transaction() as tx:
            tx.create_table("orders", {"id": "int64"})

        assert tables_seen_by_duckdb(kind, DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]
    finally:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP DATABASE {quoted}")
        engine.dispose()


@pytest.mark.parametrize("catalog_type", ["postgres", "mysql"])
def test_the_statement_holds_no_password(catalog_type):
    connection = Connection(
        conn_id="lake",
        conn_type="ducklake",
        host="db",
        login="o'tool",
        password="s3cret-word",
        schema="my lake",
        extra=f'{{"catalog_type": "{catalog_type}"}}',
    )

    statement = attach_statement(read_settings(connection), "lake")

    assert "s3cret-word" not in statement
    quote = "''" if catalog_type == "postgres" else '"'
    assert f"={quote}my lake{quote} host=db user=" in statement


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\x0bb", "\n", "it's = \\ all", "é b", "a-b.c:d/e@f+g_1"])
def test_postgresql_reads_each_value_of_the_statement_as_it_is(name):
    url = URL.create("postgresql+psycopg", username=name, host=f"/run/{name}", port=5432, database=name)

    statement = attach_statement(ConnectionSettings("lake", url), "lake")

    literal = statement.removeprefix("ATTACH 'ducklake:postgres:").removesuffix("' AS lake")
    read = conninfo_to_dict(literal.replace("''", "'"))
    assert read == {"dbname": name, "user": name, "host": f"/run/{name}", "port": "5432"}
