"""Where rows lie in files: by sort keys, clustered, gathered; and the options of the lake that say so."""

import json
import resource
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidInputError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.planning.writing.write import RowOrder, plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.request import CompactionSource, JobRequest, job_directory
from airflow_provider_ducklake.lake.spark.jobs import insert as insert_job
from airflow_provider_ducklake.lake.spark.jobs.compact import compact
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from airflow_provider_ducklake.lake.writes.compaction import commit_compacted
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import insert, new_lake, rows_of

APPEND = InsertChoice()


def files(result) -> list[dict[str, list]]:
    return [pq.ParquetFile(file.path).read().to_pydict() for file in result.data_files]


def test_rows_lie_by_the_sort_keys_as_the_reference_lays_them(spark, sqlite_catalog):
    create = (
        "CREATE TABLE t (p VARCHAR, a INT, b VARCHAR)",
        "ALTER TABLE t SET SORTED BY (a DESC NULLS FIRST, b ASC NULLS LAST)",
        "ALTER TABLE t SET PARTITIONED BY (p)",
    )
    rows = "(SELECT range % 3 AS p, nullif(range % 7, 3) AS a, nullif(range % 5, 2) AS b FROM range(500))"
    sources = ("CAST(nullif(p, 1) AS {0}) AS p", "CAST(a AS INT) AS a", "CAST(b AS {0}) AS b")
    select = f"SELECT {', '.join(sources)} FROM "
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for statement in create:
            reference.sql(statement)
        reference.sql(f"INSERT INTO t {select.format('VARCHAR')} {rows}")
        theirs = {
            partition[0]["p"]: [(row["a"], row["b"]) for row in partition]
            for (path,) in reference.sql("SELECT data_file FROM ducklake_list_files('lake', 't')")
            if (partition := pq.ParquetFile(path).read().to_pylist())
        }
    with new_lake(sqlite_catalog) as lake:
        ours = spark.sql(f"{select.format('STRING')} {rows.replace('range %', 'id %')}").repartition(3)
        result, _ = insert(lake, ours, APPEND)

    assert len(result.data_files) == 3
    assert {rows["p"][0]: list(zip(rows["a"], rows["b"], strict=True)) for rows in files(result)} == theirs


def test_rows_are_not_sorted_where_the_option_says_so_nor_by_expressions(spark, sqlite_catalog):
    create = ("CREATE TABLE t (a INT, b INT)", "ALTER TABLE t SET SORTED BY (a, hash(b), b)")
    rows = spark.sql("SELECT * FROM VALUES (2, 1), (1, 3), (1, 2) AS r(a, b)").coalesce(1)
    with new_lake(sqlite_catalog, *create) as lake:
        (sorted_rows,) = files(insert(lake, rows, APPEND)[0])
        lake.set_option("sort_on_insert", value=False)
        (unsorted,) = files(insert(lake, rows, APPEND)[0])

    assert sorted_rows == {"a": [1, 1, 2], "b": [3, 2, 1]}
    assert unsorted == {"a": [2, 1, 1], "b": [1, 3, 2]}


def test_clustered_files_are_narrow_in_every_column(spark, sqlite_catalog):
    rows = spark.range(0, 40_000, 1, 2).selectExpr(
        "CAST(id AS INT) AS x",
        "CAST(hash(id) AS STRING) AS y",
        "CASE WHEN id % 10 > 0 THEN CAST(xxhash64(id) AS DOUBLE) END AS z",
        "CAST(id % 2 AS INT) AS p",
    )
    create = ("CREATE TABLE t (x INT, y VARCHAR, z DOUBLE, p INT)", "ALTER TABLE t SET PARTITIONED BY (p)")
    with new_lake(sqlite_catalog, *create) as lake:
        lake.set_option("parquet_row_group_size", 250)
        result, _ = insert(lake, rows, InsertChoice(zorder_by=("X", "y", "z")))

    assert result.rows_written == 40_000
    assert {file.partition_values for file in result.data_files} == {("0",), ("1",)}
    groups = [
        metadata.row_group(number)
        for file in result.data_files
        for metadata in [pq.read_metadata(file.path)]
        for number in range(metadata.num_row_groups)
    ]
    for column, value in ((0, 12_345), (1, "500"), (2, 1e18)):
        bounds = [group.column(column).statistics for group in groups]
        hit = sum(one.min <= value <= one.max for one in bounds if one is not None and one.has_min_max)
        assert hit <= len(groups) / 2  # of rows in no order each column would hit nearly all
    assert rows_of(sqlite_catalog, "SELECT count(*), sum(x), count(z) FROM t") == [
        (40_000, sum(range(40_000)), 36_000)
    ]


