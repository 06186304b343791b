"""Small reads without Spark: one data file into an Arrow table of the table's current schema.

Columns are matched by field id at every nesting level. A column that the file lacks has its initial default,
one that was promoted since is cast. *Source:* what the reference reads from the same files (docs/sources.md,
inserts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DuckLakeError, StorageError, UnsupportedFeatureError
from ...format.defaults import initial_value
from ...format.names.identifiers import fold
from ...format.partitioning import hive_value, hive_values
from ..arrow.arrow_types import arrow_field, arrow_type, cast_leaf, from_physical, in_coarser_unit
from ..arrow.reshape import (
    FIELD_ID_KEY,
    Reshaping,
    by_field_id,
    by_position,
    field_id,
    is_list,
    nulls,
    reshape,
)
from ..arrow.scalars import (
    ARROW_INTERVAL,
    ARROW_SCALARS,
    INTERVAL_PARTS,
    STORED_INTERVAL,
    from_stored,
    parts_of_arrow,
)
from ..files.filesystem import Location, open_filesystem
from ..nested_values.shredding import VARIANT, VARIANT_OF_SPARK, read_variants, variant_parts
from .footer import check_field_ids
from .modules import refuse_encrypted_columns
from .opening import limit_of, open_parquet, parquet_file, read_columns

if TYPE_CHECKING:
    from ...format.files import LiveDataFile, NameMapping
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId, SnapshotId, TableSnapshot
    from ...format.types.ducklake_types import ScalarType
    from ...format.types.values import Physical


# Which column of a table each field of a data file is, as Parquet field ids.
#
# A file that DuckLake writes carries the ids. Files of others have a name mapping in the catalog. *Source:*
# what the reference reads (docs/sources.md, inserts).


def with_field_ids(
    schema: pa.Schema, mapping: NameMapping | None, columns: Sequence[Column], where: str
) -> pa.Schema:
    """Return a file's Arrow schema with the id of a table's column on each field that is one.

    ``columns`` are those that will be read.
    """
    if mapping is None:
        check_field_ids(schema, columns, where)
        return schema
    names = _FieldNames(mapping)
    return pa.schema([names.identified(field, None) for field in schema])


class _FieldNames:
    """A name mapping, to be asked for what lies below a place in it."""

    def __init__(self, mapping: NameMapping) -> None:
        self._mapping = mapping
        self._below: dict[int | None, dict[str, int]] = {}
        for place, one in enumerate(mapping):
            if not one.is_partition:
                self._below.setdefault(one.parent, {})[fold(one.source_name)] = place

    def identified(self, field: pa.Field, parent: int | None) -> pa.Field:
        """Add its id to a field, and theirs to the fields below it; unknown fields get none."""
        return self._at(field, self._below.get(parent, {}).get(fold(field.name)))

    def _at(self, field: pa.Field, place: int | None) -> pa.Field:
        if place is None:
            return field.remove_metadata()
        return _with_id(field.with_type(self._type(field.type, place)), self._mapping[place].column_id)

    def _type(self, type_: pa.DataType, place: int) -> pa.DataType:
        below = self._below.get(place, {})
        if pa.types.is_struct(type_):
            return pa.struct([self.identified(child, place) for child in type_])
        if is_list(type_) and below:  # its only child is named after the repeated group between the two
            (element,) = below.values()
            return _list_of(type_, self._at(type_.value_field, element))
        if pa.types.is_map(type_):
            return pa.map_(
                self._at(type_.key_field, below.get("key")).with_nullable(nullable=False),
                self._at(type_.item_field, below.get("value")),
            )
        return type_


def _with_id(field: pa.Field, column_id: int) -> pa.Field:
    metadata: Mapping[bytes, bytes] = {FIELD_ID_KEY: str(column_id).encode()}
    return field.with_metadata(metadata)


def _list_of(type_: pa.DataType, element: pa.Field) -> pa.DataType:
    if pa.types.is_large_list(type_):
        return pa.large_list(element)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(element, type_.list_size)
    return pa.list_(element)


_SMALL = 2 * 2**20  # bytes of a file; below that threads cost more than they save


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a data file in the types that it has, each field with the id of its column.

    Only rows that are wanted are cast: a type that a restore narrowed again need not hold the others.
    """

    table: pa.Table
    columns: tuple[Column, ...]
    file: LiveDataFile

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def filter(self, keep: pa.Array | pa.ChunkedArray) -> StoredRows:
        """Return the rows for which ``keep`` is true."""
        return replace(self, table=self.table.filter(keep))

    def column(self, column: Column) -> pa.ChunkedArray:
        """Return one of the columns, as its type is now."""
        return self._cast((column,)).column(0)

    def cast(self) -> pa.Table:
        """Return the rows with the columns, as their types are now."""
        return self._cast(self.columns)

    def _cast(self, columns: Sequence[Column]) -> pa.Table:
        constants = folder_values(self.file, columns)
        return in_schema(self.table, columns, self.file.path, constants)


