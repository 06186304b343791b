"""Which cause an error of Spark's is told by: its exceptions of Java, never the values in their messages."""

import os
import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.sessions.kind import map_in_arrow
from airflow_provider_ducklake.lake.storage.files.filesystem import storage_errors

OUT_OF_MEMORY = "java.lang.OutOfMemoryError: Java heap space"


def said_of(spark, java_exception) -> str:
    """Return what becomes of an exception of Java that is the cause of another."""
    with pytest.raises(Py4JJavaError) as caught:
        spark._jvm.java.util.concurrent.CompletableFuture.failedFuture(java_exception).join()
    found = typed(caught.value)
    assert type(found) is SparkJobError
    return str(found)


@pytest.mark.classic_only("makes exceptions of Java")
def test_exceptions_behind_the_error_tell_the_cause_and_spark_is_quoted(spark):
    text = said_of(spark, spark._jvm.java.lang.OutOfMemoryError("Java heap space"))

    cause, said = text.split("\n", 1)
    assert cause == (
        f"Spark ran out of memory. Raise driver_memory or executor_memory. Spark says: {OUT_OF_MEMORY}"
    )
    assert said.startswith("  Py4JJavaError: An error occurred while calling")
    assert OUT_OF_MEMORY in said


@pytest.mark.classic_only("RDDs")
def test_a_worker_of_python_that_died_is_told(spark):
    with pytest.raises(Exception, match="Python worker exited unexpectedly") as caught:
        spark.sparkContext.range(1).foreach(lambda _: os._exit(1))

    assert str(typed(caught.value)).startswith(
        "A process of the job was killed, most often because it ran out of memory."
    )


def fills_the_disk(batches):
    with storage_errors("/data/x", "write"), Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    yield from batches


def fails_by_itself(batches):
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    yield from batches


def test_a_full_disk_of_a_task_is_called_full(spark):
    rows = spark.range(1)
    with pytest.raises(Exception, match="the disk is full") as caught:
        map_in_arrow(rows, fills_the_disk, rows.schema).collect()

    found = typed(caught.value)
    assert type(found) is StorageError
    assert str(found).startswith("Cannot write /data/x: the disk is full. Make room there")


def test_what_python_says_of_another_error_of_a_task_comes_first(spark):
    rows = spark.range(1)
    with pytest.raises(Exception, match="No space left") as caught:
        map_in_arrow(rows, fails_by_itself, rows.schema).collect()

    found = typed(caught.value)
    assert type(found) is SparkJobError
    assert re.match(r"\w+: OSError: \[Errno 28\] No space left on device\n", str(found))


@pytest.mark.parametrize(
    "value",
    [OUT_OF_MEMORY, f"x\nCaused by: {OUT_OF_MEMORY}", f"{OUT_OF_MEMORY}\n", f"\n: {OUT_OF_MEMORY}"],
)
def test_values_of_rows_tell_no_cause(spark, value):
    rows = spark.createDataFrame([(value,)], "s string")
    for expression in ("CAST(s AS INT)", "raise_error(s)", "CAST(raise_error(s) AS INT) + rand()"):
        with pytest.raises(Exception, match="Java heap space") as caught:
            rows.selectExpr(expression).collect()

        assert "ran out of memory" not in str(typed(caught.value))


@pytest.mark.classic_only("makes exceptions of Java")
def test_files_and_programs_of_others_tell_no_cause(spark):
    jvm = spark._jvm

    assert "bucket" not in said_of(spark, jvm.java.nio.file.AccessDeniedException("/data/files/x"))
    assert "Python" not in said_of(spark, jvm.java.io.IOException('Cannot run program "jq": error=2, x'))


class NumberFormatException(Exception):  # noqa: N818 - Java's
    """As Python names one of Java's."""


@pytest.mark.parametrize(
    "error",
    [
        NumberFormatException(f"[CAST_INVALID_INPUT] The value '{OUT_OF_MEMORY}' of the type"),
        RuntimeError("java.nio.file.AccessDeniedException: s3a://x/y: software.amazon.awssdk"),
        OSError('Cannot run program "jq": error=2, No such file or directory'),
        RuntimeError("An error occurred (AccessDeniedException) when calling the GetSecretValue operation"),
    ],
)
def test_errors_of_users_own_python_tell_no_cause(error):
    assert str(typed(error)) == f"{type(error).__name__}: {error}"
