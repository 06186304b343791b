"""Times and intervals as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.types.texts import (
    parse_age,
    parse_duration,
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
