"""Compacted files show what their sources did, at every snapshot, to the reference and to us."""

import random
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep.compaction import compaction_change
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Bin, Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.io import read_records, write_record
from airflow_provider_ducklake.lake.spark.job.request import CompactionSource, job_directory
from airflow_provider_ducklake.lake.spark.jobs.compact import compact_bin
from airflow_provider_ducklake.lake.transaction.changes import Truncate
from airflow_provider_ducklake.lake.writes.compaction import commit_compacted
from tests.interop.comparison import differences, multiset, tables_of
from tests.interop.corpus import SCENARIOS, History, build, drawn_catalog
from tests.interop.jobs import compacted_files, merge_adjacent, rewrite
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions


SCENARIOS_IN_CI = 3
HISTORIES = {"ci": (1, 14), "full": (25, 60)}  # how many, and statements of each
OTHERS = (
    "delete",
    "update",
    "update key",
    "add column",
    "rename column",
    "drop column",
    "add field",
    "widen",
)
LAYOUT = ("partition", "unpartition", "sort", "option", "flush", "merge files", "rewrite")
KINDS = (*["insert"] * 20, *OTHERS, *LAYOUT)


def rows_at_every_snapshot(catalog):
    """Return all rows of all tables as the reference reads them."""
    with open_lake(catalog) as reference:
        return list(tables_of(reference))


def as_multisets(tables):
    return {name: None if rows is None else multiset(rows) for name, rows in tables.items()}


def changes_of(lake, table):
    """Return all changes of a table."""
    ids = [one.id for one in lake.snapshots()]
    since = next(one for one in ids if table in lake.tables(at=one))
    return multiset(lake.changes((table.schema, table.name), since, ids[-1]).read_arrow())


