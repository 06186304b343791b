"""Batches for pyarrow are counted in rows; rows too wide for that are written again in measured batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import source_of
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from airflow_provider_ducklake.lake.spark.types.spark_types import fields_of_spark
from airflow_provider_ducklake.lake.spark.writing import write_arrow
from tests.spark.conftest import make_plan
from tests.spark.submission import log_of, make_request, start

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
