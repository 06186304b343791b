"""The files of one append stand in the catalog in the order in which their partitions first appear."""

import random

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake

TRANSFORMS = ["hour(ts)", "day(ts)", "month(ts)", "year(ts)", "bucket(4, ts)", "ts"]


@pytest.mark.parametrize("partition_by", TRANSFORMS)
def test_files_come_in_the_references_order(sqlite_catalog, seed, partition_by):
    values = _times(random.Random(seed))
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        for name in ("ours", "theirs"):
            reference.sql(f"CREATE TABLE {name} (ts TIMESTAMP)")
            reference.sql(f"ALTER TABLE {name} SET PARTITIONED BY ({partition_by})")
        rows = ", ".join("(NULL)" if value is None else f"('{value}')" for value in values)
        reference.sql(f"INSERT INTO theirs VALUES {rows}")
        theirs = reference.sql(_FIRST_ROWS.format("theirs"))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("ours", pa.table({"ts": pa.array(values).cast(pa.timestamp("us"))}))

    assert by_duckdb(sqlite_catalog, _FIRST_ROWS.format("ours")) == theirs


_FIRST_ROWS = "SELECT rowid, ts FROM {} ORDER BY rowid"


def _times(draw: random.Random) -> list[str | None]:
    hours = [draw.choice([None, *range(24)]) for _ in range(40)]
    return [
        None if hour is None else f"{2020 + hour % 3}-{1 + hour % 12:02}-{1 + hour:02} {hour:02}:00:00"
        for hour in hours
    ]
