"""Restored tables show what they showed then, to the reference and to us, and keep it when old files go."""

import random
import re
import uuid
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import AlreadyExistsError, TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitKey, OnClear
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.corpus import SCENARIOS, History, build, drawn_catalog
from tests.interop.job_columns import another_user
from tests.interop.lakes import alone, by_duckdb
from tests.interop.restoring import (
    Interrupted,
    assert_read_alike,
    forget_all_but_the_newest,
    newest,
    numbered_rows,
    rows_at_every_snapshot,
)
from tests.reference.duckdb_lake import open_lake
from tests.reference.lent import CannotLendError

pytestmark = pytest.mark.both_versions


SCENARIOS_IN_CI = 2
HISTORIES = {"ci": (1, 12), "full": (60, 40)}  # how many, and statements of each
ROWS = (
    *["insert"] * 10,
    *["delete", "update", "merge into", "truncate"] * 3,
    "flush",
    "merge files",
    "rewrite",
)
DEFINITIONS = (
    "add column",
    "rename column",
    "drop column",
    "add field",
    "widen",
    "partition",
    "recreate",
    "sort",
)
TABLES = ("t0", "t1", "s.t2")
KINDS = (*ROWS, *DEFINITIONS, "option", *["schema"] * 3)
# What the reference leaves behind when it alters a table whose small inserts go to files, and when it flushes
# deletes of files that it had ended before.
REFERENCE_FAULTS = {FindingCode.INLINED_COLUMNS_DIFFER, FindingCode.TWO_DELETE_FILES}
COUNTS = (
    "files_kept",
    "files_ended",
    "files_shortened",
    "files_copied",
    "files_rewritten",
    "inlined_returned",
)


