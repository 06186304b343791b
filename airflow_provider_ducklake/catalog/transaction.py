"""A transaction under construction: what a user says becomes changes, checked against one base snapshot.

Nothing reaches the catalog before the block ends; then everything lands as one snapshot or nothing does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from uuid6 import uuid7

from airflow_provider_ducklake.errors import (
    AlreadyExistsError,
    CommitStateUnknownError,
    InvalidInputError,
    SchemaNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.planning.write import ParquetSettings
from airflow_provider_ducklake.spec.identifiers import QualifiedName, check_name, fold
from airflow_provider_ducklake.spec.partitioning import PartitionField, hive_directory, parse_partition_by
from airflow_provider_ducklake.spec.paths import directory_name, relative_to
from airflow_provider_ducklake.spec.schema import TableSchema, new_columns
from airflow_provider_ducklake.transaction.changes import (
    AppendFiles,
    Change,
    CreateSchema,
    CreateTable,
    DropSchema,
    DropTable,
    NewSchemaRef,
    NewTableRef,
    SchemaRef,
    TableRef,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.files import DataFile
    from airflow_provider_ducklake.spec.ids import PartitionId
    from airflow_provider_ducklake.spec.options import Options
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot

log = logging.getLogger(__name__)

TableName = str | tuple[str, str] | QualifiedName


@dataclass(frozen=True, slots=True)
class _Target:
    """A table that rows can be added to, existing or of this transaction."""

    ref: TableRef
    name: QualifiedName
    schema: TableSchema
    partition_by: tuple[PartitionField, ...]
    partition_id: PartitionId | None
    root: str
    options: Options


class LakeTransaction:
    """Collects changes and commits them when its ``with`` block ends; use ``Lake.transaction``."""

    def __init__(self, lake: Lake, info: CommitInfo) -> None:
        self.committed: CommittedSnapshot | None = None
        self._lake = lake
        self._info = info
        self._base = lake.current_snapshot()
        self._changes: list[Change] = []
        self._numbers = count()
        self._new_files: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._remove(self._new_files)
            return
        try:
            self.committed = self._lake.commit(self._base.id, self._changes, self._info)
        except CommitStateUnknownError:
            raise
        except Exception:  # did not land; an interruption (BaseException) may follow COMMIT and keeps them
            self._remove(self._new_files)
            raise
        registered = {
            file.path.rpartition("/")[2]
            for change in self._changes
            if isinstance(change, AppendFiles)
            for file in change.files
        }
        self._remove(path for path in self._new_files if path.rpartition("/")[2] not in registered)

    def create_schema(self, name: str) -> None:
        """Create a schema.

        Raises:
            AlreadyExistsError, InvalidNameError: the name is taken, or is none.
        """
        check_name(name, "schema")
        if self._schema(name) is not None:
            raise AlreadyExistsError("schema", name)
        self._changes.append(CreateSchema(NewSchemaRef(next(self._numbers)), name, str(uuid7())))

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema; with ``cascade`` its tables too.

        Raises:
            SchemaNotFoundError: no such schema.
            InvalidInputError: it is not empty and ``cascade`` was not given.
            UnsupportedFeatureError: it holds views or macros.
        """
        found = self._schema(name)
        if found is None:
            raise SchemaNotFoundError(name, self._base.id)
        ref, real_name = found
        inside = [table for table in self._table_names() if fold(table.schema) == fold(name)]
        if inside and not cascade:
            raise InvalidInputError(
                f"Schema {real_name!r} is not empty: it holds {', '.join(map(str, inside))}. Drop them "
                "first, or give cascade=True."
            )
        if not isinstance(ref, NewSchemaRef) and (
            others := self._lake.views_and_macros(real_name, self._base.id)
        ):
            raise UnsupportedFeatureError(
                f"Schema {real_name!r} holds {', '.join(others)}. This release drops tables only; drop "
                "them in DuckDB first."
            )
        for table in inside:
            self.drop_table(table)
        if isinstance(ref, NewSchemaRef):
            self._changes = [
                one for one in self._changes if not (isinstance(one, CreateSchema) and one.ref == ref)
            ]
        else:
            self._changes.append(DropSchema(ref, real_name))

    def _schema(self, name: str) -> tuple[SchemaRef, str] | None:
        """Return the reference and the real name of a schema as this transaction sees it."""
        for change in self._changes:
            if isinstance(change, CreateSchema) and fold(change.name) == fold(name):
                return change.ref, change.name
        existing = self._lake.schema(name, at=self._base.id)
        if existing is None:
            return None
        dropped = any(isinstance(one, DropSchema) and one.schema_id == existing.id for one in self._changes)
        return None if dropped else (existing.id, existing.name)

    def _schema_root(self, ref: SchemaRef, name: str) -> str:
        if not isinstance(ref, NewSchemaRef):
            return self._lake.schema_root(name, at=self._base.id)
        created = next(one for one in self._changes if isinstance(one, CreateSchema) and one.ref == ref)
        return self._lake.data_path + directory_name(created.name, created.uuid)

    def create_table(
        self,
        table: TableName,
        columns: Mapping[str, str] | pa.Schema,
        partition_by: Sequence[str] = (),
        not_null: Sequence[str] = (),
        *,
        or_replace: bool = False,
    ) -> None:
        """Create a table.

        ``columns`` maps names to DuckLake types (``{"id": "int64", "tags": "varchar[]"}``), or is an Arrow
        schema, whose non-nullable fields are NOT NULL. ``partition_by`` holds expressions such as
        ``"year(day)"``.

        Raises:
            AlreadyExistsError, SchemaNotFoundError: the name is taken, or its schema missing.
            InvalidNameError, InvalidTypeError, InvalidPartitionError: something in the definition cannot be.
        """
        name = QualifiedName.of(table)
        schema = self._schema(name.schema)
        if schema is None:
            raise SchemaNotFoundError(name.schema, self._base.id)
        self._refuse_view(name)
        definition = _definition(columns, not_null)
        fields = parse_partition_by(partition_by, definition, str(name))
        if self._find(name) is not None:
            if not or_replace:
                raise AlreadyExistsError("table", str(name))
            self.drop_table(name)
        self._changes.append(
            CreateTable(
                NewTableRef(next(self._numbers)),
                schema[0],
                QualifiedName(schema[1], name.name),
                str(uuid7()),
                definition,
                fields,
            )
        )

    def _refuse_view(self, name: QualifiedName) -> None:
        views = self._lake.views(name.schema, at=self._base.id)
        if fold(name.name) in {fold(view) for view in views}:
            raise AlreadyExistsError("view", str(name))

    def drop_table(self, table: TableName) -> None:
        """Drop a table.

        Raises:
            SchemaNotFoundError, TableNotFoundError: no such table.
        """
        target = self._target(QualifiedName.of(table))
        if isinstance(target.ref, NewTableRef):
            self._changes = [one for one in self._changes if not _is_of_table(one, target.ref)]
        else:
            self._changes = [one for one in self._changes if not _is_of_table(one, target.ref)]
            self._changes.append(DropTable(target.ref, target.name))

    def _table_names(self) -> list[QualifiedName]:
        dropped = {change.table_id for change in self._changes if isinstance(change, DropTable)}
        existing = [row.qualified for row in self._lake.table_rows(at=self._base.id) if row.id not in dropped]
        return existing + [change.name for change in self._changes if isinstance(change, CreateTable)]

    def _find(self, name: QualifiedName) -> _Target | None:
        """Return the table of that name as this transaction sees it."""
        for change in self._changes:
            if isinstance(change, CreateTable) and _same(change.name, name):
                return self._new_target(change)
        if self._schema(name.schema) is None:
            raise SchemaNotFoundError(name.schema, self._base.id)
        try:
            existing = self._lake.table_snapshot(name, at=self._base.id)
        except (SchemaNotFoundError, TableNotFoundError):
            return None
        if any(isinstance(one, DropTable) and one.table_id == existing.table_id for one in self._changes):
            return None
        spec = existing.partition_spec
        return _Target(
            existing.table_id,
            existing.name,
            existing.schema,
            spec.fields if spec else (),
            spec.id if spec else None,
            existing.root,
            existing.options,
        )

    def _new_target(self, change: CreateTable) -> _Target:
        root = self._schema_root(change.schema, change.name.schema) + directory_name(
            change.name.name, change.uuid
        )
        schema_id = None if isinstance(change.schema, NewSchemaRef) else change.schema
        options = self._lake.effective_options(schema_id)
        return _Target(change.ref, change.name, change.columns, change.partition_by, None, root, options)

    def _target(self, name: QualifiedName) -> _Target:
        target = self._find(name)
        if target is None:
            raise TableNotFoundError(str(name), self._base.id)
        return target

    def append_files(self, table: TableName, files: Sequence[DataFile]) -> None:
        """Append rows that already lie in Parquet files with the table's field ids.

        Paths are absolute, or relative to the table's directory. The files belong to the lake from then on.

        Raises:
            InvalidInputError: a file without rows, or whose partition values do not fit the table's keys.
        """
        target = self._target(QualifiedName.of(table))
        for file in files:
            _check_file(file, target)
        placed = tuple(replace(file, path=relative_to(file.path, target.root).path or "") for file in files)
        if placed:
            self._changes.append(
                AppendFiles(target.ref, target.name, target.schema, placed, target.partition_id)
            )

    def append_arrow(self, table: TableName, rows: pa.Table) -> None:
        """Append an Arrow table, written as Parquet by this process; columns are matched by name.

        Raises:
            SchemaMismatchError: lists every column that is missing, too many or of another type.
            StorageError: a file cannot be written.
        """
        from airflow_provider_ducklake.storage.arrow_types import check_and_cast  # noqa: PLC0415 - heavy
        from airflow_provider_ducklake.storage.partition_split import split_by_partition  # noqa: PLC0415

        target = self._target(QualifiedName.of(table))
        rows = check_and_cast(rows, target.schema, str(target.name))
        if not rows.num_rows:
            return
        for values, part in split_by_partition(rows, target.schema, target.partition_by):
            self.append_files(target.name, self._write(part, values, target))

    def _write(self, rows: pa.Table, values: tuple[str | None, ...], target: _Target) -> list[DataFile]:
        from airflow_provider_ducklake.storage.parquet_writer import RollingWriter  # noqa: PLC0415 - heavy

        settings = ParquetSettings.of_options(target.options)
        hive = settings.hive_file_pattern and target.partition_by
        directory = target.root + (hive_directory(target.partition_by, target.schema, values) if hive else "")
        with RollingWriter(
            target.schema, self._new_path(directory), settings, locate=self._lake.locate
        ) as writer:
            writer.write(rows)
        return [replace(file, partition_values=values) for file in writer.files]

    def _new_path(self, directory: str) -> Callable[[], str]:
        def next_path() -> str:
            path = f"{directory}ducklake-{uuid7()}.parquet"
            self._new_files.append(path)
            return path

        return next_path

    def _remove(self, paths: Iterable[str]) -> None:
        from airflow_provider_ducklake.storage.filesystem import delete_file_at  # noqa: PLC0415 - heavy

        for path in paths:
            try:
                delete_file_at(self._lake.locate(path))
            except (StorageError, OSError) as error:
                log.warning("Cannot remove %s, which no snapshot names: %s", path, error)


def _same(left: QualifiedName, right: QualifiedName) -> bool:
    return (fold(left.schema), fold(left.name)) == (fold(right.schema), fold(right.name))


def _is_of_table(change: Change, ref: TableRef) -> bool:
    match change:
        case CreateTable(ref=created):
            return created == ref
        case AppendFiles(table=appended):
            return appended == ref
        case _:
            return False


def _definition(columns: Mapping[str, str] | pa.Schema, not_null: Sequence[str]) -> TableSchema:
    if isinstance(columns, Mapping):
        return new_columns(columns, not_null)
    from airflow_provider_ducklake.storage.arrow_types import fields_of_arrow  # noqa: PLC0415 - heavy

    required: list[Any] = [field.name for field in columns if not field.nullable]
    return new_columns(fields_of_arrow(columns), [*required, *not_null])


def _check_file(file: DataFile, target: _Target) -> None:
    if file.record_count <= 0:
        raise InvalidInputError(f"{file.path} has {file.record_count} rows; a data file has at least one.")
    if len(file.partition_values) != len(target.partition_by):
        raise InvalidInputError(
            f"{file.path} has {len(file.partition_values)} partition values, {target.name} is partitioned by "
            f"{len(target.partition_by)} keys: give one value for each key, in their order."
        )
