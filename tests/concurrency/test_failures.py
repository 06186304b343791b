"""A commit that fails at any of its statements leaves the catalog and the files as they were."""

import gc
import logging
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pymysql
import pytest
from sqlalchemy import event

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.dialects.dialect import CommitRetryPolicy
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import SchemaPath
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, SnapshotId
from airflow_provider_ducklake.lake.transaction.changes import CreateSchema, NewSchemaRef
from tests.concurrency.faults import before_commit
from tests.reference import mariadb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

SERVERS = ["postgres", "mariadb"]
ROWS = pa.table({"k": ["a", "b"], "i": pa.array([1, 2], pa.int32())})


class InjectedError(Exception):
    pass


@pytest.fixture
def lake(catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create_old_and_gone(lake)
        yield lake


@pytest.fixture
def step(catalog: CatalogDatabase, size: str) -> int:
    """Every how many statements a commit is to fail; opening a DuckDB file again and again takes its time."""
    return 6 if catalog.kind == "duckdb" and size == "ci" else 1


def change_everything(lake: Lake, before_commit: Callable[[], None] = lambda: None) -> None:
    with lake.transaction("me", "all of it") as tx:
        tx.append_arrow("old", ROWS)
        tx.drop_table("gone")
        tx.create_schema("s")
        tx.create_table("s.new", {"k": "varchar", "i": "int32"}, ["k"])
        tx.append_arrow("s.new", ROWS)
        before_commit()


@contextmanager
def before_statement(lake: Lake, number: int, act: Callable[[int], None]) -> Iterator[Callable[[], None]]:
    """Call `act` with the backend's id before that statement of the commit; the value yielded arms it."""
    engine = lake.opened.catalog.dialect.engine
    seen = [-(10**6)]

    def listener(connection, cursor, statement, parameters, context, executemany):  # noqa: ARG001
        seen[0] += 1
        if seen[0] == number:
            act(connection)

    def arm() -> None:
        seen[0] = 0

    event.listen(engine, "before_cursor_execute", listener)
    try:
        yield arm
    finally:
        event.remove(engine, "before_cursor_execute", listener)


def parquet_files(lake: Lake) -> set[Path]:
    return set(Path(lake.data_path).rglob("*.parquet"))


def kill(connection) -> None:
    """End the server's side of the connection, as a crash or an administrator does."""
    driver = connection.connection.driver_connection
    if isinstance(driver, pymysql.Connection):
        with mariadb.admin(driver.port) as admin:
            admin.execute(f"KILL CONNECTION {driver.thread_id()}")
        return
    with psycopg.connect(driver.info.dsn, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [driver.info.backend_pid])


def fail(_connection) -> None:
    raise InjectedError


def fails_at_every_statement(
    lake: Lake, catalog: CatalogDatabase, act, error: type[Exception], step: int = 1
) -> int:
    """Let the commit fail at its first statement, its second, … until it has none left; return how many.

    PostgreSQL gets the writes together with the COMMIT: when that cannot be sent the outcome is unknown,
    and the files are kept.
    """
    before, files = dump_catalog(catalog), parquet_files(lake)
    for number in range(1, 100, step):
        with before_statement(lake, number, act) as arm:
            try:
                change_everything(lake, arm)
            except errors.CommitStateUnknownError:
                assert catalog.kind == "postgres"
                assert parquet_files(lake) > files
                for path in parquet_files(lake) - files:
                    path.unlink()
            except error:
                assert parquet_files(lake) == files, number
            else:
                return number - 1
            assert dump_catalog(catalog) == before, number
    raise AssertionError


@pytest.mark.every_catalog
def test_an_error_at_any_statement_leaves_nothing_behind(catalog, lake, step):
    count = fails_at_every_statement(lake, catalog, fail, InjectedError, step)

    assert count > (1 if catalog.kind == "postgres" else 20)
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM s.new)") == [(4, 2)]


