"""Catalogs in MariaDB hold what ours in SQLite hold; the reference reads them, and writes little of it."""

import json
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import open_engine
from airflow_provider_ducklake.lake.catalog.dialects.duckdb import DuckDbDialect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.concurrency.test_failures import InjectedError, fail
from tests.differential.scenarios import Scenario
from tests.interop.lakes import alone, by_duckdb
from tests.reference import mariadb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.reference.mariadb import is_mysql

pytestmark = pytest.mark.databases

ROWS = pa.table({"i": pa.array([1, 2], pa.int64()), "s": ["a", "ü 😀"]})
TABLE = {"i": "int64", "s": "varchar"}


@pytest.fixture(scope="module")
def values(tmp_path_factory) -> Iterator[DuckLakeConnection]:
    """A reference that scenarios ask for values only."""
    folder = tmp_path_factory.mktemp("values")
    with open_lake(f"ducklake:{folder}/lake.duckdb", data_path=f"{folder}/") as reference:
        yield reference


def test_our_catalog_equals_ours_in_sqlite_and_the_reference_reads_the_same(
    mariadb_catalog, sqlite_catalog, values, scenario: Scenario
):
    for catalog in (mariadb_catalog, sqlite_catalog):
        Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    with closing(sqlite3.connect(sqlite_catalog.location)) as connection, connection:
        connection.execute(  # as every lake in MariaDB has it
            "INSERT INTO ducklake_metadata VALUES ('data_inlining_row_limit', '0', NULL, NULL)"
        )
    for catalog in (mariadb_catalog, sqlite_catalog):
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            scenario.ours(lake, values)
            names = lake.tables()

    ours, expected = dump_catalog(mariadb_catalog), dump_catalog(sqlite_catalog)
    assert_catalogs_equal(ours, expected, ignore=set(scenario.ignored))
    assert read_by_the_reference(mariadb_catalog, names) == read_by_the_reference(sqlite_catalog, names)


def read_by_the_reference(catalog: CatalogDatabase, tables) -> list[list[str]]:
    with open_lake(catalog.attach_string, read_only=True) as reference:
        return [sorted(map(repr, reference.sql(f"FROM {table}"))) for table in tables]


def test_tables_are_utf8_and_binary_whatever_the_databases_default(mariadb_catalog):
    Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path).close()

    types = {kind for layout in dump_schema(mariadb_catalog).values() for _, kind, _ in layout}

    assert types == {
        "bigint" if is_mysql(mariadb_catalog) else "bigint(20)",
        "tinyint(1)",
        "datetime(6)",
        "longtext utf8mb4_bin",
        "text utf8mb4_bin",
    }


def test_long_texts_and_all_characters_come_back(mariadb_catalog):
    message = "ü 😀 \\ ' \" %s " * 10_000
    with Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path) as lake:
        with lake.transaction(message=message, extra={"ключ": "значение"}) as tx:
            tx.create_schema("Größe")

        newest = lake.snapshots()[-1]

        assert newest.message == message
        assert json.loads(newest.extra) == {"ключ": "значение"}
        assert str(lake.reads.schema("größe").name) == '"Größe"'


def test_times_are_exact_whatever_the_servers_zone(mariadb_catalog):
    with mariadb.admin(int(mariadb_catalog.server["port"])) as admin:
        admin.execute("SELECT @@global.time_zone")
        (before,) = admin.fetchone()
        admin.execute("SET GLOBAL time_zone = '+05:30'")
    try:
        with Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path) as lake:
            alone(lake).create_table("t", TABLE)
            first = lake.current_snapshot()
            alone(lake).append_arrow("t", ROWS)
    finally:
        with mariadb.admin(int(mariadb_catalog.server["port"])) as admin:
            admin.execute(f"SET GLOBAL time_zone = '{before}'")

    assert lake.snapshot_at(first.time) == first
    assert lake.snapshot_at(first.time - timedelta(microseconds=1)).id == 0
    with open_lake(mariadb_catalog.attach_string, read_only=True) as reference:
        assert reference.sql("SELECT snapshot_time FROM ducklake_snapshots('lake')")[1] == (first.time,)
        assert reference.sql(f"SELECT count(*) FROM t AT (TIMESTAMP => '{first.time}')") == [(0,)]
        assert reference.sql("SELECT count(*) FROM t AT (VERSION => 2)") == [(2,)]


