"""Parquet files that others wrote, as a table's data files: mapped by name, judged by their footers alone.

*Source:* what the reference's ``ducklake_add_data_files`` accepts and writes (docs/sources.md, inserts and
added files; probed on 1.5.5). It adds some files that it then misreads; those are refused, or their bounds
left unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ... import errors
from ...format import partitioning as keys
from ...format.files import ColumnStats, DataFile, MappedColumn
from ...format.names.identifiers import fold
from ...format.types import ducklake_types as dl
from ...format.types import values as physical
from ..arrow.arrow_types import ducklake_type
from ..arrow.reshape import PHYSICAL_TYPES, SchemaNode, field_id, is_list
from ..arrow.string_checks import bad_bound
from ..files.filesystem import Location, open_input
from ..nested_values.geometries import with_geometries
from .footer import (
    FIRST_RESERVED_FIELD_ID,
    NanRule,
    OpenFooter,
    children_of_field,
    chunk_facts,
    decoder,
    merge_chunks,
    open_footer,
)
from .opening import parquet_file
from .readable import has_wrong_flags, is_in_old_calendar, list_element, unread_by_duckdb, unread_chunks

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId


# As which types DuckDB reads the columns of other writers' files: as what Parquet says of them.
#
# What only Arrow's copy of a schema says does not count. *Source:* measured with DuckDB 1.5.5
# (tests/interop/test_foreign_types.py measures it again).


def as_duckdb_reads(node: SchemaNode, type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type that a column has for DuckDB, ``type_`` being the one that pyarrow gives it."""
    if pa.types.is_null(type_) or _is_plain(node):
        return _PLAIN.get(PHYSICAL_TYPES[node.physical], type_)
    if node.converted == _ENUM:
        return pa.string()
    if pa.types.is_timestamp(type_) and node.converted is not None and node.logical is None:
        return pa.timestamp(type_.unit)  # of the time when there were no others
    return type_


def _is_plain(node: SchemaNode) -> bool:
    """Return True if DuckDB sees numbers or bytes in a column: it passes most logical types over."""
    return node.converted is None and node.logical not in _READ_ALONE


# by Parquet's numbers of ConvertedType, and of LogicalType
_ENUM, _JSON, _BSON, _INTERVAL = 4, 19, 20, 21
_TIME, _TIMESTAMP, _UUID, _FLOAT16, _VARIANT, GEOMETRY, _GEOGRAPHY = 7, 8, 14, 15, 16, 17, 18
_READ_ALONE = frozenset({_TIME, _TIMESTAMP, _UUID, _FLOAT16, _VARIANT, GEOMETRY, _GEOGRAPHY})
_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BYTE_ARRAY": pa.binary(),
}


def named(node: SchemaNode, type_: pa.DataType) -> str:
    """Name the type of a column, and that which DuckDB reads instead of it, as a part of a sentence."""
    if PHYSICAL_TYPES[node.physical] == "INT96":
        return "INT96, which is read as timestamp,"
    if node.geoparquet is not None:
        return f"{type_} of GeoParquet's encoding {node.geoparquet}, which DuckDB reads as geometry,"
    read_as = as_duckdb_reads(node, type_)
    return str(type_) if read_as == type_ else f"{type_}, which DuckDB reads as {read_as},"


def type_of_leaf(node: SchemaNode, type_: pa.DataType, where: str) -> dl.DuckLakeType | None:
    """Return the DuckLake type of a column to which pyarrow gives ``type_``.

    None: there is none for what DuckDB reads, or DuckDB and pyarrow read different values.
    """
    read_as = as_duckdb_reads(node, type_)
    if read_as != type_ and not _are_same_values(type_, read_as):
        return None
    if node.geoparquet is not None:
        is_plain = node.converted is None and node.logical is None
        return dl.ScalarType("geometry") if node.geoparquet == "WKB" and is_plain else None
    if node.logical == _VARIANT or node.converted == _BSON:
        return None
    if name := _BY_LOGICAL.get(node.logical or 0) or _BY_CONVERTED.get(node.converted or 0):
        return dl.ScalarType(name)
    if PHYSICAL_TYPES[node.physical] == "INT96":  # Spark's instants; the reference reads them without zone
        return dl.ScalarType("timestamp") if pa.types.is_timestamp(type_) else None
    if pa.types.is_time(type_):
        return dl.ScalarType("time") if type_.unit == "us" else None
    try:
        return ducklake_type(read_as, where)
    except errors.InvalidTypeError:
        return None


