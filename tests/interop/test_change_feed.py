"""The change feed equals the reference's between every two snapshots, but for rows that are rewritten."""

import random
from collections import Counter
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import RecordedSnapshot
from airflow_provider_ducklake.lake.errors import InvalidInputError, SnapshotNotFoundError, TableNotFoundError
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind
from tests.interop.comparison import arrow_of, multiset, with_texts_of_variants
from tests.interop.corpus import History, drawn_catalog
from tests.interop.lakes import alone, by_duckdb
from tests.interop.test_reads_at_every_snapshot import FILES_ONLY, MERGE, SCENARIOS, TABLE, as_multiset, fill
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

REWRITE = ChangeKind.REWRITE_DELETE
PAIRS_IN_CI = 25
HISTORIES = {"ci": (1, 24, 8), "full": (30, 60, 120)}  # how many; statements of each, pairs of snapshots

INSERTED_AND_DELETED = [
    f"BEGIN; {fill(0, 5)}; DELETE FROM t WHERE i IN (1, 3); COMMIT",
    f"BEGIN; {fill(5, 15)}; DELETE FROM t WHERE i IN (2, 6); UPDATE t SET s = 'u' WHERE i IN (4, 7); COMMIT",
    "BEGIN; UPDATE t SET s = 'v' WHERE i = 9; UPDATE t SET s = 'w' WHERE i = 9; COMMIT",
    MERGE,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_changes_equal_the_references(catalog, scenario, size, seed):
    by_duckdb(catalog, TABLE, *SCENARIOS[scenario])
    with open_lake(catalog) as reference, Lake.connect(catalog.sqlalchemy_url) as lake:
        made = [(one.id, str([str(change) for change in one.changes])) for one in lake.snapshots()]
        rewrites = {number for number, changes in made if "rewrite_delete" in changes}
        pairs = [(start, end) for start, _ in made for end, _ in made if end > 0]
        if size == "ci":
            pairs = random.Random(f"{seed} {scenario}").sample(pairs, min(PAIRS_IN_CI, len(pairs)))
        for start, end in pairs:
            compare(lake, reference, start, end, rewrites)


def compare(lake: Lake, reference, start: int, end: int, rewrites: set[int]) -> None:
    feed = lake.changes("t", start, end)
    for ours, function, columns in (
        (feed.read_arrow(), "changes", "*"),
        (feed.insertions(), "insertions", "snapshot_id, rowid, *"),
        (lake.deletions("t", start, end), "deletions", "snapshot_id, rowid, *"),
    ):
        theirs = reference.arrow(
            f"SELECT {columns} FROM ducklake_table_{function}('lake', 'main', 't', {start}, {end})"
        )
        kept = [one not in rewrites for one in theirs["snapshot_id"].to_pylist()]
        assert ours.column_names == theirs.column_names, (start, end)
        assert as_multiset(ours) == as_multiset(theirs.filter(pa.array(kept, pa.bool_()))), (start, end)


def test_changes_of_drawn_histories_equal_the_references(new_catalog, seed, size):
    """At every pair by snapshot ids in one half of the cases, by times in the other."""
    count, steps, most = HISTORIES[size]
    changes = 0
    for number in range(count):
        draw = random.Random(f"feed {seed} {number}")
        catalog = drawn_catalog(new_catalog("sqlite"), draw)
        history = History(draw, Counter())
        with open_lake(catalog) as reference:
            history.play(reference, steps)
        with open_lake(catalog) as reference, Lake.connect(catalog.sqlalchemy_url) as lake:
            for start, end in drawn_pairs(lake, draw, most):
                for table in lake.tables(at=end.id):
                    try:
                        changes += compare_between(lake, reference, table.name, start, end, draw)
                    except AssertionError as error:
                        where = (
                            f"--seed {seed}, history {number}, {table} from {start.id} to {end.id}: {error}\n"
                        )
                        pytest.fail(where + ";\n".join(history.statements))
    assert size == "ci" or changes > count * most


def drawn_pairs(
    lake: Lake, draw: random.Random, most: int
) -> list[tuple[RecordedSnapshot, RecordedSnapshot]]:
    snapshots = lake.snapshots()
    pairs = [(start, end) for start in snapshots for end in snapshots[1:] if start.id <= end.id]
    return draw.sample(pairs, min(most, len(pairs)))


def compare_between(
    lake: Lake, reference, table: str, start: RecordedSnapshot, end: RecordedSnapshot, draw: random.Random
) -> int:
    by_id = draw.random() < 0.5
    ours = lake.changes(table, *((one.id if by_id else one.time) for one in (start, end))).read_arrow()
    ours = with_texts_of_variants(ours)
    first, last = (str(one.id) if by_id else f"TIMESTAMPTZ '{one.time}'" for one in (start, end))
    theirs = arrow_of(reference, f"ducklake_table_changes('lake', 'main', '{table}', {first}, {last})")
    # A rewrite of files, which changes no row, is in the reference's feed as updates.
    rewrites = [one.id for one in lake.snapshots() if any(x.kind is REWRITE for x in one.changes)]
    kept = [one not in rewrites for one in theirs["snapshot_id"].to_pylist()]
    assert ours.column_names == theirs.column_names
    theirs = theirs.filter(pa.array(kept, pa.bool_()))
    if multiset(ours) != multiset(theirs):
        misdated = rows_misdated(lake, table, end)
        assert misdated
        ours, theirs = (
            one.filter(pc.invert(pc.is_in(one["rowid"], value_set=misdated))) for one in (ours, theirs)
        )
    assert multiset(ours) == multiset(theirs)
    return ours.num_rows


def rows_misdated(lake: Lake, table: str, end: RecordedSnapshot) -> pa.Array:
    """Return the ids of rows of which the reference's feed may say that another snapshot took them.

    Of rows in a merged file it says that they went by the snapshot that brought them; of two versions of a
    row in a flushed file, that the first snapshot took both, and so of the second change an insert (observed
    on 1.5.5).
    """
    snapshots = lake.snapshots()
    kinds = {record.kind for one in snapshots for record in one.changes}
    if not kinds & {ChangeKind.MERGE_ADJACENT, ChangeKind.INLINE_FLUSH}:
        return pa.array([], pa.int64())
    gone = lake.deletions(table, snapshots[0].id, end.id)
    counted = gone.group_by("rowid").aggregate([("rowid", "count")])
    least = 1 if ChangeKind.MERGE_ADJACENT in kinds else 2
    return counted.filter(pc.greater_equal(counted["rowid_count"], least))["rowid"].combine_chunks()


def test_rows_that_a_transaction_inserts_and_deletes_came_and_went(sqlite_catalog):
    by_duckdb(sqlite_catalog, FILES_ONLY, TABLE, *INSERTED_AND_DELETED)
    with open_lake(sqlite_catalog) as reference, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for start, end in ((1, 2), (3, 3), (4, 4), (2, 5)):
            compare(lake, reference, start, end, set())
        assert lake.changes("t", 2, 2).read_arrow().num_rows == 5 + 2
        assert lake.deletions("t", 2, 2).num_rows == 2


@pytest.fixture
def lake(catalog):
    by_duckdb(catalog, FILES_ONLY, TABLE, fill(0, 5), fill(5, 10), "DELETE FROM t WHERE i = 3")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake


def test_times_are_bounds_too(catalog, lake):
    by_id = {one.id: one.time for one in lake.snapshots()}
    second = timedelta(seconds=1)
    moment = timedelta(microseconds=1)

    def found(start, end) -> list[int]:
        return sorted(set(lake.changes("t", start, end).read_arrow()["snapshot_id"].to_pylist()))

    assert found(by_id[2] - second, by_id[4] + second) == [2, 3, 4]
    assert found(by_id[2], by_id[3]) == [2, 3]
    assert found(by_id[2] + moment, by_id[4]) == [3, 4]
    assert found(by_id[2], by_id[4] - moment) == [2, 3]
    with open_lake(catalog) as reference:
        theirs = reference.sql(
            "SELECT DISTINCT snapshot_id FROM ducklake_table_changes('lake', 'main', 't', "
            f"TIMESTAMPTZ '{by_id[2] + moment}', TIMESTAMPTZ '{by_id[4]}') ORDER BY 1"
        )
    assert theirs == [(3,), (4,)]


def test_rows_come_sorted_and_updates_as_pairs(lake, catalog):
    by_duckdb(catalog, "UPDATE t SET s = 'new' WHERE i = 7")

    changes = lake.changes("t", 4, 5).read_arrow().select(["snapshot_id", "rowid", "change_type", "s"])

    assert changes.to_pylist() == [
        {"snapshot_id": 4, "rowid": 3, "change_type": "delete", "s": "s3"},
        {"snapshot_id": 5, "rowid": 7, "change_type": "update_preimage", "s": "s7"},
        {"snapshot_id": 5, "rowid": 7, "change_type": "update_postimage", "s": "new"},
    ]


def test_a_range_from_later_to_earlier_is_empty_and_has_its_columns(lake):
    empty = lake.changes("t", 4, 2).read_arrow()

    assert empty.num_rows == 0
    assert empty.column_names == ["snapshot_id", "rowid", "change_type", "i", "s", "l", "st"]


def test_bounds_that_are_not_there_are_named(catalog, lake):
    lake.expire_snapshots(snapshots=[2])

    for bounds in [(2, 4), (1, 99), (3, lake.snapshots()[0].time - timedelta(days=1))]:
        with pytest.raises(SnapshotNotFoundError):
            lake.changes("t", *bounds)
    with pytest.raises(SnapshotNotFoundError, match="or after"):
        lake.changes("t", lake.snapshots()[-1].time + timedelta(days=1), 4)
    with pytest.raises(TableNotFoundError):
        lake.changes("t", 0, 0)
    with pytest.raises(InvalidInputError, match="time zone"):
        lake.changes("t", lake.snapshots()[0].time.replace(tzinfo=None), 4)
    with open_lake(catalog) as reference, pytest.raises(duckdb.Error):
        reference.sql("FROM ducklake_table_changes('lake', 'main', 't', 2, 4)")


def test_our_own_deletes_and_inlined_rows_are_in_the_feed_of_both(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": pa.array(range(20), pa.int64())}))
        lake.append_arrow("t", pa.table({"i": pa.array([100, 101], pa.int64())}))
        (file,) = lake.table_snapshot("t", with_files=True).files
        alone(lake).delete_at("t", {file.id: [3]}, row_ids=[21])
        lake.set_option("data_inlining_row_limit", 0)
        for positions in ([5, 6], [0, 19]):
            alone(lake).delete_at("t", {file.id: positions})
        alone(lake).truncate("t")

        with open_lake(catalog) as reference:
            for start in range(8):
                for end in range(max(start, 1), 8):
                    compare(lake, reference, start, end, set())


def test_columns_with_the_names_that_changes_are_told_by(sqlite_catalog):
    names = ("inserted", "deleted", "pos", "kind", "row_id", "_ducklake_internals")
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(f"CREATE TABLE t (id INTEGER, {', '.join(f'{name} INTEGER' for name in names)})")
        values = ", ".join(f"i * 10 + {number}" for number, _ in enumerate(names))
        reference.sql(f"INSERT INTO t SELECT i, {values} FROM range(9) r(i)")
        reference.sql("DELETE FROM t WHERE id = 3")
        reference.sql("UPDATE t SET deleted = 1, pos = 2 WHERE id = 5")
        theirs = reference.sql("FROM ducklake_table_changes('lake', 'main', 't', 1, 4)")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        ours = lake.changes("t", 1, 4).read_arrow()
        assert alone(lake).delete_rows("t", "pos >= 62 OR deleted = 1") == 5
    found = zip(*(column.to_pylist() for column in ours.columns), strict=True)
    assert sorted(map(repr, found)) == sorted(map(repr, theirs))
    assert len(theirs) == 12


def test_columns_called_as_those_of_a_change_keep_their_values(sqlite_catalog):
    """The reference gives these columns instead of its own."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (snapshot_id INTEGER, rowid INTEGER, change_type VARCHAR)")
        reference.sql("INSERT INTO t VALUES (70, 80, 'x'), (60, 90, 'y')")
        reference.sql("DELETE FROM t WHERE rowid = 80")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        ours = lake.changes("t", 1, 3).read_arrow()

    assert ours.column_names == ["snapshot_id", "rowid", "change_type"] * 2
    assert list(zip(*(column.to_pylist() for column in ours.columns), strict=True)) == [
        (2, 0, "insert", 70, 80, "x"),
        (2, 1, "insert", 60, 90, "y"),
        (3, 0, "delete", 70, 80, "x"),
    ]
