"""Partition specs: transforms, how users write them, and the exact text of their values.

*Source:* DuckLake spec "Partitioning"; docs/sources.md, DDL for calendar parts, value texts and what
``bucket`` hashes.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING
from urllib.parse import quote as percent
from urllib.parse import unquote

from ..errors import InvalidPartitionError, UnsupportedFeatureError
from .names.identifiers import fold, quote_if_needed, split_parts
from .types.ducklake_types import (
    SCALARS,
    TEXTS,
    DecimalType,
    DuckLakeType,
    Hashed,
    Scalar,
    ScalarKind,
    children_of,
)
from .types.values import (
    Physical,
    civil_from_days,
    days_from_civil,
    format_physical,
    identity_text,
    is_infinite,
    order_key,
    parse_physical,
    units_per_second,
)
from .versions import Feature, WriteVersion

if TYPE_CHECKING:
    from .schema import TableSchema
    from .snapshots import ColumnId, PartitionId


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class TransformKind(StrEnum):
    """The words of the format."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    EPOCH_YEAR = "epoch_year"
    EPOCH_MONTH = "epoch_month"
    EPOCH_DAY = "epoch_day"
    EPOCH_HOUR = "epoch_hour"

    @property
    def feature(self) -> Feature | None:
        """The feature that a lake's version must have."""
        return Feature(f"the {self.value} partition transform") if self in EPOCHS else None


_MOST_BUCKETS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform, with the number of buckets where it is ``bucket``."""

    kind: TransformKind
    bucket_count: int | None = None

    def __str__(self) -> str:
        return f"bucket({self.bucket_count})" if self.kind is TransformKind.BUCKET else self.kind.value

    @classmethod
    def parse(cls, text: str) -> Transform:
        """Return the transform of a catalog text such as ``year`` or ``bucket(16)``."""
        match = re.fullmatch(r"([a-z_]+)(?:\((\d{1,18})\))?", text)
        count = int(match[2]) if match and match[2] else None
        if match is None or match[1] not in set(TransformKind) or not _is_count_of(match[1], count):
            raise UnsupportedFeatureError(f"Partition transform {text!r} is not supported by this release.")
        return cls(TransformKind(match[1]), count)


def _is_count_of(kind: str, count: int | None) -> bool:
    """Return True if a transform can have that many buckets, or none (None): the reference has 32 bits."""
    return count is None if kind != TransformKind.BUCKET else count is not None and 0 < count <= _MOST_BUCKETS


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One key of a partition spec."""

    column_id: ColumnId
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """How a table is partitioned at one snapshot; ``id`` is None until it is committed."""

    fields: tuple[PartitionField, ...]
    id: PartitionId | None = None


_EXPRESSION = re.compile(r"\s*([A-Za-z_]+)\s*\(\s*(?:(\d{1,18})\s*,\s*)?(.+?)\s*\)\s*\Z", re.DOTALL)
_EPOCH_STARTS = {  # the unit that each counts, and the number of the one that 1970 begins with
    TransformKind.EPOCH_YEAR: (TransformKind.YEAR, 1970),
    TransformKind.EPOCH_MONTH: (TransformKind.MONTH, 1970 * 12),
    TransformKind.EPOCH_DAY: (TransformKind.DAY, 0),
    TransformKind.EPOCH_HOUR: (TransformKind.HOUR, 0),
}
CALENDAR = frozenset({TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR})
EPOCHS = frozenset(_EPOCH_STARTS)  # which count years, months, days or hours since 1970, in UTC
OF_TIMES = CALENDAR | EPOCHS


def parse_partition_by(
    expressions: Sequence[str], schema: TableSchema, table: str
) -> tuple[PartitionField, ...]:
    """Return the fields for users' expressions: ``"region"``, ``"year(day)"``, ``"bucket(16, id)"``."""
    fields = tuple(_parse_field(expression, schema, table) for expression in expressions)
    if len(set(fields)) != len(fields):
        raise InvalidPartitionError(f"The same partition key appears twice in {list(expressions)}.")
    return fields