def _type_of_1_1(node: SchemaNode, type_: pa.DataType) -> dl.DuckLakeType | None:
    """Return the type that DuckLake 1.1 brought for a column to which pyarrow gives ``type_``, if it is one.

    *Source:* what ducklakepy adds to such columns. Columns of the types of 1.0 take the same files as there.
    """
    if pa.types.is_null(type_):
        return dl.ScalarType("null")
    if pa.types.is_timestamp(type_) and (type_.unit, node.logical) == ("ns", _TIMESTAMP) and type_.tz:
        return dl.ScalarType("timestamptz_ns")
    return None


def _are_same_values(type_: pa.DataType, read_as: pa.DataType) -> bool:
    if pa.types.is_null(type_) or (pa.types.is_timestamp(type_) and pa.types.is_timestamp(read_as)):
        return True
    return type_ in _BYTES and read_as in _BYTES


_BYTES = (pa.string(), pa.binary())
# of geometries the coordinate system is left out, and that their edges are arcs
_BY_LOGICAL = {_UUID: "uuid", GEOMETRY: "geometry", _GEOGRAPHY: "geometry"}
_BY_CONVERTED = {_JSON: "json", _INTERVAL: "interval"}


def fits(found: dl.DuckLakeType | None, wanted: dl.DuckLakeType) -> bool:
    """Return True if each value of a file's type is read as that value; a date is not read as a timestamp."""
    if found is None:
        return False
    if found == wanted:
        return True
    rows = found.facts, wanted.facts
    # timestamps in seconds too are stored in microseconds
    if all(row.kind is dl.ScalarKind.TIMESTAMP and not row.zoned for row in rows):
        return rows[0].per_second <= rows[1].per_second == _MICROSECONDS  # Parquet has none of a second
    return dl.can_promote(found, wanted) and rows[0].kind is not dl.ScalarKind.DATE


_MICROSECONDS = 10**6


def inspect_file(  # noqa: PLR0913 - what the file may be is three of them
    location: Location,
    schema: TableSchema,
    table: str,
    *,
    hive_values: Mapping[str, str | None],
    allow_missing: bool = False,
    ignore_extra_columns: bool = False,
    names: FieldNames | None = None,
    folders: Mapping[ColumnId, tuple[str, str | None]] | None = None,
) -> DataFile:
    """Build a data file of a table from a file's footer; the caller adds partition values.

    ``hive_values`` are those of the folders that it lies in; such a value is in force where the file has the
    column too, and one that names no column is passed over. ``names`` gives the keys of fields;
    default: by the names of the columns. ``folders`` are names and values of folders of columns that have
    another name there.
    """
    try:
        footer = open_footer(location)
    except errors.StorageError as error:
        if isinstance(error.__cause__, OSError):  # of a store, which may pass
            raise
        raise errors.InvalidInputError(
            f"{str(error).rstrip('.')}. Replace the file by a sound one, or leave it out."
        ) from error
    metadata = footer.metadata
    _refuse_reserved(metadata, location.uri)
    if problem := unread_by_duckdb(footer.layout.root):
        raise errors.UnsupportedFeatureError(f"{location.uri}: {problem}")
    if has_wrong_flags(location, metadata):
        raise errors.UnsupportedFeatureError(
            f"{location.uri}: its compressed pages say that they are not, as parquet-cpp 1 wrote "
            "them, and DuckDB cannot read them. Rewrite the file, or insert its rows with lake.append_arrow."
        )
    by_name = {fold(column.name): column.id for column in schema.columns}
    of_folders = {
        by_name[fold(one)]: (one, text) for one, text in hive_values.items() if fold(one) in by_name
    }
    of_folders |= folders or {}
    root = with_geometries(footer.layout.root, metadata, location.uri)
    names = names or FieldNames()
    reading = _Reading(location, footer, root, of_folders, allow_missing, ignore_extra_columns, names)
    reading.read(schema)
    if not reading.mapping:
        reading.differences.append("no column of the table is in the file: its rows would be empty")
    if reading.differences:
        raise errors.SchemaMismatchError(
            f"{table} (file {location.uri})", tuple(dict.fromkeys(reading.differences))
        )
    return DataFile(
        path=location.uri,
        record_count=metadata.num_rows,
        file_size_bytes=footer.file_size,
        footer_size=footer.footer_size,
        column_stats=reading.stats,
        mapping=tuple(reading.mapping),
        row_group_count=metadata.num_row_groups,
        narrower=tuple(reading.narrower),
    )


