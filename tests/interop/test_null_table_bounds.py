"""Bounds of a table's column that are NULL over rows with values, as DuckDB 2.0 leaves them, are unknown."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

MADE = (
    "CREATE TABLE t (i BIGINT, s STRUCT(x VARCHAR, y DOUBLE))",
    "INSERT INTO t SELECT range, {'x': 'v' || range, 'y': range} FROM range(1000, 1200)",
    "CREATE TABLE small (i BIGINT, s STRUCT(x VARCHAR, y DOUBLE))",
    "INSERT INTO small VALUES (1100, {'x': 'v1100', 'y': 1100})",
)
TABLES = ("t", "small")  # of rows in a file, and in the catalog


def forget_bounds(catalog: CatalogDatabase) -> None:
    """Have table bounds as DuckDB 2.0 does after a delete that drops a whole data file."""
    engine = create_engine(catalog.sqlalchemy_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL"))
    engine.dispose()


def rows(first: int, count: int) -> pa.Table:
    values = range(first, first + count)
    return pa.table({"i": values, "s": [{"x": f"v{one}", "y": float(one)} for one in values]})


def no_values(_first: int, count: int) -> pa.Table:
    nothing = pa.struct([("x", pa.string()), ("y", pa.float64())])
    return pa.table({"i": pa.nulls(count, pa.int64()), "s": pa.nulls(count, nothing)})


def insert_by_duckdb(duck: DuckLakeConnection, _lake: Lake, table: str) -> None:
    duck.sql(f"INSERT INTO {table} SELECT range, {{'x': 'v' || range, 'y': range}} FROM range(5, 10)")


def append_rows(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, rows(5, 5))


def append_file(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, rows(5, 50))


def append_nulls_first(duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    lake.append_arrow(table, no_values(0, 5))
    append_rows(duck, lake, table)


def delete_and_restore(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    before = lake.current_snapshot().id
    alone(lake).delete_rows(table, "i <= 1100")
    lake.restore(table, at=before)


def flush(_duck: DuckLakeConnection, lake: Lake, table: str) -> None:
    append_rows(_duck, lake, table)
    lake.flush_inlined_data(table)


def find(duck: DuckLakeConnection, table: str) -> list[tuple]:
    conditions = ("i = 1100", "s.x = 'v1100'", "s.y >= 1100 AND s.y < 1101")
    return [duck.sql(f"SELECT count(*) FROM {table} WHERE {one}")[0] for one in conditions]


Verb = Callable[[DuckLakeConnection, Lake, str], None]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", [append_rows, append_file, append_nulls_first, delete_and_restore, flush])
def test_no_commit_of_ours_narrows_them(catalog, verb: Verb, table):
    by_duckdb(catalog, *MADE)
    forget_bounds(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with open_lake(catalog) as duck:
            verb(duck, lake, table)
        assert lake.read_arrow(table, filter="i = 1100").num_rows == 1
        bounds = lake.column_bounds(table, "i")
        assert bounds is None or bounds.max.as_py() >= 1100
        with open_lake(catalog) as duck:
            insert_by_duckdb(duck, lake, table)  # which widens what it finds
        with open_lake(catalog) as duck:
            assert find(duck, table) == [(1,)] * 3


def test_verify_names_them_and_repair_mends_them(catalog):
    by_duckdb(catalog, *MADE)
    forget_bounds(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        findings = lake.verify()
        assert {one.code for one in findings} == {FindingCode.TABLE_STATS_NARROW}
        assert len({(one.objects["table_id"], one.objects["column_id"]) for one in findings}) == 6
        assert all("bounds are NULL" in one.sentence for one in findings)

        assert lake.repair(findings).left == ()

        assert not lake.verify()
    with open_lake(catalog) as duck:
        for table in TABLES:
            insert_by_duckdb(duck, lake, table)
    with open_lake(catalog) as duck:
        assert [find(duck, table) for table in TABLES] == [[(1,)] * 3] * 2
