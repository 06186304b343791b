"""Strings that DuckDB could not read again are refused, at any depth and, by Arrow, with their number."""

import pytest

from airflow_provider_ducklake.lake.errors import InvalidValueError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.jobs.insert import write

LATIN = "CASE id % 10 WHEN 3 THEN CAST(X'636166E9' AS STRING) ELSE concat('café', id) END"
BAD = "b'caf\\xe9'"


def numbers(spark, *values: str):
    """Return 100 rows in four tasks: numbers from 0, and values computed of them."""
    return spark.range(0, 100, 1, 4).selectExpr("id", *values)


def problems(df, plan: WritePlan) -> tuple[str, ...]:
    with pytest.raises(InvalidValueError) as caught:
        write(df, plan)
    assert "main.t" in str(caught.value)
    return caught.value.problems


@pytest.mark.parametrize("partition_by", [(), ("s",), ("bucket(4, s)",)])
def test_bytes_that_are_not_utf8_are_counted_and_refused(spark, new_plan, partition_by):
    schema = new_columns({"id": "int64", "s": "varchar", "t": "varchar"})
    df = numbers(spark, f"{LATIN} AS s", "CASE WHEN id = 7 THEN CAST(X'FF' AS STRING) END AS t")

    assert problems(df, new_plan(schema, partition_by)) == (
        f"column s: 10 values are not valid UTF-8, such as {BAD}",
        "column t: 1 value is not valid UTF-8, such as b'\\xff'",
    )


def test_fields_of_structs_are_looked_at(spark, new_plan):
    schema = new_columns({"id": "int64", "a.b": "struct(c struct(d varchar))"})
    df = numbers(spark, f"named_struct('c', named_struct('d', {LATIN})) AS `a.b`")

    assert problems(df, new_plan(schema)) == (
        f"column a.b.c.d: 10 values are not valid UTF-8, such as {BAD}",
    )
