"""The rows of a scan plan in their carriers: data files in a few groups, each one scan, and inlined rows.

Files with one layout are scanned together by Spark's own Parquet reader, apart from those with deleted rows.
The rest goes through pyarrow. Spark finds fields by field id, or by name in files with a name mapping. The
schema is the files' own, never inferred: their names, since Spark compares filters with Parquet's statistics
by name, and their types, from which Spark casts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...format.defaults import initial_value
from ...format.types.ducklake_types import ListType, MapType, ScalarKind, StructType
from ...storage.files.filesystem import Location, StorageOptions, open_filesystem, storage_errors
from ...storage.files.parallel import in_threads
from ...storage.parquet.reader import folder_values, unreadable
from ...storage.rows import table_reader
from ..sessions.kind import kind_of
from ..sessions.settings import hadoop_path, require_file_system
from ..types.frames import Expression, analysed, first_moment, folded, has_floats, renamed, select, unbounded
from ..types.names import ReadNames, quoted
from ..types.spark_types import FIELD_ID_KEY, literal, read_type
from . import read_deletes
from .read_deletes import numbered, place, spark_path
from .read_layout import Layout, StoredField, layouts

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.schema import Column
    from ...format.snapshots import ColumnId
    from ...format.types.values import Physical
    from ...planning.reading.scan import ScanPlan


@dataclass(frozen=True, slots=True)
class Read:
    """What every part of a read needs: all parts have the columns in their carriers, then ``numbers``."""

    spark: SparkSession
    plan: ScanPlan
    columns: tuple[Column, ...]
    names: ReadNames
    is_numbered: bool
    storage_options: StorageOptions | None
    keep: Callable[[DataFrame], DataFrame] | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.names.numbers if self.is_numbered else ()

    def locate(self, path: str) -> Location:
        return open_filesystem(path, self.storage_options)


def rows_of(read: Read) -> DataFrame:
    """Return the rows of a plan, unfiltered: its files' and those that lie in the catalog."""
    parts = list(_parts(read))
    if not parts:
        return read.spark.createDataFrame([], read_deletes.carrier_types(read.columns, read.numbers))
    return folded(DataFrame.union, parts)


def _parts(read: Read) -> Iterator[DataFrame]:
    by_arrow: list[LiveDataFile] = []
    for group, files in _groups(read).items():
        if group is None:
            by_arrow += files
        else:
            yield _scanned(read, group, files)
    names = [quoted(name) for name in (*(column.name for column in read.columns), *read.numbers)]
    if by_arrow:
        plan = replace(read.plan, files=tuple(by_arrow))
        numbers = read.numbers if read.columns else read.names.numbers  # rows without columns have no count
        rows = read_deletes.rows_of_files(
            read.spark, plan, read.columns, numbers, storage_options=read.storage_options
        )
        yield rows.select(*names)
    if any(part.rows for part in read.plan.inlined_rows):
        rows = read_deletes.inlined_rows(read.spark, read.plan, read.columns, read.names.numbers)
        yield rows.select(*names)


@dataclass(frozen=True, slots=True)
class Group:
    """What files must have in common to be one scan.

    A scan joins rows to files by paths, so a path that the table has twice is in two scans.
    """

    layout: Layout
    has_deletes: bool
    hides_later: bool
    constants: tuple[tuple[ColumnId, Physical | None], ...]
    same_path_before: int


def _groups(read: Read) -> dict[Group | None, list[LiveDataFile]]:
    """Return the files by what they have in common; None: they need pyarrow."""
    found: dict[Group | None, list[LiveDataFile]] = {}
    stored = layouts(read.plan, read.columns, read.locate, read.names)
    seen: Counter[str] = Counter()
    for file, layout in zip(read.plan.files, stored, strict=True):
        path = spark_path(file.path)
        group = None if layout is None else _group(read, file, layout, seen[path])
        found.setdefault(group, []).append(file)
        seen[path] += 1
    return found


