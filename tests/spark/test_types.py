"""Every DuckLake type through a job: values, ids and statistics as the reference's."""

import re
from math import isnan

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    InvalidTypeError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import NOT_STORABLE, SCALARS, ScalarType
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark
from airflow_provider_ducklake.lake.spark.writing.assignment import assign
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import alone, by_duckdb
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


# --- defaults that only DuckDB computes: they matter only where rows lack the column ---

TABLE = "CREATE TABLE t (id INT, name VARCHAR, made TIMESTAMPTZ DEFAULT now())"
FED = "SELECT {} AS id, '{}' AS name, TIMESTAMP '2026-01-01 00:00:00Z' AS made"


@pytest.fixture
def session(spark, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(TABLE)
        reference.sql("INSERT INTO t (id, name) VALUES (1, 'one'), (2, 'two')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield LakeSession(spark, lake)


def test_every_verb_writes_rows_that_have_the_column(session, spark, sqlite_catalog):
    session.insert("t", spark.sql(FED.format(3, "three")).coalesce(1))
    session.update("t", {"name": "upper(name)"}, "id <= 2")
    session.delete("t", "id = 2")
    session.merge("t", spark.sql(FED.format(4, "four")), ["id"], update_all=True, insert_all=True)
    session.sql("INSERT INTO t SELECT id + 10, name, made FROM t WHERE id = 3")
    session.merge_adjacent_files("t")
    session.rewrite_data_files("t", delete_threshold=0)

    found = by_duckdb(sqlite_catalog, "SELECT id, name, made = '2026-01-01 00:00:00Z' FROM t ORDER BY id")
    assert found == [(1, "ONE", False), (3, "three", True), (4, "four", True), (13, "three", True)]
    assert session._lake.verify() == []


def test_rows_without_the_column_are_refused(session, spark):
    with pytest.raises(UnsupportedFeatureError, match=r"made is missing .* now"):
        session.merge(
            "t",
            spark.sql("SELECT 5 AS id, 'five' AS name"),
            ["id"],
            when_not_matched=[{"insert": {"id": "source.id", "name": "source.name"}}],
        )


# --- Spark's own type of geometries, which it has since 4.2 ---

POINTS = (
    "SELECT id, st_geomfromwkb(unhex('0101000000000000000000f03f00000000000000' || '40')) AS g FROM range(2)"
)


@pytest.fixture
def geometries(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64", "g": "geometry"})
        yield LakeSession(spark, lake)


def test_they_are_inserted_merged_and_make_tables(spark, geometries, sqlite_catalog):
    points = spark.sql(POINTS)
    nested = points.selectExpr("id", "named_struct('g', g) AS s", "array(g, NULL) AS l")

    geometries.insert("t", points)
    geometries.merge("t", points.where("id = 1"), ["id"], update_all=True)
    geometries.insert("made", nested, create_table=True)

    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("SELECT id, g::VARCHAR FROM t ORDER BY 1") == [
            (0, "POINT (1 2)"),
            (1, "POINT (1 2)"),
        ]
        found = reference.sql("SELECT s.g::VARCHAR, l[1]::VARCHAR, l[2] FROM made")
        assert found == [("POINT (1 2)", "POINT (1 2)", None)] * 2


def test_one_with_an_srid_is_refused_with_the_way_out(spark, geometries):
    points = spark.sql(POINTS).selectExpr("id", "st_setsrid(g, 4326) AS g")

    with pytest.raises(SchemaMismatchError, match=r"geometry\(4326\) does not fit.*no SRID.*st_asbinary"):
        geometries.insert("t", points)
    with pytest.raises(InvalidTypeError, match=r"geometry\(4326\)"):
        geometries.insert("made", points, create_table=True)

    geometries.insert("t", points.selectExpr("id", "st_asbinary(g) AS g"))
    assert geometries.read("t").count() == 2


# --- assignments ---


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
