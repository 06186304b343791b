"""Tables and sources whose columns have the names of the columns that our own jobs add to rows."""

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.operators.insert_modes import InsertChoice
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import insert, rows_of

ENGINES = pytest.mark.parametrize("engine", ["native", "arrow"])
STEMS = ("zorder", "key_0", "key_1", "key_0_3", "key_0_11", "key_3", "bin", "row_id")
NAMES = [prefix + stem for prefix in ("_ducklake_", "__DuckLake_") for stem in STEMS]
LISTED = ", ".join(NAMES)
COLUMNS = f"id BIGINT, p VARCHAR, {LISTED.replace(',', ' INT,')} INT"
VALUES = ", ".join(f"(i * 100 + {number})::INT" for number, _ in enumerate(NAMES))
ROWS = f"SELECT i, 'p' || i % 3, {VALUES} FROM range(9) r(i)"


@ENGINES
def test_rows_are_inserted_partitioned_and_clustered(spark, sqlite_catalog, tmp_path, engine):
    source = tmp_path / "source.parquet"
    with open_lake(sqlite_catalog) as reference:
        reference.sql(f"CREATE TABLE t ({COLUMNS})")
        keys = f"bucket(5, p), bucket(7, id), {NAMES[1]}, p"
        reference.sql(f"ALTER TABLE t SET PARTITIONED BY ({keys})")
        reference.sql(f"COPY (SELECT * FROM ({ROWS}) s(id, p, {LISTED})) TO '{source}'")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for order in ((), ("id", NAMES[0])):
            insert(lake, spark.read.parquet(str(source)), InsertChoice(zorder_by=order), engine=engine)
        assert lake.verify() == []

    assert rows_of(sqlite_catalog) == rows_of(
        sqlite_catalog, f"SELECT * FROM ({ROWS} UNION ALL {ROWS}) ORDER BY ALL"
    )
