"""What differs between catalog databases is said by each of them: nothing else compares their names."""

import ast
from pathlib import Path

import pytest

from airflow_provider_ducklake.hooks.connection_form import CATALOG_TYPES
from airflow_provider_ducklake.lake.catalog.database import connect, tables
from airflow_provider_ducklake.lake.catalog.dialects import dialect_of
from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
from airflow_provider_ducklake.lake.catalog.dialects.duckdb import DuckDbDialect
from airflow_provider_ducklake.lake.catalog.dialects.mysql import MySqlDialect
from airflow_provider_ducklake.lake.catalog.dialects.postgres import PostgresDialect
from airflow_provider_ducklake.lake.catalog.dialects.sqlite import SqliteDialect

PACKAGE = Path(__file__).parents[2] / "airflow_provider_ducklake"
DIALECTS = {
    "postgresql": PostgresDialect,
    "mysql": MySqlDialect,
    "sqlite": SqliteDialect,
    "duckdb": DuckDbDialect,
}
NAMES = {*DIALECTS, *connect._DATABASES, *CATALOG_TYPES}


def _compared(tree: ast.Module) -> list[ast.expr]:
    """List what is compared, or matched against."""
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    matched = [node.value for node in ast.walk(tree) if isinstance(node, ast.MatchValue)]
    return [*(side for node in compared for side in (node.left, *node.comparators)), *matched]


def _named(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)} & NAMES


def _branches(file: Path) -> list[int]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node.lineno for node in _compared(tree) if _named(node)]


def test_only_a_dialect_compares_the_name_of_a_database():
    found = {
        str(file.relative_to(PACKAGE)): lines
        for file in PACKAGE.rglob("*.py")
        if file.parent.name != "dialects" and (lines := _branches(file))
    }

    assert not found


def test_the_lint_sees_branches():
    tree = ast.parse('if name in ("mysql", "mariadb"): pass\nmatch name:\n    case "sqlite": pass')

    assert len([node for node in _compared(tree) if _named(node)]) == 2


@pytest.mark.parametrize("dialect", DIALECTS.values())
def test_each_dialect_is_complete(dialect):
    assert issubclass(dialect, CatalogDialect)
    assert not dialect.__abstractmethods__
    assert dialect.inlined_form is None or dialect.reads_inlined  # what we write we can read


@pytest.mark.parametrize(
    "dialect", [DIALECTS[one.driver.partition("+")[0]] for one in connect._DATABASES.values() if not one.file]
)
@pytest.mark.parametrize("name", ["clock", "is_missing_right", "why_not_alter"])
def test_each_server_has_a_clock_and_rights(dialect, name):
    assert getattr(dialect, name) is not getattr(CatalogDialect, name)  # which is that of files


@pytest.mark.parametrize(("name", "database"), connect._DATABASES.items())
def test_each_database_has_its_dialect(name, database, tmp_path):
    place = f"/{tmp_path}/lake" if database.file else "user@host/lake"
    engine = connect.open_engine(connect.parse_url(f"{name}://{place}"))

    assert type(dialect_of(engine, None)) is DIALECTS[engine.dialect.name]


def test_each_table_of_the_databases_has_them_all():
    assert set(tables._STORAGE) == set(DIALECTS)
    opened = {one.driver.partition("+")[0] for one in connect._DATABASES.values()}
    assert opened == set(DIALECTS)


def test_the_connection_form_has_the_same_databases_and_drivers():
    drivers = {one.driver: one.file is None for one in connect._DATABASES.values()}

    assert {one.driver: one.server is not None for one in CATALOG_TYPES.values()} == drivers
