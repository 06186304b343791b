"""Secondary indexes on a catalog change nothing for DuckDB."""

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.reference.catalog_dump import dump_schema
from tests.reference.duckdb_lake import open_lake

ROWS = pa.table({"i": pa.array(range(20), pa.int64())})


def test_duckdb_works_on_beside_the_indexes(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        layout = dump_schema(catalog)
        assert len(lake.maintenance.create_indexes()) == 10
        assert lake.maintenance.create_indexes() == []
        assert lake.append_arrow("t", ROWS, message="one").id == 2
        with open_lake(catalog) as duck:
            duck.sql("INSERT INTO t FROM range(20, 40)")
            duck.sql("DELETE FROM t WHERE i < 15")
            duck.sql("ALTER TABLE t ADD COLUMN j integer")
            duck.sql("CALL ducklake_merge_adjacent_files('lake')")
            duck.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
            assert duck.sql("SELECT count(*), min(i) FROM t") == [(25, 15)]
        assert dump_schema(catalog).keys() >= layout.keys()


def test_an_empty_append_makes_no_snapshot(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        assert lake.append_arrow("t", ROWS.slice(0, 0)) is None
        first = lake.append_arrow("t", ROWS, commit_key="load 1")
        again = lake.append_arrow("t", ROWS, commit_key="load 1")
        assert (again.id, again.is_earlier) == (first.id, True)
        assert lake.read_arrow("t").num_rows == 20
