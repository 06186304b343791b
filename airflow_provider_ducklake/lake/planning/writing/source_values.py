"""What a partition value of Iceberg or Delta is as the text of a DuckLake partition value.

*Source:* Iceberg's and Delta's specifications; docs/sources.md, DDL. Iceberg counts years, months, days and
hours from 1970; DuckLake has calendar parts, and since 1.1 the same counts under other names.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_ducklake.lake.spec.partitioning import (
    Transform,
    TransformKind,
    epoch_range,
    hive_value,
    partition_value,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import DecimalType, DuckLakeType, Kind
from airflow_provider_ducklake.lake.spec.types.values import identity_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.spec.types.values import Physical

IDENTITY = Transform(TransformKind.IDENTITY)
PARTS = (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR)
COUNTS = (
    TransformKind.EPOCH_YEAR,
    TransformKind.EPOCH_MONTH,
    TransformKind.EPOCH_DAY,
    TransformKind.EPOCH_HOUR,
)
# Whose values have one text: a float has several NaNs and zeros, and bytes are no text.
_IDENTICAL = frozenset({Kind.BOOLEAN, Kind.INTEGER, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.STRING})


def has_identity(type_: DuckLakeType) -> bool:
    """Whether the value of an identity partition can be taken from metadata."""
    return type_.facts.kind in _IDENTICAL


def transforms_of(word: str, type_: DuckLakeType) -> tuple[Transform, ...]:
    """Return the keys that a new table has for a transform of Iceberg's; none: DuckLake has no such key.

    >>> from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarType
    >>> [str(one) for one in transforms_of("month", ScalarType("date"))]
    ['year', 'month']
    >>> transforms_of("truncate[4]", ScalarType("varchar")), transforms_of("bucket[4]", ScalarType("uuid"))
    ((), ())
    """
    if word == "identity":
        return (IDENTITY,) if has_identity(type_) else ()
    if word in PARTS:
        return tuple(Transform(kind) for kind in PARTS[: PARTS.index(TransformKind(word)) + 1])
    count = _bucket_count(word)
    if count is not None and _is_hashed_alike(type_):
        return (Transform(TransformKind.BUCKET, count),)
    return ()


def _is_hashed_alike(type_: DuckLakeType) -> bool:
    """Whether both formats have the same buckets: Iceberg hashes decimals as bytes, nanos as micros."""
    row = type_.facts
    if row.kind is Kind.TIMESTAMP and row.per_second != _MICROSECONDS:
        return False
    return row.kind in _HASHED_ALIKE


_MICROSECONDS = 10**6
_HASHED_ALIKE = frozenset({Kind.INTEGER, Kind.DATE, Kind.TIMESTAMP, Kind.STRING, Kind.BLOB})


def _bucket_count(word: str) -> int | None:
    digits = word.removeprefix("bucket[").removesuffix("]")
    return int(digits) if word == f"bucket[{digits}]" and digits.isdigit() else None


def texts_of(word: str, type_: DuckLakeType, value: Any) -> Iterator[tuple[Transform, str | None]]:  # noqa: ANN401
    """Yield the texts of all keys that follow from a value of a transform of Iceberg's, as Avro has it."""
    if word in PARTS:
        known = PARTS.index(TransformKind(word)) + 1
        first = None if value is None else epoch_range(COUNTS[known - 1], type_, value)[0]
        for kind in (*PARTS[:known], *COUNTS[:known]):
            transform = Transform(kind)
            yield transform, partition_value(transform, type_, first)
        return
    if word == "identity":
        yield IDENTITY, None if value is None else identity_text(type_, _physical(type_, value))
        return
    for transform in transforms_of(word, type_):
        yield transform, None if value is None else str(value)


def _physical(type_: DuckLakeType, value: Any) -> Physical:  # noqa: ANN401 - as pyiceberg reads it
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(type_, DecimalType):
        return int(Decimal(value).scaleb(type_.scale, Context(prec=80)))
    return value  # type: ignore[no-any-return]


def identity_of_text(type_: DuckLakeType, text: str | None) -> str | None:
    """Return the text of an identity key of a value as Delta's log or a folder spells it.

    Raises:
        ValueError, ArithmeticError: the type has no such value.
    """
    return None if text is None else identity_text(type_, hive_value(type_, text))
