"""What a job writes: settings, many files, odd paths, wide rows, delete files, bad strings."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidValueError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.options import Options
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.write import (
    ParquetSettings,
    WritePlan,
    append_to_existing,
    create_and_append,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import job_directory, source_of
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.sessions.classic import progress_lines
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark
from airflow_provider_ducklake.lake.spark.writing import write_arrow, write_deletes
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import alone
from tests.interop.synced import before_commit, needed, recorded
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.spark.conftest import make_plan
from tests.spark.submission import log_of, make_request, start
from tests.spark.type_values import VALUES

SCHEMA = new_columns({"id": "int64", "text": "varchar"})


def rows(spark, count: int, tasks: int = 1):
    return spark.range(0, count, 1, tasks).selectExpr("id", "sha2(string(id), 256) as text")


def test_unset_options_mean_zstd_and_v2_pages(spark, new_plan):
    plan = new_plan(SCHEMA, settings=ParquetSettings.of_options(Options({})))

    (file,) = write(rows(spark, 100), plan).data_files

    chunk = pq.read_metadata(file.path).row_group(0).column(0)
    assert chunk.compression == "ZSTD"
    assert "DELTA_BINARY_PACKED" in chunk.encodings
    assert page_types(file.path) == {"DATA_PAGE_V2"}


def test_options_of_the_lake_win(spark, new_plan):
    texts = {"parquet_compression": "snappy", "parquet_version": "V1", "parquet_row_group_size": "300"}
    plan = new_plan(SCHEMA, settings=ParquetSettings.of_options(Options(texts)))

    (file,) = write(rows(spark, 1000), plan).data_files

    metadata = pq.read_metadata(file.path)
    assert [metadata.row_group(number).num_rows for number in range(4)] == [300, 300, 300, 100]
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert page_types(file.path) == {"DATA_PAGE"}


def page_types(path: str) -> set[str]:
    """Return the kinds of data pages, by the header of each column chunk's last page."""
    metadata = pq.read_metadata(path)
    data = Path(path).read_bytes()
    kinds = {0: "DATA_PAGE", 3: "DATA_PAGE_V2"}
    found = set()
    for number in range(metadata.num_columns):
        offset = metadata.row_group(0).column(number).data_page_offset
        assert data[offset] == 0x15  # Thrift compact: field 1, a 32-bit number
        found.add(kinds[data[offset + 1] >> 1])
    return found


def test_files_roll_at_the_target_size_and_many_are_described_by_tasks(spark, new_plan):
    settings = ParquetSettings(target_file_size_bytes=400, row_group_rows=20)

    result = write(rows(spark, 2500), new_plan(SCHEMA, settings=settings))

    assert len(result.data_files) > 64
    assert sum(file.record_count for file in result.data_files) == result.rows_written == 2500
    assert all(file.column_stats[1].value_count == file.record_count for file in result.data_files)


def test_nothing_but_data_files_is_left_and_odd_paths_are_only_paths(spark, tmp_path):
    plan = make_plan(tmp_path / "a b%20#c", SCHEMA)

    result = write(rows(spark, 10, 2), plan)

    left = {str(path) for path in Path(plan.directory).rglob("*") if path.is_file()}
    assert left == {file.path for file in result.data_files}
    paths = [file.path for file in result.data_files]
    assert duckdb.execute("SELECT count(*) FROM read_parquet(?)", [paths]).fetchall() == [(10,)]
    for file in result.data_files:
        assert Path(file.path).stat().st_size == file.file_size_bytes
        assert pq.read_metadata(file.path).serialized_size == file.footer_size


def test_a_second_run_of_the_same_job_counts_its_own_files_only(spark, new_plan):
    plan = new_plan(SCHEMA)

    first, second = (write(rows(spark, 10), plan) for _ in range(2))

    assert second.rows_written == 10
    assert not {file.path for file in first.data_files} & {file.path for file in second.data_files}


def test_the_bounds_of_floats_leave_nan_out(spark, new_plan):
    schema = new_columns({"d": "float64", "s": "struct(f float32)"})
    text = "select d, named_struct('f', float(d)) s from values (1.5D), (double('nan')), (-2D), (null) t(d)"

    (file,) = write(spark.sql(text).coalesce(1), new_plan(schema)).data_files

    for column_id in (1, 3):
        stats = file.column_stats[column_id]
        assert (stats.min_value, stats.max_value, stats.contains_nan) == ("-2.0", "1.5", True)
        assert (stats.value_count, stats.null_count) == (3, 1)


@pytest.mark.classic_only("RDDs")
def test_a_long_stage_says_how_far_it_is(spark):
    lines: list[str] = []

    with progress_lines(spark, seconds=0.2, say=lines.append):
        spark.sparkContext.parallelize(range(4), 4).map(wait).collect()

    assert any("of 4 tasks done" in line for line in lines)


