"""Times, intervals and limits of time, as people and clients write them."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ducklake.lake.catalog.database.connect import AnswerWait
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.limits import Limits
from airflow_provider_ducklake.lake.format.types.texts import (
    INTERVAL,
    parse_age,
    parse_duration,
    parse_interval,
    parse_time,
    require_offset,
)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("7 days", timedelta(days=7)),
        ("1 day", timedelta(days=1)),
        ("2 Weeks", timedelta(weeks=2)),
        ("1.5 hours", timedelta(minutes=90)),
        (" 90seconds ", timedelta(seconds=90)),
        ("1 week 2 days 3 hours 4 minutes 5 seconds", timedelta(days=9, hours=3, minutes=4, seconds=5)),
        ("0 days", timedelta()),
    ],
)
def test_an_interval_is_numbers_and_units(text, interval):
    assert parse_duration(text) == interval


@pytest.mark.parametrize(
    "text", ["", " ", "7", "days", "-1 day", "1 month", "1 year", "7 daysx", "7 days ago", "1,5 days"]
)
def test_anything_else_is_no_interval(text):
    with pytest.raises(InvalidInputError, match="is not a valid interval"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["2026-01-31T08:00:00+00:00", "2026-01-31 08:00:00Z", " 2026-01-31T10:00+02:00 "]
)
def test_a_time_says_its_offset(text):
    assert parse_time(text) == datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T08:00:00"])
def test_a_time_without_an_offset_names_no_moment(text):
    with pytest.raises(InvalidInputError, match="is not a point in time"):
        parse_time(text)
    with pytest.raises(InvalidInputError, match="is not a point in time"):
        require_offset(datetime.fromisoformat(text))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_utc_does_not_have_is_refused(text):
    with pytest.raises(InvalidInputError, match="outside the years 1 to 9999"):
        parse_time(text)
    assert parse_time(text[:-6] + "Z").isoformat() == text[:-6] + "+00:00"


@pytest.mark.parametrize("text", ["99999999999 days", f"{'9' * 400} weeks"])
def test_an_interval_that_is_too_long_is_refused(text):
    with pytest.raises(InvalidInputError, match="is too long for an interval"):
        parse_duration(text)
    with pytest.raises(ValueError, match=r"9999"):
        parse_age(text)


@pytest.mark.parametrize("text", ["", "yesterday", "31.01.2026", "None"])
def test_anything_else_is_no_time(text):
    with pytest.raises(InvalidInputError, match="is not a valid ISO time"):
        parse_time(text)


# --- texts of intervals ---


@pytest.mark.parametrize(
    ("text", "months", "days", "microseconds"),
    [
        ("00:00:00", 0, 0, 0),
        ("1 year 2 months -3 days 05:00:00.000001", 14, -3, 18_000_000_001),
        ("-2 years -1 month 1 day", -25, 1, 0),
        ("-00:00:01.5", 0, 0, -1_500_000),
        ("2562047788:00:54.775807", 0, 0, 2**63 - 1),
        ("14 months -3 days 18000000001 microseconds", 14, -3, 18_000_000_001),  # a struct's member
        ("1 year 2 mons -3 days +05:00:00.000001", 14, -3, 18_000_000_001),  # PostgreSQL's
    ],
)
def test_texts_of_the_reference_are_read(text, months, days, microseconds):
    assert INTERVAL.unpack(parse_interval(text)) == (months, days, microseconds)


@pytest.mark.parametrize("text", ["", "soon", "1 year x", "1 week", "200000000 years", "1:2:3"])
def test_other_texts_of_intervals_are_refused(text):
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)


# --- how long a catalog is waited for ---


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


# --- how long an answer is waited for that comes in pieces ---

KIB = 1024
NEAR = 60.0  # seconds that a test may take between two lines


@pytest.fixture
def wait() -> AnswerWait:
    begun = AnswerWait()
    begun.begin(1000)
    return begun


def test_a_byte_now_and_then_buys_no_time(wait):
    for _ in range(1000):
        wait.heard(1)

    assert wait.left < 1001


def test_an_answer_of_64_kib_a_second_has_the_time_that_it_takes(wait):
    wait.heard(3000 * 64 * KIB)

    assert wait.left == pytest.approx(4000, abs=NEAR)


def test_no_answer_is_waited_for_beyond_ten_limits(wait):
    wait.heard(2**40)

    assert wait.left == pytest.approx(10_000, abs=NEAR)


def test_the_next_statement_has_its_whole_limit_and_no_more(wait):
    wait.heard(2**40)
    wait.begin(10)

    assert wait.left <= 10
