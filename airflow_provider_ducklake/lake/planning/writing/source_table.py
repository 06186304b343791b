"""A table of another format at one of its snapshots, as a lake takes it: columns, partition keys, files.

What it is in the lake's table is decided here: which column is which, and what a new table looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from ...errors import SchemaMismatchError
from ...format import partitioning
from ...format.names.identifiers import fold
from ...format.schema import Column, Default, TableSchema, new_columns
from ...format.types import ducklake_types as dl
from ...format.types.values import Physical, identity_text

if TYPE_CHECKING:
    from ...format.snapshots import ColumnId
    from ...transaction.changes import Positions


FieldKey: TypeAlias = int | str  # a Parquet field id, or the name that a field has in files


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column or nested field; ``key`` is how files name it.

    ``children`` are in the order of the type's: fields, element, or key and value. ``initial_default`` is
    what rows have whose files lack it, as catalog text; None: NULL.
    """

    key: FieldKey
    name: str
    type: dl.DuckLakeType
    nullable: bool = True
    children: tuple[SourceColumn, ...] = ()
    initial_default: str | None = None
    default: Default = field(default_factory=Default)


PartitionKey: TypeAlias = tuple[FieldKey, partitioning.Transform]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file, by its full path; what the metadata does not say is None.

    ``partition`` has the texts of all DuckLake partition keys that follow from the metadata, also of those
    that the table is not partitioned by. ``deletes`` are the rows that are deleted.
    """

    path: str
    record_count: int | None
    file_size_bytes: int | None
    partition: Mapping[PartitionKey, str | None] = field(default_factory=dict)
    deletes: Positions | None = None


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table at one snapshot; ``where`` names both in messages.

    ``partition_by`` are those of its keys that DuckLake has. ``by_id``: keys are field ids; files without
    ids have those of ``ids_by_name``, the id of the enclosing field and a name. ``folders_win``: the value
    of a partition column is that of the metadata where a file has the column, too.
    """

    where: str
    columns: tuple[SourceColumn, ...]
    files: tuple[SourceFile, ...]
    partition_by: tuple[PartitionKey, ...] = ()
    by_id: bool = True
    ids_by_name: Mapping[tuple[int | None, str], int] = field(default_factory=dict)
    folders_win: bool = False


def new_schema(source: SourceTable) -> TableSchema:
    """Return the columns of a new table."""
    columns = source.columns
    fields = [dl.Field(one.name, one.type) for one in columns]
    schema = new_columns(fields, [one.name for one in columns if not one.nullable])
    return TableSchema(
        tuple(
            replace(made, default=one.default, initial_default=one.initial_default)
            for made, one in zip(schema.columns, columns, strict=True)
        )
    )


def new_partitioning(
    source: SourceTable, keys: Mapping[ColumnId, FieldKey]
) -> tuple[partitioning.PartitionField, ...]:
    """Return the partition keys of a new table, whose columns have those keys."""
    ids = {key: column_id for column_id, key in keys.items()}
    return tuple(
        partitioning.PartitionField(ids[key], transform)
        for key, transform in dict.fromkeys(source.partition_by)
    )


def matched(source: SourceTable, schema: TableSchema, table: str) -> dict[ColumnId, SourceColumn]:
    """Map each column and nested field of a table to the column of the source with its name."""
    differences: list[str] = []
    found = dict(_pairs(source.columns, schema.columns, "", differences))
    if differences:
        raise SchemaMismatchError(f"{table} (from {source.where})", tuple(differences))
    return found


def _pairs(
    sources: Sequence[SourceColumn], columns: Sequence[Column], prefix: str, differences: list[str]
) -> Iterator[tuple[ColumnId, SourceColumn]]:
    by_name = {fold(column.name): column for column in columns}
    seen = set()
    for one in sources:
        column = by_name.get(fold(one.name))
        if column is None:
            differences.append(f"column {prefix}{one.name} of the source is not in the table")
        else:
            seen.add(column.id)
            yield from _pair(one, column, f"{prefix}{column.name}", differences)
    differences += [
        f"column {prefix}{column.name} of the table is not in the source"
        for column in columns
        if column.id not in seen
    ]


def _pair(
    one: SourceColumn, column: Column, where: str, differences: list[str]
) -> Iterator[tuple[ColumnId, SourceColumn]]:
    yield column.id, one
    if not column.children and not one.children:
        if not _fits(one.type, column.type):
            differences.append(f"column {where} is {column.type} in the table, {one.type} in the source")
    elif type(column.type) is not type(one.type):
        differences.append(f"column {where} is {column.type} in the table, {one.type} in the source")
    elif isinstance(column.type, dl.StructType):
        yield from _pairs(one.children, column.children, f"{where}.", differences)
    else:
        for child, place in zip(one.children, column.children, strict=True):
            yield from _pair(child, place, f"{where}.{place.name}", differences)


def _fits(found: dl.DuckLakeType, wanted: dl.DuckLakeType) -> bool:
    """Return True if files of a type may be read as another; what each file has is looked at later.

    An instant may be a time without zone in files of Spark's (INT96), and DuckDB reads it as that.
    """
    old, new = found.facts, wanted.facts
    if old.kind is new.kind is dl.ScalarKind.TIMESTAMP and old.zoned and not new.zoned:
        return old.per_second == new.per_second
    return found == wanted or (dl.can_promote(found, wanted) and found.facts.kind is not dl.ScalarKind.DATE)


