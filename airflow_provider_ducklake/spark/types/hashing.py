"""DuckLake's ``bucket`` transform as Spark expressions: murmur3_32 with seed 0, without leaving the JVM.

Spark's ``hash`` is the same function with seed 42, chained: each argument's hash is the next one's seed. A
constant whose hash is 0 therefore resets the seed. For bytes Spark mixes the last, incomplete word in its
own way, so the hash of the whole words is taken, its final mixing undone, and the rest mixed in as murmur3
does. *Source:* docs/sources.md, DDL.
"""

from __future__ import annotations

from itertools import count

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_SEED_ZERO = -1_693_959_553  # hash(_SEED_ZERO) is 0
_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_F1_INVERSE, _F2_INVERSE = pow(_F1, -1, 2**32), pow(_F2, -1, 2**32)
_HALF = 16


def bucket_of_long(value: SparkColumn, buckets: int) -> SparkColumn:
    """Return the bucket of a bigint, hashed as 8 little-endian bytes; null stays null."""
    return _bucket(f.hash(f.lit(_SEED_ZERO), value), buckets, value)


def bucket_of_double(value: SparkColumn, buckets: int) -> SparkColumn:
    """Return the bucket of a double, hashed as its bits with -0.0 as 0.0; null stays null."""
    return _bucket(f.hash(f.lit(_SEED_ZERO), value), buckets, value)


def _bucket(hashed: SparkColumn, buckets: int, value: SparkColumn) -> SparkColumn:
    number = hashed.bitwiseAND(f.lit(0x7FFFFFFF)) % f.lit(buckets)
    return f.when(value.isNotNull(), number)


def with_bucket_of_bytes(df: DataFrame, value: SparkColumn, buckets: int, name: str) -> DataFrame:
    """Return ``df`` with one more column: the bucket of a string's or binary's bytes; null stays null.

    No column has a name that begins with ``name``.

    Each step is a column of its own, since an expression that uses a step several times would otherwise grow
    with every step; the steps are dropped again.
    """
    kept = [f.col(f"`{column.replace('`', '``')}`") for column in df.columns]
    numbers = count()

    def step(df: DataFrame, expression: SparkColumn) -> tuple[DataFrame, SparkColumn]:
        column = f"{name}_{next(numbers)}"
        return df.withColumn(column, expression), f.col(column)

    df, data = step(df, value.cast("binary"))
    df, length = step(df, f.octet_length(data).cast("bigint"))
    whole = length - length % 4
    df, hashed = step(df, _hash_of_bytes(f.substring(data, f.lit(1), whole.cast("int"))))
    df, state = step(df, _times(_xor_shift(hashed, 16), _F2_INVERSE))
    df, state = step(df, _times(_xor(_xor_shift(state, 13), f.shiftright(state, 26)), _F1_INVERSE))
    df, rest = step(df, _times(_little_endian(f.substring(data, (whole + 1).cast("int"), f.lit(3))), _C1))
    df, rest = step(df, _times(_rotate(rest, 15), _C2))
    df, state = step(df, _xor(_xor(_xor_shift(state, 16), whole), _xor(rest, length)))
    df, state = step(df, _times(_xor_shift(state, 16), _F1))
    df, state = step(df, _times(_xor_shift(state, 13), _F2))
    return df.select(*kept, _bucket(_xor_shift(state, 16), buckets, data).cast("int").alias(name))


def _hash_of_bytes(data: SparkColumn) -> SparkColumn:
    return f.hash(f.lit(_SEED_ZERO), data).cast("bigint").bitwiseAND(f.lit(_MASK))


def _xor(left: SparkColumn, right: SparkColumn) -> SparkColumn:
    return left.bitwiseXOR(right)


def _xor_shift(value: SparkColumn, bits: int) -> SparkColumn:
    return _xor(value, f.shiftright(value, bits))


def _rotate(value: SparkColumn, bits: int) -> SparkColumn:
    return f.shiftleft(value, bits).bitwiseOR(f.shiftright(value, 32 - bits)).bitwiseAND(f.lit(_MASK))


def _times(value: SparkColumn, factor: int) -> SparkColumn:
    """Return ``value * factor`` modulo 2**32 in two steps, neither of which overflows a bigint."""
    low = value * f.lit(factor & 0xFFFF)
    high = (value * f.lit(factor >> _HALF)).bitwiseAND(f.lit(0xFFFF))
    return (low + f.shiftleft(high, _HALF)).bitwiseAND(f.lit(_MASK))


def _little_endian(data: SparkColumn) -> SparkColumn:
    """Return up to three bytes as a number; no byte at all is 0."""
    digits = f.hex(data)
    swapped = f.concat(
        f.lit("0"), f.substring(digits, 5, 2), f.substring(digits, 3, 2), f.substring(digits, 1, 2)
    )
    return f.conv(swapped, 16, 10).cast("bigint")