def test_an_error_of_any_statement_sent_with_the_commit_leaves_nothing_behind(new_catalog):
    catalog = new_catalog("postgres")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create_old_and_gone(lake)
        before, files = dump_catalog(catalog), parquet_files(lake)
        place = -1

        def break_statement(_connection, _cursor, statement, parameters, _context, _executemany):
            texts = statement.split(";\n")
            if texts[-1] == "COMMIT" and place < len(texts):
                statement = ";\n".join([*texts[:place], "SELECT 1/0", *texts[place:]])
            return statement, parameters

        event.listen(
            lake.opened.catalog.dialect.engine, "before_cursor_execute", break_statement, retval=True
        )
        for place in range(100):
            try:
                change_everything(lake)
            except errors.CatalogError as error:
                explained = str(error)
                assert dump_catalog(catalog) == before, place
                assert parquet_files(lake) == files, place
            else:
                break

        assert place > 15
        assert "22012" in explained  # division by zero
        assert len(explained) < 500  # not all the statements, with the values in them
        assert lake.read_arrow("s.new").num_rows == 2


def create_old_and_gone(lake: Lake) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    with lake.transaction() as tx:
        for name in ("old", "gone"):
            tx.create_table(name, {"k": "varchar", "i": "int32"}, ["k"])
            tx.append_arrow(name, ROWS)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_lost_at_any_statement_leaves_nothing_behind_and_the_lake_usable(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create_old_and_gone(lake)

        count = fails_at_every_statement(lake, catalog, kill, errors.CatalogUnavailableError)

        assert count > (1 if kind == "postgres" else 20)
        assert lake.read_arrow("s.new").num_rows == 2


@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_lost_in_commit_keeps_the_files(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"k": "varchar", "i": "int32"})

        tx = lake.transaction()
        tx.append_arrow("t", ROWS)
        with before_commit(lake, kill), pytest.raises(errors.CommitStateUnknownError, match="snapshot 2"), tx:
            pass

        assert len(parquet_files(lake)) == 1
        assert lake.current_snapshot().id == 1


@pytest.mark.every_catalog
@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_an_interruption_in_commit_keeps_the_files(lake, error):
    before = parquet_files(lake)

    def interrupt(_connection) -> None:
        raise error

    tx = lake.transaction()
    tx.append_arrow("old", ROWS)
    with (
        before_commit(lake, interrupt),
        pytest.raises((errors.CommitStateUnknownError, KeyboardInterrupt)),
        tx,
    ):
        pass

    assert len(parquet_files(lake)) == len(before) + 2
    with lake.transaction() as tx:
        tx.append_arrow("old", ROWS)
    assert tx.committed.attempts == 1


@contextmanager
def impatient(lake: Lake, milliseconds: int = 50) -> Iterator[None]:
    """Let SQLite give up a lock soon, which takes it a minute otherwise."""
    engine = lake.opened.catalog.dialect.engine

    def hurry(connection, _record) -> None:
        connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

    event.listen(engine, "connect", hurry)
    engine.dispose()
    try:
        yield
    finally:
        event.remove(engine, "connect", hurry)
        engine.dispose()


@pytest.fixture
def sqlite_lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"k": "varchar", "i": "int32"})
        with impatient(lake):
            yield lake


