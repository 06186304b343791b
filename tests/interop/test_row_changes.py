"""Row changes of a job, committed by us, are for the reference what its own would be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.committing.commit import PlannedCommit, commit
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    TransactionConflictError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID_COLUMN
from tests.interop.jobs import commit_changes, row_changes
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

ROWS = pa.table({"i": pa.array(range(20), pa.int64()), "s": [f"s{one}" for one in range(20)]})
INSERT = "INSERT INTO t SELECT i, 's' || i FROM range({}, {}) r(i)"


@contextmanager
def new_lake(catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64", "s": "varchar"})
        for first in (0, 20):
            lake.append_arrow("t", rows(range(first, first + 20)))
        yield lake


@pytest.fixture
def lake(catalog):
    with new_lake(catalog) as lake:
        yield lake


@pytest.fixture
def sqlite_lake(sqlite_catalog):
    with new_lake(sqlite_catalog) as lake:
        yield lake


def rows(numbers) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "s": [f"s{one}" for one in numbers]})


def updated(values: dict[int, int]) -> pa.Table:
    """Return rows with new values, by their row ids."""
    return rows(values.values()).append_column(ROW_ID_COLUMN, pa.array(values.keys(), pa.int64()))


def change(lake: Lake, deleted: dict[int, list[int]], **more):
    """Change rows at positions of the table's data files, which are named by their order."""
    table = lake.table_snapshot("t", with_files=True)
    chosen = {table.files[number].id: places for number, places in deleted.items()}
    return commit_changes(lake, table, row_changes(lake, table, chosen, **more))


def files_below(catalog) -> set[str]:
    return {path.name for path in Path(catalog.data_path).rglob("*.parquet")}


def named_files(catalog) -> set[str]:
    dump = dump_catalog(catalog)
    named = [row["path"] for name in ("data_file", "delete_file") for row in dump[f"ducklake_{name}"]]
    named += [row["path"] for row in dump["ducklake_files_scheduled_for_deletion"]]
    return {path.rpartition("/")[2] for path in named}


# --- what the reference would have made of it ---


def make_history(lake: Lake) -> None:
    change(lake, {0: [3]})
    change(lake, {0: [0, 19], 1: [5]})
    change(lake, {0: [5, 7]}, updated=updated({5: 105, 7: 107}))
    change(lake, {1: [1]}, inserted=rows([200, 201]))
    change(lake, {0: [one for one in range(20) if one not in (0, 3, 5, 7, 19)]})


HISTORY = """
DELETE FROM t WHERE i = 3;
DELETE FROM t WHERE i IN (0, 19, 25);
UPDATE t SET i = i + 100, s = 's' || (i + 100) WHERE i IN (5, 7);
BEGIN; DELETE FROM t WHERE i = 21; INSERT INTO t VALUES (200, 's200'), (201, 's201'); COMMIT;
DELETE FROM t WHERE i < 20
"""


def make_reference_history(duck) -> None:
    duck.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    duck.sql("CREATE TABLE t (i bigint, s varchar)")
    duck.sql(INSERT.format(0, 20))
    duck.sql(INSERT.format(20, 40))
    duck.sql(HISTORY)


FEED = "SELECT * FROM ducklake_table_changes('lake', 'main', 't', 0, {}) ORDER BY ALL"
LIVE = "SELECT rowid, * FROM t ORDER BY ALL"


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_catalogs_rows_and_changes_are_the_references(catalog, new_catalog, lake):
    reference_catalog = new_catalog("sqlite" if catalog.kind == "mariadb" else catalog.kind, "1.0")
    make_history(lake)
    with open_lake(reference_catalog) as duck:  # which cannot insert twice through MariaDB
        make_reference_history(duck)
        live, feed = duck.sql(LIVE), duck.sql(FEED.format(8))
        at_each = [
            duck.sql(f"SELECT rowid, * FROM t AT (VERSION => {at}) ORDER BY ALL") for at in range(3, 9)
        ]

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))
    assert files_below(catalog) == named_files(catalog)
    if catalog.is_for_the_reference:
        with open_lake(catalog) as duck:
            assert duck.sql(LIVE) == live
            assert duck.sql(FEED.format(8)) == feed
            for at, expected in enumerate(at_each, start=3):
                assert duck.sql(f"SELECT rowid, * FROM t AT (VERSION => {at}) ORDER BY ALL") == expected
    assert sorted(lake.read_arrow("t")["i"].to_pylist()) == sorted(one for _, one, _ in live)


