"""Delta's columns as DuckLake's.

*Source:* Delta's protocol, "Schema Serialization Format" and "Column Mapping".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.writing.source_table import SourceColumn
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TYPES = {
    "boolean": "boolean",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "varchar",
    "binary": "blob",
}
_DECIMAL = re.compile(r"decimal\((\d{1,3}),\s*(\d{1,3})\)")
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class DeltaTypes:
    """The columns of a schema; ``mode`` is the table's column mapping: none, name or id."""

    def __init__(self, where: str, mode: str) -> None:
        self._where = where
        self._mode = mode

    def columns(self, fields: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[SourceColumn, ...]:
        """Return the columns of fields of a schema's JSON.

        Raises:
            UnsupportedFeatureError: DuckLake has no such type; names the column.
        """
        return tuple(self._column(field, prefix) for field in fields)

    def _column(self, field: Mapping[str, Any], prefix: str) -> SourceColumn:
        name = field["name"]
        type_, children = self._type(field["type"], f"{prefix}{name}")
        return SourceColumn(self._key(field), name, type_, nullable=field["nullable"], children=children)

    def _key(self, field: Mapping[str, Any]) -> str | int:
        match self._mode:
            case "id":
                return int(field["metadata"][_ID])
            case "name":
                return str(field["metadata"][_PHYSICAL_NAME])
            case _:
                return str(field["name"])

    def _type(self, type_: Any, name: str) -> tuple[DuckLakeType, tuple[SourceColumn, ...]]:  # noqa: ANN401 - JSON
        if isinstance(type_, str):
            return self._scalar(type_, name), ()
        match type_["type"]:
            case "struct":
                children = self.columns(type_["fields"], f"{name}.")
                return StructType(tuple(Field(one.name, one.type) for one in children)), children
            case "array":
                element = self._inner(type_["elementType"], name, "element")
                return ListType(element.type), (element,)
            case "map":
                key = self._inner(type_["keyType"], name, "key")
                value = self._inner(type_["valueType"], name, "value")
                return MapType(key.type, value.type), (key, value)
            case other:
                raise self._refused(name, other)

    def _inner(self, type_: Any, name: str, word: str) -> SourceColumn:  # noqa: ANN401 - JSON
        found, children = self._type(type_, f"{name}.{word}")
        return SourceColumn(word, word, found, children=children)

    def _scalar(self, text: str, name: str) -> DuckLakeType:
        if (match := _DECIMAL.fullmatch(text)) is not None:
            return DecimalType(int(match[1]), int(match[2]))
        if text not in _TYPES:
            raise self._refused(name, text)
        return ScalarType(_TYPES[text])

    def _refused(self, name: str, type_: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{self._where}: column {name} is of Delta's type {type_}, which has no equal in DuckLake. "
            "Rewrite the table without the column, or insert its rows with the column converted."
        )
