"""Geometries in Parquet: WKB with the logical type GEOMETRY, and what the footer says of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.types.geometry import AXES, GeometryStats, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable


class WkbType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type by which Arrow writes GEOMETRY, and keeps statistics of it; files do not name it."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        """Return what the type says besides its name: nothing, as files of the reference have no CRS."""
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> WkbType:
        return cls()

    def __hash__(self) -> int:
        """Return that of the name: all are equal."""
        return hash(self.extension_name)


WKB = WkbType()


def geometry_stats(chunk: pq.ColumnChunkMetaData) -> GeometryStats | None:
    """Return what a footer says of the geometries in a column chunk; None: nothing."""
    found = chunk.geo_statistics
    if found is None or found.geospatial_types is None:
        return None
    types = [type_name(number) for number in found.geospatial_types]
    if None in types:
        return None
    x, y, z, m = (_range(getattr(found, f"{axis}min"), getattr(found, f"{axis}max")) for axis in AXES)
    return GeometryStats((x, y, z, m), frozenset(one for one in types if one is not None))


def _range(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None or low > high else (low, high)


def check_geometries(values: pa.ChunkedArray, column: str) -> None:
    """Refuse values that are no WKB: Arrow, which parses them for statistics, would write them.

    Raises:
        InvalidInputError: names the column and the row.
    """
    if len(values) == values.null_count:
        return
    target = pa.BufferOutputStream()
    table = pa.table([pa.chunked_array(_typed(values), WKB)], names=["g"])
    with pq.ParquetWriter(target, table.schema, compression="none", use_dictionary=False) as writer:
        writer.write_table(table, row_group_size=max(1, len(values)))
    if geometry_stats(writer.writer.metadata.row_group(0).column(0)) is not None:
        return
    place, problem = first_invalid(values.to_pylist()) or (0, "Arrow does not know it")
    raise InvalidInputError(
        f"Column {column}: the value of row {place + 1} of those written together is no geometry in WKB: "
        f"{problem}. Nothing was committed."
    )


def _typed(values: pa.ChunkedArray) -> list[pa.Array]:
    return [pa.ExtensionArray.from_storage(WKB, chunk) for chunk in values.chunks]


def first_invalid(values: Iterable[bytes | None]) -> tuple[int, str] | None:
    """Return the place of the first value that is no WKB, and why; None: there is none."""
    for place, value in enumerate(values):
        if value is not None:
            try:
                end = _end(value, 0, 0)
            except (struct.error, IndexError):
                return place, "it is cut off"
            except ValueError as error:
                return place, str(error)
            if end != len(value):
                return place, f"{len(value) - end} bytes follow its end"
    return None


_DEEPEST = 32
_POINT, _LINE, _POLYGON, _LAST = 1, 2, 3, 7


def _end(data: bytes, start: int, depth: int) -> int:
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
    size = 8 * (2 + (dimensions in (1, 3)) + (dimensions in (2, 3)))
    place = start + 5
    if type_ == _POINT:
        return _within(data, place + size)
    count, place = _count(data, place, order)
    if type_ == _LINE:
        return _within(data, place + count * size)
    for _ in range(count):
        if type_ == _POLYGON:
            points, place = _count(data, place, order)
            place = _within(data, place + points * size)
        else:
            place = _end(data, place, depth + 1)
    return place


def _count(data: bytes, place: int, order: str) -> tuple[int, int]:
    (count,) = struct.unpack_from(f"{order}I", data, place)
    return count, place + 4


def _within(data: bytes, end: int) -> int:
    if end > len(data):
        raise IndexError
    return end