def _group(read: Read, file: LiveDataFile, layout: Layout, same_path_before: int) -> Group:
    at = read.plan.table.snapshot.id
    marked = read.plan.inlined_deletes.get(file.id)
    return Group(
        layout,
        has_deletes=bool(file.delete_file is not None or marked),
        hides_later=file.partial_max is not None and file.partial_max > at,
        constants=tuple(folder_values(file, read.columns).items()),
        same_path_before=same_path_before,
    )


def _scanned(read: Read, group: Group, files: list[LiveDataFile]) -> DataFrame:
    reserved = [] if group.layout.is_mapped else _reserved(read, group)
    paths = [file.path for file in files]
    try:
        rows = analysed(scan(read.spark, paths, group.layout, read.columns, reserved))
    except AnalysisException as error:
        raise _not_found(read, files, error) from error
    _check_listed(read, files, rows)
    if group.hides_later:
        snapshot = table_reader.SNAPSHOT_ID.name
        rows = rows.where(f"{snapshot} IS NULL OR {snapshot} <= {read.plan.table.snapshot.id}")
    values = carried(group.layout, read.columns, dict(group.constants))
    if not group.has_deletes and not read.is_numbered:
        return _kept(read, select(rows, values))
    stored = [table_reader.ROW_ID.name] if table_reader.ROW_ID in reserved else []
    placed = _kept(read, select(rows, [*values, *place(read.names), *stored]))
    names = [quoted(column.name) for column in read.columns]
    live = numbered(placed, read.plan, files, read.locate, read.names)
    return select(live, [*names, *_numbers(read, group)])


def _kept(read: Read, rows: DataFrame) -> DataFrame:
    return rows if read.keep is None else read.keep(rows)


def _reserved(read: Read, group: Group) -> list[Column]:
    snapshots = [table_reader.SNAPSHOT_ID] if group.hides_later else []
    return [*snapshots, *([table_reader.ROW_ID] if read.is_numbered else [])]


def _numbers(read: Read, group: Group) -> list[str]:
    if not read.is_numbered:
        return []
    own = read.names
    counted = f"{own.row_id_start} + {own.position}"
    row_id = counted if group.layout.is_mapped else f"coalesce({table_reader.ROW_ID.name}, {counted})"
    return [f"{row_id} AS {own.row_id}", own.file_id, own.position]


def _not_found(read: Read, files: Sequence[LiveDataFile], error: AnalysisException) -> Exception:
    """Return the error for a file that Spark did not find when it listed them."""
    if not is_path_missing(error):
        return error
    text = str(error)
    lost = next((file for file in files if spark_path(file.path) in text or file.path in text), files[0])
    table = read.plan.table
    return unreadable(lost, str(table.name), table.snapshot.id, "the file does not exist.")


def _check_listed(read: Read, files: Sequence[LiveDataFile], rows: DataFrame) -> None:
    """Compare what Spark lists with the files: it leaves empty ones out, and lists what lies in a directory.

    Each file is looked at only where numbers differ, or on local disks where the session has no sizes.
    """
    count, size = kind_of(read.spark).listed(rows)
    table = read.plan.table

    def check(file: LiveDataFile) -> None:
        location = read.locate(file.path)
        with storage_errors(location.uri, "read"):
            info = location.filesystem.get_file_info(location.path)
        if info.type is not pafs.FileType.NotFound and not (info.is_file and info.size):
            raise unreadable(file, str(table.name), table.snapshot.id, "it is empty, or no file")

    differs = (count, size) != (len(files), sum(file.file_size_bytes for file in files))
    if differs:
        in_threads(check, [one for one in files if size is not None or read.locate(one.path).is_local])
    if count != len(files):
        found = f"Spark lists {count} files instead of {len(files)}, of which this is the first"
        raise unreadable(files[0], str(table.name), table.snapshot.id, found)


# Where the user's session says otherwise, files would silently be left out or their values changed.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_GLOB = re.compile(r"([{}\[\]*?\\])")


