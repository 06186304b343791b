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
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice, InsertMode
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake
from tests.spark.conftest import make_plan
from tests.spark.inserting import insert, new_lake, rows_of
from tests.spark.test_row_changes import Twins, update

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


# --- files of one partition lie where the reference looks for them ---

TABLE = ("CREATE TABLE t (part INT, x INT)", "ALTER TABLE t SET PARTITIONED BY (part)")


def test_the_reference_merges_files_of_several_jobs(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *TABLE, data_inlining_row_limit=0) as lake:
        for start in (0, 10):
            ids = spark.range(start, start + 5).selectExpr("CAST(1 AS INT) AS part", "CAST(id AS INT) AS x")
            insert(lake, ids, InsertChoice())
    before = rows_of(sqlite_catalog)

    merged = by_duckdb(sqlite_catalog, "CALL ducklake_merge_adjacent_files('lake')")

    assert merged
    assert [
        row[0] for row in rows_of(sqlite_catalog, "SELECT count(*) FROM ducklake_list_files('lake', 't')")
    ] == [1]
    assert rows_of(sqlite_catalog) == before


# --- hours that a zone has twice, infinite times, those after year 9999 ---

APPEND, PARTITIONS = InsertChoice(), InsertChoice(InsertMode.OVERWRITE_PARTITIONS)
PLACES = """SELECT id, partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value
    JOIN __ducklake_metadata_lake.ducklake_data_file USING (data_file_id)
    JOIN (SELECT id, parse_filename(filename) AS name FROM t) ON path LIKE '%' || name ORDER BY id"""
# 01:30 comes twice in this night of the session's zone, America/New_York
NIGHT = """SELECT CAST(id AS INT) AS id, IF(id % 2 = 0, TIMESTAMP '2024-11-03 05:30:00Z',
    TIMESTAMP '2024-11-03 06:30:00Z') AS ts FROM range(8)"""


def test_an_hour_that_the_sessions_zone_has_twice_is_two_partitions(spark, sqlite_catalog):
    create = ("CREATE TABLE t (id INT, ts TIMESTAMPTZ)", "ALTER TABLE t SET PARTITIONED BY (ts)")
    with new_lake(sqlite_catalog, *create) as lake:
        insert(lake, spark.sql(NIGHT), APPEND)

        assert {value for _, value in rows_of(sqlite_catalog, PLACES)} == {
            "2024-11-03 05:30:00+00",
            "2024-11-03 06:30:00+00",
        }
        found = lake.read_arrow("t", filter="ts = TIMESTAMPTZ '2024-11-03 06:30:00+00'")
        assert sorted(found["id"].to_pylist()) == [1, 3, 5, 7]
        late = spark.sql("SELECT 100 AS id, TIMESTAMP '2024-11-03 06:30:00Z' AS ts")
        insert(lake, late, PARTITIONS)
        assert lake.verify() == []
    assert rows_of(sqlite_catalog, "SELECT id FROM t ORDER BY id") == [(0,), (2,), (4,), (6,), (100,)]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("DATE", ["DATE '9999-12-31'", "DATE '+10000-01-01'", "DATE '+290000-05-06'"]),
        ("TIMESTAMP", ["TIMESTAMP_NTZ '+10000-01-01 00:00:00.5'", "TIMESTAMP_NTZ '+290000-05-06 07:08:09'"]),
        ("TIMESTAMPTZ", ["TIMESTAMP '+10000-01-01 00:00:00.5Z'", "TIMESTAMP '+290000-05-06 07:08:09Z'"]),
    ],
)
def test_times_after_year_9999_are_partitions_and_are_clustered(spark, sqlite_catalog, type_, values):
    create = (f"CREATE TABLE t (id INT, x {type_})", "ALTER TABLE t SET PARTITIONED BY (x)")
    rows = spark.sql(
        f"SELECT * FROM VALUES {', '.join(f'({n}, {v})' for n, v in enumerate(values))} t(id, x)"
    )
    with new_lake(sqlite_catalog, *create) as lake:
        insert(lake, rows, InsertChoice(zorder_by=("x", "id")))
        assert lake.verify() == []

    expected = rows_of(sqlite_catalog, "SELECT id, x::VARCHAR FROM t ORDER BY id")
    assert rows_of(sqlite_catalog, PLACES) == expected
    assert len(expected) == len(values)


