"""Added rows, in files and inlined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.spec.names.paths import is_absolute, relative_to
from airflow_provider_ducklake.lake.transaction.conflicts import Operation
from airflow_provider_ducklake.lake.transaction.declared import (
    Declared,
    NewTableRef,
    OfAnyTable,
    Stage,
    existing,
    place_of,
    with_bounds,
)
from airflow_provider_ducklake.lake.transaction.facts import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.files import DataFile, TableColumnStats
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, PartitionId
    from airflow_provider_ducklake.lake.transaction.declared import TableRef
    from airflow_provider_ducklake.lake.transaction.facts import LockedFacts


@dataclass(frozen=True, slots=True)
class InlinedLayout:
    """The newest registered layout of a table when the change was planned, and whether its columns fit."""

    newest: int | None = None
    fits: bool = False


@dataclass(frozen=True, slots=True)
class AppendFiles(OfAnyTable):
    """Rows in new Parquet files, in this order.

    File paths are relative to the table's directory, or absolute where they lie outside it. ``schema`` is the
    table's at the commit; ``partition_id`` that of the files' partition values, None for keys that the same
    transaction sets. ``root`` is the table's directory. The commit looks whether the lake has a file already
    that is mapped by name: it was there before, so somebody else may add it too. With ``is_staged`` it looks
    for each: documents name them, of which somebody may have made copies.
    ``is_partitioned``: the table has partition keys, and files without values belong to none of
    them.
    """

    schema: TableSchema
    files: tuple[DataFile, ...]
    partition_id: PartitionId | None = None
    root: str = ""
    is_staged: bool = False
    is_partitioned: bool = False

    stage: ClassVar[Stage] = Stage.ADD_ROWS
    operation: ClassVar[Operation] = Operation.INSERT

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        is_mapped = any(file.mapping is not None for file in self.files)
        return Needs(
            statistics=table,
            skips=table,
            bounded=with_bounds(table, (file.column_stats for file in self.files)),
            mappings=table if is_mapped else (),
            paths=self.doubtful_paths,
        )

    @property
    def place(self) -> tuple[int, ...]:
        return (*place_of(self.table), 0)

    def check(self, facts: LockedFacts) -> None:
        for path in self.doubtful_paths:
            if path in facts.registered:
                raise facts.conflict(f"add {path}", "has that file already", self.name)

    @property
    def doubtful_paths(self) -> tuple[str, ...]:
        """Full paths of the files that the lake may have already."""
        return tuple(
            relative_to(file.path, self.root).below(self.root)
            for file in self.files
            if self.is_staged or file.mapping is not None
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Full paths of the files."""
        return tuple(one.path if is_absolute(one.path) else self.root + one.path for one in self.files)

    @property
    def record_count(self) -> int:
        """Rows in all files together."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class RegisterLayout(Declared):
    """A catalog table for inlined rows with a table's new columns, so that DuckDB's small inserts fit.

    ``only_if_registered``: inlining is off, but rows were inlined before and others may turn it on again.
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    only_if_registered: bool = False

    stage: ClassVar[Stage] = Stage.LAYOUT
    claim: ClassVar[None] = None  # it comes with a change of the table, which has one

    @property
    def needs(self) -> Needs:
        return Needs(layouts=existing(self.table), reshaped=existing(self.table))


@dataclass(frozen=True, slots=True)
class InlineRows(OfAnyTable):
    """Rows kept in the catalog: for each the values to bind by column id.

    ``column_stats`` has, for each batch, what it says of each leaf column (None: unknown).
    """

    schema: TableSchema
    rows: tuple[Mapping[ColumnId, object], ...]
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...]
    layout: InlinedLayout

    stage: ClassVar[Stage] = Stage.ADD_ROWS
    operation: ClassVar[Operation] = Operation.INSERT

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        bounded = with_bounds(table, self.column_stats)
        return Needs(statistics=table, skips=table, bounded=bounded, layouts=table)

    @property
    def place(self) -> tuple[int, ...]:
        return (*place_of(self.table), 1)

    def makes_layout(self, facts: LockedFacts) -> bool:
        return self.lacks_layout(
            None if isinstance(self.table, NewTableRef) else facts.layouts.get(self.table)
        )

    def lacks_layout(self, newest: int | None) -> bool:
        """Whether no registered layout fits; one registered since fits the columns that we know."""
        return newest is None or (newest == self.layout.newest and not self.layout.fits)
