"""Rows that Spark read of a lake, compared with those of the reader without Spark."""

import re

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, quote
from airflow_provider_ducklake.lake.spark.read import read_table
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote
from tests.interop.comparison import with_texts_of_variants
from tests.reference.duckdb_lake import DuckLakeConnection

PARTS = pa.struct(
    [("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())]
)  # of an interval


def shown(duck: DuckLakeConnection, rows: pa.Table, types: dict[str, str]) -> list[tuple[str | None, ...]]:
    """Return rows as the texts that the reference has for their values in its own types, sorted."""
    duck.raw.register("rows", rows)
    texts = [f"CAST({_quoted(name)} AS {type_})::VARCHAR" for name, type_ in types.items()]
    found = duck.sql(f"SELECT {', '.join(texts)} FROM rows")
    duck.raw.unregister("rows")
    return sorted(found, key=repr)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def types_of(duck: DuckLakeConnection, source: str) -> dict[str, str]:
    """Return the reference's types of a table's columns; WKB stands for shapes, parts for intervals."""
    described = duck.sql(f"DESCRIBE SELECT * FROM {source}")
    return {name: _as_compared(type_) for name, type_, *_ in described}


def _as_compared(type_: str) -> str:
    parts = "STRUCT(months INTEGER, days INTEGER, microseconds BIGINT)"
    return re.sub(r"\bINTERVAL\b", parts, re.sub(r"GEOMETRY(\([^)]*\))?", "BLOB", type_))


def assert_same_rows(
    spark: SparkSession,
    lake: Lake,
    duck: DuckLakeConnection,
    table: str | QualifiedName = "t",
    at: int | None = None,
    **chosen: object,
) -> int:
    """Compare Spark's rows with the reader's without Spark; return their number."""
    version = "" if at is None else f" AT (VERSION => {at})"
    sql = table if isinstance(table, str) else ".".join(quote(part) for part in table.parts)
    types = types_of(duck, f"{sql}{version}")
    ours = lake.read_arrow(table, at=at, **chosen)
    types = {name: types[name] for name in ours.column_names}
    by_spark = _arrow(read_table(spark, lake.scan(table, at=at, **chosen)))

    assert by_spark.column_names == ours.column_names
    by_spark, ours = with_texts_of_variants(by_spark), with_texts_of_variants(ours)
    types = {name: "VARCHAR" if type_ == "VARIANT" else type_ for name, type_ in types.items()}
    assert shown(duck, by_spark, types) == shown(duck, plain(ours), types), (table, at)
    return by_spark.num_rows


def _arrow(rows: DataFrame) -> pa.Table:
    """Return rows in Arrow; the toArrow of PySpark 4.2 refuses NULL variants, of any table."""
    if "variant" not in rows.schema.simpleString():
        return rows.toArrow()
    if is_remote(rows.sparkSession):
        return rows._to_table()[0]
    return pa.Table.from_batches(rows._collect_as_arrow(empty_list_if_zero_records=False))


def plain(rows: pa.Table) -> pa.Table:
    """Return rows with intervals in parts and long integers of 38 digits, as Spark has them."""
    return pa.table([_in_parts(column.combine_chunks()) for column in rows.columns], rows.column_names)


def _in_parts(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_decimal256(type_):  # an int128, of which Spark has 38 digits, and DuckDB's Arrow no more
        return array.cast(pa.decimal128(38, 0))
    if pa.types.is_interval(type_):
        return pa.array([_parts(one) for one in array.to_pylist()], PARTS)
    if pa.types.is_struct(type_):
        members = [_in_parts(member) for member in array.flatten()]
        return pa.StructArray.from_arrays(members, [field.name for field in type_], mask=array.is_null())
    if pa.types.is_list(type_):
        return pa.ListArray.from_arrays(array.offsets, _in_parts(array.values), mask=array.is_null())
    if pa.types.is_map(type_):
        keys, items = _in_parts(array.keys), _in_parts(array.items)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    return array


def _parts(interval: pa.MonthDayNano | None) -> dict[str, int] | None:
    if interval is None:
        return None
    return {"months": interval[0], "days": interval[1], "microseconds": interval[2] // 1000}


def assert_same_at_every_snapshot(
    spark: SparkSession, lake: Lake, duck: DuckLakeConnection, table: str = "t"
) -> int:
    """Compare a table's rows at each snapshot that has it; return how many have."""
    compared = 0
    for snapshot in lake.snapshots():
        if any(one.name == table for one in lake.tables(at=snapshot.id)):
            assert_same_rows(spark, lake, duck, table, at=snapshot.id)
            compared += 1
    return compared