def _refuse_reserved(metadata: pq.FileMetaData, path: str) -> None:
    for one in metadata.schema.to_arrow_schema():
        found = field_id(one)
        if found is not None and found >= FIRST_RESERVED_FIELD_ID:
            raise errors.UnsupportedFeatureError(
                f"{path} has the column {one.name}, whose field id ({found}) DuckLake keeps for its own row "
                "ids and snapshots: DuckDB could not delete or update rows of the file. DuckLake's clients "
                "write it where they update or flush rows, Iceberg where it updates or rewrites tables of "
                "version 3. Insert the rows instead."
            )


class FieldNames:
    """The keys that match fields of files to columns: here names, in any letter case."""

    def of_column(self, column: Column) -> Hashable:
        """Return the key of a column, or of a field of a struct."""
        return fold(column.name)

    def of_field(self, field: pa.Field, parent: Column | None) -> Hashable:
        """Return the key of a file's field in ``parent``; None: it is no column."""
        del parent
        return fold(field.name)


@dataclass(slots=True)
class _Reading:
    """One pass over a file's schema: over Arrow's types, and over Parquet's own tree beside them."""

    location: Location
    footer: OpenFooter
    root: SchemaNode
    folders: Mapping[ColumnId, tuple[str, str | None]]
    allow_missing: bool
    ignore_extra_columns: bool
    names: FieldNames
    mapping: list[MappedColumn] = field(default_factory=list)
    stats: dict[ColumnId, ColumnStats] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    narrower: list[str] = field(default_factory=list)
    groups: list[pq.RowGroupMetaData] = field(init=False)
    maps: int = 0  # around the field that is read

    def __post_init__(self) -> None:
        metadata = self.metadata
        self.groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]

    @property
    def metadata(self) -> pq.FileMetaData:
        return self.footer.metadata

    def read(self, schema: TableSchema) -> None:
        """Map the file's columns, then the folders', and note what is missing."""
        fields = list(self.metadata.schema.to_arrow_schema())
        self._fields(fields, self.root, schema.columns, None, None, "", of_folders=self.folders)
        for column in schema.columns:
            if column.id in self.folders:
                self._hive(column, *self.folders[column.id])
        self._forbid_nulls(fields, schema)

    def _fields(  # noqa: PLR0913, PLR0917 - the place in the three trees
        self,
        fields: Sequence[pa.Field],
        node: SchemaNode,
        columns: Sequence[Column],
        above: Column | None,
        parent: int | None,
        prefix: str,
        *,
        of_folders: Collection[ColumnId] = (),
    ) -> None:
        wanted = {self.names.of_column(column): column for column in columns}
        seen: set[Hashable] = set()
        spellings = Counter(fold(one.name) for one in fields)  # name mappings know no others
        for one, below in zip(fields, node.children, strict=True):
            key, where = self.names.of_field(one, above), f"{prefix}{one.name}"
            column = wanted.get(key)
            if column is None:
                if not self.ignore_extra_columns:
                    self.differences.append(f"column {where} of the file is not in the table")
            elif column.id in of_folders:
                pass  # the folder's value takes precedence
            elif key in seen or spellings[fold(one.name)] > 1:
                self.differences.append(
                    f"column {where} appears twice in the file (names are case-insensitive)"
                )
            else:
                seen.add(key)
                self._field(one.type, below, column, one.name, parent, where)
        for key, column in wanted.items():
            if key not in seen and column.id not in of_folders:
                self._missing(column, f"{prefix}{column.name}")

    def _field(  # noqa: PLR0913, PLR0917 - the place in the three trees
        self, type_: pa.DataType, node: SchemaNode, column: Column, name: str, parent: int | None, where: str
    ) -> None:
        """Map one field of the file, under the ``name`` that it has in a name mapping."""
        self.mapping.append(MappedColumn(name, column.id, parent))
        ordinal = len(self.mapping) - 1
        type_ = _value_type(type_)
        fields = children_of_field(type_)
        match column.type:
            case dl.StructType() if pa.types.is_struct(type_):
                self._fields(fields, node, column.children, column, ordinal, f"{where}.")
            case dl.ListType() if is_list(type_):
                found = list_element(node)
                if found is None:
                    self.differences.append(
                        f"column {where} of the file is a list in an old layout, of which DuckDB and pyarrow "
                        "take the elements for different things: rewrite the file"
                    )
                    return
                element, repeated = found
                if self.maps and (node.is_repeated or element not in node.children[0].children):
                    self.differences.append(
                        f"column {where} of the file is a list in an old layout within a map, which DuckDB "
                        "cannot read in a table: rewrite the file"
                    )
                    return
                self._field(
                    fields[0].type, element, column.children[0], repeated, ordinal, f"{where}.element"
                )
            case dl.MapType() if pa.types.is_map(type_):
                entries = zip(
                    fields, node.children[0].children, column.children, ("key", "value"), strict=True
                )
                self.maps += 1
                for one, below, child, word in entries:
                    self._field(one.type, below, child, word, ordinal, f"{where}.{word}")
                self.maps -= 1
            case _:
                self._leaf(type_, node, column, where)

    def _leaf(self, type_: pa.DataType, node: SchemaNode, column: Column, where: str) -> None:
        if column.children or children_of_field(type_):
            self.differences.append(f"column {where} is {column.type} in the table, {type_} in the file")
            return
        read_as = as_duckdb_reads(node, type_)
        found_type = type_of_leaf(node, type_, where)
        if _type_of_1_1(node, type_) == column.type or fits(found_type, column.type):
            if found_type is not None and dl.is_misread_by_filters(found_type, column.type):
                self.narrower.append(f"{where} ({column.type} in the table) is {found_type}")
            chunks = [group.column(node.leaf) for group in self.groups]
            found = self._file_stats(chunks, node, column, read_as, is_null=pa.types.is_null(type_))
            self.stats[column.id] = _safe(column, found)
            self.differences += self._old_dates(node, column, found, where)
            self.differences += _bad_bounds(chunks, column, type_, where)
            layout = self.footer.layout
            self.differences += unread_chunks(layout.leaves[node.leaf], layout.layouts[node.leaf], where)
        else:
            self.differences.append(
                f"column {where} is {column.type} in the table; {named(node, type_)} in the file does not fit"
            )

    def _old_dates(self, node: SchemaNode, column: Column, stats: ColumnStats, where: str) -> Iterator[str]:
        """Yield why a column is refused whose days are those of a calendar that only Spark reads."""
        row, is_int96 = column.type.facts, PHYSICAL_TYPES[node.physical] == "INT96"
        is_old = row.has_days and is_in_old_calendar(self.metadata, int96=is_int96, others=not is_int96)
        if not is_old or stats.value_count == 0:
            return
        text = stats.min_value
        if text is None and is_int96:  # of which writers keep no bounds
            text = self._least_int96(node, column)
            if text is None:
                return
        first = _FIRST_DATE if row.kind is dl.ScalarKind.DATE else _FIRST_TIME
        if text is None or physical.order_key(column.type, text) < physical.order_key(column.type, first):
            yield (
                f"column {where} may have values before {first} ({text or 'no bounds say'}) in the calendar "
                "of Spark 2, which DuckDB reads as other days: insert the rows with Spark"
            )

    def _least_int96(self, node: SchemaNode, column: Column) -> str | None:
        """Return the least time of a column, whose values are read."""
        least: list[int] = []
        with open_input(self.location) as source:
            parquet = parquet_file(source, self.location)
            for batch in parquet.iter_batches(columns=[self.metadata.schema.column(node.leaf).path]):
                values = batch.column(0)
                while children_of_field(values.type):
                    values = values.flatten()[0] if pa.types.is_struct(values.type) else values.flatten()
                if (found := pc.min(values).cast(pa.int64()).as_py()) is not None:
                    least.append(found)
        return physical.format_physical(column.type, min(least)) if least else None

    def _file_stats(
        self,
        chunks: Sequence[pq.ColumnChunkMetaData],
        node: SchemaNode,
        column: Column,
        type_: pa.DataType,
        *,
        is_null: bool,
    ) -> ColumnStats:
        rule, decode = NanRule.of_writer(self.metadata.created_by), decoder(column.type, type_)
        of_geometries = node.logical == GEOMETRY  # a box on a sphere need not be around all vertices
        facts = [chunk_facts(chunk, decode, rule, of_geometries=of_geometries) for chunk in chunks]
        if is_null:  # writers keep no statistics of it
            facts = [replace(one, null_count=one.slot_count) for one in facts]
        return merge_chunks(column, facts)

    def _missing(self, column: Column, where: str) -> None:
        if not self.allow_missing:
            self.differences.append(f"column {where} of the table is not in the file")
            return
        if column.initial_default is None:
            self.stats.update(_all_null(column, self.metadata.num_rows))

    def _hive(self, column: Column, name: str, text: str | None) -> None:
        rows = self.metadata.num_rows
        try:
            value = None if text is None else keys.hive_value(column.type, text)
        except (ValueError, ArithmeticError):
            self.differences.append(
                f"column {column.name} is {column.type}; folder {name}={text} does not fit"
            )
            return
        self.mapping.append(MappedColumn(name, column.id, is_partition=True))
        self.stats[column.id] = _constant(column, value, rows)

    def _forbid_nulls(self, fields: Sequence[pa.Field], schema: TableSchema) -> None:
        required = {self.names.of_field(one, None) for one in fields if not one.nullable}
        mapped = {one.column_id for one in self.mapping if one.parent is None}
        for column in schema.columns:
            if column.nullable:
                continue
            if column.id not in mapped:
                if self.allow_missing and column.initial_default is None:
                    self.differences.append(f"column {column.name} is NOT NULL but not in the file")
            elif self.names.of_column(column) not in required or column.id in {
                one.column_id for one in self.mapping if one.is_partition
            }:
                self._forbid_nulls_in(column)

    def _forbid_nulls_in(self, column: Column) -> None:
        """Record NULLs of a column; a nested one that is NULL makes all its leaves so."""
        counts = [self.stats[leaf.id].null_count for leaf in column.leaves() if leaf.id in self.stats]
        if not counts or 0 in counts:
            return
        if column.children or None in counts:
            self.differences.append(
                f"column {column.name} is NOT NULL, and the footer does not rule out NULL in it"
            )
        else:
            self.differences.append(f"column {column.name} is NOT NULL but has {counts[0]} null value(s)")