GOES_ON = """
DELETE FROM t WHERE i IN (22, 201);
UPDATE t SET s = 'again' WHERE i IN (105, 30);
INSERT INTO t VALUES (300, 's300');
CALL ducklake_merge_adjacent_files('lake');
CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0);
CALL ducklake_flush_inlined_data('lake');
CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY);
CALL ducklake_cleanup_old_files('lake', cleanup_all => true);
DELETE FROM t WHERE i < 30
"""


@pytest.mark.parametrize("limit", [0, 10])
def test_the_reference_goes_on_where_we_stopped(catalog, reference_catalog, lake, limit):
    make_history(lake)
    seen = {}
    for one in (catalog, reference_catalog):
        with open_lake(one) as duck:
            if one is reference_catalog:
                make_reference_history(duck)
            duck.sql(f"CALL lake.set_option('data_inlining_row_limit', {limit})")
            seen[one.location] = []
            for statement in GOES_ON.split(";"):
                duck.sql(statement)
                seen[one.location].append(duck.sql(LIVE))

    assert seen[catalog.location] == seen[reference_catalog.location]
    live = seen[catalog.location][-1]
    assert sorted(lake.read_arrow("t")["i"].to_pylist()) == sorted(one for _, one, _ in live)


@pytest.fixture
def inlining_lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("t", {"i": "int64", "s": "varchar"})
        for numbers in (range(20), range(20, 40), [100, 101]):
            lake.append_arrow("t", rows(numbers))
        yield lake


def test_few_deletes_become_marks_as_the_references(catalog, reference_catalog, inlining_lake):
    change(inlining_lake, {0: [3, 4]}, inlined=[41])
    change(inlining_lake, {0: [5]})
    change(inlining_lake, {0: range(6, 10), 1: range(10)})
    change(inlining_lake, {1: range(10, 20)})
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i bigint, s varchar)")
        duck.sql(INSERT.format(0, 20))
        duck.sql(INSERT.format(20, 40))
        duck.sql("INSERT INTO t VALUES (100, 's100'), (101, 's101')")
        for condition in (
            "IN (3, 4, 101)",
            "= 5",
            "BETWEEN 6 AND 9 OR i BETWEEN 20 AND 29",
            "BETWEEN 30 AND 39",
        ):
            duck.sql(f"DELETE FROM t WHERE i {condition}")

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))
    assert files_below(catalog) == named_files(catalog)


def test_deletes_beyond_the_limit_fold_marks_into_delete_files(catalog, inlining_lake):
    """The reference leaves the marks beside the new file; one place for a row's end is safer."""
    change(inlining_lake, {0: [3, 4]})
    change(inlining_lake, {0: range(5, 17)})
    change(inlining_lake, {0: [18], 1: [1]})

    gone = [{3, 4}, {3, 4, *range(5, 17)}, {3, 4, *range(5, 17), 18, 21}]
    every = {*range(40), 100, 101}
    with open_lake(catalog) as duck:
        for at, expected in enumerate(gone, start=5):
            live = {one for (one,) in duck.sql(f"SELECT i FROM t AT (VERSION => {at})")}
            assert live == every - expected
        feed = duck.sql("SELECT snapshot_id, i FROM ducklake_table_deletions('lake', 'main', 't', 0, 7)")
    assert sorted(feed) == sorted((at, one) for one in every for at in (5, 6, 7) if first_at(gone, one) == at)
    dump = dump_catalog(catalog)
    assert [(row["file_id"], row["row_id"]) for row in dump["ducklake_inlined_delete_1"]] == [(1, 1)]
    assert [(row["begin_snapshot"], row["partial_max"]) for row in dump["ducklake_delete_file"]] == [(5, 7)]


def test_a_file_with_marks_stays_when_its_last_row_goes(catalog, inlining_lake):
    """As for the reference, whose change feed would not say that the rows of an ended file went."""
    change(inlining_lake, {1: range(9)})
    change(inlining_lake, {1: range(9, 20)})

    with open_lake(catalog) as duck:
        for call in ("flush_inlined_data('lake')", "rewrite_data_files('lake', 't')"):
            assert duck.sql("SELECT i FROM t WHERE i BETWEEN 20 AND 39") == []
            at_first = duck.sql("SELECT i FROM t AT (VERSION => 5) WHERE i BETWEEN 20 AND 39 ORDER BY i")
            assert at_first == [(one,) for one in range(29, 40)]
            feed = duck.sql(
                "SELECT snapshot_id, i FROM ducklake_table_deletions('lake', 'main', 't', 5, 6) ORDER BY ALL"
            )
            assert feed == [(5 + (one >= 29), one) for one in range(20, 40)]
            duck.sql(f"CALL ducklake_{call}")
    assert inlining_lake.row_count("t") == 22


