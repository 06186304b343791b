"""Every DuckLake type through a job: values, ids and statistics as the reference's."""

import re
from math import isnan

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import InvalidTypeError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import NOT_STORABLE, SCALARS, ScalarType
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark
from tests.reference.duckdb_lake import open_lake
from tests.spark.type_values import VALUES
from tests.type_matrix import noted


def schema_of(type_text: str) -> TableSchema:
    return new_columns({"n": "int32", "v": type_text})


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (isnan(left) and isnan(right)) or abs(left - right) <= abs(right) * 1e-6 or left == right
    return left == right


def rows_of(spark, texts: list[str]):
    selects = [f"select {number} n, {text} v" for number, text in enumerate([*texts, "null"])]
    return spark.sql(" union all ".join(selects))


@pytest.mark.parametrize(("type_text", "texts", "values"), VALUES, ids=[text for text, _, _ in VALUES])
def test_values_ids_and_statistics_are_the_references(
    spark, new_plan, sqlite_catalog, type_text, texts, values, record_property
):
    noted(record_property, type_text, "job")
    schema = schema_of(type_text)
    df = rows_of(spark, texts).coalesce(1)

    result = write(df, new_plan(schema))

    (file,) = result.data_files
    assert result.rows_written == file.record_count == len(values) + 1
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute("select v from read_parquet(?) order by n", [file.path]).fetchall()
        ids = connection.execute(
            "select field_id from parquet_schema(?) where field_id is not null", [file.path]
        ).fetchall()
    assert [column_id for (column_id,) in ids] == [column.id for column in schema.walk()]
    back = [row[0] for row in rows]
    assert back[-1] is None
    assert all(same(*pair) for pair in zip(back[:-1], values, strict=True)), back
    assert pq.read_metadata(file.path).num_rows == file.record_count
    expected = reference_stats(sqlite_catalog, schema, file.path)
    uncounted = {leaf.id for leaf in schema.leaves() if not leaf.type.facts.has_stats}  # zeros, says DuckDB
    expected |= dict.fromkeys(uncounted, (None,) * 5)
    assert stats_of(file) == expected


def stats_of(file):
    return {
        stats.column_id: (
            stats.value_count,
            stats.null_count,
            stats.min_value,
            stats.max_value,
            stats.contains_nan,
        )
        for stats in file.column_stats.values()
    }


def reference_stats(catalog, schema: TableSchema, path: str):
    """Return what the reference says of the same values when it writes them itself."""
    with open_lake(catalog, DATA_INLINING_ROW_LIMIT=0) as lake:
        columns = ", ".join(f"{column.name} {duckdb_type(column)}" for column in schema.columns)
        lake.sql(f"CREATE TABLE t ({columns})")
        lake.sql(f"INSERT INTO t SELECT * FROM read_parquet('{path}')")
        rows = lake.sql(
            "SELECT column_id, value_count, null_count, min_value, max_value, contains_nan "
            "FROM __ducklake_metadata_lake.ducklake_file_column_stats"
        )
    return {
        column_id: (values, nulls, low, high, None if nan is None else nan in (1, True, "1", "true"))
        for column_id, values, nulls, low, high, nan in rows
    }


_NAMES = {
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "int128": "hugeint",
    "uint128": "uhugeint",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}


def duckdb_type(column: Column) -> str:
    return re.sub(r"[a-z]+\d+", lambda found: _NAMES.get(found[0], found[0]), str(column.type))


SINCE_1_1 = {name for name, row in SCALARS.items() if row.since}  # tests/spark/test_lakes_of_1_1.py has them


def test_every_type_is_tested_or_refused(spark, new_plan):
    tested = {str(leaf.type) for type_text, *_ in VALUES for leaf in schema_of(type_text).leaves()}
    refused = SCALARS.keys() - tested - SINCE_1_1 - {"variant"}  # tests/spark/test_variants.py has it

    assert refused == NOT_STORABLE
    for name in sorted(refused):
        schema = TableSchema((Column(1, "v", ScalarType(name)),))
        with pytest.raises(UnsupportedFeatureError, match=f"Column v has type {name}"):
            write(spark.sql("select 'x' v"), new_plan(schema))


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "interval '1' day",
        "interval '1' month",
        "make_interval(1)",
        "array(interval '1' day)",
        "named_struct('a', null)",
    ],
)
def test_a_new_table_has_no_column_that_cannot_be_stored(spark, new_plan, text):
    with pytest.raises(InvalidTypeError, match=r"column bad(\.\w+)? has Spark type"):
        write(spark.sql(f"select 1 good, {text} bad"), new_plan(None))


def test_a_new_table_has_the_types_of_the_incoming_columns(spark, new_plan):
    df = spark.sql(
        "select 1Y a, 2 b, 1.5D c, 1.5BD d, date'2024-01-01' e, timestamp'2024-01-01' f, "
        "timestamp_ntz'2024-01-01' g, 'x' h, array(named_struct('K', x'00')) i, map(1, 'y') j"
    )

    result = write(df, new_plan(None, partition_by=("year(e)", "bucket(4, h)")))

    assert {column.name: str(column.type) for column in result.schema.columns} == {
        "a": "int8",
        "b": "int32",
        "c": "float64",
        "d": "decimal(2,1)",
        "e": "date",
        "f": "timestamptz",
        "g": "timestamp",
        "h": "varchar",
        "i": "struct(K blob)[]",
        "j": "map(int32, varchar)",
    }
    assert [str(field.transform) for field in result.partition_fields] == ["year", "bucket(4)"]


def test_names_of_char_types_and_time_are_understood():
    fields = fields_of_spark(
        t.StructType([t.StructField("a", t.VarcharType(3)), t.StructField("b", t.CharType(3))])
    )

    assert {str(field.type) for field in fields} == {"varchar"}
