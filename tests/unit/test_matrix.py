"""The support matrix is whole, its page says what came of it, and the README agrees with it."""

import re
import tomllib
from pathlib import Path

import pytest

from scripts import matrix_page
from scripts.matrix_cells import AXES, CELLS, LOWEST, NAMES, pairs, why_not

ROOT = Path(__file__).parents[2]
ROWS = {"airflow": "Airflow", "python": "Python", "spark": "Spark", "catalog": "Catalog database"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def support_row(head: str) -> str:
    (row,) = re.findall(rf"^\| {head} \| (.*?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    return row


def test_each_pair_of_versions_is_in_a_cell_or_has_a_reason():
    assert [pair for pair in pairs() if why_not(*pair) == "missing"] == []


def test_each_cell_passed():
    results = matrix_page.read_results()
    names = [cell.name for cell in CELLS]

    assert len(set(names)) == len(names)
    assert results.keys() == set(names)
    assert {name: one.failures for name, one in results.items() if one.failures or not one.passed} == {}


def test_the_page_says_what_came_of_the_cells():
    assert matrix_page.rendered() in matrix_page.PAGE.read_text()


@pytest.mark.parametrize("axis", ROWS)
def test_the_readme_names_the_versions_of_the_matrix(axis):
    row = support_row(ROWS[axis])

    assert [value for value in AXES[axis] if NAMES.get(value, value) not in row] == []


def test_each_python_of_the_matrix_is_one_that_the_provider_declares():
    declared = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one}

    assert set(AXES["python"]) == declared


def test_the_lowest_cell_has_the_lowest_versions_that_the_provider_asks_for():
    results = matrix_page.read_results()
    asked = [
        *PROJECT["dependencies"],
        *(one for extra in ("postgres", "mysql", "duckdb") for one in _extra(extra)),
    ]
    bounds = dict(found for one in asked if (found := _bound(one)))

    versions = results[LOWEST].versions
    assert {name: bound for name, bound in bounds.items() if not _is_of(versions[name], bound)} == {}


def _extra(name: str) -> list[str]:
    return PROJECT["optional-dependencies"][name]


def _bound(requirement: str) -> tuple[str, str] | None:
    found = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement)
    return (found[1], found[2]) if found else None


def _is_of(version: str, bound: str) -> bool:
    """Whether a version is the first one at a bound: 6.0.0 at 6."""
    return f"{version}.".startswith(f"{bound}.")
