"""Files whose columns DuckDB reads by other rules than pyarrow, and which columns of a table they fit."""

import json
import struct

import pyarrow as pa

from airflow_provider_ducklake.lake.storage.parquet.modules import Items, ModuleKind, Struct, ThriftField
from tests.interop.footers import (
    BYTE_ARRAY,
    INT32,
    INT64,
    KEYS,
    LIST,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    edited,
    element,
    parquet,
    with_schema,
)

ENUM, JSON, MILLIS, MICROS = 4, 19, 9, 10  # of ConvertedType
INSTANTS = [-1, -999, -1000, -1001, 1, 999, 1001, 1_600_000_000_123_456_789, None]
HALVES = [500, -500, 499, -501, 1_500, 2_500, 999, 0, 1 - 2**63, 2**63 - 1, None]  # of thousandths
TEXTS = ["a", "é", None, "b"]
POINTS = [struct.pack("<BIdd", 1, 1, x, x) for x in (1.0, 5.0)]


def logical(number: int, **fields: ThriftField) -> Struct:
    return {number: ThriftField(ModuleKind.STRUCT, {int(key[1:]): one for key, one in fields.items()})}


def of(values: list, type_: pa.DataType, physical: int, **says: object) -> bytes:
    """Return a file of a column with an annotation that pyarrow would not write."""
    return with_schema(
        parquet({"a": pa.array(values, type_)}), [element("a", OPTIONAL, physical, **says)], ["a"]
    )


def geoparquet(geo: object, values: list = POINTS, type_: pa.DataType | None = None) -> bytes:
    """Return a file with GeoParquet's metadata, of a column ``a`` that has no logical type of its own."""
    said = geo if isinstance(geo, str) else json.dumps(geo)
    pair = {1: ThriftField(ModuleKind.BINARY, b"geo"), 2: ThriftField(ModuleKind.BINARY, said.encode())}
    data = parquet({"a": pa.array(values, type_ or pa.binary())})
    return edited(
        data,
        lambda footer: footer.update({KEYS: ThriftField(ModuleKind.LIST, Items(ModuleKind.STRUCT, [pair]))}),
    )


def geo(**says: object) -> dict:
    """Return GeoParquet's metadata of a column ``a``."""
    return {"version": "1.1.0", "columns": {"a": {"encoding": "WKB", "geometry_types": [], **says}}}


def _enums_in_a_list() -> bytes:
    name = pa.field("element", pa.struct([pa.field("e", pa.binary())]), nullable=False)
    rows = pa.table({"a": pa.array([[{"e": b"x"}, {"e": None}], None, []], pa.list_(name))})
    elements = [
        element("a", OPTIONAL, None, 1, LIST),
        element("list", REPEATED, None, 1),
        element("element", REQUIRED, None, 1),
        element("e", OPTIONAL, BYTE_ARRAY, converted=ENUM),
    ]
    return with_schema(parquet(rows), elements, ["a.list.element.e"])