def _parse_field(expression: str, schema: TableSchema, table: str) -> PartitionField:
    match = _EXPRESSION.match(expression)
    if match is None:
        transform, path = Transform(TransformKind.IDENTITY), expression.strip()
    else:
        transform, path = _parse_transform(match[1], match[2], expression), match[3]
    parts = split_parts(path)
    if len(parts) > 1:
        raise InvalidPartitionError(
            f"{expression!r}: a partition key must be a top-level column, not a nested field."
        )
    column = schema.find(parts[0], table)
    _check_fit(transform, column.type, expression)
    return PartitionField(column.id, transform)


def _parse_transform(word: str, argument: str | None, expression: str) -> Transform:
    kind = fold(word)
    if kind not in set(TransformKind):
        raise InvalidPartitionError(
            f"{word!r} in {expression!r} is not a partition transform. Use one of {', '.join(TransformKind)}."
        )
    count = int(argument) if argument else None
    if not _is_count_of(kind, count):
        raise InvalidPartitionError(
            f"Cannot read {expression!r}; write year(column) or bucket(16, column), with at most "
            f"{_MOST_BUCKETS} buckets."
        )
    return Transform(TransformKind(kind), count)


def _check_fit(transform: Transform, type_: DuckLakeType, expression: str) -> None:
    if not _has_values(type_) or type_.facts.kind in (ScalarKind.INTERVAL, ScalarKind.NULL):
        raise InvalidPartitionError(f"{expression!r}: a column of type {type_} cannot be a partition key.")
    if not _has_part(transform.kind, type_.facts):
        allowed = ", ".join(row.name for row in SCALARS.values() if _has_part(transform.kind, row))
        hint = " Of a CSV all columns are strings, unless its options have schema or inferSchema."
        raise InvalidPartitionError(
            f"{expression!r}: {transform.kind} needs a column of type {allowed}, not {type_}."
            f"{hint if type_.facts.kind is ScalarKind.STRING else ''}"
        )


def _has_part(kind: TransformKind, row: Scalar) -> bool:
    if kind in CALENDAR and row.since is Feature.TIMESTAMPTZ_NS:  # which the reference has no parts of
        return False
    if kind is TransformKind.HOUR:
        return row.has_hours
    return row.has_days or kind not in OF_TIMES


def _has_values(type_: DuckLakeType) -> bool:
    return not children_of(type_) and type_.facts.kind not in (ScalarKind.VARIANT, ScalarKind.GEOMETRY)


def why_not_partitioned(fields: Iterable[PartitionField], schema: TableSchema) -> str | None:
    """Say which key, made by DuckDB, has a type that only DuckDB makes partition values of; None: none."""
    for field in fields:
        column = schema.by_id(field.column_id)
        if not _has_values(column.type):
            return f"its partition key {column.name} has type {column.type}, by which only DuckDB writes"
    return None


def check_partition_keys(fields: Iterable[PartitionField], schema: TableSchema, table: str) -> None:
    """Refuse to write by keys of types that have no partition values here."""
    if problem := why_not_partitioned(fields, schema):
        raise UnsupportedFeatureError(f"{table} cannot be written: {problem}. Partition it by other columns.")


def check_transforms(expressions: Iterable[str], writer: WriteVersion) -> None:
    """Refuse transforms that a lake's version does not have, in users' expressions."""
    for expression in expressions:
        match = _EXPRESSION.match(expression)
        if match is not None and fold(match[1]) in EPOCHS:
            check_transform(TransformKind(fold(match[1])), writer)


def check_transform(kind: TransformKind, writer: WriteVersion) -> None:
    """Refuse a transform that a lake's version does not have."""
    if kind.feature is not None:
        writer.check(kind.feature)


def check_partition_values(values: Iterable[str | None], table: str) -> None:
    """Refuse partition values that a catalog cannot store."""
    for value in values:
        if value is not None and "\0" in value:
            raise InvalidPartitionError(
                f"The partition value {value!r} of {table} holds a NUL character, which a catalog cannot "
                "store. Leave it out of the rows, or partition by another column."
            )


def partition_value(transform: Transform, type_: DuckLakeType, value: Physical | None) -> str | None:
    """Return the text of ``ducklake_file_partition_value`` for a source value in physical form.

    NULL stays NULL, and an infinite time has no calendar part.

    >>> from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
    >>> partition_value(Transform(TransformKind.MONTH), parse_type("date"), 59)
    '3'
    """
    if value is None:
        return None
    match transform.kind:
        case TransformKind.IDENTITY:
            return identity_text(type_, value)
        case TransformKind.BUCKET:
            assert transform.bucket_count is not None
            return str(bucket(hash_input(type_, value), transform.bucket_count))
        case _:
            if is_infinite(type_, int(value)):
                return None
            return _calendar_part(transform.kind, type_, _unit(transform.kind, type_, int(value)))