def read_data_file(  # noqa: PLR0913 - table and snapshot are for the messages
    file: LiveDataFile,
    schema: TableSchema,
    *,
    table: str,
    snapshot_id: SnapshotId,
    columns: Sequence[str] | None = None,
    locate: Callable[[str], Location] = open_filesystem,
) -> StoredRows:
    """Return all rows of a data file, in file order, with the columns of ``schema``; deletes are not applied.

    ``columns`` chooses top-level columns by name, in that order. A caller that wants the row
    ids that a file may hold adds their column to ``schema``: it is NULL where the file has none.
    """
    wanted = schema.columns if columns is None else tuple(schema.find(name, table) for name in columns)
    location = locate(file.path).with_key(file.encryption_key)
    with naming_file(file, table, snapshot_id), open_parquet(location) as source:
        return _read(parquet_file(source, location), wanted, file)


def read_row_groups(
    file: LiveDataFile,
    schema: TableSchema,
    *,
    table: str,
    snapshot_id: SnapshotId,
    locate: Callable[[str], Location] = open_filesystem,
) -> Iterator[StoredRows]:
    """Yield what ``read_data_file`` returns with all columns, a row group at a time."""
    location = locate(file.path).with_key(file.encryption_key)
    with naming_file(file, table, snapshot_id), open_parquet(location) as source:
        parquet = parquet_file(source, location)
        for group in range(parquet.num_row_groups):
            yield _read(parquet, schema.columns, file, [group])


@contextmanager
def naming_file(file: LiveDataFile, table: str, snapshot_id: SnapshotId) -> Iterator[None]:
    """Name the data file, its table and the snapshot in errors of reading the file."""
    try:
        yield
    except DuckLakeError as error:
        if isinstance(error, StorageError):
            raise unreadable(file, table, snapshot_id, error) from error
        raise
    except (OSError, pa.ArrowException, MemoryError, UnicodeDecodeError) as error:
        if (limit := limit_of(error)) is not None:
            raise UnsupportedFeatureError(
                f"Cannot read data file {file.path} of {table} at snapshot {snapshot_id}: "
                f"{str(error).rstrip('. ')}. {limit}"
            ) from error
        raise unreadable(file, table, snapshot_id, error) from error


def unreadable(
    file: LiveDataFile, table: str, snapshot_id: SnapshotId, error: Exception | str
) -> StorageError:
    """Return the error of a data file that is missing or damaged."""
    return StorageError(
        f"Cannot read data file {file.path} of {table} at snapshot {snapshot_id}: "
        f"{str(error).rstrip('. ')}. It may have been removed or truncated outside the lake; restore it "
        "from a backup."
    )


