"""Files of one partition lie where the reference looks for them when it compacts."""

from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import insert, new_lake, rows_of

TABLE = ("CREATE TABLE t (part INT, x INT)", "ALTER TABLE t SET PARTITIONED BY (part)")


def test_the_reference_merges_files_of_several_jobs(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *TABLE, data_inlining_row_limit=0) as lake:
        for start in (0, 10):
            ids = spark.range(start, start + 5).selectExpr("CAST(1 AS INT) AS part", "CAST(id AS INT) AS x")
            insert(lake, ids, InsertChoice())
    before = rows_of(sqlite_catalog)

    with open_lake(sqlite_catalog) as reference:
        merged = reference.sql("CALL ducklake_merge_adjacent_files('lake')")

    assert merged
    assert [
        row[0] for row in rows_of(sqlite_catalog, "SELECT count(*) FROM ducklake_list_files('lake', 't')")
    ] == [1]
    assert rows_of(sqlite_catalog) == before