def test_what_the_reference_can_write_goes_together_with_what_we_write(mariadb_catalog):
    with Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path) as lake:
        with open_lake(mariadb_catalog.attach_string) as reference:
            reference.sql("CREATE TABLE t (i BIGINT, s VARCHAR)")
            reference.sql("INSERT INTO t VALUES (7, 'first')")  # of a table: it cannot do another
        alone(lake).append_arrow("t", ROWS)
        with open_lake(mariadb_catalog.attach_string) as reference:
            reference.sql("ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 5")
            assert reference.sql("SELECT i, late FROM t ORDER BY i") == [(1, 5), (2, 5), (7, 5)]
            reference.sql("CREATE TABLE gone (i BIGINT)")
            reference.sql("DROP TABLE gone")

        assert lake.read_arrow("t", columns=["i"], at=3).to_pydict() == {"i": [7, 1, 2]}
        assert len(dump_catalog(mariadb_catalog)["ducklake_data_file"]) == 2  # nothing was inlined


def test_a_lake_that_the_reference_made_is_written_and_expired(mariadb_catalog):
    by_duckdb(mariadb_catalog, "CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (7, 'inlined')")
    with Lake.connect(mariadb_catalog.sqlalchemy_url) as lake:
        alone(lake).append_arrow("t", ROWS.slice(0, 1))
        assert by_duckdb(mariadb_catalog.attach_string, "SELECT i FROM t ORDER BY i", read_only=True) == [
            (1,),
            (7,),
        ]
        alone(lake).drop_table("t")

        expired = lake.expire_snapshots(keep_last=1)

        assert (len(expired.snapshots), expired.tables, expired.data_files) == (4, 1, 1)
        assert "ducklake_inlined_data_1_1" not in dump_schema(mariadb_catalog)


def interrupt_creation(catalog: CatalogDatabase, number: int) -> bool:
    """Let the creation of a lake fail at one of its statements; return whether it has so many."""
    from sqlalchemy import Engine, event  # noqa: PLC0415

    seen = 0

    def listener(connection, cursor, statement, *_rest) -> None:  # noqa: ARG001
        nonlocal seen
        seen += statement.lstrip().startswith(("CREATE", "INSERT"))
        if seen == number:
            fail(connection)

    event.listen(Engine, "before_cursor_execute", listener)
    try:
        Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    except InjectedError:
        return True
    finally:
        event.remove(Engine, "before_cursor_execute", listener)
    return False


def test_a_half_made_lake_is_none_and_the_next_creation_completes_it(mariadb_catalog):
    for number in (1, 2, 15, 28, 29, 30, 31, 32):  # 28 tables, then rows for four of them
        assert interrupt_creation(mariadb_catalog, number)
        with pytest.raises(errors.NotADuckLakeError):
            Lake.connect(mariadb_catalog.sqlalchemy_url)

    assert not interrupt_creation(mariadb_catalog, 33)

    dump = dump_catalog(mariadb_catalog)
    assert len(dump["ducklake_metadata"]) == 5
    assert len(dump["ducklake_snapshot"]) == len(dump["ducklake_schema"]) == 1
    with pytest.raises(errors.AlreadyExistsError):
        Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path)


def test_a_metadata_schema_is_another_database(mariadb_catalog):
    name = f"{mariadb_catalog.database}_meta"
    try:
        with Lake.create(
            mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path, metadata_schema=name
        ) as lake:
            with lake.transaction() as tx:
                tx.create_table("t", TABLE)
                tx.append_arrow("t", ROWS)
            assert lake.read_arrow("t").num_rows == 2
        assert dump_schema(mariadb_catalog) == {}
    finally:
        with mariadb.admin(int(mariadb_catalog.server["port"])) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_every_spelling_of_the_url_gets_the_driver(mariadb_catalog, scheme):
    url = mariadb_catalog.sqlalchemy_url.replace("mariadb", scheme, 1)

    with Lake.create(url, mariadb_catalog.data_path) as lake:
        assert "mysql+pymysql://" in repr(lake)


@pytest.mark.parametrize(
    ("url", "said"),
    [("mysql+mysqldb://u@h/d", "mysqldb"), ("mysql://u@h", "no database"), ("mariadb://u@h/", "no database")],
)
def test_a_url_that_cannot_work_is_refused(url, said):
    with pytest.raises(errors.InvalidInputError, match=said):
        Lake.connect(url)


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [("nobody:s3cret-Pass", None, "Access denied"), ("root", "not_there", "Unknown database")],
)
def test_a_refused_login_and_a_missing_database_are_told_without_the_password(
    mariadb_catalog, user, database, said
):
    server = mariadb_catalog.server
    url = f"mysql://{user}@{server['host']}:{server['port']}/{database or mariadb_catalog.database}"

    with pytest.raises(errors.CatalogAddressError, match=f"{said}.*the task is not retried") as raised:
        Lake.connect(url)

    assert "s3cret-Pass" not in str(raised.value)


