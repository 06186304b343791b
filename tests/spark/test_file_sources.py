"""Files that users have: Parquet by the types that DuckDB reads, and why a file is refused."""

# ruff: noqa: DTZ001 - times without zone
import datetime as dt
import gzip
import os
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spark import parquet_sources
from airflow_provider_ducklake.lake.storage.parquet.modules import ModuleKind, ThriftField, read_struct
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.corpora.outcomes import Outcome, of_error
from tests.interop.lakes import alone, by_duckdb
from tests.interop.test_added_types import without_logical_type
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import rows_of
from tests.spark.test_codings import as_impala_s, edited

MOMENT = dt.datetime(2024, 1, 1, 12, 30, 0, 123456)
UUID = uuid.UUID("1c0d1f54-4643-4ef4-93f4-2989dd4ef64a")
# name → (values, a few of them NULL)
SHAPES: dict[str, pa.Array] = {
    "u8": pa.array([255, None], pa.uint8()),
    "u16": pa.array([65535, None], pa.uint16()),
    "u32": pa.array([2**32 - 1, None], pa.uint32()),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    "i8": pa.array([-128, None], pa.int8()),
    "i16": pa.array([-(2**15), None], pa.int16()),
    "f16": pa.array([1.5, None], pa.float16()),
    "t_ms": pa.array([dt.time(1, 2, 3), None], pa.time32("ms")),
    "t_us": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
    "t_ns": pa.array([3_723_000_001_000, None], pa.time64("ns")),
    "ts_ms": pa.array([dt.datetime(1969, 1, 1), None], pa.timestamp("ms")),
    "ts_us": pa.array([MOMENT, None], pa.timestamp("us")),
    "ts_ns": pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns")),
    "tz_ms": pa.array([0, None], pa.timestamp("ms", "UTC")),
    "tz_ns": pa.array([1_704_067_200_123_456_000, None], pa.timestamp("ns", "Europe/Berlin")),
    "uuid": pa.array([UUID.bytes, None], pa.uuid()),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None], pa.string())),
    "nothing": pa.nulls(2),
    "duration": pa.array([7, None], pa.duration("us")),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "category": pa.array(["a", None]).dictionary_encode(),
    "decimal": pa.array([Decimal("1.25"), None], pa.decimal128(30, 2)),
    "pair": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "keys": pa.array([[UUID.bytes], None], pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid())),
    "deep": pa.array(
        [{"at": [1_704_067_200_123_456_789]}, None], pa.struct({"at": pa.list_(pa.timestamp("ns"))})
    ),
}


LOSSY = pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns", "UTC"))


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        yield lake


def parquet(folder: Path, name: str, columns: dict[str, pa.Array], **options: Any) -> str:
    folder.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(columns), folder / name, **options)
    return str(folder / name)


def text(folder: Path, name: str, lines: str) -> str:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(lines)
    return str(folder / name)


