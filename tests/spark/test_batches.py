"""Batches for pyarrow are counted in rows; who has wide rows is told, and may have Spark measure them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from airflow_provider_ducklake.spark.job.errors import typed
from airflow_provider_ducklake.spark.types.session import prepare
from airflow_provider_ducklake.spark.types.spark_types import fields_of_spark
from airflow_provider_ducklake.spark.writing import write_arrow
from airflow_provider_ducklake.spec.schema import new_columns
from tests.spark.conftest import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def write_wide_rows(spark: SparkSession, root: Path) -> int:
    """Write rows that need 246 MB together, and return their number."""
    df = spark.range(0, 4096, 1, 1).selectExpr("repeat('x', 60000) as s")
    plan = make_plan(root, new_columns(fields_of_spark(df.schema)))
    return sum(file.record_count for file in write_arrow.write(df, (), plan))


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
