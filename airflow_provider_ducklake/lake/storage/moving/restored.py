"""Write restored rows to new files.

A file is copied as it is where all its rows come back and none says which snapshot it came by: the change
feed would show rows of a copy at the snapshots that they name, a second time, and would show the rows that a
copy's delete file leaves out as born and gone. Any other rows are rewritten, with their ids.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import StorageError, UnsupportedFeatureError, UntrustedValueError
from ...format.partitioning import hive_directory
from ...format.schema import TableSchema
from ...planning.upkeep.restore import FilePair, FileState, RewriteBin, has_later_rows
from ..arrow.arrow_types import arrow_field
from ..arrow.reshape import field_id, ordinals
from ..arrow.rows import split_by_partition
from ..deletes.deletes import positions_of
from ..deletes.vectors import VECTOR_MAGIC
from ..files.filesystem import (
    Location,
    StorageOptions,
    child,
    exists,
    file_sizes,
    open_filesystem,
    open_input,
    storage_errors,
)
from ..files.local import lies_below, make_parents, sync_directory
from ..files.parallel import in_threads
from ..files.writing import CopiedFile, copy_file
from ..parquet.footer import open_footer
from ..parquet.modules import TAIL_BYTES, footer_length
from ..parquet.opening import (
    ParquetOutput,
    Written,
    annotations_of,
    open_parquet,
    read_plain_footer,
    with_annotations,
)
from ..parquet.reader import read_data_file
from ..parquet.writer import RollingWriter, columns_with_statistics
from ..rows.inlined_values import inlined_in_schema
from ..rows.table_reader import ROW_ID, SNAPSHOT_ID, gone_positions
from .compact import Merging, marked

if TYPE_CHECKING:
    from ...format.files import DataFile, LiveDataFile
    from ...planning.reading.scan import InlinedRows, ScanPlan
    from ...planning.writing.write import ParquetSettings


@dataclass(frozen=True, slots=True)
class Restoring:
    """A table as two snapshots read it: the one that comes back, and the newest; None: it was dropped."""

    target: ScanPlan
    current: ScanPlan | None
    locate: Callable[[str], Location] = open_filesystem

    def file_state(self, pair: FilePair) -> FileState:
        """Find out which rows of a file return, and which came since."""
        dead, later = self._gone_then(pair.target), self._later(pair.target)
        absent = _unique(pa.concat_arrays([dead, later]))
        is_plain = not len(absent) and not self._has_stamps(pair.target)
        if pair.current is None or self.current is None:
            return FileState(pair, pair.target.record_count - len(absent), positions_of(_NONE), is_plain)
        gone = _unique(gone_positions(self.current, pair.current, self.locate))
        return FileState(
            pair, len(_minus(gone, absent)), positions_of(_ascending(_minus(later, gone))), is_plain
        )

    def _gone_then(self, file: LiveDataFile) -> pa.Array:
        return _unique(gone_positions(self.target, file, self.locate))

    def _later(self, file: LiveDataFile) -> pa.Array:
        """Return the positions of rows that were inserted after the snapshot."""
        at = self.target.table.snapshot.id
        if not has_later_rows(file, at):
            return _NONE
        rows = read_data_file(
            file,
            TableSchema((SNAPSHOT_ID,)),
            table=str(self.target.table.name),
            snapshot_id=at,
            locate=self.locate,
        )
        is_later = pc.fill_null(pc.greater(rows.column(SNAPSHOT_ID), at), False)  # noqa: FBT003 - the filling
        return ordinals(rows.row_count).filter(is_later.combine_chunks())

    def _has_stamps(self, file: LiveDataFile) -> bool:
        location = self.locate(file.path).with_key(file.encryption_key)
        with storage_errors(location.uri, "read"), open_parquet(location) as source:
            fields = pq.ParquetFile(source).schema_arrow
        own = (SNAPSHOT_ID.id, SNAPSHOT_ID.name)
        return any(field_id(field) in own or field.name in own for field in fields)

    def copy(self, source: str, target: str) -> None:
        """Copy a file whole, within its store where it can do that."""
        try:
            copy_file(self.locate(source), self.locate(target))
        except StorageError as error:
            table = self.target.table
            raise StorageError(
                f"{error} It held rows of {table.name} at snapshot {table.snapshot.id}, which cannot be "
                "restored without it. Nothing was changed."
            ) from error

    def rewrite(
        self, files: RewriteBin, next_path: Callable[[], str], settings: ParquetSettings
    ) -> list[DataFile]:
        """Write the rows of files that return, with their ids, holding little more than a row group."""
        schema = self.target.table.schema
        rows = (part for pair in files.pairs for part in self._returning(pair, schema, settings))
        written = self._written(rows, next_path, settings)
        return [_known_by_catalog(one, files.partition_values) for one in written]

    def write_inlined(
        self, parts: Sequence[InlinedRows], path_in: Callable[[str], str], settings: ParquetSettings
    ) -> Iterator[DataFile]:
        """Write rows that lay in the catalog, with their ids, a file or more for each partition.

        ``path_in`` is given the folders of a partition, below the table's directory.
        """
        if not parts:
            return
        schema = self.target.table.schema
        spec = self.target.table.partition_spec
        keys = spec.fields if spec is not None else ()
        row_ids = pa.array([one for part in parts for one in part.row_ids], pa.int64())
        rows = inlined_in_schema(parts, schema).append_column(ROW_ID.name, row_ids)
        for values, partition in split_by_partition(rows, schema, keys):
            folders = hive_directory(keys, schema, values) if settings.hive_file_pattern else ""
            for one in self._written(iter([partition]), partial(path_in, folders), settings):
                yield _known_by_catalog(one, values)

    def _written(
        self, parts: Iterator[pa.Table], next_path: Callable[[], str], settings: ParquetSettings
    ) -> Sequence[DataFile]:
        """Write rows, each with its id behind its columns."""
        target = TableSchema((*self.target.table.schema.columns, ROW_ID))
        with RollingWriter(target, next_path, settings, locate=self.locate) as writer:
            for rows in parts:
                writer.write(rows)
        return writer.files

    def _returning(
        self, pair: FilePair, schema: TableSchema, settings: ParquetSettings
    ) -> Iterator[pa.Table]:
        """Yield the rows that return, each with its id behind its columns."""
        table = self.target.table
        merging = Merging(str(table.name), table.snapshot.id, settings, self.locate)
        live = pc.invert(marked(pair.target, self._gone_then(pair.target)))
        gone = None
        if pair.current is not None and self.current is not None:
            gone = marked(pair.target, gone_positions(self.current, pair.current, self.locate))

        def return_(before: int, snapshots: pa.ChunkedArray) -> pa.ChunkedArray:
            place = slice(before, before + len(snapshots))
            had = pc.and_(pc.less_equal(snapshots, table.snapshot.id), live[place])
            return had if gone is None else pc.and_(had, gone[place])

        for rows in merging.numbered_rows(pair.target, schema, return_):
            yield rows.drop_columns([SNAPSHOT_ID.name])


_NONE = pa.array([], pa.int64())


def _unique(positions: pa.Array) -> pa.Array:
    return pc.unique(positions)


def _minus(left: pa.Array, right: pa.Array) -> pa.Array:
    return left.filter(pc.invert(pc.is_in(left, value_set=right)))


def _ascending(positions: pa.Array) -> pa.Array:
    return positions.take(pc.sort_indices(positions))


def _known_by_catalog(written: DataFile, partition_values: tuple[str | None, ...]) -> DataFile:
    stats = {one: known for one, known in written.column_stats.items() if one != ROW_ID.id}
    return replace(written, column_stats=stats, partition_values=partition_values, has_row_ids=True)


# Copy a data file and add the snapshot that each row comes from.
#
# The rows keep their order, so row ids and delete files that count rows still fit; all columns stay, with
# their names, ids and types. *Source:* the merged files of the reference (docs/sources.md, maintenance).


_BATCH_ROWS = 122_880


def is_stamped(source: Location, counts: Sequence[tuple[int, int]]) -> bool:
    """Return True if a file already stores the snapshot of each row, and these equal ``counts``."""
    with storage_errors(source.uri, "read"), open_parquet(source) as stream:
        footer_length(stream.read_at(TAIL_BYTES, max(0, stream.size() - TAIL_BYTES)), source.uri)
        file = pq.ParquetFile(stream)
        name = next((field.name for field in file.schema_arrow if _is_stamp(field)), None)
        return name is not None and file.read(columns=[name]).column(0).equals(_stamps(counts))


def check_copyable(source: Location) -> None:
    """Find out whether ``write_stamped`` could copy a file, by its footer alone."""
    open_footer(source)  # checks it: the codec of a column is asked for below
    with storage_errors(source.uri, "read"), open_parquet(source) as stream:
        file = pq.ParquetFile(stream)
        copy = pa.BufferOutputStream()
        with _writer(copy, file):
            pass
        found = annotations_of(read_plain_footer(stream, source.uri))
        copied = pq.ParquetFile(
            pa.BufferReader(with_annotations(copy.getvalue().to_pybytes(), found, source.uri))
        )
    for before, after in zip(_columns(file), _columns(copied), strict=False):
        if before != after:
            raise UnsupportedFeatureError(
                f"{source.uri}: column {before[0]} is stored as {' '.join(before[1:])}, but a copy would "
                f"have {' '.join(after[1:])}, which other clients read as other values. This release cannot "
                "copy it."
            )


def write_stamped(source: Location, target: Location, counts: Sequence[tuple[int, int]]) -> Written:
    """Write the copy and return its entry for the catalog.

    ``counts`` are snapshots, each with the number of rows up to it; the last one has all.
    """
    check_copyable(source)
    with storage_errors(source.uri, "copy"), open_parquet(source) as stream:
        file = pq.ParquetFile(stream, pre_buffer=not source.is_local)
        if file.metadata.num_rows != counts[-1][1]:
            raise StorageError(
                f"{source.uri} has {file.metadata.num_rows} rows, but the catalog says {counts[-1][1]}."
            )
        output = ParquetOutput(target, annotations_of(read_plain_footer(stream, source.uri)))
        try:
            _copy(file, output, _stamps(counts))
            return output.finish()
        except BaseException:
            output.abort()
            raise


def _copy(file: pq.ParquetFile, output: ParquetOutput, stamps: pa.ChunkedArray) -> None:
    done = 0
    with _writer(output.sink, file) as writer:
        for batch in file.iter_batches(_BATCH_ROWS, columns=writer.schema.names[:-1]):
            rows = pa.Table.from_batches([batch])
            rows = rows.append_column(_STAMP, stamps.slice(done, rows.num_rows))
            writer.write_table(rows.cast(writer.schema))
            done += rows.num_rows
        output.expect_footer()


_STAMP = arrow_field(SNAPSHOT_ID)


def _is_stamp(field: pa.Field) -> bool:
    return field_id(field) == SNAPSHOT_ID.id


def _writer(sink: Any, file: pq.ParquetFile) -> pq.ParquetWriter:  # noqa: ANN401 - a file object
    schema = pa.schema([*(field for field in file.schema_arrow if not _is_stamp(field)), _STAMP])
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        compression=_compression(file.metadata),
        write_statistics=columns_with_statistics(schema),
        store_decimal_as_integer=True,
        store_schema=False,
    )


def _compression(metadata: pq.FileMetaData) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "snappy"
    codec: str = metadata.row_group(0).column(0).compression
    return {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(codec, codec).lower()


def _stamps(counts: Sequence[tuple[int, int]]) -> pa.ChunkedArray:
    parts, done = [], 0
    for snapshot, count in counts:
        parts.append(pa.repeat(pa.scalar(snapshot, pa.int64()), count - done))
        done = count
    return pa.chunked_array(parts, pa.int64())


def _columns(file: pq.ParquetFile) -> list[tuple[str, ...]]:
    """Return of each leaf its path, and what says which values its bytes are."""
    schema = file.schema
    return [(schema.column(place).path, *_storage(schema.column(place))) for place in range(len(schema))]


# The integers that need no annotation.
_UNSAID = {f"Int(bitWidth={bits}, isSigned=true)": "None" for bits in (32, 64)}


def _storage(column: pq.ColumnSchema) -> tuple[str, ...]:
    logical = _UNSAID.get(str(column.logical_type), str(column.logical_type))
    if logical.startswith("Decimal"):
        return (logical,)  # says itself what integers and bytes of any width mean
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return (f"{column.physical_type}({column.length})", logical)
    return (column.physical_type, logical)


# Copy the files of a frozen lake, and put its catalog in its place.


_PRIVATE = 0o600
_LEAST_BYTES = 12  # of a Parquet file: its words at both ends, and the length of its footer
_OF_LAKES = {(word, word) for word in (b"PAR1", b"PARE", b"PFA1")}  # Parquet, encrypted, Puffin
_VECTOR_ENDS = 8  # bytes that a vector's own length leaves out


def copy_files(
    copies: Mapping[str, CopiedFile], folder: str, options: StorageOptions, locate: Callable[[str], Location]
) -> None:
    """Copy files, several at once; ``copies`` are those by the path below ``folder``.

    Those that are there already, by their size, were copied by a try before: files of a lake never change.
    """
    there = file_sizes(folder, options)
    target = open_filesystem(folder, options)

    def copy(path: str) -> None:
        source, place = locate(copies[path].source), child(target, path)
        problem = not_a_lake_file_reason(source, copies[path].size)
        if problem is not None:
            raise UntrustedValueError("A row of the catalog", source.uri, problem)
        if place.is_local and not lies_below(str(Path(place.path).parent), target.path):
            problem = "would lie elsewhere by a link in the folder"
            raise UntrustedValueError(f"The export to {folder}", path, problem)
        copy_file(source, place)

    in_threads(copy, [path for path, file in copies.items() if there.get(path, -1) != file.size])


def not_a_lake_file_reason(file: Location, size: int | None) -> str | None:
    """Explain why a file is no Parquet or Puffin file of its size, to complete "which …"; None: it is one.

    A row of the catalog may name any file.
    """
    with storage_errors(file.uri, "read"), open_input(file) as stream:
        found = stream.size()
        first, second = bytes(stream.read(4)), bytes(stream.read(4))
        last = b"" if found < _LEAST_BYTES else _last(stream, found)
    is_vector = second == VECTOR_MAGIC and int.from_bytes(first) == found - _VECTOR_ENDS
    if (is_vector or (first, last) in _OF_LAKES) and size in (None, found):
        return None
    wanted = "" if size is None else f" of {size} bytes"
    return f"has {found} bytes and is not the Parquet or Puffin file{wanted} that a lake would have there"


def _last(stream: pa.NativeFile, size: int) -> bytes:
    stream.seek(size - 4)
    return bytes(stream.read(4))


def is_there(path: str, options: StorageOptions) -> bool:
    """Return True if a file is there."""
    return exists(path, options)


def fetch(path: str, to: Path, options: StorageOptions) -> None:
    """Copy a file to a local one."""
    copy_file(open_filesystem(path, options), open_filesystem(str(to), {}))


def publish(made: Path, path: str, options: StorageOptions, *, mode: int, replaces: bool) -> bool:
    """Put a file where it is to be, whole at once, on a local disk with a mode; return whether it is there.

    False: another one came first, and ``replaces`` is not given. An object store keeps whichever comes last.
    """
    target = open_filesystem(path, options)
    if not target.is_local:
        copy_file(open_filesystem(str(made), {}), target)
        return True
    with storage_errors(path, "write"):
        return _publish_locally(made, Path(target.path), mode=mode, replaces=replaces)


def _linked(made: Path, target: Path) -> bool:
    """Give a file its name if that is free; return False if it is taken."""
    try:
        target.hardlink_to(made)  # unlike a rename it fails where something is
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if target.exists():
            return False
        made.replace(target)
    return True


def _publish_locally(made: Path, target: Path, *, mode: int, replaces: bool) -> bool:
    make_parents(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.touch(_PRIVATE, exist_ok=False)
        shutil.copyfile(made, temporary)
        temporary.chmod(mode)
        with temporary.open("rb") as copied:
            os.fsync(copied.fileno())
        if replaces:
            temporary.replace(target)
        elif not _linked(temporary, target):
            return False
        sync_directory(target.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)
