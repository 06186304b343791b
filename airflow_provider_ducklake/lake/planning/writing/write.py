"""The plan that a write job gets, and the result that it returns."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from ...errors import InvalidInputError, TransactionConflictError
from ...format.names.paths import directory_name, path_key, relative_to
from ...format.partitioning import PartitionField, check_partition_keys, check_transforms, hive_directory
from ...format.sorting import SortField, keys_to_write_by
from ...transaction import changes as kinds
from ...transaction.definition import Definition, definition_changes
from ..reading.predicates import ALWAYS, Predicate

if TYPE_CHECKING:
    from ...format.files import DataFile, FileKey, LiveDataFile
    from ...format.names.identifiers import QualifiedName
    from ...format.options import Options
    from ...format.schema import TableSchema
    from ...format.snapshots import ColumnId, DataFileId, SchemaId, Snapshot, TableSnapshot


# Our defaults where the option is not set: smaller files for less work than the format's snappy and V1.
DEFAULT_COMPRESSION = "zstd"
DEFAULT_PAGE_VERSION = "V2"
DEFAULT_ROW_GROUP_BYTES = 128 * 2**20
_LEAST_BYTES = 256  # less would make a file or a row group of each row


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How data files are to be written. ``page_version`` is ``V1`` or ``V2``; sizes in bytes or rows.

    ``row_group_bytes`` limits a row group's size in memory besides, by default as Spark's own writer does.
    Where it ``gathers_rows``, rows of several tasks are brought into one file up to the target size; else
    each task writes separate files. ``key_bytes`` is the length of the files' keys; 0: there are none.
    """

    compression: str = DEFAULT_COMPRESSION
    compression_level: int | None = None
    page_version: str = DEFAULT_PAGE_VERSION
    row_group_rows: int = 122_880
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES
    target_file_size_bytes: int = 512_000_000
    hive_file_pattern: bool = True
    gathers_rows: bool = False
    key_bytes: int = 0

    @classmethod
    def of_options(cls, options: Options) -> ParquetSettings:
        """Return the settings that the lake's options ask for; unset ones take our defaults."""
        level, size = (options.get(f"parquet_{key}") for key in ("compression_level", "row_group_size_bytes"))
        return cls(
            compression=str(options.get("parquet_compression") or DEFAULT_COMPRESSION),
            compression_level=level if isinstance(level, int) else None,
            page_version=str(options.get("parquet_version") or DEFAULT_PAGE_VERSION),
            row_group_rows=options.integer("parquet_row_group_size"),
            row_group_bytes=max(size, _LEAST_BYTES) if isinstance(size, int) else DEFAULT_ROW_GROUP_BYTES,
            target_file_size_bytes=max(options.integer("target_file_size"), _LEAST_BYTES),
            hive_file_pattern=options.flag("hive_file_pattern"),
            gathers_rows=options.is_set("per_thread_output") and not options.flag("per_thread_output"),
            key_bytes=options.key_bytes,
        )


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How rows lie in data files: by the table's sort keys, or clustered by columns that count alike."""

    sort_by: tuple[SortField, ...] = ()
    zorder_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evolution:
    """What a job may change in a table's columns if the new rows' columns do not fit.

    It adds columns and fields, numbered from ``next_column_id``, which the table never had; with ``widens``
    it widens types, but of the columns ``fixed``. The table's ``options`` say which names columns may have.
    """

    next_column_id: int
    options: Options
    widens: bool = False
    fixed: tuple[ColumnId, ...] = ()


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Where and how rows become data files of one table.

    ``schema`` is None when the table is to be created from the incoming columns; then ``partition_by`` holds
    the user's expressions and ``partition_fields`` is empty. ``directory`` is the job's own folder below the
    table's, an absolute lake path ending in ``/``; nothing else ever writes there. Files of a partition lie
    in its ``partition_folder`` instead, by names that begin with ``prefix``. Without ``evolution`` the
    columns that come in have to be those of ``schema``. Rows for which ``where`` is not true are refused.
    """

    table: str
    directory: str
    schema: TableSchema | None
    partition_fields: tuple[PartitionField, ...] = ()
    partition_by: tuple[str, ...] = ()
    settings: ParquetSettings = ParquetSettings()
    row_order: RowOrder = RowOrder()
    evolution: Evolution | None = None
    where: Predicate | None = None

    @property
    def target(self) -> TableSchema:
        """The columns of the files; only after they are set."""
        assert self.schema is not None
        return self.schema

    @property
    def root(self) -> str:
        """The table's directory; it ends in ``/``."""
        return _JOB_DIRECTORY.sub("", self.directory)

    @property
    def prefix(self) -> str:
        """The prefix of the job's file names in folders where others write as well."""
        return self.directory[len(self.root) :].partition("/")[0] + "-"

    def partition_folder(self, values: Sequence[str | None]) -> str | None:
        """Return the absolute folder of a partition, ending in ``/``; None: its files lie in ``directory``.

        DuckDB compacts files of one partition only where they share a folder below the table's.
        """
        if not (self.partition_fields and self.settings.hive_file_pattern):
            return None
        folder = hive_directory(self.partition_fields, self.target, values)
        return self.root + folder if folder else None


