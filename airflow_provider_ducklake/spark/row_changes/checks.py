"""Check a change of rows before any work: names, types, and that it is unambiguous."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.planning.reading.named_columns import named_columns
from airflow_provider_ducklake.spark.job.request import Action
from airflow_provider_ducklake.spark.read import read_table
from airflow_provider_ducklake.spark.row_changes.assigned_values import Assignment
from airflow_provider_ducklake.spark.row_changes.expressions import check_condition, check_value
from airflow_provider_ducklake.spark.types.own_names import MatchNames
from airflow_provider_ducklake.spark.writing.assignment import assign

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.spark.job.request import Clause, RowChangeSource


@dataclass(frozen=True)
class Frames:
    """Rows without values, in which expressions are looked at: of the table, of the source, and pairs."""

    target: DataFrame
    source: DataFrame | None

    @property
    def pairs(self) -> DataFrame:
        """Pairs of a row of the table and one of the source."""
        return self.target if self.source is None else self.target.crossJoin(self.source)


def condition_columns(request: RowChangeSource) -> tuple[str, ...]:
    """Return the table's columns that finding rows may need."""
    texts = [request.on, *(clause.condition for clause in request.clauses)]
    return named_columns(filter(None, texts), request.target.table.schema.names)


def assignments(request: RowChangeSource) -> list[Assignment]:
    """Return what each clause assigns, by its number."""
    table = request.target.table
    return [
        Assignment(clause, table.schema, str(table.name), request.target_alias, request.source_alias)
        for clause in request.clauses
    ]


def own_names(request: RowChangeSource, source: DataFrame | None) -> MatchNames:
    """Return names for columns of ours that neither the table nor the source has, and no expression names."""
    given = () if source is None else source.columns
    words = (word for text in _texts(request) for word in re.findall(r"\w+", text))
    return MatchNames.beside([*request.target.table.schema.names, *given, *words])


def _texts(request: RowChangeSource) -> Iterator[str]:
    """Yield all expressions of users."""
    yield request.on or ""
    for clause in request.clauses:
        yield clause.condition or ""
        yield from (clause.values or {}).values()


def check(
    spark: SparkSession, request: RowChangeSource, source: DataFrame | None, names: MatchNames
) -> Frames:
    """Refuse what cannot be done, and return the frames that it was found out with.

    Raises:
        InvalidInputError: an expression cannot be read, is random, or looks at other rows.
        ColumnNotFoundError: a column that is to be assigned does not exist.
        SchemaMismatchError: lists the values that do not fit their columns.
        UnsupportedFeatureError: the table has a column that cannot be read, or not be written.
    """
    frames = _frames(spark, request, source, names.prefix)
    if request.on is not None:
        check_condition(frames.pairs, request.on, "on")
    for clause, assigned, rows, name in _clauses(request, frames):
        if clause.condition is not None:
            check_condition(rows, clause.condition, f"The condition of {name}")
        if clause.action is not Action.DELETE:
            for text in assigned.values.values():
                check_value(rows, text, f"A value of {name}")
            columns = assigned.updated() if clause.action is Action.UPDATE else assigned.inserted()
            assign(rows.select(columns), assigned.schema, assigned.table)
    return frames


def _clauses(request: RowChangeSource, frames: Frames) -> Iterator[tuple[Clause, Assignment, DataFrame, str]]:
    """Yield clauses with the rows that they see."""
    source = frames.source if frames.source is not None else frames.target
    seen: list[tuple[Sequence[Clause], DataFrame]] = [
        (request.matched, frames.pairs),
        (request.not_matched, source),
        (request.not_matched_by_source, frames.target),
    ]
    numbered = iter(assignments(request))
    for clauses, rows in seen:
        for clause in clauses:
            yield clause, next(numbered), rows, f"the clause {clause.action.value}"


def _frames(spark: SparkSession, request: RowChangeSource, source: DataFrame | None, prefix: str) -> Frames:
    plan = request.target
    keeps_values = any(
        clause.action is Action.UPDATE and assigned.needs_target
        for clause, assigned in zip(request.clauses, assignments(request), strict=True)
    )
    texts = (text for clause in request.clauses for text in (clause.values or {}).values())
    names = plan.table.schema.names
    columns = names if keeps_values else {*condition_columns(request), *named_columns(texts, names)}
    chosen = tuple(name for name in names if name in columns)
    empty = replace(plan, files=(), inlined_rows=(), columns=chosen)
    target = read_table(spark, empty, row_ids=True, positions=True, prefix=prefix).alias(request.target_alias)
    if source is None:
        return Frames(target, None)
    nothing = spark.createDataFrame([], source.schema)
    return Frames(target, nothing.alias(request.source_alias))