def is_local(transform: Transform, type_: DuckLakeType) -> bool:
    """Return True if a transform's values depend on the session of the writer; ours are those of UTC.

    DuckDB takes year, month, day and hour of a timestamptz in its session's time zone and calendar, and the
    hour of a timetz in the zone that the value came with, which no file keeps.
    """
    return transform.kind in CALENDAR and type_.facts.zoned


_MOST_UNITS, _MOST_YEARS = 64, 10_000  # more than there are months of a year, days of a month, hours of a day


def calendar_values(
    transform: Transform, type_: DuckLakeType, low: int, high: int
) -> frozenset[str | None] | None:
    """Return all values that finite times from ``low`` to ``high`` have, in UTC, of a transform of times.

    None: they are too many to list.

    >>> from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
    >>> sorted(calendar_values(Transform(TransformKind.MONTH), parse_type("date"), 0, 59))
    ['1', '2', '3']
    """
    first, last = (_unit(transform.kind, type_, value) for value in (low, high))
    are_years = transform.kind in (TransformKind.YEAR, TransformKind.EPOCH_YEAR)
    if last - first >= (_MOST_YEARS if are_years else _MOST_UNITS):
        return None
    return frozenset(_calendar_part(transform.kind, type_, unit) for unit in range(first, last + 1))


