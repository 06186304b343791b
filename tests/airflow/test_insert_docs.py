"""The examples of the pages on inserts: DAG files parse, connections are accepted."""

import inspect
import re
from pathlib import Path

import pytest
from airflow.sdk import Connection

from airflow_provider_ducklake.hooks.connection import read_settings
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.airflow.dags import parse

DOCS = Path(__file__).parents[2] / "docs"


def blocks(language: str) -> list[object]:
    return [
        pytest.param(code, id=f"{page}-{number}")
        for page in ("quickstart.md", "insert.md")
        for number, code in enumerate(
            re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
        )
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_each_example_is_a_dag_file_with_an_insert_or_what_follows_it(code, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(code)

    types = {task.task_type for task in parse(file).tasks}
    assert types & {DuckLakeSparkInsertOperator.__name__, DuckLakeSparkSQLOperator.__name__}


@pytest.mark.parametrize("text", blocks("json"))
def test_each_example_of_a_connection_is_accepted(text):
    assert read_settings(Connection.from_json(text, conn_id="example")).data_path == "/data/files/"


def test_each_argument_of_the_operator_is_explained_in_its_docstring():
    explained = set(re.findall(r":param (\w+):", DuckLakeSparkInsertOperator.__doc__))

    own = inspect.unwrap(DuckLakeSparkInsertOperator.__init__).__kwdefaults__ or {}
    assert explained == {"table", *own} - {"kwargs"}
