"""The support matrix is whole, its page says what came of it, and the README agrees with it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from airflow_provider_ducklake.hooks.spark_submit import mismatch
from scripts import matrix_page
from scripts.audit import affected, is_affected, locked, oldest_allowed, parsed, read_records
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


# --- two versions of PySpark over each other are named, with what mends them ---


def _install(folder: Path, **versions: str) -> None:
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (
            {"pyspark": "4.3.0", "pyspark_client": "4.2.0"},  # PyPI has no client 4.3.0
            "pip install --force-reinstall pyspark==4.2.0 pyspark-client==4.2.0",
        ),
        (
            {"pyspark": "3.5.7", "pyspark_client": "4.2.0"},  # nor one before 4.0
            "pip install --force-reinstall pyspark==4.2.0 pyspark-client==4.2.0",
        ),
        ({"pyspark": "4.3.0", "pyspark_client": "4.2.0"}, "pip install --force-reinstall pyspark=="),
        ({"pyspark": "4.2.0", "pyspark_client": "4.2.0"}, None),
    ],
)
def test_two_versions_over_each_other_are_named(tmp_path, monkeypatch, versions, said):
    _install(tmp_path, **versions)
    monkeypatch.syspath_prepend(tmp_path)

    found = mismatch()

    assert found is None if said is None else said in found


# --- the audit against a file of advisories ---

SOME_PROJECT = """
[project]
dependencies = ["PyMySQL>=1.1", "other>=2,!=2.1", "free"]
[project.optional-dependencies]
encryption = ["cryptography>=42.0.4; python_version > '3'"]
[dependency-groups]
dev = ["pinned==3.0", {include-group = "x"}]
"""
LOCK = """
[[package]]
name = "pymysql"
version = "1.1.2"
source = { registry = "https://index.example/simple" }
[[package]]
name = "own"
version = "0"
source = { editable = "." }
"""


def record(name: str, *events: dict[str, str], **others: object) -> dict:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}, {"type": "GIT", "events": [{"introduced": "0"}]}]
    package = {"ecosystem": "PyPI", "name": name}
    return {"id": f"X-{name}", "affected": [{"package": package, "ranges": ranges}]} | others


HOLE = record("pymysql", {"introduced": "0"}, {"fixed": "1.1.1"}, aliases=["CVE-2024-36039"])


def test_a_lower_bound_below_a_fix_is_named_and_a_locked_version_after_it_is_not():
    asked = [*oldest_allowed(SOME_PROJECT), *locked("uv.lock", LOCK)]
    old = record("cryptography", {"introduced": "38.0.0"}, {"fixed": "42.0.4"})

    assert [one[1:] for one in asked] == [
        ("pymysql", "1.1"),
        ("other", "2"),
        ("cryptography", "42.0.4"),
        ("pinned", "3.0"),
        ("pymysql", "1.1.2"),
    ]
    assert list(affected(asked, [HOLE, old])) == [
        "pyproject.toml, PyMySQL>=1.1: pymysql 1.1 is affected by X-pymysql, CVE-2024-36039; fixed in 1.1.1."
    ]


@pytest.mark.parametrize(
    ("version", "events", "expected"),
    [
        ("1.0", [{"introduced": "0"}], True),
        ("1.0", [{"introduced": "1.0"}, {"fixed": "1.1"}], True),
        ("1.1", [{"introduced": "1.0"}, {"fixed": "1.1"}], False),
        ("1.1", [{"introduced": "1.0"}, {"last_affected": "1.1"}], True),
        ("1.1.1", [{"introduced": "1.0"}, {"last_affected": "1.1"}], False),
        ("2.0", [{"introduced": "2.0"}, {"introduced": "0"}, {"fixed": "1.5"}], True),
        ("1.10", [{"introduced": "1.9"}, {"fixed": "1.11"}], True),
        ("1.5", [{"introduced": "0"}, {"fixed": "1.5"}, {"introduced": "2.0"}], False),
    ],
)
def test_ranges_are_ordered_as_python_orders_versions(version, events, expected):
    assert is_affected(parsed(version), record("p", *events)["affected"][0]) is expected


def test_records_are_read_as_a_list_or_by_lines_without_those_withdrawn():
    records = [HOLE, record("p", withdrawn="2024-01-01T00:00:00Z")]

    assert read_records(json.dumps(records)) == [HOLE]
    assert read_records("\n".join(map(json.dumps, records))) == [HOLE]
    for wrong in ("[]", "[1]", '{"vulns": []}', '[{"id": "x"}]'):
        with pytest.raises(SystemExit, match="no list of OSV records"):
            read_records(wrong)


def test_other_ecosystems_and_names_are_left_alone():
    npm = {"id": "N", "affected": [{"package": {"ecosystem": "npm", "name": "pymysql"}, "versions": ["1.1"]}]}
    listed = {
        "id": "L",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "Py_MySQL"}, "versions": ["1.1"]}],
    }

    assert list(affected([("here", "pymysql", "1.1")], [npm])) == []
    assert len(list(affected([("here", "py-mysql", "1.1")], [listed]))) == 1
