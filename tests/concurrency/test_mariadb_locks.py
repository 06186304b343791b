"""How writers meet in MariaDB: the lock among ours, the snapshot's id with others, and what each leaves."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest
from sqlalchemy.exc import ProgrammingError

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import LockTimeoutError, TransactionConflictError
from airflow_provider_ducklake.lake.format.names.identifiers import SchemaPath
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.transaction.changes import CreateSchema, NewSchemaRef
from tests.reference import mariadb
from tests.reference.catalogs import CatalogDatabase

pytestmark = pytest.mark.databases

CHANGE = CreateSchema(NewSchemaRef(0), SchemaPath.of("s"), "00000000-0000-0000-0000-000000000000")


@pytest.fixture
def lake(mariadb_catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        yield lake


@pytest.fixture
def foreign(mariadb_catalog: CatalogDatabase) -> Iterator[pymysql.Connection]:
    """A session of another client; its transactions stay open until it commits."""
    connection = pymysql.connect(
        host="127.0.0.1",
        port=int(mariadb_catalog.server["port"]),
        user="root",
        database=mariadb_catalog.database,
    )
    with closing(connection):
        yield connection


def run(connection: pymysql.Connection, statement: str, *values: object) -> tuple:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def take_the_next_snapshot(foreign: pymysql.Connection, changes: str) -> None:
    run(
        foreign,
        "INSERT INTO ducklake_snapshot SELECT 2, utc_timestamp(), schema_version, next_catalog_id,"
        " next_file_id + 1 FROM ducklake_snapshot WHERE snapshot_id = 1",
    )
    run(foreign, "INSERT INTO ducklake_snapshot_changes VALUES (2, %s, NULL, NULL, NULL)", changes)


def append_one(lake: Lake) -> int:
    with lake.transaction() as tx:
        tx.append_arrow("t", pa.table({"i": pa.array([1], pa.int64())}))
    return tx.committed.attempts


def wait_until_somebody_waits_for_a_row(catalog: CatalogDatabase) -> None:
    with mariadb.admin(int(catalog.server["port"])) as admin:
        for _ in range(60):
            admin.execute(
                "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
                " ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = %s",
                (catalog.database,),
            )
            if admin.fetchone()[0]:
                return
            admin.execute("DO sleep(0.15)")  # asked more often, the table never changes
    raise AssertionError


def test_our_append_that_loses_the_race_for_the_snapshot_id_takes_the_next(lake, foreign, mariadb_catalog):
    take_the_next_snapshot(foreign, "inlined_insert:1")
    with ThreadPoolExecutor() as pool:
        ours = pool.submit(append_one, lake)
        wait_until_somebody_waits_for_a_row(mariadb_catalog)
        foreign.commit()
        attempts = ours.result(timeout=60)

    assert attempts == 2
    assert (lake.current_snapshot().id, lake.read_arrow("t").num_rows) == (3, 1)
    assert lake.table_snapshot("t", with_files=True).files[0].id == 1


def test_our_append_that_loses_to_a_conflicting_commit_says_so_and_leaves_no_file(
    lake, foreign, mariadb_catalog
):
    take_the_next_snapshot(foreign, "altered_table:1")
    with ThreadPoolExecutor() as pool:
        ours = pool.submit(append_one, lake)
        wait_until_somebody_waits_for_a_row(mariadb_catalog)
        foreign.commit()

        with pytest.raises(TransactionConflictError, match=r"main\.t: .* snapshot 2 altered it"):
            ours.result(timeout=60)

    assert list(Path(mariadb_catalog.data_path).rglob("*.parquet")) == []


@pytest.fixture
def impatient(mariadb_catalog: CatalogDatabase, lake: Lake) -> Iterator[Lake]:  # noqa: ARG001 - it makes it
    """The lake, opened by who waits for a lock no longer than a moment, which is a second for a row's."""
    with Lake.connect(f"{mariadb_catalog.sqlalchemy_url}?lock_timeout_seconds=0.2") as opened:
        yield opened


def test_a_row_lock_that_is_not_given_up_ends_the_commit_with_nothing_committed(impatient, foreign):
    take_the_next_snapshot(foreign, "inlined_insert:1")

    with pytest.raises(LockTimeoutError, match="held by another session"):
        impatient.committer.commit(1, [CHANGE], CommitInfo())
    foreign.rollback()

    assert impatient.current_snapshot().id == 1
    assert impatient.committer.commit(1, [CHANGE], CommitInfo()).attempts == 1


def test_a_commit_lock_that_is_not_given_up_ends_the_commit_with_nothing_committed(impatient, foreign):
    name = impatient.opened.catalog.dialect.lock_name
    assert run(foreign, "SELECT GET_LOCK(%s, 0)", name) == ((1,),)

    with pytest.raises(LockTimeoutError, match=f"held by the session {foreign.thread_id()} of user root"):
        impatient.committer.commit(1, [CHANGE], CommitInfo())
    run(foreign, "SELECT RELEASE_LOCK(%s)", name)

    assert impatient.current_snapshot().id == 1
    assert impatient.committer.commit(1, [CHANGE], CommitInfo()).attempts == 1


def test_the_commit_lock_is_free_after_a_commit_a_failure_and_an_expiry(lake, foreign):
    dialect = lake.opened.catalog.dialect
    assert len(dialect.lock_name.encode()) <= 64

    def is_free() -> bool:
        return run(foreign, "SELECT IS_FREE_LOCK(%s)", dialect.lock_name) == ((1,),)

    append_one(lake)
    assert is_free()
    with dialect.writing():
        assert not is_free()
    assert is_free()
    with pytest.raises(ProgrammingError), dialect.writing() as connection:
        connection.exec_driver_sql("SELECT * FROM not_there")
    assert is_free()
    lake.expire_snapshots(keep_last=1)
    assert is_free()


def test_a_name_that_follows_from_the_databases_own_is_that_of_no_lock_of_a_commit(
    lake, foreign, mariadb_catalog
):
    name = f"ducklake commit {hashlib.sha256(mariadb_catalog.database.encode()).hexdigest()[:40]}"
    assert run(foreign, "SELECT GET_LOCK(%s, 0)", name) == ((1,),)
    assert lake.opened.catalog.dialect.lock_name != name

    with Lake.connect(f"{mariadb_catalog.sqlalchemy_url}?lock_timeout_seconds=0.2") as opened:
        assert append_one(opened) == 1


def test_each_database_has_a_lock_of_its_own(lake, new_catalog):
    other = new_catalog("mariadb")
    with Lake.create(other.sqlalchemy_url, other.data_path) as second, lake.opened.catalog.dialect.writing():
        assert second.committer.commit(0, [CHANGE], CommitInfo()).attempts == 1


def test_a_reader_sees_one_state_while_others_commit(lake):
    dialect, tables = lake.opened.catalog.dialect, lake.opened.catalog.tables
    count = tables["snapshot"].select()
    with dialect.reading() as connection:
        before = connection.execute(count).all()
        append_one(lake)

        assert connection.execute(count).all() == before
    assert lake.current_snapshot().id == 2
