"""How data files store the columns to read, and which of them Spark's own reader can read together.

Files written after the last rename or type change already have the current columns. What an older
file holds, or one of others, its footer says, and so of all files of a table with an option that says how
files are compressed or encoded: Spark does not decode everything that DuckDB then writes. DuckDB removes such
an option of a table only by ``ALTER TABLE … RESET``, since DuckLake 1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as t

from ...format.names.paths import is_local
from ...format.options import OF_CODINGS
from ...format.schema import Column, TableSchema
from ...format.types import ducklake_types as dl
from ...format.types.values import physical_range
from ...storage.arrow.arrow_types import arrow_type, stored_type
from ...storage.arrow.reshape import by_field_id, is_list
from ...storage.files.parallel import in_threads
from ...storage.parquet.footer import leaf_columns
from ...storage.parquet.readable import is_in_old_calendar, undecodable
from ...storage.parquet.reader import file_fields, file_footer
from ...storage.rows.table_reader import ROW_ID, SNAPSHOT_ID
from ..types.spark_types import SPARK_SCALARS, read_type
from .read_deletes import is_read_by_spark, reserved

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.snapshots import ColumnId, SnapshotId
    from ...planning.reading.scan import ScanPlan
    from ...storage.files.filesystem import Location
    from ..types.names import ReadNames


@dataclass(frozen=True, slots=True)
class StoredField:
    """How a file stores a column or nested field: its name, what Spark reads it as, and what lies below.

    ``children`` are those of the column, None where the file has no such field.
    """

    name: str
    type: t.DataType
    children: tuple[StoredField | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns to read as a file has them, None where it lacks one.

    ``is_mapped``: fields are found by name, not by field id.
    """

    columns: tuple[StoredField | None, ...]
    is_mapped: bool = False


def present_layout(columns: Sequence[Column]) -> Layout | None:
    """Return the layout of files with the current names and types of columns; None: Spark cannot read it."""
    try:
        return Layout(tuple(_present(column) for column in columns))
    except _NotNativeError:
        return None


def layouts(
    plan: ScanPlan, columns: Sequence[Column], locate: Callable[[str], Location], names: ReadNames
) -> list[Layout | None]:
    """Return the layout of each file of the plan; None where Spark's own reader cannot read it.

    ``names`` are those that a scan needs for itself.
    """
    present = present_layout(columns)
    have_codings = any(plan.table.options.is_set(key) for key in OF_CODINGS)
    has_variants = any(column.type.facts.kind is dl.ScalarKind.VARIANT for column in columns)

    def layout(file: LiveDataFile) -> Layout | None:
        if file.encryption_key is not None or _is_hidden(file.path):
            return None
        is_present = _is_present(file, columns, plan.columns_since) and not has_variants
        if is_present and not (have_codings and any(undecodable(file_footer(file, plan.table, locate)))):
            return present
        fields, footer = file_fields(file, plan.table, locate)
        if is_in_old_calendar(footer) or any(undecodable(footer, _leaves(fields, columns))):
            return None
        return _stored_layout(fields, columns, is_mapped=file.mapping is not None)

    def readable(file: LiveDataFile) -> Layout | None:
        found = layout(file)
        return None if found is None or _clashes(found, columns, reserved(names)) else found

    return in_threads(readable, plan.files)


def _leaves(fields: pa.Schema, columns: Sequence[Column]) -> frozenset[int]:
    """Return the places of the leaves that a scan of columns reads, among all of a file."""
    wanted = TableSchema((*columns, ROW_ID, SNAPSHOT_ID))
    leaves = enumerate(leaf_columns(list(fields), wanted, by_field_id))
    return frozenset(place for place, (column, _) in leaves if column is not None)


def _is_hidden(path: str) -> bool:
    """Return True if Spark silently leaves a file out when it lists it, or cannot open it for its name.

    Hadoop looks beside a local file for one with its checksum, whose name cannot have a colon.
    """
    name = path.rsplit("/", 1)[-1]
    is_left_out = not name or name.startswith(("_", ".")) or name.endswith("._COPYING_")
    return is_left_out or (":" in name and is_local(path))


def _is_present(file: LiveDataFile, columns: Sequence[Column], since: Mapping[ColumnId, SnapshotId]) -> bool:
    """Return True if the file was written after the columns came to be as they are.

    The snapshot of the change itself may hold files from before it: one transaction can do both. A file whose
    rows bring their ids may be a rewritten one, which the reference gives the columns of the file before it.
    """
    if file.mapping_id is not None or file.row_id_start is None:
        return False
    return all(
        inner.id in since and since[inner.id] < file.begin_snapshot
        for column in columns
        for inner in column.walk()
    )


def _clashes(layout: Layout, columns: Sequence[Column], own: Collection[str]) -> bool:
    """Return True if a column has, or has in a file, a name that a scan needs for itself."""
    names = [column.name for column in columns]
    names += [stored.name for stored in layout.columns if stored is not None]
    return any(name.lower() in own for name in names)


class _NotNativeError(Exception):
    pass


def _present(column: Column) -> StoredField:
    if isinstance(column.type, dl.ScalarType) and SPARK_SCALARS[column.type.name].only_by_arrow:
        raise _NotNativeError
    return StoredField(column.name, read_type(column), tuple(_present(child) for child in column.children))


