"""Which files new rows replace, told by partition values of any keys, and by statistics."""

import pytest

from airflow_provider_ducklake.lake.format.files import ColumnStats, LiveDataFile
from airflow_provider_ducklake.lake.format.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.reading.pruning import all_match
from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
from airflow_provider_ducklake.lake.sql.predicate import read_predicate


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
