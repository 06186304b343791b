"""The data files of a table of another format as those of a lake's table: mapped by their own keys.

The metadata lists the files and their rows, and is checked against the footers: a file with another size,
number of rows or partition values is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import InvalidInputError, InvalidPartitionError, SchemaMismatchError, UnsupportedFeatureError
from ...format.partitioning import PartitionField, TransformKind, hive_values
from ...planning.writing.source_table import (
    IDENTITY,
    FieldKey,
    SourceColumn,
    SourceFile,
    SourceTable,
    identity_of_text,
)
from ..arrow.reshape import field_id
from ..parquet.foreign_files import FieldNames, footer_value, inspect_file

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.files import DataFile
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId
    from ..files.filesystem import Location


@dataclass(frozen=True, slots=True)
class AddTarget:
    """The lake's table: its columns, each with that of the source, and its partition keys.

    ``other_defaults`` are columns that files must not lack: the lake would show another value there.
    """

    name: str
    schema: TableSchema
    columns: Mapping[ColumnId, SourceColumn]
    partition_by: Sequence[PartitionField]
    other_defaults: frozenset[ColumnId]


class KeyedNames(FieldNames):
    """Fields of one file by the ids or names that the source's metadata has for them."""

    def __init__(self, source: SourceTable, target: AddTarget, path: str) -> None:
        self._source = source
        self._columns = target.columns
        self._path = path

    def of_column(self, column: Column) -> Hashable:
        return self._columns[column.id].key

    def of_field(self, field: pa.Field, parent: Column | None) -> Hashable:
        found = field_id(field)
        if not self._source.by_id:
            return str(field.name)
        if found is not None:
            return found
        names = self._source.ids_by_name
        if not names:
            raise UnsupportedFeatureError(
                f"{self._path}: the field {field.name} has no id, and the table has no name mapping "
                "(schema.name-mapping.default), which would say which column it is."
            )
        above = self._columns[parent.id].key if parent is not None else None
        return names.get((above if isinstance(above, int) else None, field.name))


def data_file(source: SourceTable, target: AddTarget, file: SourceFile, location: Location) -> DataFile:
    """Return a file as a data file of the lake's table, by its footer; the caller adds its deletes."""
    constants = _constants(target, file)
    folders = _folders(target, file, constants) if constants else {}
    made = _inspected(source, target, file, location, folders if source.folders_win else {})
    _check_described(file, made)
    lacking = _lacking(target, made, constants)
    if lacking and not source.folders_win and lacking <= folders.keys():
        made = _inspected(source, target, file, location, {one: folders[one] for one in lacking})
        lacking = frozenset()
    if lacking:
        names = ", ".join(sorted(target.schema.by_id(one).name for one in lacking))
        raise UnsupportedFeatureError(
            f"{file.path} does not have the partition column {names}, and its path has no folder with the "
            "value that DuckLake could read. Rewrite the table's files with the column, or insert its rows "
            "instead."
        )
    _check_defaults(target, made)
    _check_constants(target, made, constants)
    return replace(made, partition_values=_partition_values(target, file, made))


def _constants(target: AddTarget, file: SourceFile) -> dict[ColumnId, str | None]:
    """Return the values of the columns that partition the source by identity."""
    by_key: dict[FieldKey, str | None] = {
        key: text for (key, transform), text in file.partition.items() if transform == IDENTITY
    }
    keys = {column.id: target.columns[column.id].key for column in target.schema.columns}
    return {one: by_key[key] for one, key in keys.items() if key in by_key}


def _folders(
    target: AddTarget, file: SourceFile, constants: Mapping[ColumnId, str | None]
) -> dict[ColumnId, tuple[str, str | None]]:
    """Return for each constant a folder of the file's path with that value, as DuckDB reads it."""
    below = hive_values(file.path)
    found = {}
    for column_id, text in constants.items():
        column, one = target.schema.by_id(column_id), target.columns[column_id]
        for name in (str(one.key), one.name):
            if name in below and _has_value(column, below[name], text):
                found[column_id] = (name, below[name])
    return found


def _has_value(column: Column, folder: str | None, text: str | None) -> bool:
    """Return True if a folder has a value; one of a time with a zone depends on the reader's session."""
    if column.type.facts.zoned:
        return folder is None and text is None
    try:
        return identity_of_text(column.type, folder) == text
    except (ValueError, ArithmeticError):
        return False


