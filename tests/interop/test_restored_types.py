"""A restore narrows a column's type: rows that needed the wider one are in no file of a later snapshot."""

from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.interop.restoring import assert_read_alike, feeds, seen_by_the_reference, seen_by_us
from tests.reference.duckdb_lake import open_lake

# type, wider type, Arrow's, a value of both, one of the wider type only
WIDENED = {
    "int32": ("int32", "int64", pa.int32(), 1, 2**62),
    "uint8": ("uint8", "int64", pa.uint8(), 1, -5),
    "decimal": ("decimal(4,2)", "decimal(9,2)", pa.decimal128(4, 2), Decimal("1.00"), Decimal("12345.67")),
    "float": ("float32", "float64", pa.float32(), 1.5, 1e300),
}
LAYOUTS = {"plain": "", "partitioned": "set_partitioned_by", "sorted": "set_sorted_by"}


def narrowed(catalog, type_, *, layout="", limit=10):
    """Return a lake whose table got wide rows in two snapshots, lost one of them, and was restored."""
    narrow, wide, arrow, small, big = WIDENED[type_]
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version)
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "k": "varchar", "c": narrow})
        if layout:
            getattr(tx, layout)("t", ["k" if layout == "set_partitioned_by" else "c"])
    lake.set_option("data_inlining_row_limit", limit, table="t")
    first = pa.table({"id": [1, 2], "k": ["a", "b"], "c": pa.array([small] * 2, arrow)})
    lake.append_arrow("t", first)
    before = lake.current_snapshot().id
    alone(lake).set_column_type("t", "c", wide)
    schema = lake.read_arrow("t").schema
    for start in (3, 6):
        rows = [{"id": start + one, "k": "ab"[one % 2], "c": big} for one in range(3)]
        lake.append_arrow("t", pa.Table.from_pylist(rows, schema=schema))
    alone(lake).delete_rows("t", "id = 5")
    lake.restore("t", at=before)
    return lake


@pytest.mark.both_versions
@pytest.mark.parametrize("type_", WIDENED)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_rows_of_a_wider_type_that_a_restore_ended_are_flushed_to_files_that_end(
    sqlite_catalog, type_, layout
):
    with narrowed(sqlite_catalog, type_, layout=layout) as lake:
        at = lake.current_snapshot().id
        ours, theirs = seen_by_us(lake), seen_by_the_reference(sqlite_catalog)

        (done,) = lake.flush_inlined_data()

        assert (done.row_count, done.ended_count) == (8, 6)
        files = lake.table_snapshot("t", with_files=True).files
        assert sum(one.record_count for one in files) == 2
        assert all(one.delete_file is None for one in files)
        assert {place: rows for place, rows in seen_by_us(lake).items() if place[1] <= at} == ours
        after = seen_by_the_reference(sqlite_catalog)
        assert {place: rows for place, rows in after.items() if place[1] <= at} == theirs
        assert len(lake.read_arrow("t")) == 2
        notes = {one.code for one in lake.verify(with_notes=True)}
        assert notes == ({"type-narrower"} if type_ == "float" else set())  # at the snapshots between


def test_the_wide_rows_come_back_by_a_restore_and_expire_with_their_snapshots(sqlite_catalog):
    with narrowed(sqlite_catalog, "int32") as lake:
        lake.flush_inlined_data()
        narrow = lake.current_snapshot().id
        lake.restore("t", at=narrow - 2)
        assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 2, 3, 4, 6, 7, 8]
        assert lake.verify() == []

        lake.restore("t", at=narrow)
        lake.expire_snapshots(snapshots=[one.id for one in lake.snapshots()[:-1]])
        lake.cleanup_old_files(older_than=None)

        assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 2]
        assert seen_by_the_reference(sqlite_catalog)
        assert lake.verify() == []


UPKEEP = {
    "ours": (Lake.flush_inlined_data, merge_adjacent, rewrite),
    "DuckDB": (
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    ),
}