def other_defaults(matches: Mapping[ColumnId, SourceColumn], schema: TableSchema) -> frozenset[ColumnId]:
    """Return the columns that rows without them have other values in than they have in the source."""
    return frozenset(
        column.id
        for column in schema.walk()
        if column.id in matches and column.initial_default != matches[column.id].initial_default
    )


# What a partition value of Iceberg or Delta is as the text of a DuckLake partition value.
#
# *Source:* Iceberg's and Delta's specifications; docs/sources.md, DDL. Iceberg counts years, months, days
# and hours from 1970; DuckLake has calendar parts, and since 1.1 the same counts under other names.


IDENTITY = partitioning.Transform(partitioning.TransformKind.IDENTITY)
PARTS = (
    partitioning.TransformKind.YEAR,
    partitioning.TransformKind.MONTH,
    partitioning.TransformKind.DAY,
    partitioning.TransformKind.HOUR,
)
COUNTS = (
    partitioning.TransformKind.EPOCH_YEAR,
    partitioning.TransformKind.EPOCH_MONTH,
    partitioning.TransformKind.EPOCH_DAY,
    partitioning.TransformKind.EPOCH_HOUR,
)
# Whose values have one text: a float has several NaNs and zeros, and bytes are no text.
_IDENTICAL = frozenset(
    {
        dl.ScalarKind.BOOLEAN,
        dl.ScalarKind.INTEGER,
        dl.ScalarKind.DECIMAL,
        dl.ScalarKind.DATE,
        dl.ScalarKind.TIMESTAMP,
        dl.ScalarKind.STRING,
    }
)


def has_identity(type_: dl.DuckLakeType) -> bool:
    """Return True if the value of an identity partition can be taken from metadata."""
    return type_.facts.kind in _IDENTICAL


def transforms_of(word: str, type_: dl.DuckLakeType) -> tuple[partitioning.Transform, ...]:
    """Return the keys that a new table has for a transform of Iceberg's; none: DuckLake has no such key.

    >>> from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType
    >>> [str(one) for one in transforms_of("month", ScalarType("date"))]
    ['year', 'month']
    >>> transforms_of("truncate[4]", ScalarType("varchar")), transforms_of("bucket[4]", ScalarType("uuid"))
    ((), ())
    """
    if word == "identity":
        return (IDENTITY,) if has_identity(type_) else ()
    if word in PARTS:
        return tuple(
            partitioning.Transform(kind)
            for kind in PARTS[: PARTS.index(partitioning.TransformKind(word)) + 1]
        )
    count = _bucket_count(word)
    if count is not None and _is_hashed_alike(type_):
        return (partitioning.Transform(partitioning.TransformKind.BUCKET, count),)
    return ()


def _is_hashed_alike(type_: dl.DuckLakeType) -> bool:
    """Return True if both formats have equal buckets: Iceberg hashes decimals as bytes, nanos as micros."""
    row = type_.facts
    if row.kind is dl.ScalarKind.TIMESTAMP and row.per_second != _MICROSECONDS:
        return False
    return row.kind in _HASHED_ALIKE


_MICROSECONDS = 10**6
_HASHED_ALIKE = frozenset(
    {
        dl.ScalarKind.INTEGER,
        dl.ScalarKind.DATE,
        dl.ScalarKind.TIMESTAMP,
        dl.ScalarKind.STRING,
        dl.ScalarKind.BLOB,
    }
)


def _bucket_count(word: str) -> int | None:
    digits = word.removeprefix("bucket[").removesuffix("]")
    return int(digits) if word == f"bucket[{digits}]" and digits.isdigit() else None


def texts_of(
    word: str,
    type_: dl.DuckLakeType,
    value: Any,  # noqa: ANN401 - of Avro
) -> Iterator[tuple[partitioning.Transform, str | None]]:
    """Yield the texts of all keys that follow from a value of a transform of Iceberg's, as Avro has it."""
    if word in PARTS:
        known = PARTS.index(partitioning.TransformKind(word)) + 1
        first = None if value is None else partitioning.epoch_range(COUNTS[known - 1], type_, value)[0]
        for kind in (*PARTS[:known], *COUNTS[:known]):
            transform = partitioning.Transform(kind)
            yield transform, partitioning.partition_value(transform, type_, first)
        return
    if word == "identity":
        yield IDENTITY, None if value is None else identity_text(type_, _physical(type_, value))
        return
    for transform in transforms_of(word, type_):
        yield transform, None if value is None else str(value)


def _physical(type_: dl.DuckLakeType, value: Any) -> Physical:  # noqa: ANN401 - as pyiceberg reads it
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(type_, dl.DecimalType):
        return int(Decimal(value).scaleb(type_.scale, Context(prec=80)))
    return value  # type: ignore[no-any-return]


def identity_of_text(type_: dl.DuckLakeType, text: str | None) -> str | None:
    """Return the text of an identity key of a value as Delta's log or a folder spells it."""
    return None if text is None else identity_text(type_, partitioning.hive_value(type_, text))
