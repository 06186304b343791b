"""Snapshots, the author and message of a commit, and a table at one snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.identifiers import is_storable
from airflow_provider_ducklake.lake.spec.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from airflow_provider_ducklake.lake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.ids import SchemaId, SnapshotId, TableId
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.sorting import SortSpec

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


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
    """What the author says of a commit; ``extra`` is stored as JSON in ``commit_extra_info``."""

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
    """

    id: SnapshotId
    time: datetime
    attempts: int
    records: tuple[CommitRecord, ...] = ()

    @property
    def is_earlier(self) -> bool:
        """Whether the snapshot was there already."""
        return bool(self.records)

    @classmethod
    def earlier(cls, records: tuple[CommitRecord, ...]) -> CommittedSnapshot:
        """Return what an earlier commit left."""
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
