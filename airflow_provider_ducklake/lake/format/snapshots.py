"""Snapshots, the author and message of a commit, and a table at one snapshot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NewType, TypeAlias

from ..errors import InvalidInputError
from .names.identifiers import QualifiedName, is_storable
from .options import Options

if TYPE_CHECKING:
    from .files import LiveDataFile
    from .partitioning import PartitionSpec
    from .schema import TableSchema
    from .sorting import SortSpec


JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


_TOO_LARGE = 2**63  # for an id in a catalog


def require_id(snapshot_id: int) -> int:
    """Return a snapshot's id if a catalog can hold it."""
    if abs(snapshot_id) >= _TOO_LARGE:
        raise InvalidInputError(
            f"{snapshot_id!s:.40} is not a snapshot's id, which has 64 bits. Give one that the lake has."
        )
    return snapshot_id


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A row of ``ducklake_snapshot``; ``time`` is aware UTC."""

    id: SnapshotId
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    time: datetime


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The author's description of a commit; ``extra`` is stored as JSON in ``commit_extra_info``."""

    author: str | None = None
    message: str | None = None
    extra: Mapping[str, JsonValue] | None = None

    def __post_init__(self) -> None:
        """Refuse characters that the databases cannot store."""
        if not all(is_storable(text) for text in (self.author, self.message) if text is not None):
            raise InvalidInputError(
                "The commit's message or author holds a NUL character or an unpaired surrogate, which no "
                "catalog can store."
            )

    def check(self, options: Options) -> None:
        """Refuse a commit without a message to a lake that requires one."""
        if self.message is None and options.flag("require_commit_message"):
            raise InvalidInputError(
                "This lake requires a commit message (option require_commit_message): give one."
            )


@dataclass(frozen=True, slots=True)
class CommittedSnapshot:
    """A snapshot that we committed, and in how many attempts.

    ``records`` are those of an earlier commit under the same key, which then counts; this one wrote nothing.
    ``removed`` are the rows that each table lost, by its id, an updated row among them.
    """

    id: SnapshotId
    time: datetime
    attempts: int
    records: tuple[CommitRecord, ...] = ()
    removed: Mapping[TableId, int] = field(default_factory=dict, compare=False)

    @property
    def is_earlier(self) -> bool:
        """Return True if the snapshot was there already."""
        return bool(self.records)

    @classmethod
    def earlier(cls, records: tuple[CommitRecord, ...]) -> CommittedSnapshot:
        """Build the outcome of an earlier commit from its records."""
        return cls(records[0].snapshot_id, records[0].committed_at, 0, records)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at one snapshot.

    ``root`` is its directory, absolute, ending in ``/``; ``files`` is None unless asked for.
    ``has_inlined_data`` says that rows or delete marks of the table live in catalog tables at this snapshot;
    it is None unless files were asked for.
    """

    snapshot: Snapshot
    table_id: TableId
    table_uuid: str
    schema_id: SchemaId
    name: QualifiedName
    schema: TableSchema
    root: str
    partition_spec: PartitionSpec | None = None
    sort_spec: SortSpec | None = None
    options: Options = field(default_factory=lambda: Options({}))
    files: tuple[LiveDataFile, ...] | None = None
    has_inlined_data: bool | None = None


# Commit keys: what makes two commits the same one, the task and its generation.
#
# See ``docs/adr/0005-commit-key.md``.


FIRST_GENERATION = 1  # lower ones are those of a run of the same name that was deleted since


class OnClear(StrEnum):
    """What a task that was cleared does with the rows that it committed before."""

    REPLACE = "replace"
    APPEND = "append"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class CommitKey:
    """The name of one commit.

    ``names`` say who commits: in Airflow namespace, DAG, run, task, map index and part. ``generation`` is the
    same for all retries of a task and rises each time a person clears it.
    """

    names: tuple[str | int, ...]
    generation: int = FIRST_GENERATION

    def __post_init__(self) -> None:
        """Refuse names that cannot be stored."""
        if not all(is_storable(name) for name in self.names if isinstance(name, str)):
            raise InvalidInputError(
                f"The commit key {self.names!r} holds a NUL character or an unpaired surrogate."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the names, 64 hexadecimal digits: the key in the catalog."""
        text = json.dumps(self.names, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def extra(self) -> dict[str, JsonValue]:
        """The part of ``commit_extra_info`` that says which commit a snapshot is."""
        return {_KEY: list(self.names), _GENERATION: self.generation}


_KEY, _GENERATION = "commit_key", "commit_generation"  # in commit_extra_info


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit did to one table; ``row_count`` rows got row ids from ``row_id_start`` on.

    ``table_id`` is None for a commit that added no rows.
    """

    generation: int
    table_id: TableId | None
    snapshot_id: SnapshotId
    row_id_start: int
    row_count: int
    committed_at: datetime


# Consumers of tables' changes, and what each has consumed.


@dataclass(frozen=True, slots=True)
class Consumer:
    """A name under which changes are consumed; ``namespace`` keeps two Airflows apart."""

    name: str
    namespace: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that cannot be stored."""
        if not self.name or not is_storable(self.name):
            raise InvalidInputError(
                f"consumer={self.name!r}: a consumer's name has at least one character, no NUL and no "
                "unpaired surrogate."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of namespace and name, 64 hexadecimal digits: the key in the catalog."""
        text = json.dumps([self.namespace, self.name], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Consumption:
    """The changes of a table that were consumed at once: those after one snapshot, up to another.

    ``after`` None: all that the table held at ``upto``. ``commit_key`` is the digest of the commit that
    did it, of that ``generation``.
    """

    table_id: TableId
    after: SnapshotId | None
    upto: SnapshotId
    commit_key: str
    generation: int


# Ids of the catalog's objects, each with its own type.
#
# Schemas, tables, views, macros, partition specs and sort specs share one counter (``next_catalog_id``);
# data files, delete files and mappings share another (``next_file_id``); column ids count per table.


SnapshotId = NewType("SnapshotId", int)
SchemaId = NewType("SchemaId", int)
TableId = NewType("TableId", int)
ViewId = NewType("ViewId", int)
MacroId = NewType("MacroId", int)
ColumnId = NewType("ColumnId", int)
PartitionId = NewType("PartitionId", int)
SortId = NewType("SortId", int)
DataFileId = NewType("DataFileId", int)
DeleteFileId = NewType("DeleteFileId", int)
MappingId = NewType("MappingId", int)


# What a restore did to one table, as later operations need it.


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """A table that snapshot ``restored_at`` made what ``source_id`` was at snapshot ``as_of``.

    ``source_id`` is the table itself, or the one in whose place it was created because the schema of that
    one had been dropped.
    """

    table_id: TableId
    restored_at: SnapshotId
    source_id: TableId
    as_of: SnapshotId

    @property
    def is_new(self) -> bool:
        """Return True if the restore created the table."""
        return self.source_id != self.table_id
