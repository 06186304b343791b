"""The fields that the UI shows of a task: ours come first, those of spark-submit after them."""

from importlib import import_module

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator

from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.provider import get_provider_info


def operators() -> list[type[BaseOperator]]:
    modules = [
        import_module(name) for one in get_provider_info()["operators"] for name in one["python-modules"]
    ]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__name__.startswith("DuckLake")
        and value.__module__ == module.__name__
    }
    return sorted(found, key=lambda one: one.__name__)


def test_our_fields_come_before_those_of_spark_submit():
    theirs = set(SparkSubmitOperator.template_fields)
    jobs = [one for one in operators() if issubclass(one, DuckLakeSparkOperator)]

    for operator in jobs:
        is_theirs = [field in theirs for field in operator.template_fields]
        assert is_theirs == sorted(is_theirs), operator.__name__
    assert len(jobs) >= 8


def test_what_a_task_is_about_comes_first():
    for operator in operators():
        first = operator.template_fields[0]
        assert first not in ("ducklake_conn_id", "message"), operator.__name__
        assert len(set(operator.template_fields)) == len(operator.template_fields)
