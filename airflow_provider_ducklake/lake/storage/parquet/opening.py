"""Parquet files as plain ones, whether their lake is encrypted or not: opened to read, and made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StorageError
from ...format.files import FileKey
from ..files.filesystem import Location, open_input, storage_errors
from ..files.writing import OutputFile
from . import modules
from .modules import MAGIC, TAIL_BYTES, ModuleKind, Struct

if TYPE_CHECKING:
    from .encrypted import EncryptedOutput

# A Parquet file whose footer is changed on its way out: it adds what pyarrow cannot write.
#
# *Source:* Apache Parquet, ``parquet.thrift``: ``SchemaElement``, ``ConvertedType``, ``LogicalType``.


_SCHEMA = 2  # of FileMetaData
_CHILDREN, _CONVERTED_TYPE, _FIELD_ID, _LOGICAL_TYPE = 5, 6, 9, 10  # of SchemaElement
_TIME_MICROS, _INTERVAL = 8, 21  # of ConvertedType
_TIME, _VARIANT = 7, 16  # of LogicalType
_IS_UTC = 1  # of TimeType
_VERSION = 1  # of VariantType


@dataclass(frozen=True, slots=True)
class Annotations:
    """The types, by field ids, that a writer does not give: variants are groups, the others leaves."""

    variants: frozenset[int] = frozenset()
    intervals: frozenset[int] = frozenset()
    utc_times: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        """Return True if there are any."""
        return bool(self.variants or self.intervals or self.utc_times)


NO_ANNOTATIONS = Annotations()


class FooterEditedOutput:
    """A sink for a Parquet writer that annotates columns, by their field ids, in the footer.

    It passes on what is written until ``hold`` is called, before the writer is closed: what it writes then
    ends with the footer.
    """

    def __init__(self, sink: OutputFile | EncryptedOutput, annotations: Annotations, where: str) -> None:
        self._sink, self._annotations, self._where = sink, annotations, where
        self._held: bytearray | None = None

    @property
    def closed(self) -> bool:
        """Return True if nothing more may be written."""
        return self._sink.closed

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes of the writer's."""
        if self._held is None or self.closed:
            return self._sink.write(data)
        self._held += data
        return len(memoryview(data))

    def hold(self) -> None:
        """Keep what is written from now on, up to ``finish``."""
        self._held = bytearray()

    def tell(self) -> int:
        """Return the number of bytes that the writer has written."""
        return self._sink.tell() + len(self._held or b"")

    def flush(self) -> None:
        """Do nothing: only ``finish`` makes the file visible."""

    def close(self) -> None:
        """Do nothing: a Parquet writer that closes its file may do so because of an error."""

    def finish(self) -> None:
        """Write the footer as it is to be, and make the file complete and lasting."""
        self._sink.write(with_annotations(bytes(self._held or b""), self._annotations, self._where))
        self._sink.finish()


def with_annotations(data: bytes, annotations: Annotations, where: str) -> bytes:
    """Return the end of a Parquet file, or all of it, with types in its footer."""
    start = len(data) - TAIL_BYTES - modules.footer_length(data[-TAIL_BYTES:], where)
    if start < 0:
        raise StorageError(f"{where} is not complete: its footer began before it was expected.")
    footer, _ = modules.read_struct(data, start)
    _annotate(footer, annotations)
    edited = modules.write_struct(footer)
    return data[:start] + edited + len(edited).to_bytes(4, "little") + MAGIC


def _annotate(footer: Struct, annotations: Annotations) -> None:
    for element in footer[_SCHEMA].value.values:
        id_ = element[_FIELD_ID].value if _FIELD_ID in element else None
        if _CHILDREN in element:
            if id_ in annotations.variants:
                version = {_VERSION: modules.ThriftField(ModuleKind.BYTE, 1)}
                element[_LOGICAL_TYPE] = modules.ThriftField(
                    ModuleKind.STRUCT, {_VARIANT: modules.ThriftField(ModuleKind.STRUCT, version)}
                )
        elif id_ in annotations.intervals:
            element[_CONVERTED_TYPE] = modules.ThriftField(ModuleKind.I32, _INTERVAL)
        elif id_ in annotations.utc_times:
            element[_CONVERTED_TYPE] = modules.ThriftField(ModuleKind.I32, _TIME_MICROS)
            element[_LOGICAL_TYPE].value[_TIME].value[_IS_UTC] = modules.ThriftField(
                ModuleKind.TRUE, value=True
            )


def read_plain_footer(source: pa.NativeFile, where: str) -> Struct:
    """Return the footer of a Parquet file that is open, and decrypted."""
    size = source.size()
    length = modules.footer_length(source.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)), where)
    start = max(0, size - TAIL_BYTES - length)
    footer, _ = modules.read_struct(source.read_at(length, start))
    return footer


def annotations_of(footer: Struct) -> Annotations:
    """Return the columns of a file whose types a writer would not give."""
    found: dict[str, set[int]] = {"variants": set(), "intervals": set(), "utc_times": set()}
    for element in footer[_SCHEMA].value.values:
        if _FIELD_ID in element and (kind := _annotated_as(element)) is not None:
            found[kind].add(element[_FIELD_ID].value)
    return Annotations(**{kind: frozenset(ids) for kind, ids in found.items()})


