"""Run a job in a copy of an existing session, which stays as it was."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414 - theirs who import no PySpark, too
from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414 - likewise
from pyspark.sql.session import _monkey_patch_RDD

from airflow_provider_ducklake.spark import sources
from airflow_provider_ducklake.spark.job.errors import typed
from airflow_provider_ducklake.spark.job.package_zip import package_zip
from airflow_provider_ducklake.spark.jobs.run import do
from airflow_provider_ducklake.storage.files.process_options import as_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext

    from airflow_provider_ducklake.planning.writing.row_changes import RowChanges
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spark.job.request import JobRequest

_ENVIRONMENT = RLock()  # the process has one environment: jobs that need something in it come one by one


def run_here(
    spark: SparkSession,
    request: JobRequest,
    storage_options: Mapping[str, Any],
    frames: Mapping[str, DataFrame],
) -> tuple[WriteResult, ...] | RowChanges:
    """Do what the request asks for, with DataFrames of the session as views beside it.

    Raises:
        DuckLakeError: as the submitted job leaves it for its operator.
    """
    give_package(spark.sparkContext)
    with options_given(spark.sparkContext, storage_options), _copied(spark) as session:
        for name, df in frames.items():
            sources.show_as(_moved(df, session), name)
        try:
            return do(session, request, storage_options)
        except Exception as error:  # Spark's own, or one of ours in Spark's
            raise typed(error) from error


@contextmanager
def _copied(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a copy of a session: settings, views and functions are as in it, and changes stay in the copy."""
    of_jvm = spark._jsparkSession.cloneSession()  # noqa: SLF001 - no public way keeps views and functions
    session = SparkSession(spark.sparkContext, of_jvm)
    _monkey_patch_RDD(spark)  # a new session has taken over RDD.toDF
    with suppress(Py4JError):  # other Spark releases keep them elsewhere
        _share_observations(spark._jsparkSession, of_jvm)  # noqa: SLF001
    try:
        yield session
    finally:  # createDataFrame has made the copy the active one
        SparkSession._activeSession = spark  # noqa: SLF001
        of_jvm.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def _share_observations(of_user: JavaObject, of_copy: JavaObject) -> None:
    """Have the copy tell users' ``Observation``s what it sees; without that they would wait forever."""
    known = of_user.observationManager().getClass().getDeclaredField("observations")
    known.setAccessible(True)
    known.set(of_copy.observationManager(), known.get(of_user.observationManager()))


def _moved(df: DataFrame, session: SparkSession) -> DataFrame:
    """Return the DataFrame in another session; what it means was settled in its own."""
    of_jvm = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]  # noqa: SLF001
    return DataFrame(of_jvm.ofRows(session._jsparkSession, df._jdf.logicalPlan()), session)  # noqa: SLF001


@contextmanager
def options_given(context: SparkContext, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Have this process and Python tasks know the storage options; no setting shows them."""
    variables = as_environment(storage_options)
    if not variables:
        yield
        return
    with _ENVIRONMENT, _added(os.environ, variables), _added(context.environment, variables):
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


def give_package(context: SparkContext) -> None:
    """Have executors find this package; those in this process's own environment do already."""
    master = str(context.master)
    if master == "local" or master.startswith("local["):
        return
    zip_file = package_zip(context._temp_dir)  # noqa: SLF001 - lasts as long as the context
    if not any(one.endswith(f"/{zip_file.name}") for one in context.listFiles):
        context.addPyFile(str(zip_file))
