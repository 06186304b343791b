"""What statistics say of geometries: the box around them, and which types they are of.

*Source:* the texts that the reference writes (docs/sources.md, geometries).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TypeAlias

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
_ROUNDED = 1e-6  # of the text's six decimals, at most


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with its edges; that of geometries with a NaN may have NaN for a side, as DuckDB's."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def meets(self, other: Box) -> bool:
        """Whether they have a point in common, which may be one of an edge; a side of NaN excludes nothing.

        >>> Box(0, 0, 1, 1).meets(Box(1, 1, 2, 2)), Box(0, 0, 1, 1).meets(Box(0, 1.5, 1, 2))
        (True, False)
        """
        return not (
            self.xmin > other.xmax
            or self.xmax < other.xmin
            or self.ymin > other.ymax
            or self.ymax < other.ymin
        )


@dataclass(frozen=True, slots=True)
class GeometryStats:
    """The box around geometries, a range for each of ``AXES``, and the names of their types."""

    box: tuple[Range, Range, Range, Range] = (None, None, None, None)
    types: frozenset[str] = frozenset()

    def merge(self, other: GeometryStats) -> GeometryStats:
        """Return what is true of both."""
        box = tuple(_together(one, another) for one, another in zip(self.box, other.box, strict=True))
        x, y, z, m = box
        return GeometryStats((x, y, z, m), self.types | other.types)

    @property
    def is_finite(self) -> bool:
        """Whether no side of the box is infinite."""
        return all(math.isfinite(side) for sides in self.box if sides is not None for side in sides)

    def without_box(self) -> GeometryStats:
        """Return what is left where the box would leave some geometries out."""
        return GeometryStats(types=self.types)

    @property
    def surroundings(self) -> Box | None:
        """A rectangle with the box in it, however its text was rounded; None: nothing is known of it."""
        (x, y, *_) = self.box
        if x is None or y is None:
            return None
        return Box(x[0] - _ROUNDED, y[0] - _ROUNDED, x[1] + _ROUNDED, y[1] + _ROUNDED)

    @property
    def text(self) -> str:
        """The text as the catalog's ``extra_stats`` have it.

        >>> GeometryStats(((0.0, 5.0), (-3.0, 2.0), None, None), frozenset({"point"})).text
        '{"bbox": {"xmin": 0.000000, "xmax": 5.000000, "ymin": -3.000000, "ymax": 2.000000, "zmin": null, \
"zmax": null, "mmin": null, "mmax": null}, "types": ["point"]}'
        """
        sides = [
            f'"{axis}{side}": {"null" if found is None else f"{found[place]:.6f}"}'
            for axis, found in zip(AXES, self.box, strict=True)
            for place, side in enumerate(("min", "max"))
        ]
        types = ", ".join(f'"{one}"' for one in sorted(self.types))
        return f'{{"bbox": {{{", ".join(sides)}}}, "types": [{types}]}}'

    @classmethod
    def of_text(cls, text: str | None) -> GeometryStats | None:
        """Return what a text says; None: nothing that can be relied on."""
        try:
            found = json.loads(text or "")
            sides, types = found["bbox"], found["types"]
            x, y, z, m = (_range(sides[f"{axis}min"], sides[f"{axis}max"]) for axis in AXES)
            return cls((x, y, z, m), frozenset(map(str, types)))
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            return None


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
