"""The examples of the user guide run or parse, its connections are accepted; docstrings are true."""

import doctest
import inspect
import re
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import duckdb
import pytest
from airflow.sdk import Connection

from airflow_provider_ducklake.hooks.connection import read_settings
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.options import OPTIONS
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.airflow.dags import context_of, parse, succeeded, xcom
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
ON_INSERTS = ("quickstart.md", "insert.md")
EXAMPLES = DOCS.with_name("example_dags")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_OF_LAKES = {"require_commit_message", "delete_older_than", "expire_older_than"}


def code_of(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[object]:
    return [
        pytest.param(page, code, id=f"{page}-{number}")
        for page in PAGES
        for number, code in enumerate(code_of(page, language))
        # others are the library's
        if page in ON_INSERTS or language != "python" or re.search(r"DAG\(|@dag\(", code)
    ]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_each_example_is_a_dag_file_that_parses(page, code, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(code)

    types = {task.task_type for task in parse(file).tasks}
    assert types
    if page in ON_INSERTS:
        assert types & {DuckLakeSparkInsertOperator.__name__, DuckLakeSparkSQLOperator.__name__}


def recipes() -> list[tuple[str, list[str]]]:
    """Return the example of each recipe and the blocks of Python that the page shows of it."""
    sections = (DOCS / "recipes.md").read_text().split("\n## ")[1:]
    return [(re.findall(r"`example_dags/(\w+\.py)", one)[0], PYTHON.findall(one)) for one in sections]


@pytest.mark.parametrize(("example", "shown"), recipes())
def test_each_recipe_shows_lines_of_its_example(example, shown):
    text = (EXAMPLES / example).read_text()

    assert shown
    for block in shown:
        assert block in text or textwrap.indent(block, "    ") in text


@pytest.mark.parametrize(("page", "text"), blocks("json"))
def test_each_example_of_a_connection_is_accepted(page, text, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", '{"conn_type": "aws"}')
    settings = read_settings(Connection.from_json(text, conn_id="example"))

    assert settings.url.get_backend_name() in ("sqlite", "postgresql", "mysql", "duckdb")
    if page in ON_INSERTS:
        assert settings.data_path == "/data/files/"


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


MODULES = [
    ".".join(file.relative_to(DOCS.parent).with_suffix("").parts)
    for file in sorted(DOCS.with_name("airflow_provider_ducklake").rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module):
    assert doctest.testmod(import_module(module)).failed == 0


def test_each_argument_of_the_insert_operator_is_explained():
    explained = set(re.findall(r":param (\w+):", DuckLakeSparkInsertOperator.__doc__))

    own = inspect.unwrap(DuckLakeSparkInsertOperator.__init__).__kwdefaults__ or {}
    assert explained == {"table", *own} - {"kwargs"}


# --- the page on DDL ---


def section(title: str) -> str:
    """Return the part of the page under a heading that begins so."""
    parts = re.split(r"^#+ ", (DOCS / "ddl.md").read_text(), flags=re.MULTILINE)
    return next(part for part in parts if part.startswith(title))


@pytest.mark.usefixtures("airflow_db")
def test_the_examples_on_ddl_run(
    sqlite_catalog: CatalogDatabase, connect: Callable[..., str], tmp_path: Path
):
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    dag_file, _create_lake, library = code_of("ddl.md")
    (tmp_path / "dag.py").write_text(dag_file)

    run = succeeded(parse(tmp_path / "dag.py"))

    assert xcom(run, "tables") == {"snapshot_id": 1, "statements": 3, "already_committed": False}
    for sql in code_of("ddl.md", "sql"):
        DuckLakeDDLOperator(task_id="change", sql=sql).execute(context_of("change"))
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        exec(compile(library, "ddl.md", "exec"), {"lake": lake})
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("FROM sales.recent") == []
        tables = reference.sql("SELECT table_name FROM duckdb_tables() ORDER BY 1")
        assert tables == [("customers",), ("notes",), ("orders",)]


@pytest.mark.parametrize("sql", code_of("ddl.md", "sql"))
def test_duckdb_reads_the_same_statements(sql: str):
    sql = sql.replace("COLUMN address.zip TYPE", "COLUMN address TYPE")  # ours alone, as the page says

    assert len(duckdb.extract_statements(sql)) == sql.count(";\n") + 1


def test_each_argument_of_the_ddl_operator_is_explained():
    explained = set(re.findall(r":param (\w+):", DuckLakeDDLOperator.__doc__))

    assert explained == {"sql", "create_lake", "ducklake_conn_id", "message"}
    assert explained == set(re.findall(r"^\| `(\w+)` \|", section("Change tables"), re.MULTILINE))


def test_each_option_of_a_table_is_explained():
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section("Options"), re.MULTILINE)
        for name in re.findall(r"\w+", row)
    }

    assert named == OPTIONS.keys() - {"version", "created_by", "data_path", "encrypted", *_OF_LAKES}