def _annotated_as(element: Struct) -> str | None:
    logical = element[_LOGICAL_TYPE].value if _LOGICAL_TYPE in element else {}
    if _VARIANT in logical:
        return "variants"
    if _CONVERTED_TYPE in element and element[_CONVERTED_TYPE].value == _INTERVAL:
        return "intervals"
    return "utc_times" if _TIME in logical and logical[_TIME].value[_IS_UTC].value else None


def open_parquet(location: Location) -> pa.NativeFile:
    """Return a Parquet file for random reads, decrypted where its lake is encrypted."""
    if not location.is_encrypted:
        return open_plain_parquet(location)
    from .decrypted import DecryptedFile

    source = open_input(location)
    with storage_errors(location.uri, "read"):
        decrypted = DecryptedFile(source, location.key or FileKey(""), location.uri)
        return pa.PythonFile(decrypted, mode="r")


def open_plain_parquet(location: Location) -> pa.NativeFile:
    """Return a Parquet file that is not encrypted; a footer that is too long is not even begun to be read."""
    source = open_input(location)
    with storage_errors(location.uri, "read"):
        size = source.size()
        count = min(size, TAIL_BYTES if location.is_local else modules.READ_AHEAD_BYTES)
        tail = source.read_at(count, size - count)
        if tail.endswith(MAGIC) and size > TAIL_BYTES:  # of anything else, readers say what it is
            modules.footer_length(tail, location.uri)
        return source


@dataclass(frozen=True, slots=True)
class Written:
    """The catalog's facts of a file that was written, besides its rows."""

    file_size_bytes: int
    footer_size: int
    encryption_key: FileKey | None


class ParquetOutput:
    """A new Parquet file, for a writer of plain ones; encrypted with a new key where its lake is.

    ``annotations`` are types of columns that a writer does not have.
    """

    def __init__(self, location: Location, annotations: Annotations = NO_ANNOTATIONS) -> None:
        self._where = location.uri
        self.key = FileKey.of_length(location.key_bytes) if location.key_bytes else None
        cipher = None if self.key is None else modules.Cipher(self.key, location.uri)  # before a file is made
        self._output = OutputFile(location)
        self.sink: OutputFile | EncryptedOutput | FooterEditedOutput = self._output
        if cipher is not None:
            from .encrypted import EncryptedOutput

            self.sink = EncryptedOutput(self._output, cipher, location.uri)
        if annotations:
            self.sink = FooterEditedOutput(self.sink, annotations, location.uri)

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._output.size

    def expect_footer(self) -> None:
        """Prepare for the end of what a writer writes; to be called before it is closed."""
        if isinstance(self.sink, FooterEditedOutput):
            self.sink.hold()

    def finish(self) -> Written:
        """Make the file complete and lasting, when the writer has written its footer."""
        self.sink.finish()
        length = modules.footer_length(self._output.tail, self._where, is_encrypted=self.key is not None)
        return Written(self._output.size, length, self.key)

    def abort(self) -> None:
        """Drop the file; see ``OutputFile``."""
        self._output.abort()


# The values of a Parquet file in Arrow: as DuckDB reads them, and as many as there are.


# rows that are decoded at once where more of them are more than Arrow's nested types hold: 2 GiB of text
_BATCHES = (8_192, 256, 16, 1)
_BATCH_ROWS = 65_536
_TOO_MANY = (pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def parquet_file(source: pa.NativeFile, location: Location) -> pq.ParquetFile:
    """Return a file to read values of; an INT96 is microseconds, since no other unit holds the year 9999."""
    return pq.ParquetFile(source, pre_buffer=not location.is_local, coerce_int96_timestamp_unit="us")


def read_columns(
    source: pq.ParquetFile, columns: Sequence[str], row_groups: Sequence[int], *, use_threads: bool
) -> pa.Table:
    """Return columns of some row groups, in batches where they hold more than Arrow decodes at once."""
    try:
        return source.read_row_groups(row_groups, columns=columns, use_threads=use_threads)
    except _TOO_MANY:
        return _in_batches(source, columns, row_groups, use_threads=use_threads)


def _in_batches(
    source: pq.ParquetFile, columns: Sequence[str], row_groups: Sequence[int], *, use_threads: bool
) -> pa.Table:
    for size in _BATCHES:
        try:
            batches = source.iter_batches(size, row_groups, columns, use_threads=use_threads)
            return pa.Table.from_batches(batches)
        except _TOO_MANY:
            if size == 1:
                raise
    raise AssertionError(_BATCHES)


def batches(source: pq.ParquetFile, columns: Sequence[str], row_group: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches, smaller ones if they hold more than Arrow decodes."""
    done = 0
    for size in (_BATCH_ROWS, *_BATCHES):
        seen = 0
        try:
            for batch in source.iter_batches(size, [row_group], columns):
                seen += batch.num_rows
                if seen > done:  # each size is a multiple of the next
                    done = seen
                    yield batch
        except _TOO_MANY:
            if size == 1:
                raise
        else:
            return


def limit_of(error: Exception) -> str | None:
    """Return the way out where an error says no damage of a file but a limit of those who read it."""
    if isinstance(error, MemoryError):
        return "The machine has too little memory for it: read fewer columns, or with Spark."
    is_overflow = isinstance(error, pa.ArrowInvalid) and "overflow" in str(error)
    if isinstance(error, _TOO_MANY) or is_overflow:
        return "That is a limit of pyarrow, and no damage: read it with DuckDB, or without that column."
    return None
