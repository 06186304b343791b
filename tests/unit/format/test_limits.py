"""How long a catalog is waited for, as users write it, and as one who has less time has it."""

import math

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.limits import Limits


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"lock_timeout_seconds": "soon"}, "lock_timeout_seconds is 'soon', which is not a number"),
        ({"lock_timeout_seconds": True}, "lock_timeout_seconds is True, which is not a number"),
        ({"lock_timeout_seconds": "0"}, "lock_timeout_seconds is 0"),
        ({"statement_timeout_seconds": "inf"}, "statement_timeout_seconds is inf"),
        ({"statement_timeout_seconds": "nan"}, "statement_timeout_seconds is nan"),
        ({"lock_timeout_seconds": 600}, "statement_timeout_seconds is 600, lock_timeout_seconds 600"),
        ({"statement_timeout_seconds": ("1", "2")}, "which is not a number"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_its_name_and_value(texts, problem):
    with pytest.raises(InvalidInputError) as raised:
        Limits.of(texts)

    assert problem in str(raised.value)


def test_limits_are_read_as_they_are_written():
    limits = Limits.of({"lock_timeout_seconds": "2.5", "connect_timeout": "5"})

    assert (limits.lock_timeout_seconds, limits.statement_timeout_seconds) == (2.5, 600.0)
    assert Limits.of(limits.as_texts()) == limits


@pytest.mark.parametrize("seconds", [0.5, 60, 450, 10_000, math.inf])
@pytest.mark.parametrize("limits", [Limits(), Limits(1, 2), Limits(25, 26)])
def test_who_has_less_time_gets_shorter_limits_and_nobody_longer_ones(limits, seconds):
    within = limits.within(seconds)

    assert within.lock_timeout_seconds <= min(limits.lock_timeout_seconds, seconds)
    assert within.statement_timeout_seconds == min(limits.statement_timeout_seconds, seconds)


def test_the_log_names_a_holder_before_the_limit():
    assert Limits().logged_after_seconds == 5
    assert Limits(1, 2).logged_after_seconds == 0.5