def file_footer(
    file: LiveDataFile, table: TableSnapshot, locate: Callable[[str], Location] = open_filesystem
) -> pq.FileMetaData:
    """Return the footer of a data file that is not encrypted, of whose columns pyarrow may be asked."""
    location = locate(file.path)
    with naming_file(file, str(table.name), table.snapshot.id), open_parquet(location) as source:
        metadata = pq.read_metadata(source)
        refuse_encrypted_columns(metadata, source, location.uri)
    return metadata


def file_fields(
    file: LiveDataFile, table: TableSnapshot, locate: Callable[[str], Location] = open_filesystem
) -> tuple[pa.Schema, pq.FileMetaData]:
    """Return the fields of a data file, with the column's id on each that is one, and its footer."""
    location = locate(file.path).with_key(file.encryption_key)
    with naming_file(file, str(table.name), table.snapshot.id), open_parquet(location) as source:
        parquet = pq.ParquetFile(source)  # its schema has INT96 as nanoseconds, and nothing else so
        if not location.is_encrypted:
            refuse_encrypted_columns(parquet.metadata, source, location.uri)
        return _identified(parquet.schema_arrow, table.schema.columns, file), parquet.metadata


def _identified(schema: pa.Schema, columns: Sequence[Column], file: LiveDataFile) -> pa.Schema:
    if file.mapping_id is not None and file.mapping is None:
        raise UnsupportedFeatureError(
            f"{file.path} is registered with name mapping {file.mapping_id}, which the catalog does not have."
        )
    if twice := sorted({name for name in schema.names if len(schema.get_all_field_indices(name)) > 1}):
        raise StorageError(f"{file.path} has several columns named {twice[0]!r}")
    return with_field_ids(schema, file.mapping, columns, file.path)


def _read(
    source: pq.ParquetFile,
    columns: tuple[Column, ...],
    file: LiveDataFile,
    row_groups: list[int] | None = None,
) -> StoredRows:
    """Return the rows of a file, or of some of its row groups."""
    stored = _identified(source.schema_arrow, columns, file)
    names = {field_id(field): field.name for field in stored}
    wanted = [names[column.id] for column in columns if column.id in names]
    groups = list(range(source.num_row_groups)) if row_groups is None else row_groups
    rows = read_columns(source, wanted, groups, use_threads=file.file_size_bytes > _SMALL)
    identified = pa.schema([stored.field(one.name) for one in rows.schema])
    rows = rows if rows.schema.equals(identified, check_metadata=True) else rows.cast(identified)
    return StoredRows(rows, columns, file)


def folder_values(file: LiveDataFile, columns: Sequence[Column]) -> dict[ColumnId, Physical | None]:
    """Return the values of columns that lie in the names of a file's folders."""
    from_folders = {one.column_id: one.source_name for one in file.mapping or () if one.is_partition}
    if not from_folders:
        return {}
    folders = hive_values(file.path)
    found: dict[ColumnId, Physical | None] = {}
    for column in columns:
        if (name := from_folders.get(column.id)) is not None:
            if name not in folders:
                raise StorageError(
                    f"{file.path} is not in a folder {name}=…, which would hold its {column.name}."
                )
            text = folders[name]
            try:
                found[column.id] = None if text is None else hive_value(column.type, text)
            except (ValueError, ArithmeticError) as error:
                raise UnsupportedFeatureError(
                    f"{file.path}: column {column.name} has its value from the folder {name}={text}, which "
                    f"this release cannot read as {column.type}. Insert the file's rows with DuckDB, or move "
                    "it to a folder with the value as the type is written, and add it again."
                ) from error
    return found


