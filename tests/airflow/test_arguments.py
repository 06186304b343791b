"""Arguments of operators: `default_args` reach each of them, and `LakeSession` takes the same."""

import importlib
import inspect
import pkgutil
import re
from itertools import chain
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.writes.session import LakeSession
from airflow_provider_ducklake.operators.compact import DuckLakeSparkCompactionOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor

OURS = "airflow_provider_ducklake"
NEEDED = {
    "table": "main.t",
    "paths": ["/x.parquet"],
    "staged": [],
    "sql": "DROP TABLE t",
    "where": "i = 1",
    "filter": "i = 1",
    "step": "merge",
    "group": "g",
    "on": "id",
    "at": 3,
    "transform": "a.b:c",
    "checkpoint": "/checkpoint/",
    "set": {"a": "1"},
    "name": "a",
    "path": "/x.ducklake",
    "source": "/iceberg/",
    "format": "iceberg",
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {  # what an argument has to stand beside
    ("DuckLakeDDLOperator", ""): {"sql": "DROP TABLE t"},
    ("DuckLakeSparkInsertOperator", ""): {"source": "/in.parquet"},
    ("DuckLakeSparkInsertOperator", "sql"): {},
    ("DuckLakeSparkInsertOperator", "transform"): {},
    ("DuckLakeSparkInsertOperator", "sources"): {"sql": "SELECT 1"},
    ("DuckLakeSparkInsertOperator", "partition_by"): {"source": "/in.parquet", "create_table": True},
    ("DuckLakeSparkInsertOperator", "overwrite_where"): {"source": "/in.parquet", "mode": "overwrite"},
    ("DuckLakeSparkMergeOperator", ""): {"source": "/in.parquet", "update_all": True},
    ("DuckLakeSparkMergeOperator", "sql"): {"update_all": True},
    ("DuckLakeSparkMergeOperator", "transform"): {"update_all": True},
    ("DuckLakeSparkMergeOperator", "source_table"): {"update_all": True},
    ("DuckLakeSparkMergeOperator", "sources"): {"sql": "SELECT 1", "update_all": True},
    ("DuckLakeSparkMergeOperator", "update_all"): {"source": "/in.parquet", "insert_all": True},
    ("DuckLakeSparkMergeOperator", "when_matched"): {"source": "/in.parquet", "insert_all": True},
    ("DuckLakeSparkSQLOperator", ""): {"sql": "INSERT INTO a SELECT 1"},
    ("DuckLakeSparkSQLOperator", "sql"): {},
    ("DuckLakeSparkSQLOperator", "transform"): {"targets": {"main.t": "append"}, "tables": ["main.s"]},
    ("DuckLakeSparkSQLOperator", "tables"): {"transform": "a.b:c", "targets": {"main.t": "append"}},
    ("DuckLakeSparkSQLOperator", "consumer"): {"sql": "INSERT INTO a SELECT 1", "incremental": True},
    ("DuckLakeSparkSQLOperator", "full_refresh"): {"sql": "INSERT INTO a SELECT 1", "incremental": True},
    ("DuckLakeSparkSQLOperator", "targets"): {"transform": "a.b:c", "tables": ["main.s"]},
}
VALUES: dict[str, Any] = {
    **NEEDED,
    "source": "/other.parquet",
    "sources": {"a": "/a.parquet"},
    "sql": "SELECT 2",
    "older_than": "9 days",
    "min_retention": "30 hours",
    "stage_ttl": "9 days",
    "tables": ["main.x"],
    "fail_above": {"under_1_mib": 3},
    "on_clear": "skip",
    "mode": "overwrite",
    "schema_evolution": "add_columns",
    "schema": "s",
    "default_schema": "s",
    "schema_": "s",
    "partition_by": ["day"],
    "zorder_by": ["a"],
    "if_empty": "skip",
    "overwrite_where": "i = 1",
    "deploy_mode": "cluster",
    "target_file_size": "3MB",
    "min_file_size": "1MB",
    "max_file_size": "2MB",
    "delete_threshold": 0.5,
    "sample": 0.5,
    "changes": ["insert"],
    "since": 3,
    "when_matched": [{"update": "all"}],
    "when_not_matched": [{"insert": "all"}],
    "when_not_matched_by_source": [{"delete": True}],
    "arguments": {"target_file_size": "3MB"},
    "incremental": True,
    "targets": {"main.t": "append"},
    "snapshots": [3],
    "keep": [3],
    "keep_last": 3,
    "ignore": ["path-twice"],
    "least": 3,
    "min_rows": 3,
    "max_input_files": 3,
    "max_output_files": 3,
    "commit_every": 3,
    "source_table": "main.s",
    "action": "untag",
    "format": "sqlite",
    "files_path": "/files/",
    "data_path": "/data/",
}
SPARK_SUBMIT_S = {"conn_id", "deploy_mode"}
KEPT_ELSEWHERE = {"durable"}  # that attribute is the parent's
COMMIT_THEMSELVES = [
    getattr(operators, f"DuckLakeSpark{verb}Operator")
    for verb in ("Delete", "Update", "Merge", "SQL", "Stream")
]


def all_operators() -> list[type[BaseOperator]]:
    found = [DuckLakeSnapshotSensor]
    for module in pkgutil.iter_modules(operators.__path__):
        members = vars(importlib.import_module(f"{operators.__name__}.{module.name}")).values()
        found += [one for one in members if inspect.isclass(one) and issubclass(one, BaseOperator)]
    ours = {one for one in found if one.__module__.startswith(OURS) and not inspect.isabstract(one)}
    return sorted(ours, key=lambda one: one.__name__)


def arguments_of(operator: type[BaseOperator]) -> dict[str, inspect.Parameter]:
    """Return the arguments that classes of ours name, those of bases too."""
    found: dict[str, inspect.Parameter] = {}
    for class_ in reversed(operator.__mro__):
        if class_.__module__.startswith(OURS) and "__init__" in vars(class_):
            parameters = inspect.signature(inspect.unwrap(class_.__init__)).parameters.values()
            found |= {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
    return found


CASES = [
    pytest.param(operator, name, id=f"{operator.__name__}-{name}")
    for operator in all_operators()
    for name in arguments_of(operator)
    if name not in KEPT_ELSEWHERE
]


@pytest.mark.parametrize("operator", all_operators())
def test_every_argument_of_ours_is_explained(operator):
    texts = "".join(one.__doc__ or "" for one in operator.__mro__ if one.__module__.startswith(OURS))

    explained = set(re.findall(r":param (\w+):", texts))
    assert set(arguments_of(operator)) - explained <= SPARK_SUBMIT_S


def value_of(parameter: inspect.Parameter) -> Any:
    if parameter.name in VALUES:
        return VALUES[parameter.name]
    return not parameter.default if isinstance(parameter.default, bool) else "other"


def made(operator: type[BaseOperator], given: dict[str, Any], default_args: Any = None) -> dict[str, Any]:
    with DAG("dag", schedule=None, default_args=default_args or {}):
        return vars(operator(task_id="task", **given))


@pytest.mark.parametrize(("operator", "name"), CASES)
def test_every_argument_of_ours_takes_its_value_from_default_args(operator, name):
    parameters = arguments_of(operator)
    parameter = parameters[name]
    beside = BESIDE.get((operator.__name__, name), BESIDE.get((operator.__name__, ""), {}))
    needed = {one.name: NEEDED[one.name] for one in parameters.values() if one.default is one.empty}
    others = {**needed, **beside}
    others.pop(name, None)
    value = value_of(parameter)

    by_hand = made(operator, {**others, name: value})
    by_default = made(operator, others, {name: value})

    shown = [key for key in by_hand if not key.startswith("_") and key not in _OF_DAGS]
    assert {key: by_default[key] for key in shown} == {key: by_hand[key] for key in shown}
    assert any(by_hand[key] == value or str(value) in str(by_hand[key]) for key in shown), "it is not kept"


@pytest.mark.parametrize("given", [{}, {"stage_only": True}], ids=["default", "own"])
@pytest.mark.parametrize("operator", COMMIT_THEMSELVES)
def test_an_operator_that_commits_itself_refuses_to_stage(operator, given):
    names = arguments_of(operator)
    needed = {name: NEEDED[name] for name, one in names.items() if one.default is one.empty}
    needed |= BESIDE.get((operator.__name__, ""), {})

    with pytest.raises(InvalidInputError, match=f"{operator.__name__} commits its changes itself"):
        made(operator, needed | given, None if given else {"stage_only": True})


_OF_DAGS = {"default_args", "dag", "task_group", "start_date", "end_date", "params", "inlets", "outlets"}
GROUP_ARGS = {
    "ducklake_conn_id": "lake_pg",
    "spark_conn_id": "cluster",
    "tables": ["main.t"],
    "dry_run": True,
    "fail_above": {"under_1_mib": 3},
    "max_active_tis_per_dagrun": 2,
    "retries": 7,
}


def at_run_time(task: BaseOperator | MappedOperator) -> BaseOperator:
    return task.unmap({"table": "main.t"}) if isinstance(task, MappedOperator) else task


def test_the_maintenance_of_a_lake_is_that_of_the_lake_in_default_args():
    with DAG("dag", schedule=None, default_args=GROUP_ARGS) as dag:
        operators.ducklake_maintenance()

    assert len(dag.tasks) == 11
    for task in dag.tasks:
        given = vars(at_run_time(task))
        expected = {"ducklake_conn_id": "lake_pg", "retries": 7}
        expected |= {name: GROUP_ARGS[name] for name in ("tables",) if name in given}
        if task.task_id.endswith(".report"):
            expected["fail_above"] = GROUP_ARGS["fail_above"]
        expected |= {"is_dry_run": True} if "is_dry_run" in given else {}
        expected |= {"spark_conn_id": "cluster"} if "spark_conn_id" in given else {}
        assert {name: given[name] for name in expected} == expected, task.task_id


def test_what_a_group_is_given_beats_default_args():
    with DAG("dag", schedule=None, default_args=GROUP_ARGS) as dag:
        operators.ducklake_maintenance(ducklake_conn_id="mine", tables=["main.mine"], dry_run=False)

    for task in dag.tasks:
        given = vars(at_run_time(task))
        assert given["ducklake_conn_id"] == "mine", task.task_id
        assert given.get("tables", ["main.mine"]) == ["main.mine"]
        assert given.get("is_dry_run", False) is False


def test_a_sensor_is_among_them():
    assert any(issubclass(one, BaseSensorOperator) for one in all_operators())


# --- LakeSession takes the arguments of the operators: their names and defaults ---


METHODS = {
    LakeSession.insert: (operators.DuckLakeSparkInsertOperator,),
    LakeSession.delete: (operators.DuckLakeSparkDeleteOperator,),
    LakeSession.update: (operators.DuckLakeSparkUpdateOperator,),
    LakeSession.merge: (operators.DuckLakeSparkMergeOperator,),
    LakeSession.sql: (operators.DuckLakeSparkSQLOperator,),
    LakeSession.merge_adjacent_files: (
        DuckLakeSparkCompactionOperator,
        operators.DuckLakeSparkMergeAdjacentFilesOperator,
    ),
    LakeSession.rewrite_data_files: (
        DuckLakeSparkCompactionOperator,
        operators.DuckLakeSparkRewriteDataFilesOperator,
    ),
    LakeSession.flush_inlined_data: (operators.DuckLakeFlushInlinedDataOperator,),
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


def defaults_of(function) -> dict[str, object]:
    given = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in given if one.kind is not one.VAR_KEYWORD and one.name != "self"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_method_has_the_arguments_of_its_operator(method):
    of_operator = {"message": defaults_of(DuckLakeSparkOperator.__init__)["message"]}
    for operator in METHODS[method]:
        of_operator |= defaults_of(operator.__init__)
    of_session = defaults_of(method)

    assert of_operator.keys() - of_session.keys() <= ONLY_OPERATORS
    assert of_session.keys() - of_operator.keys() <= ONLY_SESSION
    other = {name for name in of_session.keys() & of_operator.keys() if of_session[name] != of_operator[name]}
    assert other == {name for one, name in OTHER_DEFAULTS if one is method}
