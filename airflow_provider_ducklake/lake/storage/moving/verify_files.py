"""Check that files match their rows in the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from ...errors import InvalidTypeError, StorageError, UnsupportedFeatureError
from ...format.names.identifiers import fold
from ...format.partitioning import PartitionSpec, TransformKind, is_local, partition_value
from ...format.types.ducklake_types import DuckLakeType, is_float, is_misread_by_filters
from ...format.types.values import parse_physical
from ...planning.reading.pruning import TextBounds, covers, has_bounds
from ...planning.upkeep.findings import Finding, FindingCode, Named
from ..arrow.arrow_types import ducklake_type
from ..arrow.reshape import field_id
from ..deletes.deletes import deleted_rows
from ..deletes.vectors import footer_bytes
from ..files.filesystem import Location, read_whole, storage_errors
from ..parquet.footer import NanRule, check_field_ids, footer_stats, read_metadata
from ..rows.table_reader import SNAPSHOT_ID, row_id_column

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ...format.files import ColumnStats, LiveDataFile, LiveDeleteFile
    from ...format.schema import TableSchema
    from ...format.snapshots import ColumnId

_MAY_BE_CUT = 60  # bytes: writers shorten statistics of longer texts


@dataclass(frozen=True, slots=True)
class FileToVerify:
    """A data file with the data to check it; ``table`` is for messages.

    ``schema`` are the columns when the file began (None: unknown), ``types`` all types that a column had.
    """

    file: LiveDataFile
    table_id: int
    table: str
    schema: TableSchema | None
    types: Mapping[ColumnId, tuple[DuckLakeType, ...]]
    spec: PartitionSpec | None
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class DeletesToVerify:
    """A delete file with the number of rows of its data file (None: unknown).

    ``may_be_container``: the lake's version has deletion vectors of several snapshots in one file.
    """

    file: LiveDeleteFile
    table_id: int
    table: str
    record_count: int | None
    may_be_container: bool = False


def verify_data_file(location: Location, asked: FileToVerify) -> list[Finding]:
    """Check a data file by its footer, and list the findings."""
    file = asked.file
    about = _About(
        f"Data file {file.id} of {asked.table} ({file.path})",
        {"table_id": asked.table_id, "data_file_id": file.id},
    )
    try:
        metadata, size, footer_size = read_metadata(location)
    except (StorageError, UnsupportedFeatureError) as error:
        return [_unreadable(location, about, error)]
    return [
        *_sizes(about, size, footer_size, file),
        *_row_count(about, metadata.num_rows, file.record_count),
        *_columns(about, metadata, asked),
    ]


@dataclass(frozen=True, slots=True)
class _About:
    """The name of a file in messages, and the ids that identify it."""

    name: str
    objects: Mapping[str, Named]

    def finding(self, code: FindingCode, words: str, **more: Named) -> Finding:
        return Finding(code, f"{self.name} {words}.", {**self.objects, **more})


def _unreadable(location: Location, about: _About, error: Exception) -> Finding:
    try:
        with storage_errors(location.uri, "look at"):
            info = location.filesystem.get_file_info(location.path)
    except StorageError:
        return about.finding(FindingCode.FILE_UNREADABLE, f"cannot be read: {error}")
    if info.type == pafs.FileType.NotFound:
        return about.finding(FindingCode.FILE_MISSING, "does not exist")
    return about.finding(FindingCode.FILE_UNREADABLE, f"cannot be read: {error}")


def _sizes(
    about: _About, size: int, footer_size: int, recorded: LiveDataFile | LiveDeleteFile
) -> Iterator[Finding]:
    if recorded.file_size_bytes != size:
        words = f"has {size} bytes, but the catalog says {recorded.file_size_bytes}"
        yield about.finding(FindingCode.FILE_SIZE_DIFFERS, words, found=size)
    if recorded.footer_size is not None and recorded.footer_size != footer_size:
        words = (
            f"has a footer of {footer_size} bytes, but the catalog says {recorded.footer_size}: DuckDB fails"
        )
        yield about.finding(FindingCode.FOOTER_SIZE_DIFFERS, words, found=footer_size)


def _row_count(about: _About, found: int, recorded: int | None) -> Iterator[Finding]:
    if found != recorded:
        words = f"has {found} rows, but the catalog says {recorded}"
        yield about.finding(FindingCode.RECORD_COUNT_DIFFERS, words, found=found)


def _columns(about: _About, metadata: pq.FileMetaData, asked: FileToVerify) -> Iterator[Finding]:
    try:
        fields = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, NotImplementedError):
        return  # types that Arrow does not have
    yield from _own_columns(about, fields, asked.file)
    if asked.is_live and asked.schema is not None:
        yield from _narrower(about, fields, asked, asked.schema)
    if asked.file.mapping_id is not None or asked.schema is None:
        return
    try:
        check_field_ids(fields, asked.schema.columns, "it")
        rule = NanRule.of_writer(metadata.created_by)
        found = footer_stats(metadata, asked.schema, rule)
    except UnsupportedFeatureError as error:
        words = f"has columns without field ids, which are read by position: {error}"
        yield about.finding(FindingCode.FIELD_IDS_MISSING, words)
        return
    yield from _statistics(about, found, asked)
    yield from _partition(about, found, asked)


def _narrower(
    about: _About, fields: pa.Schema, asked: FileToVerify, schema: TableSchema
) -> Iterator[Finding]:
    """Note the columns that the file has in a type by which DuckDB misreads conditions on them."""
    by_id = {found: one for one in fields if (found := field_id(one)) is not None}
    by_name = {fold(one.name): one for one in fields}
    for column in schema.columns:
        field = by_id.get(column.id) if asked.file.mapping_id is None else by_name.get(fold(column.name))
        types = asked.types.get(column.id)
        with suppress(InvalidTypeError):
            if field is None or not types:
                continue
            in_file = ducklake_type(field.type, field.name)
            if is_misread_by_filters(in_file, types[-1]):
                words = (
                    f"has column {column.id} as {in_file}, which is {types[-1]} by now: DuckDB casts "
                    "values of conditions on it to the former, and finds and deletes wrong rows"
                )
                yield about.finding(FindingCode.TYPE_NARROWER, words, column_id=column.id)


def _own_columns(about: _About, fields: pa.Schema, file: LiveDataFile) -> Iterator[Finding]:
    if file.row_id_start is None and row_id_column(fields) is None:
        words = "has neither a first row id nor a column of row ids"
        yield about.finding(FindingCode.ROW_IDS_MISSING, words)
    if file.partial_max is not None and not _has_snapshot_ids(fields):
        words = f"should have rows of snapshots up to {file.partial_max}, but does not say which"
        yield about.finding(FindingCode.SNAPSHOT_IDS_MISSING, words)


def _has_snapshot_ids(fields: pa.Schema) -> bool:
    return any(one.name == SNAPSHOT_ID.name or field_id(one) == SNAPSHOT_ID.id for one in fields)


def _statistics(
    about: _About, found: Mapping[ColumnId, ColumnStats], asked: FileToVerify
) -> Iterator[Finding]:
    for column_id, actual in found.items():
        recorded = asked.file.column_stats.get(column_id)
        types = tuple(one for one in asked.types.get(column_id, ()) if has_bounds(one))
        if recorded is None or not types:
            continue
        inner = TextBounds(actual.min_value, actual.max_value)
        outer = TextBounds(recorded.min_value, recorded.max_value)
        if not covers(outer, inner, types):
            words = (
                f"has {inner.low!r} to {inner.high!r} in column {column_id}, but the catalog says "
                f"{outer.low!r} to {outer.high!r}"
            )
            yield about.finding(
                FindingCode.FILE_STATS_NARROW, words, column_id=column_id, low=inner.low, high=inner.high
            )
        elif (wrong := _wrongly_exact(recorded, actual, types)) is not None:
            words = (
                f"has {inner.low!r} to {inner.high!r} in column {column_id}, but the catalog says that "
                f"{wrong!r} is a value: answers from statistics alone are wrong"
            )
            yield about.finding(
                FindingCode.FILE_STATS_INEXACT, words, column_id=column_id, low=inner.low, high=inner.high
            )
        yield from _value_counts(about, column_id, recorded, actual)


def _wrongly_exact(recorded: ColumnStats, actual: ColumnStats, types: tuple[DuckLakeType, ...]) -> str | None:
    """Return a bound that is recorded as exact and is not the file's; None: none, or it is unknown."""
    if len(types) != 1:
        return None  # bounds of another type may be spelled otherwise
    ends = (
        (recorded.min_value, recorded.min_is_exact, actual.min_value, actual.min_is_exact),
        (recorded.max_value, recorded.max_is_exact, actual.max_value, actual.max_is_exact),
    )
    for recorded_text, is_said, found, is_exact in ends:
        if recorded_text is None or found is None or not (is_said and is_exact):
            continue
        if parse_physical(types[0], recorded_text) != parse_physical(types[0], found):
            return recorded_text
    return None


