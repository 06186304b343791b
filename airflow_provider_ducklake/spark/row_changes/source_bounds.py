"""Which files of a table can match a source: those whose bounds meet the bounds of the source's keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from airflow_provider_ducklake.planning.reading.predicates import NEVER, AllOf, Comparison, Operator
from airflow_provider_ducklake.planning.reading.pruning import may_match
from airflow_provider_ducklake.spark.types.frames import renamed
from airflow_provider_ducklake.spark.types.local_times import number_of
from airflow_provider_ducklake.spark.types.names import free_prefix, quoted
from airflow_provider_ducklake.spark.types.spark_types import carrier_type, scalar_of_spark, why_not_native
from airflow_provider_ducklake.spec.schema import TableSchema
from airflow_provider_ducklake.spec.types.scalars import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.spec.schema import Column

Keys = list[tuple[str, str]]  # (column of the table, column of the source)


def equal_columns(joined: DataFrame, target: DataFrame, source: DataFrame) -> Keys:
    """Return the columns that the condition of a join says are equal, of its left and its right side."""
    sides = [_ids(one) for one in (target, source)]
    keys: Keys = []
    waiting = [joined._jdf.queryExecution().analyzed().condition().get()]  # noqa: SLF001 - no public way
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "And":
            waiting += [node.left(), node.right()]
        elif node.nodeName() == "EqualTo":
            pair = (_id(node.left()), _id(node.right()))
            keys += [
                (sides[0][one], sides[1][other])
                for one, other in (pair, pair[::-1])
                if one in sides[0] and other in sides[1]
            ]
    return keys


def _ids(rows: DataFrame) -> dict[int | None, str]:
    output = rows._jdf.queryExecution().analyzed().output()  # noqa: SLF001 - no public way
    return {output.apply(place).exprId().id(): name for place, name in enumerate(rows.columns)}


def _id(node: Any) -> int | None:  # noqa: ANN401 - Spark's own, of the JVM
    """Return the id of the column that an expression is, or is as a larger integer."""
    while node.nodeName() == "Cast" and _is_widening(node):
        node = node.child()
    return int(node.exprId().id()) if node.nodeName() == "AttributeReference" else None


_BY_SIZE = ("tinyint", "smallint", "int", "bigint")


def _is_widening(cast: Any) -> bool:  # noqa: ANN401
    """Whether a cast keeps every value apart from others: as dates, two times may be equal."""
    before, after = (one.dataType().catalogString() for one in (cast.child(), cast))
    return before in _BY_SIZE and after in _BY_SIZE[_BY_SIZE.index(before) :]


_KEYS = frozenset({Kind.INTEGER, Kind.STRING, Kind.DATE, Kind.TIMESTAMP})


def comparable(source: DataFrame, keys: Keys, plan: ScanPlan) -> Keys:
    """Return the keys whose values are equal, and ordered, as their columns' types say."""
    find = plan.table.schema.find
    return [(name, other) for name, other in keys if _is_comparable(source, find(name), quoted(other))]


def bounds_of(source: DataFrame, keys: Keys, plan: ScanPlan) -> tuple[int, Predicate]:
    """Return the number of a source's rows, and what is true for every row of the table that can match one.

    One job; ``keys`` are comparable.
    """
    usable = [(plan.table.schema.find(name), quoted(other)) for name, other in keys]
    values = [number_of(f.col(other), carrier_type(column)) for column, other in usable]
    ends = [end for value in values for end in (f.min(value), f.max(value))]
    count, *found = source.agg(f.count("*"), *ends).collect()[0]
    return count, AllOf(
        tuple(
            _between(column, found[2 * place], found[2 * place + 1])
            for place, (column, _) in enumerate(usable)
        )
    )


def only_matching(source: DataFrame, keys: Keys) -> Callable[[DataFrame], DataFrame]:
    """Return what leaves rows of the table out whose keys no row of a small source has."""

    def keep(rows: DataFrame) -> DataFrame:
        prefix = free_prefix(rows.columns)
        named = [(key, other, f"{prefix}key_{number}") for number, (key, other) in enumerate(keys)]
        wanted = source.selectExpr(*(renamed(other, name) for _, other, name in named))
        same = " AND ".join(f"{quoted(key)} = {name}" for key, _, name in named)
        return rows.join(f.broadcast(wanted), f.expr(same), "left_semi")

    return keep


def _is_comparable(source: DataFrame, column: Column, other: str) -> bool:
    found = scalar_of_spark(source.select(other).schema[0].dataType)
    if found is None or why_not_native(TableSchema((column,))) or column.type.facts.kind not in _KEYS:
        return False
    return found == column.type or found.facts.kind is column.type.facts.kind is Kind.INTEGER


def _between(column: Column, low: int | str | None, high: int | str | None) -> Predicate:
    if low is None or high is None:  # all of the source's keys are NULL
        return NEVER
    first, last = (one.encode() if isinstance(one, str) else one for one in (low, high))
    return AllOf(
        (
            Comparison(column.id, Operator.AT_LEAST, first),
            Comparison(column.id, Operator.AT_MOST, last),
        )
    )


def files_that_may_match(plan: ScanPlan, where: Predicate) -> ScanPlan:
    """Return a plan without the files whose statistics exclude a condition; the rows of others stay."""
    types = {column.id: column.type for column in plan.table.schema.walk()}
    files = tuple(file for file in plan.files if may_match(where, file, types, {}))
    return replace(plan, files=files)