def assert_compacted_without_a_trace(catalog, compact, **limits):
    """Compact all tables; what was to be read before is to be read after it. Return how many were."""
    before = rows_at_every_snapshot(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        names = lake.tables()
        feeds = {name: changes_of(lake, name) for name in names}
        faults = {one.code for one in lake.verify()}  # of the reference
        made = [compact(lake, name, **limits) for name in names]
        after = rows_at_every_snapshot(catalog)
        assert [one for one in differences(lake, before, with_bounds=False) if one is not None] == []
        assert [one for one in differences(lake, after) if one is not None] == []
        for (version, rows), (same, shown) in zip(before, after, strict=False):
            assert (version, as_multisets(rows)) == (same, as_multisets(shown))
        assert {name: changes_of(lake, name) for name in names} == feeds
        assert [one for one in lake.verify() if one.code not in faults] == []
    return len([one for one in made if one is not None])


def test_histories_read_the_same_after_it(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    done = Counter()
    for number in range(count):
        draw = random.Random(f"compact {seed} {number}")
        catalog = drawn_catalog(new_catalog("sqlite"), draw)
        history = History(draw, Counter(), kinds=KINDS)
        target = draw.choice([2000, 5000, 10**9])
        try:
            with open_lake(catalog) as reference:
                history.play(reference, steps)
            done["rewritten"] += assert_compacted_without_a_trace(catalog, rewrite, target_file_size=target)
            with open_lake(catalog) as reference:
                history.play_on(reference, steps // 2)
            done["merged"] += assert_compacted_without_a_trace(
                catalog, merge_adjacent, target_file_size=target
            )
            with open_lake(catalog) as reference:
                history.play_on(reference, steps // 2)
            done["rewritten"] += assert_compacted_without_a_trace(catalog, rewrite)
        except Exception as error:  # noqa: BLE001 - whatever it is, the statements show it again
            pytest.fail(f"--seed {seed}, history {number}: {error!r}\n" + ";\n".join(history.statements))
    assert done.total() > 0
    assert size == "ci" or min(done["rewritten"], done["merged"]) >= count / 2, done


def test_scenarios_read_the_same_after_it(new_catalog, tmp_path, seed, size):
    """All types, layouts and kinds of files that the reference writes, merged and rewritten."""
    scenarios = random.Random(f"compact {seed}").sample(
        SCENARIOS, SCENARIOS_IN_CI if size == "ci" else len(SCENARIOS)
    )
    done = 0
    for number, scenario in enumerate(scenarios):
        catalog = new_catalog("sqlite")
        build(scenario, catalog, tmp_path / f"given{number}")
        try:
            done += assert_compacted_without_a_trace(catalog, where_it_can(merge_adjacent))
            done += assert_compacted_without_a_trace(catalog, where_it_can(rewrite))
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {scenario.name}") from error
    assert size == "ci" or done > len(scenarios) / 2


def where_it_can(compact):
    """Have tables refused that have columns which cannot be written."""

    def run(lake, table, **limits):
        columns = [
            column for column in lake.table_snapshot(table).schema.walk() if str(column.type) in UNWRITTEN
        ]
        if not columns:
            return compact(lake, table, **limits)
        with suppress(errors.UnsupportedFeatureError):  # unless there is nothing to do
            assert compact(lake, table, **limits) is None
        return None

    return run


UNWRITTEN = ("time_ns", "unknown")
TABLE = "CREATE TABLE t (i INT, s VARCHAR)"


@pytest.fixture
def lake(catalog):
    """Make a lake with a table of four files, of two layouts of columns."""
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql(TABLE)
        reference.sql("INSERT INTO t FROM range(0, 20) r(i) SELECT i, 'a' || i")
        reference.sql("INSERT INTO t FROM range(20, 30) r(i) SELECT i, 'b' || i")
        reference.sql("ALTER TABLE t ADD COLUMN n INT DEFAULT 7")
        reference.sql("INSERT INTO t FROM range(30, 40) r(i) SELECT i, 'c' || i, i")
        reference.sql("INSERT INTO t FROM range(40, 50) r(i) SELECT i, 'd' || i, i")
    with Lake.connect(catalog.sqlalchemy_url) as found:
        yield found


def sizes(planned):
    return [[file.record_count for file in one.files] for one in planned.bins]


def test_files_with_the_same_columns_become_one(lake, catalog):
    assert sizes(lake.maintenance.plan_merge("t")) == [[20, 10], [10, 10]]

    committed = merge_adjacent(lake)

    assert committed is not None
    assert [file.record_count for file in lake.table_snapshot("t", with_files=True).files] == [30, 20]
    assert [str(one) for one in lake.snapshots()[-1].changes] == ["merge_adjacent:1"]
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*), sum(i), sum(n) FROM t") == [(50, 1225, 1000)]
        assert reference.sql("SELECT count(*) FROM t AT (VERSION => 2)") == [(20,)]
        assert reference.sql(
            "SELECT count(*) FROM ducklake_cleanup_old_files('lake', cleanup_all => true)"
        ) == [(4,)]
        assert reference.sql("SELECT count(*), sum(i), sum(n) FROM t") == [(50, 1225, 1000)]
    assert lake.maintenance.plan_merge("t").bins == ()


@pytest.mark.parametrize("type_", ["TIME_NS", "STRUCT(a TIME_NS[])"])
def test_columns_that_cannot_be_written_are_refused_by_name(sqlite_catalog, type_):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT)")
        reference.sql("INSERT INTO t FROM range(10) r(i)")
        reference.sql(f"ALTER TABLE t ADD COLUMN v {type_}")  # of which the reference writes no files
        reference.sql("DELETE FROM t WHERE i = 3")
    with (
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        pytest.raises(
            errors.UnsupportedFeatureError, match=r"main\.t .*column \w+ has type \w+.*table with DuckDB"
        ),
    ):
        lake.maintenance.plan_rewrite("t", RewriteRule(0.0))


def test_limits_choose_files(lake):
    planned = lake.maintenance.plan_merge("t", MergeRule(max_output_files=1))
    assert sizes(planned) == [[20, 10]]
    assert sizes(lake.maintenance.plan_merge("t", MergeRule(max_input_files=3))) == [[20, 10]]
    (first,) = planned.bins
    largest = max(file.file_size_bytes for file in first.files)
    assert (
        sizes(lake.maintenance.plan_merge("t", MergeRule(min_file_size=largest + 1), filter="i < 30")) == []
    )
    assert sizes(lake.maintenance.plan_merge("t", MergeRule(max_file_size=100))) == []
    assert sizes(lake.maintenance.plan_merge("t", filter="i >= 30")) == [[10, 10]]
    times = {one.id: one.time for one in lake.snapshots()}
    newest = max(times)
    assert sizes(lake.maintenance.plan_merge("t", older_than=times[newest])) == [[20, 10]]
    with pytest.raises(errors.InvalidInputError, match="max_input_files=1"):
        MergeRule(max_input_files=1)
    with pytest.raises(errors.InvalidInputError, match="excludes every file"):
        MergeRule(min_file_size=10**10, target_file_size=10**9)


BESIDE = {
    "delete": "DELETE FROM t WHERE i = 3",
    "mark": "DELETE FROM t WHERE i = 4",
    "update": "UPDATE t SET s = 'x' WHERE i = 3",
    "truncate": "DELETE FROM t",
    "merge": "CALL ducklake_merge_adjacent_files('lake')",
    "drop": "DROP TABLE t",
}


@pytest.mark.parametrize("kind", BESIDE)
def test_what_touches_the_files_meanwhile_is_a_conflict(lake, catalog, kind):
    planned = lake.maintenance.plan_merge("t")
    change = compaction_change(planned.table, compacted_files(lake, planned))
    by_duckdb(catalog, BESIDE[kind], data_inlining_row_limit=10 if kind == "mark" else 0)
    with pytest.raises(errors.TransactionConflictError, match="t"):
        lake.committer.commit(planned.table.snapshot.id, (change,), CommitInfo())


def test_what_leaves_the_files_alone_is_none(lake, catalog):
    planned = lake.maintenance.plan_merge("t", MergeRule(max_output_files=1))
    change = compaction_change(planned.table, compacted_files(lake, planned))
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t FROM range(50, 60) r(i) SELECT i, 'e', i")
        reference.sql("DELETE FROM t WHERE i = 45")
        reference.sql("ALTER TABLE t RENAME s TO text")
    assert lake.committer.commit(planned.table.snapshot.id, (change,), CommitInfo()) is not None
    assert by_duckdb(catalog, "SELECT count(*), count(text), sum(i) FROM t") == [(59, 59, 1725)]


def test_compaction_is_a_snapshot_of_its_own(lake):
    planned = lake.maintenance.plan_merge("t")
    change = compaction_change(planned.table, compacted_files(lake, planned))
    emptied = Truncate(planned.table.table_id, planned.table.name)
    with pytest.raises(errors.UnsupportedFeatureError, match="its own snapshot"):
        lake.committer.commit(planned.table.snapshot.id, (change, emptied), CommitInfo())


def test_a_file_with_other_rows_than_the_catalog_says_is_refused(lake, catalog):
    planned = lake.maintenance.plan_merge("t")
    file = planned.bins[0].files[0]
    by_duckdb(catalog, f"COPY (FROM '{file.path}' LIMIT 5) TO '{file.path}' (FIELD_IDS {{i: 1, s: 2}})")
    with pytest.raises(errors.StorageError, match="5 rows, but the catalog says 20"):
        compacted_files(lake, planned)


def test_compacted_files_have_the_live_rows_only(lake, catalog):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("DELETE FROM t WHERE i < 15 OR i BETWEEN 20 AND 29 AND i <> 25")
    with open_lake(catalog, data_inlining_row_limit=10) as reference:
        reference.sql("DELETE FROM t WHERE i IN (16, 31)")
        before = reference.sql("SELECT rowid, * FROM t ORDER BY ALL")
    planned = lake.maintenance.plan_rewrite("t", RewriteRule(delete_threshold=0.5))
    assert sizes(planned) == [[20, 10]]

    committed = lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), CommitInfo())

    assert committed is not None
    assert [str(one) for one in lake.snapshots()[-1].changes] == ["rewrite_delete:1"]
    assert sorted(one.record_count for one in lake.table_snapshot("t", with_files=True).files) == [5, 10, 10]
    assert lake.maintenance.plan_rewrite("t", RewriteRule(delete_threshold=0.5)).bins == ()
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT rowid, * FROM t ORDER BY ALL") == before
        reference.sql("CALL ducklake_flush_inlined_data('lake')")
        reference.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
        reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        assert reference.sql("SELECT rowid, * FROM t ORDER BY ALL") == before


