"""JSON of a table's columns."""

from __future__ import annotations

from functools import partial
from typing import Any

from airflow_provider_ducklake.spark.job.kinds import flag, integer, optional, several, text
from airflow_provider_ducklake.spec.ids import ColumnId
from airflow_provider_ducklake.spec.schema import Column, Default, TableSchema
from airflow_provider_ducklake.spec.types.ducklake_types import Field, with_children

Json = dict[str, Any]


def encode_schema(schema: TableSchema) -> list[Json]:
    """Return the columns as a list of trees."""
    return [_encode_column(column) for column in schema.columns]


def decode_schema(columns: list[Json]) -> TableSchema:
    """Return the schema; the inverse of ``encode_schema``."""
    return TableSchema(tuple(_decode_column(column) for column in columns))


def _encode_column(column: Column) -> Json:
    return {
        "id": column.id,
        "name": column.name,
        "type": column.catalog_type,
        "nullable": column.nullable,
        "initial_default": column.initial_default,
        "default": [column.default.value, column.default.kind, column.default.dialect],
        "children": [_encode_column(child) for child in column.children],
    }


def _decode_column(item: Json) -> Column:
    children = tuple(_decode_column(child) for child in item["children"])
    return Column(
        ColumnId(integer(item["id"])),
        text(item["name"]),
        with_children(text(item["type"]), tuple(Field(child.name, child.type) for child in children)),
        nullable=flag(item["nullable"]),
        initial_default=optional(text, item["initial_default"]),
        default=Default(*several(partial(optional, text), item["default"])),
        children=children,
    )
