"""DuckLake ↔ Parquet footers: sizes, counts and column statistics, by field id.

*Source:* texts and counts as the reference's ``ducklake_file_column_stats`` (docs/sources.md, inserts). What
a footer does not say is unknown (None), never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StorageError, UnsupportedFeatureError
from ...format.files import ColumnStats, DataFile, blob_bounds, fits, string_bounds
from ...format.snapshots import ColumnId
from ...format.types.ducklake_types import TEXTS, DecimalType, DuckLakeType, ScalarKind, ScalarType, is_float
from ...format.types.geometry import GeometryStats
from ...format.types.values import Physical, format_physical, is_readable
from ..arrow.reshape import Matcher, by_field_id, field_id, is_list
from ..arrow.scalars import ARROW_SCALARS, Decoder, scaled
from ..files.filesystem import Location, open_input
from ..nested_values.geometries import geometry_stats
from .modules import READ_AHEAD_BYTES, TAIL_BYTES, check_row_counts, footer_length
from .opening import open_parquet

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from .footer_scan import FooterLayout


FIRST_RESERVED_FIELD_ID = 2**31 - 201  # Iceberg's; row ids and the like lie above and have no statistics


class NanRule(Enum):
    """What a writer's float statistics say about NaN."""

    GREATEST = "greatest"  # parquet-mr (Spark): NaN sorts above all numbers, so the bounds show it
    UNKNOWN = "unknown"  # pyarrow, DuckDB and others leave NaN out of the bounds

    @classmethod
    def of_writer(cls, created_by: str | None) -> NanRule:
        """Return the rule of the writer named in a footer."""
        return cls.GREATEST if (created_by or "").startswith("parquet-mr") else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """The facts of one leaf column in one row group; None is unknown.

    ``slot_count`` counts values and nulls, as Parquet does. Bounds are physical values and leave NaN out.
    """

    slot_count: int
    null_count: int | None
    min_value: Physical | None
    max_value: Physical | None
    contains_nan: bool | None = None
    only_nan: bool = False
    size_bytes: int | None = None
    geometries: GeometryStats | None = None
    geometries_have_box: bool = True  # False: that of ``geometries`` leaves some of them out

    @property
    def value_count(self) -> int | None:
        """Number of values that are not null."""
        return None if self.null_count is None else self.slot_count - self.null_count


KnownChunks: TypeAlias = Mapping[
    tuple[int, int], ChunkFacts
]  # (row group, column) → facts of its values, no nulls


def read_footer(
    location: Location, schema: TableSchema, nan_rule: NanRule | None = None, *, match: Matcher = by_field_id
) -> DataFile:
    """Read the footer of a finished file; the caller adds partition values.

    Without ``nan_rule`` the writer's name in the footer decides. Files registered by name need another
    ``match``.
    """
    metadata, file_size, footer_size = read_metadata(location)
    rule = nan_rule or NanRule.of_writer(metadata.created_by)
    return DataFile(
        path=location.uri,
        record_count=metadata.num_rows,
        file_size_bytes=file_size,
        footer_size=footer_size,
        column_stats=footer_stats(metadata, schema, rule, match=match, where=location.uri),
        row_group_count=metadata.num_row_groups,
    )


def read_metadata(location: Location) -> tuple[pq.FileMetaData, int, int]:
    """Return a file's Parquet metadata, its size, and the length word of its footer."""
    footer = open_footer(location)
    return footer.metadata, footer.file_size, footer.footer_size


@dataclass(frozen=True, slots=True)
class OpenFooter:
    """A file's footer as pyarrow shows it and as it stands there; ``footer_size`` is its length word."""

    metadata: pq.FileMetaData
    layout: FooterLayout
    file_size: int
    footer_size: int


def open_footer(location: Location) -> OpenFooter:
    """Return a file's footer, of whose columns pyarrow may be asked: see ``scan``."""
    with open_input(location) as source:
        try:
            size = source.size()
            tail = source.read_at(min(size, READ_AHEAD_BYTES), max(0, size - READ_AHEAD_BYTES))
            is_encrypted = location.is_encrypted
            footer_size = footer_length(tail[-TAIL_BYTES:], location.uri, is_encrypted=is_encrypted)
            if footer_size + TAIL_BYTES > size:
                raise StorageError(f"{location.uri} is truncated: its footer is longer than the file.")
            if is_encrypted:
                with open_parquet(location) as plain:
                    tail = _end_of(plain, location.uri)
            elif footer_size + TAIL_BYTES > len(tail):
                tail = source.read_at(footer_size + TAIL_BYTES, size - footer_size - TAIL_BYTES)
            metadata, layout = _parsed(tail, location.uri)
            check_row_counts(metadata, location.uri)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a name in a message
            raise StorageError(f"Cannot read the Parquet footer of {location.uri}: {error}") from error
    return OpenFooter(metadata, layout, size, footer_size)


