"""Which files stay, and which new rows replace, by statistics and partition values read with care."""

import math

import pytest

from airflow_provider_ducklake.lake.format.files import ColumnStats, LiveDataFile, MappedColumn
from airflow_provider_ducklake.lake.format.partitioning import (
    PartitionField,
    PartitionSpec,
    Transform,
    bucket,
)
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.reading.pruning import all_match, file_may_match
from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
from airflow_provider_ducklake.lake.sql.predicate import read_predicate


def stays(type_: str, where: str, *, transform=None, value=None, mapping=None, path="/a.parquet", **stats):
    schema = new_columns({"c": type_})
    spec = PartitionSpec((PartitionField(1, Transform.parse(transform)),), 1) if transform else None
    counts = {"value_count": 3, "null_count": 0, "min_value": None, "max_value": None} | stats
    file = LiveDataFile(
        id=1,
        path=path,
        record_count=3,
        file_size_bytes=1,
        footer_size=None,
        row_id_start=0,
        begin_snapshot=1,
        partition_id=1 if spec else None,
        mapping_id=1 if mapping is not None else None,
        mapping=mapping,
        column_stats={1: ColumnStats(1, **counts)} if stats else {},
        partition_values=(value,) if spec else (),
    )
    types = {column.id: column.type for column in schema.walk()}
    return file_may_match(read_predicate(where, schema, "t"), file, types, {1: spec} if spec else {})


BOUNDS = {"min_value": "1.0", "max_value": "2.0"}
FLOAT32_ONE_POINT_ONE = 1.10000002384185791015625


@pytest.mark.parametrize(
    ("stayed", "found"),
    [
        (True, lambda: stays("float64", "c > 5", **BOUNDS)),
        (True, lambda: stays("float64", "c = 'nan'", contains_nan=True, **BOUNDS)),
        (False, lambda: stays("float64", "c > 5", contains_nan=False, **BOUNDS)),
        (False, lambda: stays("float64", "c = 'nan'", contains_nan=False, **BOUNDS)),
        (True, lambda: stays("float64", "c > 5", contains_nan=False, mapping=(), **BOUNDS)),
        (True, lambda: stays("float64", "c = 0", contains_nan=False, min_value="-0.0", max_value="-0.0")),
        (True, lambda: once_float32("=")),
        (True, lambda: once_float32(">=")),
        (False, lambda: stays("float64", "c = 1.2", contains_nan=False, min_value="1.1", max_value="1.1")),
        (
            True,
            lambda: stays("timestamp", "c = '2024-01-31'", min_value="2024-01-31", max_value="2024-01-31"),
        ),
        (
            False,
            lambda: stays("timestamp", "c = '2024-02-01'", min_value="2024-01-31", max_value="2024-01-31"),
        ),
        (True, lambda: stays("int32", "c = 7", min_value="true", max_value="true")),
        (True, lambda: stays("json", "c = '7'", min_value="10", max_value="5")),
        (True, lambda: stays("varchar", "c = 'zz'", min_value="a", max_value="b" * 256)),
        (False, lambda: stays("varchar", "c = 'zz'", min_value="a", max_value="b" * 255)),
        (False, lambda: stays("varchar", "c LIKE 'c%'", min_value="a", max_value="bz")),
        (True, lambda: stays("varchar", "c LIKE 'b_'", min_value="a", max_value="bz")),
        (False, lambda: stays("int32", "c IS NULL", min_value="1", max_value="2")),
        (True, lambda: stays("int32", "c IS NULL", min_value="1", max_value="2", mapping=())),
        (True, lambda: stays("int32", "c IS NULL", value_count=0, null_count=0)),
        (False, lambda: stays("int32", "c IS NOT NULL", value_count=0, null_count=3)),
        (False, lambda: stays("int32", "c <> 5", min_value="5", max_value="5")),
        (True, lambda: stays("int32", "c <> 5", min_value="5", max_value="6")),
        (True, lambda: stays("int32", "c = 1")),
        (True, lambda: in_bucket("int32", 34, b"34")),  # was a uint16
        (True, lambda: in_bucket("int32", 34, (34).to_bytes(8, "little"))),
        (True, lambda: in_bucket("timestamp", "'1970-01-02 00:00:00'", (1).to_bytes(8, "little"))),  # a date
        (False, lambda: in_bucket("varchar", "'a'", b"b")),
        (False, lambda: stays("varchar", "c = 'a'", transform="bucket(8)", value=None)),
        (True, lambda: stays("timestamptz", "c = '2020-12-31 20:00:00+00'", transform="year", value="2021")),
        (False, lambda: stays("timestamp", "c = '2020-12-31 20:00:00'", transform="year", value="2021")),
        (True, lambda: stays("date", "c = '0044-03-15 (BC)'", transform="year", value="-43")),
        (False, lambda: stays("date", "c = '0044-03-15 (BC)'", transform="month", value="4")),
        (True, lambda: stays("date", "c = 'infinity'", transform="year", value=None)),
        (False, lambda: stays("date", "c = '2024-01-31'", transform="day", value="30")),
        (False, lambda: stays("time", "c = '10:00:00'", transform="hour", value="9")),
        (True, lambda: stays("timestamp", "c < '1970-01-01'", transform="year", value="1969")),
        (False, lambda: stays("varchar", "c IS NOT NULL", transform="identity", value=None)),
        (True, lambda: in_folder("c=007", "c = 7")),
        (False, lambda: in_folder("c=007", "c = 8")),
        (True, lambda: in_folder("c=__HIVE_DEFAULT_PARTITION__", "c IS NULL")),
        (False, lambda: in_folder("c=__HIVE_DEFAULT_PARTITION__", "c = 8")),
    ],
)
def test_a_file_stays_unless_no_row_can_match(stayed, found):
    assert found() is stayed


