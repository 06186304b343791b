"""What each kind of change declares about itself, so that only the effects ask for its kind.

A change names an object by its id, or by a reference to one that the same transaction creates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum, auto
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from ..errors import TransactionConflictError
from ..format.snapshots import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    MappingId,
    SchemaId,
    SnapshotId,
    TableId,
    ViewId,
)
from .conflicts import Claim, Operation, claim_on

if TYPE_CHECKING:
    from ..format.files import ColumnStats, InlinedForm, TableColumnStats, TableStats
    from ..format.names.identifiers import QualifiedName


# The facts about the lake that a commit reads while it holds the lock: questions and answers.


MappingKey: TypeAlias = frozenset[tuple[tuple[str, ...], ColumnId, bool]]  # of same_mapping_key


@dataclass(frozen=True, slots=True)
class FlushedLayout:
    """The rows of an inlined table that a flush read, up to its snapshot, and how many of them had ended."""

    schema_version: int
    row_count: int
    ended_count: int = 0


@dataclass(frozen=True, slots=True)
class LiveTarget:
    """A live data file: its live delete file, and its rows that this does not name."""

    delete_file_id: DeleteFileId | None
    row_count: int


@dataclass(frozen=True, slots=True)
class Needs:
    """The facts that changes need, each once; the field of ``LockedFacts`` with the answer follows each."""

    statistics: tuple[TableId, ...] = ()  # of tables that get rows: tables, columns, retyped
    skips: tuple[TableId, ...] = ()  # tables whose new files or rows get statistics: skipped
    bounded: tuple[tuple[TableId, ColumnId], ...] = ()  # columns for which new rows have bounds: unbounded
    layouts: tuple[TableId, ...] = ()
    live_inlined: tuple[TableId, ...] = ()
    reshaped: tuple[TableId, ...] = ()  # live_inlined too, where the database cannot hold every column
    live_files: tuple[TableId, ...] = ()
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
        """Combine the needs of several changes."""
        every = [one for one in needs if one is not _NOTHING]
        return cls(
            **{
                one.name: tuple(dict.fromkeys(chain.from_iterable(getattr(need, one.name) for need in every)))
                for one in fields(cls)
            }
        )


_NOTHING = Needs()


def nothing_needed() -> Needs:
    """Return the needs of a change that needs no facts."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class LockedFacts:
    """The facts that changes ``need``, read under the commit lock at snapshot ``head``."""

    head: SnapshotId
    inlined_form: InlinedForm | None  # of the database
    tables: Mapping[TableId, TableStats] = field(default_factory=dict)
    columns: Mapping[TableId, Mapping[ColumnId, TableColumnStats]] = field(default_factory=dict)
    skipped: Mapping[TableId, frozenset[ColumnId]] = field(default_factory=dict)  # leaves without bounds
    unbounded: frozenset[tuple[TableId, ColumnId]] = frozenset()  # missing bounds mean unknown, not no value
    retyped: frozenset[tuple[TableId, ColumnId]] = frozenset()  # bounds may be of the type before
    layouts: Mapping[TableId, int] = field(default_factory=dict)  # schema version of the newest inlined table
    live_inlined: Mapping[TableId, Mapping[str, int]] = field(default_factory=dict)  # tables' live rows
    live_files: Mapping[TableId, int] = field(default_factory=dict)  # rows of live data files, where any is
    targets: Mapping[DataFileId, LiveTarget] = field(default_factory=dict)  # those that are live
    delete_file_paths: Mapping[DeleteFileId, str] = field(default_factory=dict)  # below the data path
    sources: Mapping[DataFileId, str] = field(default_factory=dict)  # live and never had deletes; path below
    delete_counts: Mapping[TableId, Mapping[DataFileId, int]] = field(default_factory=dict)  # inlined ones
    with_inlined_deletes: frozenset[TableId] = frozenset()  # tables that have a catalog table for these
    flushed: Mapping[tuple[TableId, int], FlushedLayout] = field(default_factory=dict)  # by schema version
    emptied: frozenset[tuple[TableId, int]] = frozenset()  # those of them that have no newer row
    mappings: Mapping[TableId, Mapping[MappingKey, MappingId]] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()  # paths that the lake has already
    snapshots: frozenset[SnapshotId] = frozenset()  # those that still exist
    names: Mapping[int, str] = field(default_factory=dict)  # current, by table or view id

    def live_rows(self, table_id: TableId) -> int:
        """Count the live rows of a table, but for inlined deletes of its files."""
        return self.live_files.get(table_id, 0) + sum(self.live_inlined.get(table_id, {}).values())

    def conflict(self, ours: str, theirs: str, name: QualifiedName) -> TransactionConflictError:
        """Return the error that says that a table or view is not what it was."""
        return TransactionConflictError(ours, theirs, str(name), self.head)


