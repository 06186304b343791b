"""Run a job in a session that is there already."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414, TC002 - theirs who import no PySpark, too
from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414, TC002 - likewise

from airflow_provider_ducklake.lake.spark import sources
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.jobs.run import do
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote, kind_of
from airflow_provider_ducklake.lake.storage.files.filesystem import as_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from airflow_provider_ducklake.lake.planning.writing.write import RowChanges, WriteResult
    from airflow_provider_ducklake.lake.spark.job.request import JobRequest

_ENVIRONMENT = RLock()  # the process has one environment: jobs that need something in it come one by one


def run_here(
    spark: SparkSession,
    request: JobRequest,
    storage_options: Mapping[str, Any],
    frames: Mapping[str, DataFrame],
    *,
    is_ours: bool = False,
) -> tuple[WriteResult, ...] | RowChanges:
    """Do what the request asks for, with DataFrames of the session as views beside it.

    A session that is not ours stays as it was: the job runs in a copy of it.
    """
    try:
        copied = nullcontext(spark) if is_ours else kind_of(spark).copied()
        with options_given(spark, storage_options), copied as session:
            kind = kind_of(session)
            kind.give_package()
            for name, df in frames.items():
                sources.show_as(kind.rebind(df), name)
            return do(session, request, storage_options)
    except Exception as error:  # Spark's own, or one of ours in Spark's
        raise typed(error) from error


@contextmanager
def options_given(spark: SparkSession, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Pass the storage options to this process and to Python tasks; no setting shows them."""
    variables = as_environment(storage_options)
    if not variables:
        yield
        return
    of_tasks = {} if is_remote(spark) else spark.sparkContext.environment
    with _ENVIRONMENT, _added(os.environ, variables), _added(of_tasks, variables):
        yield


@contextmanager
def _added(environment: MutableMapping[str, str], variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: environment[name] for name in variables if name in environment}
    environment.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del environment[name]
        environment.update(before)
