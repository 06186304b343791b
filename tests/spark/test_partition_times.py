"""Times that partitions are made of: hours that a zone has twice, infinite ones, those after year 9999."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.writes.arguments import InsertChoice, InsertMode
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.spark.inserting import insert, new_lake, rows_of
from tests.spark.test_row_changes import Twins, update

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


COLUMNS = {
    "DATE": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP_MS": ("x", "month(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMP_NS": ("x", "year(x)", "hour(x)", "bucket(3, x)"),
    "TIMESTAMPTZ": ("x", "day(x)", "hour(x)", "bucket(3, x)"),
}


@pytest.mark.parametrize("type_", COLUMNS)
def test_infinite_times_are_updated_and_merged_in_partitions(spark, tmp_path, type_):
    key = COLUMNS[type_]
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
