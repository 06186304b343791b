"""Tables: their names, columns, keys and comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.spec.options import SKIP_STATS_COLUMNS
from airflow_provider_ducklake.lake.transaction.conflicts import Claim, Operation, claim_of_new
from airflow_provider_ducklake.lake.transaction.declared import (
    Declared,
    OfAnyTable,
    OfTable,
    Stage,
    check_name,
    existing,
)
from airflow_provider_ducklake.lake.transaction.facts import Needs, nothing_needed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, PartitionId, TableId
    from airflow_provider_ducklake.lake.spec.sorting import SortField
    from airflow_provider_ducklake.lake.transaction.declared import NewTableRef, SchemaRef
    from airflow_provider_ducklake.lake.transaction.facts import LockedFacts


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A column or field by itself, with the column it lies in."""

    column: Column
    parent: ColumnId | None


@dataclass(frozen=True, slots=True)
class CreateTable(Declared):
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

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def written(self) -> QualifiedName:
        return self.name

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class DropTable(OfTable):
    """The end of a table and all it holds."""

    stage: ClassVar[Stage] = Stage.DROP
    operation: ClassVar[Operation] = Operation.DROP
    written: ClassVar[None] = None

    @property
    def needs(self) -> Needs:
        return Needs(table_names=(self.table_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.table_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class RestoreTable(Declared):
    """A dropped table that comes back under its id, in the directory that its row had.

    ``path`` is that of its row. What the table held comes back by other changes.
    """

    table_id: TableId
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    path: CatalogPath
    columns: TableSchema

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def written(self) -> QualifiedName:
        return self.name

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class RenameTable(OfTable):
    """Another name for a table, in the same schema."""

    new_name: QualifiedName

    stage: ClassVar[Stage] = Stage.DEFINE
    operation: ClassVar[Operation] = Operation.RENAME

    @property
    def written(self) -> QualifiedName:
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
    that must not hold a NULL from now on, so that rows added meanwhile are a conflict. ``undone`` are columns
    that the transaction added and took away again, and whose ids stay used.
    """

    ended: tuple[ColumnId, ...] = ()
    begun: tuple[ColumnRow, ...] = ()
    unbounded: tuple[ColumnId, ...] = ()
    without_nulls: tuple[ColumnId, ...] = ()
    undone: tuple[ColumnRow, ...] = ()

    stage: ClassVar[Stage] = Stage.DEFINE

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

    stage: ClassVar[Stage] = Stage.DEFINE
    operation: ClassVar[Operation] = Operation.ALTER

    @property
    def needs(self) -> Needs:
        return Needs(skips=existing(self.table)) if self.bounded else nothing_needed()

    def check(self, facts: LockedFacts) -> None:
        """Compare with an option that was set since: no snapshot tells of it."""
        skipped = {one for table in existing(self.table) for one in facts.skipped.get(table, ())}
        if self.bounded and any(key.column_id in skipped for key in self.fields):
            raise facts.conflict("partition it", f"set its option {SKIP_STATS_COLUMNS} to a key", self.name)


@dataclass(frozen=True, slots=True)
class SetSorting(OfAnyTable):
    """The sort keys of a table from now on; none: unsorted."""

    fields: tuple[SortField, ...]

    stage: ClassVar[Stage] = Stage.DEFINE
    operation: ClassVar[Operation] = Operation.ALTER


@dataclass(frozen=True, slots=True)
class SetOptions(OfAnyTable):
    """Options of a table by their keys, as the catalog spells them; None takes the table's own away.

    ``skipped`` are the columns without bounds in statistics, if that option is among them.
    """

    options: Mapping[str, str | None]
    skipped: frozenset[ColumnId] | None = None

    stage: ClassVar[Stage] = Stage.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER
    makes_snapshot: ClassVar[bool] = False  # options are not versioned


@dataclass(frozen=True, slots=True)
class CommentOnTable(OfAnyTable):
    """The comment of a table; None takes it away."""

    text: str | None

    stage: ClassVar[Stage] = Stage.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER


@dataclass(frozen=True, slots=True)
class CommentOnColumn(OfAnyTable):
    """The comment of a column; None takes it away."""

    column_id: ColumnId
    text: str | None

    stage: ClassVar[Stage] = Stage.COMMENT
    operation: ClassVar[Operation] = Operation.ALTER