def _value_counts(
    about: _About, column_id: ColumnId, recorded: ColumnStats, actual: ColumnStats
) -> Iterator[Finding]:
    counts = (recorded.value_count, recorded.null_count)
    found = (actual.value_count, actual.null_count)
    if None not in counts and None not in found and counts != found:
        words = (
            f"has {found[0]} values and {found[1]} nulls in column {column_id}, but the catalog says "
            f"{counts[0]} and {counts[1]}"
        )
        yield about.finding(
            FindingCode.FILE_STATS_COUNTS, words, column_id=column_id, values=found[0], nulls=found[1]
        )


def _partition(
    about: _About, found: Mapping[ColumnId, ColumnStats], asked: FileToVerify
) -> Iterator[Finding]:
    """Check that no row has other values of the partition keys: the bounds are values of rows."""
    fields = asked.spec.fields if asked.spec is not None else ()
    if len(fields) != len(asked.file.partition_values):
        return  # a separate finding
    for field, recorded_text in zip(fields, asked.file.partition_values, strict=True):
        stats, types = found.get(field.column_id), asked.types.get(field.column_id, ())
        if stats is None or len(types) != 1 or not _is_exact(stats, types[0]):
            continue
        values: set[str | None] = {
            partition_value(field.transform, types[0], parse_physical(types[0], text))
            for text in (stats.min_value, stats.max_value)
            if text is not None
        }
        if stats.null_count and field.transform.kind is TransformKind.IDENTITY:
            values.add(None)
        if is_local(field.transform, types[0]) and None not in {recorded_text, *values}:
            continue  # the value is in the writer's time zone, which is unknown
        if values - {recorded_text}:
            words = (
                f"has rows with {field.transform} of column {field.column_id} in {sorted(values, key=str)}, "
                f"but the catalog says {recorded_text!r}"
            )
            yield about.finding(
                FindingCode.PARTITION_VALUE_DIFFERS,
                words,
                column_id=field.column_id,
                partition_value=recorded_text,
            )