def in_duckdb(catalog: CatalogDatabase, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the types and rows that the reference reads of the lake."""
    with open_lake(catalog) as reference:
        types = reference.sql(f"SELECT column_type FROM (DESCRIBE {query})")
        return [one for (one,) in types], reference.sql(query)


def of_file(path: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the types and rows that DuckDB reads of Parquet files."""
    query = f"SELECT * FROM read_parquet('{path}')"
    with duckdb.connect() as connection:
        types = connection.execute(f"SELECT column_type FROM (DESCRIBE {query})").fetchall()
        return [one for (one,) in types], connection.execute(query).fetchall()


def test_every_shape_has_the_type_and_values_that_duckdb_reads(session, sqlite_catalog, tmp_path):
    path = parquet(tmp_path / "in", "a.parquet", SHAPES)

    session.insert("t", {"path": path}, create_table=True)

    assert in_duckdb(sqlite_catalog, "SELECT * FROM t") == of_file(path)


@pytest.mark.parametrize("shape", ["ts_ns", "u8", "json"])
def test_a_type_does_not_depend_on_what_the_session_read_before(session, sqlite_catalog, tmp_path, shape):
    path = parquet(tmp_path / "in", "a.parquet", {shape: SHAPES[shape]})
    session.insert("before", {"path": path}, create_table=True)
    session.read("before").collect()

    session.insert("t", {"path": path}, create_table=True)

    assert in_duckdb(sqlite_catalog, "SELECT * FROM t") == of_file(path)


def test_a_users_setting_for_sources_does_not_reach_the_tables(session, lake, spark, tmp_path):
    path = parquet(tmp_path / "in", "a.parquet", {"b": pa.array([b"a"])})
    spark.conf.set("spark.sql.parquet.binaryAsString", "true")
    try:
        session.insert("t", {"path": path}, create_table=True)
        alone(lake).create_table("blobs", {"b": "blob"})
        session.insert("blobs", sql="SELECT CAST(b AS BINARY) AS b FROM s", sources={"s": {"path": path}})
        assert session.read("t").collect() == [("a",)]
        assert session.read("blobs", filter="b = '\\x61'").collect() == [(bytearray(b"a"),)]
        assert session.delete("blobs", "b = X'61'") is not None
    finally:
        spark.conf.unset("spark.sql.parquet.binaryAsString")


LATE = dt.datetime(2024, 11, 3, 5, 30)
OLD_TIMES = [dt.datetime(9999, 12, 31), MOMENT, LATE, LATE + dt.timedelta(hours=1)]


def int96(folder: Path, name: str, **more: pa.Array) -> str:
    """Write times as INT96, two of which clocks in New York show as one, on their own and below others."""
    times = pa.array([*OLD_TIMES, None], pa.timestamp("us"))
    at = times.to_pylist()
    columns = {
        "at": times,
        "list": pa.array([[one] for one in at], pa.list_(times.type)),
        "map": pa.array([[("k", one)] for one in at], pa.map_(pa.string(), times.type)),
        "struct": pa.array([{"a": one, "b": [{"c": one}]} for one in at]),
    }
    return parquet(folder, name, columns | more, use_deprecated_int96_timestamps=True)


@pytest.mark.parametrize("more", [{}, {"key": pa.nulls(5, pa.uuid())}], ids=["spark", "pyarrow"])
@pytest.mark.parametrize("rebases", [{}, {"int96RebaseMode": "CORRECTED"}])
def test_times_of_old_writers_are_those_that_duckdb_reads_in_every_zone(
    new_session, lake, sqlite_catalog, tmp_path, more, rebases
):
    path = int96(tmp_path, "a.parquet", **more)
    spark = new_session()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")

    LakeSession(spark, lake).insert("t", {"path": path, "options": rebases}, create_table=True)

    assert in_duckdb(sqlite_catalog, "SELECT * FROM t") == of_file(path)


@pytest.mark.parametrize("options", [{}, {"truncateNanoseconds": True}], ids=["spark", "pyarrow"])
def test_times_with_a_converted_type_alone_are_those_that_duckdb_reads(
    session, lake, sqlite_catalog, tmp_path, options
):
    times = pa.array([MOMENT, None], pa.timestamp("us", "UTC"))
    columns = {"at": times, "list": pa.array([[MOMENT], None], pa.list_(times.type))}
    path = parquet(tmp_path, "a.parquet", columns)
    without_logical_type(Path(path))

    session.insert("t", {"path": path, "options": options}, create_table=True)
    alone(lake).create_table("z", {"at": "timestamptz", "list": "timestamptz[]"})
    session.insert("z", {"path": path, "options": options})

    assert in_duckdb(sqlite_catalog, "SELECT * FROM t") == of_file(path)
    assert lake.read_arrow("z").column("at").to_pylist() == [MOMENT.replace(tzinfo=dt.UTC), None]


@pytest.mark.parametrize("more", [{}, {"key": pa.nulls(5, pa.uuid())}], ids=["spark", "pyarrow"])
def test_a_table_s_columns_say_whether_times_of_old_writers_are_instants(session, lake, tmp_path, more):
    alone(lake).create_table(
        "t",
        {
            "at": "timestamptz",
            "list": "timestamp[]",
            "map": "map(varchar, timestamptz)",
            "struct": "struct(a timestamp, b struct(c timestamptz)[])",
            **dict.fromkeys(more, "uuid"),
        },
    )

    session.insert("t", {"path": int96(tmp_path, "a.parquet", **more)})

    (row,) = lake.read_arrow("t", filter="at = '2024-11-03 05:30:00+00'").to_pylist()
    instant = LATE.replace(tzinfo=dt.UTC)
    assert (row["at"], row["list"], row["map"]) == (instant, [LATE], [("k", instant)])
    assert row["struct"] == {"a": LATE, "b": [{"c": instant}]}


def test_a_merge_takes_times_of_old_writers_as_instants_where_its_table_has_them(session, lake, tmp_path):
    alone(lake).create_table("t", {"id": "int64", "at": "timestamptz"})
    times = {"id": pa.array([1]), "at": pa.array([MOMENT])}
    path = parquet(tmp_path, "a.parquet", times, use_deprecated_int96_timestamps=True)

    session.merge("t", {"path": path}, on=["id"], insert_all=True)

    assert lake.read_arrow("t").to_pylist() == [{"id": 1, "at": MOMENT.replace(tzinfo=dt.UTC)}]


@pytest.mark.parametrize("more", [{}, {"key": pa.nulls(1, pa.uuid())}], ids=["spark", "pyarrow"])
def test_files_of_old_and_new_writers_hold_instants_where_one_says_so(session, lake, tmp_path, more):
    for name, type_ in (("a", pa.timestamp("us")), ("b", pa.timestamp("us", "UTC"))):
        columns = {"at": pa.array([MOMENT], type_), **more}
        parquet(tmp_path / "in", f"{name}.parquet", columns, use_deprecated_int96_timestamps=name == "a")

    session.insert("t", {"path": str(tmp_path / "in"), "format": "parquet"}, create_table=True)

    assert lake.read_arrow("t").column("at").to_pylist() == [MOMENT.replace(tzinfo=dt.UTC)] * 2


def test_times_in_spark_s_old_calendar_stay_those_that_spark_wrote(new_session, lake, tmp_path):
    writer = new_session()
    writer.conf.set("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY")
    writer.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    time = "TIMESTAMP '1001-01-01 01:02:03 UTC'"
    query = f"SELECT {time} AS at, named_struct('l', array({time})) AS deep, map('k', {time}) AS m"
    writer.sql(query).write.parquet(str(tmp_path / "in"))
    spark = new_session()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")

    LakeSession(spark, lake).insert("t", {"path": str(tmp_path / "in")}, create_table=True)

    old = dt.datetime(1001, 1, 1, 1, 2, 3)
    assert lake.read_arrow("t").to_pylist() == [{"at": old, "deep": {"l": [old]}, "m": [("k", old)]}]


def test_one_file_for_pyarrow_brings_the_others_with_it(session, sqlite_catalog, tmp_path):
    folder = tmp_path / "in"
    parquet(folder, "a.parquet", {"id": pa.array([1], pa.int32()), "at": pa.array([1], pa.timestamp("us"))})
    parquet(folder, "b.parquet", {"id": pa.array([2], pa.int64()), "at": pa.array([2], pa.timestamp("ns"))})
    parquet(folder, "c.parquet", {"at": pa.nulls(1), "other": pa.array([1])})

    session.insert("t", {"path": str(folder), "format": "parquet"}, create_table=True)

    types, rows = in_duckdb(sqlite_catalog, 'SELECT id, epoch_ns("at") FROM t ORDER BY id NULLS LAST')
    assert (types[0], rows) == ("BIGINT", [(1, 1000), (2, 2), (None, None)])


def test_files_are_merged_where_the_session_says_so(new_session, lake, tmp_path):
    parquet(tmp_path / "in", "a.parquet", {"key": SHAPES["uuid"]})
    parquet(tmp_path / "in", "b.parquet", {"key": SHAPES["uuid"], "more": pa.array([1, 2])})
    spark = new_session()
    source = {"path": f"{tmp_path}/in", "format": "parquet"}

    LakeSession(spark, lake).insert("first", source, create_table=True)
    spark.conf.set("spark.sql.parquet.mergeSchema", "true")
    LakeSession(spark, lake).insert("all", source, create_table=True)

    assert lake.read_arrow("first").column_names == ["key"]
    assert lake.read_arrow("all").column_names == ["key", "more"]


def test_columns_of_folders_are_as_spark_finds_them(session, sqlite_catalog, tmp_path):
    for day, number in (("2024-01-01", 1), ("2024-01-02", 2), ("__HIVE_DEFAULT_PARTITION__", 3)):
        key = pa.array([bytes([number] * 16)], pa.uuid())
        parquet(tmp_path / "in" / f"day={day}" / f"a b=x%20{number}", "a.parquet", {"key": key})
    parquet(tmp_path / "in", "_metadata", {"key": SHAPES["uuid"]})

    session.insert("t", {"path": f"{tmp_path}/in", "format": "parquet"}, create_table=True)

    query = """SELECT left(key::varchar, 3), day, "a b" FROM t ORDER BY 1"""
    types, rows = in_duckdb(sqlite_catalog, query)
    first, second = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
    assert types == ["VARCHAR", "DATE", "VARCHAR"]
    assert rows == [("010", first, "x 1"), ("020", second, "x 2"), ("030", None, "x 3")]


def test_the_types_of_an_existing_table_decide(session, lake, sqlite_catalog, tmp_path):
    alone(lake).create_table("t", {"at": "timestamp", "key": "varchar", "small": "int64"})
    whole = pa.array([1_704_067_200_123_456_000], pa.timestamp("ns"))
    path = parquet(tmp_path, "a.parquet", {"at": whole, "key": pa.array(["a"]), "small": SHAPES["u8"][:1]})

    session.insert("t", {"path": path})

    moment = dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
    assert in_duckdb(sqlite_catalog, "SELECT * FROM t")[1] == [(moment, "a", 255)]


def test_nanoseconds_are_lost_only_where_somebody_says_so(session, sqlite_catalog, tmp_path):
    path = parquet(tmp_path, "a.parquet", {"at": LOSSY, "local": SHAPES["ts_ns"]})

    with pytest.raises(
        errors.InvalidInputError, match=r"a\.parquet, row group 0: column at .*789.*truncateNanoseconds"
    ):
        session.insert("t", {"path": path}, create_table=True)

    options = {"truncateNanoseconds": True}
    session.insert("t", {"path": path, "options": options}, create_table=True)
    moment = dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
    assert in_duckdb(sqlite_catalog, 'SELECT "at"::timestamp, local FROM t') == (
        ["TIMESTAMP", "TIMESTAMP"],
        [(moment, moment), (None, None)],
    )


def test_a_table_keeps_nanoseconds_only_where_its_column_does(session, lake, tmp_path):
    alone(lake).create_table("t", {"ts_ns": "timestamp"})
    path = parquet(tmp_path, "a.parquet", {"ts_ns": SHAPES["ts_ns"]})

    with pytest.raises(
        errors.InvalidInputError, match=r"column ts_ns has a value that timestamp does not hold.*timestamp_ns"
    ):
        session.insert("t", {"path": path})


def test_a_query_sees_what_pyarrow_reads(session, sqlite_catalog, tmp_path):
    path = parquet(tmp_path, "a.parquet", {"uuid": SHAPES["uuid"], "at": SHAPES["ts_ns"]})

    session.insert(
        "t",
        sql="SELECT uuid, CAST(at AS TIMESTAMP_NTZ) AS at FROM s WHERE uuid IS NOT NULL",
        sources={"s": {"path": path}},
        create_table=True,
    )

    types, rows = in_duckdb(sqlite_catalog, "SELECT * FROM t")
    assert (types, rows) == (["UUID", "TIMESTAMP"], [(UUID, dt.datetime(2024, 1, 1, 0, 0, 0, 123456))])


def test_big_files_are_read_by_several_tasks(session, sqlite_catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_sources, "_TASK_BYTES", 1000)
    keys = pa.array([bytes([number % 256] * 16) for number in range(1000)], pa.uuid())
    path = parquet(tmp_path, "a.parquet", {"key": keys, "n": pa.array(range(1000))}, row_group_size=100)

    session.insert("t", {"path": path}, create_table=True)

    assert in_duckdb(sqlite_catalog, "SELECT count(DISTINCT key), sum(n) FROM t")[1] == [(256, 499_500)]


NOTHING = {
    "alone": pa.nulls(2),
    "list": pa.array([[None], []], pa.list_(pa.null())),
    "struct": pa.array([{"a": None}, None], pa.struct([("a", pa.null())])),
}


def test_columns_without_a_type_become_what_duckdb_makes_of_them(session, lake, sqlite_catalog, tmp_path):
    path = parquet(tmp_path, "a.parquet", NOTHING)
    rows = pq.read_table(path)

    session.insert("of_spark", {"path": path}, create_table=True)
    with lake.transaction() as tx:
        tx.create_table("of_arrow", rows.schema)
        tx.create_table("of_files", rows.schema)
        tx.add_data_files("of_files", [path])
    lake.append_arrow("of_arrow", rows)

    for table in ("of_spark", "of_arrow", "of_files"):
        assert in_duckdb(sqlite_catalog, f"SELECT * FROM {table}") == of_file(path)
        assert session.read(table).toArrow().to_pylist() == lake.read_arrow(table).to_pylist()
        assert lake.read_arrow(table).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("more", [{}, {"key": pa.nulls(2, pa.uuid())}], ids=["spark", "pyarrow"])
def test_columns_without_a_type_go_into_columns_of_any(session, lake, tmp_path, more):
    types = {"alone": "struct(a uuid)", "list": "interval[]", "struct": "struct(a varchar)"}
    alone(lake).create_table("t", types | dict.fromkeys(more, "uuid"))
    path = parquet(tmp_path, "a.parquet", NOTHING | more)

    session.insert("t", {"path": path})
    lake.append_arrow("t", pq.read_table(path))

    rows = pq.read_table(path).to_pylist()
    assert lake.read_arrow("t").to_pylist() == rows * 2


def test_a_column_without_a_type_in_the_first_file_has_that_of_the_second(session, lake, tmp_path):
    parquet(tmp_path / "in", "a.parquet", {"x": pa.nulls(1)})
    parquet(tmp_path / "in", "b.parquet", {"x": pa.array(["b"])})

    session.insert("t", {"path": str(tmp_path / "in"), "format": "parquet"}, create_table=True)

    assert lake.read_arrow("t").sort_by("x").to_pylist() == [{"x": "b"}, {"x": None}]


# --- why a source cannot be read


def cut(path: str) -> None:
    os.truncate(path, Path(path).stat().st_size - 1)


def scrambled(path: str) -> None:
    with Path(path).open("r+b") as file:
        file.seek(4000)
        file.write(os.urandom(800))


@pytest.mark.parametrize(
    ("harm", "columns", "message"),
    [
        (cut, {}, "{path} is damaged: .*is not a Parquet file"),
        (scrambled, {}, r"{path} is damaged: could not read page .* in col \[n\]"),
        (scrambled, {"key": pa.nulls(9000, pa.uuid())}, "{path}, row group 0: "),  # read by PyArrow
    ],
)
def test_a_harmed_parquet_file_is_named(session, tmp_path, harm, columns, message):
    columns = {"n": pa.array(range(9000)), **columns}
    path = parquet(tmp_path, "a.parquet", columns, use_dictionary=False, compression="snappy")
    harm(path)

    with pytest.raises(errors.InvalidInputError, match=f"source cannot be read: {message.format(path=path)}"):
        session.insert("t", {"path": path}, create_table=True)


def shortened(path: str) -> None:
    """Write a page that ends before its last indexes."""
    as_impala_s(Path(path), "parquet-mr")


def misplaced(path: str) -> None:
    """Write a page whose indexes are of no value."""
    pq.write_table(pa.table({"x": ["a", "b", "c", "a"]}), path, compression="none")
    data = bytearray(Path(path).read_bytes())
    header, end = read_struct(bytes(data), pq.read_metadata(path).row_group(0).column(0).data_page_offset)
    data[end + header[3].value - 2] = 0xFF  # four indexes of two bits
    Path(path).write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        pytest.param(
            shortened,
            "it ends too early",
            marks=pytest.mark.classic_only("a server sends no causes where one of them has no message"),
        ),
        pytest.param(
            misplaced,
            "its pages are not what its footer says",
            marks=pytest.mark.classic_only("Spark names no file, and a server no class"),
        ),
    ],
)
def test_what_a_reader_of_damaged_bytes_stumbles_over_is_said_in_words(session, tmp_path, harm, message):
    path = str(tmp_path / "a.parquet")
    harm(path)

    with pytest.raises(
        errors.InvalidInputError, match=f"source cannot be read: .*{path}(?:, which)? is damaged: {message}"
    ) as caught:
        session.insert("t", {"path": path}, create_table=True)

    assert of_error(caught.value)[0] is Outcome.REFUSED


