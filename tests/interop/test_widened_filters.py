"""Columns by whose older types DuckDB misreads conditions: warned of, noted, and cured by a merge."""

import duckdb
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.compacting import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

# the old and the new type, values of the old, a value that only the new one has
WIDENED = [
    ("DATE", "TIMESTAMP", ("DATE '2024-05-01'", "DATE '2024-05-02'"), "'2024-05-01 12:00:00'"),
    ("FLOAT", "DOUBLE", ("0.1", "0.2"), "0.1"),
    ("DECIMAL(4,2)", "DECIMAL(9,4)", ("1.00", "1.01"), "1.005"),
]
UNHARMED = [
    ("SMALLINT", "BIGINT", ("1", "2"), "100000"),
    ("UINTEGER", "BIGINT", ("1", "2"), "-1"),
    ("DECIMAL(4,2)", "DECIMAL(9,2)", ("1.00", "1.01"), "12345.00"),
]
OPERATORS = ("<", "<=", "=", "<>", ">=", ">")


def wrong_filters(catalog, old, new, values, value):
    """Return the operators by which DuckDB finds other rows in the lake than among its own."""
    plain = duckdb.connect()
    rows = " UNION ALL ".join(f"SELECT CAST({one} AS {old})::{new} AS c" for one in values * 2)
    plain.execute(f"CREATE TABLE t AS {rows}")
    with open_lake(catalog) as duck:
        counts = {one: f"SELECT count(*) FROM t WHERE c {one} {value}" for one in OPERATORS}
        return [one for one, query in counts.items() if duck.sql(query) != plain.sql(query).fetchall()]


def notes(lake):
    assert lake.verify() == []
    return {one.code for one in lake.verify(with_notes=True)} - {FindingCode.OUTSIDE_DATA_PATH}


def filled(catalog, old, values, *more, inlined=0):
    with open_lake(catalog, data_inlining_row_limit=inlined) as duck:
        duck.sql(f"CREATE TABLE t (id INTEGER, c {old})")
        for statement in more:
            duck.sql(statement)
        for number in (0, 2):
            duck.sql(f"INSERT INTO t VALUES ({number}, {values[0]}), ({number + 1}, {values[1]})")


@pytest.mark.parametrize("inlined", [0, 10])
@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED + UNHARMED)
def test_a_widening_is_warned_of_and_noted_exactly_where_duckdb_misreads(
    sqlite_catalog, warnings, old, new, values, value, inlined
):
    filled(sqlite_catalog, old, values, inlined=inlined)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.set_column_type("t", "c", new)

    misread = wrong_filters(sqlite_catalog, old, new, values, value)

    assert bool(misread) == ((old, new, values, value) in WIDENED)
    assert bool(misread) == any("casts values of conditions" in one for one in warnings)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert notes(lake) == ({FindingCode.TYPE_NARROWER} if misread else set())


@pytest.mark.parametrize("is_duckdbs", [False, True])
@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED)
def test_a_merge_writes_the_current_type_for_every_snapshot(
    sqlite_catalog, is_duckdbs, old, new, values, value
):
    filled(sqlite_catalog, old, values, "ALTER TABLE t ADD COLUMN gone INTEGER", "ALTER TABLE t DROP gone")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        before = lake.read_arrow("t")
        if is_duckdbs:
            by_duckdb(sqlite_catalog, f"ALTER TABLE t ALTER c TYPE {new}")
        else:
            alone(lake).set_column_type("t", "c", new)
        merge_adjacent(lake)

        assert wrong_filters(sqlite_catalog, old, new, values, value) == []
        assert notes(lake) == set()
        assert lake.read_arrow("t", at=then).equals(before)
        assert lake.read_arrow("t", at=then, filter=f"c >= {values[1]}").num_rows == 2
        assert by_duckdb(sqlite_catalog, f"SELECT c FROM t AT (VERSION => {then}) ORDER BY id") == [
            (one,) for one in before["c"].to_pylist()
        ]
        lake.restore("t", at=then)
        assert lake.read_arrow("t").equals(before)
        assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE c = (SELECT max(c) FROM t)") == [(2,)]


@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED[1:])
def test_added_files_of_such_types_are_warned_of_and_noted(
    sqlite_catalog, warnings, tmp_path, old, new, values, value
):
    path = tmp_path / "given.parquet"
    rows = duckdb.sql(f"SELECT 1 AS id, unnest([{', '.join(values * 2)}])::{old} AS c").to_arrow_table()
    pq.write_table(rows, path)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "c": new})
            tx.add_data_files("t", [str(path)])

        assert wrong_filters(sqlite_catalog, old, new, values, value)
        assert [one for one in warnings if f"column c ({parse_type(new.lower())} in the table) is" in one]
        assert notes(lake) == {FindingCode.TYPE_NARROWER}


def test_a_table_without_rows_is_not_warned_of(sqlite_catalog, warnings):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"c": "date"})
        alone(lake).set_column_type("t", "c", "timestamp")

    assert warnings == []


def test_a_rewritten_file_claims_no_bucket_of_a_columns_former_type(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (id INTEGER, c DECIMAL(4,2))")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (bucket(4, c))")
        duck.sql("INSERT INTO t SELECT i, 1.00 FROM range(10) r(i)")
        duck.sql("ALTER TABLE t ALTER c TYPE DECIMAL(9,4)")
        duck.sql("DELETE FROM t WHERE id = 3")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rewrite(lake)

        (file,) = lake.scan("t").files
        assert (file.partition_id, file.partition_values) == (None, ())
        assert lake.verify() == []
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE c = 1") == [(9,)]
