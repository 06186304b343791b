"""Times and intervals as people write them in arguments."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from airflow_provider_ducklake.lake.errors import InvalidInputError

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week)s?\s*", re.IGNORECASE)


def parse_duration(text: str) -> timedelta:
    """Return an interval of numbers and units; a month or a year has no fixed length and is none of them.

    >>> parse_duration("1 week 12 hours")
    datetime.timedelta(days=7, seconds=43200)

    Raises:
        InvalidInputError: unreadable.
    """
    interval, position = timedelta(), 0
    while match := _PART.match(text, position):
        interval += timedelta(**{f"{match[2].lower()}s": float(match[1])})
        position = match.end()
    if not text.strip() or position < len(text):
        raise InvalidInputError(
            f"{text!r} is not a valid interval. Write numbers with seconds, minutes, hours, days or weeks: "
            "'7 days'."
        )
    return interval


_LONG_PART = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?)\s*(microsecond|millisecond|second|minute|hour|day|week|month|mon|year)s?"
    r"|(\d+):(\d\d):(\d\d(?:\.\d+)?))(?=\s|$)\s*",
    re.IGNORECASE,
)
_LONGEST = {"mon": timedelta(days=31), "month": timedelta(days=31), "year": timedelta(days=366)}


def parse_age(text: str) -> timedelta:
    """Return the longest time that an interval can last, as DuckDB writes one: a month has 31 days.

    >>> parse_age("1 month 2 days 12:00:00")
    datetime.timedelta(days=33, seconds=43200)

    Raises:
        ValueError: the text is no interval, or a negative one.
    """
    age, place = timedelta(), 0
    while place < len(text) and (found := _LONG_PART.match(text, place)):
        count, unit, hours, minutes, seconds = found.groups()
        if unit is None:
            age += timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        elif unit.lower() in _LONGEST:
            age += float(count) * _LONGEST[unit.lower()]
        else:
            age += timedelta(**{f"{unit.lower()}s": float(count)})
        place = found.end()
    if not text.strip() or place < len(text):
        raise ValueError(text)
    return age


def parse_time(text: str) -> datetime:
    """Return an ISO time, which has an offset from UTC.

    >>> parse_time("2026-01-01T00:00:00Z")
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)

    Raises:
        InvalidInputError: unreadable, or without an offset.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{text!r} is not a valid ISO time. Write it as '2026-01-31T08:00:00+00:00'."
        ) from None
    return require_offset(time)


def require_offset(time: datetime) -> datetime:
    """Return ``time`` if it says which moment it is.

    Raises:
        InvalidInputError: it has no offset from UTC.
    """
    if time.utcoffset() is None:
        raise InvalidInputError(
            f"{time.isoformat()!r} has no time zone, so it is not a point in time. Add one: "
            f"'{time.isoformat()}+00:00', or datetime(..., tzinfo=UTC)."
        )
    return time