def scan(
    spark: SparkSession,
    paths: Sequence[str],
    layout: Layout,
    columns: Sequence[Column],
    reserved: Sequence[Column] = (),
) -> DataFrame:
    """Return all rows of files with one layout as they are stored, ``reserved`` columns behind the others."""
    require_file_system(spark, paths[0])
    fields = [
        _field(stored.name, stored, column, is_mapped=layout.is_mapped)
        for stored, column in zip(layout.columns, columns, strict=True)
        if stored is not None
    ]
    fields += [
        t.StructField(column.name, read_type(column), metadata={FIELD_ID_KEY: column.id})
        for column in reserved
    ]
    if not fields:  # Spark takes a schema without fields for none given
        fields.append(t.StructField("_ducklake_nothing", t.BooleanType()))
    reader = spark.read.schema(t.StructType(fields)).options(**_OPTIONS)
    return reader.parquet(*(_GLOB.sub(r"\\\1", hadoop_path(path)) for path in paths))


def _field(name: str, stored: StoredField, column: Column, *, is_mapped: bool) -> t.StructField:
    metadata = {} if is_mapped else {FIELD_ID_KEY: column.id}
    return t.StructField(name, _type(stored, column, is_mapped=is_mapped), metadata=metadata)


def _type(stored: StoredField, column: Column, *, is_mapped: bool) -> t.DataType:
    children = [
        None if child is None else _field(child.name, child, below, is_mapped=is_mapped)
        for child, below in zip(stored.children, column.children, strict=True)
    ]
    known = [child for child in children if child is not None]
    match column.type:
        case ListType():
            return t.ArrayType(known[0].dataType)
        case MapType():
            return t.MapType(known[0].dataType, known[1].dataType)
        case StructType():
            return t.StructType(known)
        case _:
            return stored.type


def carried(
    layout: Layout, columns: Sequence[Column], constants: Mapping[ColumnId, Physical | None]
) -> list[Expression]:
    """Return the columns of a scan in their carriers, with the table's names.

    ``constants`` are the values of columns that lie outside the files.
    """
    return [
        renamed(stored.name, column.name)
        if stored is not None
        and _is_as_it_is(stored, column)
        and column.id not in constants
        and not has_floats(stored.type)
        else _value(stored, column, constants).alias(column.name)
        for stored, column in zip(layout.columns, columns, strict=True)
    ]


def _value(
    stored: StoredField | None, column: Column, constants: Mapping[ColumnId, Physical | None]
) -> SparkColumn:
    if column.id in constants:
        return literal(column.type, constants[column.id])
    if stored is None:
        return _missing(column)
    return unbounded(_carried(f.col(quoted(stored.name)), stored, column), read_type(column))


def _missing(column: Column) -> SparkColumn:
    """Return the value of rows that were written before the column existed."""
    value = initial_value(column)
    return f.lit(None).cast(read_type(column)) if value is None else literal(column.type, value)


def _is_as_it_is(stored: StoredField, column: Column) -> bool:
    return stored.type == read_type(column) and column.type.facts.kind is not ScalarKind.VARIANT


def _carried(value: SparkColumn, stored: StoredField, column: Column) -> SparkColumn:
    if column.type.facts.kind is ScalarKind.VARIANT:
        return f.when(~f.is_variant_null(value), value)  # one that is null is NULL, as DuckDB has it
    if stored.type == read_type(column):
        return value
    match column.type:
        case StructType():
            members = [
                _missing(child) if below is None else _carried(value.getField(below.name), below, child)
                for below, child in zip(stored.children, column.children, strict=True)
            ]
            named = [one.alias(child.name) for one, child in zip(members, column.children, strict=True)]
            made = f.when(value.isNotNull(), f.struct(*named))
            return made.cast(read_type(column))  # whose fields may all be NULL, unlike a default
        case ListType():
            element, child = stored.children[0], column.children[0]
            assert element is not None
            return f.transform(value, lambda item: _carried(item, element, child))
        case MapType():
            entry, child = stored.children[1], column.children[1]
            assert entry is not None
            return f.transform_values(value, lambda _, item: _carried(item, entry, child))
        case _ if isinstance(stored.type, t.DateType):
            return first_moment(value)
        case _:
            return value.cast(read_type(column))


def is_path_missing(error: AnalysisException) -> bool:
    """Return True if Spark found no file at a path."""
    return error.getCondition() == "PATH_NOT_FOUND"
