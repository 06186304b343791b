"""Where rows lie in files: by sort keys, clustered, gathered; and the options of the lake that say so."""

import resource
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidInputError
from airflow_provider_ducklake.lake.spark.jobs import insert as insert_job
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
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
