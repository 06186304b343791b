"""Partitioned writes: the reference's values for every transform and type, one combination per file."""

import math
from struct import pack, unpack

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.format.partitioning import bucket, murmur3_32, parse_partition_by
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.writing.assignment import assign
from airflow_provider_ducklake.lake.spark.writing.partitions import with_keys
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake
from tests.spark.conftest import make_plan
from tests.spark.inserting import insert, new_lake, rows_of

CALENDAR = ("year", "month", "day", "hour")
ODD_TEXTS = """
    case id
        when 1 then '' when 2 then '#' when 3 then 'a/b=c%' when 4 then repeat('é', 40) when 6 then 'x.y z'
        when 5 then '__HIVE_DEFAULT_PARTITION__' else substring('abcdefghijkl', 1, cast(id as int))
    end"""
# (DuckLake type, the reference's type, Spark SQL of the values over id, transforms)
COLUMNS = [
    ("int32", "integer", "cast(id * 37 - 400 as int)", ("identity", "bucket(4)")),
    ("int64", "bigint", "id * 10000000000 - 5", ("bucket(7)",)),
    ("int8", "tinyint", "cast(id - 10 as tinyint)", ("bucket(3)",)),
    ("uint8", "utinyint", "cast(id * 11 as smallint)", ("identity",)),
    ("uint32", "uinteger", "id * 150000000", ("bucket(4)",)),
    ("uint64", "ubigint", "cast(id * 900000000000000000BD as decimal(20,0))", ("identity",)),
    ("boolean", "boolean", "id % 3 = 0", ("identity", "bucket(4)")),
    (
        "float64",
        "double",
        "case id when 1 then double('nan') when 2 then -0.0D when 3 then double('inf') else id + 0.25D end",
        ("identity", "bucket(4)"),
    ),
    ("float32", "float", "float(id * 1.1)", ("bucket(4)",)),
    ("decimal(9,2)", "decimal(9,2)", "cast(id * 1.25 - 7 as decimal(9,2))", ("identity", "bucket(4)")),
    (
        "decimal(38,10)",
        "decimal(38,10)",
        "cast((id - 7) * 0.0000000001BD as decimal(38,10))",
        ("bucket(4)",),
    ),
    (
        "decimal(38,38)",
        "decimal(38,38)",
        "cast((id - 7) * 0.01BD as decimal(38,38))",
        ("identity", "bucket(50)"),
    ),
    ("date", "date", "date'1969-12-25' + cast(id * 20 as int)", ("identity", *CALENDAR[:3], "bucket(4)")),
    (
        "timestamp",
        "timestamp",
        "timestamp_ntz'1969-12-30 21:59:59.5' + make_dt_interval(cast(id * 9 as int), cast(id as int))",
        (*CALENDAR, "identity", "bucket(4)"),
    ),
    (
        "timestamp_s",
        "timestamp_s",
        "timestamp_ntz'1969-12-30 21:59:59' + make_dt_interval(cast(id * 9 as int), cast(id as int))",
        ("hour", "bucket(4)"),
    ),
    (
        "timestamp_ms",
        "timestamp_ms",
        "timestamp_ntz'1969-12-30 21:59:59.123' + make_dt_interval(cast(id * 9 as int), cast(id as int))",
        ("day", "bucket(4)"),
    ),
    (
        "timestamp_ns",
        "timestamp_ns",
        "timestamp_ntz'1969-12-30 21:59:59.123456' + make_dt_interval(cast(id * 9 as int), cast(id as int))",
        ("hour", "bucket(4)"),
    ),
    (
        "timestamp_ns",
        "timestamp_ns",
        "if(id < 9, '1959-12-31 23:59:59.9999995', '1969-12-31 22:59:59.999999001')",
        CALENDAR,
    ),
    (
        "timestamptz",
        "timestamptz",
        "timestamp'1969-12-30 21:59:59.5 UTC' + make_dt_interval(cast(id * 9 as int), cast(id * 5 as int))",
        (*CALENDAR, "identity", "bucket(4)"),
    ),
    (
        "time",
        "time",
        "concat(lpad(cast(id as string), 2, '0'), ':00:00', case when id % 2 = 0 then '.25' else '' end)",
        ("hour", "bucket(4)"),
    ),
    (
        "timetz",
        "timetz",
        "concat(lpad(cast(id as string), 2, '0'), if(id % 2 = 0, ':00:00.25+00', ':00:00+00'))",
        ("bucket(50)",),
    ),
    (
        "varchar",
        "varchar",
        ODD_TEXTS,
        ("identity", "bucket(4)"),
    ),
    ("blob", "blob", "cast(substring('abcdéfghijkl', 1, int(id % 8)) as binary)", ("identity", "bucket(4)")),
    (
        "uuid",
        "uuid",
        "concat('00000000-0000-4000-8000-', lpad(cast(id as string), 12, '0'))",
        ("identity", "bucket(4)"),
    ),
]  # fmt: skip


