"""Run a job in a session that is there already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from threading import Condition, local
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414, TC002 - theirs who import no PySpark, too
from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414, TC002 - likewise

from ...storage.files.filesystem import as_environment
from .. import sources
from ..job.errors import typed
from ..sessions.kind import is_remote, kind_of
from ..sessions.settings import prepare_sources
from .run import do

if TYPE_CHECKING:
    from ...planning.writing.write import RowChanges, WriteResult
    from ..job.request import JobRequest


class _Environment:
    """The process has one: a job with something in it runs alone, those without run side by side.

    A job that a job starts, in its thread, is part of that one.
    """

    def __init__(self) -> None:
        self._changed, self._own = Condition(), local()
        self._jobs = self._waiting = 0
        self._is_alone = False

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        within = getattr(self._own, "jobs", 0)
        with self._changed:
            self._waiting += alone
            try:
                self._changed.wait_for(lambda: within or self._is_free(alone=alone))
            finally:
                self._waiting -= alone
            self._jobs += not within
            was_alone, self._is_alone = self._is_alone, self._is_alone or alone
        self._own.jobs = within + 1
        try:
            yield
        finally:
            self._own.jobs = within
            with self._changed:
                self._jobs -= not within
                self._is_alone = was_alone
                self._changed.notify_all()

    def _is_free(self, *, alone: bool) -> bool:
        return not self._is_alone and not (self._jobs if alone else self._waiting)


_ENVIRONMENT = _Environment()


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
            if is_ours:
                prepare_sources(session)
            for name, df in frames.items():
                sources.show_as(kind.rebind(df), name)
            return do(session, request, storage_options)
    except Exception as error:  # Spark's own, or one of ours in Spark's
        raise typed(error) from error


@contextmanager
def options_given(spark: SparkSession, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Pass the storage options to this process and to Python tasks; no setting shows them."""
    variables = as_environment(storage_options)
    of_tasks = {} if is_remote(spark) else spark.sparkContext.environment
    with _ENVIRONMENT.held(alone=bool(variables)), _added(os.environ, variables), _added(of_tasks, variables):
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
