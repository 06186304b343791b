"""A function that is called ``plan_…`` decides; what asks a database is called ``find_…`` or ``read_…``."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "airflow_provider_ducklake"


def _takes_a_connection(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotations = [ast.unparse(one.annotation) for one in arguments if one.annotation is not None]
    return any(word in text for text in annotations for word in ("Connection", "Reading", "Catalog"))


def test_no_plan_takes_a_connection():
    found = [
        f"{file.relative_to(PACKAGE)}: {node.name}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("plan_") and _takes_a_connection(node)
    ]

    assert not found