def expression(transform: str, column: str) -> str:
    if transform == "identity":
        return column
    return transform.replace(")", f", {column})") if "(" in transform else f"{transform}({column})"


ROWS = 21
SCHEMA = new_columns({"id": "int64"} | {f"c{number}": ours for number, (ours, *_) in enumerate(COLUMNS)})
EXPRESSIONS = tuple(
    expression(transform, f"c{number}")
    for number, (*_, transforms) in enumerate(COLUMNS)
    for transform in transforms
)


def all_columns(spark):
    values = ", ".join(f"{text} c{number}" for number, (_, _, text, _) in enumerate(COLUMNS))
    nulls = ", ".join("null" for _ in COLUMNS)
    return spark.sql(f"select id, {values} from range({ROWS - 1}) union all select {ROWS - 1}, {nulls}")


@pytest.fixture(scope="module")
def files(spark, tmp_path_factory):
    plan = make_plan(tmp_path_factory.mktemp("files"), SCHEMA, EXPRESSIONS)
    return write(all_columns(spark), plan)


@pytest.fixture(scope="module")
def expected(files, tmp_path_factory):
    """By row and key, the values of the files that the reference puts each row in."""
    lake = file_catalog("sqlite", tmp_path_factory.mktemp("reference"))
    return reference_values(lake, files.data_files)


def test_the_catalog_texts_are_the_references(files, expected):
    assert files.rows_written == ROWS
    assert values_by_id(files.data_files) == expected


def test_the_keys_that_decide_on_files_are_the_references(spark, expected):
    assigned = assign(all_columns(spark), SCHEMA, "t")
    fields = parse_partition_by(EXPRESSIONS, SCHEMA, "t")
    computed = [index for index, field in enumerate(fields) if field.transform.kind != "identity"]

    keyed, names = with_keys(assigned, SCHEMA, fields)

    for row in keyed.select("id", *names).collect():
        keys = [None if row[names[index]] is None else str(row[names[index]]) for index in computed]
        assert keys == [expected[row.id][index] for index in computed], row.id


def values_by_id(data_files) -> dict[int, tuple[str | None, ...]]:
    with duckdb.connect() as connection:
        found = {}
        for file in data_files:
            for (row,) in connection.execute(
                "select id from read_parquet(?, hive_partitioning = false)", [file.path]
            ).fetchall():
                assert row not in found
                found[row] = file.partition_values
        return found


def reference_values(catalog, data_files):
    types = ", ".join(f"c{number} {theirs}" for number, (_, theirs, *_) in enumerate(COLUMNS))
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        lake.sql(f"CREATE TABLE t (id BIGINT, {types})")
        lake.sql("CALL lake.set_option('hive_file_pattern', false)")
        lake.sql(f"ALTER TABLE t SET PARTITIONED BY ({', '.join(EXPRESSIONS)})")
        paths = [file.path for file in data_files]
        lake.raw.execute("INSERT INTO t FROM read_parquet(?, hive_partitioning = false)", [paths])
        rows = lake.sql(
            "SELECT path, list(partition_value ORDER BY partition_key_index) "
            "FROM __ducklake_metadata_lake.ducklake_data_file "
            "JOIN __ducklake_metadata_lake.ducklake_file_partition_value USING (data_file_id) GROUP BY ALL"
        )
        root = f"{catalog.data_path.rstrip('/')}/main/t/"
        return {
            row: tuple(values)
            for path, values in rows
            for (row,) in lake.raw.execute("SELECT id FROM read_parquet(?)", [root + path]).fetchall()
        }