def _is_exact(stats: ColumnStats, type_: DuckLakeType) -> bool:
    texts = [text for text in (stats.min_value, stats.max_value) if text is not None]
    return not is_float(type_) and has_bounds(type_) and all(len(text) < _MAY_BE_CUT for text in texts)


def verify_delete_file(location: Location, asked: DeletesToVerify, newest: int) -> list[Finding]:
    """Check a delete file, which is read whole, and list the findings; ``newest`` is the newest snapshot."""
    file = asked.file
    about = _About(
        f"Delete file {file.id} of {asked.table} ({file.path})",
        {"table_id": asked.table_id, "delete_file_id": file.id},
    )
    try:
        most = file.delete_count if asked.record_count is None else asked.record_count
        rows = deleted_rows(location, file.format, file.begin_snapshot, most)
        sizes = _delete_sizes(location, file)
    except (StorageError, UnsupportedFeatureError) as error:
        return [_unreadable(location, about, error)]
    return [
        *_sizes(about, *sizes, file),
        *_container(about, asked, footer=sizes[1]),
        *_positions(about, rows, asked, newest),
    ]


def _container(about: _About, asked: DeletesToVerify, *, footer: int) -> Iterator[Finding]:
    if asked.file.format == "puffin" and footer and not asked.may_be_container:
        words = "has vectors of several snapshots, which DuckLake has since 1.1: DuckDB 1.5 cannot read it"
        yield about.finding(FindingCode.VECTORS_TOO_NEW, words)


def _delete_sizes(location: Location, file: LiveDeleteFile) -> tuple[int, int]:
    if file.format == "parquet":
        _, size, footer_size = read_metadata(location)
        return size, footer_size
    data = read_whole(location)
    return len(data), footer_bytes(data)


def _positions(about: _About, rows: pa.Table, asked: DeletesToVerify, newest: int) -> Iterator[Finding]:
    positions, recorded_count = rows["pos"].combine_chunks(), asked.file.delete_count
    if len(positions) != recorded_count:
        words = f"deletes {len(positions)} rows, but the catalog says {recorded_count}"
        yield about.finding(FindingCode.DELETE_COUNT_DIFFERS, words, found=len(positions))
    if len(positions) > 1 and not _are_ascending(positions):
        yield about.finding(
            FindingCode.DELETES_UNORDERED, "has positions that are not ascending: DuckDB refuses it"
        )
    least, most = pc.min_max(positions).as_py().values() if len(positions) else (0, 0)
    if least < 0 or (asked.record_count is not None and len(positions) and most >= asked.record_count):
        words = f"deletes rows {least} to {most} of a file that has {asked.record_count}"
        yield about.finding(FindingCode.DELETE_OUTSIDE, words)
    if len(positions) and pc.max(rows["snapshot_id"]).as_py() > newest:
        words = f"deletes rows with snapshots after the newest one, {newest}"
        yield about.finding(FindingCode.PARTIAL_MAX_WRONG, words)


def _are_ascending(positions: pa.Array) -> bool:
    return bool(pc.all(pc.greater(positions.slice(1), positions.slice(0, len(positions) - 1))).as_py())


def stores_row_ids(location: Location) -> bool:
    """Return True if a data file says itself which row ids it has."""
    metadata, *_ = read_metadata(location)
    return row_id_column(metadata.schema.to_arrow_schema()) is not None