def test_a_group_without_fields_is_named(session, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "deep": [{"empty": {"gone": 1}, "a": 1}]}), path)

    def without_fields(footer: Any) -> None:
        elements = footer[2].value.values
        (place,) = [place for place, one in enumerate(elements) if one[4].value == b"gone"]
        del elements[place]
        elements[place - 1][5] = ThriftField(ModuleKind.I32, 0)
        del footer[4].value.values[0][1].value.values[1]
        footer[5].value.values.clear()

    edited(path, without_fields)

    with pytest.raises(errors.InvalidTypeError, match=r"column deep\.empty is a struct without fields"):
        session.insert("t", str(path), create_table=True)
    session.insert("t", sql="SELECT id FROM s", sources={"s": str(path)}, create_table=True)
    assert session.read("t").collect() == [(1,)]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        (
            "a.csv",
            "id,day\n1,2024-01-02\n2,31.12.2024\n",
            "a.csv, line 3: column day has '31.12.2024', which is not a valid date",
        ),
        (
            "a.csv",
            "id,day\n1,2024-01-02,9\n",
            "a.csv, line 2: '1,2024-01-02,9' has 3 fields where the header, or the first record, has 2: id",
        ),
        (
            "a.csv",
            'day,id\n"2024-01-02",1\n"a ""b"", c",2\n',
            "a.csv, line 3: column day has 'a \"b\", c', which is not a valid date",
        ),
        (
            "a.json",
            '{"id":1}\n\n{"id":"x"}\n',
            "a.json, line 3: column id has 'x', which is not a valid int64",
        ),
        ("a.json", '{"id":1}\n{"id":2,\n', "a.json, line 2: '{\"id\":2,' is no record"),
        (
            "a.csv",
            "1,2024-01-02\n2,2024-01-03\n",
            "names no column of the table. Set the option header to false",
        ),
    ],
)
def test_a_malformed_record_is_named(session, lake, tmp_path, name, lines, message):
    alone(lake).create_table("t", {"id": "int64", "day": "date"})
    path = text(tmp_path, name, lines)

    with pytest.raises(errors.InvalidInputError, match=re.escape(message)) as caught:
        session.insert("t", {"path": path})

    assert "PERMISSIVE" not in str(caught.value)
    assert lake.read_arrow("t").num_rows == 0


