"""Geometries in Parquet: WKB with the logical type GEOMETRY, and what the footer says of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InvalidInputError, UnsupportedFeatureError
from ...format.types.geometry import AXES, GeometryStats, check_wkb, is_finite, type_name
from ..arrow.reshape import BYTE_ARRAY, SchemaNode


class WkbType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The Arrow type that writes GEOMETRY, with statistics; it leaves no name in files."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        """Serialize the type's parameters: none, as files of the reference have no CRS."""
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> WkbType:
        return cls()

    def __hash__(self) -> int:
        """Return that of the name: all are equal."""
        return hash(self.extension_name)


WKB = WkbType()
_WITH_MEMBERS = ("multi", "geometrycollection")


def geometry_stats(chunk: pq.ColumnChunkMetaData) -> GeometryStats | None:
    """Read the statistics of the geometries in a column chunk; None: the footer has none."""
    found = chunk.geo_statistics
    if found is None or found.geospatial_types is None:
        return None
    if _is_wrapped(found.xmin, found.xmax):
        return None
    types = [type_name(number) for number in found.geospatial_types]
    if None in types:
        return None
    x, y, z, m = (_range(getattr(found, f"{axis}min"), getattr(found, f"{axis}max")) for axis in AXES)
    return GeometryStats((x, y, z, m), frozenset(one for one in types if one is not None))


def _is_wrapped(low: float | None, high: float | None) -> bool:
    """Return True if a range of longitudes crosses the antimeridian; an empty one ends in infinities."""
    return low is not None and high is not None and math.inf > low > high > -math.inf


def _range(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None or low > high else (low, high)


def check_geometries(values: pa.ChunkedArray, column: str) -> None:
    """Refuse values that are no WKB, or that DuckDB does not take: Arrow would write them.

    Arrow parses them for statistics, in which a value that it cannot parse leaves no types. It does not
    compare the members of a collection with it.
    """
    if len(values) == values.null_count:
        return
    target = pa.BufferOutputStream()
    table = pa.table(
        [pa.chunked_array([pa.ExtensionArray.from_storage(WKB, chunk) for chunk in values.chunks], WKB)],
        names=["g"],
    )
    with pq.ParquetWriter(target, table.schema, compression="none", use_dictionary=False) as writer:
        writer.write_table(table, row_group_size=max(1, len(values)))
    found = geometry_stats(writer.writer.metadata.row_group(0).column(0))
    if found is not None and not any(one.startswith(_WITH_MEMBERS) for one in found.types):
        return
    invalid = first_invalid(values.to_pylist())
    if invalid is None and found is not None:
        return
    place, problem = invalid or (0, "Arrow cannot read it")
    raise InvalidInputError(
        f"Column {column}: the value of row {place + 1} of those written together is no geometry in WKB: "
        f"{problem}. Nothing was committed."
    )


def first_invalid(values: Iterable[bytes | None]) -> tuple[int, str] | None:
    """Return the place of the first value that is no WKB, and why; None: there is none."""
    for place, value in enumerate(values):
        if value is not None:
            try:
                check_wkb(value)
            except ValueError as error:
                return place, str(error)
    return None


# the upper two bytes of a NaN or an infinity in either byte order; other doubles may have them elsewhere
_MAY_BE_INFINITE = r"(?s)[\xf0-\xff][\x7f\xff]|[\x7f\xff][\xf0-\xff]"


def have_box(values: pa.ChunkedArray) -> bool:
    """Return True if the box that Arrow finds is around all of the geometries: it leaves NaN out."""
    suspects = values.filter(pc.match_substring_regex(values, _MAY_BE_INFINITE))
    return all(is_finite(value) for value in suspects.to_pylist())


# GeoParquet's metadata, the key ``geo`` of a footer, which makes DuckDB read bytes as geometries.
#
# *Source:* GeoParquet 1.1; which of it DuckDB 1.5.5 refuses, measured (tests/interop/test_geometries.py).


_ENCODINGS = frozenset(
    ("WKB", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon")
)


def with_geometries(root: SchemaNode, metadata: pq.FileMetaData, where: str) -> SchemaNode:
    """Return the schema with the encoding on each column that GeoParquet's metadata calls a geometry.

    Structs of numbers, and columns with Parquet's own logical type, need none.
    """
    geo_bytes = (metadata.metadata or {}).get(b"geo")
    if geo_bytes is None:
        return root
    try:
        geo = json.loads(geo_bytes.decode(), parse_constant=_no_json)
    except (ValueError, RecursionError):  # which DuckDB passes over
        return root
    if (problem := _refused(geo)) is not None:
        raise UnsupportedFeatureError(
            f"{where}: GeoParquet's metadata {problem}, and DuckDB refuses the whole file: rewrite the file "
            "as GeoParquet 1.1, or insert its rows with Spark."
        )
    encodings = {name: one["encoding"] for name, one in geo["columns"].items()}
    return replace(root, children=tuple(_encoded(one, encodings) for one in root.children))


def _encoded(node: SchemaNode, encodings: dict[str, str]) -> SchemaNode:
    is_native = node.logical in _GEOSPATIAL
    return (
        node
        if node.physical != BYTE_ARRAY or is_native
        else replace(node, geoparquet=encodings.get(node.name))
    )


_GEOSPATIAL = (17, 18)  # GEOMETRY and GEOGRAPHY, by Parquet's numbers of LogicalType


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _refused(geo: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Explain why DuckDB refuses the metadata; None: it accepts it."""
    if not isinstance(geo, dict):
        return "is no object"
    version, columns = geo.get("version"), geo.get("columns")
    if not isinstance(version, str) or version.startswith("3"):
        return f"is of version {version}"
    if not isinstance(columns, dict):
        return "has no columns"
    for name, one in columns.items():
        if not isinstance(one, dict):
            return f"has no object for column {name}"
        encoding = one.get("encoding")
        if not isinstance(encoding, str) or encoding not in _ENCODINGS:
            return f"has the encoding {encoding!r} for column {name}"
        if not isinstance(one.get("geometry_types"), list):
            return f"has no geometry_types for column {name}"
        if not isinstance(one.get("crs"), dict | None):
            return f"has a crs for column {name} that is no object"
    return None
