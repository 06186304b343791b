"""Spark reads restored tables, whose files may be older than their snapshots say."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spark.read import read_changes
from tests.interop.comparison import multiset
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_rows

ALTERED = [
    "CREATE SCHEMA s",
    "USE lake.s",
    "CREATE TABLE t (i INT, s VARCHAR, n INT)",
    "INSERT INTO t SELECT i, 'a' || i, i FROM range(40) r(i)",  # a file of before, with other columns
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
    "ALTER TABLE t RENAME s TO text",
    "ALTER TABLE t ALTER n TYPE BIGINT",
    "INSERT INTO t SELECT i, 'b' || i, i, i FROM range(40, 60) r(i)",
]
SINCE = [
    "ALTER TABLE t DROP COLUMN late",
    "INSERT INTO t SELECT i, 'c', i FROM range(60, 90) r(i)",  # lacks a column that comes back
    "DELETE FROM t WHERE i < 60",
]


GONE = {"table": ["DROP TABLE t"], "schema": ["USE lake.main", "DROP SCHEMA s CASCADE"]}


@pytest.mark.parametrize("gone", [None, *GONE])
def test_columns_of_copies_are_those_that_their_files_have(spark, sqlite_catalog, gone):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for statement in ALTERED:
            reference.sql(statement)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
            for statement in ["USE lake.s", *SINCE, *GONE.get(gone, ())]:
                reference.sql(statement)

        restored = lake.restore("s.t", at=then)

        assert restored.tables[0].files_copied == 2
        since = restored.committed.id if gone == "schema" else then  # it is another table
        feed = lake.changes("s.t", since, restored.committed.id)
        with open_lake(sqlite_catalog) as reference:
            assert assert_same_rows(spark, lake, reference, "s.t") == 60
        assert multiset(read_changes(spark, feed.plan).toArrow()) == multiset(feed.read_arrow())
