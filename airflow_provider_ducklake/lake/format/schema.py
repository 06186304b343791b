"""Columns with their field ids, tables as trees of them, and edits of such trees, which keep the ids.

A column's id is its Parquet field id: unique in its table for ever, from 1, a parent before its children.
*Source:* DuckLake spec ``ducklake_column``; docs/sources.md, DDL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..errors import ColumnNotFoundError, InvalidNameError, InvalidTypeError
from .names.identifiers import check_name, fold, split_parts
from .snapshots import ColumnId
from .types.ducklake_types import (
    DEEPEST,
    DuckLakeType,
    Field,
    catalog_name,
    check_storable,
    children_of,
    parse_type,
    with_children,
)

NO_DEFAULT = "NULL"  # the catalog's word for "no default"


@dataclass(frozen=True, slots=True)
class Default:
    """Default of a column: text, ``literal`` or ``expression``, and the SQL dialect of the text."""

    value: str | None = NO_DEFAULT
    kind: str | None = "literal"
    dialect: str | None = "duckdb"


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a nested field.

    ``initial_default`` is the value of rows written before the column existed.
    """

    id: ColumnId
    name: str
    type: DuckLakeType
    nullable: bool = True
    initial_default: str | None = None
    default: Default = field(default_factory=Default)
    children: tuple[Column, ...] = ()

    @property
    def catalog_type(self) -> str:
        """Text of ``column_type``."""
        return catalog_name(self.type)

    @property
    def has_default(self) -> bool:
        """Return True if the column has a default other than NULL."""
        return self.default.value not in (None, NO_DEFAULT) and not self.children

    def walk(self) -> list[Column]:
        """Return the column and all fields below it, parents first."""
        return [self, *_walk(self.children)]

    def leaves(self) -> list[Column]:
        """Return the columns that hold values: those with statistics and Parquet column chunks."""
        return [one for one in self.walk() if not one.children]


def _walk(columns: Iterable[Column]) -> list[Column]:
    found = []
    for column in columns:
        found.append(column)
        if column.children:
            found += _walk(column.children)
    return found


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table at one snapshot, in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the top-level columns."""
        return tuple(column.name for column in self.columns)

    def walk(self) -> list[Column]:
        """Return every column and nested field, parents first."""
        return _walk(self.columns)

    def leaves(self) -> list[Column]:
        """Return every column that holds values."""
        return [one for one in self.walk() if not one.children]

    def leaf_types(self) -> dict[ColumnId, DuckLakeType]:
        """Return the type of each leaf column by id."""
        return {leaf.id: leaf.type for leaf in self.leaves()}

    def find(self, name: str, table: str = "the table") -> Column:
        """Return the top-level column of that name; letter case is ignored as in DuckDB."""
        folded = fold(name)
        for column in self.columns:
            if fold(column.name) == folded:
                return column
        raise ColumnNotFoundError(name, table, self.names)

    def by_id(self, column_id: ColumnId) -> Column:
        """Return the column or nested field with that id."""
        for column in self.walk():
            if column.id == column_id:
                return column
        raise ColumnNotFoundError(f"id {column_id}", "the table", self.names)


def new_columns(
    fields: Mapping[str, str | DuckLakeType] | Iterable[Field],
    not_null: Iterable[str] = (),
    first_id: int = 1,
) -> TableSchema:
    """Return a table's first schema with ids assigned depth-first from ``first_id``."""
    if isinstance(fields, Mapping):
        fields = [
            Field(name, parse_type(type_) if isinstance(type_, str) else type_)
            for name, type_ in fields.items()
        ]
    fields = list(fields)
    _check_fields(fields)
    required = {fold(name) for name in not_null}
    ids = iter(range(first_id, 2**31))
    return TableSchema(
        tuple(numbered(field_, ids, nullable=fold(field_.name) not in required) for field_ in fields)
    )


def _check_fields(fields: list[Field]) -> None:
    if not fields:
        raise InvalidNameError("A table has at least one column.")
    seen: set[str] = set()
    for field_ in fields:
        folded = fold(check_name(field_.name, "column"))
        if folded in seen:
            raise InvalidNameError(f"Column {field_.name!r} appears twice (letter case does not count).")
        seen.add(folded)
        check_storable(field_.type, field_.name)