_BYTES = [None if one is None else one.encode() for one in TEXTS]
_DECIMAL = {"f1": ThriftField(ModuleKind.I32, 2), "f2": ThriftField(ModuleKind.I32, 5)}
_SYSTEM = logical(17, f1=ThriftField(ModuleKind.BINARY, b"srid:5070"))
FILES = {
    "enum": of(_BYTES, pa.binary(), BYTE_ARRAY, converted=ENUM),
    "enums in a list": _enums_in_a_list(),
    "nanoseconds": parquet({"a": pa.array(INSTANTS, pa.timestamp("ns", "UTC"))}),
    "local nanoseconds": parquet({"a": pa.array([*INSTANTS, 1 - 2**63, 2**63 - 1], pa.timestamp("ns"))}),
    "milliseconds": parquet({"a": pa.array(HALVES, pa.timestamp("ms"))}),
    "microseconds": parquet({"a": pa.array([*HALVES, 500_000, -1_500_000], pa.timestamp("us"))}),
    "old milliseconds": of([0, -1, None, 10**12], pa.int64(), INT64, converted=MILLIS),
    "old microseconds": of([0, -1, None, 10**15], pa.int64(), INT64, converted=MICROS),
    "halves": parquet({"a": pa.array([1.5, None, float("nan"), -2.0], pa.float16())}),
    "null": parquet({"a": pa.nulls(3)}),
    "nulls in a list": parquet({"a": pa.array([[None, None], [], None], pa.list_(pa.null()))}),
    "geometry of a system": of(POINTS, pa.binary(), BYTE_ARRAY, logical=_SYSTEM),
    "geography": of([*POINTS, None], pa.binary(), BYTE_ARRAY, logical=logical(18)),
    "geoparquet": geoparquet(geo(), [*POINTS, None]),
    "geoparquet of a system": geoparquet(geo(crs={"id": {"authority": "EPSG", "code": 5070}})),
    "points of geoparquet": geoparquet(geo(encoding="point")),
    "text of geoparquet": geoparquet(geo(), TEXTS, pa.string()),
    "bytes": parquet({"a": pa.array(POINTS, pa.binary())}),
    "logical text": of(_BYTES, pa.binary(), BYTE_ARRAY, logical=logical(1)),
    "logical enum": of(_BYTES, pa.binary(), BYTE_ARRAY, logical=logical(4)),
    "logical json": of([b"1"], pa.binary(), BYTE_ARRAY, logical=logical(12)),
    "logical date": of([1, -1], pa.int32(), INT32, logical=logical(6)),
    "logical decimal": of([1, -1], pa.int32(), INT32, logical=logical(5, **_DECIMAL)),
    "logical uint32": of(
        [1, -1],
        pa.int32(),
        INT32,
        logical=logical(10, f1=ThriftField(ModuleKind.BYTE, 32), f2=ThriftField(ModuleKind.FALSE, False)),  # noqa: FBT003
    ),
}
TAKEN = [
    ("enum", "VARCHAR"),
    ("enums in a list", "STRUCT(e VARCHAR)[]"),
    ("nanoseconds", "TIMESTAMPTZ"),
    ("milliseconds", "TIMESTAMP_S"),
    ("microseconds", "TIMESTAMP_S"),
    ("old milliseconds", "TIMESTAMP"),
    ("old microseconds", "TIMESTAMP"),
    ("halves", "FLOAT"),
    ("halves", "DOUBLE"),
    ("null", "INTEGER"),
    ("null", "BIGINT"),
    ("nulls in a list", "INTEGER[]"),
    ("geometry of a system", "GEOMETRY"),
    ("geography", "GEOMETRY"),
    ("geoparquet", "GEOMETRY"),
    ("geoparquet of a system", "GEOMETRY"),
    ("logical text", "BLOB"),
    ("logical enum", "BLOB"),
    ("logical json", "BLOB"),
]
# which DuckDB reads, though its own function adds none
NOT_ADDED_BY_DUCKDB = ("halves", "geography", "geoparquet", "geoparquet of a system")
# what DuckDB adds, and then reads with fewer digits
ADDED_BY_DUCKDB = [
    ("local nanoseconds", "TIMESTAMP"),
    ("microseconds", "TIMESTAMP_MS"),
    ("microseconds", "TIMESTAMP_S"),
]
REFUSED = [
    ("local nanoseconds", "TIMESTAMP", "column a is timestamp in the table; timestamp[ns] in the file"),
    ("microseconds", "TIMESTAMP_MS", "column a is timestamp_ms in the table; timestamp[us] in the file"),
    ("bytes", "GEOMETRY", "column a is geometry in the table; binary in the file does not fit"),
    ("geoparquet", "BLOB", "binary of GeoParquet's encoding WKB, which DuckDB reads as geometry, in the"),
    ("geography", "BLOB", "column a is blob in the table; binary in the file does not fit"),
    ("points of geoparquet", "GEOMETRY", "binary of GeoParquet's encoding point, which DuckDB reads as"),
    ("text of geoparquet", "VARCHAR", "string of GeoParquet's encoding WKB, which DuckDB reads as geometry"),
    ("enum", "BLOB", "binary, which DuckDB reads as string, in the file does not fit"),
    ("nanoseconds", "TIMESTAMP", "UTC] in the file does not fit"),
    (
        "old microseconds",
        "TIMESTAMPTZ",
        "UTC], which DuckDB reads as timestamp[us], in the file does not fit",
    ),
    ("null", "VARCHAR", "null, which DuckDB reads as int32, in the file does not fit"),
    ("logical text", "VARCHAR", "string, which DuckDB reads as binary, in the file does not fit"),
    ("logical json", "JSON", "string, which DuckDB reads as binary, in the file does not fit"),
    ("logical date", "DATE", "date32[day], which DuckDB reads as int32, in the file does not fit"),
    ("logical date", "INTEGER", "date32[day], which DuckDB reads as int32, in the file does not fit"),
    ("logical decimal", "DECIMAL(5, 2)", "5, 2), which DuckDB reads as int32, in the file does not fit"),
    ("logical uint32", "UINTEGER", "uint32, which DuckDB reads as int32, in the file does not fit"),
]
