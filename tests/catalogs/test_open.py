"""Opening catalogs that are none, too old, too new, out of reach, or behind a password."""

import gc
import logging
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.catalogs.database_roles import run
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

SECRET = "s3cret-Pass"


def execute(catalog: CatalogDatabase, statement: str) -> None:
    connect = psycopg.connect if catalog.kind == "postgres" else sqlite3.connect
    with closing(connect(catalog.location)) as connection, connection:
        connection.execute(statement)


@pytest.fixture
def lake_catalog(catalog: CatalogDatabase) -> CatalogDatabase:
    open_lake(catalog).close()
    return catalog


@pytest.mark.parametrize("version", ["1.1-dev1", "1.2", "2.0", "garbage", "", "1.0 "])
def test_another_version_is_refused_by_name(lake_catalog, version):
    execute(lake_catalog, f"UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version'")

    with pytest.raises(errors.UnsupportedVersionError) as raised:
        Lake.connect(lake_catalog.sqlalchemy_url)

    assert repr(version) in str(raised.value)
    assert "1.0" in str(raised.value)


def test_the_first_versions_metadata_without_scopes_is_read_far_enough(catalog):
    execute(catalog, "CREATE TABLE ducklake_metadata (key VARCHAR NOT NULL, value VARCHAR NOT NULL)")
    execute(catalog, "INSERT INTO ducklake_metadata VALUES ('version', '0.0')")

    with pytest.raises(errors.UnsupportedVersionError, match=r"0\.0"):
        Lake.connect(catalog.sqlalchemy_url)


def test_a_catalog_without_version_is_refused_and_none_is_made_over_it(lake_catalog):
    execute(lake_catalog, "DELETE FROM ducklake_metadata WHERE key = 'version'")

    with pytest.raises(errors.CatalogError, match="no row with the key 'version'") as raised:
        Lake.connect(lake_catalog.sqlalchemy_url)

    assert not isinstance(raised.value, errors.NotADuckLakeError)
    with pytest.raises(errors.AlreadyExistsError):
        Lake.create(lake_catalog.sqlalchemy_url, lake_catalog.data_path)


def test_a_catalog_that_says_two_versions_is_refused(lake_catalog):
    execute(lake_catalog, "INSERT INTO ducklake_metadata VALUES ('version', '1.0', NULL, NULL)")
    with Lake.connect(lake_catalog.sqlalchemy_url) as lake:  # the same one twice
        assert lake.version.value == "1.0"
    execute(lake_catalog, "INSERT INTO ducklake_metadata VALUES ('version', '1.1', NULL, NULL)")

    with pytest.raises(errors.CatalogError, match=r"1\.0, 1\.0, 1\.1.*delete the other rows"):
        Lake.connect(lake_catalog.sqlalchemy_url)


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("ALTER TABLE ducklake_schema DROP COLUMN parent_schema_id", "ducklake_schema.parent_schema_id"),
        ("ALTER TABLE ducklake_data_file DROP COLUMN row_group_count", "ducklake_data_file.row_group_count"),
        ("DROP TABLE ducklake_view_column_tag", "ducklake_view_column_tag"),
    ],
)
def test_a_catalog_that_lacks_what_its_version_has_is_refused_by_name(catalog, statement, missing):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1").close()
    execute(catalog, statement)

    with pytest.raises(errors.CatalogError, match=f"DuckLake 1.1, and lacks {missing}\\. ") as refused:
        Lake.connect(catalog.sqlalchemy_url)

    assert "'1.1-dev1'" in str(refused.value)
    execute(catalog, "UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")
    with Lake.connect(catalog.sqlalchemy_url, to_migrate=True) as lake:
        lake.migrate("1.1", backup=False)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.verify() == []


def test_a_catalog_with_columns_of_a_newer_version_is_read_and_found(lake_catalog):
    execute(lake_catalog, "ALTER TABLE ducklake_schema ADD COLUMN parent_schema_id BIGINT")

    with Lake.connect(lake_catalog.sqlalchemy_url) as lake:
        alone(lake).create_schema("s")
        (found,) = lake.verify()
        assert (found.code.value, found.objects) == (
            "columns-too-new",
            {"name": "ducklake_schema.parent_schema_id"},
        )
        lake.migrate("1.1", backup=False)
        assert lake.verify() == []


def test_an_empty_database_is_no_lake(catalog):
    if catalog.kind == "sqlite":
        execute(catalog, "CREATE TABLE something (i INTEGER)")

    with pytest.raises(errors.NotADuckLakeError, match=r"Lake\.create"):
        Lake.connect(catalog.sqlalchemy_url)


