"""Types of added files: what we take, the reference takes too; its statistics and rows are the same."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SchemaMismatchError, UnsupportedFeatureError
from tests.interop.comparison import multiset
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake
from tests.spark.test_codings import edited

MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001 - a timestamp without zone
FILES = {
    "bool": pa.array([True, None]),
    **{str(type_()): pa.array([1, None, 100], type_()) for type_ in (pa.int8, pa.int16, pa.int32, pa.int64)},
    **{str(type_()): pa.array([1, 255], type_()) for type_ in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)},
    "text": pa.array(["b", "a", None]),
    "large": pa.array(["b", "a"], pa.large_string()),
    "category": pa.array(["b", "a", "b"]).dictionary_encode(),
    "bytes": pa.array([b"\x00\xff", b""]),
    "fixed": pa.array([b"x" * 16], pa.binary(16)),
    "uuid": pa.array([UUID(int=5).bytes], pa.uuid()),
    "json": pa.array(['{"a": 1}'], pa.json_()),
    "date": pa.array([date(2020, 1, 2), date(1, 1, 1)]),
    "time_ms": pa.array([time(1, 2, 3)], pa.time32("ms")),
    "time_us": pa.array([time(1, 2, 3, 4)], pa.time64("us")),
    "time_ns": pa.array([1], pa.time64("ns")),
    "ms": pa.array([MOMENT], pa.timestamp("ms")),
    "us": pa.array([MOMENT], pa.timestamp("us")),
    "whole_us": pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("us")),
    "ns": pa.array([MOMENT], pa.timestamp("ns")),
    "int96": pa.array([MOMENT, None], pa.timestamp("us")),
    "zone_ms": pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ms", "UTC")),
    "zone_us": pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "zone_ns": pa.array([-1001, None, 1_600_000_000_123_456_789], pa.timestamp("ns", "UTC")),
    "null": pa.nulls(2),
    "decimal": pa.array([Decimal("1.50"), Decimal("-7.25")], pa.decimal128(5, 2)),
    "large_decimal": pa.array([Decimal("1.5")], pa.decimal128(20, 2)),
}
COLUMNS = {
    **{f"int{bits}": sql for bits, sql in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INT"), (64, "BIGINT"))},
    **{
        f"uint{bits}": sql
        for bits, sql in ((8, "UTINYINT"), (16, "USMALLINT"), (32, "UINTEGER"), (64, "UBIGINT"))
    },
    "float32": "FLOAT",
    "float64": "DOUBLE",
    **{
        one: one
        for one in (
            *("boolean", "varchar", "json", "blob", "uuid", "date", "time", "timestamp", "timestamptz"),
            *(
                "timestamp_s",
                "timestamp_ms",
                "timestamp_ns",
                "decimal(5,2)",
                "decimal(18,3)",
                "decimal(38,3)",
            ),
        )
    },
}
WITHOUT_BOUNDS = {("ms", "timestamp_s"), ("us", "timestamp_s")}  # read as whole seconds: they are no bounds
SPELLED_OTHERWISE = {  # ours are the texts that the reference has for files of its own
    ("bool", "boolean"),
    ("bytes", "blob"),
    ("fixed", "blob"),
    ("decimal", "decimal(18,3)"),
    ("decimal", "decimal(38,3)"),
    ("large_decimal", "decimal(38,3)"),
}
NO_VALUE = {("null", "int32"), ("null", "int64")}  # we say so, and the reference does not know
BOUNDS = ("value_count", "null_count", "min_value", "max_value")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    for name, column in product(FILES, COLUMNS):
        old = {"use_deprecated_int96_timestamps": True} if name == "int96" else {}
        (tmp_path / column).mkdir(exist_ok=True)
        pq.write_table(pa.table({"v": FILES[name]}), tmp_path / column / f"{name}.parquet", **old)
    return tmp_path


def taken_by_us(lake: Lake, theirs: Path) -> list[tuple[str, str]]:
    taken = []
    for place, column in enumerate(COLUMNS):
        alone(lake).create_table(f"t{place}", {"v": column})
        for name in FILES:
            try:
                alone(lake).add_data_files(f"t{place}", [f"{theirs}/{column}/{name}.parquet"])
            except SchemaMismatchError:
                continue
            taken.append((name, column))
    return taken


def statistics(dump) -> dict[tuple[str, str], tuple]:
    names = {row["data_file_id"]: row["path"].rpartition("/")[2] for row in dump["ducklake_data_file"]}
    columns = dict(enumerate(COLUMNS, start=1))
    return {
        (names[row["data_file_id"]].removesuffix(".parquet"), columns[row["table_id"]]): tuple(
            row[key] for key in BOUNDS
        )
        for row in dump["ducklake_file_column_stats"]
    }


def test_what_is_taken_is_read_as_the_reference_reads_it(new_catalog, theirs):
    ours, reference = new_catalog("sqlite"), new_catalog("sqlite")
    with Lake.create(ours.sqlalchemy_url, ours.data_path) as lake:
        taken = taken_by_us(lake, theirs)
    with open_lake(reference) as duck:
        for place, (column, sql) in enumerate(COLUMNS.items()):
            duck.sql(f"CREATE TABLE t{place} (v {sql})")
            for name in (name for name, into in taken if into == column):
                duck.sql(
                    f"CALL ducklake_add_data_files('lake', 't{place}', '{theirs}/{column}/{name}.parquet')"
                )
        expected = [duck.sql(f"SELECT v::VARCHAR FROM t{place} ORDER BY 1") for place in range(len(COLUMNS))]

    assert {name for name, _ in taken} == FILES.keys() - {"time_ms", "time_ns"}
    mine, reference_has = statistics(dump_catalog(ours)), statistics(dump_catalog(reference))
    differing = {one for one in taken if mine[one] != reference_has[one]}
    assert differing == WITHOUT_BOUNDS | SPELLED_OTHERWISE | NO_VALUE
    with open_lake(ours) as duck:
        for place, rows in enumerate(expected):
            assert duck.sql(f"SELECT v::VARCHAR FROM t{place} ORDER BY 1") == rows
            for (text,) in set(rows) - {(None,)}:
                same = f"SELECT count(*) FROM t{place} WHERE v = '{text}'::{COLUMNS[list(COLUMNS)[place]]}"
                assert duck.sql(same) == [(rows.count((text,)),)], same


def test_rounded_times_are_found_whatever_the_bounds_of_their_file_say(catalog, tmp_path):
    """DuckDB adds a file of finer times with its bounds, and rounds its values when it reads them."""
    moments = ["01:00:01.499", "01:00:01.5", "01:00:01.999999", "01:00:02.000499"]
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path)
    alone(lake).create_table("t", {"s": "timestamp_s", "ms": "timestamp_ms"})
    with open_lake(catalog) as duck:
        for number, text in enumerate(moments):
            path = tmp_path / f"{number}.parquet"
            values = pa.array([f"{day} {text}" for day in ("1969-12-31", "2020-01-01")]).cast(
                pa.timestamp("us")
            )
            pq.write_table(pa.table({"s": values, "ms": values}), path)
            duck.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}')")
        conditions = [
            f"{column} {operator} '{value}'"
            for column in ("s", "ms")
            for (value,) in set(duck.sql(f"SELECT {column}::varchar FROM t"))
            for operator in ("=", "<", "<=", ">", ">=")
        ]
        expected = [sorted(duck.sql(f"SELECT s, ms FROM t WHERE {one}")) for one in conditions]

    with lake:
        found = [lake.read_arrow("t", filter=one).to_pylist() for one in conditions]
    assert [sorted(tuple(row.values()) for row in rows) for rows in found] == expected


# INT96, the timestamps of Hive, Impala and old Spark: all years, and microseconds, as DuckDB has them.


VALUES = [  # sentinels beyond what nanoseconds hold, 1677 to 2262
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - the type has no zone
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001
    None,
]


def without_logical_type(path):
    """Leave timestamps in a file the converted type alone, as old writers do: DuckDB sees no zone then."""

    def edit(footer):
        for element in footer[2].value.values:
            element.pop(10, None)

    edited(path, edit)


def write_int96(path, values=VALUES, unit="us"):
    rows = pa.table({"id": range(len(values)), "at": pa.array(values, pa.timestamp(unit))})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(path).row_group(0).column(1).physical_type == "INT96"


@pytest.mark.parametrize("nested", [False, True])
def test_all_years_are_read_as_the_reference_reads_them(sqlite_catalog, tmp_path, nested):
    path = tmp_path / "a.parquet"
    write_int96(path)
    if nested:
        rows = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        held = pa.StructArray.from_arrays([rows["at"].combine_chunks()], ["at"])
        pq.write_table(pa.table({"id": rows["id"], "s": held}), path, use_deprecated_int96_timestamps=True)
    column = 's STRUCT("at" TIMESTAMP)' if nested else '"at" TIMESTAMP'
    by_duckdb(sqlite_catalog, f"CREATE TABLE t (id BIGINT, {column})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        alone(lake).add_data_files("t", [str(path)])
        at = "s.at" if nested else "at"

        for where in (
            None,
            f"{at} = '9999-12-31 23:59:59.999999'",
            f"{at} < '1700-01-01'",
            f"{at} IS NULL",
            "id = 2",
        ):
            condition = (
                "" if where is None else f" WHERE {where.replace('at ', chr(34) + 'at' + chr(34) + ' ')}"
            )
            with open_lake(sqlite_catalog) as duck:
                theirs = duck.arrow(f"FROM t{condition}")
            assert multiset(lake.read_arrow("t", filter=where)) == multiset(theirs), where
        assert lake.read_arrow("t").num_rows == 4

        alone(lake).delete_rows("t", f"{at} < '1700-01-01'")
        assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [0, 2, 3]
        assert by_duckdb(sqlite_catalog, "SELECT id FROM t ORDER BY id") == [(0,), (2,), (3,)]


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NS"])
def test_nanoseconds_are_cut_to_microseconds(sqlite_catalog, tmp_path, type_):
    path = tmp_path / "a.parquet"
    write_int96(path, [1234567890123456789, -1], "ns")
    by_duckdb(
        sqlite_catalog,
        f'CREATE TABLE t (id BIGINT, "at" {type_})',
        f"CALL ducklake_add_data_files('lake', 't', '{path}')",
    )

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, open_lake(sqlite_catalog) as duck:
        assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_times_with_a_converted_type_alone_have_no_zone_as_for_the_reference(sqlite_catalog, tmp_path, unit):
    path, instants = tmp_path / "a.parquet", [one and one.replace(tzinfo=UTC) for one in VALUES]
    times = pa.array(instants, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    pq.write_table(pa.table({"id": range(4), "at": times}), path, store_schema=False)
    without_logical_type(path)
    by_duckdb(
        sqlite_catalog,
        f"CREATE TABLE t AS FROM '{path}' LIMIT 0",
        'CREATE TABLE z (id INT, "at" TIMESTAMPTZ)',
    )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        is_refused = pytest.raises(SchemaMismatchError, match="which DuckDB reads as timestamp")
        with is_refused, lake.transaction() as tx:
            tx.add_data_files("z", [str(path)])
        alone(lake).add_data_files("t", [str(path)])

        with open_lake(sqlite_catalog) as duck:
            duck.sql("SET TimeZone = 'America/New_York'")
            assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))
            assert duck.sql("SELECT id FROM t WHERE \"at\" < '1700-01-01'") == [(1,)]
        assert lake.read_arrow("t", filter="at < '1700-01-01'").column("id").to_pylist() == [1]
        assert lake.verify() == []


# Files of old writers whose values DuckDB reads as others, or not at all, are not added.


VERSION, OLD_DATES, OLD_INT96 = (
    f"org.apache.spark.{one}" for one in ("version", "legacyDateTime", "legacyINT96")
)
SPARKS = {"Spark 2": {VERSION: "2.4.8"}, "Spark 3, old dates": {VERSION: "3.5.0", OLD_DATES: ""}}
FIRST = {
    "date": date(1582, 10, 15),
    "timestamp": datetime(1900, 1, 1),  # noqa: DTZ001
    "timestamptz": datetime(1900, 1, 1, tzinfo=UTC),
}
BEFORE = {
    "date": date(1582, 10, 14),
    "timestamp": datetime(1899, 12, 31),  # noqa: DTZ001
    "timestamptz": datetime(1899, 12, 31, tzinfo=UTC),
}
ARROW = {"date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC")}


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True) as lake:
        yield lake


def given(folder, array, said, **options):
    rows = pa.table({"c": array}).replace_schema_metadata(said)
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(rows, path, **options)
    return [str(path)]


def add(lake, type_, paths):
    with lake.transaction() as tx:
        tx.create_table("t", {"c": type_}, or_replace=True)
        tx.add_data_files("t", paths)
    return lake.read_arrow("t").num_rows


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("type_", FIRST)
def test_values_of_the_old_calendar_are_not_added(lake, tmp_path, type_, spark, is_nested):
    arrow = pa.list_(ARROW[type_]) if is_nested else ARROW[type_]
    wanted = f"{type_}[]" if is_nested else type_

    def paths(value):
        values = [value, None, FIRST[type_]]
        return given(tmp_path, pa.array([values] if is_nested else values, arrow), SPARKS[spark])

    assert add(lake, wanted, paths(FIRST[type_]))
    assert add(lake, wanted, paths(None))
    with pytest.raises(
        SchemaMismatchError, match=rf"before {FIRST[type_]:%Y-%m-%d}.*insert the rows with Spark"
    ):
        add(lake, wanted, paths(BEFORE[type_]))


@pytest.mark.parametrize("said", [SPARKS["Spark 2"], {VERSION: "4.2.0", OLD_INT96: ""}])
def test_int96_of_the_old_calendar_has_its_values_read(lake, tmp_path, said):
    def paths(*values, said=said):
        array = pa.array(values, pa.timestamp("us"))
        return given(tmp_path, array, said, use_deprecated_int96_timestamps=True)

    assert add(lake, "timestamp", paths(datetime(1900, 1, 1), datetime(2024, 5, 1), None))  # noqa: DTZ001
    assert add(lake, "timestamp", paths(None))
    assert add(lake, "timestamp", paths(datetime(1, 1, 1), said={VERSION: "4.2.0"}))  # noqa: DTZ001
    with pytest.raises(SchemaMismatchError, match=r"before 1900-01-01 00:00:00 .0001-01-01"):
        add(lake, "timestamp", paths(datetime(2024, 5, 1), datetime(1, 1, 1)))  # noqa: DTZ001


@pytest.mark.parametrize("said", [{}, {VERSION: "3.5.0"}, {VERSION: "4.2.0", OLD_INT96: ""}])
def test_old_values_of_the_calendar_of_today_are_added(lake, tmp_path, said):
    for type_, value in BEFORE.items():
        assert add(lake, type_, given(tmp_path, pa.array([value], ARROW[type_]), said))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_a_wrong_flag_are_not_added(lake, tmp_path, codec, version):
    array = pa.array(range(1000), pa.int64())
    (path,) = given(tmp_path, array, None, data_page_version=version, compression=codec, use_dictionary=False)
    data = Path(path).read_bytes()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin, writer = chunk.data_page_offset, pq.ParquetFile(path).metadata.created_by
    header = data[begin : begin + 40]
    if version == "2.0" and codec != "none":  # is_compressed, by the thrift of the header
        header = header.replace(b"\x15\x00\x11", b"\x15\x00\x12", 1)
        assert header != data[begin : begin + 40]
    data = data[:begin] + header + data[begin + 40 :]
    old = "parquet-cpp version 1.5.1-SNAPSHOT"[: len(writer)].ljust(len(writer), "T")
    Path(path).write_bytes(data.replace(writer.encode(), old.encode()))

    try:
        is_read = duckdb.sql(f"SELECT sum(c) FROM '{path}'").fetchall() == [(499500,)]
    except duckdb.Error:
        is_read = False
    if is_read:
        assert add(lake, "int64", [path]) == 1000
    else:
        with pytest.raises(UnsupportedFeatureError, match="its compressed pages say that they are not"):
            add(lake, "int64", [path])
    assert is_read == (version == "1.0" or codec == "none")
