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