def test_a_missing_sqlite_file_is_not_made_by_opening_it(tmp_path):
    file = tmp_path / "missing.sqlite"

    with pytest.raises(errors.NotADuckLakeError, match=r"missing\.sqlite"):
        Lake.connect(f"sqlite:///{file}")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"this is no database, but quite a long text\n" * 50, b"PAR1", b"\0" * 4096]
)
def test_a_file_that_is_no_database_stays_as_it_is(tmp_path, content):
    file = tmp_path / "lake.sqlite"
    file.write_bytes(content)

    for act in (Lake.connect, lambda url: Lake.create(url, str(tmp_path))):
        with pytest.raises(errors.CatalogUnavailableError, match="not a database"):
            act(f"sqlite:///{file}")

    assert file.read_bytes() == content


def test_a_folder_is_no_database(tmp_path):
    with pytest.raises(errors.CatalogUnavailableError, match="unable to open"):
        Lake.connect(f"sqlite:///{tmp_path}")


def test_a_lake_in_a_missing_folder_is_not_created(tmp_path):
    with pytest.raises(errors.CatalogUnavailableError, match="nowhere"):
        Lake.create(f"sqlite:///{tmp_path}/nowhere/lake.sqlite", str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_lake_is_created_once(catalog):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()

    with pytest.raises(errors.AlreadyExistsError):
        Lake.create(catalog.sqlalchemy_url, catalog.data_path)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.current_snapshot().id == 0


@pytest.mark.parametrize(
    "url",
    [
        "oracle://root:{}@h/d",
        "nonsense {}",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://u:{}@h:port/d",
        "postgresql://u:a@{}:b@h/d",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url):
    with pytest.raises(errors.InvalidInputError) as raised:
        Lake.connect(url.format(SECRET))

    assert SECRET not in f"{raised.value!s} {raised.value!r} {raised.value.__cause__!r}"


@pytest.fixture
def locked_postgres(postgres_catalog: CatalogDatabase) -> CatalogDatabase:
    """A database that one user enters by password only; the server trusts all others."""
    user = psycopg.conninfo.conninfo_to_dict(postgres_catalog.location)["dbname"]
    rules = f"host all {user} all scram-sha-256\nlocal all all trust\nhost all all all trust"
    with psycopg.connect(postgres_catalog.location, autocommit=True) as admin:
        (file,) = admin.execute("SHOW hba_file").fetchone()
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(user), SECRET))
        before = Path(file).read_text()
        lines = [line for line in before.splitlines() if not line.startswith("#")]
        _write_rules(admin, file, [*rules.splitlines(), *lines])
        yield postgres_catalog
        _write_rules(admin, file, lines)
        admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(user)))


def _write_rules(admin: psycopg.Connection, file: str, lines: list[str]) -> None:
    rows = sql.SQL(", ").join(sql.SQL("({})").format(line) for line in lines)
    admin.execute(sql.SQL("COPY (VALUES {}) TO {}").format(rows, file))
    admin.execute("SELECT pg_reload_conf()")


