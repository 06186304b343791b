"""A query that reads a table which it writes notices rows that come, also while it is planned."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.lake_reads import LakeReads
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.lake.writes.sql_plan import Reads, find_target, rows_read, steps_of

JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"
ROWS = pa.table({"id": [1]})


class BusyReads(LakeReads):
    """Reads of a lake to which another client commits while the table that a query makes is looked for."""

    def new_table(self, name, uuid=None):
        Lake(self._lake).append_arrow("main.other", ROWS)
        return super().new_table(name, uuid)


class BusyLake(Lake):
    def __init__(self, lake, committer=None):
        super().__init__(lake, committer)
        self.reads = BusyReads(lake)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE OR REPLACE TABLE main.t AS SELECT * FROM main.t",
        "CREATE TABLE main.new AS SELECT 1 AS id; INSERT INTO main.t SELECT max(id) + 1 FROM main.t",
    ],
)
def test_a_commit_while_a_query_is_planned_hides_none_of_the_tables_it_reads(sqlite_catalog, text):
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as made,
        made.transaction() as tx,
    ):
        tx.create_table("main.t", {"id": "int64"})
        tx.create_table("main.other", {"id": "int64"})
    with BusyLake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        statements, head = parse_spark_sql(text, (), "main"), lake.current_snapshot()
        targets = [find_target(lake, one.table, one.mode, head, JOB) for one in statements]
        reads = Reads(lake, JOB, head, targets=frozenset(one.name.folded for one in targets))
        steps_of(statements, reads, {one.name.folded: one for one in targets}, "job")

        (read,) = rows_read(targets, reads, head.id)

        assert str(read.name) == "main.t"
        assert list(rows_read(targets, reads, lake.current_snapshot().id)) == []
