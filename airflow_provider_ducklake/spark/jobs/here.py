"""Run a job in an existing session, and restore the session afterwards."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.spark.job.errors import typed
from airflow_provider_ducklake.spark.job.package_zip import package_zip
from airflow_provider_ducklake.spark.job.request import LakeSource, RowChangeSource, SqlSource
from airflow_provider_ducklake.spark.jobs.run import do
from airflow_provider_ducklake.spark.types.session import kept_settings
from airflow_provider_ducklake.storage.files.process_options import as_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.writing.row_changes import RowChanges
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spark.job.request import JobRequest, Source


def run_here(
    spark: SparkSession, request: JobRequest, storage_options: Mapping[str, Any]
) -> tuple[WriteResult, ...] | RowChanges:
    """Do what the request asks for.

    Raises:
        DuckLakeError: as the submitted job leaves it for its operator.
    """
    with ExitStack() as stack:
        stack.enter_context(_options_given(spark, storage_options))
        stack.enter_context(kept_settings(spark))
        stack.enter_context(kept_views(spark, _views(request.source)))
        try:
            return do(spark, request, storage_options)
        except Exception as error:  # Spark's own, or one of ours in Spark's
            raise typed(error) from error


@contextmanager
def _options_given(spark: SparkSession, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Have this process and Python tasks know the storage options; no setting shows them."""
    variables = as_environment(storage_options)
    of_tasks = spark.sparkContext.environment
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    of_tasks.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            of_tasks.pop(name, None)
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _views(source: Source | None) -> list[str]:
    """Return the temporary views that a job creates."""
    match source:
        case SqlSource():
            return list(source.datasets)
        case LakeSource():
            of_steps = [step.view for step in source.steps if step.view is not None]
            return [*source.tables, *source.datasets, *of_steps]
        case RowChangeSource():
            return _views(source.source)
        case _:
            return []


@contextmanager
def kept_views(spark: SparkSession, names: list[str]) -> Iterator[None]:
    """Drop the views of these names behind the job, or make those again that they took the place of."""
    catalog = spark.catalog
    theirs = {one.name.lower() for one in catalog.listTables() if one.isTemporary} if names else set()
    before = {name: spark.table(f"`{name}`") for name in names if name.lower() in theirs}
    try:
        yield
    finally:
        for name in names:
            if name in before:
                before[name].createOrReplaceTempView(f"`{name}`")
            else:
                catalog.dropTempView(name)


def give_package(spark: SparkSession) -> None:
    """Have executors find this package; those in this process's own environment do already."""
    context = spark.sparkContext
    master = str(context.master)
    if not master.startswith("local[") and master != "local":
        context.addPyFile(str(package_zip(context._temp_dir)))  # noqa: SLF001 - lasts as long as the session
