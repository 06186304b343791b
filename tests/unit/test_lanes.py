"""Which tests a run has, and which cases it draws."""

import re
from datetime import date
from pathlib import Path

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
