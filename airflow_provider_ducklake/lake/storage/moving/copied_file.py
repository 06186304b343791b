"""A file that is copied for a frozen lake."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """Where it is copied from, and its size; None: the catalog does not know."""

    source: str
    size: int | None
