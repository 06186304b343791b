"""Tables as Iceberg on Spark, the reference and we read them."""

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.comparison import multiset
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


def wrong_columns(spark: SparkSession, name: str, lake: Lake, table: str) -> list[str]:
    """Return the columns that Iceberg has and gives other values than we do; all of them if rows differ."""
    theirs = spark.table(name).toArrow()
    ours = lake.read_arrow(table).select(theirs.column_names)
    if rows(theirs) == rows(ours) and theirs.num_rows:
        return []
    return [
        one for one in theirs.column_names if rows(theirs.select([one])) != rows(ours.select([one]))
    ] or theirs.column_names


def loaded(spark: SparkSession, name: str) -> Any:
    """Return Iceberg's own object of a table."""
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def rows(table: pa.Table) -> list[tuple[str, ...]]:
    columns = [_as_spark_has_it(column) for column in table.columns]
    return multiset(pa.table(columns, names=table.column_names))


def _as_spark_has_it(column: pa.ChunkedArray) -> pa.ChunkedArray:
    type_ = column.type
    if isinstance(type_, pa.UuidType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], pa.binary(16))
    if pa.types.is_timestamp(type_):
        return column.cast(pa.timestamp("us", type_.tz))
    return column


def wrong_counts(
    spark: SparkSession, name: str, catalog: CatalogDatabase, table: str, conditions: dict[str, str]
) -> dict[str, tuple[int, int]]:
    """Return the conditions for which Iceberg finds another number of rows than the reference, or both none.

    `conditions` are Spark's, each with the reference's words for it.
    """
    found = {}
    with open_lake(catalog) as reference:
        for where, theirs in conditions.items():
            (expected,) = reference.sql(f"SELECT count(*) FROM {table} WHERE {theirs}")[0]
            found[where] = (spark.table(name).where(where).count(), expected)
    return {where: counts for where, counts in found.items() if counts[0] != counts[1] or not counts[0]}