ALTERATIONS = ["ADD COLUMN m INT", "RENAME s TO text", "ALTER i TYPE BIGINT", "DROP COLUMN n"]


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_an_alteration_meanwhile_is_a_conflict_of_rewrites_only(lake, catalog, alteration):
    by_duckdb(catalog, "DELETE FROM t WHERE i = 5", data_inlining_row_limit=0)
    merge, rewriting = (
        lake.maintenance.plan_merge("t"),
        lake.maintenance.plan_rewrite("t", RewriteRule(delete_threshold=0)),
    )
    merged, rewritten = compacted_files(lake, merge), compacted_files(lake, rewriting)
    with open_lake(catalog) as reference:
        reference.sql(f"ALTER TABLE t {alteration}")
        before = reference.sql("SELECT rowid, * FROM t ORDER BY ALL")
    with pytest.raises(errors.TransactionConflictError, match="t"):
        lake.maintenance.commit_compacted(rewriting.table, rewritten, CommitInfo())
    assert lake.maintenance.commit_compacted(merge.table, merged, CommitInfo()) is not None
    assert by_duckdb(catalog, "SELECT rowid, * FROM t ORDER BY ALL") == before


@pytest.mark.parametrize("kind", sorted(set(BESIDE) - {"merge"}))
def test_what_touches_compacted_files_meanwhile_is_a_conflict(lake, catalog, kind):
    by_duckdb(catalog, "DELETE FROM t WHERE i = 5", data_inlining_row_limit=0)
    planned = lake.maintenance.plan_rewrite("t", RewriteRule(delete_threshold=0))
    files = compacted_files(lake, planned)
    by_duckdb(catalog, BESIDE[kind], data_inlining_row_limit=10 if kind == "mark" else 0)
    with pytest.raises(errors.TransactionConflictError, match="t"):
        lake.maintenance.commit_compacted(planned.table, files, CommitInfo())