class CommitPhase(IntEnum):
    """When a commit applies a change: as the reference numbers objects and files."""

    READ = auto()  # never: it has no effect
    DROP = auto()
    DROP_SCHEMA = auto()
    CREATE_SCHEMA = auto()
    DEFINE = auto()
    COMMENT = auto()
    LAYOUT = auto()  # the last that gives names another meaning; rows follow
    END_ROWS = auto()
    MOVE_ROWS = auto()
    ADD_ROWS = auto()
    DELETE_FILES = auto()


class ChangeBase(ABC):
    """A change of any kind; ``changes.Change`` is the union of all of them.

    A kind that forgets what is abstract here cannot be made: neither mypy nor Python lets it.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def phase(self) -> CommitPhase:
        """When it is applied."""

    @property
    @abstractmethod
    def claim(self) -> Claim | None:
        """What it does, for conflicts; None if only the same transaction has the object."""

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Where it stands within its phase; equal ones keep their order."""
        return ()

    @property
    def is_upkeep(self) -> bool:
        """Return True if it moves rows without changing any, in a separate snapshot."""
        return False

    @property
    def makes_snapshot(self) -> bool:
        """Return True if a snapshot records it; a commit of only unrecorded changes makes none."""
        return True

    @property
    def targets(self) -> Mapping[DataFileId, DeleteFileId | None]:
        """The data files that lose rows, with the live delete files that they had when we planned."""
        return {}

    @property
    def repeats_deletes(self) -> bool:
        """Return True if its targets lose nothing that they had not lost before."""
        return False

    @property
    def affected_table(self) -> QualifiedName | None:
        """The table whose rows or definition it changes, by its name afterwards; None: there is none."""
        return None

    def makes_layout(self, facts: LockedFacts) -> bool:  # noqa: ARG002 - only what adds rows there asks
        """Return True if it makes a catalog table for inlined rows, since none fits."""
        return False

    @property
    def needs(self) -> Needs:
        """The facts that it needs under the lock."""
        return nothing_needed()

    def check(self, facts: LockedFacts) -> None:  # noqa: B027 - most have nothing to compare
        """Compare the facts under the lock with those of the plan."""


@dataclass(frozen=True, slots=True)
class OfTable(ChangeBase):
    """A change of a table that existed before."""

    table_id: TableId
    name: QualifiedName

    @property
    @abstractmethod
    def operation(self) -> Operation:
        """What it does to the table, for conflicts."""

    @property
    def affected_table(self) -> QualifiedName | None:
        return self.name if self.makes_snapshot and not self.is_upkeep else None

    @property
    def claim(self) -> Claim:
        return Claim(self.operation, self.name, self.table_id)

    def rows_removed(self, facts: LockedFacts) -> int:  # noqa: ARG002 - most remove none
        """Count the live rows that it removes; what repeats deletes counts those as negative."""
        return 0

    def check(self, facts: LockedFacts) -> None:
        check_targets(self, facts)


@dataclass(frozen=True, slots=True)
class OfAnyTable(ChangeBase):
    """A change of a table that may be one of the same transaction."""

    table: TableRef
    name: QualifiedName

    @property
    @abstractmethod
    def operation(self) -> Operation:
        """What it does to the table, for conflicts."""

    @property
    def affected_table(self) -> QualifiedName | None:
        return self.name if self.makes_snapshot else None

    @property
    def claim(self) -> Claim | None:
        return claim_on(self.operation, self.table, self.name)


def check_name(object_id: int, name: QualifiedName, facts: LockedFacts) -> None:
    """Refuse to drop or rename what has another name: a rename is recorded as a creation."""
    found = facts.names.get(object_id, name.name)
    if found != name.name:
        raise facts.conflict("drop or rename it", f"renamed it to {found!r}", name)


def check_targets(change: OfTable, facts: LockedFacts) -> None:
    """Compare the data files that lose rows with what they were when we planned: the conflict of same file.

    The reference compares less, and loses deletes by it (docs/sources.md, commits).
    """
    for file_id, replaces in change.targets.items():
        found = facts.targets.get(file_id)
        if found is None or found.delete_file_id != replaces:
            did = "removed the file" if found is None else "deleted other rows of it"
            raise facts.conflict(f"delete rows of data file {file_id}", f"{did}", change.name)


def check_still_there(as_of: SnapshotId, name: QualifiedName, facts: LockedFacts) -> None:
    """Refuse a snapshot that expired: with it the catalog may have forgotten what is to come back."""
    if as_of not in facts.snapshots:
        raise facts.conflict("restore it", f"expired snapshot {as_of}", name)


def with_bounds(
    tables: Iterable[TableId], stats: Iterable[Mapping[ColumnId, ColumnStats | TableColumnStats | None]]
) -> tuple[tuple[TableId, ColumnId], ...]:
    """List the columns that new rows have bounds for, by the statistics of each batch of rows."""
    found = {
        column_id: None
        for one in stats
        for column_id, known in one.items()
        if known is not None and (known.min_value is not None or known.max_value is not None)
    }
    return tuple((table_id, column_id) for table_id in tables for column_id in found)


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
    """Return the sort key of a table: existing ones come before new ones, and by id."""
    return (True, table.index) if isinstance(table, NewTableRef) else (False, table)
