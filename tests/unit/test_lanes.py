"""Which tests a run has, which cases it draws, and what the tests of the lane `fast` do without."""

import ast
import re
import textwrap
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from scripts.changed import SOURCES, Module, distances
from tests.lanes import FOLDERS, GROUPS, LANES, MARKS, ROOT, group_of, place_of
from tests.seeds import SEED, default_seed

TESTS = Path(__file__).parents[1]


def test_a_user_draws_the_same_cases_on_every_day():
    assert default_seed({}, "ci", date(2026, 11, 22)) == default_seed({}, "ci", date(2031, 1, 2)) == SEED


def test_ci_and_full_runs_draw_by_the_day():
    assert default_seed({"CI": "true"}, "ci", date(2031, 1, 2)) == 20310102
    assert default_seed({}, "full", date(2031, 1, 2)) == 20310102


def test_every_folder_of_tests_has_a_lane():
    with_tests = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")}

    assert with_tests - {"iceberg"} == set(FOLDERS)  # that one runs in an environment of its own
    assert set(FOLDERS.values()) <= set(MARKS)


def test_the_files_of_a_group_exist():
    places = [TESTS / place for group in GROUPS.values() for place in group]

    assert [place for place in places if not place.exists()] == []


def test_tests_of_one_server_run_together_and_first():
    one, other = f"{ROOT}airflow/test_staged.py::test_a", f"{ROOT}airflow/test_maintenance.py::test_b[x::y]"
    alone = f"{ROOT}airflow/test_hook.py::test_c"

    assert group_of(one) == group_of(other) == "connect"
    assert group_of(alone) == "airflow/test_hook.py"
    assert place_of(one) == place_of(other) < place_of(alone) < place_of(f"{ROOT}unit/test_lanes.py::test_d")


def test_contributing_says_of_each_lane_what_it_protects_and_when_it_runs():
    text = (TESTS.parent / "CONTRIBUTING.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", text, re.MULTILINE))

    assert list(rows) == list(LANES)
    for name, lane in LANES.items():
        assert all(part in rows[name] for part in lane.before), name


# --- which tests are near to a change, by imports ---

PACKAGE = SOURCES[0]
FILES = {
    f"{PACKAGE}/rule.py": "def rule(): pass\ndef other(): pass",
    f"{PACKAGE}/lake.py": """
        from airflow_provider_ducklake import rule
        class Lake:
            def ruled(self): return rule.rule()
            def unruled(self): pass
        """,
    f"{PACKAGE}/verb.py": "from .rule import rule\ndef verb(): return rule()",
    "tests/test_rule.py": "from airflow_provider_ducklake.rule import rule\ndef test_it(): assert rule()",
    "tests/test_verb.py": "from airflow_provider_ducklake.verb import verb\ndef test_it(): assert verb()",
    "tests/test_ruled.py": "def test_it(lake): lake.ruled()",
    "tests/test_unruled.py": "def test_it(lake): lake.unruled()",
}


def test_tests_are_as_far_away_as_what_they_mention(tmp_path):
    modules = {}
    for path, code in FILES.items():
        file = tmp_path / path.replace("/", "_")
        file.write_text(textwrap.dedent(code))
        modules[path] = Module.of(file, Path(path).parent.parts)

    found = distances({f"{PACKAGE}/rule.py"}, modules)

    far = {path: distance for path, (distance, _) in found.items() if path.startswith("tests/")}
    assert far == {"tests/test_rule.py": 1, "tests/test_verb.py": 2, "tests/test_ruled.py": 2}


# --- the lane `fast`: no process, no server, no socket and no DuckDB ---

FAST = [folder for folder, lane in FOLDERS.items() if lane == "fast"]
UNITS = sorted(file for folder in FAST for file in (TESTS / folder).rglob("*.py"))
SLOW_MODULES = {"airflow", "duckdb", "http", "moto", "multiprocessing", "psycopg", "pymysql"}
SLOW_MODULES |= {"socket", "subprocess"}
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
                yield from slow_parts(TESTS.parent / f"{node.module.replace('.', '/')}.py")
        elif isinstance(node, ast.arg) and node.arg.endswith(SLOW_FIXTURES):
            yield f"fixture {node.arg}"


@pytest.mark.parametrize("file", UNITS, ids=lambda file: str(file.relative_to(TESTS.parent)))
def test_a_unit_test_needs_nothing_that_is_slow(file):
    assert list(slow_parts(file)) == []
