"""Strings that DuckDB could not read again are refused, at any depth and, by Arrow, with their number."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidValueError
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spec.schema import new_columns
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from tests.spark.inserting import insert, new_lake, rows_of

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


@pytest.mark.parametrize("column", ["s varchar", "s struct(c struct(d varchar))"])
def test_the_native_engine_names_the_column(spark, new_plan, column):
    name, _, type_name = column.partition(" ")
    value = LATIN if type_name == "varchar" else f"named_struct('c', named_struct('d', {LATIN}))"
    plan = new_plan(new_columns({"id": "int64", name: type_name}))

    with pytest.raises(PySparkException) as caught:
        write(numbers(spark, f"{value} AS {name}"), plan, "native")

    error = typed(caught.value)
    assert isinstance(error, InvalidInputError)
    assert f"Column {name}: a string is not valid UTF-8" in str(error)
    written = list(Path(plan.directory).rglob("*.parquet"))
    assert [file for file in written if "_temporary" not in file.parts] == []  # tasks may outlive their job


def test_elements_keys_and_values_are_looked_at(spark, new_plan):
    schema = new_columns({"id": "int64", "l": "varchar[]", "m": "map(varchar, json)"})
    df = numbers(
        spark,
        f"array('x', NULL, {LATIN}) AS l",
        f"map({LATIN}, CASE id WHEN 4 THEN '{{a:1}}' ELSE '1' END) AS m",
    )

    assert problems(df, new_plan(schema)) == (
        f"column l.element: 10 values are not valid UTF-8, such as {BAD}",
        f"column m.key: 10 values are not valid UTF-8, such as {BAD}",
        "column m.value: 1 value is not valid JSON, such as '{a:1}'",
    )


@pytest.mark.parametrize("text", ["", " ", "not json", "{''a'':1}", '{"a":1} x'])
def test_what_is_not_json_is_counted_and_refused(spark, new_plan, text):
    schema = new_columns({"id": "int64", "j": "json"})
    df = numbers(spark, f"CASE id % 10 WHEN 3 THEN '{text}' ELSE '{{\"a\": [1, null]}}' END AS j")

    (problem,) = problems(df, new_plan(schema))

    shown = text.replace("''", "'")
    assert problem == f"column j: 10 values are not valid JSON, such as {shown!r}"


def test_the_error_says_what_helps(spark, new_plan):
    schema = new_columns({"id": "int64", "s": "varchar", "j": "json"})
    with pytest.raises(InvalidValueError) as caught:
        write(numbers(spark, f"{LATIN} AS s", "'x' AS j"), new_plan(schema))

    assert str(caught.value) == (
        "Values cannot be stored in main.t; nothing was written:\n"
        f"  - column s: 10 values are not valid UTF-8, such as {BAD}\n"
        "  - column j: 100 values are not valid JSON, such as 'x'\n"
        "  Read the source in its own encoding: use the option encoding for csv and json files, and "
        "decode(…, 'ISO-8859-1') for binary values.\n"
        "  Convert them to JSON (for example with to_json) or NULL first, or make the column varchar."
    )


def test_what_we_take_is_read_by_duckdb(spark, sqlite_catalog):
    made = "CREATE TABLE t (id BIGINT, s VARCHAR, j JSON, st STRUCT(s VARCHAR))"
    with new_lake(sqlite_catalog, made, data_inlining_row_limit=0) as lake:
        df = spark.sql(
            """SELECT 1L AS id, 'é\\0😀' AS s, '{"a": NaN, "b": "\\\\ud83d\\\\ude00"}' AS j,
               named_struct('s', '') AS st"""
        )
        insert(lake, df, InsertChoice())

    assert rows_of(sqlite_catalog) == [(1, "é\0😀", '{"a": NaN, "b": "\\ud83d\\ude00"}', {"s": ""})]
