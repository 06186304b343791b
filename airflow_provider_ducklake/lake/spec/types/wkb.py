"""Well-known binary: where a geometry ends, and the box around it as DuckDB's ``&&`` sees it.

*Source:* docs/sources.md, geometries. A box is that of the vertices one after the other: a NaN takes the
place of what was before it, and is replaced by what comes after. A point of NaNs only is empty.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.spec.types.geometry import Box, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # the x of some vertices, and their y
    Visit: TypeAlias = Callable[[Sequence[float], Sequence[float]], None]

_DEEPEST, _DEEPEST_OF_DUCKDB = 32, 15
_PLAIN_POINT, _POINT_HEAD = struct.Struct("<5sdd"), b"\x01\x01\0\0\0"  # most geometries are
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_MANY = 3  # from the type of a geometry to that of many
NO_GEOMETRY = "A filter met a value that is no geometry in WKB: {}. Its data file is damaged, or no lake's."


def box_of_wkb(data: bytes) -> Box | None:
    """Return the box around a geometry; None: it has no vertex.

    Raises:
        ValueError: it is no WKB; says why.
    """
    extent = _Extent()
    _go_through(data, extent.add)
    return extent.box


def meets_box(data: bytes, box: Box) -> bool:
    """Whether the box around a geometry meets another; that of an empty one meets none.

    Raises:
        ValueError: it is no WKB; says why.
    """
    if len(data) == _PLAIN_POINT.size:  # of a line it is a part only
        head, x, y = _PLAIN_POINT.unpack(data)
        if head == _POINT_HEAD:
            is_outside = x > box.xmax or x < box.xmin or y > box.ymax or y < box.ymin
            return not is_outside and (not math.isnan(x) or not math.isnan(y))
    found = box_of_wkb(data)
    return found is not None and found.meets(box)


def is_finite(data: bytes) -> bool:
    """Whether no vertex has a NaN or an infinity as x or y.

    Raises:
        ValueError: it is no WKB; says why.
    """
    found: list[bool] = []
    _go_through(data, lambda *axes: found.extend(all(map(math.isfinite, axis)) for axis in axes))
    return all(found)


def check_wkb(data: bytes) -> None:
    """Refuse a geometry that is not whole, or that DuckDB does not take.

    Of a collection all members have its dimensions, those of a MULTIPOINT are points, and so on. What only
    looks for a box takes others, too: rows that were committed once are still found.

    Raises:
        ValueError: says why.
    """
    _go_through(data, None, as_duckdb=True)


def _go_through(data: bytes, visit: Visit | None, *, as_duckdb: bool = False) -> None:
    try:
        end = _Walk(data, visit, as_duckdb).end(0, 0, None)
    except (struct.error, IndexError):
        raise ValueError("it is cut off") from None
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow its end")


@dataclass(frozen=True, slots=True)
class _Walk:
    data: bytes
    visit: Visit | None
    as_duckdb: bool

    def end(self, start: int, depth: int, within: int | None) -> int:
        """Return where the geometry at ``start`` ends; ``within`` is the type of the one around it."""
        if depth > (_DEEPEST_OF_DUCKDB if self.as_duckdb else _DEEPEST):
            raise ValueError("its collections are nested too deeply")
        if self.data[start] > 1:
            raise ValueError(f"byte {start} is {self.data[start]}, which is no byte order")
        order = "<" if self.data[start] else ">"
        (number,) = struct.unpack_from(f"{order}I", self.data, start + 1)
        _check_type(number, start, within if self.as_duckdb else None)
        dimensions, type_ = divmod(number, 1000)
        width = 2 + (dimensions in (1, 3)) + (dimensions in (2, 3))
        if type_ == _POINT:
            return self._vertices(start + 5, 1, order, width, may_be_empty=True)
        count, place = _count(self.data, start + 5, order)
        if type_ == _LINE:
            return self._vertices(place, count, order, width)
        for _ in range(count):  # each takes four bytes at least
            if type_ == _POLYGON:
                points, place = _count(self.data, place, order)
                place = self._vertices(place, points, order, width)
            else:
                place = self.end(place, depth + 1, number)
        return place

    def _vertices(self, place: int, count: int, order: str, width: int, *, may_be_empty: bool = False) -> int:
        end = place + count * width * 8
        if end > len(self.data):
            raise IndexError
        if self.visit is not None and count:
            found = struct.unpack_from(f"{order}{count * width}d", self.data, place)
            if not (may_be_empty and all(map(math.isnan, found))):
                self.visit(found[::width], found[1::width])
        return end


def _check_type(number: int, start: int, within: int | None) -> None:
    name = type_name(number)
    if name is None:
        extended = " (an SRID or dimension as EWKB has them)" if number >> 29 else ""
        raise ValueError(f"{number:#x} is no type of WKB{extended}")
    if within is None:
        return
    (dimensions, type_), (dimensions_around, type_around) = divmod(number, 1000), divmod(within, 1000)
    if dimensions != dimensions_around or type_around not in (type_ + _MANY, _COLLECTION):
        raise ValueError(f"a {type_name(within)} has a {name} at byte {start}, which DuckDB refuses")


def _count(data: bytes, place: int, order: str) -> tuple[int, int]:
    (count,) = struct.unpack_from(f"{order}I", data, place)
    return count, place + 4


class _Extent:
    """The box around the vertices so far."""

    def __init__(self) -> None:
        self.box: Box | None = None

    def add(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        box = self.box or Box(math.inf, math.inf, -math.inf, -math.inf)
        self.box = Box(
            _least(box.xmin, xs), _least(box.ymin, ys), _greatest(box.xmax, xs), _greatest(box.ymax, ys)
        )


def _least(least: float, values: Sequence[float]) -> float:
    if not math.isnan(sum(values, least)):
        return min(least, *values)
    for value in values:
        least = least if least < value else value  # noqa: FURB136 - min() keeps the first of it and a NaN
    return least


def _greatest(greatest: float, values: Sequence[float]) -> float:
    if not math.isnan(sum(values, greatest)):
        return max(greatest, *values)
    for value in values:
        greatest = greatest if greatest > value else value  # noqa: FURB136 - as above
    return greatest