_FIRST_DATE, _FIRST_TIME = "1582-10-15", "1900-01-01 00:00:00"  # from which on calendars, and zones, agree


def _value_type(type_: pa.DataType) -> pa.DataType:
    """Unwrap types that only Arrow has: dictionaries, extensions, and large and viewed strings."""
    while isinstance(type_, pa.BaseExtensionType) or pa.types.is_dictionary(type_):
        type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_.value_type
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_) else type_


def _bad_bounds(
    chunks: Sequence[pq.ColumnChunkMetaData], column: Column, type_: pa.DataType, where: str
) -> list[str]:
    """List errors in the values that the footer shows; the file's own rows are not read."""
    known = [one.statistics for one in chunks if one.is_stats_set]
    bounds = [raw for one in known if one.has_min_max for raw in (one.min_raw, one.max_raw)]
    found = (bad_bound(raw, column.type, where) for raw in bounds if isinstance(raw, bytes))
    bad = [
        f"column {where} has values that are not valid {one.rule}, such as {one.example}"
        for one in found
        if one
    ]
    if pa.types.is_decimal(type_) and any(abs(_unscaled(raw)) >= 10**type_.precision for raw in bounds):
        bad.append(f"column {where} has values with more digits than its own type {type_} has")
    return bad


def _unscaled(bound: int | bytes) -> int:
    return int.from_bytes(bound, "big", signed=True) if isinstance(bound, bytes) else bound


