"""Tables: their names, columns, keys and comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...format.options import SKIP_STATS_COLUMNS
from ..conflicts import Claim, Operation, claim_of_new, claim_on
from ..declared import (
    ChangeBase,
    CommitPhase,
    LockedFacts,
    Needs,
    NewSchemaRef,
    NewTableRef,
    NewViewRef,
    OfAnyTable,
    OfTable,
    SchemaRef,
    ViewRef,
    check_name,
    check_still_there,
    existing,
    nothing_needed,
)

if TYPE_CHECKING:
    from ...format.names.identifiers import QualifiedName, SchemaPath
    from ...format.names.paths import CatalogPath
    from ...format.partitioning import PartitionField
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId, MacroId, PartitionId, SchemaId, SnapshotId, TableId, ViewId
    from ...format.sorting import SortField
    from ...format.tags import MacroDefinition, ViewDefinition


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A column or field by itself, with the column it lies in."""

    column: Column
    parent: ColumnId | None


@dataclass(frozen=True, slots=True)
class CreateTable(ChangeBase):
    """A new table in ``directory`` (below its schema's), which is chosen before anything is written.

    ``undone`` are columns that the transaction took away again: their ids stay used. ``heir_of`` is a dropped
    table whose options it takes.
    """

    ref: NewTableRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    directory: str
    columns: TableSchema
    is_altered: bool = False  # recorded besides, as the reference does, when its columns changed since
    undone: tuple[ColumnRow, ...] = ()
    heir_of: TableId | None = None

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def affected_table(self) -> QualifiedName:
        return self.name

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class DropTable(OfTable):
    """The end of a table and all it holds; ``is_replaced``: its rows count as removed."""

    is_replaced: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.DROP
    operation: ClassVar[Operation] = Operation.DROP
    affected_table: ClassVar[None] = None

    @property
    def needs(self) -> Needs:
        table = (self.table_id,)
        counted = table if self.is_replaced else ()
        return Needs(table_names=table, live_inlined=counted, live_files=counted, delete_counts=counted)

    def rows_removed(self, facts: LockedFacts) -> int:
        deleted = facts.delete_counts.get(self.table_id, {}).values()
        return facts.live_rows(self.table_id) - sum(deleted) if self.is_replaced else 0

    def check(self, facts: LockedFacts) -> None:
        check_name(self.table_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class RestoreTable(ChangeBase):
    """A dropped table that comes back under its id, in the directory that its row had.

    ``path`` is that of its row. What the table held comes back by other changes.
    """

    table_id: TableId
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    path: CatalogPath
    columns: TableSchema

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def affected_table(self) -> QualifiedName:
        return self.name

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class RenameTable(OfTable):
    """Another name for a table, in the same schema."""

    new_name: QualifiedName

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE
    operation: ClassVar[Operation] = Operation.RENAME

    @property
    def affected_table(self) -> QualifiedName:
        return self.new_name

    @property
    def claim(self) -> Claim:
        return Claim(self.operation, self.name, self.table_id, creates=self.new_name)

    @property
    def needs(self) -> Needs:
        return Needs(table_names=(self.table_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.table_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class ChangeColumns(OfTable):
    """Columns and fields that end and that begin; one that is changed does both under its id.

    ``unbounded`` are columns whose stored bounds do not hold for their new type; ``without_nulls`` those
    that must not hold a NULL from now on, so that concurrent inserts are a conflict. ``undone`` are columns
    that the transaction added and took away again, and whose ids stay used.
    """

    ended: tuple[ColumnId, ...] = ()
    begun: tuple[ColumnRow, ...] = ()
    unbounded: tuple[ColumnId, ...] = ()
    without_nulls: tuple[ColumnId, ...] = ()
    undone: tuple[ColumnRow, ...] = ()

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def operation(self) -> Operation:
        return Operation.FORBID_NULL if self.without_nulls else Operation.ALTER


@dataclass(frozen=True, slots=True)
class SetPartitioning(OfAnyTable):
    """The partition keys of a table from now on; none: unpartitioned.

    ``partition_id`` is given where the table had these keys before: files name them by it. ``bounded``: no
    key may be a column that the table's option takes the bounds of, even if that was set since.
    """

    fields: tuple[PartitionField, ...]
    partition_id: PartitionId | None = None
    bounded: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE
    operation: ClassVar[Operation] = Operation.ALTER

    @property
    def needs(self) -> Needs:
        return Needs(skips=existing(self.table)) if self.bounded else nothing_needed()

    def check(self, facts: LockedFacts) -> None:
        """Compare with an option that was set since: no snapshot records it."""
        skipped = {one for table in existing(self.table) for one in facts.skipped.get(table, ())}
        if self.bounded and any(key.column_id in skipped for key in self.fields):
            raise facts.conflict("partition it", f"set its option {SKIP_STATS_COLUMNS} to a key", self.name)


@dataclass(frozen=True, slots=True)
class SetSorting(OfAnyTable):
    """The sort keys of a table from now on; none: unsorted."""

    fields: tuple[SortField, ...]

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE
    operation: ClassVar[Operation] = Operation.ALTER


@dataclass(frozen=True, slots=True)
class SetOptions(OfAnyTable):
    """Options of a table by their keys, as the catalog spells them; None takes the table's own away.

    ``skipped`` are the columns without bounds in statistics, if that option is among them.
    """

    options: Mapping[str, str | None]
    skipped: frozenset[ColumnId] | None = None

    phase: ClassVar[CommitPhase] = CommitPhase.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER
    makes_snapshot: ClassVar[bool] = False  # options are not versioned


@dataclass(frozen=True, slots=True)
class CommentOnTable(OfAnyTable):
    """The comment of a table; None takes it away."""

    text: str | None

    phase: ClassVar[CommitPhase] = CommitPhase.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER


@dataclass(frozen=True, slots=True)
class CommentOnColumn(OfAnyTable):
    """The comment of a column; None takes it away."""

    column_id: ColumnId
    text: str | None

    phase: ClassVar[CommitPhase] = CommitPhase.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER


# Schemas.


@dataclass(frozen=True, slots=True)
class CreateSchema(ChangeBase):
    """A new schema; ``uuid`` names its directory where the name cannot, and ``parent`` is the one it lies in.

    ``path`` is the directory of one that comes back, as its row had it; ``heir_of`` the id that it had, from
    which it takes its options.
    """

    ref: NewSchemaRef
    name: SchemaPath
    uuid: str
    parent: SchemaRef | None = None
    path: CatalogPath | None = None
    heir_of: SchemaId | None = None

    phase: ClassVar[CommitPhase] = CommitPhase.CREATE_SCHEMA

    @property
    def claim(self) -> Claim:
        schema_id = self.parent if isinstance(self.parent, int) else None
        return Claim(Operation.CREATE_SCHEMA, self.name, creates=self.name, schema_id=schema_id)


@dataclass(frozen=True, slots=True)
class DropSchema(ChangeBase):
    """The end of a schema that holds nothing any more (its contents are dropped by changes of their own)."""

    schema_id: SchemaId
    name: SchemaPath

    phase: ClassVar[CommitPhase] = CommitPhase.DROP_SCHEMA

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_SCHEMA, self.name, self.schema_id, schema_id=self.schema_id)


# Views.


@dataclass(frozen=True, slots=True)
class CreateView(ChangeBase):
    """A new view, or with its ``view_id`` one that comes back."""

    ref: NewViewRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    definition: ViewDefinition
    view_id: ViewId | None = None

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class DropView(ChangeBase):
    """The end of a view and its comment."""

    view_id: ViewId
    name: QualifiedName

    phase: ClassVar[CommitPhase] = CommitPhase.DROP

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_VIEW, self.name, self.view_id)

    @property
    def needs(self) -> Needs:
        return Needs(view_names=(self.view_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.view_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class RenameView(ChangeBase):
    """Another name for a view, in the same schema.

    ``commented`` are the columns that the same transaction gives another comment.
    """

    view_id: ViewId
    name: QualifiedName
    new_name: QualifiedName
    commented: tuple[str, ...] = ()

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def claim(self) -> Claim:
        return Claim(Operation.RENAME_VIEW, self.name, self.view_id, creates=self.new_name)

    @property
    def needs(self) -> Needs:
        return Needs(view_names=(self.view_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.view_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class CommentOnView(ChangeBase):
    """The comment of a view; None takes it away."""

    view: ViewRef
    name: QualifiedName
    text: str | None

    phase: ClassVar[CommitPhase] = CommitPhase.COMMENT

    @property
    def claim(self) -> Claim | None:
        return claim_on(Operation.ALTER_VIEW, self.view, self.name)


@dataclass(frozen=True, slots=True)
class CommentOnViewColumn(ChangeBase):
    """The comment of a view's column; None takes it away. ``column`` is its name in the query."""

    view: ViewRef
    name: QualifiedName
    column: str
    text: str | None

    phase: ClassVar[CommitPhase] = CommitPhase.COMMENT

    @property
    def claim(self) -> Claim | None:
        return claim_on(Operation.ALTER_VIEW, self.view, self.name)


# Macros.


@dataclass(frozen=True, slots=True)
class CreateMacro(ChangeBase):
    """A new macro."""

    schema: SchemaRef
    name: QualifiedName
    definition: MacroDefinition

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def claim(self) -> Claim:
        return _claim_of_new(self.name, self.schema, is_table=self.definition.is_table)


@dataclass(frozen=True, slots=True)
class DropMacro(ChangeBase):
    """The end of a macro."""

    macro_id: MacroId
    name: QualifiedName
    is_table_macro: bool

    phase: ClassVar[CommitPhase] = CommitPhase.DROP

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_MACRO, self.name, self.macro_id)


@dataclass(frozen=True, slots=True)
class RestoreMacro(ChangeBase):
    """A dropped macro that is restored under its id, with the definition that snapshot ``as_of`` has."""

    macro_id: MacroId
    schema: SchemaRef
    name: QualifiedName
    is_table_macro: bool
    as_of: SnapshotId

    phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    @property
    def claim(self) -> Claim:
        return _claim_of_new(self.name, self.schema, is_table=self.is_table_macro)

    @property
    def needs(self) -> Needs:
        return Needs(snapshots=(self.as_of,))

    def check(self, facts: LockedFacts) -> None:
        check_still_there(self.as_of, self.name, facts)


def _claim_of_new(name: QualifiedName, schema: SchemaRef, *, is_table: bool) -> Claim:
    operation = Operation.CREATE_TABLE_MACRO if is_table else Operation.CREATE_SCALAR_MACRO
    return claim_of_new(name, schema, operation)
