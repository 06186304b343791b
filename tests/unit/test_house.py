"""The figures of the house only fall, files hold one idea, and a newcomer's map names them.

A commit that adds a feature may raise a figure and say why.
"""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

import airflow_provider_ducklake
from scripts import house

PACKAGE = Path(airflow_provider_ducklake.__file__).parent
ALONE = PACKAGE / "lake" / "spark" / "launcher" / "main.py"  # its folder shadows the standard library
HELD = json.loads(house.GOLDEN.read_text())


@pytest.mark.parametrize(
    "measured", [house.source_figures, pytest.param(house.visited_figures, marks=pytest.mark.daily)]
)
def test_no_figure_of_the_house_rises(measured):
    now = measured()

    assert now.keys() <= HELD.keys()
    assert {name: value for name, value in now.items() if value > HELD[name]} == {}


@pytest.mark.daily
def test_who_appends_and_reads_loads_a_part_of_the_package():
    now = house.loaded_figures()

    assert {name: value for name, value in now.items() if value > HELD[name]} == {}


def test_no_file_is_a_crumb_or_a_room_of_its_own():
    sizes = {
        file.relative_to(PACKAGE).as_posix(): len(file.read_text().splitlines())
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py" and file != ALONE
    }

    assert {name: size for name, size in sizes.items() if not 60 <= size <= 800} == {}
    assert len(sizes) <= 280


def test_the_map_of_the_house_is_short_and_names_what_is_there():
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    places = [PACKAGE, PACKAGE / "lake", PACKAGE.parent]

    assert len(rows) <= 80  # of all tables: 60 say where what is
    assert len(named) > len(rows)
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_a_class_has_a_name_of_its_own():
    names = Counter(
        node.name
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )

    assert [name for name, count in names.items() if count > 1] == []


# --- what is called plan_… decides; what asks a database is called find_… or read_… ---


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


# --- operators keep what they are given, and data goes by return values ---

OPERATORS = PACKAGE / "operators"


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
    files = [*OPERATORS.glob("*.py"), *(PACKAGE / "sensors").glob("*.py")]

    assert [one for path in files for one in hooks_that_tell(path)] == []


def test_a_hook_that_tells_would_be_found(tmp_path):
    path = tmp_path / "operator.py"
    path.write_text("DuckLakeHook(a, hook_lineage=False)\nDuckLakeHook(a)\n")

    assert hooks_that_tell(path) == ["operator.py:2"]
