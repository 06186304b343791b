"""The definition of a table, and the changes that lead from one definition to another.

*Source:* what the reference allows and writes for each ALTER (docs/sources.md, DDL; probed on 1.5.5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..format.log_lines import logger
from ..format.schema import TableSchema, parents
from ..format.types.ducklake_types import DuckLakeType, ScalarType, is_misread_by_filters, keeps_bounds
from . import changes as kinds

if TYPE_CHECKING:
    from ..format.names.identifiers import QualifiedName
    from ..format.partitioning import PartitionField
    from ..format.snapshots import ColumnId, PartitionId, TableId, TableSnapshot
    from ..format.sorting import SortField

log = logger(__name__)

PARTITIONING, SORTING = "partitioning", "sorting"


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's name, columns, keys and comments.

    ``inlines``: small inserts may go to the catalog; ``has_layout``: those to come fit already. ``comments``
    has that of the table under None; those that it lacks are as before. ``partition_id`` is given where the
    table had its keys before; ``keys_set`` are those that a transaction set, in that order.
    ``without_nulls`` and ``undone`` as in ``ChangeColumns``.
    """

    name: QualifiedName
    columns: TableSchema
    inlines: bool
    partition_by: tuple[PartitionField, ...] = ()
    partition_id: PartitionId | None = None
    sort_by: tuple[SortField, ...] = ()
    comments: Mapping[ColumnId | None, str | None] = field(default_factory=dict)
    keys_set: tuple[str, ...] = ()
    without_nulls: tuple[ColumnId, ...] = ()
    undone: tuple[kinds.ColumnRow, ...] = ()
    has_layout: bool = False

    @classmethod
    def of(cls, table: TableSnapshot) -> Definition:
        """Return the definition of a table as a snapshot shows it, without its comments."""
        spec = table.partition_spec
        return cls(
            table.name,
            table.schema,
            table.options.allows_inlining,
            partition_by=spec.fields if spec is not None else (),
            partition_id=spec.id if spec is not None else None,
            sort_by=table.sort_spec.fields if table.sort_spec is not None else (),
        )


def definition_changes(
    ref: kinds.TableRef,
    before: Definition | None,
    after: Definition,
    *,
    outdated: Collection[ColumnId] | None = None,
) -> Iterator[kinds.Change]:
    """Yield the changes from one definition to another; ``before`` None: the table has only columns.

    ``outdated`` is given where a table is restored: these columns begin again, and their bounds come
    with the rows.
    """
    if before is not None and not isinstance(ref, kinds.NewTableRef):
        if before.name != after.name:
            yield kinds.RenameTable(ref, before.name, after.name)
        yield from _column_changes(ref, before, after, outdated)
    yield from _key_changes(ref, before, after)
    yield from _comment_changes(ref, before, after)
    if not after.has_layout and (before is None or not _same_inlined_rows(before, after)):
        yield kinds.RegisterLayout(ref, after.name, after.columns, only_if_registered=not after.inlines)


def _column_changes(
    table_id: TableId, before: Definition, after: Definition, outdated: Collection[ColumnId] | None
) -> Iterator[kinds.Change]:
    old, new = column_rows(before.columns), column_rows(after.columns)
    again = outdated or ()
    ended = tuple(one for one, row in old.items() if new.get(one) != row or one in again)
    begun = tuple(row for one, row in new.items() if old.get(one) != row or one in again)
    if ended or begun or after.undone:
        unbounded = () if outdated is not None else tuple(_unbounded(before.columns, after.columns))
        without_nulls = tuple(one for one in after.without_nulls if one in new)
        yield kinds.ChangeColumns(table_id, before.name, ended, begun, unbounded, without_nulls, after.undone)


def warn_of_narrower(table: object, columns: Collection[str]) -> None:
    """Warn of columns of which files of a table have values of a shorter type, by which DuckDB misreads."""
    if columns:
        log.warning(
            "%s has rows in which column %s. DuckDB 1.5 casts values of conditions on such a column to that "
            "type, and finds and deletes wrong rows, until these are written again: by an UPDATE that sets "
            "the column to itself, or a merge of their files",
            *(table, ", ".join(columns)),
        )


def narrower(old: TableSchema, new: TableSchema) -> list[str]:
    """Describe the columns of a table by whose new types DuckDB misreads the rows of old files."""
    before = {column.id: column.type for column in old.columns}
    return [
        f"{column.name} ({column.type} in the table) is {before[column.id]}"
        for column in new.columns
        if is_misread_by_filters(before.get(column.id, column.type), column.type)
    ]


def _unbounded(old: TableSchema, new: TableSchema) -> Iterator[ColumnId]:
    old_types = old.leaf_types()
    for one, type_ in new.leaf_types().items():
        if one in old_types and not keeps_bounds(old_types[one], type_):
            yield one


def _key_changes(ref: kinds.TableRef, before: Definition | None, after: Definition) -> Iterator[kinds.Change]:
    partition_by, sort_by = (before.partition_by, before.sort_by) if before is not None else ((), ())
    for keys in after.keys_set or (PARTITIONING, SORTING):
        if keys == PARTITIONING and after.partition_by != partition_by:
            yield kinds.SetPartitioning(ref, after.name, after.partition_by, after.partition_id)
        elif keys == SORTING and (after.keys_set or after.sort_by != sort_by):
            yield kinds.SetSorting(ref, after.name, after.sort_by)


_UNKNOWN = object()


def _comment_changes(
    ref: kinds.TableRef, before: Definition | None, after: Definition
) -> Iterator[kinds.Change]:
    known = before.comments if before is not None else {}
    for column_id, text in after.comments.items():
        if known.get(column_id, _UNKNOWN) != text:
            yield (
                kinds.CommentOnTable(ref, after.name, text)
                if column_id is None
                else kinds.CommentOnColumn(ref, after.name, column_id, text)
            )


def _same_inlined_rows(before: Definition, after: Definition) -> bool:
    """Return True if the reference keeps the table for inlined rows: by columns, name, partition keys."""
    is_same = before.name == after.name and before.partition_by == after.partition_by
    return is_same and same_layout(before.columns, after.columns)


def same_layout(left: TableSchema, right: TableSchema) -> bool:
    """Return True if inlined rows of one schema fit the other: ids, names and types in the same order.

    A column in the place of another, of its name and type, has its own values: readers go by ids.
    """
    return _layout(left) == _layout(right)


def _layout(schema: TableSchema) -> list[tuple[ColumnId, str, DuckLakeType]]:
    return [(one.id, one.name, one.type) for one in schema.walk()]


def column_rows(schema: TableSchema) -> dict[ColumnId, kinds.ColumnRow]:
    """Return each column by itself: a struct does not change when a field of it does."""
    above = parents(schema)
    return {
        column.id: kinds.ColumnRow(
            replace(column, children=(), type=ScalarType(column.catalog_type)) if column.children else column,
            above[column.id],
        )
        for column in schema.walk()
    }
