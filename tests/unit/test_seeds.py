"""Which cases a run draws: the same for everybody who works on a checkout, new ones every day for CI."""

from datetime import date

from tests.seeds import SEED, default_seed


def test_a_user_draws_the_same_cases_on_every_day():
    assert default_seed({}, "ci", date(2026, 11, 22)) == default_seed({}, "ci", date(2031, 1, 2)) == SEED


def test_ci_and_full_runs_draw_by_the_day():
    assert default_seed({"CI": "true"}, "ci", date(2031, 1, 2)) == 20310102
    assert default_seed({}, "full", date(2031, 1, 2)) == 20310102