def test_a_file_without_a_live_row_just_ends(lake, catalog):
    files = lake.files("t")
    with open_lake(catalog, data_inlining_row_limit=10) as reference:
        reference.sql("DELETE FROM t WHERE i BETWEEN 20 AND 24")  # in the catalog, and so the file stays
        reference.sql("DELETE FROM t WHERE i BETWEEN 25 AND 29")
    planned = lake.maintenance.plan_rewrite("t")
    assert sizes(planned) == [[10]]
    (file,) = compacted_files(lake, planned)
    assert file.file is None
    lake.maintenance.commit_compacted(planned.table, [file], CommitInfo())
    assert len(lake.files("t")) == len(files) - 1
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM t") == [(40,)]
        assert reference.sql("SELECT count(*) FROM t AT (VERSION => 3)") == [(30,)]


# What a compaction job has made is committed once, a few bins at a time, and given up where rows changed.


INFO = CommitInfo(message="nightly")
FILES = 6


@pytest.fixture
def by_day(sqlite_catalog):
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


def merged_in(by_day: Lake, compaction: Compaction, staging_id: str | None = None) -> str:
    """Do what the tasks of a job do, and return the directory of the records."""
    staging_id = staging_id or str(uuid.uuid4())
    table = by_day.table_snapshot("t")
    plan = plan_write(table, job_directory(table.root, str(uuid.uuid4())))
    for files in compaction.bins:
        single = decode(encode(Compaction(compaction.table, (files,)), Compaction), Compaction)
        compact_bin(CompactionSource(single, staging_id, table.partition_spec.id), plan)
    return job_directory(table.root, staging_id)


def rows(catalog):
    return by_duckdb(catalog, "SELECT rowid, * FROM t ORDER BY ALL")


