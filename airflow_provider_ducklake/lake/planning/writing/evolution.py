"""A table's columns after rows with others came in: columns and fields added, types widened.

Names are compared as DuckDB does, without case, at every depth. What would narrow a type stays as it is: the
check of the rows against the table says so, with all other differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from ...errors import TransactionConflictError
from ...format.names.identifiers import fold
from ...format.schema import Column, TableSchema, numbered, with_fields
from ...format.types import ducklake_types as dl
from ...transaction.table_draft import TableDraft
from .write import Evolution, WritePlan, WriteResult, append_to_existing, placed_below, same_columns

if TYPE_CHECKING:
    from ...format.snapshots import TableSnapshot
    from ...transaction.changes import Change


Fits = Callable[[dl.DuckLakeType, dl.DuckLakeType], bool]

_MOST_DIGITS = 38


def evolved(plan: WritePlan, incoming: Sequence[dl.Field], fits: Fits) -> TableSchema:
    """Return the columns that a table is to have for rows with columns ``incoming``.

    ``fits(incoming, column)`` says whether values of a type go into a column of another as it is.
    """
    assert plan.evolution is not None
    return TableSchema(_Evolving(plan, plan.evolution, fits).columns(plan.target.columns, incoming))


class _Evolving:
    """One evolution; it hands out the ids of new columns."""

    def __init__(self, plan: WritePlan, evolution: Evolution, fits: Fits) -> None:
        self._evolution = evolution
        self._fits = fits
        self._ids: Iterator[int] = count(evolution.next_column_id)
        self._keys = {field.column_id for field in plan.partition_fields}

    def columns(
        self, columns: Sequence[Column], incoming: Sequence[dl.Field], *, nested: bool = False
    ) -> tuple[Column, ...]:
        given = {fold(one.name): one for one in reversed(incoming)}
        kept = [
            self._evolved(column, given[fold(column.name)].type) if fold(column.name) in given else column
            for column in columns
        ]
        names = {fold(column.name) for column in columns}
        added = [
            given[name] for name in dict.fromkeys(fold(one.name) for one in incoming) if name not in names
        ]
        return (*kept, *(self._added(one, nested=nested) for one in added))

    def _added(self, field: dl.Field, *, nested: bool) -> Column:
        options = self._evolution.options
        options.writer.check_column_name(field.name, inlining=options.allows_inlining and not nested)
        dl.check_storable(field.type, field.name)
        return numbered(field, self._ids)

    def _evolved(self, column: Column, incoming: dl.DuckLakeType) -> Column:
        if not column.children:
            return replace(column, type=self._widened(column, incoming))
        if type(column.type) is not type(incoming):
            return column
        children = dl.children_of(incoming)
        if isinstance(column.type, dl.StructType):
            return with_fields(column, self.columns(column.children, children, nested=True))
        pairs = zip(column.children, children, strict=True)
        return with_fields(column, tuple(self._evolved(child, field.type) for child, field in pairs))

    def _widened(self, column: Column, incoming: dl.DuckLakeType) -> dl.DuckLakeType:
        old = column.type
        if not self._evolution.widens or column.id in self._evolution.fixed or self._fits(incoming, old):
            return old
        wider = _common_decimal(old, incoming) or incoming
        keeps = column.id not in self._keys or dl.keeps_partition_values(old, wider)
        return wider if keeps and dl.can_promote(old, wider) else old


def _common_decimal(old: dl.DuckLakeType, new: dl.DuckLakeType) -> dl.DecimalType | None:
    """Return the smallest decimal that holds the values of two; None: there is none."""
    if not (isinstance(old, dl.DecimalType) and isinstance(new, dl.DecimalType)):
        return None
    scale = max(old.scale, new.scale)
    precision = max(old.precision - old.scale, new.precision - new.scale) + scale
    return dl.DecimalType(precision, scale) if precision <= _MOST_DIGITS else None


def changed_columns(
    before: TableSchema, after: TableSchema
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the columns and fields that were added, and those that were widened, with their types."""
    old = {column.id: column for column in before.walk()}
    added: dict[str, str] = {}
    widened: dict[str, tuple[str, str]] = {}

    def compare(columns: Sequence[Column], above: str) -> None:
        for column in columns:
            was, path = old.get(column.id), above + column.name
            if was is None:
                added[path] = str(column.type)
            elif column.children:
                compare(column.children, f"{path}.")
            elif was.type != column.type:
                widened[path] = str(was.type), str(column.type)

    compare(after.columns, "")
    return added, widened


def evolve_and_append(table: TableSnapshot, result: WriteResult, next_column_id: int) -> tuple[Change, ...]:
    """Return the changes that give a table the columns of a result, and its rows.

    ``next_column_id`` is the table's by now. Without rows the columns stay what they are.
    """
    if same_columns(table.schema, result.schema) or not result.data_files:
        return append_to_existing(table, replace(result, schema=table.schema))
    if not _extends(table, result, next_column_id):
        raise TransactionConflictError(
            "insert into it",
            "left it with other columns or partition keys",
            str(table.name),
            table.snapshot.id,
        )
    draft = TableDraft.of(table, next_column_id)
    files = placed_below(table.root, result)
    return tuple(replace(draft, columns=result.schema, files=files).changes())


def _extends(table: TableSnapshot, result: WriteResult, next_column_id: int) -> bool:
    before = {column.id: column for column in table.schema.walk()}
    after = {column.id: column for column in result.schema.walk()}
    spec = table.partition_spec
    return (
        before.keys() <= after.keys()
        and all(_continues(column, after[one]) for one, column in before.items())
        and all(one >= next_column_id for one in after.keys() - before.keys())
        and (spec.fields if spec is not None else ()) == result.partition_fields
    )


def _continues(before: Column, after: Column) -> bool:
    """Return True if a column may have become another by evolution; fields are compared separately."""
    if (before.name, before.nullable) != (after.name, after.nullable):
        return False
    if before.children:
        return type(before.type) is type(after.type)
    return dl.can_promote(before.type, after.type)
