"""The examples of the user guide: DAG files parse, connections are accepted."""

import re
import textwrap
from pathlib import Path

import pytest
from airflow.sdk import Connection

from airflow_provider_ducklake.hooks.connection import read_settings
from tests.airflow.dags import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
EXAMPLES = DOCS.with_name("example_dags")


def blocks(language: str) -> list[object]:
    return [
        pytest.param(code, id=f"{page}-{number}")
        for page in PAGES
        for number, code in enumerate(
            re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
        )
        if language != "python" or "DAG(" in code or "@dag(" in code  # others are the library's
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_each_example_is_a_dag_file_that_parses(code, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(code)

    assert parse(file).task_dict


def recipes() -> list[tuple[str, list[str]]]:
    """Return the example of each recipe and the blocks of Python that the page shows of it."""
    sections = (DOCS / "recipes.md").read_text().split("\n## ")[1:]
    return [
        (
            re.findall(r"`example_dags/(\w+\.py)", section)[0],
            re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE),
        )
        for section in sections
    ]


@pytest.mark.parametrize(("example", "shown"), recipes())
def test_each_recipe_shows_lines_of_its_example(example, shown):
    text = (EXAMPLES / example).read_text()

    assert shown
    for block in shown:
        assert block in text or textwrap.indent(block, "    ") in text


@pytest.mark.parametrize("text", blocks("json"))
def test_each_example_of_a_connection_is_accepted(text, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", '{"conn_type": "aws"}')
    settings = read_settings(Connection.from_json(text, conn_id="example"))

    assert settings.url.get_backend_name() in ("sqlite", "postgresql", "mysql", "duckdb")


def test_classes_that_the_guide_names_exist():
    package = DOCS.with_name("airflow_provider_ducklake")
    defined = {
        name
        for module in package.rglob("*.py")
        for name in re.findall(r"^class (\w+)", module.read_text(), re.MULTILINE)
    }
    named = {
        name
        for page in (*DOCS.glob("*.md"), DOCS.with_name("README.md"))
        for name in re.findall(r"\bDuckLake[A-Z]\w+", page.read_text())
    }

    assert len(named) > 20
    assert named <= defined
