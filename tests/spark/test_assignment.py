"""Incoming columns against a table's: what fits, what is refused, and when."""

import pytest
from pyspark.errors import SparkRuntimeException

from airflow_provider_ducklake.lake.errors import InvalidInputError, SchemaMismatchError
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.writing.assignment import assign


def assigned(spark, text: str, schema: TableSchema):
    return assign(spark.sql(text), schema, "main.t")


def test_every_difference_is_listed_at_once(spark):
    schema = new_columns({"a": "int32", "b": "varchar", "c": "struct(x int8, y date)", "d": "timestamp"})

    with pytest.raises(SchemaMismatchError) as caught:
        assigned(
            spark,
            "select 'x' A, 1 extra, named_struct('X', 1, 'z', 2) c, timestamp'2024-01-01' d, 1 D2, 2 d2",
            schema,
        )

    assert caught.value.table == "main.t"
    hint = "convert it with to_timestamp_ntz or CAST(… AS TIMESTAMP_NTZ)"
    assert set(caught.value.differences) == {
        "column extra is not in the table",
        "column D2 is not in the table",
        "column d2 appears twice",
        "column b is missing",
        "column a is int32 in the table; varchar does not fit without loss",
        "column c.z is not in the table",
        "column c.y is missing",
        "column c.x is int8 in the table; int32 does not fit without loss",
        f"column d is timestamp in the table; timestamptz does not fit without loss; {hint}",
    }


WIDENINGS = [
    ("1Y", "int64", 1),
    ("1S", "float32", 1.0),
    ("1", "float64", 1.0),
    ("1.5F", "float64", 1.5),
    ("1", "decimal(12,2)", 1),
    ("1.5BD", "decimal(9,3)", 1.5),
    ("7L", "decimal(19,0)", 7),
    ("null", "uuid", None),
    ("null", "int32[]", None),
]


@pytest.mark.parametrize(("text", "type_text", "value"), WIDENINGS)
def test_wider_types_take_the_values(spark, text, type_text, value):
    (row,) = assigned(spark, f"select {text} v", new_columns({"v": type_text})).collect()

    assert row.v == value


NARROWINGS = [
    ("1L", "int32"),
    ("1L", "float64"),
    ("1", "float32"),
    ("1.5D", "float32"),
    ("1.5BD", "decimal(1,1)"),
    ("1L", "decimal(18,0)"),
    ("'1'", "int32"),
    ("1", "varchar"),
    ("1", "boolean"),
    ("timestamp_ntz'2024-01-01'", "timestamptz"),
    ("timestamp_ntz'2024-01-01'", "date"),
    ("array(1L)", "int32[]"),
    ("map(1, 1L)", "map(int32, int32)"),
    ("array(1)", "int32"),
    ("interval '1' day", "int64"),
]


@pytest.mark.parametrize(("text", "type_text"), NARROWINGS)
def test_narrower_types_are_refused_before_anything_runs(spark, text, type_text):
    with pytest.raises(SchemaMismatchError, match="does not fit without loss"):
        assigned(spark, f"select {text} v", new_columns({"v": type_text}))


UNFIT_VALUES = [
    ("256", "uint8", "value 256 does not fit uint8"),
    ("-1S", "uint16", "value -1 does not fit uint16"),
    ("4294967296L", "uint32", "value 4294967296 does not fit uint32"),
    ("-1L", "uint64", "value -1 does not fit uint64"),
    ("18446744073709551616BD", "uint64", "value 18446744073709551616 does not fit uint64"),
    ("'not-a-uuid'", "uuid", "value not-a-uuid does not fit uuid"),
    ("'24:00:01'", "time", "value 24:00:01 does not fit time"),
    ("timestamp_ntz'2024-01-01 00:00:00.1'", "timestamp_s", "does not fit timestamp_s"),
    ("timestamp_ntz'2024-01-01 00:00:00.1234'", "timestamp_ms", "does not fit timestamp_ms"),
    ("timestamp_ntz'2263-01-01 00:00:00'", "timestamp_ns", "does not fit timestamp_ns"),
]


@pytest.mark.parametrize(("text", "type_text", "message"), UNFIT_VALUES)
def test_a_value_out_of_range_fails_the_job_and_names_the_column(spark, text, type_text, message):
    df = assigned(spark, f"select {text} v from range(1)", new_columns({"v": type_text}))

    error = failure_of(df)

    assert type(error) is InvalidInputError
    assert str(error).startswith("Column v: ")
    assert message in str(error)


def test_a_nested_value_out_of_range_is_named_by_its_path(spark):
    df = assigned(
        spark, "select array(named_struct('u', 300)) v from range(1)", new_columns({"v": "struct(u uint8)[]"})
    )

    assert "Column v.element.u: value 300" in str(failure_of(df))


def test_a_null_in_a_required_column_fails_the_job_and_names_the_column(spark):
    schema = new_columns({"a": "int64", "b": "int64"}, not_null=["b"])
    df = assigned(spark, "select id a, if(id = 1, null, id) b from range(3)", schema)

    error = failure_of(df)

    assert type(error) is InvalidInputError
    assert "Column b is NOT NULL" in str(error)


def failure_of(df):
    with pytest.raises(SparkRuntimeException) as caught:
        df.collect()
    return typed(caught.value)


def test_names_match_in_any_case_and_order_at_every_level(spark):
    schema = new_columns(
        {"Id": "int64", "S": "struct(A int64, b varchar)", "m": "map(varchar, struct(q int64))"}
    )
    text = "select map('k', named_struct('Q', 5)) M, named_struct('B', 'x', 'a', 1) s, 3 ID"

    (row,) = assigned(spark, text, schema).collect()

    assert row.asDict(recursive=True) == {"Id": 3, "S": {"A": 1, "b": "x"}, "m": {"k": {"q": 5}}}


def test_odd_names_are_only_names(spark):
    schema = new_columns({"a.b": "int64", "c`d": "int64", "e f": 'struct("g.h" int64)'})
    text = "select 1 `a.b`, 2 `c``d`, named_struct('g.h', 3) `e f`"

    (row,) = assigned(spark, text, schema).collect()

    assert tuple(row) == (1, 2, (3,))
