"""The columns of a new table as users give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.spec.defaults import SqlDefault, default_of
from airflow_provider_ducklake.lake.spec.schema import TableSchema, new_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType


def table_definition(
    columns: Mapping[str, str | DuckLakeType] | pa.Schema,
    not_null: Sequence[str],
    defaults: Mapping[str, SqlDefault],
) -> TableSchema:
    """Return the columns that a mapping of names to types, or an Arrow schema, stands for.

    Raises:
        InvalidInputError: something in them cannot be (subclasses say what).
    """
    return _with_defaults(_columns(columns, not_null), defaults)


def _columns(columns: Mapping[str, str | DuckLakeType] | pa.Schema, not_null: Sequence[str]) -> TableSchema:
    if isinstance(columns, Mapping):
        return new_columns(columns, not_null)
    from airflow_provider_ducklake.lake.storage.parquet.arrow_types import fields_of_arrow  # noqa: PLC0415 - heavy

    required: list[Any] = [field.name for field in columns if not field.nullable]
    return new_columns(fields_of_arrow(columns), [*required, *not_null])


def _with_defaults(schema: TableSchema, defaults: Mapping[str, SqlDefault]) -> TableSchema:
    by_id = {schema.find(name).id: value for name, value in defaults.items()}
    columns = []
    for column in schema.columns:
        if column.id in by_id:
            stored, initial = default_of(by_id[column.id], column.type)
            columns.append(replace(column, default=stored, initial_default=initial))
        else:
            columns.append(column)
    return TableSchema(tuple(columns))
