"""Check a change of rows before any work: names, types, and that it means one thing.

Expressions of users are looked at on rows of the right types. Each is computed more than once, and for one
row alone: it may neither be random nor look at other rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import InvalidInputError
from ...format.names.identifiers import split_parts
from ...format.schema import Column, TableSchema
from ...format.types.ducklake_types import StructType
from ...planning.reading.scan import named_columns
from ..job.errors import message_of
from ..job.request import Action, Clause, RowChangeSource, condition_of, value_of
from ..read import read_table
from ..types.names import MatchNames, quoted
from ..types.spark_types import default_value, to_insertable
from ..writing.assignment import assign

if TYPE_CHECKING:
    from ...format.snapshots import ColumnId


# What a clause puts into the columns of changed and of new rows.


@dataclass(frozen=True)
class Assignment:
    """The values a clause assigns to the columns of a table; ``target`` and ``source`` are aliases."""

    clause: Clause
    schema: TableSchema
    table: str
    target: str
    source: str

    @cached_property
    def values(self) -> Mapping[ColumnId, str]:
        """Expressions by the columns and fields that take them."""
        if self.clause.values is None:
            return {
                column.id: f"{quoted(self.source)}.{quoted(column.name)}" for column in self.schema.columns
            }
        found: dict[ColumnId, str] = {}
        above: set[ColumnId] = set()
        for path, text in self.clause.values.items():
            *parents, column = _path_to(self.schema, path, self.table)
            if column.id in above or any(one.id in found for one in (*parents, column)):
                raise InvalidInputError(f"{path!r} is assigned twice in one clause. Assign it once.")
            found[column.id] = text
            above.update(parent.id for parent in parents)
        return found

    @property
    def needs_target(self) -> bool:
        """Return True if a column keeps its value, or part of it."""
        return not all(column.id in self.values for column in self.schema.columns)

    def updated(self) -> list[SparkColumn]:
        """Return the columns of changed rows, from rows of the table and the source."""
        return [
            self._assigned(column, f.col(f"{quoted(self.target)}.{quoted(column.name)}")).alias(column.name)
            for column in self.schema.columns
        ]

    def _assigned(self, column: Column, value: SparkColumn) -> SparkColumn:
        if column.id in self.values:
            return f.expr(self.values[column.id])
        if not any(one.id in self.values for one in column.walk()):
            return value
        fields = [
            self._assigned(child, value.getField(child.name)).alias(child.name) for child in column.children
        ]
        return f.struct(*fields)

    def inserted(self) -> list[SparkColumn]:
        """Return the columns of new rows, from rows of the source; one that is missing is not nullable."""
        columns = []
        for column in self.schema.columns:
            if column.id in self.values:
                columns.append(f.expr(self.values[column.id]).alias(column.name))
            elif any(one.id in self.values for one in column.walk()):
                raise InvalidInputError(
                    f"insert: fields of {column.name!r} are assigned one by one, and a new row needs all. "
                    f"Assign {column.name!r} as a whole, such as named_struct('field', source.value)."
                )
            elif column.has_default:
                columns.append(to_insertable(default_value(column), column).alias(column.name))
            elif column.nullable:
                columns.append(f.lit(None).alias(column.name))
        return columns


def _path_to(schema: TableSchema, path: str, table: str) -> list[Column]:
    """Return the column that a dotted path names, behind the structs that it lies in."""
    first, *rest = split_parts(path)
    columns = [schema.find(first, table)]
    for part in rest:
        if not isinstance(columns[-1].type, StructType):
            raise InvalidInputError(f"{path!r}: {columns[-1].name} is not a struct; assign the whole column.")
        columns.append(TableSchema(columns[-1].children).find(part, f"{table} column {columns[-1].name}"))
    return columns


def check_condition(rows: DataFrame, text: str, what: str) -> None:
    """Refuse what is no condition on a row of ``rows``; errors call it ``what``."""
    found = check_value(rows, text, what)
    if not isinstance(found, t.BooleanType | t.NullType):
        raise InvalidInputError(f"{what}: {text!r} must be a boolean, but is {found.simpleString()}.")


def check_value(rows: DataFrame, text: str, what: str) -> t.DataType:
    """Return the type of an expression over a row of ``rows``."""
    try:
        value = f.expr(text)
        found = rows.select(value.alias("value")).schema[0].dataType
        _check_alone(rows, value, text, what)
    except AnalysisException as error:
        raise InvalidInputError(
            f"{what}: {text!r} cannot be run. Correct it. Spark says: {message_of(error)}"
        ) from error
    return found


def _check_alone(rows: DataFrame, value: SparkColumn, text: str, what: str) -> None:
    """Refuse what cannot be computed again: Spark takes neither that nor aggregates and windows in a join."""
    alone = rows.sparkSession.createDataFrame([], "_ducklake_nothing int")
    try:
        _ = rows.join(alone, value.isNull()).schema
    except AnalysisException as error:
        if error.getCondition() != "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
            raise
        raise InvalidInputError(
            f"{what}: {text!r} is not deterministic. Compute it in the source, which is read once, or "
            "insert the rows from a query."
        ) from error


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
    """Build the assignments of each clause, by its number."""
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
    """Refuse what cannot be done, and return the frames that it was found out with."""
    frames = _frames(spark, request, source, names.prefix)
    if request.on is not None:
        check_condition(frames.pairs, request.on, "on")
    for clause, assigned, rows in _clauses(request, frames):
        if clause.condition is not None:
            check_condition(rows, clause.condition, condition_of(clause, request))
        if clause.action is not Action.DELETE:
            for text in assigned.values.values():
                check_value(rows, text, value_of(clause))
            columns = assigned.updated() if clause.action is Action.UPDATE else assigned.inserted()
            assign(rows.select(columns), assigned.schema, assigned.table)
    return frames


def _clauses(request: RowChangeSource, frames: Frames) -> Iterator[tuple[Clause, Assignment, DataFrame]]:
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
            yield clause, next(numbered), rows


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