_JOB_DIRECTORY = re.compile(r"(?<=/)ducklake-[0-9a-f-]{36}/.*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write job did; ``schema`` and ``partition_fields`` are those the files were written with."""

    schema: TableSchema
    partition_fields: tuple[PartitionField, ...]
    data_files: tuple[DataFile, ...]
    rows_written: int
    details: Mapping[str, str | int | float | None]  # for the log: application id, seconds


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is to be created by the commit, as planned on ``snapshot``; ``root`` ends in ``/``.

    ``schema_id`` is the schema that it lies in.
    """

    snapshot: Snapshot
    schema_id: SchemaId | None
    name: QualifiedName
    uuid: str
    root: str
    options: Options


@dataclass(frozen=True, slots=True)
class NewTableAndSchema(NewTable):
    """A table that is to be created together with its schema, in the schema ``schema_id`` if there is one."""

    schema_uuid: str

    def within(self, first: NewTableAndSchema) -> NewTableAndSchema:
        """Return the same table in the schema that another one of the commit brings."""
        directory = directory_name(self.name.name, self.uuid)
        schema_root = first.root.removesuffix(directory_name(first.name.name, first.uuid))
        return replace(self, root=schema_root + directory)


def new_table_uuid(job_id: str, name: QualifiedName) -> str:
    """Return the uuid of a table that a job's rows create: the same each time that the job is planned."""
    return str(uuid5(UUID(job_id), str(name)))


def plan_append(table: TableSnapshot, directory: str) -> WritePlan:
    """Return the plan for rows that come to an existing table.

    Raises:
        UnsupportedFeatureError: DuckDB partitioned the table by a column that has no partition values here.
    """
    if table.partition_spec is not None:
        check_partition_keys(table.partition_spec.fields, table.schema, str(table.name))
    return plan_write(table, directory)


def plan_write(table: TableSnapshot, directory: str, row_order: RowOrder | None = None) -> WritePlan:
    """Return the plan for writing files of an existing table, by default in the order of its sort keys."""
    spec = table.partition_spec
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=table.schema,
        partition_fields=spec.fields if spec is not None else (),
        settings=ParquetSettings.of_options(table.options),
        row_order=RowOrder(sort_keys_of(table)) if row_order is None else row_order,
    )


def sort_keys_of(table: TableSnapshot) -> tuple[SortField, ...]:
    """Return the sort keys that rows are written by; none where the option ``sort_on_insert`` is off."""
    if table.sort_spec is None or not table.options.flag("sort_on_insert"):
        return ()
    return keys_to_write_by(table.sort_spec.fields, table.schema, str(table.name))