@contextmanager
def reading(catalog: CatalogDatabase) -> Iterator[sqlite3.Connection]:
    """Hold SQLite's SHARED lock: writers may begin, but not commit."""
    with closing(sqlite3.connect(catalog.location, isolation_level=None, check_same_thread=False)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM ducklake_snapshot").fetchall()
        yield reader


def test_a_commit_that_a_reader_holds_up_is_tried_again_when_the_reader_is_gone(sqlite_catalog, sqlite_lake):
    with reading(sqlite_catalog) as reader:
        release = threading.Timer(0.5, reader.rollback)
        release.start()
        with sqlite_lake.transaction() as tx:
            tx.append_arrow("t", ROWS)
        release.join()

    assert tx.committed.attempts > 1
    assert sqlite_lake.read_arrow("t").num_rows == 2
    assert sqlite_lake.current_snapshot().id == 2


def test_an_expiry_that_a_reader_holds_up_is_tried_again_when_the_reader_is_gone(sqlite_catalog, sqlite_lake):
    with reading(sqlite_catalog) as reader:
        release = threading.Timer(0.5, reader.rollback)
        release.start()
        expired = sqlite_lake.expire_snapshots(keep_last=1)
        release.join()

    assert [one.id for one in expired.snapshots] == [0]
    assert [one.id for one in sqlite_lake.snapshots()] == [1]


def test_a_reader_who_never_leaves_ends_the_attempts_with_nothing_committed(sqlite_catalog, sqlite_lake):
    change = CreateSchema(NewSchemaRef(0), SchemaPath.of("s"), "00000000-0000-0000-0000-000000000000")

    with reading(sqlite_catalog), pytest.raises(errors.LockTimeoutError, match="held by another process"):
        sqlite_lake.committer.commit(
            sqlite_lake.current_snapshot().id, [change], CommitInfo(), retry=CommitRetryPolicy(3, 0.01)
        )

    assert sqlite_lake.current_snapshot().id == 1
    assert sqlite_lake.reads.schema("s") is None
    with sqlite_lake.transaction() as tx:
        tx.create_schema("s")
    assert tx.committed.attempts == 1


@pytest.mark.every_catalog
def test_an_expiry_that_fails_at_any_statement_changes_nothing(catalog, lake, step):
    change_everything(lake)
    before = dump_catalog(catalog)
    for number in range(1, 100, step):
        with before_statement(lake, number, fail) as arm:
            arm()
            try:
                lake.expire_snapshots(keep_last=1)
            except InjectedError:
                assert dump_catalog(catalog) == before, number
            else:
                break
    assert number > 15
    assert len(lake.snapshots()) == 1


@pytest.mark.every_catalog
def test_an_interruption_right_after_commit_keeps_the_files(lake, caplog):
    caplog.set_level(logging.DEBUG, "airflow_provider_ducklake.lake.catalog.committing.commit")

    def interrupt(record: logging.LogRecord) -> bool:
        if record.msg.startswith("Committed snapshot"):
            raise InjectedError  # as a signal handler would
        return True

    logger = logging.getLogger("airflow_provider_ducklake.lake.catalog.committing.commit")
    logger.addFilter(interrupt)
    try:
        with pytest.raises(errors.CommitStateUnknownError):
            lake.append_arrow("old", ROWS)
    finally:
        logger.removeFilter(interrupt)

    assert lake.read_arrow("old").num_rows == 4


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("error", [InjectedError, SystemExit, KeyboardInterrupt])
def test_an_interruption_while_waiting_for_the_lock_is_what_comes_out(new_catalog, kind, error):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create_old_and_gone(lake)

        def interrupt(*_: object) -> None:
            raise error

        gc.collect()  # what is raised in a __del__ is lost
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with lake.opened.catalog.dialect.writing():
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                with pytest.raises(error):
                    lake.append_arrow("old", ROWS)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

        lake.append_arrow("old", ROWS)
        assert lake.read_arrow("old").num_rows == 4


@pytest.mark.parametrize("state", ["08006", "57P01"])
def test_a_pooler_that_lost_the_server_in_commit_leaves_it_open(new_catalog, state):
    catalog = new_catalog("postgres")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create_old_and_gone(lake)
        files = parquet_files(lake)

        def answer_as_a_pooler(_connection, _cursor, statement, parameters, _context, _executemany):
            if statement.endswith("COMMIT"):
                statement += f"; DO $$BEGIN RAISE 'server lost' USING ERRCODE = '{state}'; END$$"
            return statement, parameters

        event.listen(
            lake.opened.catalog.dialect.engine, "before_cursor_execute", answer_as_a_pooler, retval=True
        )
        with pytest.raises(errors.CommitStateUnknownError):
            lake.append_arrow("old", ROWS)
        event.remove(lake.opened.catalog.dialect.engine, "before_cursor_execute", answer_as_a_pooler)

        assert len(parquet_files(lake) - files) == 2
        assert lake.read_arrow("old").num_rows == 4


def test_a_plan_on_a_snapshot_that_a_restored_backup_lacks_is_a_conflict(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        create = CreateSchema(NewSchemaRef(0), SchemaPath.of("s"), str(uuid4()))
        with pytest.raises(errors.TransactionConflictError, match="backup"):
            lake.committer.commit(SnapshotId(7), [create], CommitInfo())
