"""Names, types and keys as tests write them, in ducklakepy's values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ducklakepy.partitioning import PartitionKey, Transform
from ducklakepy.schema import Schema
from ducklakepy.sorting import SortKey
from ducklakepy.types import Column, DuckLakeType, ListType, MapType, StructType, parse_primitive_type

Names = tuple[str, ...]


def to_names(name: str | Names) -> Names:
    """Split a qualified name; a part with a dot stands in double quotes."""
    if not isinstance(name, str):
        return tuple(name)
    parts = re.findall(r'"(?:[^"]|"")*"|[^".]+', name)
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)


def type_of(written: Any) -> DuckLakeType:
    match written:
        case str():
            return parse_primitive_type(written)
        case Mapping():
            return StructType(fields=tuple(Column(name, type_of(field)) for name, field in written.items()))
        case [element]:
            return ListType(element=Column("element", type_of(element)))
        case key, value:
            return MapType(key=Column("key", type_of(key)), value=Column("value", type_of(value)))
        case _:
            raise TypeError(f"{written!r} is no type")


def schema_of(columns: Mapping[str, Any], required: Sequence[str], defaults: Mapping[str, str]) -> Schema:
    return Schema(
        *(
            Column(name, type_of(written), required=name in required, default_value=defaults.get(name))
            for name, written in columns.items()
        )
    )


def partition_key(written: str) -> PartitionKey:
    transformed = re.fullmatch(r"(\w+)\((?:(\d+), *)?(.+)\)", written)
    if transformed is None:
        return PartitionKey(written)
    transform, count, column = transformed.groups()
    return PartitionKey(column, Transform(transform), int(count) if count else None)


def sort_key(written: str) -> SortKey:
    column = written.removesuffix(" DESC")
    return SortKey(column, descending=column != written)
