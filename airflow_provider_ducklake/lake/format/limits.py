"""How long a task waits for its catalog: for an answer, and for a lock that another process holds.

Both are keys of the query of the catalog's URL, ``?lock_timeout_seconds=30``, and fields of the connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache, wraps
from typing import TypeVar

from ..errors import InvalidInputError

Text = TypeVar("Text", str, bytes)
Result = TypeVar("Result")


KEY_BYTES = (16, 24, 32)  # of an encrypted lake: AES-128, AES-192, AES-256
CONNECT_TIMEOUT_SECONDS = 10
LOGGED_AFTER_SECONDS = 5.0
MIN_RETENTION = timedelta(hours=24)  # of what operators remove
NO_FLOOR = timedelta(0)  # of the age at which something may be removed


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a lock is waited for, and the answer to a statement.

    A statement may wait for a lock, so that its limit is the longer one.
    """

    lock_timeout_seconds: float = 300.0
    statement_timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidInputError(f"{name} is {value:g}. Write a number of seconds greater than 0.")
        if self.statement_timeout_seconds <= self.lock_timeout_seconds:
            raise InvalidInputError(
                f"statement_timeout_seconds is {self.statement_timeout_seconds:g}, lock_timeout_seconds "
                f"{self.lock_timeout_seconds:g}. Make the first one the greater: a statement may wait for a "
                "lock."
            )

    @classmethod
    def of(cls, texts: Mapping[str, object]) -> Limits:
        """Return the limits that are given as numbers, or texts of numbers, by their names."""
        return cls(**{name: _seconds(name, texts[name]) for name in LIMITS if name in texts})

    def within(self, seconds: float) -> Limits:
        """Return these limits, or shorter ones for a caller with only so many seconds."""
        lock = min(self.lock_timeout_seconds, seconds / 2)
        return Limits(lock, min(self.statement_timeout_seconds, seconds))

    def as_texts(self) -> dict[str, str]:
        """Return them as the query of a URL has them."""
        return {name: str(getattr(self, name)) for name in LIMITS}

    @property
    def logged_after_seconds(self) -> float:
        """After how long the log says who holds a lock: before its limit, however short that is."""
        return min(LOGGED_AFTER_SECONDS, self.lock_timeout_seconds / 2)


LIMITS = tuple(one.name for one in fields(Limits))


def _seconds(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise InvalidInputError(
            f"{name} is {value!r}, which is not a number. Write a number of seconds greater than 0."
        ) from None


# A cache for what is read of others' texts and bytes, whose size they choose.


_SMALL = 1000  # characters or bytes
_FEW = 4  # of any size: rows one after the other often have the same


def cached(function: Callable[[Text], Result]) -> Callable[[Text], Result]:
    """Keep results for the last thousand short texts, and for the last few of any length.

    What is read of a text takes many times the memory of the text, so a limit by number alone is none.
    """
    small, large = lru_cache(maxsize=1024)(function), lru_cache(maxsize=_FEW)(function)

    @wraps(function)
    def read(text: Text) -> Result:
        return (small if len(text) <= _SMALL else large)(text)

    return read