def test_dates_have_the_hour_0(spark, sqlite_catalog):
    create = (
        "CREATE TABLE t (id INT, d DATE)",
        "ALTER TABLE t SET PARTITIONED BY (hour(d))",
        "INSERT INTO t VALUES (1, '1960-01-01'), (2, '2024-05-05')",
    )
    with new_lake(sqlite_catalog, *create, data_inlining_row_limit=0) as lake:
        insert(lake, spark.sql("SELECT 3 AS id, DATE '1960-01-01' AS d"), APPEND)
        found = lake.read_arrow("t", filter="d = DATE '1960-01-01'")
        assert sorted(found["id"].to_pylist()) == [1, 3]
        lake.append_arrow("t", found)
        with lake.transaction() as transaction:
            assert transaction.delete_rows("t", "d = DATE '1960-01-01'") == 4
        assert lake.verify() == []
    assert set(rows_of(sqlite_catalog, "SELECT id FROM t")) == {(2,)}


KEYS_OF_TYPES = {
    "DATE": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP_MS": ("x", "month(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP_NS": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMPTZ": ("x", "day(x)", "hour(x)", "bucket(3, x)"),
}


@pytest.mark.parametrize("type_", KEYS_OF_TYPES)
def test_infinite_times_are_updated_and_merged_in_partitions(spark, tmp_path, type_):
    key = KEYS_OF_TYPES[type_]
    with Twins(tmp_path, 0) as twins:
        twins.sql(
            f"CREATE TABLE t (id BIGINT, n INT, x {type_})",
            f"ALTER TABLE t SET PARTITIONED BY ({', '.join(key)})",
            "INSERT INTO t VALUES (1, 1, 'infinity'), (2, 1, '-infinity'), (3, 1, '1969-12-31 23:00:00')",
            "INSERT INTO t VALUES (4, 1, '2024-05-05 01:00:00'), (5, 1, NULL)",
        )
        twins.change_both(spark, "UPDATE t SET n = 2", **update("true", n="2"))
        source = tmp_path / "source.parquet"
        twins.theirs.sql(
            f"COPY (SELECT id, x FROM (FROM t UNION ALL SELECT id + 10, 1, x FROM t)) TO '{source}'"
        )
        if type_ not in ("TIMESTAMP_MS", "TIMESTAMP_NS"):  # of which Spark reads no infinite ones from files
            twins.change_both(
                spark,
                f"MERGE INTO t USING read_parquet('{source}') s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET n = 3, x = s.x "
                "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, s.x)",
                source=str(source),
                on="target.id = source.id",
                when_matched=({"update": {"n": "3", "x": "source.x"}},),
                when_not_matched=({"insert": {"id": "source.id", "n": "1", "x": "source.x"}},),
            )
        values = [set(lake.sql(VALUES_OF_ROWS)) for lake in twins.lakes]
        assert values[0] == values[1]
        assert twins.lake.verify() == []


def test_infinite_seconds_are_changed_and_inserted(spark, sqlite_catalog):
    """DuckDB reads those of files, and writes none."""
    seconds = pa.array([2**63 - 1, 1 - 2**63, 0]).cast(pa.timestamp("s"))
    with new_lake(sqlite_catalog, "CREATE TABLE t (id BIGINT, x TIMESTAMP_S)") as lake:
        lake.append_arrow("t", pa.table({"id": [1, 2, 3], "x": seconds}))
        session = LakeSession(spark, lake)
        session.update("t", {"id": "id + 10"}, "true")
        session.insert("t", session.read("t"))
        assert lake.verify() == []

    values = [(11, "infinity"), (12, "-infinity"), (13, "1970-01-01 00:00:00")]
    assert rows_of(sqlite_catalog, "SELECT id, x::VARCHAR FROM t ORDER BY id") == sorted(values * 2)


VALUES_OF_ROWS = """SELECT id, partition_key_index, partition_value
    FROM __ducklake_metadata_lake.ducklake_file_partition_value
    JOIN __ducklake_metadata_lake.ducklake_data_file USING (data_file_id)
    JOIN (SELECT id, parse_filename(filename) AS name FROM t) ON path LIKE '%' || name"""
