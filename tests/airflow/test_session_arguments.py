"""`LakeSession` takes the arguments of the operators: their names, their order apart, and their defaults."""

import importlib
import inspect
import pkgutil
from itertools import chain

import pytest

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.lake.writes.session import LakeSession
from airflow_provider_ducklake.operators.compact import (
    DuckLakeSparkCompactionOperator,
    DuckLakeSparkMergeAdjacentFilesOperator,
    DuckLakeSparkRewriteDataFilesOperator,
)
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.flush_inlined_data import DuckLakeFlushInlinedDataOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator

METHODS = {
    LakeSession.insert: (DuckLakeSparkInsertOperator,),
    LakeSession.delete: (DuckLakeSparkDeleteOperator,),
    LakeSession.update: (DuckLakeSparkUpdateOperator,),
    LakeSession.merge: (DuckLakeSparkMergeOperator,),
    LakeSession.sql: (DuckLakeSparkSQLOperator,),
    LakeSession.merge_adjacent_files: (
        DuckLakeSparkCompactionOperator,
        DuckLakeSparkMergeAdjacentFilesOperator,
    ),
    LakeSession.rewrite_data_files: (DuckLakeSparkCompactionOperator, DuckLakeSparkRewriteDataFilesOperator),
    LakeSession.flush_inlined_data: (DuckLakeFlushInlinedDataOperator,),
}
ONLY_OPERATORS = {
    "on_clear",  # Airflow's: a task is cleared
    "stage_only",  # Airflow's: another task commits
    "transform",  # a function in a module of the job; here users call theirs
    "tables",  # goes with transform
    "targets",  # goes with transform
}
ONLY_SESSION = {"commit_key"}  # an operator's key is its task's
OTHER_DEFAULTS = {
    (LakeSession.sql, "sql"),  # without transform it has to be given
    (LakeSession.merge, "on"),  # follows source, which has a default; merge() refuses its absence
}


NOT_OF_A_SESSION = {"DuckLakeSparkStreamOperator"}  # a stream of a session's own is the user's


def test_every_operator_that_runs_a_job_has_a_method():
    modules = pkgutil.iter_modules(operators.__path__, f"{operators.__name__}.")
    classes = {
        one
        for module in modules
        for one in vars(importlib.import_module(module.name)).values()
        if isinstance(one, type)
        and issubclass(one, DuckLakeSparkOperator)
        and one is not DuckLakeSparkOperator
    }

    assert {one.__name__ for one in classes - {*chain(*METHODS.values())}} == NOT_OF_A_SESSION


def arguments(function) -> dict[str, object]:
    given = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in given if one.kind is not one.VAR_KEYWORD and one.name != "self"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_method_has_the_arguments_of_its_operator(method):
    of_operator = {"message": arguments(DuckLakeSparkOperator.__init__)["message"]}
    for operator in METHODS[method]:
        of_operator |= arguments(operator.__init__)
    of_session = arguments(method)

    assert of_operator.keys() - of_session.keys() <= ONLY_OPERATORS
    assert of_session.keys() - of_operator.keys() <= ONLY_SESSION
    other = {name for name in of_session.keys() & of_operator.keys() if of_session[name] != of_operator[name]}
    assert other == {name for one, name in OTHER_DEFAULTS if one is method}