def once_float32(operator: str) -> bool:
    assert not math.isclose(FLOAT32_ONE_POINT_ONE, 1.1, rel_tol=1e-9)
    where = f"c {operator} '{FLOAT32_ONE_POINT_ONE!r}'"
    return stays("float64", where, contains_nan=False, min_value="1.1", max_value="1.1")


def in_bucket(type_: str, value: object, hashed: bytes) -> bool:
    count = 1000
    return stays(type_, f"c = {value}", transform=f"bucket({count})", value=str(bucket(hashed, count)))


def in_folder(folder: str, where: str) -> bool:
    mapping = (MappedColumn("c", 1, is_partition=True),)
    return stays("int32", where, mapping=mapping, path=f"/data/{folder}/a.parquet")


# --- which files new rows replace ---


def keys(*transforms: str) -> tuple[PartitionField, ...]:
    return tuple(PartitionField(1, Transform.parse(one)) for one in transforms)


def file_of(values: tuple[str | None, ...] = (), spec: int | None = None, **stats) -> LiveDataFile:
    counts = {"value_count": 3, "null_count": 0, "min_value": None, "max_value": None} | stats
    return LiveDataFile(
        id=1,
        path="/a.parquet",
        record_count=3,
        file_size_bytes=1,
        footer_size=None,
        row_id_start=0,
        begin_snapshot=1,
        partition_id=spec,
        column_stats={1: ColumnStats(1, **counts)} if stats else {},
        partition_values=values,
    )


def replaced(type_: str, now: str, wanted: str | None, file: LiveDataFile, older: str = "") -> bool | None:
    """Whether all rows of a file go, none of them (False), or perhaps some (None)."""
    specs = {1: PartitionSpec(keys(now), 1), 2: PartitionSpec(keys(*older.split()), 2)}
    found = Partitions(
        keys(now), frozenset({(wanted,)}), {1: new_columns({"c": type_}).columns[0].type}, specs, {}
    )
    answer = found.replaced([file])
    return True if answer.whole else None if answer.partly else False