def _inspected(
    source: SourceTable,
    target: AddTarget,
    file: SourceFile,
    location: Location,
    folders: Mapping[ColumnId, tuple[str, str | None]],
) -> DataFile:
    return inspect_file(
        location,
        target.schema,
        target.name,
        hive_values={},
        folders=folders,
        allow_missing=True,
        ignore_extra_columns=True,
        names=KeyedNames(source, target, file.path),
    )


def _check_described(file: SourceFile, made: DataFile) -> None:
    known = {
        "rows": (file.record_count, made.record_count),
        "bytes": (file.file_size_bytes, made.file_size_bytes),
    }
    for what, (wanted, found) in known.items():
        if wanted is not None and wanted != found:
            raise InvalidInputError(
                f"{file.path} has {found} {what}, and {wanted} by the table's metadata: it is not the file "
                "that the table had. Restore the file, or take a snapshot that does not have it."
            )
    if file.deletes is not None and file.deletes.count:
        last = int.from_bytes(file.deletes.data[-8:], "little", signed=True)
        first = int.from_bytes(file.deletes.data[:8], "little", signed=True)
        if first < 0 or last >= made.record_count:
            raise InvalidInputError(
                f"{file.path} has {made.record_count} rows, and position {first if first < 0 else last} of "
                "it is deleted by the table's metadata: they do not belong together."
            )


def _lacking(
    target: AddTarget, made: DataFile, constants: Mapping[ColumnId, str | None]
) -> frozenset[ColumnId]:
    """Return the columns that a file lacks, and that are not NULL in it for that."""
    mapped = {one.column_id for one in made.mapping or ()}
    return frozenset(
        one
        for one, text in constants.items()
        if one not in mapped and (text is not None or target.schema.by_id(one).initial_default is not None)
    )


def _check_defaults(target: AddTarget, made: DataFile) -> None:
    mapped = {one.column_id for one in made.mapping or ()}
    if lacking := target.other_defaults - mapped:
        raise SchemaMismatchError(
            f"{target.name} (file {made.path})",
            tuple(
                f"column {target.schema.by_id(one).name} is not in the file, and has the default "
                f"{target.schema.by_id(one).initial_default!r} in the table, "
                f"{target.columns[one].initial_default!r} in the source"
                for one in sorted(lacking)
            ),
        )


def _check_constants(target: AddTarget, made: DataFile, constants: Mapping[ColumnId, str | None]) -> None:
    for column_id, text in constants.items():
        found = footer_value(made, PartitionField(column_id, IDENTITY), target.schema)
        if found is not None and found[0] != text:
            raise _other_value(made, target.schema.by_id(column_id).name, found[0], text)


def _other_value(made: DataFile, key: str, found: str | None, known: str | None) -> InvalidInputError:
    return InvalidInputError(
        f"{made.path} has the value {found!r} of {key}, and {known!r} by the table's metadata: they do not "
        "belong together."
    )


def _partition_values(target: AddTarget, file: SourceFile, made: DataFile) -> tuple[str | None, ...]:
    """Return a value for each partition key of the lake's table; none at all if one is unknown."""
    values: list[str | None] = []
    for key in target.partition_by:
        found = footer_value(made, key, target.schema)
        source_key = (target.columns[key.column_id].key, key.transform)
        if source_key in file.partition:
            known = file.partition[source_key]
            if found is not None and found[0] != known:
                name = f"{key.transform} of {target.schema.by_id(key.column_id).name}"
                raise _other_value(made, name, found[0], known)
            found = (known,)
        if found is None:
            _refuse_bucketless(target, made, key)
            return ()
        values.append(found[0])
    return tuple(values)


def _refuse_bucketless(target: AddTarget, made: DataFile, unknown: PartitionField) -> None:
    if any(key.transform.kind is TransformKind.BUCKET for key in target.partition_by):
        column = target.schema.by_id(unknown.column_id).name
        raise InvalidPartitionError(
            f"{made.path} may have several values of {unknown.transform} of column {column}, by which "
            f"{target.name} is partitioned. DuckDB does not look for a value in files without its bucket, so "
            "it would miss their rows: insert the rows instead, or add the table under another name."
        )
