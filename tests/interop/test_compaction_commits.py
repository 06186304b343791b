"""What a compaction job has made is committed once, a few bins at a time, and given up where rows changed."""

import uuid
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Bin, Compaction, MergeRule
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.io import read_records, write_record
from airflow_provider_ducklake.lake.spark.job.request import CompactionSource, job_directory
from airflow_provider_ducklake.lake.spark.jobs.compact import compact_bin
from airflow_provider_ducklake.lake.writes.compaction import commit_compacted
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

INFO = CommitInfo(message="nightly")
FILES = 6


@pytest.fixture
def lake(sqlite_catalog):
    """Make a lake with a partitioned table of six files of 20 rows, three for each of two days."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT, day DATE); ALTER TABLE t SET PARTITIONED BY (day)")
        for number in range(FILES):
            day = f"DATE '2026-11-{1 + number % 2:02d}'"
            first = 20 * number
            reference.sql(f"INSERT INTO t SELECT i, {day} FROM range({first}, {first + 20}) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as found:
        yield found


def in_pairs(compaction: Compaction) -> Compaction:
    """Return the first two files of each bin as a bin."""
    return Compaction(compaction.table, tuple(Bin(one.schema, one.files[:2]) for one in compaction.bins))


def merged_in(lake: Lake, compaction: Compaction, staging_id: str | None = None) -> str:
    """Do what the tasks of a job do, and return the directory of the records."""
    staging_id = staging_id or str(uuid.uuid4())
    table = lake.table_snapshot("t")
    plan = plan_write(table, job_directory(table.root, str(uuid.uuid4())))
    for files in compaction.bins:
        single = decode(encode(Compaction(compaction.table, (files,)), Compaction), Compaction)
        compact_bin(CompactionSource(single, staging_id, table.partition_spec.id), plan)
    return job_directory(table.root, staging_id)


def rows(catalog):
    return by_duckdb(catalog, "SELECT rowid, * FROM t ORDER BY ALL")


def test_each_part_is_a_snapshot(lake, sqlite_catalog):
    before, table = rows(sqlite_catalog), lake.table_snapshot("t")
    directory = merged_in(lake, lake.maintenance.plan_merge("t"))

    committed = list(commit_compacted(lake, table, directory, INFO, commit_every=1))

    assert [len(one.files[0].sources) for one in committed] == [3, 3]
    assert [str(one.changes[0]) for one in lake.snapshots()[-2:]] == ["merge_adjacent:1"] * 2
    assert rows(sqlite_catalog) == before
    files = lake.table_snapshot("t", with_files=True).files
    assert [Path(file.path).parent.name for file in files] == ["day=2026-11-01", "day=2026-11-02"]
    assert read_records(directory) == {}
    assert list(commit_compacted(lake, table, directory, INFO)) == []


def test_what_was_changed_meanwhile_is_given_up(lake, sqlite_catalog):
    table = lake.table_snapshot("t")
    directory = merged_in(lake, lake.maintenance.plan_merge("t"))
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("DELETE FROM t WHERE i = 25; ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t")
    before = rows(sqlite_catalog)

    (committed,) = commit_compacted(lake, table, directory, INFO)

    assert [one.file.partition_values for one in committed.files] == [("2026-11-01",)]
    assert rows(sqlite_catalog) == before
    (made,) = Path(table.root).glob(f"*/{Path(directory).name}-*.parquet")  # the other one is gone
    assert str(made) == committed.files[0].file.path


def test_a_commit_that_nobody_heard_of_is_not_made_again(lake, sqlite_catalog):
    table = lake.table_snapshot("t")
    directory = merged_in(lake, in_pairs(lake.maintenance.plan_merge("t")))
    records = read_records(directory)
    (first, *_) = committed = list(commit_compacted(lake, table, directory, INFO))
    assert len(first.files) == len(records)
    for one in records.values():
        write_record(directory, one)  # as if the worker had been killed before it removed them
    before = rows(sqlite_catalog)

    assert list(commit_compacted(lake, table, directory, INFO)) == []

    assert len(committed) == 1
    assert all(Path(one.file.path).exists() for one in records.values())
    assert rows(sqlite_catalog) == before
    assert sum(len(one.files) for one in lake.maintenance.plan_merge("t", MergeRule()).bins) == FILES - 2


def test_a_table_that_is_gone_is_left_alone(lake, sqlite_catalog):
    table = lake.table_snapshot("t")
    directory = merged_in(lake, lake.maintenance.plan_merge("t"))
    by_duckdb(sqlite_catalog, "DROP TABLE t")

    assert list(commit_compacted(lake, table, directory, INFO)) == []
    assert read_records(directory) == {}


@pytest.mark.parametrize("commit_every", [None, 1])
def test_files_that_two_attempts_at_a_task_made_count_once(lake, sqlite_catalog, commit_every):
    before, table = rows(sqlite_catalog), lake.table_snapshot("t")
    planned, staging_id = lake.maintenance.plan_merge("t"), str(uuid.uuid4())
    directory = merged_in(lake, planned, staging_id)
    assert merged_in(lake, planned, staging_id) == directory
    assert len(read_records(directory)) == 2 * len(planned.bins)

    list(commit_compacted(lake, table, directory, INFO, commit_every=commit_every))

    assert rows(sqlite_catalog) == before
    assert lake.verify() == []
    assert read_records(directory) == {}


def test_files_that_a_clean_up_gave_up_are_not_committed(lake, sqlite_catalog):
    before, table = rows(sqlite_catalog), lake.table_snapshot("t")
    directory, job_id = merged_in(lake, lake.maintenance.plan_merge("t")), str(uuid.uuid4())
    lake.jobs.register(job_id, directory)
    lake.jobs.release(job_id)

    assert list(commit_compacted(lake, table, directory, INFO, job_id=job_id)) == []
    assert rows(sqlite_catalog) == before
    assert lake.verify() == []