EU = {"min_value": "eu", "max_value": "eu"}
DAYS = {"min_value": "2024-02-01", "max_value": "2024-11-30"}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (True, lambda: replaced("varchar", "identity", "eu", file_of(("eu",), 1))),
        (False, lambda: replaced("varchar", "identity", "eu", file_of(("us",), 1))),
        (True, lambda: replaced("varchar", "identity", None, file_of((None,), 1))),
        (False, lambda: replaced("varchar", "identity", None, file_of(("NULL",), 1))),
        # one value, spelled otherwise by an older type of the column
        (True, lambda: replaced("decimal(8,3)", "identity", "1.500", file_of(("1.5",), 1))),
        (True, lambda: replaced("timestamp", "identity", "2024-01-01 00:00:00", file_of(("2024-01-01",), 1))),
        (True, lambda: replaced("float64", "identity", "0.5", file_of(("0.5",), 1))),
        (None, lambda: replaced("float64", "identity", "0.10000000149011612", file_of(("0.1",), 1))),
        (False, lambda: replaced("float64", "identity", "0.25", file_of(("0.1",), 1))),
        # a value that is none
        (None, lambda: replaced("int32", "identity", "5", file_of(("x",), 1))),
        (None, lambda: replaced("date", "month", "5", file_of(("May",), 1))),
        (True, lambda: replaced("date", "month", "5", file_of(("05",), 1))),
        # other keys, or none
        (None, lambda: replaced("varchar", "identity", "eu", file_of())),
        (True, lambda: replaced("varchar", "identity", "eu", file_of(**EU))),
        (
            None,
            lambda: replaced(
                "varchar", "identity", "eu", file_of(**EU | {"null_count": 1, "value_count": 2})
            ),
        ),
        (False, lambda: replaced("varchar", "identity", "us", file_of(**EU))),
        (True, lambda: replaced("date", "year", "2024", file_of(**DAYS))),
        (False, lambda: replaced("date", "year", "2025", file_of(**DAYS))),
        (None, lambda: replaced("date", "month", "5", file_of(**DAYS))),
        (True, lambda: replaced("date", "month", "5", file_of(("2024-05-06",), 2), "identity")),
        (False, lambda: replaced("date", "month", "6", file_of(("2024-05-06",), 2), "identity")),
        (True, lambda: replaced("date", "year", "2024", file_of(("5", "2024"), 2), "month year")),
        (False, lambda: replaced("date", "year", "2025", file_of(("5", "2024"), 2), "month year")),
        (None, lambda: replaced("date", "year", "2024", file_of(("5",), 2), "month")),
        (None, lambda: replaced("int32", "bucket(4)", "1", file_of(("1",), 2), "bucket(8)")),
        (
            None,
            lambda: replaced("varchar", "identity", "eu", file_of(("eu",), 7)),
        ),  # keys that we do not know
    ],
)
def test_a_file_goes_stays_or_cannot_be_told(answer, found):
    assert found() is answer


ONE_TO_THREE = {"min_value": "1", "max_value": "3"}
SOME_NULL = {"null_count": 1, "value_count": 2}


@pytest.mark.parametrize(
    ("where", "stats", "answer"),
    [
        ("c >= 1", ONE_TO_THREE, True),
        ("c > 1", ONE_TO_THREE, False),
        ("c >= 1", ONE_TO_THREE | SOME_NULL, False),
        ("c >= 1 OR c IS NULL", ONE_TO_THREE | SOME_NULL, False),  # each part holds for some rows only
        ("c BETWEEN 0 AND 5 AND c <> 9", ONE_TO_THREE, True),
        ("c IN (1, 2, 3)", ONE_TO_THREE, False),
        ("c IN (2, 3)", {"min_value": "2", "max_value": "2"}, True),
        ("c NOT IN (4, 5)", ONE_TO_THREE, True),
        ("c IS NULL", {"null_count": 3, "value_count": 0}, True),
        ("c IS NOT NULL", ONE_TO_THREE, True),
        ("c >= 1", {}, False),
    ],
)
def test_a_filter_covers_a_file_only_where_statistics_say_so(where, stats, answer):
    schema = new_columns({"c": "int32"})
    types = {1: schema.columns[0].type}

    assert all_match(read_predicate(where, schema, "t"), file_of(**stats), types, {}) is answer
