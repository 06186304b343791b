"""The plan that a write job gets, and the result that it returns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.spec.names.paths import directory_name, relative_to
from airflow_provider_ducklake.lake.spec.partitioning import check_transforms, hive_directory
from airflow_provider_ducklake.lake.transaction.changes import (
    AppendFiles,
    CreateSchema,
    CreateTable,
    NewSchemaRef,
    NewTableRef,
)
from airflow_provider_ducklake.lake.transaction.definition import Definition, definition_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.spec.files import DataFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.options import Options
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, SchemaId, Snapshot, TableSnapshot
    from airflow_provider_ducklake.lake.spec.sorting import SortField
    from airflow_provider_ducklake.lake.transaction.changes import Change, SchemaRef

# Ours where nobody set the option: smaller files for less work than the format's snappy and V1.
DEFAULT_COMPRESSION = "zstd"
DEFAULT_PAGE_VERSION = "V2"
DEFAULT_ROW_GROUP_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How data files are to be written. ``page_version`` is ``V1`` or ``V2``; sizes in bytes or rows.

    ``row_group_is_given`` says that the lake's options name the rows of a row group. Where they do not,
    Spark's own writer goes by bytes: row groups as small as the format's default cost it a sixth more time.
    ``row_group_bytes`` limits a row group's size in memory besides, by default as Spark's own writer does.
    Where it ``gathers_rows``, rows of several tasks are brought into one file up to the target size; else
    each task writes files of its own. ``key_bytes`` is the length of the files' keys; 0: there are none.
    """

    compression: str = DEFAULT_COMPRESSION
    compression_level: int | None = None
    page_version: str = DEFAULT_PAGE_VERSION
    row_group_rows: int = 122_880
    row_group_is_given: bool = False
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
            row_group_is_given=options.is_set("parquet_row_group_size"),
            row_group_bytes=size if isinstance(size, int) else DEFAULT_ROW_GROUP_BYTES,
            target_file_size_bytes=options.integer("target_file_size"),
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
    """What a job may do to a table's columns where those that come in do not fit.

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
        """The columns of the files, once they are known."""
        assert self.schema is not None
        return self.schema

    @property
    def root(self) -> str:
        """The table's directory; it ends in ``/``."""
        return _JOB_DIRECTORY.sub("", self.directory)

    @property
    def prefix(self) -> str:
        """What the names of the job's files begin with where others write as well."""
        return self.directory[len(self.root) :].partition("/")[0] + "-"

    def partition_folder(self, values: Sequence[str | None]) -> str | None:
        """Return the absolute folder of a partition, ending in ``/``; None: its files lie in ``directory``.

        DuckDB compacts files of one partition only where they share a folder below the table's.
        """
        if not (self.partition_fields and self.settings.hive_file_pattern):
            return None
        folder = hive_directory(self.partition_fields, self.target, values)
        longest = max(len(part.encode()) for part in folder.split("/"))
        return self.root + folder if longest <= _LONGEST_FOLDER else None


_JOB_DIRECTORY = re.compile(r"(?<=/)ducklake-[0-9a-f-]{36}/.*\Z", re.DOTALL)
_LONGEST_FOLDER = 200  # bytes of its name


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write job did; ``schema`` and ``partition_fields`` are those the files were written with."""

    schema: TableSchema
    partition_fields: tuple[PartitionField, ...]
    data_files: tuple[DataFile, ...]
    rows_written: int
    engine: str
    details: Mapping[str, str | int | float | None]  # for the log: engine's reason, application id, seconds


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


def plan_write(table: TableSnapshot, directory: str) -> WritePlan:
    """Return the plan for appending to an existing table."""
    spec = table.partition_spec
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=table.schema,
        partition_fields=spec.fields if spec is not None else (),
        settings=ParquetSettings.of_options(table.options),
        row_order=RowOrder(sort_keys_of(table)),
    )


def sort_keys_of(table: TableSnapshot) -> tuple[SortField, ...]:
    """Return the sort keys that rows are written by; none where the option ``sort_on_insert`` is off."""
    if table.sort_spec is None or not table.options.flag("sort_on_insert"):
        return ()
    return table.sort_spec.fields


def plan_create(table: NewTable, directory: str, partition_by: Sequence[str]) -> WritePlan:
    """Return the plan for the first rows of a table that takes its columns from them.

    Raises:
        UnsupportedFeatureError: the lake's version does not have a transform.
    """
    check_transforms(partition_by, table.options.writer)
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=None,
        partition_by=tuple(partition_by),
        settings=ParquetSettings.of_options(table.options),
    )


def create_and_append(
    table: NewTable, result: WriteResult, ref: NewTableRef | None = None, schema: SchemaRef | None = None
) -> tuple[Change, ...]:
    """Return the changes that make a table appear together with its rows, if there are any.

    ``schema`` is one that the same commit makes already.
    """
    ref = ref or NewTableRef(0)
    changes: list[Change] = []
    if schema is None and isinstance(table, NewTableAndSchema):
        schema = NewSchemaRef(ref.index)
        changes.append(CreateSchema(schema, table.name.schema, table.schema_uuid, table.schema_id))
    schema = table.schema_id if schema is None else schema
    assert schema is not None
    directory = directory_name(table.name.name, table.uuid)
    definition = Definition(
        table.name, result.schema, table.options.allows_inlining, partition_by=result.partition_fields
    )
    changes += [
        CreateTable(ref, schema, table.name, table.uuid, directory, result.schema),
        *definition_changes(ref, None, definition),
    ]
    if result.data_files:
        changes.append(
            AppendFiles(ref, table.name, result.schema, placed_below(table.root, result), root=table.root)
        )
    return tuple(changes)


def append_to_existing(
    table: TableSnapshot, result: WriteResult, *, is_staged: bool = False
) -> tuple[Change, ...]:
    """Return the changes that append a result to a table, perhaps another than it was planned for.

    ``is_staged``: documents that waited for the commit name the files, which looks whether the lake has them.

    Raises:
        TransactionConflictError: the table's columns or partitioning are not those the files were written
            with.
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
    return (AppendFiles(*named, files, partition_id, table.root, is_staged=is_staged),)


def same_columns(left: TableSchema, right: TableSchema) -> bool:
    """Whether files of one fit the other: same names, types, nullability and field ids."""
    shapes = [
        [(column.id, column.name, column.type, column.nullable) for column in schema.walk()]
        for schema in (left, right)
    ]
    return shapes[0] == shapes[1]


def placed_below(root: str, result: WriteResult) -> tuple[DataFile, ...]:
    """Return the files with their paths as a table with that directory has them in the catalog."""
    return tuple(replace(file, path=relative_to(file.path, root).path or "") for file in result.data_files)
