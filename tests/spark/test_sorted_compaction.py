"""Rows are sorted or clustered within the files that compaction makes, and are what they were to readers."""

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.planning.writing.write import RowOrder, plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.request import CompactionSource, JobRequest, job_directory
from airflow_provider_ducklake.lake.spark.jobs.compact import compact
from airflow_provider_ducklake.lake.writes.compaction import commit_compacted
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import new_lake, rows_of

VALUES = (
    "SELECT (i * 7919) % 1000 AS id, nullif(i % 7, 3)::INT AS a, 's' || (i * 31) % 50 AS b, "
    "[i, NULL] AS l, if(i % 5 = 0, 'nan'::DOUBLE, i % 11) AS x FROM range({0}, {0} + 100) r(i)"
)
INSERTS = tuple(f"INSERT INTO t {VALUES.format(100 * number)}" for number in range(4))
CREATE = "CREATE TABLE t (id BIGINT, a INT, b VARCHAR, l INT[], x DOUBLE)"
SORT = "ALTER TABLE t SET SORTED BY (a DESC NULLS FIRST, b ASC NULLS LAST, id ASC)"


def compacted(spark, lake: Lake, planned: Compaction, order: RowOrder | None = None) -> None:
    """Compact as the operator's job and commit do."""
    job_id, staging_id, table = str(uuid.uuid4()), str(uuid.uuid4()), planned.table
    keys = RowOrder(() if table.sort_spec is None else table.sort_spec.fields)
    plan = replace(plan_write(table, job_directory(table.root, job_id)), row_order=order or keys)
    partition_id = None if table.partition_spec is None else table.partition_spec.id
    source = CompactionSource(planned, staging_id, partition_id)
    request = JobRequest(job_id, source, (plan,), verb="merge_adjacent")
    compact(spark, decode(json.loads(json.dumps(encode(request, JobRequest))), JobRequest))
    assert list(commit_compacted(lake, table, job_directory(table.root, staging_id), CommitInfo()))


def rows_in_files(lake: Lake, *columns: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each live file, in their order."""
    files = lake.table_snapshot("t", with_files=True).files
    return [pq.ParquetFile(file.path).read(columns=list(columns)).to_pylist() for file in files]


def at_every_snapshot(catalog: CatalogDatabase, last: int) -> list[list[tuple[Any, ...]]]:
    """Return the rows at each snapshot since the first, which made the table; NaN as a text."""
    query = "SELECT rowid, * REPLACE (x::VARCHAR AS x) FROM t AT (VERSION => {}) ORDER BY ALL"
    with open_lake(catalog) as reference:
        return [reference.sql(query.format(one)) for one in range(1, last + 1)]


def test_rows_of_a_merged_file_lie_as_in_the_references(spark, new_catalog):
    ours, theirs = new_catalog("sqlite"), new_catalog("sqlite")
    with new_lake(theirs, CREATE, SORT, *INSERTS, data_inlining_row_limit=0) as lake:
        rows_of(theirs, "CALL ducklake_merge_adjacent_files('lake')")
        (expected,) = rows_in_files(lake, "id", "a", "b")
    with new_lake(ours, CREATE, SORT, *INSERTS, data_inlining_row_limit=0) as lake:
        last = lake.current_snapshot().id
        before = at_every_snapshot(ours, last)
        compacted(spark, lake, lake.maintenance.plan_merge("t", MergeRule()))

        assert rows_in_files(lake, "id", "a", "b") == [expected]
        assert at_every_snapshot(ours, last) == before
        assert not lake.verify()
    assert len(before) > len(INSERTS)


def test_files_of_older_columns_are_sorted_by_the_names_of_now(spark, sqlite_catalog):
    later = ("ALTER TABLE t RENAME a TO b2", "ALTER TABLE t DROP COLUMN b", "ALTER TABLE t RENAME b2 TO b")
    more = (
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 5",
        "ALTER TABLE t SET SORTED BY (b ASC NULLS LAST, n ASC, id ASC)",
        "ALTER TABLE t SET PARTITIONED BY (bucket(2, id))",
        *("INSERT INTO t SELECT i, i % 4, [i], 0.5, i % 3 FROM range(50) r(i)",) * 2,
    )
    with new_lake(sqlite_catalog, CREATE, *INSERTS[:2], *later, *more, data_inlining_row_limit=0) as lake:
        last = lake.current_snapshot().id
        before = at_every_snapshot(sqlite_catalog, last)
        compacted(spark, lake, lake.maintenance.plan_merge("t", MergeRule()))

        assert at_every_snapshot(sqlite_catalog, last) == before
        old, *new = rows_in_files(lake, "id")
        first_key = [row["a"] for row in rows_in_files(lake, "a")[0]]
        assert (len(old), len(new)) == (200, 2)
        assert first_key == sorted(first_key, key=lambda one: (one is None, one))
        for file in new:
            ids = [row["id"] for row in file]
            assert ids == sorted(ids, key=lambda one: (one % 4, one % 3, one))
        assert not lake.verify()


def test_rows_are_clustered_in_rewritten_files_and_one_without_rows_is_none(spark, sqlite_catalog):
    statements = (
        CREATE,
        "ALTER TABLE t SET PARTITIONED BY (b)",
        "INSERT INTO t SELECT (i * 7919) % 8000, (i * 104729) % 8000, 'left', NULL, 1 FROM range(8000) r(i)",
        "INSERT INTO t SELECT i, i, 'gone', NULL, 1 FROM range(100) r(i)",
        "DELETE FROM t WHERE id % 10 = 3 OR (b = 'gone' AND id > 5)",
        "DELETE FROM t WHERE b = 'gone' AND id = 5",
    )
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=0) as lake:
        lake.set_option("parquet_row_group_size", 500)
        last = lake.current_snapshot().id
        before = at_every_snapshot(sqlite_catalog, last)
        compacted(
            spark, lake, lake.maintenance.plan_rewrite("t", RewriteRule(0.0)), RowOrder(zorder_by=("id", "a"))
        )

        assert at_every_snapshot(sqlite_catalog, last) == before
        assert at_every_snapshot(sqlite_catalog, last + 1)[-1] == before[-1]
        left, _ = sorted(lake.table_snapshot("t", with_files=True).files, key=lambda one: -one.record_count)
        groups = pq.read_metadata(Path(left.path))
        spans = [
            sum(chunk.statistics.max - chunk.statistics.min for chunk in columns) / 16_000
            for columns in (
                [groups.row_group(number).column(place) for place in (0, 1)]
                for number in range(groups.num_row_groups)
            )
        ]
        assert len(spans) > 10
        assert sum(spans) / len(spans) < 0.6  # of the whole range; unsorted it would be nearly all
        assert not lake.verify()


@pytest.mark.parametrize("order", [RowOrder(), RowOrder(zorder_by=("id",))])
def test_files_of_which_all_rows_are_gone_end_without_another(spark, sqlite_catalog, order):
    statements = (CREATE, INSERTS[0], INSERTS[1])
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=0) as lake:
        lake.set_option("data_inlining_row_limit", 1000)
        with open_lake(sqlite_catalog) as reference:
            reference.sql("DELETE FROM t WHERE rowid < 100")
        compacted(spark, lake, lake.maintenance.plan_rewrite("t", RewriteRule(0.9)), order)

        assert len(lake.table_snapshot("t", with_files=True).files) == 1
        assert not lake.verify()
    assert rows_of(sqlite_catalog, "SELECT count(*) FROM t") == [(100,)]
