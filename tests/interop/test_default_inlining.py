"""With the default inlining limit small inserts share the catalog with DuckDB's, and large ones the files."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions


def rows(*numbers: int) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


def test_we_and_duckdb_inline_into_one_table(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        alone(lake).create_table("main.t", {"i": "int64", "s": "varchar"})
        alone(lake).append_arrow("main.t", rows(1, 2))
        assert not dump_catalog(catalog)["ducklake_data_file"]

        with open_lake(catalog) as duck:  # nobody turned inlining off
            duck.sql("INSERT INTO t VALUES (3, 'row 3'), (4, 'row 4')")
            duck.sql("DELETE FROM t WHERE i IN (1, 3)")
        with lake.transaction() as tx:
            tx.append_arrow("main.t", rows(5))
            tx.append_arrow("main.t", rows(*range(10, 30)))
            tx.append_arrow("main.t", rows(6))

    with open_lake(catalog) as duck:
        assert duck.sql("SELECT i, s, rowid FROM t WHERE i < 11 ORDER BY i") == [
            (2, "row 2", 1),
            (4, "row 4", 3),
            (5, "row 5", 24),
            (6, "row 6", 25),
            (10, "row 10", 4),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        assert duck.sql("SELECT i FROM t WHERE i BETWEEN 4 AND 10 ORDER BY i") == [(4,), (5,), (6,), (10,)]
        assert duck.sql("SELECT count(*) FROM t") == [(24,)]


@pytest.mark.only_1_0("DuckDB has the lake open while we alter its table")
def test_duckdb_inserts_small_after_each_alter_of_ours(catalog):
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake,
        open_lake(catalog) as duck,
    ):
        alone(lake).create_table("t", {"i": "int32"})
        duck.sql("INSERT INTO t VALUES (1)")
        alone(lake).add_column("t", "s", "varchar", "none")
        duck.sql("INSERT INTO t VALUES (2, 'two')")
        with lake.transaction() as tx:
            tx.rename_column("t", "s", "word")
            tx.set_column_type("t", "i", "int64")
        duck.sql("INSERT INTO t VALUES (3000000000, 'three')")
        with lake.transaction() as tx:
            tx.rename_table("t", "u")
            tx.append_arrow("u", pa.table({"i": pa.array([4], pa.int64()), "word": ["four"]}))
        alone(lake).drop_column("u", "i")
        duck.sql("INSERT INTO u VALUES ('five')")

        assert duck.sql("SELECT word, rowid FROM u ORDER BY rowid") == [
            ("none", 0),
            ("two", 1),
            ("three", 2),
            ("four", 3),
            ("five", 4),
        ]
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
        assert duck.sql("SELECT word FROM u ORDER BY rowid") == [
            ("none",),
            ("two",),
            ("three",),
            ("four",),
            ("five",),
        ]


@pytest.mark.only_1_0("DuckDB has the lake open while we commit")
def test_a_layout_is_made_where_there_is_none(catalog):
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake,
        open_lake(catalog) as duck,
    ):
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64", "s": "varchar"})
        assert not dump_catalog(catalog)["ducklake_inlined_data_tables"]
        lake.set_option("data_inlining_row_limit", 5, table="t")
        alone(lake).append_arrow("t", rows(1))
        alone(lake).append_arrow("t", rows(2))
        duck.sql("INSERT INTO t VALUES (3, 'row 3')")

        assert duck.sql("SELECT i, rowid FROM t ORDER BY i") == [(1, 0), (2, 1), (3, 2)]
        assert len(dump_catalog(catalog)["ducklake_inlined_data_tables"]) == 1
