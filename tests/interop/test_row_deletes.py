"""Rows that we delete by position are deleted for the reference, now and at every snapshot since."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.drafting import rows as given_rows
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.transaction.changes import Truncate
from tests.interop.jobs import merge_adjacent
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

TWENTY = pa.table({"i": pa.array(range(20), pa.int64())})


@pytest.fixture
def lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        alone(lake).append_arrow("t", TWENTY)
        yield lake


def only_file(lake: Lake) -> int:
    (file,) = lake.table_snapshot("t", with_files=True).files
    return file.id


def delete(lake: Lake, *positions: int) -> None:
    alone(lake).delete_at("t", {only_file(lake): positions})


def values(duck, at: str = "") -> list[int]:
    return [value for (value,) in duck.sql(f"SELECT i FROM t {at} ORDER BY i")]


def test_deletes_in_files_keep_their_snapshots(catalog, lake):
    lake.set_option("data_inlining_row_limit", 0)
    delete(lake, 3)
    delete(lake, 0, 19)
    delete(lake, 10)

    with open_lake(catalog) as duck:
        left = [set(), {3}, {0, 3, 19}, {0, 3, 10, 19}]
        for snapshot, gone in enumerate(left, start=2):
            expected = [one for one in range(20) if one not in gone]
            assert values(duck, f"AT (VERSION => {snapshot})") == expected
        assert values(duck) == [one for one in range(20) if one not in left[-1]]
        changes = duck.sql(
            "SELECT snapshot_id, i FROM ducklake_table_deletions('lake', 'main', 't', 0, 5) ORDER BY ALL"
        )
        assert changes == [(3, 3), (4, 0), (4, 19), (5, 10)]
        duck.sql("DELETE FROM t WHERE i = 5")
        duck.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        assert values(duck) == [one for one in range(20) if one not in {0, 3, 5, 10, 19}]


def test_delete_files_name_rows_by_the_columns_of_icebergs(lake):
    lake.set_option("data_inlining_row_limit", 0)
    delete(lake, 3)
    delete(lake, 0)

    (file,) = lake.table_snapshot("t", with_files=True).files
    rows = pq.read_table(file.delete_file.path)
    ids = {field.name: (int(field.metadata[b"PARQUET:field_id"]), field.nullable) for field in rows.schema}
    assert ids.pop("_ducklake_internal_snapshot_id")[0] == 2147483539
    assert ids == {"file_path": (2147483546, False), "pos": (2147483545, False)}
    assert rows.select(ids).to_pydict() == {"file_path": [file.path] * 2, "pos": [0, 3]}


def test_catalogs_equal_the_references(catalog, reference_catalog, lake):
    lake.set_option("data_inlining_row_limit", 0)
    delete(lake, 3)
    delete(lake, 0, 19)
    delete(lake, *(one for one in range(20) if one not in (0, 3, 19)))
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i bigint)")
        duck.sql("INSERT INTO t FROM range(20)")
        duck.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        duck.sql("DELETE FROM t WHERE i = 3")
        duck.sql("DELETE FROM t WHERE i IN (0, 19)")
        duck.sql("DELETE FROM t")

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))


def test_few_deletes_stay_in_the_catalog_as_the_references(catalog, reference_catalog, lake):
    alone(lake).append_arrow("t", pa.table({"i": pa.array([100, 101], pa.int64())}))
    alone(lake).delete_at("t", {only_file(lake): [3, 4]}, row_ids=[21])
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i bigint)")
        duck.sql("CALL lake.set_option('data_inlining_row_limit', 10)")
        duck.sql("INSERT INTO t FROM range(20)")
        duck.sql("INSERT INTO t VALUES (100), (101)")
        duck.sql("DELETE FROM t WHERE i IN (3, 4, 101)")

    assert_catalogs_equal(
        dump_catalog(catalog), dump_catalog(reference_catalog), ignore={"ducklake_metadata"}
    )
    with open_lake(catalog) as duck:
        assert values(duck) == [one for one in range(20) if one not in (3, 4)] + [100]
    assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [
        one for one in range(20) if one not in (3, 4)
    ] + [100]


def test_row_ids_of_no_live_row_in_the_catalog_are_refused(catalog, lake):
    alone(lake).append_arrow("t", pa.table({"i": pa.array([100, 101], pa.int64())}))
    alone(lake).delete_at("t", row_ids=[20])
    before = dump_catalog(catalog)

    for absent in (20, 3, 99):  # deleted before; in a data file; never there
        with (
            pytest.raises(InvalidInputError, match=f"no inlined row with id {absent}"),
            lake.transaction() as tx,
        ):
            tx.delete_at("t", row_ids=[21, absent])

    assert dump_catalog(catalog) == before


def test_more_rows_than_a_statement_has_parameters_are_deleted(catalog, lake):
    rows = 33_000
    lake.set_option("data_inlining_row_limit", rows)
    alone(lake).append_arrow("t", pa.table({"i": pa.array(range(rows), pa.int64())}))
    alone(lake).delete_at("t", row_ids=range(20, 20 + rows))

    with open_lake(catalog) as duck:
        assert values(duck) == list(range(20))


def test_each_file_may_keep_that_many_deletes_in_the_catalog_as_the_references(
    catalog, reference_catalog, lake
):
    alone(lake).append_arrow("t", TWENTY)
    files = lake.table_snapshot("t", with_files=True).files
    with lake.transaction() as tx:
        tx.append_arrow("t", pa.table({"i": pa.array(range(100, 120), pa.int64())}))
        tx.delete_at("t", {files[0].id: range(6), files[1].id: range(6)})
    with lake.transaction() as tx:
        tx.append_arrow("t", TWENTY)
        tx.delete_at("t", {files[1].id + 1: range(11)})
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i bigint)")
        duck.sql("INSERT INTO t FROM range(20)")
        duck.sql("INSERT INTO t FROM range(20)")
        duck.sql("BEGIN; DELETE FROM t WHERE i < 6; INSERT INTO t FROM range(100, 120); COMMIT")
        duck.sql("BEGIN; DELETE FROM t WHERE i BETWEEN 100 AND 110; INSERT INTO t FROM range(20); COMMIT")

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))


def test_marks_are_folded_into_a_delete_file(catalog, lake):
    delete(lake, 3, 4)
    delete(lake, *range(5, 17))
    delete(lake, 18)

    with open_lake(catalog) as duck:
        assert values(duck) == [0, 1, 2, 17, 19]
        assert values(duck, "AT (VERSION => 3)") == [one for one in range(20) if one not in (3, 4)]
        assert values(duck, "AT (VERSION => 4)") == [0, 1, 2, 17, 18, 19]
    assert dump_catalog(catalog)["ducklake_inlined_delete_1"] == []


def test_ids_inside_a_delete_file_are_those_of_the_commit(catalog, lake):
    lake.set_option("data_inlining_row_limit", 0)
    delete(lake, 3)
    with lake.transaction() as tx:
        tx.delete_at("t", {only_file(lake): [7]})
        alone(lake).create_schema("meanwhile")
    assert tx.committed.id == 5

    with open_lake(catalog) as duck:
        assert 7 in values(duck, "AT (VERSION => 4)")
        assert 7 not in values(duck, "AT (VERSION => 5)")


def test_two_deletes_on_one_file_conflict(catalog, lake):
    lake.set_option("data_inlining_row_limit", 0)
    delete(lake, 3)
    file = only_file(lake)
    tx = lake.transaction()
    tx.delete_at("t", {file: [7]})
    delete(lake, 8)
    with pytest.raises(TransactionConflictError, match="deleted other rows"), tx:
        pass

    with open_lake(catalog) as duck:
        assert values(duck) == [one for one in range(20) if one not in (3, 8)]
    names = {row["path"] for row in dump_catalog(catalog)["ducklake_delete_file"]}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("positions", "said"), [([20], "positions 0 to 19"), ([-1], "positions"), ([3], "already")]
)
def test_positions_that_cannot_be_deleted_are_refused(lake, positions, said):
    delete(lake, 3)
    with lake.transaction() as tx, pytest.raises(InvalidInputError, match=said):
        tx.delete_at("t", {only_file(lake): positions})
    with lake.transaction() as tx, pytest.raises(InvalidInputError, match="no live data file 77"):
        tx.delete_at("t", {77: [1]})


def truncate(lake: Lake) -> None:
    alone(lake).truncate("t")


def replace_all(lake: Lake) -> None:
    table = lake.table_snapshot("t")
    lake.committer.commit(table.snapshot.id, lake.writes.replacing_where(table, "i >= 0"), CommitInfo())


@pytest.mark.parametrize("end", [truncate, replace_all])
def test_rows_marked_before_their_file_ended_went_before(catalog, lake, end):
    with open_lake(catalog, data_inlining_row_limit=10) as duck:
        duck.sql("DELETE FROM t WHERE i IN (3, 4)")
        duck.sql("DELETE FROM t WHERE i = 9")
    end(lake)

    with open_lake(catalog) as duck:
        last = duck.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
        assert [len(values(duck, f"AT (VERSION => {at})")) for at in range(last - 3, last + 1)] == [
            20,
            18,
            17,
            0,
        ]
        gone = duck.sql(
            f"SELECT snapshot_id, i FROM ducklake_table_deletions('lake', 'main', 't', 0, {last})"
        )
        assert sorted(gone) == [(last - 2, 3), (last - 2, 4), (last - 1, 9)] + [
            (last, one) for one in range(20) if one not in {3, 4, 9}
        ]
        assert sorted(lake.deletions("t", 0, last)["i"].to_pylist()) == list(range(20))
        duck.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
        duck.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        assert values(duck) == []


def test_a_row_marked_while_we_empty_the_table_is_a_conflict(catalog, lake):
    by_duckdb(catalog, "DELETE FROM t WHERE i = 3", data_inlining_row_limit=10)
    table = lake.table_snapshot("t")
    by_duckdb(catalog, "DELETE FROM t WHERE i = 4", data_inlining_row_limit=10)
    with pytest.raises(TransactionConflictError):
        lake.committer.commit(table.snapshot.id, [Truncate(table.table_id, table.name)], CommitInfo())
    with open_lake(catalog) as duck:
        assert [len(values(duck, f"AT (VERSION => {at})")) for at in (3, 4)] == [19, 18]
    truncate(lake)

    with open_lake(catalog) as duck:
        assert [len(values(duck, f"AT (VERSION => {at})")) for at in (2, 3, 4, 5)] == [20, 19, 18, 0]


def test_files_merged_while_rows_are_looked_for_are_a_conflict(catalog, lake, monkeypatch):
    """A merge takes the files out of the base snapshot as well."""
    with lake.transaction() as tx:
        tx.create_table("m", {"i": "int32"})
        tx.set_option("m", "data_inlining_row_limit", 0)
    for start in (0, 10):
        lake.append_arrow("m", pa.table({"i": pa.array(range(start, start + 10), pa.int32())}))
    look = given_rows.matching_positions

    def look_and_merge(*arguments: object) -> object:
        found = look(*arguments)
        with Lake.connect(catalog.sqlalchemy_url) as other:
            merge_adjacent(other, "m")
        return found

    monkeypatch.setattr(given_rows, "matching_positions", look_and_merge)
    with pytest.raises(TransactionConflictError, match="no longer has data file"), lake.transaction() as tx:
        tx.delete_rows("m", "i IN (3, 13)")
    monkeypatch.undo()

    assert alone(lake).delete_rows("m", "i IN (3, 13)") == 2
    assert lake.row_count("m") == 18
