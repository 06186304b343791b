"""Ages as arguments of operators have them: intervals and times, or what templates make of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.types.times import parse_interval, parse_time, require_offset


def parse_age(name: str, value: object) -> timedelta | datetime | None:
    """Return the interval before now, or the moment, that an argument means; None where it is not given.

    Raises:
        InvalidInputError: it is neither, or a time without an offset.
    """
    match value:
        case None | timedelta():
            return value
        case datetime():
            return require_offset(value)
        case str() if value[:4].isdigit() and "-" in value:
            return parse_time(value)
        case str():
            return parse_interval(value)
        case _:
            raise InvalidInputError(
                f"{name} is {value!r}. Give a timedelta, a text such as '7 days', an aware datetime or ISO "
                "time."
            )


def parse_span(name: str, value: object) -> timedelta:
    """Return the interval that an argument means.

    Raises:
        InvalidInputError: it is not an interval.
    """
    match value:
        case timedelta():
            return value
        case str():
            return parse_interval(value)
        case _:
            raise InvalidInputError(f"{name} is {value!r}. Give a timedelta, or a text such as '24 hours'.")
