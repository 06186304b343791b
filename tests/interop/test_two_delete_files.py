"""A data file that the reference gives two delete files by a flush: both count."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from tests.reference.duckdb_lake import open_lake

STATEMENTS = (
    "CREATE TABLE t AS SELECT x AS i FROM range(40) r(x)",
    "DELETE FROM t WHERE i % 7 = 0",  # six rows, in the catalog
    "DELETE FROM t WHERE i < 30",  # the others, in a delete file
)
ENDS = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)"


@pytest.fixture
def flushed(sqlite_catalog):
    """Return a lake whose file has ended, and had marks since before its delete file; and how it began."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=10) as duck:
        for statement in STATEMENTS:
            duck.sql(statement)
        last = duck.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
        duck.sql(ENDS)
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake, last


def test_rows_of_either_delete_file_are_gone(flushed, sqlite_catalog):
    lake, last = flushed
    (file,) = lake.scan("t", at=last).files
    assert file.delete_file is not None
    assert len(file.older_delete_files) == 1

    assert [lake.read_arrow("t", at=at).num_rows for at in range(last - 2, last + 1)] == [40, 34, 9]
    assert [lake.row_count("t", at=at) for at in range(last - 2, last + 1)] == [40, 34, 9]
    with open_lake(sqlite_catalog) as duck:  # a fault of the reference, which shows the file twice
        assert duck.sql(f"SELECT count(*) FROM t AT (VERSION => {last})") == [(34 + 15,)]


def test_they_travel_with_a_plan(flushed):
    lake, last = flushed
    plan = lake.scan("t", at=last)

    sent = decode(encode(plan, ScanPlan), ScanPlan)

    assert [one.older_delete_files for one in sent.files] == [one.older_delete_files for one in plan.files]


def test_no_more_rows_of_it_are_deleted(flushed):
    lake, last = flushed
    table = lake.table_snapshot("t", at=last)
    with pytest.raises(UnsupportedFeatureError, match="has 2 delete files"):
        lake.writes.replacing_where(table, "i BETWEEN 31 AND 33")