def test_a_connection_that_the_server_ended_while_idle_is_opened_again(mariadb_catalog):
    with Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path) as lake:
        with mariadb.admin(int(mariadb_catalog.server["port"])) as admin:
            admin.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s", (mariadb_catalog.database,)
            )
            for (session,) in admin.fetchall():
                admin.execute(f"KILL {session}")
        time.sleep(0.3)  # one that was used a moment ago is taken to live

        assert lake.current_snapshot().id == 0


def test_a_server_out_of_reach_is_named():
    with pytest.raises(errors.CatalogUnavailableError, match=r"127\.0\.0\.1:1/lake"):
        Lake.connect("mysql://root@127.0.0.1:1/lake")


def test_the_server_under_test_is_the_one_that_was_asked_for(mariadb_catalog, request):
    assert is_mysql(mariadb_catalog) == (request.config.option.catalog == "mysql")


# --- a DuckDB file ---


def test_our_catalog_equals_the_references(new_catalog, scenario: Scenario):
    ours, theirs = new_catalog("duckdb"), new_catalog("duckdb")
    with open_lake(theirs, data_inlining_row_limit=0) as reference:
        for statement in scenario.reference:
            reference.sql(statement)
        with Lake.create(ours.sqlalchemy_url, ours.data_path) as lake:
            scenario.ours(lake, reference)

    assert_catalogs_equal(dump_catalog(ours), dump_catalog(theirs), ignore=set(scenario.ignored))
    assert dump_schema(ours) == dump_schema(theirs)


def test_indexes_are_made_once_and_the_reference_works_on_beside_them(duckdb_catalog):
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", TABLE)
            tx.append_arrow("t", ROWS)

        assert len(lake.maintenance.create_indexes()) == 10
        assert lake.maintenance.create_indexes() == []

    with open_lake(duckdb_catalog) as reference:
        reference.sql("DELETE FROM t WHERE i = 1")
        reference.sql("ALTER TABLE t ADD COLUMN j INTEGER")
        assert reference.sql("SELECT count(*) FROM t") == [(1,)]


def test_we_and_the_reference_write_in_turns(duckdb_catalog):
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", TABLE)
            tx.append_arrow("t", ROWS)
        with open_lake(duckdb_catalog.attach_string) as reference:
            assert sorted(reference.sql("FROM t")) == [(1, "a"), (2, "ü 😀")]
            reference.sql("INSERT INTO t VALUES (3, 'inlined')")
            reference.sql("INSERT INTO t SELECT i, 'file' FROM range(10, 30) r(i)")
            reference.sql("ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 5")
        alone(lake).append_arrow("t", ROWS.append_column("late", pa.array([6, 7], pa.int32())))
        with open_lake(duckdb_catalog.attach_string) as reference:
            assert reference.sql("SELECT count(*), sum(late) FROM t") == [(25, 23 * 5 + 13)]
            assert reference.sql("SELECT count(*) FROM t AT (VERSION => 2)") == [(3,)]
            reference.sql("DELETE FROM t WHERE i < 10")

        assert lake.table_snapshot("t", with_files=True).has_inlined_data
        assert lake.read_arrow("t", at=1).num_rows == 2
        assert [one.id for one in lake.expire_snapshots(keep_last=1).snapshots] == list(range(6))
        assert by_duckdb(duckdb_catalog.attach_string, "SELECT count(*) FROM t") == [(20,)]


def test_a_lake_that_the_reference_made_is_read_and_written(duckdb_catalog):
    by_duckdb(duckdb_catalog, "CREATE TABLE t AS SELECT i, 'x' AS s FROM range(20) r(i)")

    with Lake.connect(duckdb_catalog.sqlalchemy_url) as lake:
        alone(lake).append_arrow("t", ROWS)
        assert lake.read_arrow("t").num_rows == 22
        with pytest.raises(errors.AlreadyExistsError):
            Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path)


def test_a_metadata_schema_holds_the_catalog(duckdb_catalog):
    with (
        Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path, metadata_schema="meta") as lake,
        lake.transaction() as tx,
    ):
        tx.create_table("t", TABLE)
        tx.append_arrow("t", ROWS)

    assert by_duckdb(duckdb_catalog.attach_string, "SELECT count(*) FROM t", metadata_schema="meta") == [(2,)]


@pytest.fixture
def lake(duckdb_catalog) -> Lake:
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        alone(lake).create_table("t", TABLE)
        yield lake


def test_an_open_lake_leaves_the_file_to_others(lake, duckdb_catalog):
    lake.current_snapshot()

    by_duckdb(duckdb_catalog.attach_string, "INSERT INTO t VALUES (1, 'a')")

    assert lake.current_snapshot().id == 2