def test_a_long_value_names_no_directory(spark, new_plan):
    schema = new_columns({"v": "varchar"})

    result = write(spark.sql("select repeat('é', 999) v"), new_plan(schema, ("v",)))

    assert [file.partition_values for file in result.data_files] == [("é" * 999,)]


def test_null_the_empty_string_and_look_alikes_have_files_of_their_own(spark, new_plan):
    schema = new_columns({"v": "varchar"})
    df = spark.sql(
        "select * from values (''), (null), ('__HIVE_DEFAULT_PARTITION__'), ('#'), ('A'), ('a') t(v)"
    )

    result = write(df, new_plan(schema, ("v",)))

    values = [file.partition_values for file in result.data_files]
    assert sorted(values, key=str) == sorted(
        [("",), (None,), ("__HIVE_DEFAULT_PARTITION__",), ("#",), ("A",), ("a",)], key=str
    )
    assert len({file.path for file in result.data_files}) == 6


def test_one_task_per_group_does_not_make_one_file_per_task_and_value(spark, new_plan):
    schema = new_columns({"id": "int64", "v": "int64"})
    df = spark.range(0, 4000, 1, 8).selectExpr("id", "id % 5 v")

    result = write(df, new_plan(schema, ("v",)))

    assert len(result.data_files) == 5
    assert {file.record_count for file in result.data_files} == {800}


def test_hive_directories_are_the_options_choice(spark, new_plan):
    schema = new_columns({"id": "int64", "v": "varchar"})
    df = spark.sql("select 1L id, 'a/b' v")

    with_them = write(df, new_plan(schema, ("v", "bucket(2, id)")))
    without = write(df, new_plan(schema, ("v",), ParquetSettings(hive_file_pattern=False)))

    assert "/v=a%2Fb/bucket=" in with_them.data_files[0].path
    assert "v=" not in without.data_files[0].path


def test_every_nan_is_in_the_bucket_of_nan(spark, sqlite_catalog):
    """The reference looks for each of them there, whatever the bits of a row's NaN are."""
    same = [x for x in map(float, range(60)) if bucket(pack("<d", x), 5) == bucket(pack("<d", math.nan), 5)]
    given = pa.array([unpack("<d", b"\0\0\0\0\0\0\xf8\xff")[0], math.nan, *same[:3]])
    create = ("CREATE TABLE t (x DOUBLE)", "ALTER TABLE t SET PARTITIONED BY (bucket(5, x))")
    with new_lake(sqlite_catalog, *create, data_inlining_row_limit=0) as lake:
        insert(lake, spark.createDataFrame(pa.table({"x": given})), InsertChoice())
        lake.append_arrow("t", pa.table({"x": given}))
        assert lake.read_arrow("t", filter="x IN ('nan')").num_rows == 4
        assert lake.read_arrow("t", filter="x NOT IN ('nan')").num_rows == 6
        with lake.transaction() as tx:
            assert tx.delete_rows("t", f"x IN ('nan', {same[0]})") == 6

    for wanted, count in (("'nan'", 0), (same[0], 0), (same[1], 2), (same[2], 2)):
        assert rows_of(sqlite_catalog, f"SELECT count(*) FROM t WHERE x = {wanted}") == [(count,)]
        sql = f"SELECT count(*) FROM t AT (VERSION => 4) WHERE x = {wanted}"
        assert rows_of(sqlite_catalog, sql) == [(4 if wanted == "'nan'" else 2,)]


def test_the_bucket_of_bytes_is_murmur_of_any_length(spark, new_plan):
    schema = new_columns({"id": "int64", "v": "blob"})
    texts = [bytes((index * 37 + length) % 256 for index in range(length)) for length in range(70)]
    df = spark.createDataFrame([(len(text), text) for text in texts], "id bigint, v binary")

    result = write(df, new_plan(schema, ("bucket(1000003, v)",)))

    found = {key: int(value) for key, (value,) in values_by_id(result.data_files).items()}
    assert found == {len(text): (murmur3_32(text) & 0x7FFFFFFF) % 1000003 for text in texts}
    assert math.isclose(len(set(found.values())), len(result.data_files))
