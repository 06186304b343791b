"""Inlined rows and deletes that are flushed show what they did before, to the reference and to us."""

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.hooks.task import no_retry_on_user_errors
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep.flush import Flush, FlushRule
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.transaction.changes import InlineDeletes
from tests.interop.corpus import SCENARIOS, History, build, drawn_catalog
from tests.interop.lakes import alone, by_duckdb
from tests.interop.restoring import assert_flushed_without_a_trace, feeds, seen_by_the_reference
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CATALOG_KINDS, USUAL_KINDS
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

HISTORIES = {"ci": (1, 8), "full": (100, 40)}  # how many, and statements of each
SCENARIOS_IN_CI = 1
CHANGES = ("delete", "update", "update key", "merge into", "truncate")
ALTERATIONS = ("add column", "rename column", "drop column", "add field", "widen")
LAYOUT = ("partition", "unpartition", "sort", "flush", "merge files", "rewrite")
KINDS = (*["insert"] * 12, *CHANGES * 2, *ALTERATIONS, *LAYOUT)
INLINED = "CALL lake.set_option('data_inlining_row_limit', 50)"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def test_histories_read_the_same_after_it(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    flushed = 0
    for number in range(count):
        draw = random.Random(f"flush {seed} {number}")
        catalog = drawn_catalog(new_catalog("sqlite"), draw)
        history = History(draw, Counter(), kinds=KINDS)
        try:
            with open_lake(catalog) as reference:
                reference.sql(draw.choice([INLINED, "SELECT 1"]))
                reference.sql(draw.choice(["CALL lake.set_option('target_file_size', '700B')", "SELECT 1"]))
                history.play(reference, steps)
            flushed += assert_flushed_without_a_trace(catalog)
            with open_lake(catalog) as reference:
                history.play_on(reference, steps // 2)
            flushed += assert_flushed_without_a_trace(catalog)
            assert_expiry_leaves_the_rest(catalog)
        except Exception as error:  # noqa: BLE001 - whatever it is, the statements show it again
            pytest.fail(f"--seed {seed}, history {number}: {error!r}\n" + ";\n".join(history.statements))
    assert size == "ci" or flushed >= count


def assert_expiry_leaves_the_rest(catalog):
    """Let the reference merge, rewrite, expire and clean up, and look at the newest snapshot."""
    is_sorted = sorted_tables(catalog)
    with open_lake(catalog) as reference:
        before = rows_of_now(reference, is_sorted)
        reference.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        reference.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
        reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        assert rows_of_now(reference, is_sorted) == before


def sorted_tables(catalog):
    """Return the tables whose rows the reference's merge numbers anew, whoever inserted them."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return {name.name for name in lake.tables() if lake.table_snapshot(name).sort_spec is not None}


def rows_of_now(reference, without_ids):
    names = [
        name for (name,) in reference.sql("SELECT table_name FROM ducklake_table_info('lake') ORDER BY 1")
    ]
    return {
        name: reference.sql(f'SELECT {"*" if name in without_ids else "rowid, *"} FROM "{name}" ORDER BY ALL')
        for name in names
    }


def test_scenarios_read_the_same_after_it(new_catalog, tmp_path, seed, size):
    """All types and layouts that the reference writes."""
    inlined = [one for one in SCENARIOS if one.name not in NOT_FOR_CI or size == "full"]
    chosen = random.Random(f"flush {seed}").sample(inlined, SCENARIOS_IN_CI) if size == "ci" else inlined
    for number, scenario in enumerate(chosen):
        catalog = new_catalog("sqlite")
        build(scenario, catalog, tmp_path / f"given{number}")
        try:
            assert_flushed_without_a_trace(catalog)
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {scenario.name}") from error


NOT_FOR_CI = ("promotions of inlined rows", "promotions in files")  # of many snapshots

TABLE = "CREATE TABLE t (i INT, s VARCHAR)"
DIFFERENTIAL = {
    "updated twice": [
        TABLE,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "UPDATE t SET s = 'u' WHERE i = 1",
        "UPDATE t SET s = 'v' WHERE i = 1",
        "DELETE FROM t WHERE i = 2",
        "INSERT INTO t VALUES (4, 'd')",
    ],
    "altered": [
        TABLE,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t ADD COLUMN k INT DEFAULT 7",
        "INSERT INTO t VALUES (3, 'c', 8)",
        "ALTER TABLE t RENAME s TO text",
        "DELETE FROM t WHERE i = 1",
    ],
    "sorted": [
        TABLE,
        "INSERT INTO t VALUES (3, 'a'), (1, 'b'), (NULL, 'n')",
        "ALTER TABLE t SET SORTED BY (i DESC NULLS FIRST, s)",
        "INSERT INTO t VALUES (2, 'a'), (0, 'b'), (2, 'A')",
        "DELETE FROM t WHERE i = 3",
    ],
    "sorted by expressions": [
        TABLE,
        "INSERT INTO t VALUES (3, 'a'), (1, 'Bb'), (NULL, 'n'), (7, 'C')",
        "ALTER TABLE t SET SORTED BY (i % 3 DESC NULLS FIRST, lower(s), length(s) DESC)",
        "INSERT INTO t VALUES (2, 'a'), (5, 'B'), (8, 'A')",
        'ALTER TABLE t RENAME s TO "Text s"',
        "INSERT INTO t VALUES (4, 'zz'), (10, 'z'), (13, 'Y')",
    ],
    "partitioned": [
        TABLE,
        "INSERT INTO t VALUES (3, 'a'), (1, 'b')",
        "ALTER TABLE t SET PARTITIONED BY (s)",
        "INSERT INTO t VALUES (2, 'a'), (0, 'b'), (9, 'c'), (11, 'c'), (10, NULL)",
        "DELETE FROM t WHERE i = 3",
        "UPDATE t SET s = 'z' WHERE i = 9",
    ],
    "marks": [
        TABLE,
        "INSERT INTO t SELECT x, 'f' FROM range(30) r(x)",
        "DELETE FROM t WHERE i = 3",
        "DELETE FROM t WHERE i = 5",
        "INSERT INTO t VALUES (100, 'n')",
    ],
    "marks beside a delete file": [
        TABLE,
        "INSERT INTO t SELECT x, 'f' FROM range(100) r(x)",
        "DELETE FROM t WHERE i < 20",
        "DELETE FROM t WHERE i = 33",
        "DELETE FROM t WHERE i = 35",
    ],
    "lists and maps": [
        "CREATE TABLE t (i INT, l INT[], m MAP(VARCHAR, STRUCT(n INT)))",
        "INSERT INTO t VALUES (1, [1], MAP {'a': {'n': 1}}), (2, NULL, NULL), (3, [], MAP {})",
    ],
    "truncated": [
        TABLE,
        "INSERT INTO t SELECT x, 'f' FROM range(12) r(x)",
        "DELETE FROM t WHERE i < 8",
        "TRUNCATE t",
    ],
}
IGNORED = (
    "ducklake_data_file.path",  # ours have the id of the write in their names
    "ducklake_delete_file.path",
    "ducklake_files_scheduled_for_deletion.path",
    "ducklake_delete_file.partial_max",  # where ours says the last snapshot of the deletes, its own does not
    "ducklake_data_file.row_id_start",  # which it gives as consecutive, whether the ids are or not
)


def turn(cases, size, seed, share):
    """Return all cases, or in CI those whose turn it is: another share each day."""
    return list(cases) if size == "full" else list(cases)[seed % share :: share]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_catalog_is_what_the_reference_makes_of_it(kind, new_catalog, size, seed):
    for name in turn(DIFFERENTIAL, size, seed, {"sqlite": 2, "postgres": 5}[kind]):
        try:
            assert_flushed_as_by_the_reference(name, new_catalog(kind), new_catalog(kind, "1.0"))
        except Exception as error:
            error.add_note(f"--seed {seed}, {name}")
            raise


def assert_flushed_as_by_the_reference(name, catalog, reference_catalog):
    for one in (catalog, reference_catalog):
        by_duckdb(one, *DIFFERENTIAL[name])
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        before = feeds(lake)
        lake.flush_inlined_data()
        assert lake.verify() == []
        assert feeds(lake) == before
        assert lake.table_changes("t", lake.snapshots()[-2].id, ("data",)) is None
    by_duckdb(reference_catalog, FLUSH)

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog), IGNORED)


def test_a_file_ends_with_its_last_row_which_the_reference_leaves_in_the_newest_snapshot(new_catalog):
    catalog, reference_catalog = new_catalog("sqlite", "1.0"), new_catalog("sqlite", "1.0")
    for one in (catalog, reference_catalog):
        by_duckdb(one, TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "DELETE FROM t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        before = feeds(lake)
        lake.flush_inlined_data()
        assert feeds(lake) == before
        assert lake.verify() == []
    by_duckdb(reference_catalog, FLUSH)

    def lives(of, kind):
        rows = dump_catalog(of)[f"ducklake_{kind}"]
        return [(row["begin_snapshot"], row["end_snapshot"]) for row in rows]

    assert lives(catalog, "data_file") == [(2, 3)]
    assert lives(catalog, "delete_file") == []
    assert lives(reference_catalog, "data_file") == [(2, None)]
    assert lives(reference_catalog, "delete_file") == [(3, None)]


def test_each_version_of_a_row_ends_by_its_own_snapshot(sqlite_catalog):
    """The reference's own feed confuses them where one file has both, whoever flushed."""
    by_duckdb(sqlite_catalog, *DIFFERENTIAL["updated twice"])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.flush_inlined_data("t")
        (file,) = lake.table_snapshot("t", with_files=True).files
        ended = pq.read_table(file.delete_file.path).drop_columns(["file_path"]).to_pylist()
        assert [tuple(row.values()) for row in ended] == [(0, 3), (1, 4), (3, 5)]
        rows = lake.changes("t", 3, 4).read_arrow().select(["snapshot_id", "change_type", "s"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (3, "update_preimage", "a"),
        (3, "update_postimage", "u"),
        (4, "update_preimage", "u"),
        (4, "update_postimage", "v"),
    ]


def test_the_reference_merges_sorted_rows_without_numbering_them_anew(sqlite_catalog):
    by_duckdb(sqlite_catalog, f"{TABLE}; ALTER TABLE t SET SORTED BY (i)")
    for number in (3, 1, 2):
        by_duckdb(sqlite_catalog, f"INSERT INTO t VALUES ({number}, 'a')")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.flush_inlined_data("t")
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        assert reference.sql("SELECT rowid, i FROM t ORDER BY ALL") == [(0, 3), (1, 1), (2, 2)]


FILLED = [
    TABLE,
    "INSERT INTO t SELECT x, 'f' || x FROM range(20) r(x)",
    "INSERT INTO t VALUES (100, 'a'), (101, 'b'), (102, 'c')",
    "UPDATE t SET s = 'u' WHERE i IN (3, 100)",
    "DELETE FROM t WHERE i = 101",
]


@pytest.fixture
def catalog(sqlite_catalog):
    return sqlite_catalog


@pytest.fixture
def lake(catalog):
    """Make a lake with rows in the catalog, some of them ended, and deletes of rows in a file."""
    by_duckdb(catalog, *FILLED)
    with Lake.connect(catalog.sqlalchemy_url) as found:
        yield found


def test_what_is_done_is_said(lake):
    planned = lake.flush_inlined_data(dry_run=True)
    assert lake.flush_inlined_data(min_rows=7) == []

    (done,) = lake.flush_inlined_data(author="me", message="nightly")

    assert [(one.row_count, one.ended_count, one.delete_count) for one in (*planned, done)] == [(5, 2, 1)] * 2
    assert (done.table, done.data_files, done.delete_files) == (QualifiedName.of(("main", "t")), 1, 2)
    newest = lake.snapshots()[-1]
    assert (newest.id, newest.author, newest.message) == (done.snapshot_id, "me", "nightly")
    assert [str(one) for one in newest.changes] == ["deleted_from_table:1", "inline_flush:1"]
    assert done.bytes == sum(
        one.file_size_bytes for one in lake.table_snapshot("t", with_files=True).files[1:]
    ) + sum(one.delete_file.file_size_bytes for one in lake.table_snapshot("t", with_files=True).files[1:])
    assert lake.jobs.protected_prefixes() == frozenset()


def test_arguments_that_cannot_be_are_refused(lake):
    with pytest.raises(errors.InvalidInputError, match="not both"):
        lake.flush_inlined_data("t", schema="main")
    with pytest.raises(errors.InvalidInputError, match="min_rows=-1"):
        lake.flush_inlined_data(min_rows=-1)
    with pytest.raises(errors.TableNotFoundError):
        lake.flush_inlined_data("nothing")
    with pytest.raises(errors.SchemaNotFoundError):
        lake.flush_inlined_data(schema="nothing")


def test_tables_of_a_schema_become_one_snapshot(lake, catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE SCHEMA s; CREATE TABLE s.a AS SELECT 1 AS i; CREATE TABLE s.b AS SELECT 2 AS i")
        reference.sql("CREATE TABLE s.manual AS SELECT 3 AS i")
        reference.sql("CALL lake.set_option('auto_compact', false, schema => 's', table_name => 'manual')")

    done = lake.flush_inlined_data(schema="s")

    assert [one.table.name for one in done] == ["a", "b"]
    assert len({one.snapshot_id for one in done}) == 1
    assert [one.table.name for one in lake.flush_inlined_data()] == ["t"]
    assert [one.table.name for one in lake.flush_inlined_data("s.manual")] == ["manual"]


def test_a_table_that_cannot_be_written_does_not_keep_the_others(lake, catalog):
    by_duckdb(catalog, "CREATE TABLE bad (i INT); INSERT INTO bad VALUES (1)")
    directory = Path(catalog.data_path) / "main" / "bad"
    directory.rmdir()
    directory.write_text("in its way")
    before = seen_by_the_reference(catalog)

    with pytest.raises(
        errors.StorageError, match=r"1 tables could not .* flushed 1 others\. main\.bad: "
    ) as failed:
        lake.flush_inlined_data()

    assert f"snapshot {lake.current_snapshot().id} " in str(failed.value)
    assert before.items() <= seen_by_the_reference(catalog).items()
    with pytest.raises(errors.StorageError, match="nothing landed"):
        lake.flush_inlined_data()
    with pytest.raises(errors.StorageError, match="bad"):
        lake.flush_inlined_data("bad")
    assert lake.jobs.protected_prefixes() == frozenset()
    directory.unlink()
    assert [one.table.name for one in lake.flush_inlined_data()] == ["bad"]


BESIDE = {
    "insert": "INSERT INTO t VALUES (200, 'x')",
    "delete": "DELETE FROM t WHERE i = 102",
    "update": "UPDATE t SET s = 'x' WHERE i = 102",
    "mark": "DELETE FROM t WHERE i = 7",
    "delete file": "SET ducklake_default_data_inlining_row_limit = 0; DELETE FROM t WHERE i < 9",
    "truncate": "DELETE FROM t",
    "alter": "ALTER TABLE t ADD COLUMN k INT DEFAULT 5",
    "insert other columns": "ALTER TABLE t ADD COLUMN k INT; INSERT INTO t VALUES (201, 'y', 6)",
    "rename": "ALTER TABLE t RENAME s TO z",
    "partition": "ALTER TABLE t SET PARTITIONED BY (s)",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "flush": FLUSH,
}


def flushing_beside(lake, catalog, statement, times=1):
    """Return a flush before whose first commits the reference does something."""
    left = [statement] * times

    def commit(change_sets, job_ids):
        if left:
            by_duckdb(catalog, left.pop())
        return lake.committer.commit_change_sets(change_sets, CommitInfo(), job_ids=job_ids)

    return Flush(lake.opened.catalog, lake.locate, FlushRule(QualifiedName.of(("main", "t"))), commit)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_others_do_meanwhile_is_neither_lost_nor_doubled(kind, new_catalog, size, seed):
    for name in turn(BESIDE, size, seed, {"sqlite": 3, "postgres": 6}[kind]):
        try:
            assert_flushed_beside(name, new_catalog(kind), new_catalog("sqlite"))
        except Exception as error:
            error.add_note(f"--seed {seed}, {name}")
            raise


def assert_flushed_beside(name, catalog, other):
    with open_lake(other) as undisturbed:  # the same, with nobody flushing
        for statement in (*FILLED, BESIDE[name]):
            undisturbed.sql(statement)
        expected = undisturbed.sql("SELECT rowid, * FROM t ORDER BY ALL")
    by_duckdb(catalog, *FILLED)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        flushing_beside(lake, catalog, BESIDE[name]).run()

        assert_nothing_is_left_over(lake, catalog)
    assert by_duckdb(catalog, "SELECT rowid, * FROM t ORDER BY ALL") == expected


def assert_nothing_is_left_over(lake, catalog):
    """Look for findings, but of the statistics that the reference's rewrite makes, and for files."""
    assert {one.code for one in lake.verify()} <= {FindingCode.TABLE_STATS_NARROW}
    dump = dump_catalog(catalog)
    tables = ("data_file", "delete_file", "files_scheduled_for_deletion")
    named = {Path(row["path"]).name for table in tables for row in dump[f"ducklake_{table}"]}
    assert {one.name for one in Path(catalog.data_path).rglob("*.parquet")} == named
    assert lake.jobs.protected_prefixes() == frozenset()


@pytest.mark.only_1_0("DuckDB's transaction is open while we flush")
@pytest.mark.parametrize("name", ["insert", "delete", "update"])
def test_who_began_before_a_flush_loses_nothing_after_it(name, postgres_catalog):
    with open_lake(postgres_catalog) as slow:
        for statement in (FILLED[0], *FILLED[2:]):  # without deletes of rows in files
            slow.sql(statement)
        slow.sql(f"BEGIN; {BESIDE[name]}")
        with Lake.connect(postgres_catalog.sqlalchemy_url) as lake:
            lake.flush_inlined_data("t")
        if name == "insert":
            slow.sql("COMMIT")
        else:
            with pytest.raises(duckdb.Error, match="flushed the inlined data"):
                slow.sql("COMMIT")
            slow.sql(BESIDE[name])
        kept = slow.sql("SELECT i, s FROM t WHERE i >= 100 ORDER BY ALL")
    others = {"insert": [(102, "c"), (200, "x")], "delete": [], "update": [(102, "x")]}
    assert kept == [(100, "u"), *others[name]]


def test_a_table_that_is_dropped_meanwhile_is_left_alone(lake, catalog):
    with pytest.raises(errors.TableNotFoundError):
        flushing_beside(lake, catalog, "DROP TABLE t").run()
    assert not [one for one in Path(catalog.data_path).rglob("*.parquet") if one.name.endswith("-0.parquet")]


class Slow(Flush):
    """A flush beside which others ``act`` between its two looks at the table t."""

    act: Callable[[], None]

    def _write(self, name, *arguments):
        if name.name == "t":
            self.act()
        return Flush._write(self, name, *arguments)


@pytest.mark.parametrize(
    "statement", ["CALL ducklake_flush_inlined_data('lake', table_name => 't')", "DROP TABLE t"]
)
def test_a_table_that_is_flushed_or_dropped_between_two_looks_keeps_no_other(lake, catalog, statement):
    def act():
        by_duckdb(catalog, statement)

    def commit(change_sets, job_ids):
        return lake.committer.commit_change_sets(change_sets, CommitInfo(), job_ids=job_ids)

    with lake.transaction() as tx:
        tx.create_table("u", {"i": "int64"})
        tx.append_arrow("u", pa.table({"i": pa.array([1], pa.int64())}))
    flush = Slow(lake.opened.catalog, lake.locate, FlushRule(), commit)
    flush.act = act

    assert [str(one.table) for one in flush.run()] == ["main.u"]
    assert lake.verify() == []


@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        ("decimal(10, 2)", "abc"),
        ("decimal(10, 2)[]", "['abc']"),
        ("timestamp", "99999999999-01-01"),
        ("timestamp[]", "['99999999999-01-01']"),
    ],
)
@pytest.mark.only_1_0("another client reads the lake at the end, which cannot be read")
def test_a_cell_that_is_no_value_is_named_by_its_column(sqlite_catalog, type_, cell):
    by_duckdb(sqlite_catalog, f"CREATE TABLE odd (x {type_})", "INSERT INTO odd VALUES (NULL)")
    with closing(sqlite3.connect(sqlite_catalog.location)) as connection, connection:
        (name,) = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone()
        connection.execute(f'UPDATE "{name}" SET x = ?', [cell])

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for read in (lake.read_arrow, lake.flush_inlined_data):
            with pytest.raises(errors.CatalogError):
                read("odd")


def test_a_cell_that_cannot_be_read_keeps_the_rows_of_its_table_alone(lake, catalog):
    with lake.transaction() as tx:
        tx.create_table("days", {"d": "date"})
        tx.append_arrow("days", pa.table({"d": [date(2026, 1, 2)]}))
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        names = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall()
        (name,) = [name for (name,) in names if _has_days(connection, name)]
        connection.execute(f'UPDATE "{name}" SET d = ?', ["abc"])
        repair = f"UPDATE \"{name}\" SET d = '2026-01-02'"

    with pytest.raises(
        errors.CatalogError, match=r"flushed 1 others. main.days: An inlined row has a value that"
    ):
        lake.flush_inlined_data()
    assert lake.flush_inlined_data("t") == []

    with pytest.raises(errors.CatalogError, match="does not fit column d"):  # alone, and no retry cures it
        lake.flush_inlined_data()
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(repair)
    assert len(lake.flush_inlined_data()) == 1


def _has_days(connection, name):
    return "d" in [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]


def test_a_limit_of_no_bytes_makes_no_file_of_each_row(lake, catalog):
    by_duckdb(catalog, INLINED, "INSERT INTO t SELECT x, 'm' FROM range(400, 450) r(x)")
    lake.set_option("target_file_size", "0")

    (done,) = lake.flush_inlined_data("t")

    assert done.row_count > 50
    assert done.data_files < 20


def test_files_that_a_clean_up_gave_up_are_not_committed_and_a_retry_flushes(lake, catalog):
    def commit(change_sets, job_ids):
        for one in job_ids:
            lake.jobs.release(one)
        return lake.committer.commit_change_sets(change_sets, CommitInfo(), job_ids=job_ids)

    with pytest.raises(errors.FilesReleasedError) as given_up, no_retry_on_user_errors():
        Flush(lake.opened.catalog, lake.locate, FlushRule(QualifiedName.of(("main", "t"))), commit).run()

    assert "clean-up of orphaned files" in str(given_up.value)
    assert not [one for one in Path(catalog.data_path).rglob("*.parquet") if one.name.endswith("-0.parquet")]
    assert len(lake.flush_inlined_data("t")) == 1


def test_it_gives_up_where_rows_are_deleted_again_and_again(lake, catalog):
    by_duckdb(catalog, "INSERT INTO t SELECT x, 'm' FROM range(300, 309) r(x); INSERT INTO t SELECT 309, 'm'")
    deletes = "DELETE FROM t WHERE i = (SELECT max(i) FROM t)"
    flush = flushing_beside(lake, catalog, deletes, times=10)

    with pytest.raises(errors.TransactionConflictError):
        flush.run()

    assert len(lake.flush_inlined_data("t")) == 1
    assert lake.verify() == []


def test_rows_that_no_snapshot_knows_are_left_out(lake, catalog):
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO t VALUES (103, 'd')")
        reference.sql("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3, 4])")
    before = seen_by_the_reference(catalog), feeds(lake)

    lake.flush_inlined_data("t")

    _, flushed = lake.table_snapshot("t", with_files=True).files
    rows = pq.read_table(flushed.path).select(["i", "s", "_ducklake_internal_snapshot_id"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (3, "u", 4),
        (100, "u", 4),
        (101, "b", 3),  # snapshot 5 deleted it
        (102, "c", 3),
        (103, "d", 6),
    ]
    after = seen_by_the_reference(catalog)
    assert ({place: after[place] for place in before[0]}, feeds(lake)) == before


def test_files_are_as_large_as_the_option_says(lake, catalog):
    with open_lake(catalog) as reference:
        reference.sql(INLINED)
        reference.sql("CALL lake.set_option('target_file_size', '600B')")
        for first in (400, 450, 500):
            reference.sql(f"INSERT INTO t SELECT x, md5('s' || x) FROM range({first}, {first + 50}) r(x)")
        reference.sql("DELETE FROM t WHERE i % 3 = 0 AND i > 400")
    (done,) = lake.flush_inlined_data("t")
    assert done.data_files > 3
    assert done.delete_files == done.data_files + 1
    assert lake.verify() == []
    assert by_duckdb(catalog, "SELECT count(*), sum(i) FROM t WHERE i >= 400") == [
        (100, sum(one for one in range(400, 550) if one % 3 or one == 400))
    ]


@pytest.mark.parametrize("kind", CATALOG_KINDS)
def test_marks_are_flushed_in_every_database(kind, new_catalog):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": list(range(40))}))
        table = lake.table_snapshot("t", with_files=True)
        (file,) = table.files
        for place in (3, 7):
            change = InlineDeletes(table.table_id, table.name, {file.id: (place,)})
            lake.committer.commit(lake.current_snapshot().id, (change,), CommitInfo())
        before = feeds(lake)

        (done,) = lake.flush_inlined_data("t")

        assert (done.row_count, done.delete_count, done.delete_files) == (0, 2, 1)
        assert feeds(lake) == before
        assert lake.verify() == []
        assert lake.flush_inlined_data() == []
        assert [lake.row_count("t", at=one) for one in (2, 3, 4)] == [40, 39, 38]


def test_rows_that_cannot_be_read_there_are_refused(mariadb_catalog):
    with open_lake(mariadb_catalog) as reference:
        reference.sql("CREATE TABLE t (i INT); CALL lake.set_option('data_inlining_row_limit', 10)")
        reference.sql("INSERT INTO t VALUES (1)")
    with (
        Lake.connect(mariadb_catalog.sqlalchemy_url) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="cannot read from mysql"),
    ):
        lake.flush_inlined_data("t")


def test_rows_of_types_that_we_do_not_write_stay(lake, catalog):
    by_duckdb(catalog, "CREATE TABLE v AS SELECT TIME_NS '12:30:00.123456789' AS i")

    assert [one.table.name for one in lake.flush_inlined_data()] == ["t"]
    with pytest.raises(errors.UnsupportedFeatureError, match="column i has type time_ns"):
        lake.flush_inlined_data("v")


VALUES = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "UBIGINT": ("0", "18446744073709551615"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "FLOAT": ("1.1", "'nan'"),
    "DOUBLE": ("1e300", "'-inf'"),
    "DECIMAL(9, 3)": ("-1.5", "123456.789"),
    "DECIMAL(38, 10)": ("1234567890123456789.5", "0"),
    "DATE": ("'0044-03-15 (BC)'", "'infinity'"),
    "TIME": ("'24:00:00'", "'12:34:56.789'"),
    "TIMESTAMP": ("'1969-12-31 23:59:59.5'", "'-infinity'"),
    "TIMESTAMP_S": ("'2020-01-01'", "'infinity'"),
    "TIMESTAMP_MS": ("'2020-01-01 00:00:00.5'", "'1969-12-31'"),
    "TIMESTAMP_NS": ("'2020-01-01 00:00:00.123456789'", "'2020-01-01'"),
    "TIMESTAMPTZ": ("'2020-01-01 00:00:00+02'", "'290000-01-01'"),
    "VARCHAR": ("'it''s é'", "''"),
    "JSON": ("'[1]'", "'{}'"),
    "BLOB": (r"'\x00\xFF'", "''"),
    "UUID": ("'00000000-0000-0000-0000-0000000000ff'", "'ffffffff-0000-0000-0000-000000000000'"),
    "INT[]": ("[1, NULL]", "[]"),
    "STRUCT(a DECIMAL(9, 2), b DATE[])": ("{'a': 1.5, 'b': [DATE '2026-11-22']}", "{'a': NULL, 'b': NULL}"),
    "MAP(VARCHAR, INT)": ("MAP {'k': 1}", "MAP {}"),
}


def test_all_types_come_through(new_catalog, spec_version, size, seed):
    kinds = [*USUAL_KINDS, *(["duckdb"] if spec_version == "1.0" else [])]  # whose 1.1 DuckDB 1.5 cannot see
    for kind in turn(kinds, size, seed, len(kinds)):
        assert_all_types_come_through(new_catalog(kind))


def assert_all_types_come_through(catalog):
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(VALUES))
    with open_lake(catalog) as reference:
        reference.sql(f"CREATE TABLE t ({columns})")
        for row in (*zip(*VALUES.values(), strict=True), ["NULL"] * len(VALUES)):
            reference.sql(f"INSERT INTO t VALUES ({', '.join(row)})")
        reference.sql("UPDATE t SET c0 = NULL WHERE c1 = 127")

    assert assert_flushed_without_a_trace(catalog) == 1
