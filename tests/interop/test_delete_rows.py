"""Rows that we delete by a condition are those that DuckDB deletes by the same one."""

import math
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

COLUMNS = {"i": "int64", "x": "float64", "s": "varchar", "p": "struct(a int64)"}
INSERTS = [
    """INSERT INTO t SELECT i, CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::double ELSE i / 2 END,
       CASE i % 3 WHEN 0 THEN NULL ELSE 's' || i % 3 END, {'a': i % 4} FROM range(0, 30) r(i)""",
    """INSERT INTO t SELECT i, i, 's9', CASE i % 2 WHEN 0 THEN {'a': NULL} END FROM range(30, 60) r(i)""",
    "INSERT INTO t VALUES (60, NULL, NULL, NULL), (61, 'nan', 's1', {'a': 1}), (62, -0.0, 's2', {'a': 2})",
    "DELETE FROM t WHERE i IN (4, 33)",
    "UPDATE t SET x = 7 WHERE i = 8",
]


@pytest.fixture
def lakes(catalog, reference_catalog):
    """Our lake, with rows that the reference wrote into files and the catalog, and its twin."""
    for one in (catalog, reference_catalog):
        with Lake.create(one.sqlalchemy_url, one.data_path, version=one.spec_version) as lake:
            alone(lake).create_table("t", COLUMNS)
        by_duckdb(one, *INSERTS)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake, catalog, reference_catalog


CONDITIONS = [
    "i > 100",
    "x = 'nan' AND i < 20",
    "x <> 2 AND i BETWEEN 10 AND 13",
    "x = 0",
    "x > 20 AND s = 's1'",
    "p.a = 1 AND i < 10",
    "s LIKE 's_' AND i BETWEEN 35 AND 40",
    "s IS NULL AND x <= 3",
    "s NOT IN ('s1', 's9')",
    "x IS NULL OR i > 50",
    "x >= 17",
    "i < 30",
    "i >= 0",
]


def test_a_condition_that_names_no_column_deletes_rows_in_the_catalog_too(lakes):
    lake, ours, _ = lakes
    for condition, left in (("false", 61), ("true", 0)):
        assert alone(lake).delete_rows("t", condition) == 61 - left
        assert by_duckdb(ours, "SELECT count(*) FROM t") == [(left,)]


def test_rows_deleted_by_conditions_are_the_references(lakes):
    lake, ours, theirs = lakes
    for condition in CONDITIONS:
        with open_lake(theirs) as duck:
            ((expected,),) = duck.sql(f"DELETE FROM t WHERE {condition}")
            left = duck.sql("SELECT rowid, * FROM t ORDER BY ALL")

        with lake.transaction() as tx:
            count = tx.delete_rows("t", condition)

        assert (condition, count) == (condition, expected)
        assert (tx.committed is None) == (count == 0)
        with open_lake(ours) as duck:
            assert repr(duck.sql("SELECT rowid, * FROM t ORDER BY ALL")) == repr(left)  # NaN is itself
        assert lake.row_count("t") == len(left)
    assert left == []


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_rows_are_deleted_in_every_catalog_and_others_added_beside(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("t", {"i": "int64"}, ["bucket(2, i)"])
        lake.append_arrow("t", numbers(range(100)))
        lake.append_arrow("t", numbers(range(100, 105)))

        for condition, more in (("i < 10", [200]), ("i < 90 AND i <> 50", range(201, 230)), ("i > 95", [])):
            with lake.transaction() as tx:
                tx.delete_rows("t", condition)
                tx.append_arrow("t", numbers(more))

        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [50, *range(90, 96)]
    if catalog.is_for_the_reference:
        with open_lake(catalog) as duck:
            assert duck.sql("SELECT i FROM t ORDER BY i") == [(one,) for one in [50, *range(90, 96)]]
            at_first = duck.sql("SELECT count(*), sum(i) FROM t AT (VERSION => 3)")
            assert at_first == [(105, sum(range(105)))]


def numbers(values) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int64())})


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(
        sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version=sqlite_catalog.spec_version
    ) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64"})
        for first in (0, 100):
            lake.append_arrow("t", numbers(range(first, first + 100)))
        yield lake


