"""Settings, many files, odd paths and progress lines."""

import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.format.options import Options
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.sessions.classic import progress_lines
from tests.spark.conftest import make_plan

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
