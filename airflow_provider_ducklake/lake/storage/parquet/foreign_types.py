"""As which types DuckDB reads the columns of other writers' files: as what Parquet says of them.

What only Arrow's copy of a schema says does not count. *Source:* measured with DuckDB 1.5.5
(tests/interop/test_foreign_types.py measures it again).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.errors import InvalidTypeError
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DuckLakeType,
    Kind,
    ScalarType,
    can_promote,
)
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import ducklake_type
from airflow_provider_ducklake.lake.storage.parquet.schema_tree import PHYSICAL_TYPES

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.storage.parquet.schema_tree import SchemaNode


def as_duckdb_reads(node: SchemaNode, type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type that a column has for DuckDB, ``type_`` being the one that pyarrow gives it."""
    if pa.types.is_null(type_) or _is_plain(node):
        return _PLAIN.get(PHYSICAL_TYPES[node.physical], type_)
    if node.converted == _ENUM:
        return pa.string()
    if pa.types.is_timestamp(type_) and node.converted is not None and node.logical is None:
        return pa.timestamp(type_.unit)  # of the time when there were no others
    return type_


def _is_plain(node: SchemaNode) -> bool:
    """Whether DuckDB sees numbers or bytes in a column: it passes most logical types over."""
    return node.converted is None and node.logical not in _READ_ALONE


# by Parquet's numbers of ConvertedType, and of LogicalType
_ENUM, _JSON, _BSON, _INTERVAL = 4, 19, 20, 21
_TIME, _TIMESTAMP, _UUID, _FLOAT16, _VARIANT, GEOMETRY, _GEOGRAPHY = 7, 8, 14, 15, 16, 17, 18
_READ_ALONE = frozenset({_TIME, _TIMESTAMP, _UUID, _FLOAT16, _VARIANT, GEOMETRY, _GEOGRAPHY})
_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BYTE_ARRAY": pa.binary(),
}


def named(node: SchemaNode, type_: pa.DataType) -> str:
    """Name the type of a column, and that which DuckDB reads instead of it, as a part of a sentence."""
    if PHYSICAL_TYPES[node.physical] == "INT96":
        return "INT96, which is read as timestamp,"
    if node.geoparquet is not None:
        return f"{type_} of GeoParquet's encoding {node.geoparquet}, which DuckDB reads as geometry,"
    read_as = as_duckdb_reads(node, type_)
    return str(type_) if read_as == type_ else f"{type_}, which DuckDB reads as {read_as},"


def type_of_leaf(node: SchemaNode, type_: pa.DataType, where: str) -> DuckLakeType | None:
    """Return the DuckLake type of a column to which pyarrow gives ``type_``.

    None: there is none for what DuckDB reads, or DuckDB and pyarrow read different values.
    """
    read_as = as_duckdb_reads(node, type_)
    if read_as != type_ and not _are_same_values(type_, read_as):
        return None
    if node.geoparquet is not None:
        is_plain = node.converted is None and node.logical is None
        return ScalarType("geometry") if node.geoparquet == "WKB" and is_plain else None
    if node.logical == _VARIANT or node.converted == _BSON:
        return None
    if name := _BY_LOGICAL.get(node.logical or 0) or _BY_CONVERTED.get(node.converted or 0):
        return ScalarType(name)
    if PHYSICAL_TYPES[node.physical] == "INT96":  # Spark's instants; the reference reads them without zone
        return ScalarType("timestamp") if pa.types.is_timestamp(type_) else None
    if pa.types.is_time(type_):
        return ScalarType("time") if type_.unit == "us" else None
    try:
        return ducklake_type(read_as, where)
    except InvalidTypeError:
        return None


def _are_same_values(type_: pa.DataType, read_as: pa.DataType) -> bool:
    if pa.types.is_null(type_) or (pa.types.is_timestamp(type_) and pa.types.is_timestamp(read_as)):
        return True
    return type_ in _BYTES and read_as in _BYTES


_BYTES = (pa.string(), pa.binary())
# of geometries the coordinate system is left out, and that their edges are arcs
_BY_LOGICAL = {_UUID: "uuid", GEOMETRY: "geometry", _GEOGRAPHY: "geometry"}
_BY_CONVERTED = {_JSON: "json", _INTERVAL: "interval"}


def fits(found: DuckLakeType | None, wanted: DuckLakeType) -> bool:
    """Whether each value of a file's type is read as that value; a date is not read as a timestamp."""
    if found is None:
        return False
    if found == wanted:
        return True
    rows = found.facts, wanted.facts
    # timestamps in seconds too are stored in microseconds
    if all(row.kind is Kind.TIMESTAMP and not row.zoned for row in rows):
        return rows[0].per_second <= rows[1].per_second == _MICROSECONDS  # Parquet has none of a second
    return can_promote(found, wanted) and rows[0].kind is not Kind.DATE


_MICROSECONDS = 10**6
