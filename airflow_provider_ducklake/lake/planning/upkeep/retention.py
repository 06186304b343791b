"""How old something must be before it may be removed.

A floor keeps a slip of the pen from deleting what others still use. Clocks disagree: a time that is only a
moment ahead of ours counts as now.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_provider_ducklake.lake.errors import InvalidInputError

MIN_RETENTION = timedelta(hours=24)  # what operators keep unless they are told otherwise
NO_FLOOR = timedelta(0)
_TOLERANCE = timedelta(minutes=5)  # between two clocks


def check_age(name: str, age: datetime | timedelta | None) -> None:
    """Refuse an age that can be none.

    Raises:
        InvalidInputError: a time without an offset from UTC, or a negative interval.
    """
    if isinstance(age, datetime) and age.tzinfo is None:
        raise InvalidInputError(f"{name}={age} has no time zone; give an aware datetime.")
    if isinstance(age, timedelta) and age < timedelta(0):
        raise InvalidInputError(f"{name}={age} is in the future; give a positive interval.")


def cut_off(older_than: datetime | timedelta, now: datetime, floor: timedelta) -> datetime:
    """Return the moment before which things may go; never later than the floor allows.

    Raises:
        InvalidInputError: the moment lies in the future, or is nearer than ``floor``.
    """
    check_age("older_than", older_than)
    check_age("min_retention", floor)
    limit = now - older_than if isinstance(older_than, timedelta) else older_than
    slack = timedelta(0) if isinstance(older_than, timedelta) else _TOLERANCE
    if limit > now + slack:
        raise InvalidInputError(
            f"older_than={older_than} is in the future: the catalog's clock shows {now:%Y-%m-%d %H:%M:%S} "
            "UTC."
        )
    if limit > now - floor + slack:
        raise InvalidInputError(
            f"older_than={older_than} would take what is younger than min_retention={floor}. Give an older "
            "one, or a shorter min_retention if you mean it."
        )
    return min(limit, now - floor)
