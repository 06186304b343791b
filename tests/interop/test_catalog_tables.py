"""What the catalog tells of tables and files equals what the reference lists."""

import gc
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, select

from airflow_provider_ducklake.lake.catalog.database.connect import streamed, streamed_parts
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.errors import InvalidInputError, TableNotFoundError
from airflow_provider_ducklake.lake.format.names.paths import job_directory
from airflow_provider_ducklake.lake.format.snapshots import CommitKey, SnapshotId
from airflow_provider_ducklake.lake.planning.writing.write import JobTarget
from tests.interop.inlined_lake import shown
from tests.interop.lakes import alone
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.reference.catalog_dump import dump_schema
from tests.reference.catalogs import CATALOG_KINDS
from tests.reference.duckdb_lake import open_lake


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tables_and_files_are_those_the_reference_lists(catalog, scenario):
    with open_lake(catalog) as reference:
        for statement in ["CREATE SCHEMA s", "CREATE TABLE s.empty (i INT)", TABLE, *SCENARIOS[scenario]]:
            reference.sql(statement)
        infos = reference.sql("FROM ducklake_table_info('lake') ORDER BY table_name DESC")
        ((newest,),) = reference.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            ours = [
                (
                    one.table_name,
                    one.schema_id,
                    one.table_id,
                    one.table_uuid,
                    one.file_count,
                    one.file_size_bytes,
                    one.delete_file_count,
                    one.delete_file_size_bytes,
                )
                for one in lake.table_info()
            ]
            assert ours == [(*row[:3], str(row[3]), *row[4:]) for row in infos]
            for version in range(3, newest + 1):
                theirs = reference.sql(
                    f"FROM ducklake_list_files('lake', 't', snapshot_version => {version})"
                )
                listed = [
                    tuple(getattr(one, name) for name in one.__slots__) for one in lake.files("t", version)
                ]
                assert sorted(listed) == sorted(theirs), version


def test_inlined_rows_are_counted_at_each_snapshot(catalog):
    with open_lake(catalog) as reference:
        for statement in [
            TABLE,
            "INSERT INTO t VALUES (1, 'a', NULL, NULL), (2, 'b', NULL, NULL)",
            "ALTER TABLE t ADD COLUMN z INT",
            "INSERT INTO t VALUES (3, 'c', NULL, NULL, 1)",
            "DELETE FROM t WHERE i = 1",
        ]:
            reference.sql(statement)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        counts = [lake.table_info("t", at=version)[0].inlined_row_count for version in range(1, 6)]

        assert counts == [0, 2, 2, 3, 2]
        with pytest.raises(TableNotFoundError):
            lake.table_info("nothing")
        with pytest.raises(TableNotFoundError):
            lake.files("t", at=0)


# The numbers of tables equal what the reference lists of them.


STATEMENTS = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.few (i INT)",
    "INSERT INTO s.few VALUES (1), (2), (3)",
    "DELETE FROM s.few WHERE i = 1",
    "CREATE TABLE t AS SELECT x AS i, repeat(md5(x::VARCHAR), 30) AS s FROM range(60000) r(x)",
    "INSERT INTO t SELECT x, 's' FROM range(100) r(x)",
    "DELETE FROM t WHERE i >= 200 AND i < 250",  # a delete file
    "DELETE FROM t WHERE i = 300",  # a mark in the catalog
    "CREATE TABLE ended AS SELECT x AS i FROM range(100) r(x)",
    "DELETE FROM ended WHERE i < 50",
    "DELETE FROM ended",
)


def test_the_numbers_are_those_of_the_reference(catalog):
    with open_lake(catalog, data_inlining_row_limit=10) as reference:
        for statement in STATEMENTS:
            reference.sql(statement)
        infos = {row[0]: row[4:] for row in reference.sql("FROM ducklake_table_info('lake')")}
        ((rows,),) = reference.sql("SELECT count(*) FROM t")
        snapshots = reference.sql("FROM ducklake_snapshots('lake')")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        health = lake.table_health()
        with pytest.raises(TableNotFoundError):
            lake.table_health(["nothing"])
        assert lake.table_health(["t"]).tables == health.tables[1:2]

    assert [one.name for one in health.tables] == ["main.ended", "main.t", "s.few"]
    assert (health.snapshot_id, health.snapshot_count) == (snapshots[-1][0], len(snapshots))
    assert abs(health.oldest_snapshot_time - snapshots[0][1]).total_seconds() < 1e-3
    ended, table, few = health.tables
    assert (table.file_count, table.file_size_bytes) == infos["t"][:2]
    assert (table.delete_file_count, table.delete_file_size_bytes) == infos["t"][2:4]
    assert table.record_count - table.deleted_row_count == rows
    assert (table.deleted_row_count, table.inlined_delete_count) == (51, 1)
    assert table.delete_ratio == pytest.approx(51 / 60100)
    assert {band: count for band, count in table.files_by_size.items() if count} == {
        "under_1_mib": 1,
        "under_16_mib": 1,
    }
    assert (few.inlined_row_count, few.file_count, few.delete_ratio) == (2, 0, 0.0)
    assert (ended.file_count, ended.delete_file_count, ended.deleted_row_count) == (0, 0, 0)


