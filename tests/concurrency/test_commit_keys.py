"""Commits under a key land once, whatever happens to those who make them; DuckDB works beside our table."""

import json
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import event

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.committing.commit import KeyedCommit
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger import commit_keys
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, CommittedSnapshot, OnClear
from airflow_provider_ducklake.lake.planning.writing.write import (
    ParquetSettings,
    WriteResult,
    append_to_existing,
)
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID_COLUMN
from airflow_provider_ducklake.lake.transaction.changes import Change, ChangeSet
from tests.concurrency.faults import before_commit
from tests.concurrency.keyed_writer import ROWS, append_once
from tests.interop import job_columns
from tests.interop.jobs import row_changes
from tests.interop.restoring import Interrupted
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

NAMES = ("airflow", "dag", "run", "task", -1, 0)
INFO = CommitInfo("me", "keyed")


@pytest.fixture
def lake(catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        yield lake


def key(generation: int = 1) -> CommitKey:
    return CommitKey(NAMES, generation)


def append_to(lake: Lake, first: int, table: str = "t") -> tuple[Change, ...]:
    """Write a file of three rows and return the change that appends it."""
    target = lake.table_snapshot(table)
    settings = ParquetSettings()
    with RollingWriter(target.schema, lambda: f"{target.root}{uuid.uuid4()}.parquet", settings) as writer:
        writer.write(pa.table({"i": pa.array(range(first, first + 3), pa.int64())}))
    return append_to_existing(target, WriteResult(target.schema, (), tuple(writer.files), 3, {}))


def commit(lake: Lake, keyed: KeyedCommit, first: int) -> CommittedSnapshot:
    """Do what an operator does: append, and take out what an earlier generation had added."""
    base = lake.current_snapshot().id
    changes = [*lake.writes.replaced_rows(keyed.seen, base), *append_to(lake, first)]
    return lake.committer.commit(base, changes, INFO, keyed=keyed)


def run(
    lake: Lake, generation: int, first: int, on_clear: OnClear = OnClear.REPLACE, *, starts_over: bool = False
) -> CommittedSnapshot:
    keyed = lake.writes.keyed_commit(key(generation), on_clear, starts_over=starts_over)
    return commit(lake, keyed, first)


def values(catalog: CatalogDatabase, table: str = "t") -> list[int]:
    with open_lake(catalog) as reference:
        return [row for (row,) in reference.sql(f"SELECT i FROM {table} ORDER BY i")]


def snapshot_count(catalog: CatalogDatabase) -> int:
    return len(dump_catalog(catalog)["ducklake_snapshot"])


# --- once, in each generation ---


def test_a_second_commit_of_a_generation_is_the_first_one(catalog, lake):
    first = run(lake, 1, 10)
    before = dump_catalog(catalog)

    second = run(lake, 1, 20)

    assert (second.id, second.is_earlier, first.is_earlier) == (first.id, True, False)
    assert second.time == first.time
    assert [(one.row_count, one.row_id_start, one.snapshot_id) for one in second.records] == [
        (3, 0, first.id)
    ]
    assert dump_catalog(catalog) == before
    assert values(catalog) == [10, 11, 12]


def test_what_was_committed_is_known_before_any_work(lake):
    assert lake.writes.keyed_commit(key()).seen.done == ()

    landed = run(lake, 1, 10)

    (record,) = lake.writes.keyed_commit(key()).seen.done
    assert (record.snapshot_id, record.row_count) == (landed.id, 3)
    assert lake.writes.keyed_commit(CommitKey(("another",))).seen.done == ()


def test_a_cleared_commit_replaces_its_rows_in_one_snapshot(catalog, lake):
    run(lake, 1, 10)
    with lake.transaction() as tx:
        tx.append_arrow("t", pa.table({"i": pa.array(range(50, 70), pa.int64())}))
    others = list(range(50, 70))

    second = run(lake, 2, 20)

    assert not second.is_earlier
    assert values(catalog) == [20, 21, 22, *others]
    with open_lake(catalog) as reference:
        assert reference.sql(f"SELECT count(*) FROM t AT (VERSION => {second.id - 1})") == [(23,)]
    assert run(lake, 2, 90).id == second.id
    third = run(lake, 4, 30)
    assert third.id == second.id + 1
    assert values(catalog) == [30, 31, 32, *others]


def test_a_cleared_commit_may_append(catalog, lake):
    run(lake, 1, 10)

    run(lake, 2, 20, OnClear.APPEND)

    assert values(catalog) == [10, 11, 12, 20, 21, 22]
    run(lake, 3, 30)
    assert values(catalog) == [10, 11, 12, 30, 31, 32]  # the last commit is what is replaced


def test_a_cleared_commit_may_be_skipped(catalog, lake):
    first = run(lake, 1, 10)

    second = run(lake, 2, 20, OnClear.SKIP)

    assert (second.id, second.is_earlier) == (first.id, True)
    assert values(catalog) == [10, 11, 12]


def test_an_older_generation_cannot_commit_any_more(catalog, lake):
    zombie = lake.writes.keyed_commit(key(1))
    run(lake, 2, 20)
    before = dump_catalog(catalog)

    with pytest.raises(
        errors.ZombieCommitError, match=r"snapshot 2 since .*\(generation 1\) committed nothing"
    ):
        commit(lake, zombie, 10)
    with pytest.raises(errors.ZombieCommitError):
        lake.writes.keyed_commit(key(1))

    assert dump_catalog(catalog) == before


def test_rows_to_be_replaced_that_came_meanwhile_are_a_conflict(catalog, lake):
    second = lake.writes.keyed_commit(key(2))
    run(lake, 1, 10)

    with pytest.raises(errors.TransactionConflictError, match="of the same task was committed"):
        commit(lake, second, 20)

    assert values(catalog) == [10, 11, 12]
    run(lake, 2, 20)
    assert values(catalog) == [20, 21, 22]


def test_a_run_made_anew_replaces_what_its_namesake_left(catalog, lake):
    """Its generation is the first again: only that it starts tells it from a retry."""
    run(lake, 1, 10)
    run(lake, 2, 20)

    again = run(lake, 1, 30, starts_over=True)

    assert not again.is_earlier
    assert values(catalog) == [30, 31, 32]
    assert run(lake, 1, 40).id == again.id
    run(lake, 1, 50, starts_over=True)
    assert values(catalog) == [50, 51, 52]


def test_a_start_that_did_not_commit_changes_nothing_for_the_next(catalog, lake):
    run(lake, 1, 10)

    lake.writes.keyed_commit(key(1), starts_over=True)
    lake.writes.keyed_commit(key(1), starts_over=True)

    run(lake, 1, 20)  # its retry
    assert values(catalog) == [20, 21, 22]


def test_a_run_made_anew_without_a_predecessor_just_commits(catalog, lake):
    run(lake, 1, 10, starts_over=True)

    assert values(catalog) == [10, 11, 12]


def test_a_generation_without_rows_replaces_too(catalog, lake):
    run(lake, 1, 10)
    keyed = lake.writes.keyed_commit(key(2))
    base = lake.current_snapshot().id

    second = lake.committer.commit(base, lake.writes.replaced_rows(keyed.seen, base), INFO, keyed=keyed)

    assert values(catalog) == []
    assert [record.table_id for record in lake.writes.keyed_commit(key(2)).seen.done] == [None]
    assert lake.writes.keyed_commit(key(2)).seen.done[0].snapshot_id == second.id
    run(lake, 3, 30)
    assert values(catalog) == [30, 31, 32]


# --- which rows are replaced ---


def test_a_file_whose_rows_were_deleted_in_part_ends_whole(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (99)")
        reference.sql("DELETE FROM t WHERE i = 11")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


def test_deletes_kept_in_the_catalog_change_nothing(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (99)")
        reference.sql("DELETE FROM t WHERE i = 11")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


def test_rows_updated_since_are_replaced_where_they_lie_by_themselves(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (99)")
        reference.sql("UPDATE t SET i = 1000 WHERE i = 11")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


def test_rows_rewritten_since_are_replaced_where_they_lie_by_themselves(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("DELETE FROM t WHERE i = 11")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        reference.sql("INSERT INTO t VALUES (99)")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


SHARED = [
    "UPDATE t SET i = i + 1000 WHERE i IN (11, 99)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "DELETE FROM t WHERE i IN (11, 99); CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
]


@pytest.mark.parametrize(
    ("sql", "others_first"),
    [(SHARED[0], True), (SHARED[1], True), (SHARED[1], False), (SHARED[2], False)],
    ids=["updated", "merged behind", "merged before", "rewritten"],
)
def test_rows_in_a_file_of_others_are_deleted_there(catalog, lake, sql, others_first):
    others = "INSERT INTO t VALUES (98), (99), (100)"
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        if others_first:
            reference.sql(others)
        run(lake, 1, 10)
        if not others_first:
            reference.sql(others)
        reference.sql(sql)
        kept = reference.sql("SELECT rowid, i FROM t WHERE i NOT IN (10, 11, 12, 1011) ORDER BY ALL")
    before = lake.current_snapshot().id
    rows_before = values(catalog)

    run(lake, 2, 20)

    with open_lake(catalog) as reference:
        assert reference.sql("SELECT rowid, i FROM t WHERE i NOT IN (20, 21, 22) ORDER BY ALL") == kept
        at = f"SELECT i FROM t AT (VERSION => {before}) ORDER BY i"
        assert [one for (one,) in reference.sql(at)] == rows_before
        reference.sql("CALL ducklake_flush_inlined_data('lake')")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        assert reference.sql("SELECT rowid, i FROM t WHERE i NOT IN (20, 21, 22) ORDER BY ALL") == kept
    run(lake, 3, 30)
    assert values(catalog) == sorted([*(one for _, one in kept), *range(30, 33)])


@pytest.mark.parametrize("limit", [0, 10])
def test_rows_in_a_file_of_others_take_a_delete_file_or_marks(catalog, lake, limit):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (98), (99)")
        run(lake, 1, 10)
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
    lake.set_option("data_inlining_row_limit", limit)

    run(lake, 2, 20)

    dump = dump_catalog(catalog)
    counts = [row["delete_count"] for row in dump["ducklake_delete_file"]]
    marks = dump.get("ducklake_inlined_delete_1", [])
    assert (counts, len(marks)) == (([], 3) if limit else ([3], 0))
    assert values(catalog) == [20, 21, 22, 98, 99]


def test_rows_updated_into_the_catalog_end_there(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (99)")
        reference.sql("UPDATE t SET i = i + 1000 WHERE i IN (11, 99)")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 1099]
    with open_lake(catalog) as reference:
        reference.sql("CALL ducklake_flush_inlined_data('lake')")
    assert values(catalog) == [20, 21, 22, 1099]


def test_rows_flushed_together_with_those_of_others_are_deleted_there(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (99)")
        reference.sql("UPDATE t SET i = 1000 WHERE i = 11")
        reference.sql("CALL ducklake_flush_inlined_data('lake')")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


def test_rows_are_replaced_beside_those_that_others_add(catalog, lake):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (98), (99)")
        run(lake, 1, 10)
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
    keyed = lake.writes.keyed_commit(key(2))
    base = lake.current_snapshot().id
    changes = lake.writes.replaced_rows(keyed.seen, base)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (100)")

    lake.committer.commit(base, changes, INFO, keyed=keyed)

    assert values(catalog) == [98, 99, 100]


def test_what_is_to_be_replaced_can_be_asked_without_a_trace(catalog, lake):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (98), (99)")
        run(lake, 1, 10)
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
    lake.set_option("data_inlining_row_limit", 0)
    before = sorted(Path(catalog.data_path).rglob("*"))

    assert lake.writes.replaced_rows(lake.writes.keyed_commit(key(2)).seen, lake.current_snapshot().id)

    assert sorted(Path(catalog.data_path).rglob("*")) == before


def test_rows_that_the_same_commit_updated_stay(catalog, lake):
    """A merge adds rows and updates others, in files of one snapshot: only what it added is replaced."""
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t VALUES (98), (99)")
    keyed = lake.writes.keyed_commit(key(1))
    target = lake.table_snapshot("t", with_files=True)
    added = append_to(lake, 10)
    file = target.files[0]
    updated = pa.table({"i": [1098], ROW_ID_COLUMN: [file.row_id_start]})
    change_set = lake.writes.row_changes(target, row_changes(lake, target, {file.id: [0]}, updated=updated))
    lake.committer.commit_change_sets(
        [ChangeSet(change_set.base, (*change_set.changes, *added))], INFO, keyed=keyed
    )
    assert values(catalog) == [10, 11, 12, 99, 1098]

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99, 1098]


def test_rows_of_others_kept_in_the_catalog_stay(catalog, lake):
    run(lake, 1, 10)
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (99)")

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22, 99]


def test_rows_of_a_table_dropped_since_need_no_replacing(catalog, lake):
    run(lake, 1, 10)
    with lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"}, or_replace=True)

    run(lake, 2, 20)

    assert values(catalog) == [20, 21, 22]


def drop(lake: Lake, schema: str, *, table_only: bool) -> int:
    """Drop a table, or its whole schema; return the snapshot before."""
    then = lake.current_snapshot().id
    with lake.transaction() as tx:
        if table_only:
            tx.drop_table(f"{schema}.t")
        else:
            tx.drop_schema(schema, cascade=True)
    return then


@pytest.mark.parametrize("table_only", [True, False], ids=["table", "schema"])
def test_rows_of_a_table_that_came_back_are_replaced(catalog, lake, table_only):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int64"})
    lake.append_arrow("s.t", pa.table({"i": pa.array([1, 2], pa.int64())}))
    lake.committer.commit(
        lake.current_snapshot().id, append_to(lake, 10, "s.t"), INFO, keyed=lake.writes.keyed_commit(key())
    )

    for first in (20, 30):  # the second time what came back comes back
        lake.restore("s.t", at=drop(lake, "s", table_only=table_only))
        keyed = lake.writes.keyed_commit(key(first))
        base = lake.current_snapshot().id
        changes = [*lake.writes.replaced_rows(keyed.seen, base), *append_to(lake, first, "s.t")]
        lake.committer.commit(base, changes, INFO, keyed=keyed)
        assert values(catalog, "s.t") == [1, 2, first, first + 1, first + 2]


def test_rows_that_did_not_come_back_with_a_dropped_schema_need_no_replacing(catalog, lake):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int64"})
    lake.append_arrow("s.t", pa.table({"i": pa.array([1, 2], pa.int64())}))
    then = lake.current_snapshot().id
    drop(lake, "s", table_only=False)
    lake.restore("s.t", at=then)
    lake.committer.commit(
        lake.current_snapshot().id, append_to(lake, 10, "s.t"), INFO, keyed=lake.writes.keyed_commit(key())
    )
    lake.restore("s.t", at=then)  # made anew once more, without the rows of the commit
    lake.append_arrow("s.t", pa.table({"i": pa.array([5, 6, 7], pa.int64())}))  # under their row ids

    keyed = lake.writes.keyed_commit(key(2))
    base = lake.current_snapshot().id
    changes = [*lake.writes.replaced_rows(keyed.seen, base), *append_to(lake, 20, "s.t")]
    lake.committer.commit(base, changes, INFO, keyed=keyed)

    assert values(catalog, "s.t") == [1, 2, 5, 6, 7, 20, 21, 22]


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_table_that_comes_back_without_rows_gives_no_row_id_twice(catalog, lake, times):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int64"})
    lake.committer.commit(
        lake.current_snapshot().id, append_to(lake, 10, "s.t"), INFO, keyed=lake.writes.keyed_commit(key())
    )
    with lake.transaction() as tx:
        tx.delete_rows("s.t", "i > 0")
    for _ in range(times):
        lake.restore("s.t", at=drop(lake, "s", table_only=False))
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO s.t VALUES (1), (2)")
        reference.sql("INSERT INTO s.t FROM range(300, 320)")
        assert reference.sql("SELECT rowid, i FROM s.t WHERE i < 301 ORDER BY i") == [
            (3, 1),
            (4, 2),
            (5, 300),
        ]

    keyed = lake.writes.keyed_commit(key(2))
    base = lake.current_snapshot().id
    changes = [*lake.writes.replaced_rows(keyed.seen, base), *append_to(lake, 20, "s.t")]
    lake.committer.commit(base, changes, INFO, keyed=keyed)

    assert values(catalog, "s.t") == [1, 2, 20, 21, 22, *range(300, 320)]
    assert lake.verify() == []
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*), min(i), max(i) FROM s.t") == [(25, 1, 319)]
        assert reference.sql("UPDATE s.t SET i = 0 WHERE i IN (2, 300, 21)") == [(3,)]


def replace_by_nothing(lake: Lake, generation: int) -> CommittedSnapshot:
    keyed = lake.writes.keyed_commit(key(generation))
    base = lake.current_snapshot().id
    return lake.committer.commit(base, lake.writes.replaced_rows(keyed.seen, base), INFO, keyed=keyed)


def test_a_restore_that_brings_rows_back_after_they_were_looked_for_is_a_conflict(catalog, lake):
    first = run(lake, 1, 10)
    replace_by_nothing(lake, 2)
    third = lake.writes.keyed_commit(key(3))
    lake.restore("t", at=int(first.id))

    with pytest.raises(errors.TransactionConflictError, match="undone by a restore"):
        commit(lake, third, 30)

    assert values(catalog) == [10, 11, 12]
    run(lake, 3, 30)
    assert values(catalog) == [30, 31, 32]


@pytest.mark.every_catalog
@pytest.mark.parametrize("starts_over", [False, True], ids=["cleared", "run made again"])
def test_rows_that_a_restore_brought_back_are_replaced_also_after_expiry(catalog, lake, starts_over):
    first = run(lake, 1, 10)
    run(lake, 1 if starts_over else 2, 20, starts_over=starts_over)
    lake.restore("t", at=int(first.id))
    with lake.transaction() as tx:
        tx.create_schema("s")
    lake.expire_snapshots(keep_last=1)

    run(lake, 1 if starts_over else 3, 30, starts_over=starts_over)

    assert values(catalog) == [30, 31, 32]


@pytest.mark.every_catalog
@pytest.mark.parametrize("scope", [{"table": "t"}, {"schema": "main"}, {}], ids=["table", "schema", "lake"])
def test_a_restore_that_finds_nothing_to_do_counts(catalog, lake, scope):
    first = run(lake, 1, 10)
    commit(lake, lake.writes.keyed_commit(key(2), OnClear.APPEND), 20)
    with lake.transaction() as tx:
        tx.delete_rows("t", "i >= 20")
    newest = lake.current_snapshot()

    result = lake.restore(**scope, at=int(first.id))

    assert (result.committed, result.tables, lake.current_snapshot()) == (None, (), newest)
    run(lake, 3, 30)
    assert values(catalog) == [30, 31, 32]


@pytest.mark.every_catalog
@pytest.mark.parametrize("restores_again", [False, True], ids=["cleared", "restored again"])
def test_restores_from_before_there_was_a_table_of_them_count(catalog, lake, restores_again):
    with lake.transaction() as tx:
        tx.create_table("other", {"i": "int64"})
    first = run(lake, 1, 10)
    run(lake, 2, 20)
    lake.restore("t", at=int(first.id))
    job_columns.run(catalog, "DROP TABLE airflow_ducklake_restore")  # as an older release leaves it
    if restores_again:
        lake.append_arrow("other", pa.table({"i": pa.array([1], pa.int64())}))
        assert lake.restore("other", at=int(first.id)).committed is not None

    run(lake, 3, 30)

    assert values(catalog) == [30, 31, 32]


def test_a_table_that_a_restore_of_others_finds_unchanged_counts_as_restored(catalog, lake):
    with lake.transaction() as tx:
        tx.create_table("other", {"i": "int64"})
    first = run(lake, 1, 10)
    keyed = lake.writes.keyed_commit(key(2), OnClear.APPEND)
    lake.committer.commit(lake.current_snapshot().id, append_to(lake, 20, "other"), INFO, keyed=keyed)
    assert [one.name for one in lake.restore(at=int(first.id)).tables] == ["main.other"]

    run(lake, 3, 30)

    assert values(catalog) == [30, 31, 32]


def test_a_restore_after_one_that_found_nothing_to_do_is_the_newer_one(catalog, lake):
    first = run(lake, 1, 10)
    second = commit(lake, lake.writes.keyed_commit(key(2), OnClear.APPEND), 20)
    with lake.transaction() as tx:
        tx.delete_rows("t", "i >= 20")
    for _ in range(2):
        assert lake.restore("t", at=int(first.id)).committed is None
    lake.restore("t", at=int(second.id))
    assert values(catalog) == [10, 11, 12, 20, 21, 22]

    run(lake, 3, 30)

    assert values(catalog) == [10, 11, 12, 30, 31, 32]


def test_rows_that_come_while_nothing_is_found_to_restore_are_a_conflict(catalog, lake):
    first = run(lake, 1, 10)
    commit(lake, lake.writes.keyed_commit(key(2), OnClear.APPEND), 20)
    with lake.transaction() as tx:
        tx.delete_rows("t", "i >= 20")
    with Interrupted.connect(catalog.sqlalchemy_url) as other:
        other.meanwhile = lambda: run(lake, 3, 30)
        with pytest.raises(errors.TransactionConflictError, match="restore it"):
            other.restore("t", at=int(first.id))


def test_rows_move_along_with_a_task_that_writes_elsewhere_now(catalog, lake):
    run(lake, 1, 10)
    with lake.transaction() as tx:
        tx.create_table("other", {"i": "int64"})
    keyed = lake.writes.keyed_commit(key(2))
    base = lake.current_snapshot().id

    changes = [*lake.writes.replaced_rows(keyed.seen, base), *append_to(lake, 20, "other")]
    lake.committer.commit(base, changes, INFO, keyed=keyed)

    assert (values(catalog), values(catalog, "other")) == ([], [20, 21, 22])


# --- the record ---


def test_the_record_survives_the_expiry_of_its_snapshot(catalog, lake):
    first = run(lake, 1, 10)
    with lake.transaction() as tx:
        tx.create_schema("s")

    lake.expire_snapshots(keep_last=1)

    assert [one.id for one in lake.snapshots()] == [first.id + 1]
    assert run(lake, 1, 20).id == first.id
    run(lake, 2, 30)
    assert values(catalog) == [30, 31, 32]


def test_our_table_is_nothing_to_the_reference(catalog, lake, new_catalog):
    other = new_catalog(catalog.kind)
    with Lake.create(other.sqlalchemy_url, other.data_path) as plain:
        with plain.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        plain.committer.commit(plain.current_snapshot().id, append_to(plain, 10), INFO)
    run(lake, 1, 10)
    for one in (catalog, other):
        with open_lake(one, data_inlining_row_limit=0) as reference:
            reference.sql("INSERT INTO t VALUES (99)")
            reference.sql("CALL ducklake_merge_adjacent_files('lake')")
            reference.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
            reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    assert "airflow_ducklake_commit" in dump_catalog(catalog)
    assert "airflow_ducklake_commit" not in dump_catalog(other)
    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(other))
    assert values(catalog) == [10, 11, 12, 99]


def test_a_text_is_a_key_for_a_transaction(catalog, lake):
    for _ in range(2):
        with lake.transaction(commit_key="nightly") as tx:
            tx.append_arrow("t", ROWS)

    assert (tx.committed.id, tx.committed.is_earlier) == (2, True)
    assert json.loads(lake.snapshots()[-1].extra) == {"commit_generation": 1, "commit_key": ["nightly"]}
    assert len(values(catalog)) == ROWS.num_rows
    assert len(list(Path(lake.data_path).rglob("*.parquet"))) == 1


def test_a_transaction_that_was_made_says_so_before_its_block(lake):
    with lake.transaction(commit_key="setup") as tx:
        assert tx.committed is None
        tx.create_table("once", {"i": "int64"})
    made = tx.committed
    assert made is not None

    with lake.transaction(commit_key="setup") as tx:
        assert tx.committed is not None
        assert tx.committed.id == made.id
        if tx.committed is None:
            tx.create_table("once", {"i": "int64"})

    assert (tx.committed.id, tx.committed.is_earlier) == (made.id, True)


# --- trouble ---


def lose_connection(_connection: object) -> None:
    raise ConnectionResetError


@contextmanager
def after_commit(lake: Lake) -> Iterator[None]:
    """Let COMMIT reach the database, and its answer not reach us."""

    def lose(connection) -> None:
        connection.connection.driver_connection.commit()
        lose_connection(connection)

    event.listen(lake.opened.catalog.dialect.engine, "commit", lose)
    yield
    event.remove(lake.opened.catalog.dialect.engine, "commit", lose)


@contextmanager
def instead_of_commit(lake: Lake) -> Iterator[None]:
    with before_commit(lake, lose_connection):
        yield


@pytest.mark.every_catalog
@pytest.mark.parametrize(("lost", "is_earlier"), [(after_commit, True), (instead_of_commit, False)])
def test_a_commit_of_unknown_outcome_is_found_or_made_by_its_retry(lake, lost, is_earlier):
    tx = lake.transaction(commit_key="k")
    tx.append_arrow("t", ROWS)
    with lost(lake), pytest.raises(errors.CommitStateUnknownError), tx:
        pass

    assert append_once(lake) == [2, is_earlier]

    assert lake.read_arrow("t").num_rows == ROWS.num_rows
    assert lake.current_snapshot().id == 2


def start(catalog: CatalogDatabase, *when: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.concurrency.keyed_writer", catalog.sqlalchemy_url, *when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def release(writers: list[subprocess.Popen]) -> list[tuple[str, str]]:
    for one in writers:
        assert one.stdout.readline() == "ready\n", one.stderr.read()
    for one in writers:
        one.stdin.write("\n")
        one.stdin.flush()
    return [one.communicate(timeout=120) for one in writers]


def test_processes_that_race_with_one_key_make_one_snapshot(catalog, lake):
    """Neither of them has seen the table of keys, which the faster one makes."""
    ended = release([start(catalog) for _ in range(2)])

    made = [json.loads(out) for out, _ in ended]
    assert sorted(made) == [[2, False], [2, True]], ended
    assert values(catalog) == list(range(20))
    assert lake.current_snapshot().id == 2
    assert len(list(Path(lake.data_path).rglob("*.parquet"))) == 1


@pytest.mark.parametrize(("when", "is_earlier"), [("before", False), ("after", True)])
def test_a_process_killed_around_its_commit_leaves_a_retry_exactly_one_snapshot(
    sqlite_catalog, when, is_earlier
):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        writer = start(sqlite_catalog, when)
        release([writer])
        assert writer.returncode == -signal.SIGKILL

        assert append_once(lake) == [2, is_earlier]

    assert values(sqlite_catalog) == list(range(20))


def test_a_snapshot_says_by_which_key_it_was_made(catalog, lake):
    landed = commit(lake, lake.writes.keyed_commit(key(4)), 10)

    extra = {
        row["snapshot_id"]: row["commit_extra_info"]
        for row in dump_catalog(catalog)["ducklake_snapshot_changes"]
    }[landed.id]
    assert json.loads(extra) == {"commit_generation": 4, "commit_key": list(NAMES)}


@pytest.mark.every_catalog
def test_the_record_of_an_expired_snapshot_counts(lake):
    landed = run(lake, 1, 10)
    lake.append_arrow("t", pa.table({"i": pa.array([4], pa.int64())}))
    lake.expire_snapshots(keep_last=1)

    (record,) = lake.writes.keyed_commit(key()).seen.done

    assert record.snapshot_id == landed.id
    assert run(lake, 2, 20).id == landed.id + 2


@pytest.mark.every_catalog
def test_a_record_of_another_time_is_refused(catalog, lake):
    """As after the tables of DuckLake alone were restored from a backup."""
    run(lake, 1, 10)
    theirs = lake.append_arrow("t", pa.table({"i": pa.array([7], pa.int64())}))
    record = commit_keys.COMMITS.of(lake.opened.catalog)
    for snapshot_id, problem in {theirs.id: "was made at another time", 99: "was never made"}.items():
        with lake.opened.catalog.dialect.writing() as connection:
            connection.execute(record.update().values(snapshot_id=int(snapshot_id)))
            connection.commit()
        before = snapshot_count(catalog)

        for generation in (1, 2):
            with pytest.raises(
                errors.UntrustedValueError, match=f"names 'snapshot {snapshot_id}', which {problem}"
            ):
                lake.writes.keyed_commit(key(generation))

        assert snapshot_count(catalog) == before


def test_a_lake_made_anew_has_no_records_of_an_earlier_one(tmp_path):
    catalog = file_catalog("sqlite", tmp_path)
    for number in (1, 2):
        with Lake.create(catalog.sqlalchemy_url, f"{catalog.data_path}{number}/") as lake:
            with lake.transaction() as tx:
                tx.create_table("t", {"i": "int64"})
            assert not lake.tags()
            assert run(lake, number, 10).id == 2
            lake.tag("q3")
        with closing(sqlite3.connect(catalog.location)) as connection:
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE name LIKE 'ducklake%'"
            ).fetchall()
            for (name,) in names:
                connection.execute(f"DROP TABLE {name}")
