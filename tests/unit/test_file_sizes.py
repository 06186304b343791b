"""Files hold one idea, neither crumbs nor too long to read to the end, and a newcomer's map names them."""

import ast
import re
from collections import Counter
from pathlib import Path

import airflow_provider_ducklake

PACKAGE = Path(airflow_provider_ducklake.__file__).parent
ALONE = PACKAGE / "lake" / "spark" / "launcher" / "main.py"  # its folder shadows the standard library


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