def test_a_file_attached_in_this_process_is_named_with_what_to_do(lake, duckdb_catalog):
    with open_lake(duckdb_catalog.attach_string):
        for act in (lake.current_snapshot, lambda: Lake.connect(duckdb_catalog.sqlalchemy_url)):
            with pytest.raises(errors.CatalogUnavailableError) as raised:
                act()
            for part in (duckdb_catalog.location, "one process at a time", "DETACH", "PostgreSQL"):
                assert part in str(raised.value)
        tx = lake.transaction

    with tx() as attempt:
        attempt.append_arrow("t", ROWS)
    assert lake.read_arrow("t").num_rows == 2


HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
connection.close()
"""


@pytest.fixture
def holder(lake, duckdb_catalog):  # noqa: ARG001 - made first
    """Another process that has the file open; a line makes it go."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, duckdb_catalog.location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate("\n")


def test_a_file_that_another_process_keeps_open_is_named_with_what_to_do(lake, duckdb_catalog, holder):
    lake.opened.catalog.dialect.patience_seconds = 0.3

    with pytest.raises(errors.CatalogUnavailableError) as raised:
        lake.current_snapshot()

    for part in (duckdb_catalog.location, f"PID {holder.pid}", "one process at a time", "PostgreSQL"):
        assert part in str(raised.value)


def test_another_process_is_waited_for(lake, holder):
    threading.Timer(0.5, lambda: (holder.stdin.write("\n"), holder.stdin.flush())).start()

    alone(lake).append_arrow("t", ROWS)

    assert lake.current_snapshot().id == 2


def test_readers_share_the_file_and_a_writer_waits_for_them(lake):
    dialect = lake.opened.catalog.dialect
    written = threading.Event()

    def write() -> None:
        alone(lake).create_schema("s")
        written.set()

    writer = threading.Thread(target=write)
    with dialect.reading(), dialect.reading():
        assert lake.current_snapshot().id == 1
        writer.start()
        assert not written.wait(0.5)
    writer.join(30)

    assert lake.reads.schema("s") is not None


def test_a_commit_that_crashed_is_replayed(lake, duckdb_catalog):
    crash = "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); c.execute(sys.argv[2]); os._exit(1)"
    statement = "UPDATE ducklake_metadata SET value = 'me' WHERE key = 'created_by'"
    subprocess.run([sys.executable, "-c", crash, duckdb_catalog.location, statement], check=False)

    assert lake.reads.effective_options().texts["created_by"] == "me"
    alone(lake).append_arrow("t", ROWS)
    assert lake.current_snapshot().id == 2


def test_a_file_that_is_no_duckdb_database_stays_as_it_is(tmp_path):
    file = tmp_path / "lake.duckdb"
    file.write_bytes(b"this is no database" * 500)
    dialect = DuckDbDialect(open_engine(make_url(f"duckdb:///{file}")))

    for transaction in (dialect.reading, dialect.writing):
        with (
            pytest.raises(errors.CatalogUnavailableError, match=r"not a valid DuckDB.*Check the path"),
            transaction(),
        ):
            pass

    assert file.read_bytes() == b"this is no database" * 500


@pytest.mark.parametrize("url", ["duckdb://", "duckdb:///", "duckdb:///:memory:"])
def test_a_catalog_in_memory_is_refused(url):
    with pytest.raises(errors.InvalidInputError, match="catalog is a file"):
        Lake.connect(url)


def test_another_connection_of_this_process_is_told_apart_from_a_race(lake, duckdb_catalog):
    with (
        duckdb.connect(duckdb_catalog.location),
        pytest.raises(errors.CatalogUnavailableError, match="DETACH"),
    ):
        lake.current_snapshot()


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow, which for DuckDB is as a full disk: it could not write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_commit_is_told_apart_from_a_race(lake):
    head = lake.current_snapshot().id

    with full_disk(), pytest.raises(errors.CatalogRefusedError, match="Could not write file") as raised:
        lake.tag("release", head)

    assert "Nothing was committed" in str(raised.value)
    assert lake.tags() == []
    lake.tag("release", head)
    assert lake.verify() == []


@pytest.mark.parametrize(
    ("said", "is_race"),
    [
        ('Failed to commit: PRIMARY KEY or UNIQUE constraint violation: duplicate key "1"', True),
        ("Conflict on tuple deletion!", True),
        (
            'Failed to commit: Could not write file "/conflict/lake.duckdb.wal": No space left on device',
            False,
        ),
        ("Failed to commit: fsync failed!", False),  # it may have landed
    ],
)
def test_a_failed_transaction_is_a_lost_race_only_where_duckdb_names_a_conflict(lake, said, is_race):
    error = DBAPIError("COMMIT", None, duckdb.TransactionException(f"TransactionContext Error: {said}"))

    assert lake.opened.catalog.dialect.is_lost_race(error) is is_race
