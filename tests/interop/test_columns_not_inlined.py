"""Columns that keep rows out of the catalog, given to tables that have rows in it: those stay."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake

LONG = "x" * 80  # more than PostgreSQL has for a name
CHANGES = {
    "a geometry": ("ADD COLUMN g GEOMETRY", lambda tx: tx.add_column("t", "g", "geometry")),
    "a variant": ("ADD COLUMN g VARIANT", lambda tx: tx.add_column("t", "g", "variant")),
    "a long name": (f"ADD COLUMN {LONG} INTEGER", lambda tx: tx.add_column("t", LONG, "int32")),
    "a name that becomes long": (f"RENAME COLUMN j TO {LONG}", lambda tx: tx.rename_column("t", "j", LONG)),
}


def registered(catalog):
    return [
        (one["table_name"], one["schema_version"])
        for one in dump_catalog(catalog)["ducklake_inlined_data_tables"]
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_rows_in_the_catalog_stay_there_and_are_read_and_flushed(catalog, new_catalog, name):
    statement, change = CHANGES[name]
    theirs = new_catalog(catalog.kind)
    with open_lake(theirs) as reference:
        reference.sql("CREATE TABLE t (i INTEGER, j INTEGER)")
        reference.sql("INSERT INTO t VALUES (1, 10), (2, 20)")
        reference.sql(f"ALTER TABLE t {statement}")
        expected = reference.sql("SELECT * FROM t ORDER BY i")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int32", "j": "int32"})
        lake.append_arrow(
            "t", pa.table({"i": [1, 2], "j": [10, 20]}).cast(pa.schema([("i", "int32"), ("j", "int32")]))
        )
        with lake.transaction() as tx:
            change(tx)

        assert registered(catalog) == registered(theirs)
        assert [tuple(row.values()) for row in lake.read_arrow("t").sort_by("i").to_pylist()] == expected
        with open_lake(catalog) as reference:
            assert reference.sql("SELECT * FROM t ORDER BY i") == expected
            reference.sql("INSERT INTO t (i) VALUES (3)")
        alone(lake).delete_rows("t", "i IN (1, 3)")
        lake.flush_inlined_data("t")
        assert [tuple(row.values()) for row in lake.read_arrow("t").to_pylist()] == expected[1:]
        assert lake.verify() == []
    assert by_duckdb(catalog, "SELECT * FROM t") == expected[1:]
