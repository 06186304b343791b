"""The one Parquet writer: Arrow batches in, finished data files with exact statistics out.

Used by the hook, by tasks of Spark and by compaction. It needs pyarrow only, neither pandas nor numpy.
*Source:* types and field ids as the reference's files (docs/sources.md, inserts); encodings from measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...format.files import DataFile
from ...format.types.ducklake_types import ScalarKind
from ...planning.writing.write import ParquetSettings
from ..arrow.arrow_types import arrow_field, cast_leaf, stored_type
from ..arrow.reshape import Reshaping, by_position, nulls, reshape
from ..arrow.scalars import STORED_INTERVAL
from ..files.filesystem import Location, open_filesystem, storage_errors
from ..nested_values.geometries import WKB, check_geometries, have_box
from .footer import ChunkFacts, NanRule, children_of_field, footer_stats
from .opening import Annotations, FooterEditedOutput, ParquetOutput

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from ..files.writing import OutputFile
    from .encrypted import EncryptedOutput

_SAMPLE_ROWS = 16_384  # the first rows decide the encodings of a file
_REPEATING = 0.5  # share of distinct values up to which a dictionary pays
_FOOTER_KEEPS_BYTES = 2_000  # pyarrow leaves out bounds of more than 4096 bytes together
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_LEVELLED_CODECS = frozenset({"zstd", "gzip", "brotli"})
_INTEGER_DECIMAL_DIGITS = 18


@lru_cache
def parquet_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of files like the reference's: ids everywhere, all fields optional."""
    return pa.schema(
        [arrow_field(column, type_of=stored_type).with_nullable(nullable=True) for column in schema.columns]
    )


