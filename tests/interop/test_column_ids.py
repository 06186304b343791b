"""Column ids that files of ours may have are never given again."""

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake


def rows(**columns: int) -> pa.Table:
    made = {name: pa.array([value] * 20, pa.int32()) for name, value in columns.items()}
    return pa.table(made)


def test_a_column_filled_and_dropped_in_one_transaction_does_not_come_back(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("new", {"i": "int32", "gone": "int32"})
            tx.append_arrow("new", rows(i=1, gone=7))
            tx.drop_column("new", "gone")
            tx.create_table("old", {"i": "int32"})
        with lake.transaction() as tx:
            tx.add_column("old", "gone", "int32")
            tx.append_arrow("old", rows(i=1, gone=7))
            tx.drop_column("old", "gone")
        with lake.transaction() as tx:
            tx.add_column("new", "later", "int32")
            tx.add_column("old", "later", "int32")

    with open_lake(catalog) as duck:
        for table in ("new", "old"):
            assert duck.sql(f"SELECT DISTINCT i, later FROM {table}") == [(1, None)]
