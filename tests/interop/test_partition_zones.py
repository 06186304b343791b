"""Tables whose partition values DuckDB clients took in the time zones of their sessions: not trusted."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.storage.arrow.rows import partition_of_rows
from tests.interop.compacting import merge_adjacent, rewrite
from tests.interop.lakes import alone
from tests.reference.duckdb_lake import open_lake

ZONES = ("Asia/Tokyo", "America/New_York", "Australia/Lord_Howe", "UTC")
CALENDAR = ("year(ts)", "month(ts)", "day(ts)", "hour(ts)")
# around the ends of a year, of days, and of a night that has an hour twice; a row's id is its place
MOMENTS = (
    *("2023-12-31 20:00:00", "2024-01-01 02:00:00", "2024-05-04 20:00:00", "2024-05-05 01:00:00"),
    *("2024-05-05 20:00:00", "2024-11-03 05:30:00", "2024-11-03 06:30:00", "1969-12-31 23:30:00"),
    *("1500-01-01 00:30:00", "0044-03-15 (BC) 23:30:00"),
)
ENDLESS = "(100, NULL), (101, 'infinity'), (102, '-infinity')"


def make_table(
    catalog,
    zone: str,
    keys: Sequence[str],
    *,
    at_once: bool,
    inlined: int = 0,
    moments: Sequence[str] = MOMENTS,
) -> None:
    """Make a table `t` of a client in that zone: each row a statement, or all of them one."""
    rows = [f"({number}, '{moment}+00')" for number, moment in enumerate(moments)]
    with open_lake(catalog, data_inlining_row_limit=inlined) as reference:
        reference.sql(f"SET TimeZone = '{zone}'")
        reference.sql("CREATE TABLE t (id INTEGER, ts TIMESTAMPTZ)")
        reference.sql(f"ALTER TABLE t SET PARTITIONED BY ({', '.join(keys)})")
        for values in [", ".join([*rows, ENDLESS])] if at_once else [*rows, ENDLESS]:
            reference.sql(f"INSERT INTO t VALUES {values}")


def ids(lake: Lake, where: str | None = None) -> list[int]:
    return sorted(lake.read_arrow("t", filter=where)["id"].to_pylist())


def deleted(lake: Lake, where: str) -> int:
    return alone(lake).delete_rows("t", where)


def assert_filters_find_all(lake: Lake) -> None:
    for number, moment in enumerate(MOMENTS):
        assert ids(lake, f"ts = TIMESTAMPTZ '{moment}+00'") == [number]
        assert ids(lake, f"ts <> TIMESTAMPTZ '{moment}+00'") == [
            one for one in (*range(len(MOMENTS)), 101, 102) if one != number
        ]
    assert ids(lake, "ts IS NULL") == [100]
    assert ids(lake, "ts > TIMESTAMPTZ '2025-01-01 00:00:00+00'") == [101]
    assert ids(lake, "ts < TIMESTAMPTZ '0044-01-01 (BC) 00:00:00+00'") == [102]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("zone", ZONES)
def test_filters_deletes_and_upkeep_see_every_row(sqlite_catalog, zone, at_once):
    make_table(sqlite_catalog, zone, CALENDAR, at_once=at_once)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert_filters_find_all(lake)
        made = lake.current_snapshot().id
        assert lake.verify() == []
        assert deleted(lake, "ts = TIMESTAMPTZ '2024-05-04 20:00:00+00'") == 1
        lake.append_arrow("t", lake.read_arrow("t", at=made, filter="id = 2"))
        merge_adjacent(lake)
        rewrite(lake)
        assert_filters_find_all(lake)
        assert deleted(lake, "ts IS NOT NULL") == len(MOMENTS) + 2
        assert ids(lake) == [100]
        lake.restore("t", at=made)
        assert_filters_find_all(lake)
        lake.expire_snapshots(keep_last=1)
        assert_filters_find_all(lake)
        assert lake.verify() == []


def test_rows_in_the_catalog_are_partitioned_in_utc_when_they_are_flushed(sqlite_catalog):
    make_table(sqlite_catalog, "Asia/Tokyo", CALENDAR, at_once=False, inlined=100)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.flush_inlined_data("t")
        assert_filters_find_all(lake)
        assert lake.verify() == []
        assert replaced(lake, 4)[0] == [4]


def replaced(lake: Lake, number: int) -> tuple[list[int], list[int]]:
    """Replace the partition, in UTC, of a row by nothing; return the ids that went, and those in it."""
    table, rows = lake.table_snapshot("t"), lake.read_arrow("t")
    values = partition_of_rows(rows, table.schema, table.partition_spec.fields)
    by_id = dict(zip(rows["id"].to_pylist(), values, strict=True))
    expected = sorted(one for one, value in by_id.items() if value == by_id[number])
    lake.committer.commit(
        table.snapshot.id, lake.writes.replacing_partitions(table, {by_id[number]}), CommitInfo()
    )
    return sorted(set(by_id) - set(ids(lake))), expected


KEYS = (CALENDAR[:1], CALENDAR[1:2], CALENDAR[2:3], CALENDAR[3:], CALENDAR[:3], CALENDAR)
CASES = [(zone, keys, at_once) for zone in ZONES for keys in KEYS for at_once in (True, False)]


def test_overwritten_partitions_are_those_of_utc_or_refused(new_catalog, seed, size):
    always = [("Asia/Tokyo", CALENDAR[2:3], True), ("Asia/Tokyo", CALENDAR[2:3], False)]
    drawn = CASES if size == "full" else random.Random(seed).sample(CASES, 4)
    for zone, keys, at_once in [*always, *drawn]:
        catalog = new_catalog("sqlite")
        make_table(catalog, zone, keys, at_once=at_once)
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            made = lake.current_snapshot().id
            for number in (*range(len(MOMENTS)), 100):
                try:
                    gone, expected = replaced(lake, number)
                except UnsupportedFeatureError:
                    assert at_once, "a file of one row has one value"
                    continue
                assert gone == expected, (zone, keys, at_once)
                lake.restore("t", at=made)


def test_a_file_that_another_zone_put_together_is_refused_by_its_value_and_its_bounds(sqlite_catalog):
    make_table(sqlite_catalog, "Asia/Tokyo", ["day(ts)"], at_once=True, moments=MOMENTS[2:5])

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError) as caught:
            replaced(lake, 2)  # 2024-05-05 20:00 in UTC, and the 6th in Tokyo
        assert "its day(ts) = '5' was computed in the time zone of the session that wrote it" in str(
            caught.value
        )
        assert "from 2024-05-04 20:00:00+00 to 2024-05-05 01:00:00+00" in str(caught.value)
        assert "overwrite_where" in str(caught.value)
        assert ids(lake, "id < 100") == [0, 1, 2]


def test_a_file_of_others_goes_to_the_day_of_utc_that_its_bounds_lie_in(sqlite_catalog, tmp_path):
    make_table(sqlite_catalog, "Asia/Tokyo", ["day(ts)"], at_once=True)
    moments = [datetime(2024, 5, 4, hour, tzinfo=UTC) for hour in (14, 20)]
    file = tmp_path / "given.parquet"
    pq.write_table(pa.table({"id": pa.array([200, 201], pa.int32()), "ts": moments}), file)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as transaction:
        transaction.add_data_files("t", [str(file)])
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql(
            "SELECT DISTINCT partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value "
            "JOIN __ducklake_metadata_lake.ducklake_data_file USING (data_file_id) WHERE path LIKE '%given%'"
        ) == [("4",)]


def test_rows_of_a_zone_that_has_an_hour_twice_are_split_by_moments(sqlite_catalog):
    night = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]  # both 01:30 in New York
    rows = pa.table(
        {
            "id": pa.array(range(60), pa.int32()),
            "ts": pa.array(night * 30, pa.timestamp("us", "America/New_York")),
        }
    )
    make_table(sqlite_catalog, "America/New_York", ["ts", "hour(ts)"], at_once=False, moments=())

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows)
        assert ids(lake, "ts = TIMESTAMPTZ '2024-11-03 06:30:00+00'") == [*range(1, 60, 2)]
        assert replaced(lake, 1)[0] == [*range(1, 60, 2)]
        assert lake.verify() == []
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql(
            "SELECT DISTINCT partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value "
            "WHERE partition_value LIKE '2024%' ORDER BY ALL"
        ) == [("2024-11-03 05:30:00+00",), ("2024-11-03 06:30:00+00",)]