def assert_restored(catalog, then, before):
    """Restore the lake to a snapshot; only the newest snapshot may show it. Return what all show then."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        chosen = [name for name in lake.tables(at=then) if before[then][name] is not None]
        ids = numbered_rows(catalog, then, chosen)
        known = lake.verify()  # faults of the reference
        result = lake.restore(at=then)
        assert [one for one in lake.verify() if one not in known] == []
        assert lake.restore(at=then).committed is None
        after = assert_read_alike(lake, catalog)
    newest = max(after)
    assert {version: after[version] for version in before} == before
    assert after[newest] == before[then]
    assert numbered_rows(catalog, newest, chosen) == ids
    return result, after


def assert_goes_on(catalog, history, steps, before):
    """Let the reference work on, then clean up: all is read alike."""
    with open_lake(catalog) as reference:
        history.play_on(reference, steps)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        after = assert_read_alike(lake, catalog)
        faults = {one.code for one in lake.verify()}
    assert faults <= REFERENCE_FAULTS
    if FindingCode.TWO_DELETE_FILES not in faults:  # it shows rows twice, at older snapshots as well
        assert {version: after[version] for version in before} == before
    forget_all_but_the_newest(catalog)
    assert rows_at_every_snapshot(catalog) == {max(after): after[max(after)]}


def snapshot_ids(catalog):
    return [
        one for (one,) in by_duckdb(catalog, "SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")
    ]


@pytest.mark.timeout(3600)
def test_histories_come_back(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    done = Counter()
    for number in range(count):
        draw = random.Random(f"restore {seed} {number}")
        catalog = drawn_catalog(new_catalog("sqlite"), draw)
        history = History(draw, Counter(), kinds=KINDS, tables=TABLES)
        then = None
        try:
            with open_lake(catalog) as reference:
                history.play(reference, steps)
            then = draw.choice(snapshot_ids(catalog)[4:-1])
            result, after = assert_restored(catalog, then, rows_at_every_snapshot(catalog))
            for table in result.tables:
                done.update({name: getattr(table, name) for name in COUNTS})
                done[f"{table.name} {table.action}"] += 1
            if number % 2:
                forget_all_but_the_newest(catalog)
                after = {max(after): after[max(after)]}
            with suppress(CannotLendError):  # at 1.1 we inline variants, which DuckDB 1.5 has no words for
                assert_goes_on(catalog, history, steps // 2, after)
                done["went on"] += 1
        except Exception as error:
            statements = ";\n".join(history.statements)
            raise AssertionError(f"--seed {seed}, history {number} to {then}:\n{statements}") from error
    wanted = (*COUNTS, "s.t2 recreated", "main.t0 recreated", "went on")
    assert size == "ci" or all(done[name] for name in wanted), done


def test_scenarios_come_back(new_catalog, tmp_path, seed, size):
    """All types, layouts and kinds of files that the reference writes."""
    draw = random.Random(f"restore {seed}")
    scenarios = draw.sample(SCENARIOS, SCENARIOS_IN_CI if size == "ci" else len(SCENARIOS))
    for number, scenario in enumerate(scenarios):
        catalog = new_catalog("sqlite")
        build(scenario, catalog, tmp_path / f"given{number}")
        then = draw.choice(snapshot_ids(catalog)[1:-1])
        before = rows_at_every_snapshot(catalog)
        try:
            assert_restored(catalog, then, before)
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {scenario.name} to {then}") from error
        if number % 2:
            newest = max(snapshot_ids(catalog))
            shown = rows_at_every_snapshot(catalog)[newest]
            forget_all_but_the_newest(catalog)
            assert rows_at_every_snapshot(catalog) == {newest: shown}


@pytest.fixture
def catalog(sqlite_catalog):
    return sqlite_catalog


@pytest.fixture
def lake(catalog):
    """Make a lake with a table of rows in files and in the catalog, of which some are gone."""
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (i INT, s VARCHAR)")  # 1
        reference.sql("INSERT INTO t FROM range(20) r(i) SELECT i, 'a' || i")  # 2
        reference.sql("INSERT INTO t VALUES (100, 'x'), (101, 'y')")  # 3
        reference.sql("DELETE FROM t WHERE i = 3")  # 4
        reference.sql("INSERT INTO t FROM range(20, 40) r(i) SELECT i, 'b' || i")  # 5: what comes back
        reference.sql("DELETE FROM t WHERE i IN (5, 100)")  # 6
        reference.sql("UPDATE t SET s = 'u' WHERE i IN (7, 101)")  # 7
        reference.sql("INSERT INTO t FROM range(40, 60) r(i) SELECT i, 'c' || i")  # 8
        reference.sql("DELETE FROM t WHERE i BETWEEN 20 AND 39")  # 9
        reference.sql("INSERT INTO t VALUES (200, 'z')")  # 10
    with Lake.connect(catalog.sqlalchemy_url) as found:
        yield found


THEN = 5


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_rows_come_back_with_their_ids_on_every_catalog(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (i INT, s VARCHAR)")
        reference.sql("INSERT INTO t FROM range(30) r(i) SELECT i, 'a' || i")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        with lake.transaction() as tx:
            tx.delete_rows("t", "i < 10")
            tx.rename_table("t", "u")
        with lake.transaction() as tx:
            tx.drop_column("u", "s")
            tx.truncate("u")

        result = lake.restore("t", at=then)

        assert lake.verify() == []
        assert [(one.files_copied, one.rows_returned) for one in result.tables] == [(1, 30)]
    if catalog.is_for_the_reference:
        found = by_duckdb(catalog, "SELECT count(*), min(rowid), max(rowid), min(s) FROM t")
        assert found == [(30, 0, 29, "a0")]


def test_the_change_feed_shows_what_came_back_and_what_went(lake, catalog):
    before = {row[0]: row[1:] for row in rows_at(catalog, 10)}
    wanted = {row[0]: row[1:] for row in rows_at(catalog, THEN)}

    restored = lake.restore("t", at=THEN).committed.id

    ours = [tuple(row.values()) for row in lake.changes("t", restored, restored).read_arrow().to_pylist()]
    with open_lake(catalog) as reference:
        theirs = reference.sql(
            f"SELECT snapshot_id, rowid, change_type, i, s FROM ducklake_table_changes('lake', 'main', 't', "
            f"{restored}, {restored})"
        )
    assert sorted(ours) == sorted(theirs)
    for _, row_id, kind, *cells in ours:
        if kind in ("delete", "update_preimage"):
            assert before.pop(row_id) == tuple(cells)
    for _, row_id, kind, *cells in ours:
        if kind in ("insert", "update_postimage"):
            assert row_id not in before
            before[row_id] = tuple(cells)
    assert before == wanted


def rows_at(catalog, version):
    return sorted(by_duckdb(catalog, f"SELECT rowid, i, s FROM t AT (VERSION => {version})"))


def test_what_is_as_it_was_stays(lake, catalog):
    newest = lake.current_snapshot().id
    assert lake.restore("t", at=newest).committed is None
    first = lake.restore("t", at=THEN).committed.id

    assert lake.restore("t", at=THEN).committed is None
    assert lake.restore("t", at=first).committed is None

    by_duckdb(catalog, "CREATE TABLE other (i INT)")
    assert lake.restore("t", at=THEN).committed is None
    with open_lake(catalog) as reference:
        reference.sql("CALL ducklake_flush_inlined_data('lake')")  # says that rows were deleted
    lake.restore("t", at=THEN)
    assert rows_at(catalog, lake.current_snapshot().id) == rows_at(catalog, THEN)
    by_duckdb(catalog, "DELETE FROM t WHERE i = 1")
    assert lake.restore("t", at=THEN).committed is not None
    assert rows_at(catalog, lake.current_snapshot().id) == rows_at(catalog, THEN)


def test_a_dry_run_changes_nothing_and_says_all(lake, tmp_path):
    files = sorted(tmp_path.rglob("*"))
    newest = lake.current_snapshot()

    plan = lake.restore("t", at=THEN, dry_run=True)

    assert lake.current_snapshot() == newest
    assert sorted(tmp_path.rglob("*")) == files
    done = lake.restore("t", at=THEN)
    assert (plan.tables, plan.dry_run, plan.committed) == (done.tables, True, None)
    (table,) = done.tables
    assert (table.files_copied, table.files_rewritten, table.files_ended) == (1, 1, 1)
    assert (table.inlined_returned, table.inlined_ended) == (2, 3)
    new = [one for one in tmp_path.rglob("*.parquet") if one not in files]
    assert len(new) == 2


@pytest.mark.parametrize("dry_run", [True, False])
def test_types_that_are_not_written_are_refused_also_by_a_dry_run(lake, catalog, dry_run):
    texts = "SELECT i, v::VARCHAR FROM v ORDER BY i"
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE v AS FROM range(20) r(i)")
        reference.sql("ALTER TABLE v ADD COLUMN v TIME_NS")  # of which the reference writes no files
        ((then,),) = reference.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        before = reference.sql(texts)
        reference.sql("DELETE FROM v WHERE i = 7")
        rows = reference.sql(texts)

    with pytest.raises(errors.UnsupportedFeatureError, match=r"main\.v .* column v has type time_ns"):
        lake.restore("v", at=then, dry_run=dry_run)

    with open_lake(catalog) as reference:
        assert reference.sql(texts) == rows
        reference.sql("DROP TABLE v")
    lake.restore("v", at=then)  # its file as it is
    assert by_duckdb(catalog, texts) == before


REFUSED = {
    "never was": ({"at": 77}, errors.SnapshotNotFoundError, "77"),
    "has expired": ({"at": 2}, errors.SnapshotNotFoundError, "2"),
    "lies in the future": ({"at": datetime(2999, 1, 1, tzinfo=UTC)}, errors.InvalidInputError, "future"),
    "has no zone": ({"at": datetime(2026, 1, 1)}, errors.InvalidInputError, "zone"),  # noqa: DTZ001 - refused for it
    "had no such table": ({"at": 1, "table": "new"}, errors.TableNotFoundError, "new"),
    "had no such schema": ({"at": 1, "table": None, "schema": "s"}, errors.SchemaNotFoundError, "s"),
    "is of two things": ({"at": 1, "schema": "main"}, errors.InvalidInputError, "not both"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused_where_the_snapshot(lake, why):
    arguments, error, words = REFUSED[why]
    alone(lake).create_table("new", {"i": "int64"})
    lake.expire_snapshots(snapshots=[2])
    newest = lake.current_snapshot()

    with pytest.raises(error, match=words):
        lake.restore(**{"table": "t", **arguments})

    assert lake.current_snapshot() == newest


def test_a_file_that_is_gone_is_named_and_nothing_is_left_behind(lake, tmp_path):
    gone = {one.data_file for one in lake.files("t", at=THEN)} - {one.data_file for one in lake.files("t")}
    for path in gone:
        Path(path).unlink()
    files, newest = sorted(tmp_path.rglob("*.parquet")), lake.current_snapshot()

    with pytest.raises(errors.StorageError, match=r"\.parquet"):
        lake.restore("t", at=THEN)

    assert gone
    assert (sorted(tmp_path.rglob("*.parquet")), lake.current_snapshot()) == (files, newest)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_who_may_not_create_our_table_is_refused_before_anything_is_copied(new_catalog, kind, tmp_path):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", pa.table({"i": pa.array(range(40), pa.int64())}))
        then = lake.current_snapshot().id
        alone(lake).truncate("t")
        lake.jobs.register(str(uuid.uuid4()), f"{lake.data_path}main/t/x/")  # tables of ours that are there
        files, protected = sorted(tmp_path.rglob("*")), lake.jobs.protected_prefixes()
        with another_user(catalog, on_schema="USAGE") as theirs, Lake.connect(theirs.sqlalchemy_url) as other:
            for dry_run in [True, False] if kind == "postgres" else [False]:  # MariaDB tells by creating only
                with pytest.raises(errors.CatalogRefusedError):
                    other.restore("t", at=int(then), dry_run=dry_run)
        assert (sorted(tmp_path.rglob("*")), lake.jobs.protected_prefixes()) == (files, protected)
        assert lake.restore("t", at=int(then)).committed is not None


@pytest.fixture
def interrupted(lake, catalog):  # noqa: ARG001 - it makes the table
    with Interrupted.connect(catalog.sqlalchemy_url) as found:
        yield found


COPY = re.compile(r"ducklake-[0-9a-f-]{36}-\d+\.parquet")  # what a restore calls its files
MEANWHILE = {
    "insert": "INSERT INTO t FROM range(300, 320) r(i) SELECT i, 'd'",
    "inlined insert": "INSERT INTO t VALUES (300, 'd')",
    "delete": "DELETE FROM t WHERE i > 39 AND i < 55",
    "mark": "DELETE FROM t WHERE i = 1",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "flush": "CALL ducklake_flush_inlined_data('lake')",
    "comment": "COMMENT ON TABLE t IS 'new'",
    "alter": "ALTER TABLE t ADD COLUMN n INT",
    "drop": "DROP TABLE t",
}


def test_what_changes_the_table_meanwhile_is_a_conflict(interrupted, catalog, tmp_path):
    for statement in MEANWHILE.values():
        interrupted.meanwhile = partial(run, catalog, statement)
        newest = interrupted.current_snapshot().id

        with pytest.raises(errors.TransactionConflictError, match="restore it"):
            interrupted.restore("t", at=THEN)

        assert interrupted.current_snapshot().id == newest + 1, statement
    assert interrupted.verify() == []
    assert [one for one in tmp_path.rglob("*.parquet") if COPY.search(one.name)] == []


def run(catalog, statement):
    by_duckdb(catalog, statement)


def test_an_expiry_meanwhile_is_a_conflict(interrupted):
    interrupted.meanwhile = lambda: interrupted.expire_snapshots(snapshots=[THEN])
    with pytest.raises(errors.TransactionConflictError, match="expired snapshot 5"):
        interrupted.restore("t", at=THEN)


def test_what_another_table_does_meanwhile_is_none(interrupted, catalog):
    interrupted.meanwhile = partial(run, catalog, "CREATE TABLE other AS SELECT 1 AS i")
    assert interrupted.restore("t", at=THEN).committed is not None
    assert rows_at(catalog, interrupted.current_snapshot().id) == rows_at(catalog, THEN)


class Killed(BaseException):
    """The end of a process, as far as a test can play it."""


def kill():
    raise Killed


def test_a_try_that_is_killed_before_its_commit_leaves_protected_copies(interrupted, lake, catalog):
    interrupted.meanwhile = kill
    with pytest.raises(Killed):
        interrupted.restore("t", at=THEN, commit_key=interrupted.writes.keyed_commit(CommitKey(("task",))))
    orphans = lake.delete_orphaned_files(older_than=timedelta(0), sole_owner=True)
    assert (orphans.deleted, orphans.protected) == ((), 2)

    done = lake.restore("t", at=THEN, commit_key=lake.writes.keyed_commit(CommitKey(("task",))))

    assert not done.committed.is_earlier
    left = lake.delete_orphaned_files(older_than=timedelta(0), sole_owner=True, stage_ttl=timedelta(0))
    assert len(left.deleted) == 2
    assert rows_at(catalog, done.committed.id) == rows_at(catalog, THEN)


def test_a_try_that_is_killed_after_its_commit_has_made_it(interrupted, lake, catalog):
    interrupted.afterwards = kill
    with pytest.raises(Killed):
        interrupted.restore("t", at=THEN, commit_key=interrupted.writes.keyed_commit(CommitKey(("task",))))
    by_duckdb(catalog, "INSERT INTO t VALUES (999, 'later')")
    newest = lake.current_snapshot().id

    done = lake.restore("t", at=THEN, commit_key=lake.writes.keyed_commit(CommitKey(("task",))))

    assert (done.committed.id, done.committed.is_earlier) == (newest - 1, True)
    assert lake.current_snapshot().id == newest
    again = lake.restore(
        "t", at=THEN, commit_key=lake.writes.keyed_commit(CommitKey(("task",), generation=2), OnClear.APPEND)
    )
    assert again.committed.id == newest + 1


def test_files_that_were_never_ended_do_not_come_back_twice(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT range AS i FROM range(5)")
        reference.sql("DELETE FROM t WHERE i = 2")
        reference.sql("DROP TABLE t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with lake.opened.catalog.dialect.engine.begin() as connection:
            for kind in ("data_file", "delete_file"):
                connection.execute(lake.opened.catalog.tables[kind].update().values(end_snapshot=None))
        assert {one.code for one in lake.verify()} == {FindingCode.TABLE_ENDED}
        lake.restore("t", at=2)
        assert lake.verify() == []
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [0, 1, 3, 4]
    assert by_duckdb(catalog, "SELECT i FROM t ORDER BY i") == [(0,), (1,), (3,), (4,)]


def test_a_snapshot_that_flushed_and_inserted_is_a_change(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE m (i INT)")
        reference.sql("INSERT INTO m VALUES (1), (2)")
        reference.sql(
            "BEGIN; INSERT INTO m FROM range(1000); CALL ducklake_flush_inlined_data('lake'); COMMIT"
        )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.restore("m", at=2).committed is not None
    assert by_duckdb(sqlite_catalog, "FROM m ORDER BY i") == [(1,), (2,)]


# Columns, names, keys and comments come back with the rows; so do dropped tables, views and macros.


@pytest.fixture
def empty_lake(sqlite_catalog):
    with open_lake(sqlite_catalog):
        pass
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as found:
        yield found


def definition(empty_lake, table, at=None):
    """Return all that a table is besides its rows."""
    found = empty_lake.table_snapshot(table, at=at)
    sort_by = None if found.sort_spec is None else found.sort_spec.fields
    return found.table_id, found.table_uuid, found.name, found.schema, found.partition_spec, sort_by


COMMENTS = (
    "SELECT comment FROM duckdb_tables() WHERE database_name = 'lake' UNION ALL "
    "SELECT comment FROM duckdb_columns() WHERE database_name = 'lake' AND comment IS NOT NULL"
)
TABLE = (
    "CREATE TABLE t (i INT NOT NULL, k VARCHAR DEFAULT 'none', st STRUCT(a INT, b VARCHAR), gone INT)",
    "ALTER TABLE t SET PARTITIONED BY (k)",
    "ALTER TABLE t SET SORTED BY (i DESC)",
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
    "COMMENT ON TABLE t IS 'mine'",
    "COMMENT ON COLUMN t.i IS 'the id'",
    "INSERT INTO t (i, k, st, gone) SELECT i, 'k' || i % 2, {'a': i, 'b': 'b'}, i FROM range(40) r(i)",
    "INSERT INTO t BY NAME SELECT 100 AS i, 'k0' AS k, 9 AS gone, 8 AS late",
)
SINCE = {
    "rename": ["ALTER TABLE t RENAME TO u"],
    "rename columns": ["ALTER TABLE t RENAME gone TO x", "ALTER TABLE t RENAME late TO gone"],
    "drop columns": ["ALTER TABLE t DROP COLUMN gone", "ALTER TABLE t DROP COLUMN st.b"],
    "drop and add": ["ALTER TABLE t DROP COLUMN gone", "ALTER TABLE t ADD COLUMN gone VARCHAR DEFAULT 'new'"],
    "widen": ["ALTER TABLE t ALTER gone TYPE BIGINT", "INSERT INTO t (i, gone) VALUES (1, 5000000000)"],
    "defaults": ["ALTER TABLE t ALTER late SET DEFAULT 9", "ALTER TABLE t ALTER k DROP DEFAULT"],
    "nullability": ["ALTER TABLE t ALTER i DROP NOT NULL", "INSERT INTO t (gone) VALUES (1)"],
    "keys": ["ALTER TABLE t SET PARTITIONED BY (bucket(3, i))", "ALTER TABLE t SET SORTED BY (k)"],
    "no keys": ["ALTER TABLE t RESET PARTITIONED BY", "ALTER TABLE t RESET SORTED BY"],
    "comments": [
        "COMMENT ON TABLE t IS NULL",
        "COMMENT ON COLUMN t.k IS 'new'",
        "COMMENT ON COLUMN t.i IS 'x'",
    ],
    "replace": ["CREATE OR REPLACE TABLE t (z DATE)", "INSERT INTO t VALUES ('2024-01-01')"],
    "drop": ["DROP TABLE t"],
}
NUMBERED = "SELECT rowid, * FROM t"


KINDS_IN_CI = 2


def test_definitions_come_back(new_catalog, seed, size):
    kinds = sorted(SINCE)
    for kind in random.Random(f"definitions {seed}").sample(
        kinds, KINDS_IN_CI if size == "ci" else len(kinds)
    ):
        for rows_change in (True,) if size == "ci" else (True, False):
            catalog = new_catalog("sqlite")
            by_duckdb(catalog, *TABLE)
            try:
                with Lake.connect(catalog.sqlalchemy_url) as empty_lake:
                    assert_definition_comes_back(empty_lake, catalog, kind, rows_change=rows_change)
            except Exception as error:
                raise AssertionError(f"--seed {seed}: {kind}, {rows_change=}") from error


def assert_definition_comes_back(empty_lake, catalog, kind, *, rows_change):
    then = newest(empty_lake)
    table, rows, comments = (
        definition(empty_lake, "t"),
        by_duckdb(catalog, NUMBERED),
        by_duckdb(catalog, COMMENTS),
    )
    if rows_change:
        insert = "INSERT INTO t (i, k) SELECT i, 'k3' FROM range(20) r(i)"
        by_duckdb(catalog, insert, "DELETE FROM t WHERE k = 'k0'")
    by_duckdb(catalog, *SINCE[kind])

    restored = empty_lake.restore("t", at=then)

    assert restored.committed is not None
    assert definition(empty_lake, "t") == table
    assert sorted(by_duckdb(catalog, NUMBERED)) == sorted(rows)
    assert sorted(by_duckdb(catalog, COMMENTS)) == sorted(comments)
    assert empty_lake.verify() == []
    assert_read_alike(empty_lake, catalog)
    if kind == "nullability":  # DuckDB 1.5.5 cannot flush such a table: docs/compatibility.md
        with pytest.raises(duckdb.ConstraintException, match="NOT NULL"):
            by_duckdb(catalog, "CALL ducklake_flush_inlined_data('lake')")
        empty_lake.flush_inlined_data("t")
    counts = by_duckdb(
        catalog,
        "INSERT INTO t (i) VALUES (500)",
        "INSERT INTO t (i, k) SELECT i, 'k4' FROM range(600, 630) r(i)",
        "UPDATE t SET gone = 0 WHERE i IN (1, 500, 601)",
        "DELETE FROM t WHERE i = 2",
        "ALTER TABLE t ADD COLUMN fresh INT DEFAULT 1",
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "SELECT count(*), sum(i), sum(fresh), count(DISTINCT rowid) FROM t",
    )
    assert counts == [(71, 780 - 2 + 100 + 500 + sum(range(600, 630)), 71, 71)]
    assert empty_lake.verify() == []
    shown = by_duckdb(catalog, NUMBERED)
    forget_all_but_the_newest(catalog)
    assert sorted(by_duckdb(catalog, NUMBERED)) == sorted(shown)
    assert empty_lake.verify() == []


def test_no_column_gets_the_id_of_one_that_came_and_went(empty_lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1)")
    then = newest(empty_lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t ADD COLUMN x INT", "INSERT INTO t VALUES (2, 3)")
    between = newest(empty_lake)
    empty_lake.restore("t", at=then)
    by_duckdb(sqlite_catalog, "ALTER TABLE t ADD COLUMN y INT DEFAULT 5", "INSERT INTO t VALUES (4, 6)")

    assert [one.id for one in empty_lake.table_snapshot("t").schema.columns] == [1, 3]
    assert by_duckdb(sqlite_catalog, "FROM t ORDER BY i") == [(1, 5), (4, 6)]

    empty_lake.restore("t", at=between)
    assert by_duckdb(sqlite_catalog, "FROM t ORDER BY i") == [(1, None), (2, 3)]
    assert [one.id for one in empty_lake.table_snapshot("t").schema.columns] == [1, 2]
    assert empty_lake.verify() == []


def test_a_renamed_table_is_found_by_either_name(empty_lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(empty_lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t RENAME TO u", "DELETE FROM u")

    assert empty_lake.restore("u", at=then).tables[0].name == "main.t"
    assert by_duckdb(sqlite_catalog, "FROM t") == [(1,)]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_name_that_somebody_else_has_is_not_taken(empty_lake, sqlite_catalog, kind):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(empty_lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t RENAME TO u", f"CREATE {kind} t AS SELECT 2 AS j")

    with pytest.raises(AlreadyExistsError, match=r"main\.t"):
        empty_lake.restore("t", at=then)


def test_a_dropped_schema_without_tables_comes_back(empty_lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 5 AS i")
    then, uuid = newest(empty_lake), empty_lake.reads.schema("s")
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    assert empty_lake.restore(at=then).objects == ("schema s comes back", "view s.v comes back")
    assert by_duckdb(sqlite_catalog, "FROM s.v") == [(5,)]
    assert empty_lake.reads.schema("s").path == uuid.path
    assert empty_lake.verify() == []


@pytest.mark.parametrize("drop", ["DROP MACRO s.m", "DROP SCHEMA s CASCADE"])
def test_a_macro_whose_snapshot_expires_meanwhile_is_a_conflict(empty_lake, sqlite_catalog, drop):
    by_duckdb(
        sqlite_catalog, "CREATE SCHEMA s", "CREATE MACRO s.m(a) AS a + 1", "CREATE TABLE t AS SELECT 1 AS i"
    )
    then = newest(empty_lake)
    by_duckdb(sqlite_catalog, drop)

    with Interrupted.connect(sqlite_catalog.sqlalchemy_url) as interrupted:
        interrupted.meanwhile = lambda: empty_lake.expire_snapshots(keep_last=1)
        with pytest.raises(TransactionConflictError, match=f"expired snapshot {then}"):
            interrupted.restore(schema="s", at=then)

    assert by_duckdb(sqlite_catalog, "FROM t") == [(1,)]  # a macro without its text shuts the lake to DuckDB


SCHEMA = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.kept AS SELECT i FROM range(20) r(i)",
    "CREATE TABLE s.dropped AS SELECT i FROM range(30) r(i)",
    "CREATE TABLE s.a AS SELECT 1 AS i",
    "CREATE TABLE s.b AS SELECT 2 AS i",
    "CREATE VIEW s.v AS SELECT count(*) AS n FROM s.kept",
    "CREATE VIEW s.w AS SELECT 1 AS x",
    "COMMENT ON VIEW s.v IS 'a view'",
    "CREATE MACRO s.addone(a) AS a + 1",
    "CREATE MACRO s.many(n) AS TABLE SELECT i FROM range(n) r(i)",
    "CREATE TABLE outside AS SELECT 1 AS i",
)
SHOWN = (
    "SELECT (SELECT sum(i) FROM s.kept), (SELECT sum(i) FROM s.dropped), (FROM s.a), (FROM s.b), (FROM s.v), "
    "(FROM s.w), s.addone(4), (SELECT count(*) FROM s.many(5))"
)
NAMED = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 's' AND table_catalog = 'lake' "
    "UNION ALL SELECT comment FROM duckdb_views() WHERE comment IS NOT NULL ORDER BY 1"
)
OF_SCHEMA = (
    "DROP TABLE s.dropped",
    "DELETE FROM s.kept WHERE i > 3",
    "ALTER TABLE s.a RENAME TO c",
    "ALTER TABLE s.b RENAME TO a",
    "ALTER TABLE s.c RENAME TO b",
    "CREATE TABLE s.born AS SELECT 5 AS i",
    "DROP VIEW s.v",
    "ALTER VIEW s.w RENAME TO v",
    "CREATE VIEW s.new AS SELECT 1 AS i",
    "DROP MACRO s.addone",
    "CREATE MACRO s.addtwo(a) AS a + 2",
    "DROP MACRO TABLE s.many",
    "CREATE TABLE born_outside AS SELECT 1 AS i",
)


def test_what_a_schema_held_comes_back(empty_lake, sqlite_catalog):
    for scope in ({"schema": "S"}, {}):
        assert_comes_back(empty_lake, sqlite_catalog, scope)
        by_duckdb(
            sqlite_catalog, "DROP SCHEMA s CASCADE", "DROP TABLE outside", "DROP TABLE IF EXISTS born_outside"
        )


def assert_comes_back(empty_lake, sqlite_catalog, scope):
    by_duckdb(sqlite_catalog, *SCHEMA)
    then = newest(empty_lake)
    shown, named = by_duckdb(sqlite_catalog, SHOWN), by_duckdb(sqlite_catalog, NAMED)
    by_duckdb(sqlite_catalog, *OF_SCHEMA)

    result = empty_lake.restore(at=then, **scope)

    assert by_duckdb(sqlite_catalog, SHOWN) == shown
    assert by_duckdb(sqlite_catalog, NAMED) == named
    assert ("born_outside" in [one.name for one in empty_lake.tables()]) == bool(scope)
    assert "main.outside" not in [one.name for one in result.tables]
    assert empty_lake.restore(at=then, **scope).committed is None
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, SHOWN) == shown
    by_duckdb(sqlite_catalog, "INSERT INTO s.kept SELECT i FROM range(100) r(i)")
    assert empty_lake.verify() == []


def test_schemas_made_since_go_with_all_they_hold(empty_lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(empty_lake)
    by_duckdb(sqlite_catalog, *SCHEMA)

    result = empty_lake.restore(at=then)

    assert "schema s goes" in result.objects
    assert by_duckdb(
        sqlite_catalog, "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'"
    ) == [("main",)]
    assert [str(one) for one in empty_lake.tables()] == ["main.t"]
    assert empty_lake.verify() == []


def test_the_next_row_gets_an_id_of_its_own(empty_lake, sqlite_catalog):
    with empty_lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
        tx.append_arrow("t", pa.table({"i": pa.array(range(50), pa.int64())}))
    then = newest(empty_lake)
    empty_lake.append_arrow("t", pa.table({"i": pa.array(range(50, 80), pa.int64())}))
    alone(empty_lake).drop_table("t")
    empty_lake.restore("t", at=then)
    empty_lake.append_arrow("t", pa.table({"i": pa.array([7], pa.int64())}))

    assert by_duckdb(sqlite_catalog, "SELECT max(rowid), count(DISTINCT rowid), count(*) FROM t") == [
        (80, 51, 51)
    ]