class RollingWriter:
    """Writes record batches of one table to as many files as the target size asks for.

    Use it as a context manager: leaving it normally finishes the last file, leaving it by an exception
    removes the unfinished one; finished files stay and are listed in ``files``. Batches have the table's
    columns in order, in the types of ``arrow_types.arrow_schema`` or others that cast to them without loss.
    No rows, no file.
    """

    def __init__(
        self,
        schema: TableSchema,
        next_path: Callable[[], str],
        settings: ParquetSettings | None = None,
        *,
        locate: Callable[[str], Location] = open_filesystem,
    ) -> None:
        self._schema = schema
        self._parquet_schema = parquet_schema(schema)
        self._next_path = next_path
        self._settings = settings or ParquetSettings()
        self._locate = locate
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = self._buffered_bytes = 0
        self._file: _OpenFile | None = None
        self.files: list[DataFile] = []

    def write(self, data: pa.RecordBatch | pa.Table) -> None:
        """Take rows; they reach a file when a row group is full."""
        most = self._settings.row_group_rows
        for batch in self._conform(data).to_batches(max_chunksize=most):
            for part in _cut(batch, self._group_bytes):
                space = most - self._buffered_rows
                for rows in (part.slice(0, space), part.slice(space)):
                    self._buffer(rows)

    @property
    def bytes_written(self) -> int:
        """The number of bytes written to the open file."""
        return 0 if self._file is None else self._file.bytes_written

    @property
    def bytes_waiting(self) -> int:
        """The memory of the rows that wait for their row group to be full."""
        return self._buffered_bytes

    def write_waiting(self) -> None:
        """Write the rows that wait as a row group, full or not."""
        if self._buffered_rows:
            group = pa.Table.from_batches(self._buffered, schema=self._parquet_schema)
            self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0
            self._write_group(group)

    def close(self) -> tuple[DataFile, ...]:
        """Finish the last file and return all of them, in order."""
        self.write_waiting()
        self._finish_file()
        return tuple(self.files)

    def abort(self) -> None:
        """Drop buffered rows, and remove the unfinished file as far as possible."""
        self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0
        file, self._file = self._file, None
        if file is not None:
            file.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.close()
        except BaseException:
            self.abort()
            raise

    def _conform(self, data: pa.RecordBatch | pa.Table) -> pa.Table:
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if table.num_columns != len(self._schema.columns):
            raise ValueError(
                f"got {table.num_columns} columns for a table with {len(self._schema.columns)}: "
                f"{table.schema}"
            )
        columns = [
            reshape(values, column, field.type, Reshaping(by_position, nulls, cast_leaf))
            for values, column, field in zip(
                table.columns, self._schema.columns, self._parquet_schema, strict=True
            )
        ]
        return pa.Table.from_arrays(columns, schema=self._parquet_schema)

    @property
    def _group_bytes(self) -> int:
        """The memory of rows that are enough for a separate row group."""
        return min(self._settings.row_group_bytes, self._settings.target_file_size_bytes)

    def _buffer(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._buffered.append(rows)
            self._buffered_rows += rows.num_rows
            self._buffered_bytes += rows.nbytes
        if self._buffered_rows >= self._settings.row_group_rows or self._buffered_bytes >= self._group_bytes:
            self.write_waiting()

    def _write_group(self, group: pa.Table) -> None:
        if self._file is None:
            location = self._locate(self._next_path())
            if location.key_bytes is None:
                location = location.of_lake(self._settings.key_bytes)
            self._file = _OpenFile(location, self._schema, group, self._settings)
        self._file.write(group)
        if self._file.bytes_written >= self._settings.target_file_size_bytes:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._file is not None:
            self.files.append(self._file.finish())
            self._file = None


def _cut(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts of less than twice so many bytes in memory, as far as single rows allow."""
    count = rows.nbytes // size
    if count < 2 or rows.num_rows < 2:  # noqa: PLR2004
        yield rows
        return
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield from _cut(rows.slice(start, step), size)  # some rows may be larger than others


@lru_cache
def _annotations(schema: TableSchema) -> Annotations:
    columns = [(one.id, one.type.facts) for one in schema.walk()]
    return Annotations(
        variants=frozenset(id_ for id_, row in columns if row.kind is ScalarKind.VARIANT),
        intervals=frozenset(id_ for id_, row in columns if row.kind is ScalarKind.INTERVAL),
        utc_times=frozenset(id_ for id_, row in columns if row.kind is ScalarKind.TIME and row.zoned),
    )


class _OpenFile:
    """One file being written, with what its rows say beyond the footer."""

    def __init__(
        self, location: Location, columns: TableSchema, first_rows: pa.Table, settings: ParquetSettings
    ) -> None:
        self._location = location
        self._columns = columns
        self._known: dict[tuple[int, int], ChunkFacts] = {}
        self._groups = 0
        self._rows = 0
        if location.is_encrypted and settings.page_version != "V1":
            settings = replace(settings, page_version="V1")  # DuckDB 1.5.5 cannot read others encrypted
        schema, sample = parquet_schema(columns), first_rows.slice(0, _SAMPLE_ROWS)
        encodings = _encodings(schema, sample, use_delta=settings.page_version == "V2")
        with storage_errors(location.uri, "write"):
            self._output = ParquetOutput(location, _annotations(columns))
        self._writer = _parquet_writer(self._output.sink, schema, encodings, settings)

    @property
    def bytes_written(self) -> int:
        return self._output.size

    def write(self, rows: pa.Table) -> None:
        leaves = list(zip(_leaf_types(rows.schema), _leaves(rows), strict=True))
        for (path, type_), values in leaves:
            if type_ == WKB:
                check_geometries(values, path)
        with storage_errors(self._location.uri, "write"):
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        for index, ((_, type_), values) in enumerate(leaves):
            facts = _geometry_facts(values) if type_ == WKB else _exact_facts(values)
            if facts is not None:
                self._known[self._groups, index] = facts
        self._groups += 1
        self._rows += rows.num_rows

    def finish(self) -> DataFile:
        with storage_errors(self._location.uri, "write"):
            self._output.expect_footer()
            self._writer.close()
            written = self._output.finish()
        where = self._location.uri
        return DataFile(
            path=where,
            record_count=self._rows,
            file_size_bytes=written.file_size_bytes,
            footer_size=written.footer_size,
            encryption_key=written.encryption_key,
            column_stats=footer_stats(
                self._writer.writer.metadata, self._columns, NanRule.UNKNOWN, known=self._known, where=where
            ),
            row_group_count=self._groups,
        )

    def abort(self) -> None:
        self._output.abort()  # first: whatever the Parquet writer still says goes nowhere
        with suppress(Exception):
            self._writer.close()


@dataclass(frozen=True, slots=True)
class Encodings:
    """Dotted paths of the columns that get a dictionary, and named encodings of others."""

    dictionaries: tuple[str, ...]
    named: Mapping[str, str]


def _level(codec: str, wanted: int | None) -> int | None:
    """Return the level of a codec that has some, its last where less or more is wanted."""
    if wanted is None or codec not in _LEVELLED_CODECS:
        return None
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    return int(min(max(wanted, least), most))


def _parquet_writer(
    sink: OutputFile | EncryptedOutput | FooterEditedOutput,
    schema: pa.Schema,
    encodings: Encodings,
    settings: ParquetSettings,
) -> pq.ParquetWriter:
    codec = settings.compression.lower()
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        compression=_CODECS.get(codec, codec),
        compression_level=_level(codec, settings.compression_level),
        write_statistics=columns_with_statistics(schema),
        use_dictionary=list(encodings.dictionaries),
        column_encoding=dict(encodings.named) or None,
        data_page_version="2.0" if settings.page_version == "V2" else "1.0",
        store_decimal_as_integer=True,
        store_schema=False,  # readers need no trace of Arrow's own types
    )


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the dotted paths of the columns whose statistics go into the footer: all but floats, intervals.

    Arrow leaves NaN out of the bounds silently; DuckDB takes them to cover NaN, which it orders above
    all numbers, and skips row groups where ``c > max`` holds for a NaN. The catalog has exact bounds.
    The bytes of intervals are in no order.
    """
    leaves = _leaf_types(schema)
    without = {path for path, type_ in leaves if pa.types.is_floating(type_) or type_ == STORED_INTERVAL}
    return sorted({path for path, _ in leaves} - without)


def _encodings(schema: pa.Schema, rows: pa.Table, *, use_delta: bool) -> Encodings:
    """Choose by the first rows: a dictionary where they repeat, deltas for other integers."""
    dictionaries: set[str] = set()
    integers: set[str] = set()
    others: set[str] = set()
    sample = _leaves(rows)
    for (path, _), values in zip(_leaf_types(schema), sample, strict=True):
        if _repeats(values):
            dictionaries.add(path)
        elif use_delta and _is_stored_as_integer(values.type):
            integers.add(path)
        else:
            others.add(path)  # two columns share a dotted path when one has a dot in its name
    named = dict.fromkeys(sorted(integers - dictionaries - others), "DELTA_BINARY_PACKED")
    return Encodings(tuple(sorted(dictionaries)), named)


@lru_cache
def _leaf_types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return the dotted Parquet path and the type of each leaf column, in file order."""
    return [leaf for field in schema for leaf in _types_below(field.type, field.name)]


def _types_below(type_: pa.DataType, path: str) -> list[tuple[str, pa.DataType]]:
    below = children_of_field(type_)
    if not below:
        return [(path, type_)]
    group = "" if pa.types.is_struct(type_) else ".key_value" if pa.types.is_map(type_) else ".list"
    return [leaf for child in below for leaf in _types_below(child.type, f"{path}{group}.{child.name}")]


def _repeats(values: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(values.type):
        return False
    count = len(values) - values.null_count
    return count * _REPEATING >= 1 and bool(pc.count_distinct(values).as_py() <= count * _REPEATING)


def _is_stored_as_integer(type_: pa.DataType) -> bool:
    if pa.types.is_decimal(type_):
        return bool(type_.precision <= _INTEGER_DECIMAL_DIGITS)
    return bool(pa.types.is_integer(type_) or pa.types.is_temporal(type_))


def _leaves(rows: pa.Table) -> Iterator[pa.ChunkedArray]:
    """Yield the values of each Parquet column, in file order, without slots that hold no list element."""
    for column in rows.columns:
        yield from leaves_of(column)


def leaves_of(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the values of each Parquet column that a column becomes, as ``_leaves`` does."""
    stored = _without_extensions(column.type)  # Arrow cannot flatten lists of extension types
    return _leaves_of(column if stored == column.type else column.cast(stored))


def values_of_leaves(column: Column, values: pa.ChunkedArray) -> list[tuple[Column, pa.ChunkedArray]]:
    """Return the values of each field of a column that has no fields itself; a variant is one."""
    stored = _without_extensions(values.type)
    return _leaf_values(column, values if stored == values.type else values.cast(stored))


def _leaf_values(column: Column, values: pa.ChunkedArray) -> list[tuple[Column, pa.ChunkedArray]]:
    if not column.children:
        return [(column, values)]
    if pa.types.is_struct(values.type):
        children = values.flatten()
    elif pa.types.is_map(values.type):
        entries = pa.struct([values.type.key_field, values.type.item_field])
        children = _map_chunks(values, _entries, entries).flatten()
    else:
        children = [_map_chunks(values, lambda chunk: chunk.flatten(), values.type.value_type)]
    pairs = zip(column.children, children, strict=True)
    return [leaf for child, found in pairs for leaf in _leaf_values(child, found)]


def _without_extensions(type_: pa.DataType) -> pa.DataType:
    """Return the type with every extension type in it, as uuid, replaced by what it is stored as."""
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field))
    if pa.types.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    return type_


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_without_extensions(field.type))