def _unit(kind: TransformKind, type_: DuckLakeType, value: int) -> int:
    """Return the number of the year, month, day or hour that a time lies in, all of them counted through."""
    if kind in EPOCHS:
        counted, start = _EPOCH_STARTS[kind]
        return _counted(counted, type_, value) - start
    if value < 0 and is_cast_to_micros(type_):
        value = -(-value // 1_000 * 1_000)
    return _counted(kind, type_, value)


def is_cast_to_micros(type_: DuckLakeType) -> bool:
    """Return True if DuckDB takes year, month, day and hour of microseconds: nanoseconds cut toward 1970."""
    return units_per_second(type_) == 10**9 and not type_.facts.zoned


def _counted(kind: TransformKind, type_: DuckLakeType, value: int) -> int:
    seconds = value // units_per_second(type_)
    if kind is TransformKind.HOUR:
        return seconds // 3600
    year, month, _ = civil_from_days(seconds // _DAY_SECONDS)
    return {TransformKind.YEAR: year, TransformKind.MONTH: year * 12 + month - 1}.get(
        kind, seconds // _DAY_SECONDS
    )


def epoch_range(kind: TransformKind, type_: DuckLakeType, unit: int) -> tuple[int, int]:
    """Return the first and the last moment of a unit since 1970, in units of the type."""
    first, end = (_epoch_seconds(kind, one) * units_per_second(type_) for one in (unit, unit + 1))
    return ceil(first), ceil(end) - 1


def _epoch_seconds(kind: TransformKind, unit: int) -> int:
    """Return the second since 1970 with which a unit begins."""
    match kind:
        case TransformKind.EPOCH_HOUR:
            return unit * 3600
        case TransformKind.EPOCH_DAY:
            return unit * _DAY_SECONDS
        case TransformKind.EPOCH_MONTH:
            year, month = divmod(unit, 12)
            return days_from_civil(1970 + year, month + 1, 1) * _DAY_SECONDS
        case _:
            return days_from_civil(1970 + unit, 1, 1) * _DAY_SECONDS


def _calendar_part(kind: TransformKind, type_: DuckLakeType, unit: int) -> str:
    match kind:
        case _ if kind in EPOCHS:
            return str(unit)
        case TransformKind.YEAR:  # of its era for a timestamptz: 44 BC is 44, and -43 for the other types
            return str(1 - unit if unit < 1 and type_.facts.zoned else unit)
        case TransformKind.MONTH:
            return str(unit % 12 + 1)
        case TransformKind.DAY:
            return str(civil_from_days(unit)[2])
        case _:  # a time of day may be 24:00:00
            return str(unit if type_.facts.kind is ScalarKind.TIME else unit % 24)


_DAY_SECONDS = 86_400

_C1, _C2, _MASK = 0xCC9E2D51, 0x1B873593, 0xFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """Return MurmurHash3 x86 32-bit of ``data`` with seed 0, as an unsigned number.

    >>> murmur3_32(b"hello") == 0x248BFA47
    True
    """
    value = 0
    body = len(data) // 4 * 4
    for start in range(0, body, 4):
        value ^= _mix(int.from_bytes(data[start : start + 4], "little"))
        value = _rotate(value, 13) * 5 + 0xE6546B64 & _MASK
    if len(data) > body:
        value ^= _mix(int.from_bytes(data[body:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _mix(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 15) * _C2 & _MASK


def bucket(data: bytes, count: int) -> int:
    """Return the bucket of hashed bytes, 0 to ``count`` - 1."""
    return (murmur3_32(data) & 0x7FFFFFFF) % count


_SHORT_DECIMAL = 18
# The reference hashes a timetz with its offset in the lower bits, counted down; files have them in UTC.
OFFSET_BITS, NO_OFFSET = 24, 16 * 3600 - 1


def hashed_as_long(type_: DuckLakeType) -> bool:
    """Return True if ``bucket`` hashes the value as an 8-byte little-endian integer."""
    if isinstance(type_, DecimalType):
        return type_.precision <= _SHORT_DECIMAL
    return type_.facts.hashed is Hashed.LONG


def is_zoned_time(type_: DuckLakeType) -> bool:
    """Return True for ``timetz``."""
    return type_.facts.kind is ScalarKind.TIME and type_.facts.zoned


def hash_input(type_: DuckLakeType, value: Physical) -> bytes:
    """Return the bytes that ``bucket`` hashes for a value in physical form."""
    if hashed_as_long(type_):
        # seconds in the reference's memory may be micros in files; infinite times are the same number in both
        number = int(value) // (1 if is_infinite(type_, int(value)) else type_.facts.step)
        if is_zoned_time(type_):
            number = number << OFFSET_BITS | NO_OFFSET
        return (number & 2**64 - 1).to_bytes(8, "little")
    match type_.facts.hashed:
        case Hashed.DOUBLE:
            double = float(value)  # -0.0 is 0.0, and every NaN the same
            return struct.pack("<d", math.nan if math.isnan(double) else double + 0.0)
        case Hashed.BYTES:
            assert isinstance(value, bytes)
            return value
        case _:
            return identity_text(type_, value).encode()


def hive_directory(
    fields: Sequence[PartitionField], schema: TableSchema, values: Sequence[str | None]
) -> str:
    """Return a partition's folder below the table's, e.g. ``region=eu/year=2024/``; readers ignore it.

    The empty text: file systems have no names that long, and the files lie in the table's own folder.
    """
    taken: set[str] = set()
    parts: list[str] = []
    for field, value in zip(fields, values, strict=True):
        key = _hive_key(field, schema.by_id(field.column_id).name, taken)
        taken.add(fold(key))
        parts.append(f"{escape(key)}={HIVE_NULL if value is None else escape(value)}/")
    return "".join(parts) if all(len(part) <= _LONGEST_FOLDER for part in parts) else ""


_LONGEST_FOLDER = 200  # bytes of its name, which is ASCII


def _hive_key(field: PartitionField, column: str, taken: set[str]) -> str:
    identity = field.transform.kind is TransformKind.IDENTITY
    word = column if identity else field.transform.kind.value
    return f"{word}_{column}" if fold(word) in taken else word


def hive_values(path: str) -> dict[str, str | None]:
    """Return the values of the folders ``name=value`` that a file lies in, as DuckDB takes them.

    The first folder of a name counts; one with a second ``=``, a ``?`` or a line's end is none, nor is one
    whose value is not UTF-8. *Source:* DuckDB 1.5.5, ``hive_partitioning.cpp``, and its answers.

    >>> hive_values("/data/year=2024/region=e%20u/a.parquet")
    {'year': '2024', 'region': 'e u'}
    """
    values: dict[str, str | None] = {}
    for folder in _STEPS.split(path)[:-1]:
        found = _HIVE_FOLDER.fullmatch(folder)
        if found is None or found[1] in values:
            continue
        is_null = found[2] == HIVE_NULL or found[2].upper() == "NULL"
        with suppress(UnicodeDecodeError):
            values[found[1]] = None if is_null else unquote(found[2], errors="strict")
    return values


_STEPS = re.compile(r"[/\\]")
_HIVE_FOLDER = re.compile(r"([^=?\n]+)=([^=?\n]*)")


def hive_folders(path: str) -> str:
    """Return the folders ``name=value`` of a file's path: values of columns may lie in them.

    >>> hive_folders("/data/year=2024/part/region=e%20u/a.parquet")
    'year=2024/region=e%20u/'
    """
    return "".join(f"{one}/" for one in path.split("/")[:-1] if "=" in one)


_HIVE_INTEGER = re.compile(r"[+-]?[0-9]+")


def hive_value(type_: DuckLakeType, text: str) -> Physical:
    """Return the physical form of a folder's value."""
    row = type_.facts
    if children_of(type_) or not (row.has_stats and row.comparable) or row.kind is ScalarKind.BLOB:
        raise ValueError(str(type_))
    if row.kind is ScalarKind.INTEGER:
        low, high = row.physical_range
        if not (_HIVE_INTEGER.fullmatch(text) and low <= int(text) <= high):
            raise ValueError(text)
        return int(text)
    value = parse_physical(type_, text)
    if row.kind not in _FREE_TEXT and order_key(type_, format_physical(type_, value)) != order_key(
        type_, text
    ):
        raise ValueError(text)  # more digits than the type has
    return value


_FREE_TEXT = TEXTS | {ScalarKind.UUID, ScalarKind.FLOAT}


def escape(text: str) -> str:
    """Percent-encode what would not survive in a path segment."""
    return percent(text, safe="-_.~")


def describe(spec: PartitionSpec, schema: TableSchema) -> list[str]:
    """Return the spec as users write it, e.g. ``["year(day)", "bucket(16, id)"]``."""
    shown: list[str] = []
    for field in spec.fields:
        column = quote_if_needed(schema.by_id(field.column_id).name)
        kind, count = field.transform.kind, field.transform.bucket_count
        if kind is TransformKind.IDENTITY:
            shown.append(column)
        else:
            shown.append(f"{kind}({count}, {column})" if count else f"{kind}({column})")
    return shown


# How a partition is called outside the lake: in events, and as a partition key of Airflow.
#
# Year, month, day and hour of one column, as far as a table has them in this order, are one key, written as
# ISO 8601 does; everything else is called as its folder is.


_UNITS = (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR)
_JOINTS = ("", "-", "-", "T")
_WIDTHS = (4, 2, 2, 2)


def partition_key(fields: Sequence[PartitionField], schema: TableSchema, values: Sequence[str | None]) -> str:
    """Return the name of a partition, e.g. ``month=2026-11`` or ``region=eu/day=2026-11-25``."""
    taken: set[str] = set()
    parts: list[str] = []
    for group, texts in _groups(fields, values):
        last = group[-1]
        column = schema.by_id(last.column_id).name
        kind = last.transform.kind
        word = column if kind is TransformKind.IDENTITY else kind.value
        word = f"{word}_{column}" if fold(word) in taken else word
        taken.add(fold(word))
        parts.append(f"{escape(word)}={_written(texts)}")
    return "/".join(parts)


def _groups(
    fields: Sequence[PartitionField], values: Sequence[str | None]
) -> Iterator[tuple[list[PartitionField], list[str | None]]]:
    """Yield the keys that make one, with their values."""
    group: list[PartitionField] = []
    texts: list[str | None] = []
    for field, value in zip(fields, values, strict=True):
        if group and not _continues(group, field):
            yield group, texts
            group, texts = [], []
        group, texts = [*group, field], [*texts, value]
    if group:
        yield group, texts


def _continues(group: Sequence[PartitionField], field: PartitionField) -> bool:
    kinds = [one.transform.kind for one in (*group, field)]
    return kinds == list(_UNITS[: len(kinds)]) and field.column_id == group[0].column_id


def _written(texts: Sequence[str | None]) -> str:
    if None in texts:
        return HIVE_NULL
    if len(texts) == 1:
        return escape(str(texts[0]))
    units = zip(_JOINTS, texts, _WIDTHS, strict=False)
    return "".join(f"{joint}{text:0>{width}}" for joint, text, width in units)
