"""Rows that Spark read of a lake, compared with those of the reader without Spark."""

import re

import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.spark.read import read_table
from airflow_provider_ducklake.spec.identifiers import QualifiedName, quote
from tests.reference.duckdb_lake import DuckLakeConnection

INTERVAL = "to_months({0}.months) + to_days({0}.days) + to_microseconds({0}.microseconds)"


def shown(duck: DuckLakeConnection, rows: pa.Table, types: dict[str, str]) -> list[tuple[str | None, ...]]:
    """Return rows as the texts that the reference has for their values in its own types, sorted."""
    duck.raw.register("rows", rows)
    values = [_cast(_quoted(name), type_) for name, type_ in types.items()]
    found = duck.sql(f"SELECT {', '.join(f'({value})::VARCHAR' for value in values)} FROM rows")
    duck.raw.unregister("rows")
    return sorted(found, key=repr)


def _cast(name: str, type_: str) -> str:
    if type_ == "INTERVAL":
        return INTERVAL.format(name)
    return f"CAST({name} AS {type_})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def types_of(duck: DuckLakeConnection, source: str) -> dict[str, str]:
    """Return the reference's types of a table's columns; WKB stands for shapes."""
    described = duck.sql(f"DESCRIBE SELECT * FROM {source}")
    return {name: re.sub(r"GEOMETRY(\([^)]*\))?", "BLOB", type_) for name, type_, *_ in described}


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
    sql = table if isinstance(table, str) else f"{quote(table.schema)}.{quote(table.name)}"
    types = types_of(duck, f"{sql}{version}")
    ours = lake.read_arrow(table, at=at, **chosen)
    types = {name: types[name] for name in ours.column_names}
    by_spark = read_table(spark, lake.scan(table, at=at, **chosen)).toArrow()

    assert by_spark.column_names == ours.column_names
    assert shown(duck, by_spark, types) == shown(duck, _plain(ours), types), (table, at)
    return by_spark.num_rows


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows with intervals in parts, as Spark has them."""
    for place, name in enumerate(rows.column_names):
        if pa.types.is_interval(rows[name].type):
            parts = [
                None if one is None else {"months": one[0], "days": one[1], "microseconds": one[2] // 1000}
                for one in rows[name].to_pylist()
            ]
            type_ = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
            rows = rows.set_column(place, name, pa.array(parts, type_))
    return rows


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
