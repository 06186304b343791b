"""What a file says of the paths in its variants: the JSON in ``extra_stats``, and a row for each path.

Only paths that are wholly shredded are told of; of any other nothing is known. A table's statistics tell of
the paths of which all its files do, with one type. *Source:* rows that the reference writes (docs/sources.md,
inserts).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidTypeError
from airflow_provider_ducklake.lake.spec.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.spec.types.values import order_key

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class PathStats:
    """Statistics of one path, such as ``"user"."tags".element``, or ``root``; bounds as in catalog texts.

    ``slot_count`` counts NULLs, too.
    """

    path: str
    shredded_type: str
    slot_count: int
    null_count: int
    column_size_bytes: int
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    any_valid: bool = True

    @property
    def value_count(self) -> int:
        """Number of values that are not null."""
        return self.slot_count - self.null_count


def read_path_stats(text: str | None) -> tuple[PathStats, ...]:
    """Return what an ``extra_stats`` says; nothing where it is NULL, or not of this form."""
    if text is None:
        return ()
    try:
        return tuple(map(_path, json.loads(text)))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _path(one: dict[str, Any]) -> PathStats:
    return PathStats(
        str(one["field_name"]),
        str(one["shredded_type"]),
        int(one["num_values"]),
        int(one["null_count"]),
        int(one["column_size_bytes"]),
        _bound(one.get("min")),
        _bound(one.get("max")),
        one.get("contains_nan"),
        bool(one["any_valid"]),
    )


def _bound(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!a:.40} is not a bound")


def format_path_stats(paths: tuple[PathStats, ...]) -> str | None:
    """Return the text of ``extra_stats``; NULL where there is no path to tell of."""
    if not paths:
        return None
    return json.dumps([_members(one) for one in paths], separators=(",", ":"), ensure_ascii=False)


def _members(one: PathStats) -> dict[str, object]:
    known = {"min": one.min_value, "max": one.max_value}
    nan = {"contains_nan": one.contains_nan}
    return {
        "field_name": one.path,
        "shredded_type": one.shredded_type,
        "null_count": one.null_count,
        **{name: value for name, value in known.items() if value is not None},
        "num_values": one.slot_count,
        **{name: value for name, value in nan.items() if value is not None},
        "column_size_bytes": one.column_size_bytes,
        "any_valid": one.any_valid,
    }


def merge_path_stats(left: str | None, right: str | None) -> str | None:
    """Return the ``extra_stats`` of rows of which each side tells; NULL where either does not know enough."""
    others = {(one.path, one.shredded_type): one for one in read_path_stats(left)}
    merged = (_merged(others.get((one.path, one.shredded_type)), one) for one in read_path_stats(right))
    return format_path_stats(tuple(one for one in merged if one is not None))


def _merged(left: PathStats | None, right: PathStats) -> PathStats | None:
    if left is None:
        return None
    try:
        low = _extreme(min, left.shredded_type, left, right, "min_value")
        high = _extreme(max, left.shredded_type, left, right, "max_value")
    except (InvalidTypeError, ValueError, ArithmeticError):
        return None
    nans = (left.contains_nan, right.contains_nan)
    return PathStats(
        right.path,
        right.shredded_type,
        left.slot_count + right.slot_count,
        left.null_count + right.null_count,
        left.column_size_bytes + right.column_size_bytes,
        low,
        high,
        True if True in nans else None if None in nans else False,
        left.any_valid or right.any_valid,
    )


def _extreme(
    choose: Callable[..., str], type_text: str, left: PathStats, right: PathStats, name: str
) -> str | None:
    """Return the bound of both; NULL where values of either have none."""
    sides = [one for one in (left, right) if one.value_count]
    bounds = [getattr(one, name) for one in sides]
    if not bounds or None in bounds:
        return None
    type_ = parse_type(type_text)
    return choose(bounds, key=lambda text: order_key(type_, text))