def numbered(field_: Field, ids: Iterator[int], *, nullable: bool = True) -> Column:
    """Return a new column with the next ids, depth-first."""
    column_id = ColumnId(next(ids))
    children = tuple(numbered(child, ids) for child in children_of(field_.type))
    return Column(column_id, field_.name, field_.type, nullable=nullable, children=children)


def assemble(rows: Iterable[tuple[Column, ColumnId | None, str]]) -> TableSchema:
    """Return the schema of catalog rows ``(column without children, parent id, type text)`` in order.

    The given columns' types are ignored for nested ones and parsed from the catalog text for scalars.
    """
    rows = list(rows)
    by_parent: dict[ColumnId | None, list[tuple[Column, str]]] = {}
    for column, parent, text in rows:
        by_parent.setdefault(parent, []).append((column, text))

    def build(column: Column, text: str, level: int = 1) -> Column:
        if level > DEEPEST:
            raise InvalidTypeError(
                f"Column {column.id} of ducklake_column has {DEEPEST} columns above it. Correct its "
                "parent_column, or restore the catalog from a backup."
            )
        children = tuple(build(*child, level + 1) for child in by_parent.get(column.id, ()))
        fields = tuple(Field(child.name, child.type) for child in children)
        return replace(column, type=with_children(text, fields), children=children)

    schema = TableSchema(tuple(build(column, text) for column, text in by_parent.get(None, ())))
    if lost := {column.id for column, _, _ in rows} - {column.id for column in schema.walk()}:
        raise InvalidTypeError(
            f"Column {min(lost)} of ducklake_column lies below none of its table's columns. Correct "
            "parent_column, or restore the catalog from a backup."
        )
    return schema


def resolve_path(schema: TableSchema, path: str, table: str) -> Column:
    """Return the column that a dotted path such as ``"address.zip"`` names."""
    first, *rest = split_parts(path)
    column = schema.find(first, table)
    for part in rest:
        column = TableSchema(column.children).find(part, f"{table} column {column.name}")
    return column


def parents(schema: TableSchema) -> dict[ColumnId, ColumnId | None]:
    """Return the parent of every column and field; None for top-level ones."""
    found: dict[ColumnId, ColumnId | None] = {column.id: None for column in schema.columns}
    for column in schema.walk():
        found.update((child.id, column.id) for child in column.children)
    return found


def add_column(schema: TableSchema, parent: ColumnId | None, column: Column) -> TableSchema:
    """Return the schema with a column at the end of the table, or of the struct ``parent``."""
    if parent is None:
        return TableSchema((*schema.columns, column))
    return _edited(schema, parent, lambda found: with_fields(found, (*found.children, column)))


def replace_column(schema: TableSchema, column: Column) -> TableSchema:
    """Return the schema with ``column`` in place of the one with its id."""
    return _edited(schema, column.id, lambda _: column)


def remove_column(schema: TableSchema, column_id: ColumnId) -> TableSchema:
    """Return the schema without a column and the fields below it."""
    return _edited(schema, column_id, lambda _: None)


def _edited(schema: TableSchema, column_id: ColumnId, edit: Callable[[Column], Column | None]) -> TableSchema:
    return TableSchema(_edited_columns(schema.columns, column_id, edit))


def _edited_columns(
    columns: tuple[Column, ...], column_id: ColumnId, edit: Callable[[Column], Column | None]
) -> tuple[Column, ...]:
    edited: list[Column | None] = []
    for column in columns:
        if column.id == column_id:
            edited.append(edit(column))
        elif any(below.id == column_id for below in column.walk()):
            edited.append(with_fields(column, _edited_columns(column.children, column_id, edit)))
        else:
            edited.append(column)
    return tuple(column for column in edited if column is not None)


def with_fields(column: Column, children: tuple[Column, ...]) -> Column:
    """Return a nested column with other fields, its type with them."""
    fields = tuple(Field(child.name, child.type) for child in children)
    return replace(column, type=with_children(column.catalog_type, fields), children=children)