def test_what_cannot_be_clustered_by_is_refused(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, "CREATE TABLE t (a INT, s STRUCT(x INT))") as lake:
        rows = spark.sql("SELECT 1 AS a, named_struct('x', 1) AS s")
        with pytest.raises(ColumnNotFoundError, match="nowhere"):
            insert(lake, rows, InsertChoice(zorder_by=("nowhere",)))
        with pytest.raises(InvalidInputError, match="column s has type struct"):
            insert(lake, rows, InsertChoice(zorder_by=("s",)))
        with pytest.raises(InvalidInputError, match="8 columns"):
            insert(lake, rows, InsertChoice(zorder_by=("a",) * 9))
        result, _ = insert(lake, rows.limit(0), InsertChoice(zorder_by=("a",)))
        assert result.data_files == ()


def test_tasks_write_files_of_their_own_unless_the_option_gathers_them(spark, sqlite_catalog):
    rows = spark.range(0, 2_000_000, 1, 4).selectExpr("id")  # more than the driver writes itself
    counts = []
    with new_lake(sqlite_catalog, "CREATE TABLE t (id BIGINT)") as lake:
        for value in (None, True, False):
            if value is not None:
                lake.set_option("per_thread_output", value=value)
            counts.append(len(insert(lake, rows, APPEND)[0].data_files))

    assert counts == [4, 4, 2]


def test_folders_of_partitions_are_left_out_where_the_option_says_so(spark, sqlite_catalog):
    create = ("CREATE TABLE t (a INT, b INT)", "ALTER TABLE t SET PARTITIONED BY (a)")
    rows = spark.sql("SELECT 1 AS a, 2 AS b UNION ALL SELECT 2, 3")
    with new_lake(sqlite_catalog, *create) as lake:
        lake.set_option("hive_file_pattern", value=False)
        result, _ = insert(lake, rows, APPEND)

    assert not [file.path for file in result.data_files if "a=" in file.path]
    assert rows_of(sqlite_catalog) == [(1, 2), (2, 3)]


def test_row_groups_and_levels_are_as_the_options_say(spark, sqlite_catalog):
    rows = spark.range(0, 60_000, 1, 1).selectExpr("id", "sha2(string(id), 256) AS text")
    sizes = []
    with new_lake(sqlite_catalog, "CREATE TABLE t (id BIGINT, text VARCHAR)") as lake:
        for options in ({"parquet_compression_level": 19}, {"parquet_row_group_size_bytes": "1MB"}):
            for key, value in options.items():
                lake.set_option(key, value)
            (file,) = insert(lake, rows, APPEND)[0].data_files
            sizes.append((pq.read_metadata(file.path).num_row_groups, Path(file.path).stat().st_size))

    assert sizes[0][0] == 1
    assert sizes[1][0] > 1


@pytest.mark.timeout(3600)
def test_many_partitions_are_written_file_by_file_and_warned_of(
    spark, sqlite_catalog, monkeypatch, capsys, size
):
    """The heap of the tests' Spark is 1 GiB: what a task needs does not grow with the partitions."""
    said: list[str] = []
    monkeypatch.setattr(insert_job.log, "warning", lambda text, *values: said.append(text % values))
    create = ("CREATE TABLE t (id BIGINT, p BIGINT)", "ALTER TABLE t SET PARTITIONED BY (p)")
    count = {"ci": 1_000, "full": 100_000}[size]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with new_lake(sqlite_catalog, *create) as lake:
        rows = spark.range(0, 4 * count, 1, 2).selectExpr("id", f"id % {count} AS p")
        result, _ = insert(lake, rows, APPEND)

    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with capsys.disabled():
        print(f"\n{count} partitions, {more / 1024:.0f} MiB more in this process")  # noqa: T201
    assert len(result.data_files) == count  # not one more: each task sees all rows of a partition at once
    assert f"main.t: the rows were written to {count} partitions in {count} files of" in said[0]
    assert rows_of(sqlite_catalog, "SELECT count(*), count(DISTINCT p) FROM t") == [(4 * count, count)]


# --- rows are sorted or clustered within the files that compaction makes ---

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
        by_duckdb(sqlite_catalog, "DELETE FROM t WHERE rowid < 100")
        compacted(spark, lake, lake.maintenance.plan_rewrite("t", RewriteRule(0.9)), order)

        assert len(lake.table_snapshot("t", with_files=True).files) == 1
        assert not lake.verify()
    assert rows_of(sqlite_catalog, "SELECT count(*) FROM t") == [(100,)]
