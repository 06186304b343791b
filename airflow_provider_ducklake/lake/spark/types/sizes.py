"""Sizes as Spark has them: of rows by their types alone, and of settings."""

from __future__ import annotations

import re

from pyspark.sql import types as t

_BYTES: dict[str, int] = {
    **dict.fromkeys(("boolean", "tinyint", "byte", "void"), 1),
    **dict.fromkeys(("short", "smallint"), 2),
    **dict.fromkeys(("integer", "float", "date", "yearmonthinterval"), 4),
    "string": 20,
    "binary": 100,
    "variant": 2048,
}
_OTHERS = 8
_SMALL_DECIMAL_DIGITS = 18


def row_bytes(type_: t.DataType) -> int:
    """Return what Spark takes a value of a type for, in memory. *Source:* ``DataType.defaultSize``.

    >>> row_bytes(t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]))
    28
    """
    match type_:
        case t.StructType():
            return sum(row_bytes(field.dataType) for field in type_.fields)
        case t.ArrayType():
            return row_bytes(type_.elementType)
        case t.MapType():
            return row_bytes(type_.keyType) + row_bytes(type_.valueType)
        case t.DecimalType():
            return 8 if type_.precision <= _SMALL_DECIMAL_DIGITS else 16
        case _:
            return _BYTES.get(type_.typeName(), _OTHERS)


_SUFFIXES = {
    "": 0,
    "b": 0,
    "k": 1,
    "kb": 1,
    "m": 2,
    "mb": 2,
    "g": 3,
    "gb": 3,
    "t": 4,
    "tb": 4,
    "p": 5,
    "pb": 5,
}


def bytes_of(setting: str) -> int:
    """Return the bytes that a setting of Spark's means.

    >>> bytes_of("10485760b"), bytes_of("10MB"), bytes_of("-1")
    (10485760, 10485760, -1)
    """
    found = re.fullmatch(r"\s*(-?\d+)\s*([a-z]*)\s*", setting.lower())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{setting!r} is not a size.")
    return int(found[1]) << 10 * _SUFFIXES[found[2]]
