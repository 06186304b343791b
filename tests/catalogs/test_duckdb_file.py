"""Catalogs in a DuckDB file: equal to the reference's, and shared with it one process at a time."""

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import open_engine
from airflow_provider_ducklake.lake.catalog.dialects.duckdb import DuckDbDialect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.differential.scenarios import Scenario
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.databases

ROWS = pa.table({"i": pa.array([1, 2], pa.int64()), "s": ["a", "ü 😀"]})
TABLE = {"i": "int64", "s": "varchar"}


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
        with lake.transaction() as tx:
            tx.append_arrow("t", ROWS.append_column("late", pa.array([6, 7], pa.int32())))
        with open_lake(duckdb_catalog.attach_string) as reference:
            assert reference.sql("SELECT count(*), sum(late) FROM t") == [(25, 23 * 5 + 13)]
            assert reference.sql("SELECT count(*) FROM t AT (VERSION => 2)") == [(3,)]
            reference.sql("DELETE FROM t WHERE i < 10")

        assert lake.table_snapshot("t", with_files=True).has_inlined_data
        assert lake.read_arrow("t", at=1).num_rows == 2
        assert [one.id for one in lake.expire_snapshots(keep_last=1).snapshots] == list(range(6))
        with open_lake(duckdb_catalog.attach_string) as reference:
            assert reference.sql("SELECT count(*) FROM t") == [(20,)]


def test_a_lake_that_the_reference_made_is_read_and_written(duckdb_catalog):
    with open_lake(duckdb_catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT i, 'x' AS s FROM range(20) r(i)")

    with Lake.connect(duckdb_catalog.sqlalchemy_url) as lake:
        with lake.transaction() as tx:
            tx.append_arrow("t", ROWS)
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

    with open_lake(duckdb_catalog.attach_string, metadata_schema="meta") as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(2,)]


@pytest.fixture
def lake(duckdb_catalog) -> Lake:
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", TABLE)
        yield lake


def test_an_open_lake_leaves_the_file_to_others(lake, duckdb_catalog):
    lake.current_snapshot()

    with open_lake(duckdb_catalog.attach_string) as reference:
        reference.sql("INSERT INTO t VALUES (1, 'a')")

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

    with lake.transaction() as tx:
        tx.append_arrow("t", ROWS)

    assert lake.current_snapshot().id == 2


def test_readers_share_the_file_and_a_writer_waits_for_them(lake):
    dialect = lake.opened.catalog.dialect
    written = threading.Event()

    def write() -> None:
        with lake.transaction() as tx:
            tx.create_schema("s")
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
    with lake.transaction() as tx:
        tx.append_arrow("t", ROWS)
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