def _safe(column: Column, stats: ColumnStats) -> ColumnStats:
    """Return statistics without bounds that DuckDB would lose rows by.

    NaN is greater than any bound of a writer that leaves it out, and seconds with a fraction are read as
    other values than those the file has.
    """
    bounds = (stats.min_value or "", stats.max_value or "")
    hides_nan = dl.is_float(column.type) and stats.contains_nan is None and stats.value_count != 0
    is_cut = column.type.facts.step > 1 and any("." in bound for bound in bounds)
    if not hides_nan and not is_cut:
        return stats
    return replace(stats, min_value=None, max_value=None, min_is_exact=None, max_is_exact=None)


def _all_null(column: Column, rows: int, *, in_list: bool = False) -> Iterator[tuple[ColumnId, ColumnStats]]:
    """Yield the statistics of a column that the file lacks; how many there are of a list's is unknown."""
    if not column.children:
        yield column.id, ColumnStats(column.id, 0, None if in_list else rows, None, None, None, 0)
    for child in column.children:
        yield from _all_null(child, rows, in_list=in_list or not isinstance(column.type, dl.StructType))


def _constant(column: Column, value: physical.Physical | None, rows: int) -> ColumnStats:
    nulls = rows if value is None else 0
    is_nan = isinstance(value, float) and math.isnan(value)
    text = None if value is None or is_nan else physical.identity_text(column.type, value)
    return ColumnStats(
        column.id,
        value_count=rows - nulls,
        null_count=nulls,
        min_value=text,
        max_value=text,
        contains_nan=is_nan if dl.is_float(column.type) else None,
        column_size_bytes=0,
        only_nan=is_nan,
    ).with_exactness(column.type)


