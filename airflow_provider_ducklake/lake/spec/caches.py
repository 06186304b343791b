"""A cache for what is read of others' texts and bytes, whose size they choose."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Text = TypeVar("Text", str, bytes)
    Result = TypeVar("Result")

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