def wait(number: int) -> int:
    time.sleep(0.5)
    return number


# --- rows too wide for batches counted in rows ---

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def write_wide_rows(spark: SparkSession, root: Path) -> int:
    """Write rows that need 246 MB together, and return their number."""
    df = spark.range(0, 4096, 1, 1).selectExpr("repeat('x', 60000) as s")
    plan = make_plan(root, new_columns(fields_of_spark(df.schema)))
    return sum(file.record_count for file in write_arrow.write(df, (), plan))


@pytest.mark.classic_only("makes an exception of Java")
def test_rows_too_wide_for_a_batch_name_the_option_that_helps(spark: SparkSession) -> None:
    made = spark._jvm.java.util.concurrent.CompletableFuture
    class_ = spark._jvm.org.apache.arrow.vector.util.OversizedAllocationException
    with pytest.raises(Py4JJavaError) as caught:
        made.failedFuture(class_("Memory required for vector is (2148000000), which is overflow")).join()

    assert BYTES in str(typed(caught.value))
    assert "overflow" in str(typed(caught.value))
    assert BYTES not in str(typed(RuntimeError(f"{class_._fqn}: of a row")))


def test_a_given_limit_stays_and_wide_rows_are_written(spark: SparkSession, tmp_path: Path) -> None:
    usual = spark.conf.get(BYTES)
    try:
        spark.conf.set(BYTES, "32m")
        prepare(spark)
        assert spark.conf.get(BYTES) == "32m"
        assert write_wide_rows(spark, tmp_path) == 4096
    finally:
        spark.conf.set(BYTES, str(usual))


WIDE = """
def rows(spark, sources):
    return spark.range(0, 9000, 1, 1).selectExpr("id", "repeat('x', 30000) as s")
"""


@pytest.mark.drawn(one_in=8)
@pytest.mark.parametrize("given", [None, "300m"])
def test_rows_too_wide_for_a_batch_are_written_again_in_smaller_ones(
    tmp_path: Path, given: str | None
) -> None:
    (tmp_path / "wide_rows.py").write_text(WIDE)
    plan = make_plan(tmp_path / "t", new_columns({"id": "int64", "s": "varchar"}))
    request = make_request(plan, source_of(transform="wide_rows:rows"))
    conf = {"spark.driver.extraJavaOptions": f"-Darrow.vector.max_allocation_bytes={200 * 2**20}"}

    process = start(
        request,
        tmp_path,
        py_files=(tmp_path / "wide_rows.py",),
        conf=conf if given is None else {**conf, BYTES: given},
    )

    ended = process.wait(150)
    if given is not None:  # then it is the user's choice
        assert ended == 1
        assert BYTES in log_of(tmp_path)
        return
    assert ended == 0, log_of(tmp_path)
    (result,) = job_io.read_results(request)
    assert result.rows_written == sum(file.record_count for file in result.data_files) == 9000
    assert "too wide" in log_of(tmp_path)
    assert "Writing again" in log_of(tmp_path)


# --- delete files ---


def test_tasks_write_what_one_process_writes(spark, tmp_path):
    places = [(file, place) for file in (3, 7, 8) for place in range(0, 5_000 * file, file)]
    columns = f"{write_deletes.FILE_ID} bigint, {write_deletes.POSITION} bigint"
    rows = spark.createDataFrame([*places[::-1], *places[:10]], columns)
    paths = {file: f"/data/{file}.parquet" for file in (3, 7, 8)}

    for name, count in (("here", len(places)), ("tasks", 2**20 + 1)):
        (tmp_path / name).mkdir()
        written = write_deletes.write(rows, count, paths, write_deletes.DeleteFolder(f"{tmp_path}/{name}/"))

        assert sorted((int(one.data_file_id), one.count) for one in written) == [
            (3, 5_000),
            (7, 5_000),
            (8, 5_000),
        ]
        for one in written:
            deleted = pq.read_table(one.path)
            assert deleted["pos"].to_pylist() == list(range(0, 5_000 * one.data_file_id, one.data_file_id))
            assert set(deleted["file_path"].to_pylist()) == {paths[one.data_file_id]}


# --- files of a job are synced by the committing process ---


def test_files_of_a_job_are_synced_before_the_commit(spark, sqlite_catalog, monkeypatch):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        session = LakeSession(spark, lake)

        with recorded(monkeypatch) as events:
            session.insert("t", spark.range(100).repartition(2), create_table=True)

        files = [one.path for one in lake.scan("t").files]
    assert files
    assert needed(sqlite_catalog.data_path, files) <= before_commit(events)


# --- strings that DuckDB could not read again are refused ---

LATIN = "CASE id % 10 WHEN 3 THEN CAST(X'636166E9' AS STRING) ELSE concat('café', id) END"
BAD = "b'caf\\xe9'"


