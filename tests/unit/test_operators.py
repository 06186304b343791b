"""How operators are made: they keep what they are given, and data goes by return values."""

import ast
from pathlib import Path

import airflow_provider_ducklake

OPERATORS = Path(airflow_provider_ducklake.__file__).parent / "operators"


def attributes_set_late(path: Path) -> list[str]:
    """Return the attributes of ``self`` that a file sets outside of ``__init__``."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and function.name != "__init__":
            for node in ast.walk(function):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                        found.append(f"{path.name}:{node.lineno} self.{node.attr}")
    return found


def test_no_attribute_of_an_operator_is_set_outside_of_its_constructor():
    files = sorted(OPERATORS.glob("*.py"))

    assert len(files) > 15
    assert [one for path in files for one in attributes_set_late(path)] == []


def test_a_late_attribute_would_be_found(tmp_path):
    path = tmp_path / "operator.py"
    path.write_text("class A:\n    def run(self):\n        self.found, other.found = 1, 2\n")

    assert attributes_set_late(path) == ["operator.py:3 self.found"]


def hooks_that_tell(path: Path) -> list[str]:
    """Return the hooks of a file that tell hook lineage of tables: these would be told twice."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DuckLakeHook":
            given = {one.arg: ast.unparse(one.value) for one in node.keywords}
            if given.get("hook_lineage") != "False":
                found.append(f"{path.name}:{node.lineno}")
    return found


def test_no_operator_or_sensor_has_a_hook_that_tells_of_its_tables():
    files = [*OPERATORS.glob("*.py"), *(OPERATORS.parent / "sensors").glob("*.py")]

    assert [one for path in files for one in hooks_that_tell(path)] == []


def test_a_hook_that_tells_would_be_found(tmp_path):
    path = tmp_path / "operator.py"
    path.write_text("DuckLakeHook(a, hook_lineage=False)\nDuckLakeHook(a)\n")

    assert hooks_that_tell(path) == ["operator.py:2"]