def test_each_part_is_a_snapshot(by_day, sqlite_catalog):
    before, table = rows(sqlite_catalog), by_day.table_snapshot("t")
    directory = merged_in(by_day, by_day.maintenance.plan_merge("t"))

    committed = list(commit_compacted(by_day, table, directory, INFO, commit_every=1))

    assert [len(one.files[0].sources) for one in committed] == [3, 3]
    assert [str(one.changes[0]) for one in by_day.snapshots()[-2:]] == ["merge_adjacent:1"] * 2
    assert rows(sqlite_catalog) == before
    files = by_day.table_snapshot("t", with_files=True).files
    assert [Path(file.path).parent.name for file in files] == ["day=2026-11-01", "day=2026-11-02"]
    assert read_records(directory) == {}
    assert list(commit_compacted(by_day, table, directory, INFO)) == []


def test_what_was_changed_meanwhile_is_given_up(by_day, sqlite_catalog):
    table = by_day.table_snapshot("t")
    directory = merged_in(by_day, by_day.maintenance.plan_merge("t"))
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("DELETE FROM t WHERE i = 25; ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t")
    before = rows(sqlite_catalog)

    (committed,) = commit_compacted(by_day, table, directory, INFO)

    assert [one.file.partition_values for one in committed.files] == [("2026-11-01",)]
    assert rows(sqlite_catalog) == before
    (made,) = Path(table.root).glob(f"*/{Path(directory).name}-*.parquet")  # the other one is gone
    assert str(made) == committed.files[0].file.path


def test_a_commit_that_nobody_heard_of_is_not_made_again(by_day, sqlite_catalog):
    table = by_day.table_snapshot("t")
    directory = merged_in(by_day, in_pairs(by_day.maintenance.plan_merge("t")))
    records = read_records(directory)
    (first, *_) = committed = list(commit_compacted(by_day, table, directory, INFO))
    assert len(first.files) == len(records)
    for one in records.values():
        write_record(directory, one)  # as if the worker had been killed before it removed them
    before = rows(sqlite_catalog)

    assert list(commit_compacted(by_day, table, directory, INFO)) == []

    assert len(committed) == 1
    assert all(Path(one.file.path).exists() for one in records.values())
    assert rows(sqlite_catalog) == before
    assert sum(len(one.files) for one in by_day.maintenance.plan_merge("t", MergeRule()).bins) == FILES - 2


def test_a_table_that_is_gone_is_left_alone(by_day, sqlite_catalog):
    table = by_day.table_snapshot("t")
    directory = merged_in(by_day, by_day.maintenance.plan_merge("t"))
    by_duckdb(sqlite_catalog, "DROP TABLE t")

    assert list(commit_compacted(by_day, table, directory, INFO)) == []
    assert read_records(directory) == {}


@pytest.mark.parametrize("commit_every", [None, 1])
def test_files_that_two_attempts_at_a_task_made_count_once(by_day, sqlite_catalog, commit_every):
    before, table = rows(sqlite_catalog), by_day.table_snapshot("t")
    planned, staging_id = by_day.maintenance.plan_merge("t"), str(uuid.uuid4())
    directory = merged_in(by_day, planned, staging_id)
    assert merged_in(by_day, planned, staging_id) == directory
    assert len(read_records(directory)) == 2 * len(planned.bins)

    list(commit_compacted(by_day, table, directory, INFO, commit_every=commit_every))

    assert rows(sqlite_catalog) == before
    assert by_day.verify() == []
    assert read_records(directory) == {}


def test_files_that_a_clean_up_gave_up_are_not_committed(by_day, sqlite_catalog):
    before, table = rows(sqlite_catalog), by_day.table_snapshot("t")
    directory, job_id = merged_in(by_day, by_day.maintenance.plan_merge("t")), str(uuid.uuid4())
    by_day.jobs.register(job_id, directory)
    by_day.jobs.release(job_id)

    assert list(commit_compacted(by_day, table, directory, INFO, job_id=job_id)) == []
    assert rows(sqlite_catalog) == before
    assert by_day.verify() == []