@pytest.mark.parametrize("type_", ["int32", "decimal"])
@pytest.mark.parametrize("limit", [10, 0], ids=["inlined", "files"])
@pytest.mark.parametrize("by", UPKEEP)
def test_a_table_that_was_narrowed_twice_reads_alike_after_each_step_of_upkeep(
    sqlite_catalog, by, limit, type_
):
    """By the second restore, rows of one inlined table lived before and after the narrower columns."""
    with narrowed(sqlite_catalog, type_, limit=limit) as lake:
        narrow = lake.current_snapshot().id
        lake.restore("t", at=narrow - 1)
        lake.restore("t", at=narrow)
        expected = seen_by_us(lake)
        assert seen_by_the_reference(sqlite_catalog).keys() == expected.keys()
    for step in UPKEEP[by]:
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            if callable(step):
                step(lake)
        if isinstance(step, str):
            by_duckdb(sqlite_catalog, step)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            seen = seen_by_us(lake)
            assert {place: seen[place] for place in expected} == expected
            assert_read_alike(lake, sqlite_catalog)
            assert lake.verify() == []


def changes_by_the_reference(catalog):
    with open_lake(catalog) as reference:
        return reference.sql(
            "SELECT snapshot_id, rowid, change_type, id "
            "FROM ducklake_table_changes('lake', 'main', 't', 2, 4) ORDER BY ALL"
        )


def test_the_feed_of_rows_that_all_ended_stays(sqlite_catalog):
    """Of one file, by two snapshots: those before the last by its delete file, the others by its end."""
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        lake.append_arrow("t", pa.table({"id": [1, 2, 3]}))
        for condition in ("id = 2", "id > 0"):
            alone(lake).delete_rows("t", condition)
        before, theirs = (feeds(lake), seen_by_us(lake)), changes_by_the_reference(sqlite_catalog)

        lake.flush_inlined_data()

        assert changes_by_the_reference(sqlite_catalog) == theirs
        seen = {place: rows for place, rows in seen_by_us(lake).items() if place in before[1]}
        assert (feeds(lake), seen) == before
        assert lake.table_snapshot("t", with_files=True).files == ()
        assert lake.verify() == []


# Values of a type that a restore narrowed again lie in files as rows that are gone: no cast fails.


# narrow type, wide type, a value that only the wide one has
TYPES = {
    "INTEGER": ("BIGINT", "4611686018427387904"),
    "UTINYINT": ("UINTEGER", "4000000000"),
    "DECIMAL(4, 2)": ("DECIMAL(9, 2)", "1234567.25"),
    "FLOAT": ("DOUBLE", "1e300"),
}


def flush(lake, catalog, by):
    if by == "ours":
        lake.flush_inlined_data()
    else:
        by_duckdb(catalog, "CALL ducklake_flush_inlined_data('lake')")


@pytest.mark.parametrize("by", ["ours", "duckdb"])
@pytest.mark.parametrize("narrow", TYPES)
def test_gone_rows_are_not_cast(sqlite_catalog, by, narrow):
    wide, value = TYPES[narrow]
    by_duckdb(
        sqlite_catalog,
        f"CREATE TABLE t (id BIGINT, c {narrow}, l {narrow}[])",
        "INSERT INTO t VALUES (1, 1, [1]), (2, 2, [2])",
    )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        by_duckdb(
            sqlite_catalog,
            f"ALTER TABLE t ALTER c TYPE {wide}",
            f"INSERT INTO t SELECT i, {value}, [3] FROM range(3, 9) r(i)",
            "DELETE FROM t WHERE id = 5",
        )
        lake.restore("t", at=then)
        flush(lake, sqlite_catalog, by)

        assert lake.read_arrow("t", columns=["id"]).sort_by("id")["id"].to_pylist() == [1, 2]
        assert lake.read_arrow("t", filter="c >= 2")["id"].to_pylist() == [2]
        assert lake.row_count("t") == 2
        assert_read_alike(lake, sqlite_catalog)

        before = lake.current_snapshot().id
        by_duckdb(sqlite_catalog, "INSERT INTO t (id) VALUES (20)")
        assert lake.changes("t", before + 1, before + 1).read_arrow()["id"].to_pylist() == [20]
        lake.restore("t", at=then)
        assert_read_alike(lake, sqlite_catalog)
