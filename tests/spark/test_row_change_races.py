"""Changes of rows planned on one snapshot: what others commit before them, and who wins."""

import uuid
from collections.abc import Iterator

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.request import (
    Action,
    Clause,
    JobRequest,
    RowChangeSource,
    SqlSource,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

SOURCE = SqlSource("SELECT id, 10 AS n FROM range(50, 150)", {})
NEW_KEYS = SqlSource("SELECT id, 10 AS n FROM range(1000, 1003)", {})
RAISE = Clause(Action.UPDATE, None, {"n": "target.n + source.n"})
ADD = Clause(Action.INSERT, None, {"id": "id", "n": "n"})


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t AS SELECT i AS id, 0 AS n FROM range(100) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def merge(spark, lake: Lake, rows: SqlSource = SOURCE, matched: tuple[Clause, ...] = (RAISE,)) -> ChangeSet:
    """Plan a merge on the lake's snapshot and run its job; nothing is committed."""
    plan, job_id = lake.scan("t", stats_of=["id"]), str(uuid.uuid4())
    directory = job_directory(plan.table.root, job_id)
    plans = tuple(plan_write(plan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
    source = RowChangeSource(
        plan, source=rows, on="target.id = source.id", matched=matched, not_matched=(ADD,)
    )
    return lake.writes.row_changes(
        plan.table, change_rows(spark, JobRequest(job_id, source, plans, verb="merge"))
    )


def commit(lake: Lake, change_set: ChangeSet) -> None:
    lake.committer.commit_change_sets([change_set], CommitInfo("test", "merge"))


def test_of_two_merges_one_wins_and_the_other_then_sees_its_rows(spark, lake, sqlite_catalog):
    first, second = merge(spark, lake), merge(spark, lake)
    commit(lake, second)
    with pytest.raises(TransactionConflictError):
        commit(lake, first)
    commit(lake, merge(spark, lake))

    with open_lake(sqlite_catalog) as duck:
        counts = duck.sql("SELECT n, count(*), min(id), max(id) FROM t GROUP BY n ORDER BY n")
        assert counts == [(0, 50, 0, 49), (20, 100, 50, 149)]
        assert duck.sql("SELECT count(DISTINCT rowid) FROM t") == [(150,)]


@pytest.mark.parametrize("matched", [(), (RAISE,)], ids=["insert only", "update and insert"])
@pytest.mark.parametrize("theirs", ["our merge", "inlined insert", "insert"])
def test_keys_that_two_writers_insert_at_once_are_there_once(spark, lake, sqlite_catalog, matched, theirs):
    change_set = merge(spark, lake, NEW_KEYS, matched)
    if theirs == "our merge":
        commit(lake, merge(spark, lake, NEW_KEYS, matched))
    else:
        with open_lake(sqlite_catalog, data_inlining_row_limit=50 if "inlined" in theirs else 0) as duck:
            duck.sql("INSERT INTO t SELECT 1000 + i, 10 FROM range(3) r(i)")
    with pytest.raises(TransactionConflictError, match="added"):
        commit(lake, change_set)
    commit(lake, merge(spark, lake, NEW_KEYS, matched))

    with open_lake(sqlite_catalog) as duck:
        expected = [(one, 20 if matched else 10) for one in (1000, 1001, 1002)]
        assert duck.sql("FROM t WHERE id >= 1000 ORDER BY ALL") == expected


@pytest.mark.parametrize("limit", [0, 50])
def test_rows_that_others_append_meanwhile_are_merged_by_the_next_try(spark, lake, sqlite_catalog, limit):
    change_set = merge(spark, lake)
    with open_lake(sqlite_catalog, data_inlining_row_limit=limit) as duck:
        duck.sql("INSERT INTO t SELECT 130 + i, 7 FROM range(40) r(i)")
    with pytest.raises(TransactionConflictError, match="added"):
        commit(lake, change_set)
    commit(lake, merge(spark, lake))

    with open_lake(sqlite_catalog) as duck:
        counts = duck.sql("SELECT n, count(*), min(id), max(id) FROM t GROUP BY n ORDER BY n")
        assert counts == [(0, 50, 0, 49), (7, 20, 150, 169), (10, 80, 50, 129), (17, 20, 130, 149)]
        assert duck.sql("SELECT count(DISTINCT rowid) FROM t") == [(170,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE id = 3",
        "UPDATE t SET n = 1 WHERE id = 70",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    ],
)
def test_a_file_that_others_took_rows_from_is_a_conflict(spark, lake, sqlite_catalog, statement):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("DELETE FROM t WHERE id = 5")
    change_set = merge(spark, lake)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql(statement)
        rows = duck.sql("FROM t ORDER BY ALL")

    with pytest.raises(TransactionConflictError):
        commit(lake, change_set)
    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("FROM t ORDER BY ALL") == rows