def _stored_layout(fields: pa.Schema, columns: Sequence[Column], *, is_mapped: bool) -> Layout | None:
    try:
        return Layout(_stored_fields(list(fields), columns, is_mapped=is_mapped), is_mapped)
    except _NotNativeError:
        return None


def _stored_fields(
    fields: Sequence[pa.Field], columns: Sequence[Column], *, is_mapped: bool
) -> tuple[StoredField | None, ...]:
    folded = {field.name.lower() for field in fields}
    if len(folded) != len(fields):  # Spark looks names up without their case
        raise _NotNativeError
    places = by_field_id(fields, columns)
    return tuple(
        None if place is None else _stored(fields[place], column, is_mapped=is_mapped)
        for place, column in zip(places, columns, strict=True)
    )


def _stored(field: pa.Field, column: Column, *, is_mapped: bool) -> StoredField:
    type_ = field.type
    match column.type:
        case _ if column.children and any(
            one.type.facts.kind is dl.ScalarKind.VARIANT for one in column.walk()
        ):
            raise _NotNativeError  # a variant that is null is to be NULL there, too
        case dl.StructType() if pa.types.is_struct(type_):
            children = _stored_fields(list(type_), column.children, is_mapped=is_mapped)
            if not any(children):  # Spark could not distinguish a NULL struct from one without its fields
                raise _NotNativeError
            members = [t.StructField(child.name, child.type) for child in children if child is not None]
            return StoredField(field.name, t.StructType(members), children)
        case dl.ListType() if is_list(type_) and not pa.types.is_fixed_size_list(type_):
            element = _stored(type_.value_field, column.children[0], is_mapped=is_mapped)
            return StoredField(field.name, t.ArrayType(element.type), (element,))
        case dl.MapType() if pa.types.is_map(type_):
            key = _stored(type_.key_field, column.children[0], is_mapped=is_mapped)
            item = _stored(type_.item_field, column.children[1], is_mapped=is_mapped)
            if key != _present(column.children[0]):
                raise _NotNativeError
            return StoredField(field.name, t.MapType(key.type, item.type), (key, item))
        case dl.ScalarType() | dl.DecimalType():
            return StoredField(field.name, _scalar(type_, column, is_mapped=is_mapped))
        case _:
            raise _NotNativeError


_READ_AS = {
    pa.bool_(): t.BooleanType(),
    pa.int8(): t.ByteType(),
    pa.int16(): t.ShortType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.uint8(): t.ShortType(),
    pa.uint16(): t.IntegerType(),
    pa.uint32(): t.LongType(),
    pa.uint64(): t.DecimalType(20, 0),
    pa.float32(): t.FloatType(),
    pa.float64(): t.DoubleType(),
    pa.date32(): t.DateType(),
    pa.timestamp("ms"): t.TimestampNTZType(),
    pa.timestamp("us"): t.TimestampNTZType(),
}


def _scalar(type_: pa.DataType, column: Column, *, is_mapped: bool) -> t.DataType:
    """Choose Spark's type to read a leaf: the carrier, or a type whose values it casts to that exactly."""
    if column.type.facts.kind is dl.ScalarKind.VARIANT and is_read_by_spark(type_):
        return read_type(column)
    if isinstance(column.type, dl.ScalarType) and SPARK_SCALARS[column.type.name].only_by_arrow:
        raise _NotNativeError
    if _is_as_written(type_, column.type, is_mapped=is_mapped):
        return read_type(column)
    if pa.types.is_decimal128(type_):
        found, spark = (
            dl.DecimalType(type_.precision, type_.scale),
            t.DecimalType(type_.precision, type_.scale),
        )
        if dl.can_promote(found, column.type) or dl.is_float(column.type):
            return spark
    elif _is_number(type_) and _is_wider_number(type_, column.type):
        return _READ_AS[type_]
    elif type_ == pa.date32() and dl.can_promote(dl.ScalarType("date"), column.type):
        return t.DateType()
    raise _NotNativeError


def _is_as_written(type_: pa.DataType, column_type: dl.DuckLakeType, *, is_mapped: bool) -> bool:
    """Return True if a leaf is stored as DuckLake's writers store its column."""
    type_ = getattr(type_, "storage_type", type_)
    wanted = stored_type(column_type) if isinstance(column_type, dl.ScalarType) else arrow_type(column_type)
    wanted = getattr(wanted, "storage_type", wanted)
    if is_mapped and (wanted == pa.timestamp("ns") or column_type.facts.step > 1):
        return False  # it may be an INT96, which Spark reads otherwise, or have fractions of seconds
    return bool(type_ == wanted)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or type_ in (pa.float32(), pa.float64()))


def _is_wider_number(type_: pa.DataType, column_type: dl.DuckLakeType) -> bool:
    """Return True if a column has every number of a file's type.

    Else rows that are gone may have others, which Spark casts before it leaves them out.
    """
    if not pa.types.is_integer(type_):
        return bool(type_ == pa.float32() and arrow_type(column_type) == pa.float64())
    if dl.is_float(column_type):
        return True
    if not (isinstance(column_type, dl.DecimalType) or column_type.facts.kind is dl.ScalarKind.INTEGER):
        return False
    signed = pa.types.is_signed_integer(type_)
    end = 2 ** (type_.bit_width - signed) * (
        10**column_type.scale if isinstance(column_type, dl.DecimalType) else 1
    )
    low, high = physical_range(column_type)
    return low <= (-end if signed else 0) and end <= high + 1