def test_a_malformed_record_in_a_compressed_file_is_named(session, lake, tmp_path):
    alone(lake).create_table("t", {"id": "int64"})
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"id\n1\nx\n"))

    with pytest.raises(errors.InvalidInputError, match="line 3: column id has 'x'"):
        session.insert("t", {"path": str(path), "format": "csv"})


def test_a_doubled_quote_in_a_csv_is_one(session, lake, tmp_path):
    path = text(tmp_path, "a.csv", 'name,note\n"W. ""Bud"" Barron","a\\"\n')

    session.insert("t", {"path": path}, create_table=True)

    assert lake.read_arrow("t").to_pylist() == [{"name": 'W. "Bud" Barron', "note": "a\\"}]


def test_types_of_duckdb_s_files_that_neither_spark_nor_pyarrow_has(session, sqlite_catalog, tmp_path):
    path = str(tmp_path / "a.parquet")
    values = (
        "interval 1 day + interval 2 month AS i, time '01:02:03'::timetz AS t, 'POINT(1 2)'::geometry AS g"
    )
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {values} UNION ALL SELECT NULL, NULL, NULL) TO '{path}'")

    session.insert("t", {"path": path}, create_table=True)

    query = "SELECT i, t::varchar, g::varchar FROM {} ORDER BY ALL"
    types, _ = in_duckdb(sqlite_catalog, "SELECT * FROM t")
    assert types[:2] == ["INTERVAL", "TIME WITH TIME ZONE"]
    assert types[2].startswith("GEOMETRY")
    with duckdb.connect() as connection:
        expected = connection.execute(query.format(f"read_parquet('{path}')")).fetchall()
    assert in_duckdb(sqlite_catalog, query.format("t"))[1] == expected