def test_rows_in_the_catalog_are_updated_into_files(catalog, inlining_lake):
    change(inlining_lake, {0: [3]}, inlined=[41], updated=updated({3: 3000, 41: 4100}))

    with open_lake(catalog) as duck:
        assert duck.sql("SELECT rowid, i FROM t WHERE i > 1000 ORDER BY ALL") == [(3, 3000), (41, 4100)]
        feed = duck.sql("SELECT * FROM ducklake_table_changes('lake', 'main', 't', 5, 5) ORDER BY ALL")
        assert [(row_id, kind, i) for _, row_id, kind, i, _ in feed] == [
            (3, "update_postimage", 3000),
            (3, "update_preimage", 3),
            (41, "update_postimage", 4100),
            (41, "update_preimage", 101),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        duck.sql("UPDATE t SET i = i + 1 WHERE i > 1000")
        assert duck.sql("SELECT rowid, i FROM t WHERE i > 1000 ORDER BY ALL") == [(3, 3001), (41, 4101)]


def first_at(gone: list[set[int]], row: int) -> int | None:
    return next((at for at, one in enumerate(gone, start=5) if row in one), None)


# --- stamps ---


def commit_while_others_do(lake: Lake, others: int) -> tuple[int, list[str]]:
    """Commit deletes while others commit during the first writes; return the snapshot and what was written.

    The others commit in the same process: were the lock held, they could not.
    """
    written: list[str] = []

    def locate(path: str):
        if path.endswith("-delete.parquet") and path not in written and not Path(path).exists():
            written.append(path)
            if len(written) <= others:
                alone(lake).create_schema(f"s{len(written)}")
        return lake.locate(path)

    table = lake.table_snapshot("t", with_files=True)
    change_set = lake.writes.row_changes(table, row_changes(lake, table, {table.files[0].id: [7]}))
    committed = commit(lake.opened.catalog, PlannedCommit((change_set,), CommitInfo("me", "m")), locate)
    return committed.id, written


@pytest.mark.every_catalog
def test_delete_files_hold_the_id_of_the_snapshot_that_they_became(catalog, lake):
    check_stamps(catalog, lake, 2)


@pytest.mark.parametrize("others", [0, 1])
def test_delete_files_are_written_as_often_as_it_takes(sqlite_catalog, sqlite_lake, others):
    check_stamps(sqlite_catalog, sqlite_lake, others)


def check_stamps(catalog: CatalogDatabase, lake: Lake, others: int) -> None:
    change(lake, {0: [3]})

    snapshot, written = commit_while_others_do(lake, others)

    assert (snapshot, len(written)) == (5 + others, 1 + others)
    assert [Path(path).exists() for path in written] == [False] * others + [True]
    assert files_below(catalog) == named_files(catalog)
    if not catalog.is_for_the_reference:
        return
    with open_lake(catalog) as duck:
        for at in range(4, snapshot + 1):
            live = f"SELECT i FROM t AT (VERSION => {at})"
            gone = duck.sql(f"SELECT i FROM range(20) r(i) WHERE i NOT IN ({live})")
            assert sorted(gone) == ([(3,)] if at < snapshot else [(3,), (7,)])


def test_a_commit_that_fails_leaves_no_delete_file(sqlite_catalog, sqlite_lake):
    change(sqlite_lake, {0: [3]})
    table = sqlite_lake.table_snapshot("t", with_files=True)
    change_set = sqlite_lake.writes.row_changes(
        table, row_changes(sqlite_lake, table, {table.files[0].id: [7]})
    )
    before = files_below(sqlite_catalog)
    sqlite_lake.append_arrow("t", rows([99]))

    with pytest.raises(TransactionConflictError, match="added data file"):
        sqlite_lake.committer.commit_change_sets([change_set], CommitInfo("me", "m"))

    assert len(files_below(sqlite_catalog) - before) == 1  # the appended one


# --- beside others ---


@pytest.mark.only_1_0("two of DuckDB write at once")
def test_the_reference_loses_deletes_of_a_file_that_had_some_and_we_do_not(postgres_catalog):
    """Both deletes of the reference land, and rows count twice: ours is a conflict."""
    with (
        Lake.create(
            postgres_catalog.sqlalchemy_url, postgres_catalog.data_path, version=postgres_catalog.spec_version
        ) as lake,
        open_lake(postgres_catalog, data_inlining_row_limit=0) as one,
        open_lake(postgres_catalog, data_inlining_row_limit=0) as other,
    ):
        for name in ("hole", "t"):
            one.sql(f"CREATE TABLE {name} (i bigint, s varchar)")
            one.sql(f"INSERT INTO {name} SELECT i, '' FROM range(20) r(i)")
            one.sql(f"DELETE FROM {name} WHERE i = 3")
        one.sql("BEGIN")
        one.sql("DELETE FROM hole WHERE i = 4")
        other.sql("DELETE FROM hole WHERE i = 5")
        one.sql("COMMIT")
        assert len(one.sql("FROM hole")) != 17

        table = lake.table_snapshot("t", with_files=True)
        changes = row_changes(lake, table, {table.files[0].id: [4]})
        change_set = lake.writes.row_changes(table, changes)
        other.sql("DELETE FROM t WHERE i = 5")
        with pytest.raises(TransactionConflictError, match="deleted other rows"):
            lake.writes.row_changes(table, changes)
        with pytest.raises(TransactionConflictError, match="deleted other rows"):
            lake.committer.commit_change_sets([change_set], CommitInfo("me", "m"))
        assert one.sql("SELECT count(*) FROM t") == [(18,)]

        table = lake.table_snapshot("t", with_files=True)
        commit_changes(lake, table, row_changes(lake, table, {table.files[0].id: [4]}))
        assert one.sql("SELECT count(*) FROM t") == [(17,)]


@pytest.mark.parametrize("whole", [False, True])
def test_of_two_deletes_of_a_file_one_wins(sqlite_lake, whole):
    table = sqlite_lake.table_snapshot("t", with_files=True)
    first, second = (file.id for file in table.files)
    places = range(20) if whole else [4]
    change_sets = [
        sqlite_lake.writes.row_changes(table, row_changes(sqlite_lake, table, {first: places})),
        sqlite_lake.writes.row_changes(table, row_changes(sqlite_lake, table, {first: [5]})),
        sqlite_lake.writes.row_changes(table, row_changes(sqlite_lake, table, {second: [5]})),
    ]
    info = CommitInfo("me", "m")

    sqlite_lake.committer.commit_change_sets(change_sets[:1], info)
    with pytest.raises(TransactionConflictError, match="removed the file" if whole else "deleted other rows"):
        sqlite_lake.committer.commit_change_sets(change_sets[1:2], info)
    sqlite_lake.committer.commit_change_sets(change_sets[2:], info)

    assert sqlite_lake.row_count("t") == 40 - len(places) - 1


def test_two_stages_that_delete_from_one_file_are_refused(sqlite_lake):
    table = sqlite_lake.table_snapshot("t", with_files=True)
    change_sets = [
        sqlite_lake.writes.row_changes(table, row_changes(sqlite_lake, table, {table.files[0].id: [place]}))
        for place in (4, 5)
    ]

    with pytest.raises(UnsupportedFeatureError, match="Two parts of this commit"):
        sqlite_lake.committer.commit_change_sets(change_sets, CommitInfo("me", "m"))

    assert sqlite_lake.row_count("t") == 40


def test_a_file_that_was_merged_since_is_a_conflict(sqlite_catalog, sqlite_lake):
    table = sqlite_lake.table_snapshot("t", with_files=True)
    changes = row_changes(sqlite_lake, table, {table.files[0].id: [4]})
    by_duckdb(sqlite_catalog, "CALL ducklake_merge_adjacent_files('lake')")

    with pytest.raises(TransactionConflictError, match="no longer has data file"):
        sqlite_lake.writes.row_changes(table, changes)


def test_a_row_deleted_twice_is_refused(sqlite_catalog, sqlite_lake):
    change(sqlite_lake, {0: [3]})
    before = files_below(sqlite_catalog)

    with pytest.raises(InvalidInputError, match=r"Position 3 .* already deleted"):
        change(sqlite_lake, {0: [3, 4]})

    assert len(files_below(sqlite_catalog) - before) == 1  # the job's own


def test_a_file_ends_only_when_its_last_row_goes_whatever_the_catalog_counts(sqlite_catalog, sqlite_lake):
    """Another writer may have counted more deletes than there are: their file is read first."""
    by_duckdb(sqlite_catalog, "DELETE FROM t WHERE i IN (3, 4)")
    inflate_delete_count(sqlite_lake, 19)

    change(sqlite_lake, {0: [7]})

    assert sqlite_lake.row_count("t") == 37


def inflate_delete_count(lake: Lake, count: int) -> None:
    deletes = lake.opened.catalog.tables["delete_file"]
    with lake.opened.catalog.dialect.writing() as connection:
        connection.execute(deletes.update().values(delete_count=count))
        connection.commit()
