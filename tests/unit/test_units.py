"""The tests of the lane `fast`: they start no process and no server, and open no socket and no DuckDB."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lanes import FOLDERS

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file
    for folder, lane in FOLDERS.items()
    if lane == "fast"
    for file in (ROOT / "tests" / folder).rglob("*.py")
)
SLOW_MODULES = (
    "airflow",
    "duckdb",
    "http",
    "moto",
    "multiprocessing",
    "psycopg",
    "pymysql",
    "socket",
    "subprocess",
)
SLOW_FIXTURES = ("catalog", "new_catalog", "server_port", "spark")


def slow_parts(file: Path) -> Iterator[str]:
    """Yield what a file, or a module of the tests that it imports, has that is no unit's."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name for one in node.names if (name := one.name).split(".")[0] in SLOW_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in SLOW_MODULES:
                yield node.module
            if node.module.startswith("tests."):
                yield from slow_parts(ROOT / f"{node.module.replace('.', '/')}.py")
        elif isinstance(node, ast.arg) and node.arg.endswith(SLOW_FIXTURES):
            yield f"fixture {node.arg}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_unit_test_needs_nothing_that_is_slow(file):
    assert list(slow_parts(file)) == []
