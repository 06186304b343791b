"""The names of types in DuckDB's SQL, by which a DuckDB file declares the columns of inlined rows.

*Source:* the tables that the reference makes in DuckDB files (docs/sources.md, inlining).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.names.identifiers import quote
from airflow_provider_ducklake.spec.types.ducklake_types import DecimalType, ListType, MapType, StructType

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.types.ducklake_types import DuckLakeType

# DuckLake's int8 has 8 bits, DuckDB's INT8 has 8 bytes; the other names DuckDB reads as they are.
_OTHERWISE = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "timetz": "TIME WITH TIME ZONE",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "null": "INTEGER",
    "unknown": "VARCHAR",
}


def duckdb_type(type_: DuckLakeType) -> str:
    """Return a type as DuckDB's SQL writes it.

    >>> from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType
    >>> duckdb_type(ListType(ScalarType("int8")))
    'TINYINT[]'
    """
    match type_:
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case ListType(element):
            return f"{duckdb_type(element)}[]"
        case StructType(fields):
            return f"STRUCT({', '.join(f'{quote(one.name)} {duckdb_type(one.type)}' for one in fields)})"
        case MapType(key, value):
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
        case _:
            return _OTHERWISE.get(type_.name, type_.name.upper())