def partition_values(
    file: DataFile, fields: Sequence[keys.PartitionField], schema: TableSchema, table: str
) -> tuple[str | None, ...]:
    """Return a file's value for each partition key, from its folder's value or bounds that are equal."""
    return tuple(_partition_value(file, key, schema, table) for key in fields)


def _partition_value(file: DataFile, key: keys.PartitionField, schema: TableSchema, table: str) -> str | None:
    known = footer_value(file, key, schema)
    if known is not None:
        return known[0]
    column = schema.by_id(key.column_id)
    raise errors.InvalidPartitionError(
        f"{file.path} may have several values of {key.transform} of column {column.name}, by which {table} "
        "is partitioned. A file belongs to one partition: split it, or name its folder column=value and "
        "set hive_partitioning."
    )


def footer_value(file: DataFile, key: keys.PartitionField, schema: TableSchema) -> tuple[str | None] | None:
    """Return the value of a partition key that all rows of a file have; None: there may be several."""
    column = schema.by_id(key.column_id)
    stats = file.column_stats.get(column.id)
    if stats is not None and stats.value_count == 0 and stats.null_count == file.record_count:
        return (None,)
    if stats is not None and stats.null_count == 0 and None not in (stats.min_value, stats.max_value):
        texts = (str(stats.min_value), str(stats.max_value))
        low, high = (physical.parse_physical(column.type, one) for one in texts)
        if texts[0] == texts[1]:
            return (keys.partition_value(key.transform, column.type, low),)
        values = _values_between(key.transform, column.type, low, high)
        if values is not None and len(values) == 1:
            return (next(iter(values)),)
    return None


def _values_between(
    transform: keys.Transform, type_: dl.DuckLakeType, low: physical.Physical, high: physical.Physical
) -> frozenset[str | None] | None:
    if (
        transform.kind not in keys.OF_TIMES
        or physical.is_infinite(type_, int(low))
        or physical.is_infinite(type_, int(high))
    ):
        return None
    return keys.calendar_values(transform, type_, int(low), int(high))
