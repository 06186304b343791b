"""How a change names an object: by its id, or by a reference to one that the same transaction creates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider_ducklake.spec.ids import SchemaId, TableId, ViewId


@dataclass(frozen=True, slots=True)
class NewSchemaRef:
    """A schema that the same transaction creates."""

    index: int


@dataclass(frozen=True, slots=True)
class NewTableRef:
    """A table that the same transaction creates."""

    index: int


@dataclass(frozen=True, slots=True)
class NewViewRef:
    """A view that the same transaction creates."""

    index: int


SchemaRef: TypeAlias = SchemaId | NewSchemaRef
TableRef: TypeAlias = TableId | NewTableRef
ViewRef: TypeAlias = ViewId | NewViewRef


def existing(table: TableRef) -> tuple[TableId, ...]:
    """Return the id of a table that existed before, if it did."""
    return () if isinstance(table, NewTableRef) else (table,)


def place_of(table: TableRef) -> tuple[bool, int]:
    """Return where a table stands among others: existing ones come before new ones, and by id."""
    return (True, table.index) if isinstance(table, NewTableRef) else (False, table)
