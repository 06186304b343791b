"""Types of added files: what we take, the reference takes too; its statistics and rows are the same."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SchemaMismatchError
from tests.interop.lakes import alone
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake

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