def test_a_csv_without_header_is_read_by_position(session, lake, sqlite_catalog, tmp_path):
    alone(lake).create_table("t", {"id": "int64", "day": "date"})
    path = text(tmp_path, "a.csv", "1,2024-01-02\n")

    session.insert("t", {"path": path, "options": {"header": False}})

    assert in_duckdb(sqlite_catalog, "SELECT * FROM t")[1] == [(1, dt.date(2024, 1, 2))]
    path = text(tmp_path, "b.csv", "1,2024-01-02,3\n")
    with pytest.raises(errors.InvalidInputError, match="has 3 columns and no header, and the table has 2"):
        session.insert("t", {"path": path, "options": {"header": False}})


def test_what_a_row_says_is_no_trace_of_a_reader(session, tmp_path):
    forged = "x\n\tat org.apache.parquet.Reader.read(Reader.java:1)"
    path = parquet(tmp_path, "a.parquet", {"text": pa.array([f"java.lang.Error: {forged}"])})

    with pytest.raises(errors.SparkJobError) as caught:
        session.insert(
            "t",
            sql="SELECT CAST(raise_error(text) AS int) AS a FROM s",
            sources={"s": {"path": path}},
            create_table=True,
        )
    assert "cannot be read" not in str(caught.value)


def test_decimals_that_no_lake_has_are_refused(session, tmp_path):
    path = parquet(tmp_path, "a.parquet", {"d": pa.array([Decimal(1)], pa.decimal256(50, 2))})

    with pytest.raises(
        errors.InvalidInputError,
        match=r"source cannot be read: .*decimal256\(50, 2\), which DuckLake cannot store",
    ):
        session.insert("t", {"path": path}, create_table=True)