def test_catalogs_equal_the_references(sqlite_catalog, new_catalog, lake):
    with lake.transaction() as tx:
        assert tx.delete_rows("t", "i < 100 OR i = 107") == 101
        tx.append_arrow("t", numbers(range(20)))
    reference_catalog = new_catalog("sqlite")
    with open_lake(reference_catalog) as duck:
        duck.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        duck.sql("CREATE TABLE t (i bigint)")
        duck.sql("INSERT INTO t FROM range(100)")
        duck.sql("INSERT INTO t FROM range(100, 200)")
        duck.sql("BEGIN; DELETE FROM t WHERE i < 100 OR i = 107; INSERT INTO t FROM range(20); COMMIT")

    assert_catalogs_equal(dump_catalog(sqlite_catalog), dump_catalog(reference_catalog))


def test_only_files_that_may_hold_such_rows_are_read_and_counted(lake):
    size = lake.table_snapshot("t", with_files=True).files[0].file_size_bytes

    assert alone(lake).delete_rows("t", "i = 7", max_bytes=size) == 1
    with (
        pytest.raises(errors.InvalidInputError, match="DuckLakeSparkDeleteOperator"),
        lake.transaction() as tx,
    ):
        tx.delete_rows("t", "i IN (8, 108)", max_bytes=size)

    assert lake.row_count("t") == 199


def nothing(_tx: LakeTransaction) -> None:
    pass


def delete(lake: Lake, condition: str, before=nothing, table: str = "t") -> int:
    with lake.transaction() as tx:
        before(tx)
        return tx.delete_rows(table, condition)


REFUSED = [
    (errors.ColumnNotFoundError, "j", "j = 1", nothing),
    (errors.InvalidPredicateError, "SELECT", "i = (SELECT 1)", nothing),
    (
        errors.InvalidInputError,
        "before the transaction adds",
        "i = 5",
        lambda tx: tx.append_arrow("t", numbers([5])),
    ),
    (
        errors.InvalidInputError,
        "before the transaction adds",
        "i = 5",
        lambda tx: tx.rename_column("t", "i", "k"),
    ),
    (errors.InvalidInputError, "in one step", "i = 5", lambda tx: tx.delete_rows("t", "i = 6")),
    (errors.InvalidInputError, "in one step", "i = 5", lambda tx: tx.truncate("t")),
    (
        errors.InvalidInputError,
        "created by this transaction",
        "i = 5",
        lambda tx: tx.create_table("t", {"i": "int64"}, or_replace=True),
    ),
]


@pytest.mark.parametrize(("error", "said", "condition", "before"), REFUSED)
def test_what_cannot_be_deleted_by_a_condition_is_refused(
    sqlite_catalog, lake, error, said, condition, before
):
    dump = dump_catalog(sqlite_catalog)
    files = sorted(Path(sqlite_catalog.data_path).rglob("*.parquet"))

    with pytest.raises(error, match=said):
        delete(lake, condition, before)

    assert dump_catalog(sqlite_catalog) == dump
    assert sorted(Path(sqlite_catalog.data_path).rglob("*.parquet")) == files


def test_rows_added_meanwhile_are_a_conflict_as_for_the_reference(lake):
    tx = lake.transaction()
    tx.delete_rows("t", "i < 150")
    lake.append_arrow("t", numbers([5]))

    with pytest.raises(errors.TransactionConflictError, match="added data file"), tx:
        pass

    assert lake.row_count("t") == 201


def test_so_they_are_where_none_was_deleted_and_rows_take_their_place(lake):
    tx = lake.transaction()
    assert tx.delete_rows("t", "i >= 1000") == 0
    tx.append_arrow("t", numbers([1000]))
    lake.append_arrow("t", numbers([1000]))

    with pytest.raises(errors.TransactionConflictError, match="added data file"), tx:
        pass
    with lake.transaction() as again:
        assert again.delete_rows("t", "i >= 1000") == 1
        again.append_arrow("t", numbers([1000]))

    assert lake.row_count("t") == 201


def test_nan_is_greater_than_any_number(lake):
    with lake.transaction() as tx:
        tx.create_table("x", {"x": "float64"})
        tx.append_arrow("x", pa.table({"x": [1.0, math.nan, None]}))

    assert alone(lake).delete_rows("x", "x > 1") == 1

    assert lake.read_arrow("x")["x"].to_pylist() == [1.0, None]
