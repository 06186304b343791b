"""Geometries as filters write them: the box around well-known text.

What is read here DuckDB's cast reads as the same geometry. It takes more, as a NaN, an SRID that it ignores
and words behind the end, which are refused. *Source:* docs/sources.md, geometries.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.types.geometry import Box

if TYPE_CHECKING:
    from collections.abc import Callable

_SPACE = r"[ \t\n\v\f\r]"
_TOKEN = re.compile(
    rf"{_SPACE}*(?:([A-Za-z]+)|(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?={_SPACE}|[,()]|\Z)|([(),]))"
)
_REST = re.compile(rf"{_SPACE}*\Z")
_DEEPEST = 32
_DIMENSIONS = re.compile(r"(ZM?|M)", re.IGNORECASE)


def box_of_wkt(text: str) -> Box | None:
    """Return the box around a geometry; None: it is empty.

    >>> box_of_wkt("LINESTRING (1 5, -2.5 7)"), box_of_wkt("POLYGON EMPTY")
    (Box(xmin=-2.5, ymin=5.0, xmax=1.0, ymax=7.0), None)

    Raises:
        ValueError: it is none of the seven types in two dimensions; says where.
    """
    reader = _Reader(text)
    reader.geometry()
    reader.expect_end()
    if not reader.xs:
        return None
    return Box(min(reader.xs), min(reader.ys), max(reader.xs), max(reader.ys))


class _Reader:
    """Reads a text word by word, and notes the coordinates."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.xs: list[float] = []
        self.ys: list[float] = []
        self.depth = 0
        self._types: dict[str, Callable[[], None]] = {
            "POINT": lambda: self.within(self.point),
            "LINESTRING": self.line,
            "POLYGON": self.polygon,
            "MULTIPOINT": lambda: self.listed(lambda: self.unless_empty(self.point_of_several)),
            "MULTILINESTRING": lambda: self.listed(lambda: self.unless_empty(self.line)),
            "MULTIPOLYGON": lambda: self.listed(lambda: self.unless_empty(self.polygon)),
            "GEOMETRYCOLLECTION": lambda: self.listed(self.geometry),
        }

    def error(self, wanted: str) -> ValueError:
        rest = self.text[self.place :].strip()
        found = repr(rest if len(rest) <= _SHOWN else rest[:_SHOWN] + "…") if rest else "its end"
        return ValueError(f"expected {wanted} at character {self.place + 1}, found {found}")

    def next(self) -> tuple[str, str, str]:
        """Return a word, a number or a symbol, and two empty strings; three of them at the end."""
        found = _TOKEN.match(self.text, self.place)
        return ("", "", "") if found is None else (found[1] or "", found[2] or "", found[3] or "")

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

    def geometry(self) -> None:
        word = self.next()[0].upper()
        if word not in self._types:
            self.refuse_dimensions(word)
            raise self.error(f"one of {', '.join(self._types)}")
        self.take()
        self.refuse_dimensions(self.next()[0], "")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error("no deeper collections")
        self.unless_empty(self._types[word])
        self.depth -= 1

    def refuse_dimensions(self, word: str, *types: str) -> None:
        for type_ in types or self._types:
            if word.upper().startswith(type_) and _DIMENSIONS.fullmatch(word[len(type_) :]):
                raise ValueError("it has Z or M, which && does not look at: write x and y only")

    def unless_empty(self, read: Callable[[], None]) -> None:
        if self.next()[0].upper() == "EMPTY":
            self.take()
        else:
            read()

    def within(self, read: Callable[[], None]) -> None:
        self.expect("(")
        read()
        self.expect(")")

    def listed(self, read: Callable[[], None]) -> None:
        self.expect("(")
        read()
        while self.next()[2] == ",":
            self.take()
            read()
        self.expect(")")

    def point(self) -> None:
        self.xs.append(self.number())
        self.ys.append(self.number())
        if self.next()[1]:
            raise self.error("two numbers for a point")

    def point_of_several(self) -> None:
        if self.next()[2] == "(":
            self.within(self.point)
        else:
            self.point()

    def line(self) -> None:
        self.listed(self.point)

    def polygon(self) -> None:
        self.listed(self.line)

    def number(self) -> float:
        text = self.next()[1]
        if not text:
            raise self.error("a number")
        number = float(text)
        if math.isinf(number):
            raise self.error("a number that a DOUBLE holds")
        self.take()
        return number


_SHOWN = 20