def test_a_missing_file_is_still_one_that_may_come(session, tmp_path):
    with pytest.raises(errors.SourceNotFoundError):
        session.insert("t", {"path": f"{tmp_path}/no.parquet"}, create_table=True)


FOLDERS = {
    "VARCHAR": ("007", "2024-01-01", "1.50", "true", "NULL", "__HIVE_DEFAULT_PARTITION__", "c%20d"),
    "INTEGER": ("7", "08", "-1", "NULL"),
    "DECIMAL(9,2)": ("1.50", "2"),
    "DATE": ("2024-01-01", "0001-01-01"),
    "TIMESTAMP": ("2024-01-01 10%3A00%3A00", "2024-01-01"),
    "DOUBLE": ("1e3", "2"),
}


@pytest.mark.parametrize("type_", FOLDERS)
def test_values_of_folders_are_those_of_added_files(spark, sqlite_catalog, tmp_path, type_):
    source = tmp_path / "in"
    for place, text in enumerate(FOLDERS[type_]):
        (source / f"k={text}").mkdir(parents=True)
        pq.write_table(pa.table({"v": [place]}), source / f"k={text}" / "a.parquet")
    with open_lake(sqlite_catalog) as reference:
        for name in ("t", "added"):
            reference.sql(f"CREATE TABLE {name} (k {type_}, v BIGINT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url, foreign_files=True) as lake:
        LakeSession(spark, lake).insert("t", str(source))
        with lake.transaction() as tx:
            paths = [f"{source}/k={text}/a.parquet" for text in FOLDERS[type_]]
            tx.add_data_files("added", paths, hive_partitioning=True)

    assert rows_of(sqlite_catalog, "FROM t ORDER BY v") == rows_of(sqlite_catalog, "FROM added ORDER BY v")


@pytest.mark.parametrize(
    "folders", [("a=1/b=2", "b=2/a=1"), ("a=1", "a=1/b=2"), ("a=", "a=1"), ("a=x", "a=y")]
)
def test_folders_of_which_spark_makes_no_columns_are_refused_for_good(
    spark, sqlite_catalog, tmp_path, folders
):
    for one in folders:
        (tmp_path / "in" / one).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"v": [1]}), tmp_path / "in" / one / "x.parquet")
    by_duckdb(sqlite_catalog, "CREATE TABLE t (a INTEGER, b INTEGER, v BIGINT)")
    with (
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        pytest.raises(errors.InvalidInputError, match=r"cannot be read: the folder"),
    ):
        LakeSession(spark, lake).insert("t", str(tmp_path / "in"))
