"""Which files of a table can match a source: those whose bounds meet the bounds of the source's keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.planning.reading.predicates import NEVER, AllOf, Comparison, Operator
from airflow_provider_ducklake.lake.planning.reading.pruning import may_match
from airflow_provider_ducklake.lake.spark.types.frames import renamed
from airflow_provider_ducklake.lake.spark.types.local_times import number_of
from airflow_provider_ducklake.lake.spark.types.names import free_prefix, quoted
from airflow_provider_ducklake.lake.spark.types.spark_types import (
    carrier_type,
    scalar_of_spark,
    why_not_native,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.spark.job.request import RowChangeSource
    from airflow_provider_ducklake.lake.spec.schema import Column

Keys = list[tuple[str, str]]  # (column of the table, column of the source)


def equal_columns(changes: RowChangeSource, source_columns: Sequence[str]) -> Keys:
    """Return the columns that the condition of a merge says are equal, of the table and of the source."""
    sides = (
        _Side(changes.target_alias, changes.target.table.schema.names),
        _Side(changes.source_alias, source_columns),
    )
    found = [_on_sides(one, sides) for pair in changes.on_equal for one in (pair, pair[::-1])]
    return [key for key in found if key is not None]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join: what it is called, and its columns."""

    alias: str
    columns: Sequence[str]

    def named(self, name: tuple[str, ...], other: _Side) -> str | None:
        """Return the column of this side that a name certainly means."""
        *qualifiers, column = name
        if [fold(one) for one in qualifiers] not in ([], [fold(self.alias)]):
            return None
        seen = self.columns if qualifiers else (*self.columns, *other.columns)
        found = [one for one in seen if fold(one) == fold(column)]
        return found[0] if len(found) == 1 and found[0] in self.columns else None


def _on_sides(
    pair: tuple[tuple[str, ...], tuple[str, ...]], sides: tuple[_Side, _Side]
) -> tuple[str, str] | None:
    target, source = sides
    ours, theirs = target.named(pair[0], source), source.named(pair[1], target)
    return None if ours is None or theirs is None else (ours, theirs)


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
