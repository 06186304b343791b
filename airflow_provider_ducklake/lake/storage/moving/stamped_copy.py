"""Copy a data file and add the snapshot that each row comes from.

The rows keep their order, so row ids and delete files that count rows still fit; all columns stay, with
their names, ids and types. *Source:* the merged files of the reference (docs/sources.md, maintenance).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import arrow_field
from airflow_provider_ducklake.lake.storage.parquet.footer import open_footer
from airflow_provider_ducklake.lake.storage.parquet.footer_edits import (
    annotated,
    annotations_of,
    read_plain_footer,
)
from airflow_provider_ducklake.lake.storage.parquet.footer_end import TAIL_BYTES, footer_length
from airflow_provider_ducklake.lake.storage.parquet.opening import ParquetOutput, open_parquet
from airflow_provider_ducklake.lake.storage.parquet.reshape import field_id
from airflow_provider_ducklake.lake.storage.parquet.writer import columns_with_statistics
from airflow_provider_ducklake.lake.storage.rows.table_reader import SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.parquet.opening import Written

_BATCH_ROWS = 122_880


def is_stamped(source: Location, counts: Sequence[tuple[int, int]]) -> bool:
    """Whether a file says already of each row which snapshot it came by, and says what ``counts`` says.

    Raises:
        StorageError: it is missing or damaged.
        UnsupportedFeatureError: it is encrypted, and has no key.
    """
    with naming_errors(source.uri, "read"), open_parquet(source) as stream:
        footer_length(stream.read_at(TAIL_BYTES, max(0, stream.size() - TAIL_BYTES)), source.uri)
        file = pq.ParquetFile(stream)
        name = next((field.name for field in file.schema_arrow if _is_stamp(field)), None)
        return name is not None and file.read(columns=[name]).column(0).equals(_stamps(counts))


def check_copyable(source: Location) -> None:
    """Find out whether ``write_stamped`` could copy a file, by its footer alone.

    Raises:
        StorageError: it is missing or damaged.
        UnsupportedFeatureError: a column would not be the same in the copy.
    """
    open_footer(source)  # checks it: the codec of a column is asked for below
    with naming_errors(source.uri, "read"), open_parquet(source) as stream:
        file = pq.ParquetFile(stream)
        copy = pa.BufferOutputStream()
        with _writer(copy, file):
            pass
        found = annotations_of(read_plain_footer(stream, source.uri))
        copied = pq.ParquetFile(pa.BufferReader(annotated(copy.getvalue().to_pybytes(), found, source.uri)))
    for before, after in zip(_columns(file), _columns(copied), strict=False):
        if before != after:
            raise UnsupportedFeatureError(
                f"{source.uri}: column {before[0]} is stored as {' '.join(before[1:])}, but a copy would "
                f"have {' '.join(after[1:])}, which other clients read as other values. This release cannot "
                "copy it."
            )


def write_stamped(source: Location, target: Location, counts: Sequence[tuple[int, int]]) -> Written:
    """Write the copy and return what the catalog is to know of it.

    ``counts`` are snapshots, each with the number of rows up to it; the last one has all.

    Raises:
        StorageError: the file is missing or damaged, has another number of rows, or no copy can be written.
        UnsupportedFeatureError: as ``check_copyable``.
    """
    check_copyable(source)
    with naming_errors(source.uri, "copy"), open_parquet(source) as stream:
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


# What these integers are without a word.
_UNSAID = {f"Int(bitWidth={bits}, isSigned=true)": "None" for bits in (32, 64)}


def _storage(column: pq.ColumnSchema) -> tuple[str, ...]:
    logical = _UNSAID.get(str(column.logical_type), str(column.logical_type))
    if logical.startswith("Decimal"):
        return (logical,)  # says itself what integers and bytes of any width mean
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return (f"{column.physical_type}({column.length})", logical)
    return (column.physical_type, logical)