def test_files_that_wait_for_deletion_are_counted(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for statement in (
            "CREATE TABLE t (i INT)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (2)",
            "CALL ducklake_merge_adjacent_files('lake')",
        ):
            reference.sql(statement)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.table_health().scheduled_file_count == 2


# The table of jobs: what is noted of each, and by whom.


TARGET = JobTarget(3, "/lake/t/", "0" * 64)


@pytest.mark.every_catalog
def test_a_job_is_noted_with_what_its_files_are_for(catalog_kind, new_catalog):
    catalog = new_catalog(catalog_kind)
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        prefix = f"{lake.data_path}main/t/"
        assert (lake.jobs.target_of(old), lake.jobs.registered([old])) == (None, {})

        lake.jobs.register(new, prefix, TARGET)
        lake.jobs.register(old, prefix)

        assert (lake.jobs.target_of(new), lake.jobs.target_of(old)) == (TARGET, None)
        assert {one.prefix for one in lake.jobs.registered([old, new]).values()} == {prefix}
        assert lake.jobs.release(old)
        assert not lake.jobs.release(old)


@pytest.mark.every_catalog
def test_the_cluster_s_name_for_a_job_is_noted_by_the_try_that_waits_for_it(catalog_kind, new_catalog):
    catalog, job_id = new_catalog(catalog_kind), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        directory = job_directory(f"{lake.data_path}main/t/", job_id)
        digest = CommitKey(("dag", "task")).digest
        job = SubmittedJob(job_id, digest, 1, "try 1", SnapshotId(0), directory, "0" * 64, "here", "try 1")
        lake.jobs.register(job_id, directory)
        lake.jobs.note_named(replace(job, application="app-0"))
        assert lake.jobs.submitted(job_id) is None
        lake.jobs.note_submitted(job)

        lake.jobs.note_named(replace(job, attended_by="try 2", application="app-2"))
        assert lake.jobs.submitted(job_id) == job
        lake.jobs.note_named(replace(job, application="app-1"))
        assert lake.jobs.submitted(job_id) == replace(job, application="app-1")


# Secondary indexes on a catalog change nothing for DuckDB.


INDEXED = pa.table({"i": pa.array(range(20), pa.int64())})


def test_duckdb_works_on_beside_the_indexes(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        layout = dump_schema(catalog)
        assert len(lake.maintenance.create_indexes()) == 10
        assert lake.maintenance.create_indexes() == []
        assert lake.append_arrow("t", INDEXED, message="one").id == 2
        with open_lake(catalog) as duck:
            duck.sql("INSERT INTO t FROM range(20, 40)")
            duck.sql("DELETE FROM t WHERE i < 15")
            duck.sql("ALTER TABLE t ADD COLUMN j integer")
            duck.sql("CALL ducklake_merge_adjacent_files('lake')")
            duck.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
            assert duck.sql("SELECT count(*), min(i) FROM t") == [(25, 15)]
        assert dump_schema(catalog).keys() >= layout.keys()


def test_an_empty_append_makes_no_snapshot(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        assert lake.append_arrow("t", INDEXED.slice(0, 0)) is None
        first = lake.append_arrow("t", INDEXED, commit_key="load 1")
        again = lake.append_arrow("t", INDEXED, commit_key="load 1")
        assert (again.id, again.is_earlier) == (first.id, True)
        assert lake.read_arrow("t").num_rows == 20


# A PostgreSQL server whose settings are unlike the usual ones stores and gives the same.


SETTINGS = (
    "standard_conforming_strings = off",
    "client_encoding = 'LATIN1'",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = 'sql_standard'",
    "extra_float_digits = -5",
    "default_transaction_isolation = 'serializable'",
)
ROWS = pa.table(
    {
        "t": ["it's \\ 100% é😀 \u20ac", "", None],
        "b": [b"\x00\\'\xff", b"", None],
        "f": pa.array([1.1, -0.0, float("nan")], pa.float32()),
        "d": pa.array([-0.0, 5e-324, -1.7976931348623157e308]),
        "i": pa.array([-(2**15), 0, None], pa.int16()),
    }
)
TYPES = {"t": "varchar", "b": "blob", "f": "float32", "d": "float64", "i": "int16"}


@pytest.fixture
def odd_server(postgres_catalog):
    with psycopg.connect(postgres_catalog.location, autocommit=True) as admin:
        for setting in SETTINGS:
            admin.execute(f"ALTER DATABASE {postgres_catalog.database} SET {setting}")
    return postgres_catalog


def test_rows_go_through_a_commit_as_they_are(odd_server):
    with Lake.create(odd_server.sqlalchemy_url, odd_server.data_path) as lake:
        with lake.transaction(message="é😀 100%") as tx:
            tx.create_table("t", TYPES)
            tx.append_arrow("t", ROWS)
        lake.append_arrow("t", ROWS.slice(1))

        assert lake.read_arrow("t").num_rows == 5
        assert shown(lake.read_arrow("t").slice(0, 3).to_pylist()) == shown(ROWS.to_pylist())
        assert lake.snapshots()[-2].message == "é😀 100%"
        assert not list(lake.table_snapshot("t", with_files=True).files)


def test_the_reference_reads_minus_zero_as_it_was(postgres_catalog):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", TYPES)
        lake.append_arrow("t", ROWS)
    with open_lake(postgres_catalog) as duck:
        assert shown(duck.sql("SELECT * FROM t")) == shown([tuple(row.values()) for row in ROWS.to_pylist()])


@pytest.mark.parametrize("text", ["a NUL \0", "half a character \ud83d"])
def test_a_message_that_is_no_text_for_a_database_is_refused_before_it_gets_there(postgres_catalog, text):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        with pytest.raises(InvalidInputError, match="message or author"):
            lake.append_arrow("t", pa.table({"i": range(100)}), message=text)

        assert lake.read_arrow("t").num_rows == 0


# Dry runs only read: they end while another one holds the commit lock.


NOTHING = timedelta(0)
DRY_RUNS: dict[str, Callable[[Lake], object]] = {
    "expiry": lambda lake: lake.expire_snapshots(keep_last=1, dry_run=True),
    "clean-up": lambda lake: lake.cleanup_old_files(older_than=NOTHING, dry_run=True),
    "orphans": lambda lake: lake.delete_orphaned_files(older_than=NOTHING, dry_run=True),
    "flush": lambda lake: lake.flush_inlined_data(dry_run=True),
    "migration": lambda lake: lake.migrate("1.1", dry_run=True),
    "repair": lambda lake: lake.repair(lake.verify(), dry_run=True),
    "restore": lambda lake: lake.restore("t", at=2, dry_run=True),
}


# Without DuckDB files: an open one shuts all other clients out, whatever they do.
@pytest.mark.parametrize("kind", ["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.databases)])
def test_no_dry_run_waits_for_the_commit_lock(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        for number in range(2):
            lake.append_arrow("t", pa.table({"id": pa.array([number], pa.int64())}))
        alone(lake).delete_rows("t", "id = 0")
        with (
            Lake.connect(catalog.sqlalchemy_url) as other,
            ThreadPoolExecutor() as pool,
            other.opened.catalog.dialect.writing(),
        ):
            done = {name: pool.submit(run, lake).result(timeout=50) for name, run in DRY_RUNS.items()}

    assert done.keys() == DRY_RUNS.keys()


# Rows of large questions come a part at a time, from every database, and no cursor stays open.


COUNT = 25_000


@pytest.mark.parametrize("kind", CATALOG_KINDS)
def test_all_rows_come_and_who_stops_early_leaves_nothing_open(new_catalog, kind):
    catalog = new_catalog(kind)
    schema = "public" if kind == "postgres" else None
    many = Table("many", MetaData(schema=schema), Column("i", Integer))
    query = select(many.c.i).order_by(many.c.i)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        dialect = lake.opened.catalog.dialect
        with dialect.writing() as connection:
            many.create(connection)
            connection.execute(many.insert(), [{"i": number} for number in range(COUNT)])
            connection.commit()

        with dialect.reading() as connection:
            assert [row.i for row in streamed(connection, query)] == [*range(COUNT)]
            assert [len(part) for part in streamed_parts(connection, query, 10_000)] == [
                10_000,
                10_000,
                5_000,
            ]
            rows = streamed(connection, query)
            assert next(rows).i == 0
            rows.close()
            assert connection.execute(select(func.count()).select_from(many)).scalar_one() == COUNT
        gc.collect()  # a cursor that was left open warns, which fails the test