def plan_create(table: NewTable, directory: str, partition_by: Sequence[str]) -> WritePlan:
    """Return the plan for the first rows of a table that takes its columns from them."""
    check_transforms(partition_by, table.options.writer)
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=None,
        partition_by=tuple(partition_by),
        settings=ParquetSettings.of_options(table.options),
    )


def create_and_append(
    table: NewTable,
    result: WriteResult,
    ref: kinds.NewTableRef | None = None,
    schema: kinds.SchemaRef | None = None,
) -> tuple[kinds.Change, ...]:
    """Return the changes that make a table appear together with its rows, if there are any.

    ``schema`` is one that the same commit makes already.
    """
    ref = ref or kinds.NewTableRef(0)
    changes: list[kinds.Change] = []
    if schema is None and isinstance(table, NewTableAndSchema):
        schema = kinds.NewSchemaRef(ref.index)
        changes.append(kinds.CreateSchema(schema, table.name.schema, table.schema_uuid, table.schema_id))
    schema = table.schema_id if schema is None else schema
    assert schema is not None
    directory = directory_name(table.name.name, table.uuid)
    definition = Definition(
        table.name, result.schema, table.options.allows_inlining, partition_by=result.partition_fields
    )
    changes += [
        kinds.CreateTable(ref, schema, table.name, table.uuid, directory, result.schema),
        *definition_changes(ref, None, definition),
    ]
    if result.data_files:
        changes.append(
            kinds.AppendFiles(
                ref, table.name, result.schema, placed_below(table.root, result), root=table.root
            )
        )
    return tuple(changes)


def append_to_existing(
    table: TableSnapshot, result: WriteResult, *, is_staged: bool = False
) -> tuple[kinds.Change, ...]:
    """Return the changes that append a result to a table, perhaps another than it was planned for.

    ``is_staged``: documents that waited for the commit name the files, which looks whether the lake has them.
    """
    spec = table.partition_spec
    fields = spec.fields if spec is not None else ()
    if not same_columns(table.schema, result.schema) or fields != result.partition_fields:
        raise TransactionConflictError(
            "insert into it",
            "left it with other columns or partition keys",
            str(table.name),
            table.snapshot.id,
        )
    if not result.data_files:
        return ()
    files = placed_below(table.root, result)
    partition_id = spec.id if spec else None
    named = table.table_id, table.name, table.schema
    return (kinds.AppendFiles(*named, files, partition_id, table.root, is_staged=is_staged),)


def same_columns(left: TableSchema, right: TableSchema) -> bool:
    """Return True if files of one fit the other: same names, types, nullability and field ids."""
    shapes = [
        [(column.id, column.name, column.type, column.nullable) for column in schema.walk()]
        for schema in (left, right)
    ]
    return shapes[0] == shapes[1]


def placed_below(root: str, result: WriteResult) -> tuple[DataFile, ...]:
    """Return the files with their paths as a table with that directory has them in the catalog."""
    return tuple(replace(file, path=relative_to(file.path, root).path or "") for file in result.data_files)


# What the files of a job are for, as recorded in the catalog before the job writes.
#
# A job's documents lie where others may write too. So the reader of its files declares their purpose,
# and the catalog's note has to say the same: a staged write, a batch of a stream, a compaction, or a plain
# write.


@dataclass(frozen=True, slots=True)
class JobTarget:
    """The table that a job's files are for (None: it is not there yet, or there are several), and its root.

    ``digest`` is that of everything else that counts: the kind of the job and, by kind, the rest of what its
    documents say of the table, or the stream.
    """

    table_id: int | None
    root: str
    digest: str


def target_of_stream(table: TableSnapshot, checkpoint: str) -> JobTarget:
    """Return the target of a stream's batches: free of the table's name and the checkpoint's spelling."""
    return _job_target(table, {"kind": "stream", "checkpoint": path_key(checkpoint)})