def _url(catalog: CatalogDatabase, password: str, **changes: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(catalog.location)
    parts |= {"user": parts["dbname"], **changes}
    return f"postgresql://{parts['user']}:{password}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def assert_refused_in_silence(url: str, secret: str, log: list[logging.LogRecord]) -> str:
    with pytest.raises((errors.CatalogUnavailableError, errors.CatalogAddressError)) as raised:
        Lake.connect(url)
    error = raised.value
    seen = [str(error), repr(error), repr(error.__cause__), repr(error.__suppress_context__), *map(str, log)]
    assert not any(secret in text for text in seen)
    return str(error)


@pytest.fixture
def log():
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield records
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_wrong_password_is_named_by_nobody(locked_postgres, log):
    message = assert_refused_in_silence(_url(locked_postgres, "wrong-Password"), "wrong-Password", log)

    assert "password authentication failed" in message


def test_the_right_password_opens_and_is_shown_nowhere(locked_postgres, log):
    execute(locked_postgres, "GRANT ALL ON SCHEMA public TO PUBLIC")

    with Lake.create(_url(locked_postgres, SECRET), locked_postgres.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
        seen = f"{lake!r} {lake!s} {tx!r} {lake.current_snapshot()!r}"

    assert SECRET not in seen + "".join(record.getMessage() for record in log)


def test_a_missing_database_and_an_unreachable_server_are_named(postgres_catalog, log):
    missing = _url(postgres_catalog, SECRET, dbname="no_such_database", user="postgres")
    unreachable = _url(postgres_catalog, SECRET, port="1", user="postgres")

    assert "no_such_database" in assert_refused_in_silence(missing, SECRET, log)
    assert "refused" in assert_refused_in_silence(unreachable, SECRET, log)


def test_a_metadata_schema_holds_a_lake_of_its_own(postgres_catalog):
    url = postgres_catalog.sqlalchemy_url
    with Lake.create(url, postgres_catalog.data_path, metadata_schema='Odd "schema"') as lake:
        alone(lake).create_schema("s")
        with pytest.raises(errors.NotADuckLakeError):
            Lake.connect(url)
        with pytest.raises(errors.NotADuckLakeError):
            Lake.connect(url, metadata_schema="other")

        assert lake.current_snapshot().id == 1
    with open_lake(postgres_catalog.attach_string, metadata_schema='Odd "schema"') as reference:
        assert ("s",) in reference.sql(
            "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'"
        )


def test_an_open_lake_follows_its_file(sqlite_catalog, tmp_path):
    file, backup = Path(sqlite_catalog.location), tmp_path / "backup"
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        shutil.copy(file, backup)
        alone(lake).create_schema("s")
        assert lake.current_snapshot().id == 1

        backup.replace(file)
        assert lake.current_snapshot().id == 0
        alone(lake).create_schema("other")
        assert lake.reads.schema("other") is not None

        file.unlink()
        for _ in range(2):
            with pytest.raises(errors.CatalogUnavailableError, match="no longer exists"):
                lake.current_snapshot()
        assert not file.exists()


@pytest.mark.filterwarnings("error")
def test_a_lake_that_nobody_closes_leaves_no_connection(catalog):
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path)
    assert lake.current_snapshot().id == 0
    pool = lake.opened.catalog.dialect.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.checkedin() == 1

    del lake
    gc.collect()

    assert pool.checkedin() == 0


@pytest.mark.databases
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("postgres", {"database": "nowhere"}),
        ("postgres", {"username": "nobody"}),
        ("postgres", {"query": {"host": "no-such-host.invalid"}}),
        ("mariadb", {"host": "no-such-host.invalid"}),
    ],
)
def test_what_no_retry_cures_of_a_connection_is_an_error_of_its_own(new_catalog, kind, wrong):
    url = make_url(new_catalog(kind).sqlalchemy_url).set(**wrong)

    with pytest.raises(errors.CatalogAddressError, match="the task is not retried"):
        Lake.connect(url)


# --- a driver that is not installed ---

SCRIPT = """
import sys
sys.modules[sys.argv[2]] = None
from airflow_provider_ducklake.lake.catalog.lake import Lake
try:
    Lake.create(sys.argv[1], "/data")
except Exception as error:
    print(type(error).__name__, error)
"""

EXPORT = """
import sys
sys.modules["duckdb"] = sys.modules["duckdb_engine"] = None
from airflow_provider_ducklake.lake.catalog.lake import Lake
lake = Lake.create(f"sqlite:///{sys.argv[1]}/lake.sqlite", f"{sys.argv[1]}/data/")
print(lake.export_catalog(f"{sys.argv[1]}/frozen.sqlite").format)
try:
    lake.export_catalog(f"{sys.argv[1]}/frozen.ducklake")
except Exception as error:
    print(type(error).__name__, error)
"""

MACRO = """
import sys
sys.modules["duckdb"] = None
from airflow_provider_ducklake.lake import parse_ddl
try:
    parse_ddl("CREATE TABLE t (i INTEGER); CREATE MACRO m(a) AS a")
except Exception as error:
    print(type(error).__name__, error)
"""