def _end_of(plain: pa.NativeFile, where: str) -> bytes:
    size = plain.size()
    length = footer_length(plain.read_at(TAIL_BYTES, size - TAIL_BYTES), where) + TAIL_BYTES
    return bytes(plain.read_at(length, size - length))


def _parsed(tail: bytes, where: str) -> tuple[pq.FileMetaData, FooterLayout]:
    """Parse the last bytes of a plain file; pyarrow goes first, since its errors describe damage better."""
    from .footer_scan import scan, with_schema_alone
    from .readable import unread_by_arrow

    footer = tail[-TAIL_BYTES - footer_length(tail[-TAIL_BYTES:], where) : -TAIL_BYTES]
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail))
    except OSError as error:  # the bytes are in memory: it says damage, and nothing of a store
        raise pa.ArrowInvalid(str(error)) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        layout = scan(footer, where)
        try:
            pq.read_metadata(pa.BufferReader(with_schema_alone(footer)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedFeatureError(f"{where}: {unread_by_arrow(layout.root, str(error))}") from error
        raise  # what else it says is damaged
    return metadata, scan(footer, where)


def footer_stats(  # noqa: PLR0913 - two are rules, two are further facts
    metadata: pq.FileMetaData,
    schema: TableSchema,
    nan_rule: NanRule,
    *,
    match: Matcher = by_field_id,
    known: KnownChunks | None = None,
    where: str = "the file",
) -> dict[ColumnId, ColumnStats]:
    """Return the statistics of each leaf column of ``schema`` that the file has, over all row groups.

    Columns with reserved field ids, such as stored row ids, have none.

    ``known`` replaces single chunks of the footer by the writer's own facts.
    """
    file_schema = metadata.schema.to_arrow_schema()
    if match is by_field_id:
        check_field_ids(file_schema, schema.columns, where)
    stats: dict[ColumnId, ColumnStats] = {}

    for index, (column, file_type) in enumerate(leaf_columns(file_schema, schema, match)):
        if column is None or column.id >= FIRST_RESERVED_FIELD_ID:
            continue
        size = 0
        if column.id in stats:  # a variant has several leaves, and the first counts its values
            size = sum(
                metadata.row_group(group).column(index).total_compressed_size
                for group in range(metadata.num_row_groups)
            )
            stats[column.id] = replace(
                stats[column.id], column_size_bytes=(stats[column.id].column_size_bytes or 0) + size
            )
            continue
        decode = decoder(column.type, file_type)
        read = [
            chunk_facts(
                metadata.row_group(group).column(index),
                decode,
                nan_rule,
                (known or {}).get((group, index)),
                of_geometries=column.type.facts.kind is ScalarKind.GEOMETRY,
            )
            for group in range(metadata.num_row_groups)
        ]
        stats[column.id] = merge_chunks(column, read, are_whole=_are_whole(metadata))
    return stats


def _are_whole(metadata: pq.FileMetaData) -> bool:
    """Return True if the writer never cuts the bounds of strings; of other writers it is unknown."""
    return (metadata.created_by or "").startswith("parquet-cpp-arrow")


def _in_chunk(facts: ChunkFacts, chunk: pq.ColumnChunkMetaData) -> ChunkFacts:
    """Complete facts about a chunk's values by its nulls: whatever slot holds none of the values."""
    null_count = chunk.num_values - facts.slot_count
    return replace(
        facts, slot_count=chunk.num_values, null_count=null_count, size_bytes=chunk.total_compressed_size
    )


def check_field_ids(file_schema: pa.Schema, columns: Sequence[Column], where: str) -> None:
    """Refuse a file in which some column or nested field has no field id: readers would match it by position.

    Nothing is asked of what lies inside a column that is none of ``columns``, or inside a variant.
    """
    path = next(_without_ids(file_schema, columns, ""), None)
    if path is not None:
        raise UnsupportedFeatureError(
            f"{where}: column {path} has no Parquet field id. Without field ids, a file needs a name "
            "mapping such as DuckLakeAddFilesOperator creates; this one would be read by position."
        )


def _without_ids(fields: Iterable[pa.Field], columns: Sequence[Column], prefix: str) -> Iterator[str]:
    known = {column.id: column for column in columns}
    for field in fields:
        path, id_ = f"{prefix}{field.name}", field_id(field)
        if id_ is None:
            yield path
        elif (column := known.get(ColumnId(id_))) is not None and column.children:
            yield from _without_ids(children_of_field(field.type), column.children, f"{path}.")


def children_of_field(type_: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields right below an Arrow type, in the order of Parquet's leaves."""
    if pa.types.is_struct(type_):
        return tuple(type_)
    if pa.types.is_map(type_):
        return type_.key_field, type_.item_field
    if is_list(type_):
        return (type_.value_field,)
    return ()


def is_without_zone(leaf: pq.ColumnSchema) -> bool:
    """Return True if the reference reads a leaf as a timestamp without zone, and others as an instant.

    That is INT96, and what old writers annotated with nothing but a converted type.
    """
    logical = leaf.logical_type
    return bool(
        leaf.physical_type == "INT96"
        or (logical.type == "TIMESTAMP" and "is_from_converted_type=true" in str(logical))
    )


def leaf_columns(
    file_schema: Sequence[pa.Field], schema: TableSchema, match: Matcher
) -> list[tuple[Column | None, pa.DataType]]:
    """Return for each Parquet column, in order, the leaf of ``schema`` it holds and its Arrow type."""
    return list(_leaf_columns(list(file_schema), schema.columns, match))


def _leaf_columns(
    fields: Sequence[pa.Field], columns: Sequence[Column], match: Matcher
) -> Iterator[tuple[Column | None, pa.DataType]]:
    owner = dict(zip(match(fields, columns), columns, strict=True))
    for place, field in enumerate(fields):
        yield from _leaves_of(field.type, owner.get(place), match)


def _leaves_of(
    type_: pa.DataType, column: Column | None, match: Matcher
) -> Iterator[tuple[Column | None, pa.DataType]]:
    below = children_of_field(type_)
    if below and column is not None and column.type.facts.kind is ScalarKind.VARIANT:
        for _ in _leaves_of(type_, None, match):
            yield column, pa.binary()
    elif not below:
        yield (column if column is not None and not column.children else None), type_
    elif column is not None and pa.types.is_struct(type_):
        yield from _leaf_columns(below, column.children, match)
    else:  # an element, or key and value: there is nothing to choose from
        children = column.children if column is not None and len(column.children) == len(below) else ()
        for place, field in enumerate(below):
            yield from _leaves_of(field.type, children[place] if children else None, match)


def decoder(type_: DuckLakeType, file_type: pa.DataType) -> Decoder | None:
    """Return the decoder from raw statistics of a Parquet column to physical values of ``type_``.

    A file's type may be narrower than the column's, and may count time in other units. None if the
    statistics give no value of the column.
    """
    if isinstance(type_, DecimalType):
        return _decimal_decoder(type_.scale, file_type)
    if not isinstance(type_, ScalarType):
        return None
    return ARROW_SCALARS[type_.name].decoder(type_.facts, file_type)


def _decimal_decoder(scale: int, file_type: pa.DataType) -> Decoder | None:
    if pa.types.is_decimal(file_type) and file_type.scale <= scale:
        return scaled(10 ** (scale - file_type.scale))
    return None


def chunk_facts(
    chunk: pq.ColumnChunkMetaData,
    decode: Decoder | None,
    nan_rule: NanRule,
    known: ChunkFacts | None = None,
    *,
    of_geometries: bool = False,
) -> ChunkFacts:
    """Read one column chunk's statistics from the footer, or from ``known``, which is better."""
    facts = _facts_of(chunk, decode, nan_rule) if known is None else _in_chunk(known, chunk)
    return replace(facts, geometries=geometry_stats(chunk)) if of_geometries else facts


def _facts_of(chunk: pq.ColumnChunkMetaData, decode: Decoder | None, nan_rule: NanRule) -> ChunkFacts:
    statistics = chunk.statistics if chunk.is_stats_set else None
    slots, size = chunk.num_values, chunk.total_compressed_size
    if statistics is None:
        return ChunkFacts(slots, None, None, None, size_bytes=size)
    null_count = statistics.null_count if statistics.has_null_count else None
    if decode is None or not statistics.has_min_max or chunk.physical_type == "INT96":
        return ChunkFacts(slots, null_count, None, None, size_bytes=size)
    facts = ChunkFacts(
        slots, null_count, decode(statistics.min_raw), decode(statistics.max_raw), size_bytes=size
    )
    return _without_nan(facts, nan_rule) if isinstance(facts.max_value, float) else facts


def _without_nan(facts: ChunkFacts, nan_rule: NanRule) -> ChunkFacts:
    """Return facts of a float chunk, with NaN taken out of the bounds."""
    low, high = facts.min_value, facts.max_value
    assert isinstance(low, float)
    assert isinstance(high, float)
    found = math.isnan(high)
    return replace(
        facts,
        min_value=None if math.isnan(low) else low,
        max_value=None if found else high,
        contains_nan=found if found or nan_rule is NanRule.GREATEST else None,
        only_nan=math.isnan(low) and nan_rule is NanRule.GREATEST,
    )


def merge_chunks(column: Column, chunks: Sequence[ChunkFacts], *, are_whole: bool = False) -> ColumnStats:
    """Return a file's statistics of a leaf column from those of its row groups; unknown absorbs.

    ``are_whole``: bounds of texts and bytes are values, however long.
    """
    if column.type.facts.kind is ScalarKind.NULL:  # writers keep no statistics of it
        chunks = [replace(chunk, null_count=chunk.slot_count) for chunk in chunks]
    nulls = [chunk.null_count for chunk in chunks]
    null_count = None if None in nulls else sum(count for count in nulls if count is not None)
    slots = sum(chunk.slot_count for chunk in chunks)
    with_values = [chunk for chunk in chunks if chunk.value_count != 0]
    numbers = [chunk for chunk in with_values if not chunk.only_nan]
    least, greatest = _least(numbers), _greatest(numbers)
    low, high = _bounds(column.type, least, greatest)
    stats_exist = column.type.facts.has_stats
    return ColumnStats(
        column.id,
        value_count=None if null_count is None or not stats_exist else slots - null_count,
        null_count=null_count if stats_exist else None,
        min_value=low,
        max_value=high,
        contains_nan=_contains_nan(with_values) if is_float(column.type) else None,
        column_size_bytes=sum(chunk.size_bytes or 0 for chunk in chunks),
        only_nan=bool(with_values) and not numbers,
        extra_stats=_geometries(chunks) if column.type.facts.kind is ScalarKind.GEOMETRY else None,
    ).with_exactness(column.type, low=are_whole and fits(least), high=are_whole and fits(greatest))


def _geometries(chunks: Sequence[ChunkFacts]) -> str | None:
    """Merge the statistics of geometries of all row groups; None: they would leave some out.

    Statistics without a box say that all geometries are empty: the next file's box becomes the table's, and
    the reference looks for all rows there.
    """
    found = GeometryStats()
    for chunk in chunks:
        if chunk.value_count != 0:
            if chunk.geometries is None:
                return None
            found = found.merge(chunk.geometries)
    have_box = all(chunk.geometries_have_box for chunk in chunks) and found.is_finite
    return found.text if have_box else None


def _least(chunks: Sequence[ChunkFacts]) -> Physical | None:
    values = [chunk.min_value for chunk in chunks]
    known: list[Any] = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _greatest(chunks: Sequence[ChunkFacts]) -> Physical | None:
    values = [chunk.max_value for chunk in chunks]
    known: list[Any] = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _contains_nan(chunks: Sequence[ChunkFacts]) -> bool | None:
    found = [chunk.contains_nan for chunk in chunks]
    if True in found:
        return True
    return None if None in found else False


def _bounds(
    type_: DuckLakeType, low: Physical | None, high: Physical | None
) -> tuple[str | None, str | None]:
    if not (type_.facts.bounded and is_readable(type_, low) and is_readable(type_, high)):
        return None, None
    if isinstance(low, bytes) and isinstance(high, bytes):
        if type_.facts.kind in TEXTS:
            return string_bounds(low, high)
        if type_.facts.kind is ScalarKind.BLOB:
            return blob_bounds(low, high)
    return _text(type_, low), _text(type_, high)


def _text(type_: DuckLakeType, value: Physical | None) -> str | None:
    return None if value is None else format_physical(type_, value)