def numbers(spark, *values: str):
    """Return 100 rows in four tasks: numbers from 0, and values computed of them."""
    return spark.range(0, 100, 1, 4).selectExpr("id", *values)


def problems(df, plan: WritePlan) -> tuple[str, ...]:
    with pytest.raises(InvalidValueError) as caught:
        write(df, plan)
    assert "main.t" in str(caught.value)
    return caught.value.problems


@pytest.mark.parametrize("partition_by", [(), ("s",), ("bucket(4, s)",)])
def test_bytes_that_are_not_utf8_are_counted_and_refused(spark, new_plan, partition_by):
    schema = new_columns({"id": "int64", "s": "varchar", "t": "varchar"})
    df = numbers(spark, f"{LATIN} AS s", "CASE WHEN id = 7 THEN CAST(X'FF' AS STRING) END AS t")

    assert problems(df, new_plan(schema, partition_by)) == (
        f"column s: 10 values are not valid UTF-8, such as {BAD}",
        "column t: 1 value is not valid UTF-8, such as b'\\xff'",
    )


def test_fields_of_structs_are_looked_at(spark, new_plan):
    schema = new_columns({"id": "int64", "a.b": "struct(c struct(d varchar))"})
    df = numbers(spark, f"named_struct('c', named_struct('d', {LATIN})) AS `a.b`")

    assert problems(df, new_plan(schema)) == (
        f"column a.b.c.d: 10 values are not valid UTF-8, such as {BAD}",
    )


# --- files of jobs, committed: DuckDB's filters find what a plain scan finds ---

JOB_ID = "0190f3c1-0000-7000-8000-000000000001"
COLUMNS = {f"c{number}": text for number, (text, _, _) in enumerate(VALUES)}
OPERATORS = ("=", "<>", "<=", ">=", "<", ">")


def every_value(spark, columns: dict[str, str]):
    """Rows in which each column runs through its values and a NULL, over and over."""
    texts = {type_: [*values, "NULL"] for type_, values, _ in VALUES}
    longest = max(len(values) for values in texts.values())
    rows = [
        ", ".join(f"{texts[type_][row % len(texts[type_])]} AS {name}" for name, type_ in columns.items())
        for row in range(longest)
    ]
    return spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))


def test_filters_on_every_column_find_the_right_rows(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("main.t", COLUMNS)
        table = lake.table_snapshot("main.t")
        result = write(every_value(spark, COLUMNS), plan_write(table, job_directory(table.root, JOB_ID)))
        lake.committer.commit(table.snapshot.id, append_to_existing(table, result), CommitInfo())

    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE memory.plain AS FROM lake.t")  # a full scan looks at no statistics
        for name in COLUMNS:
            for condition in _conditions(duck, name):
                found = _matching(duck, "lake.t", name, condition)
                assert found == _matching(duck, "memory.plain", name, condition), condition


def _matching(duck: DuckLakeConnection, table: str, column: str, condition: str) -> list[tuple]:
    return duck.sql(f"SELECT {column}::VARCHAR FROM {table} WHERE {condition} ORDER BY ALL")


def _conditions(duck: DuckLakeConnection, column: str) -> list[str]:
    values = duck.sql(
        f"SELECT DISTINCT {column}::VARCHAR, typeof({column}) FROM memory.plain WHERE {column} IS NOT NULL"
    )
    literals = [f"'{text.replace(chr(39), chr(39) * 2)}'::{type_}" for text, type_ in values]
    compared = [f"{column} {operator} {literal}" for literal in literals for operator in OPERATORS]
    return [*compared, f"{column} IS NULL", f"{column} IS NOT NULL"]


def test_a_created_table_appears_with_its_rows_and_types(spark, sqlite_catalog):
    df = spark.sql(
        "SELECT 1L AS id, 'x' AS name, date'2024-05-06' AS day UNION ALL SELECT 2L, NULL, date'2025-01-01'"
    )
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        target = lake.reads.new_table(QualifiedName.of(("main", "t")))
        plan = plan_create(target, job_directory(target.root, JOB_ID), ["year(day)"])
        committed = lake.committer.commit(
            target.snapshot.id, create_and_append(target, write(df, plan)), CommitInfo()
        )
        assert committed is not None
        assert [change.name or change.object_id for change in lake.snapshots()[-1].changes] == [
            QualifiedName.of(("main", "t")),
            1,
            1,
        ]

    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("SELECT id, name, day::VARCHAR FROM t ORDER BY id") == [
            (1, "x", "2024-05-06"),
            (2, None, "2025-01-01"),
        ]
        assert duck.sql("SELECT id FROM t WHERE year(day) = 2025 AND day > DATE '2024-12-31'") == [(2,)]