def installing(extra: str) -> str:
    """Return the packages of an extra: those of ours are on no index."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    return " ".join(map(repr, project["optional-dependencies"][extra]))


def test_a_lake_is_frozen_into_sqlite_without_duckdb_and_else_the_extra_is_named(tmp_path):
    arguments = [sys.executable, "-c", EXPORT, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)

    made, refused = done.stdout.splitlines()
    assert made == "sqlite"
    assert refused.startswith("CatalogUnavailableError")
    assert f"{tmp_path}/frozen.ducklake: its driver is not installed here" in refused
    assert f"pip install {installing('duckdb')}" in refused


def test_a_macro_needs_duckdb_and_names_its_package():
    done = subprocess.run([sys.executable, "-c", MACRO], capture_output=True, text=True, check=True)

    name, _, message = done.stdout.partition(" ")
    assert name == "UnsupportedFeatureError"
    assert message.endswith(f"pip install {installing('duckdb').split()[0]}.\n")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("postgresql://u@127.0.0.1:1/d", "psycopg", "postgres"),
        ("mysql://u@127.0.0.1:1/d", "pymysql", "mysql"),
        ("duckdb:///{folder}/lake.duckdb", "duckdb_engine", "duckdb"),
        ("duckdb:///{folder}/lake.duckdb", "pytz", "duckdb"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(url, module, extra, tmp_path):
    arguments = [url.format(folder=tmp_path), module]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("CatalogUnavailableError")
    assert f"missing: {module}" in done.stdout
    assert f"pip install {installing(extra)}" in done.stdout


# --- on PostgreSQL a lake is in one schema, and nothing is looked up elsewhere ---


@pytest.fixture
def postgres(new_catalog):
    return new_catalog("postgres")


def _with(url: str, options: str) -> str:
    return f"{url}&options={quote(options)}"


def _schema(lake: Lake) -> str | None:
    return lake.opened.catalog.tables.metadata_schema


def test_a_lake_is_made_and_found_where_the_users_path_says(postgres):
    run(postgres, "CREATE SCHEMA mine")
    url = _with(postgres.sqlalchemy_url, "-c search_path=mine,public")

    with Lake.create(url, postgres.data_path) as made, Lake.connect(url) as found:
        assert (_schema(made), _schema(found)) == ("mine", "mine")

    with pytest.raises(errors.AlreadyExistsError):
        Lake.create(_with(postgres.sqlalchemy_url, "-c search_path=public,mine"), postgres.data_path)


def test_a_lake_is_made_in_public_unless_somebody_says_otherwise(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        assert _schema(lake) == "public"


def test_a_path_without_a_schema_is_an_error_that_says_what_to_give(postgres):
    with pytest.raises(errors.InvalidInputError, match="give metadata_schema"):
        Lake.create(_with(postgres.sqlalchemy_url, "-c search_path=nowhere"), postgres.data_path)


@pytest.mark.parametrize("schema", ["public", "mine"])
def test_clients_exclude_each_other_whether_the_schema_is_given_or_found(postgres, schema):
    run(postgres, "CREATE SCHEMA mine")
    url = _with(postgres.sqlalchemy_url, f"-c search_path={schema}")
    Lake.create(url, postgres.data_path).close()

    hasty = _with(postgres.sqlalchemy_url, f"-c search_path={schema} -c lock_timeout=200")
    with Lake.connect(url) as found, Lake.connect(hasty, metadata_schema=schema) as given:
        one, other = (lake.opened.catalog.dialect for lake in (found, given))
        with one.writing(), pytest.raises(OperationalError, match="lock timeout"), other.writing():
            pass
        with other.writing():
            pass


def test_options_of_the_url_are_kept_and_values_are_read_as_ever(postgres):
    url = _with(postgres.sqlalchemy_url, "-c lock_timeout=7s -c timezone=Asia/Tokyo -c datestyle=German")

    with Lake.create(url, postgres.data_path) as lake:
        with lake.opened.reading() as connection:
            shown = [
                connection.execute(text(f"SHOW {one}")).scalar_one()
                for one in ("lock_timeout", "timezone", "datestyle", "search_path", "row_security")
            ]
        assert lake.current_snapshot().time.tzinfo is not None

    assert shown == ["7s", "UTC", "ISO, DMY", "pg_catalog, pg_temp", "off"]


def test_every_transaction_has_our_path_also_after_a_commit(postgres):
    created = Lake.create(postgres.sqlalchemy_url, postgres.data_path)
    with created as lake, lake.opened.catalog.dialect.writing() as connection:
        connection.commit()
        path = connection.execute(text("SHOW search_path")).scalar_one()

    assert path == "pg_catalog, pg_temp"


def test_nothing_is_written_while_reading(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        tables = lake.opened.catalog.tables
        with (
            pytest.raises(errors.CatalogRefusedError, match="read-only transaction"),
            lake.opened.reading() as connection,
        ):
            connection.execute(tables["tag"].delete())


def test_an_expiry_drops_no_table_that_cannot_hold_rows_of_the_lost_one(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        alone(lake).drop_table("t")
        run(
            postgres,
            "CREATE TABLE payroll (id int)",
            "INSERT INTO ducklake_inlined_data_tables VALUES (1, 'payroll', 1)",
        )

        with pytest.raises(errors.UntrustedValueError, match="names 'payroll'"):
            lake.expire_snapshots(keep_last=1)

        run(postgres, "SELECT FROM payroll")
