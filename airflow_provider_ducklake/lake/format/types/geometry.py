"""Statistics of geometries: the box around them, and their types.

*Source:* the texts that the reference writes (docs/sources.md, geometries).
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

Visit: TypeAlias = Callable[[Sequence[float], Sequence[float]], None]


Range: TypeAlias = tuple[float, float] | None  # None: no geometry has that dimension

AXES = ("x", "y", "z", "m")
# by the last three digits of WKB's number of a type, whose thousands say which dimensions there are
_TYPES = {
    1: "point",
    2: "linestring",
    3: "polygon",
    4: "multipoint",
    5: "multilinestring",
    6: "multipolygon",
    7: "geometrycollection",
}
_DIMENSIONS = ("", "_z", "_m", "_zm")


@dataclass(frozen=True, slots=True)
class GeometryStats:
    """The box around geometries, a range for each of ``AXES``, and the names of their types."""

    box: tuple[Range, Range, Range, Range] = (None, None, None, None)
    types: frozenset[str] = frozenset()

    def merge(self, other: GeometryStats) -> GeometryStats:
        """Merge the statistics of two sets of geometries."""
        box = tuple(_together(one, another) for one, another in zip(self.box, other.box, strict=True))
        x, y, z, m = box
        return GeometryStats((x, y, z, m), self.types | other.types)

    @property
    def is_finite(self) -> bool:
        """Return True if no side of the box is infinite."""
        return all(math.isfinite(side) for sides in self.box if sides is not None for side in sides)

    @property
    def text(self) -> str:
        """The text as the catalog's ``extra_stats`` have it.

        >>> GeometryStats(((0.0, 5.0), (-3.0, 2.0), None, None), frozenset({"point"})).text
        '{"bbox": {"xmin": 0.000000, "xmax": 5.000000, "ymin": -3.000000, "ymax": 2.000000, "zmin": null, \
"zmax": null, "mmin": null, "mmax": null}, "types": ["point"]}'
        """
        sides = [
            f'"{axis}{side}": {"null" if found is None else _outward(found[place], upward=place == 1)}'
            for axis, found in zip(AXES, self.box, strict=True)
            for place, side in enumerate(("min", "max"))
        ]
        types = ", ".join(f'"{one}"' for one in sorted(self.types))
        return f'{{"bbox": {{{", ".join(sides)}}}, "types": [{types}]}}'

    @classmethod
    def of_text(cls, text: str | None) -> GeometryStats | None:
        """Parse the statistics of geometries; None: nothing reliable."""
        try:
            found = json.loads(text or "")
            sides, types = found["bbox"], found["types"]
            x, y, z, m = (_range(sides[f"{axis}min"], sides[f"{axis}max"]) for axis in AXES)
            return cls((x, y, z, m), frozenset(map(str, types)))
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            return None


def _outward(side: float, *, upward: bool) -> str:
    """Return the text of a side with six decimals, rounded so that the box still holds all geometries.

    The reference rounds to the nearest, and does not find what lies between. A text that was read stays.

    >>> _outward(0.0000004, upward=False), _outward(0.0000004, upward=True), _outward(5, upward=True)
    ('0.000000', '0.000001', '5.000000')
    """
    text = f"{side:.6f}"
    if upward and float(text) < side:
        return str(Decimal(text) + _STEP)
    return str(Decimal(text) - _STEP) if not upward and float(text) > side else text


_STEP = Decimal("0.000001")


def _together(one: Range, other: Range) -> Range:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _range(low: float | None, high: float | None) -> Range:
    if low is None or high is None:
        return None
    found = float(low), float(high)
    if not all(map(math.isfinite, found)) or low > high:
        raise ValueError("no bounds")
    return found


def type_name(number: int) -> str | None:
    """Return the reference's name of a WKB type; None: there is none.

    >>> type_name(1), type_name(1003), type_name(3006), type_name(17)
    ('point', 'polygon_z', 'multipolygon_zm', None)
    """
    dimensions, type_ = divmod(number, 1000)
    if type_ not in _TYPES or not 0 <= dimensions < len(_DIMENSIONS):
        return None
    return _TYPES[type_] + _DIMENSIONS[dimensions]


# Well-known binary: where a geometry ends, and whether its vertices are finite.


_DEEPEST = 15  # as DuckDB has it
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_MANY = 3  # from the type of a geometry to that of many


def is_finite(data: bytes) -> bool:
    """Return True if no vertex has a NaN or an infinity as x or y."""
    found: list[bool] = []
    _go_through(data, lambda *axes: found.extend(all(map(math.isfinite, axis)) for axis in axes))
    return all(found)


def check_wkb(data: bytes) -> None:
    """Refuse a geometry that is not whole, or that DuckDB does not take.

    Of a collection all members have its dimensions, those of a MULTIPOINT are points, and so on.
    """
    _go_through(data, None)


def _go_through(data: bytes, visit: Visit | None) -> None:
    try:
        end = _Walk(data, visit).end(0, 0, None)
    except (struct.error, IndexError):
        raise ValueError("it is cut off") from None
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow its end")


@dataclass(frozen=True, slots=True)
class _Walk:
    data: bytes
    visit: Visit | None

    def end(self, start: int, depth: int, within: int | None) -> int:
        """Return the end of the geometry at ``start``; ``within`` is the type of the one around it."""
        if depth > _DEEPEST:
            raise ValueError("its collections are nested too deeply")
        if self.data[start] > 1:
            raise ValueError(f"byte {start} is {self.data[start]}, which is no byte order")
        order = "<" if self.data[start] else ">"
        (number,) = struct.unpack_from(f"{order}I", self.data, start + 1)
        _check_type(number, start, within)
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


# Geometries as defaults write them, in well-known text.
#
# *Source:* docs/sources.md, geometries.


_SPACE = r"[ \t\n\v\f\r]"
_TOKEN = re.compile(
    rf"{_SPACE}*(?:(-?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan))(?={_SPACE}|[,()]|\Z)"
    r"|([A-Za-z]+)|([(),]))"
)
_REST = re.compile(rf"{_SPACE}*\Z")
_DEEPEST_TEXT = 32
_DIMENSION_WORDS = ("", "Z", "M", "ZM")  # by the thousands of a type's number


def wkb_of_wkt(text: str) -> bytes:
    """Return a geometry in well-known binary, as DuckDB's cast makes it, also with Z, M, NaNs and infinities.

    >>> wkb_of_wkt("MULTILINESTRING Z EMPTY").hex()
    '01ed03000000000000'
    """
    reader = _WktReader(text)
    data = reader.geometry()
    reader.expect_end()
    check_wkb(data)
    return data


class _WktReader:
    """Reads a text word by word into well-known binary.

    ``dimensions`` are those of the geometry that is read, by the thousands of its type's number.
    """

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.depth = self.dimensions = 0
        self._types: dict[str, Callable[[], bytes]] = {
            "POINT": lambda: self.within(self.point),
            "LINESTRING": self.line,
            "POLYGON": self.polygon,
            "MULTIPOINT": lambda: self.listed(lambda: self.member(_POINT, self.point_of_several)),
            "MULTILINESTRING": lambda: self.listed(lambda: self.member(_LINE, self.line)),
            "MULTIPOLYGON": lambda: self.listed(lambda: self.member(_POLYGON, self.polygon)),
            "GEOMETRYCOLLECTION": lambda: self.listed(self.geometry),
        }

    def error(self, wanted: str) -> ValueError:
        rest = self.text[self.place :].strip()
        found = repr(rest if len(rest) <= _SHOWN else rest[:_SHOWN] + "…") if rest else "its end"
        return ValueError(f"expected {wanted} at character {self.place + 1}, found {found}")

    def next(self) -> tuple[str, str, str]:
        """Return a word, a number or a symbol, and two empty strings; three of them at the end."""
        found = _TOKEN.match(self.text, self.place)
        return ("", "", "") if found is None else (found[2] or "", found[1] or "", found[3] or "")

    def take(self) -> None:
        found = _TOKEN.match(self.text, self.place)
        assert found is not None
        self.place = found.end()

    def expect(self, symbol: str) -> None:
        if self.next()[2] != symbol:
            raise self.error(repr(symbol))
        self.take()

    def expect_end(self) -> None:
        if _REST.match(self.text, self.place) is None:
            raise self.error("the end")

    def geometry(self) -> bytes:
        word = self.next()[0].upper()
        if word not in self._types:
            raise self.error(f"one of {', '.join(self._types)}")
        self.take()
        self.dimensions = self.dimensions_of(self.next()[0].upper())
        self.depth += 1
        if self.depth > _DEEPEST_TEXT:
            raise self.error("no deeper collections")
        data = self.member([*self._types].index(word) + 1, self._types[word])
        self.depth -= 1
        return data

    def dimensions_of(self, word: str) -> int:
        if word not in _DIMENSION_WORDS[1:]:
            return 0
        self.take()
        return _DIMENSION_WORDS.index(word)

    def member(self, type_: int, read: Callable[[], bytes]) -> bytes:
        head = struct.pack("<BI", 1, 1000 * self.dimensions + type_)
        if self.next()[0].upper() != "EMPTY":
            return head + read()
        self.take()
        return head + (_vertex([math.nan] * self.width) if type_ == _POINT else _COUNT.pack(0))

    @property
    def width(self) -> int:
        return 2 + len(_DIMENSION_WORDS[self.dimensions])

    def within(self, read: Callable[[], bytes]) -> bytes:
        self.expect("(")
        data = read()
        self.expect(")")
        return data

    def listed(self, read: Callable[[], bytes]) -> bytes:
        self.expect("(")
        found = [read()]
        while self.next()[2] == ",":
            self.take()
            found.append(read())
        self.expect(")")
        return _COUNT.pack(len(found)) + b"".join(found)

    def point(self) -> bytes:
        axes = [self.number() for _ in range(self.width)]
        if self.next()[1]:
            raise self.error(f"{('two', 'three', 'four')[self.width - 2]} numbers for a point")
        return _vertex(axes)

    def point_of_several(self) -> bytes:
        return self.within(self.point) if self.next()[2] == "(" else self.point()

    def line(self) -> bytes:
        return self.listed(self.point)

    def polygon(self) -> bytes:
        return self.listed(self.line)

    def number(self) -> float:
        text = self.next()[1]
        if not text:
            raise self.error("a number")
        self.take()
        return float(text)


def _vertex(axes: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(axes)}d", *axes)


_COUNT = struct.Struct("<I")
_SHOWN = 20