def in_schema(
    rows: pa.Table,
    columns: Sequence[Column],
    source: str,
    constants: Mapping[ColumnId, Physical | None] = MappingProxyType({}),
) -> pa.Table:
    """Return rows whose fields have field ids with ``columns``, as their types are now.

    ``constants`` are the values (in physical form) of columns that the rows themselves do not have.
    """
    if not columns:
        return rows.select([])  # keeps the number of rows
    places = by_field_id(list(rows.schema), columns)
    fields = [arrow_field(column) for column in columns]
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for column, field, place in zip(columns, fields, places, strict=True):
        if column.id in constants:
            arrays.append(_repeated(column, constants[column.id], field.type, rows.num_rows))
        elif place is None:
            arrays.append(initial_values(column, field.type, rows.num_rows))
        else:
            arrays.append(_in_column(rows.column(place), column, field.type, source))
    return pa.Table.from_arrays(
        arrays,
        schema=pa.schema([one.with_type(array.type) for one, array in zip(fields, arrays, strict=True)]),
    )


def initial_values(column: Column, target: pa.DataType, length: int) -> pa.Array:
    """Return the values of rows that were written before ``column`` existed."""
    return _repeated(column, initial_value(column), target, length)


def _repeated(column: Column, value: Physical | None, target: pa.DataType, length: int) -> pa.Array:
    if value is None:
        return pa.nulls(length, target)
    try:
        one = from_physical(column.type, [value])
    except ValueError as error:
        raise UnsupportedFeatureError(
            f"The initial default of column {column.name} cannot be read: {error}."
        ) from None
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, pa.repeat(one.storage[0], length))
    return pa.repeat(one[0], length)


def _in_column(values: pa.ChunkedArray, column: Column, target: pa.DataType, source: str) -> pa.ChunkedArray:
    try:
        return reshape(values, column, target, Reshaping(by_field_id, initial_values, _promoted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedFeatureError(
            f"{source}: column {column.name} is stored as {values.type}, which this release cannot read "
            f"as {column.type}: {error}"
        ) from error


def _promoted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a leaf as the type its column was promoted to since the file was written."""
    if array.type == STORED_INTERVAL and target == ARROW_INTERVAL:
        return from_stored(array)
    if target == VARIANT and pa.types.is_struct(array.type):
        return read_variants(array)
    if pa.types.is_integer(array.type) and pa.types.is_floating(target):
        return array.cast(target, safe=False)  # rounds, as the reference does
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return array.cast(pa.string()).cast(target)  # Arrow's own cast is off by a last digit
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
        array = in_coarser_unit(array, target)
    stored = getattr(array.type, "storage_type", array.type)
    if pa.types.is_string(target) and not any(is_text(stored) for is_text in _TEXTS):
        raise pa.ArrowNotImplementedError("its string form is specific to DuckDB")
    return cast_leaf(array, target)


# binary ones are an ENUM's of Parquet: no blob becomes a text
_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary),
    pa.types.is_null,
)


# Arrow data of a table in the types that Spark takes from Arrow: the carriers of ``spark.types``.


@cache
def _carrier(type_: ScalarType) -> pa.DataType:
    return ARROW_SCALARS[type_.name].carrier or arrow_type(type_)


def carrier_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of rows in their carriers; everything may be NULL."""
    fields = (arrow_field(column, field_ids=False, type_of=_carrier) for column in columns)
    return pa.schema([field.with_nullable(nullable=True) for field in fields])


def in_carriers(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Return rows, which have the Arrow types of ``columns``, in their carriers."""
    schema = carrier_schema(columns)
    arrays = [
        _carried(values, column, field.type)
        for values, column, field in zip(rows.columns, columns, schema, strict=True)
    ]
    if not columns:
        return rows
    return pa.Table.from_arrays(arrays, schema=schema)


def _carried(values: pa.ChunkedArray, column: Column, target: pa.DataType) -> pa.ChunkedArray:
    try:
        return reshape(values, column, target, Reshaping(by_position, nulls, _cast_to_carrier))
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(
            f"Column {column.name} has type {column.type}, and a value that Spark does not have: {error}. "
            "Leave the column out of those to read, or read it without Spark."
        ) from error


def _cast_to_carrier(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if target == INTERVAL_PARTS:
        return parts_of_arrow(array)
    if target == VARIANT_OF_SPARK:
        return variant_parts(array, target)
    return cast_leaf(array, target)
