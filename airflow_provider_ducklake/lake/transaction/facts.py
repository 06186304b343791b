"""What a commit must know about the lake while it holds the lock: questions and answers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.spec.snapshots import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    SnapshotId,
    TableId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_ducklake.lake.spec.files import InlinedForm, TableColumnStats, TableStats
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import MappingId

MappingKey: TypeAlias = frozenset[tuple[tuple[str, ...], ColumnId, bool]]  # of same_mapping_key


@dataclass(frozen=True, slots=True)
class FlushedLayout:
    """The rows of an inlined table that a flush read, up to its snapshot, and how many of them had ended."""

    schema_version: int
    row_count: int
    ended_count: int = 0


@dataclass(frozen=True, slots=True)
class Needs:
    """What is asked for changes, each once; the field of ``LockedFacts`` with the answer follows each."""

    statistics: tuple[TableId, ...] = ()  # of tables that get rows: tables, columns, retyped
    skips: tuple[TableId, ...] = ()  # tables whose new files or rows get statistics: skipped
    bounded: tuple[tuple[TableId, ColumnId], ...] = ()  # columns for which new rows have bounds: unbounded
    layouts: tuple[TableId, ...] = ()
    live_inlined: tuple[TableId, ...] = ()
    reshaped: tuple[TableId, ...] = ()  # live_inlined too, where the database cannot hold every column
    live_files: tuple[TableId, ...] = ()  # with_live_files
    targets: tuple[DataFileId, ...] = ()
    replaced: tuple[tuple[TableId, DeleteFileId], ...] = ()  # delete_file_paths
    sources: tuple[tuple[TableId, DataFileId], ...] = ()
    delete_counts: tuple[TableId, ...] = ()
    inlined_deletes: tuple[TableId, ...] = ()  # with_inlined_deletes
    flushed: tuple[tuple[TableId, int, SnapshotId], ...] = ()  # schema version, read at: flushed, emptied
    mappings: tuple[TableId, ...] = ()
    paths: tuple[str, ...] = ()  # registered
    snapshots: tuple[SnapshotId, ...] = ()
    table_names: tuple[int, ...] = ()  # names
    view_names: tuple[int, ...] = ()  # names

    @classmethod
    def of_all(cls, needs: Iterable[Needs]) -> Needs:
        """Return what several changes need."""
        every = [one for one in needs if one is not _NOTHING]
        return cls(
            **{
                one.name: tuple(dict.fromkeys(chain.from_iterable(getattr(need, one.name) for need in every)))
                for one in fields(cls)
            }
        )


_NOTHING = Needs()


def nothing_needed() -> Needs:
    """Return that a change needs to know nothing."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class LockedFacts:
    """What the catalog says of what changes ``need``, read under the commit lock on top of ``head``."""

    head: SnapshotId
    inlined_form: InlinedForm | None  # of the database
    tables: Mapping[TableId, TableStats] = field(default_factory=dict)
    columns: Mapping[TableId, Mapping[ColumnId, TableColumnStats]] = field(default_factory=dict)
    skipped: Mapping[TableId, frozenset[ColumnId]] = field(default_factory=dict)  # leaves without bounds
    unbounded: frozenset[tuple[TableId, ColumnId]] = frozenset()  # missing bounds mean unknown, not no value
    retyped: frozenset[tuple[TableId, ColumnId]] = frozenset()  # bounds may be of the type before
    layouts: Mapping[TableId, int] = field(default_factory=dict)  # schema version of the newest inlined table
    live_inlined: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)  # tables with live rows
    with_live_files: frozenset[TableId] = frozenset()  # tables with live data files
    targets: Mapping[DataFileId, DeleteFileId | None] = field(default_factory=dict)  # live; with deletes
    delete_file_paths: Mapping[DeleteFileId, str] = field(default_factory=dict)  # below the data path
    sources: Mapping[DataFileId, str] = field(default_factory=dict)  # live and never had deletes; path below
    delete_counts: Mapping[DataFileId, int] = field(default_factory=dict)  # inlined deletes of data files
    with_inlined_deletes: frozenset[TableId] = frozenset()  # tables that have a catalog table for these
    flushed: Mapping[tuple[TableId, int], FlushedLayout] = field(default_factory=dict)  # by schema version
    emptied: frozenset[tuple[TableId, int]] = frozenset()  # those of them that have no newer row
    mappings: Mapping[TableId, Mapping[MappingKey, MappingId]] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()  # paths that the lake has already
    snapshots: frozenset[SnapshotId] = frozenset()  # those that still exist
    names: Mapping[int, str] = field(default_factory=dict)  # current, by table or view id

    def conflict(self, ours: str, theirs: str, name: QualifiedName) -> TransactionConflictError:
        """Return the error that says that a table or view is not what it was."""
        return TransactionConflictError(ours, theirs, str(name), self.head)