def target_of_compaction(table: TableSnapshot) -> JobTarget:
    """Return the target of a compaction of a table."""
    return _job_target(table, {"kind": "compaction"})


def target_of_write(directory: str) -> JobTarget:
    """Return the target of a write whose task commits the files itself: no other task may take them."""
    return JobTarget(None, directory, digest({"kind": "write"}))


def _job_target(table: TableSnapshot, more: dict[str, str]) -> JobTarget:
    return JobTarget(table.table_id, table.root, digest({"uuid": table.table_uuid, **more}))


def digest(document: Any) -> str:  # noqa: ANN401 - JSON
    """Return a digest of a document's content, which does not depend on its formatting."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


# Rows of a table that go and come: what a job has done with them, and how those that go are deleted.
#
# Merge-on-read: data files stay as they are, and the rows that went are named by their positions, in the
# catalog or in delete files. A row that is changed goes and comes again in another file, with its row id.
# *Source:* what the reference does (docs/sources.md, deletes and inlining).


@dataclass(frozen=True, slots=True)
class NewDeletes:
    """Rows of one data file that a job deletes: a delete file that holds just their positions, ascending.

    ``path`` is absolute. The file has no snapshot ids: where the data file lost rows before, the commit makes
    another one of both.
    """

    data_file_id: DataFileId
    path: str
    count: int
    file_size_bytes: int
    footer_size: int
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that a job has found for the commit to delete, in the files ``searched``."""

    searched: frozenset[DataFileId]
    deletes: tuple[NewDeletes, ...]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All that a job changes in one table.

    ``updated`` are rows that keep their row ids, in files with the column ``_ducklake_internal_row_id``;
    ``inserted`` rows that get new ones. ``inlined`` are row ids of deleted rows that lie in the catalog.
    ``matching`` is true for every row of the table that a row of the source could match.
    """

    deletes: tuple[NewDeletes, ...]
    inlined: tuple[int, ...]
    updated: WriteResult
    inserted: WriteResult
    matching: Predicate = ALWAYS

    @property
    def rows_gone(self) -> int:
        """Rows that are deleted where they lie, whether or not they come again."""
        return sum(one.count for one in self.deletes) + len(self.inlined)

    @property
    def rows_deleted(self) -> int:
        """Rows that are gone and do not come again."""
        return self.rows_gone - self.updated.rows_written


@dataclass(frozen=True, slots=True)
class LostRows:
    """The live rows that one data file loses, and how many it had lost before; marks are in the catalog."""

    file: LiveDataFile
    positions: kinds.RowPositions
    dead_count: int
    has_marks: bool


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """Data files that lose rows, sorted by what becomes of them."""

    ended: tuple[LostRows, ...]
    marked: tuple[LostRows, ...]
    in_delete_files: tuple[LostRows, ...]


def plan_row_deletes(losses: Iterable[LostRows], *, mark_limit: int) -> RowDeletes:
    """Decide for each file that loses a row: end it, write a delete file, or inline the deletes.

    Up to ``mark_limit`` rows of a file go to the catalog; a file that has a delete file gets a new one. A
    file with inlined deletes stays when its last row goes: the reference's change feed misses its end.
    """
    ended, marked, in_delete_files = [], [], []
    for loss in losses:
        count = loss.positions.count
        left = loss.file.record_count - loss.dead_count - count
        if left < 0:
            raise InvalidInputError(
                f"Data file {loss.file.path} has {loss.file.record_count - loss.dead_count} rows left, so "
                f"{count} cannot be deleted."
            )
        if not count:
            continue
        if left == 0 and not loss.has_marks:
            ended.append(loss)
        elif count <= mark_limit and loss.file.delete_file is None:
            marked.append(loss)
        else:
            in_delete_files.append(loss)
    return RowDeletes(tuple(ended), tuple(marked), tuple(in_delete_files))
