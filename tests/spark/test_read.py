"""What Spark reads of a lake: the same rows as the reader without Spark, which is proved on the reference."""

from json import dumps, loads

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.spark.plan_json import decode_read, encode_read
from airflow_provider_ducklake.spark.read import read_changes
from tests.interop.test_parquet_evolution import HISTORIES, write_history
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.interop.type_values import NULL_STRUCTS, TYPES
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_at_every_snapshot, assert_same_rows, shown, types_of

VALUES = (
    TYPES
    | NULL_STRUCTS
    | {
        "interval": ("INTERVAL", ["INTERVAL '1 month 2 days 3.5 seconds'", "NULL"]),
        "timetz": ("TIMETZ", ["'12:00:00+02'", "NULL"]),
        "geometry": ("GEOMETRY", ["'POINT(1 2)'", "NULL"]),
        "timestamp_ns far": (
            "TIMESTAMP_NS",
            ["'infinity'", "'-infinity'", "'1969-12-31 23:59:59.999999999'"],
        ),
    }
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_at_every_snapshot(sqlite_catalog, spark, scenario):
    with open_lake(sqlite_catalog) as duck:
        for statement in [TABLE, *SCENARIOS[scenario]]:
            duck.sql(statement)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_at_every_snapshot(spark, lake, duck) > 4


@pytest.mark.parametrize("inlining_limit", [0, 100], ids=["files", "inlined"])
def test_values_of_every_type(sqlite_catalog, spark, inlining_limit):
    """All in one table, padded with NULLs: a scan costs more than its columns."""
    columns = {f"c{number}": value for number, value in enumerate(VALUES.values())}
    with open_lake(sqlite_catalog, data_inlining_row_limit=inlining_limit) as duck:
        duck.sql(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, (type_, _) in columns.items())})")
        for row in range(max(len(values) for _, values in columns.values())):
            cells = [values[row] if row < len(values) else "NULL" for _, values in columns.values()]
            duck.sql(f"INSERT INTO t VALUES ({', '.join(cells)})")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            natively = [name for name, (type_, _) in columns.items() if type_ != "INTERVAL"]

            assert assert_same_rows(spark, lake, duck) > 4
            assert assert_same_rows(spark, lake, duck, columns=natively) > 4


@pytest.mark.parametrize("name", HISTORIES)
def test_files_older_than_the_columns(sqlite_catalog, spark, name):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        write_history(duck, *HISTORIES[name])
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_at_every_snapshot(spark, lake, duck) > 2


@pytest.mark.parametrize("scenario", [*SCENARIOS][:-1])
def test_changes_of_rows(sqlite_catalog, spark, scenario):
    with open_lake(sqlite_catalog) as duck:
        for statement in [TABLE, *SCENARIOS[scenario]]:
            duck.sql(statement)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            end = lake.current_snapshot().id
            types = {"snapshot_id": "BIGINT", "rowid": "BIGINT", "change_type": "VARCHAR"}
            types |= types_of(duck, "t")
            found = 0
            for start, stop in ((0, end), (end // 2, end - 1)):
                feed = lake.changes("t", start, stop)
                plan = decode_read(loads(dumps(encode_read(feed.plan))))
                expected = feed.read_arrow()
                of_stop = {name: types.get(name, "VARCHAR") for name in expected.column_names}

                rows = read_changes(spark, plan).toArrow()

                assert rows.column_names == expected.column_names
                assert shown(duck, rows, of_stop) == shown(duck, expected, of_stop)
                found += rows.num_rows
            assert found > 8
