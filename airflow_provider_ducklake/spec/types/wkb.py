"""Well-known binary: where a geometry ends, and the box around it as DuckDB's ``&&`` sees it.

*Source:* docs/sources.md, geometries. A box is that of the vertices one after the other: a NaN takes the
place of what was before it, and is replaced by what comes after. A point of NaNs only is empty.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.spec.types.geometry import Box, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # the x of some vertices, and their y
    Visit: TypeAlias = Callable[[Sequence[float], Sequence[float]], None]

_DEEPEST = 32
_PLAIN_POINT, _POINT_HEAD = struct.Struct("<5sdd"), b"\x01\x01\0\0\0"  # most geometries are
_POINT, _LINE, _POLYGON = 1, 2, 3
NO_GEOMETRY = "A filter met a value that is no geometry in WKB: {}. Its data file is damaged, or no lake's."


def box_of_wkb(data: bytes) -> Box | None:
    """Return the box around a geometry; None: it has no vertex.

    Raises:
        ValueError: it is no WKB; says why.
    """
    extent = _Extent()
    check_wkb(data, extent.add)
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
    check_wkb(data, lambda *axes: found.extend(all(map(math.isfinite, axis)) for axis in axes))
    return all(found)


def check_wkb(data: bytes, visit: Visit | None = None) -> None:
    """Go through a geometry.

    Raises:
        ValueError: it is no WKB; says why.
    """
    try:
        end = _end(data, 0, 0, visit)
    except (struct.error, IndexError):
        raise ValueError("it is cut off") from None
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow its end")


def _end(data: bytes, start: int, depth: int, visit: Visit | None) -> int:
    """Return where the geometry that begins at ``start`` ends."""
    if depth > _DEEPEST:
        raise ValueError("its collections are nested too deeply")
    if data[start] > 1:
        raise ValueError(f"byte {start} is {data[start]}, which is no byte order")
    order = "<" if data[start] else ">"
    (number,) = struct.unpack_from(f"{order}I", data, start + 1)
    if type_name(number) is None:
        extended = " (an SRID or dimension as EWKB has them)" if number >> 29 else ""
        raise ValueError(f"{number:#x} is no type of WKB{extended}")
    dimensions, type_ = divmod(number, 1000)
    width = 2 + (dimensions in (1, 3)) + (dimensions in (2, 3))
    place = start + 5
    if type_ == _POINT:
        return _vertices(data, place, 1, order, width, visit, may_be_empty=True)
    count, place = _count(data, place, order)
    if type_ == _LINE:
        return _vertices(data, place, count, order, width, visit)
    for _ in range(count):
        if type_ == _POLYGON:
            points, place = _count(data, place, order)
            place = _vertices(data, place, points, order, width, visit)
        else:
            place = _end(data, place, depth + 1, visit)
    return place


def _count(data: bytes, place: int, order: str) -> tuple[int, int]:
    (count,) = struct.unpack_from(f"{order}I", data, place)
    return count, place + 4


def _vertices(  # noqa: PLR0913, PLR0917 - the last has a default
    data: bytes,
    place: int,
    count: int,
    order: str,
    width: int,
    visit: Visit | None,
    *,
    may_be_empty: bool = False,
) -> int:
    end = place + count * width * 8
    if end > len(data):
        raise IndexError
    if visit is not None and count:
        found = struct.unpack_from(f"{order}{count * width}d", data, place)
        if not (may_be_empty and all(map(math.isnan, found))):
            visit(found[::width], found[1::width])
    return end


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