def _leaves_of(values: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    type_ = values.type
    if pa.types.is_struct(type_):
        return [leaf for child in values.flatten() for leaf in _leaves_of(child)]
    if pa.types.is_map(type_):
        entries = pa.struct([type_.key_field, type_.item_field])
        return _leaves_of(_map_chunks(values, _entries, entries))
    if pa.types.is_list(type_):
        return _leaves_of(_map_chunks(values, lambda chunk: chunk.flatten(), type_.value_type))
    return [values]


def _entries(maps: pa.MapArray) -> pa.StructArray:
    fields = [maps.type.key_field, maps.type.item_field]
    keys, items = maps.keys, maps.items
    if pa.types.is_null(items.type):  # Arrow's cast gives as many as there are maps
        items = pa.nulls(len(keys))
    entries = pa.StructArray.from_arrays([keys, items], fields=fields)
    lists = pa.list_(pa.field("key_value", entries.type, nullable=False))
    offsets = maps.buffers()[:2]
    return pa.ListArray.from_buffers(
        lists, len(maps), offsets, offset=maps.offset, children=[entries]
    ).flatten()


def _map_chunks(
    values: pa.ChunkedArray, function: Callable[[pa.Array], pa.Array], type_: pa.DataType
) -> pa.ChunkedArray:
    return pa.chunked_array([function(chunk) for chunk in values.chunks], type=type_)


def _geometry_facts(values: pa.ChunkedArray) -> ChunkFacts:
    """Return the counts of geometries, which have no bounds, and whether the footer's box is theirs."""
    count = len(values) - values.null_count
    return ChunkFacts(count, 0, None, None, geometries_have_box=have_box(values))


def _exact_facts(values: pa.ChunkedArray) -> ChunkFacts | None:
    """Compute facts of a row group's values that the footer will lack; None if it has all."""
    if pa.types.is_floating(values.type):
        return _float_facts(values.drop_null())
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return _long_text_facts(values)
    return None


def _float_facts(values: pa.ChunkedArray) -> ChunkFacts:
    is_nan = pc.is_nan(values)
    contains_nan = bool(pc.any(is_nan).as_py())
    numbers = values.filter(pc.invert(is_nan)) if contains_nan else values
    if not len(numbers):
        return ChunkFacts(len(values), 0, None, None, contains_nan, only_nan=contains_nan)
    extremes = pc.min_max(numbers).as_py()
    low, high = (
        _first_zero(numbers) if extremes[end] == 0 else float(extremes[end]) for end in ("min", "max")
    )
    return ChunkFacts(len(values), 0, low, high, contains_nan)


def _first_zero(numbers: pa.ChunkedArray) -> float:
    """Return 0.0 or -0.0, whichever comes first, as the reference keeps it: they compare equal."""
    zero = pa.scalar(0, numbers.type)
    return float(numbers[pc.index(pc.equal(numbers, zero), True).as_py()].as_py())


def _long_text_facts(values: pa.ChunkedArray) -> ChunkFacts | None:
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest is None or longest <= _FOOTER_KEEPS_BYTES:
        return None
    extremes = pc.min_max(values.cast(pa.binary())).as_py()
    return ChunkFacts(len(values) - values.null_count, 0, extremes["min"], extremes["max"])
