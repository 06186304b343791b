"""With the default inlining limit we make no inlined tables; DuckDB makes its own and everybody goes on."""

import pyarrow as pa

from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake


def rows(*numbers: int) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


def test_duckdb_inlines_into_our_table_and_we_append_on(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("main.t", {"i": "int64", "s": "varchar"})
        with lake.transaction() as tx:
            tx.append_arrow("main.t", rows(1, 2))
        assert not dump_catalog(catalog)["ducklake_inlined_data_tables"]

        with open_lake(catalog) as duck:  # nobody turned inlining off
            duck.sql("INSERT INTO t VALUES (3, 'row 3'), (4, 'row 4')")
            duck.sql("DELETE FROM t WHERE i IN (1, 3)")
        with lake.transaction() as tx:
            tx.append_arrow("main.t", rows(5))

    with open_lake(catalog) as duck:
        assert duck.sql("SELECT i, s, rowid FROM t ORDER BY i") == [
            (2, "row 2", 1),
            (4, "row 4", 3),
            (5, "row 5", 4),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        assert duck.sql("SELECT i FROM t WHERE i >= 4 ORDER BY i") == [(4,), (5,)]
    inlined = {row["table_id"] for row in dump_catalog(catalog)["ducklake_inlined_data_tables"]}
    assert inlined == {1}
