"""Expressions as Spark computes them to the values that DuckDB has; see ``spec.expressions.computed``.

Nothing here fails a job: integers that overflow become NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.spark.types.local_times import is_infinite
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column as SparkColumn

    from airflow_provider_ducklake.lake.spec.expressions.computed import Computed


def spark_value(computed: Computed) -> SparkColumn | None:
    """Return the value of each row; None where Spark's may differ from DuckDB's."""
    if computed.operation == "column":
        column = f.col(quoted(computed.column))
        return column.cast("bigint") if computed.kind is Kind.INTEGER else column
    if computed.operation == "literal":
        literal = f.lit(computed.value)
        return literal.cast("bigint") if computed.kind is Kind.INTEGER else literal
    given = [spark_value(one) for one in computed.arguments]
    known = [one for one in given if one is not None]
    return _applied(computed, known) if len(known) == len(given) else None


def _applied(computed: Computed, given: list[SparkColumn]) -> SparkColumn | None:
    """Return an operation; none are ``lower`` and ``upper``, whose alphabets differ, and ``date_trunc``."""
    operation = computed.operation
    if operation in _SIMPLE:
        return _SIMPLE[operation](*given)
    if operation == "substring":
        start, length = (int(one.value) for one in computed.arguments[1:])
        return f.substring(given[0], start, length)
    return _part(computed, given[0]) if operation in _PARTS else None


def _negative(value: SparkColumn) -> SparkColumn:
    return f.try_subtract(f.lit(0).cast("bigint"), value)


_SIMPLE: dict[str, Callable[..., SparkColumn]] = {
    "+": f.try_add,
    "-": f.try_subtract,
    "*": f.try_multiply,
    "%": lambda value, by: value % by,
    "negative": _negative,
    "abs": lambda value: f.when(value < 0, _negative(value)).otherwise(value),
    "||": f.concat,
    "IS NULL": f.isnull,
    "IS NOT NULL": f.isnotnull,
    "coalesce": f.coalesce,
    "length": f.length,
    "text": lambda value: value.cast("string"),
}
_PARTS = {"year": f.year, "month": f.month, "day": f.day}


def _part(computed: Computed, value: SparkColumn) -> SparkColumn:
    carrier = t.DateType() if computed.arguments[0].kind is Kind.DATE else t.TimestampNTZType()
    return f.when(~is_infinite(value, carrier), _PARTS[computed.operation](value))
