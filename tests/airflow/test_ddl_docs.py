"""The examples of `docs/ddl.md`, run from top to bottom, and the lake they leave as DuckDB sees it."""

import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.options import OPTIONS
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from tests.airflow.dags import parse, sync_dag, xcom
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

PAGE = (Path(__file__).parents[2] / "docs" / "ddl.md").read_text()


_OF_LAKES = {"require_commit_message", "delete_older_than", "expire_older_than"}


def section(title: str) -> str:
    """Return the part of the page under a heading that begins so."""
    return next(part for part in re.split(r"^#+ ", PAGE, flags=re.MULTILINE) if part.startswith(title))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("airflow_db")
def test_the_examples_run(sqlite_catalog: CatalogDatabase, connect: Callable[..., str], tmp_path: Path):
    connect(sqlite_catalog)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path):
        pass
    dag_file, _create_lake, library = blocks("python")
    (tmp_path / "dag.py").write_text(dag_file)

    run = sync_dag(parse(tmp_path / "dag.py")).test()

    assert run.state == "success"
    assert xcom(run, "tables") == {"snapshot_id": 1, "statements": 3, "already_committed": False}
    for sql in blocks("sql"):
        DuckLakeDDLOperator(task_id="change", sql=sql).execute(context())
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        exec(compile(library, "ddl.md", "exec"), {"lake": lake})
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("FROM sales.recent") == []
        tables = reference.sql("SELECT table_name FROM duckdb_tables() ORDER BY 1")
        assert tables == [("customers",), ("notes",), ("orders",)]


def context() -> dict[str, object]:
    class TaskInstance:
        dag_id, run_id, task_id, map_index, try_number, max_tries = "dag", "run", "change", -1, 1, 0
        log_url = "http://localhost:8080/dags/dag"
        id = property(lambda _: uuid4())

    return {"ti": TaskInstance(), "logical_date": None}


@pytest.mark.parametrize("sql", blocks("sql"))
def test_duckdb_reads_the_same_statements(sql: str):
    sql = sql.replace("COLUMN address.zip TYPE", "COLUMN address TYPE")  # ours alone, as the page says

    assert len(duckdb.extract_statements(sql)) == sql.count(";\n") + 1


def test_each_argument_of_the_operator_is_explained():
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
