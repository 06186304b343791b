"""Which column of a table each field of a data file is, as Parquet field ids.

A file that DuckLake writes carries the ids. Files of others have a name mapping in the catalog. *Source:*
what the reference reads (docs/sources.md, inserts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.storage.parquet.footer import check_field_ids
from airflow_provider_ducklake.lake.storage.parquet.reshape import FIELD_ID_KEY, is_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.lake.spec.files import NameMapping
    from airflow_provider_ducklake.lake.spec.schema import Column


def with_field_ids(
    schema: pa.Schema, mapping: NameMapping | None, columns: Sequence[Column], where: str
) -> pa.Schema:
    """Return a file's Arrow schema with the id of a table's column on each field that is one.

    ``columns`` are those that will be read.

    Raises:
        UnsupportedFeatureError: a field has no id, and the file no mapping.
    """
    if mapping is None:
        check_field_ids(schema, columns, where)
        return schema
    names = _Names(mapping)
    return pa.schema([names.identified(field, None) for field in schema])


class _Names:
    """A name mapping, to be asked for what lies below a place in it."""

    def __init__(self, mapping: NameMapping) -> None:
        self._mapping = mapping
        self._below: dict[int | None, dict[str, int]] = {}
        for place, one in enumerate(mapping):
            if not one.is_partition:
                self._below.setdefault(one.parent, {})[fold(one.source_name)] = place

    def identified(self, field: pa.Field, parent: int | None) -> pa.Field:
        """Return a field with its id, and with those of the fields below it; without where it is nobody's."""
        return self._at(field, self._below.get(parent, {}).get(fold(field.name)))

    def _at(self, field: pa.Field, place: int | None) -> pa.Field:
        if place is None:
            return field.remove_metadata()
        return _with_id(field.with_type(self._type(field.type, place)), self._mapping[place].column_id)

    def _type(self, type_: pa.DataType, place: int) -> pa.DataType:
        below = self._below.get(place, {})
        if pa.types.is_struct(type_):
            return pa.struct([self.identified(child, place) for child in type_])
        if is_list(type_) and below:  # its only child is named after the repeated group between the two
            (element,) = below.values()
            return _list_of(type_, self._at(type_.value_field, element))
        if pa.types.is_map(type_):
            return _map_of(
                self._at(type_.key_field, below.get("key")), self._at(type_.item_field, below.get("value"))
            )
        return type_


def _with_id(field: pa.Field, column_id: int) -> pa.Field:
    metadata: Mapping[bytes, bytes] = {FIELD_ID_KEY: str(column_id).encode()}
    return field.with_metadata(metadata)


def _list_of(type_: pa.DataType, element: pa.Field) -> pa.DataType:
    if pa.types.is_large_list(type_):
        return pa.large_list(element)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(element, type_.list_size)
    return pa.list_(element)


def _map_of(key: pa.Field, value: pa.Field) -> pa.DataType:
    return pa.map_(key.with_nullable(nullable=False), value)
