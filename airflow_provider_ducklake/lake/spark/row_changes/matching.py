"""Find the rows that a clause applies to: rows of a table, by their places, and rows of a source.

Only the columns that conditions name are read. What is found is kept, since several jobs use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import InvalidInputError
from ...format.names.identifiers import fold
from ...format.types.ducklake_types import ScalarKind, ScalarType
from ...planning.reading.predicates import NEVER, AllOf, Comparison, Operator, Predicate
from ...planning.reading.pruning import file_may_match
from ...planning.reading.scan import ScanPlan, named_columns
from ...storage.rows import table_reader
from ..read import read_table
from ..types.frames import bytes_of, folded, number_of, renamed, row_bytes
from ..types.names import MatchNames, free_prefix, quoted
from ..types.spark_types import SPARK_SCALARS, carrier_type, scalar_of_spark
from ..writing import assignment
from ..writing.write_arrow import IN_MEMORY, Size
from .checks import assignments

if TYPE_CHECKING:
    from ...format.schema import Column
    from ..job.request import Action, Clause, RowChangeSource


_SHOWN_DUPLICATES = 3
_LONGEST_SHOWN = 100  # characters of a value


def broadcast_if_small(rows: DataFrame, count: int) -> DataFrame:
    """Broadcast few rows in a join; Spark has no count of cached rows."""
    return f.broadcast(rows) if is_small(rows, count) else rows


def is_small(rows: DataFrame, count: int) -> bool:
    """Return True if Spark would send that many rows to each task of a join."""
    limit = bytes_of(rows.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold") or "-1")
    return count * row_bytes(rows.schema) <= limit


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the table that match or are to change: their ``place``, ``source_id`` and ``clause``.

    A row that no row of the source matches has no source id, one that matches but stays has no clause; a row
    that several rows of the source match is there as often. ``counts`` says how many there are by file (None:
    in the catalog) and by clause.
    """

    pairs: DataFrame
    counts: dict[tuple[int | None, int | None], int]
    names: MatchNames

    @property
    def rows(self) -> DataFrame:
        """Those to which a clause applies."""
        return self.pairs.where(f.col(self.names.clause).isNotNull())

    def count(self, clauses: Sequence[int]) -> int:
        """Return the number of rows to which one of the clauses applies."""
        return sum(count for (_, clause), count in self.counts.items() if clause in clauses)

    def files(self, clauses: Sequence[int]) -> set[int]:
        """Return the data files that have such rows."""
        return {file for (file, clause) in self.counts if file is not None and clause in clauses}

    def unmatched(self, source: DataFrame, request: RowChangeSource, number: int) -> DataFrame:
        """Return the rows of the source that match no row, to which the clause of that number applies."""
        clause = _first(request.not_matched, len(request.matched))
        rows = source.alias(request.source_alias).where(clause == number)
        matched = broadcast_if_small(self.pairs.select(self.names.source_id), sum(self.counts.values()))
        return rows.join(matched, self.names.source_id, "left_anti")

    def close(self) -> None:
        """Let go of what is kept in memory and on the executors' disks."""
        self.pairs.unpersist()


def numbers(request: RowChangeSource, *actions: Action) -> list[int]:
    """Return the numbers of the clauses that do one of the actions."""
    return [number for number, clause in enumerate(request.clauses) if clause.action in actions]


def find(target: DataFrame, source: DataFrame | None, request: RowChangeSource, names: MatchNames) -> Found:
    """Return the rows of the table to which a clause applies.

    ``target`` has the columns that conditions name, and its ``place``; ``source`` all of its columns, and
    ``source_id``.
    """
    target = target.alias(request.target_alias)
    if source is None:
        none = f.lit(None).cast("bigint").alias(names.source_id)
        rows = target.select(*names.place, none, _clause_of_lone_row(request).alias(names.clause))
        pairs = rows.where(f.col(names.clause).isNotNull()).persist()
    else:
        pairs = _pairs(target, source.alias(request.source_alias), request, names).persist()
    try:
        return Found(pairs, _counts(pairs, names), names)
    except BaseException:
        pairs.unpersist()
        raise


def _pairs(target: DataFrame, source: DataFrame, request: RowChangeSource, names: MatchNames) -> DataFrame:
    """Return the pairs of rows that match, and rows of the table that match none but are to change."""
    assert request.on is not None
    how = "left" if request.not_matched_by_source else "inner"
    joined = target.join(source, f.expr(request.on), how)
    source_id = f.col(names.source_id)
    clause = _first(request.matched, 0)
    if request.not_matched_by_source:  # whose conditions see the table's names only, and no row that matches
        joined = joined.select(f"{request.target_alias}.*", source_id, clause.alias(names.clause))
        joined = joined.alias(request.target_alias)
        clause = f.when(source_id.isNull(), _clause_of_lone_row(request)).otherwise(f.col(names.clause))
    chosen = joined.select(*names.place, source_id, clause.alias(names.clause))
    return chosen.where(source_id.isNotNull() | f.col(names.clause).isNotNull())


def _clause_of_lone_row(request: RowChangeSource) -> SparkColumn:
    """Return the number of the clause for a row of the table that no row of the source matches."""
    return _first(request.not_matched_by_source, len(request.matched) + len(request.not_matched))


def _first(clauses: Sequence[Clause], number: int) -> SparkColumn:
    """Return the number of the first clause whose condition holds, else NULL; they count from ``number``."""
    found = f.when(f.lit(False), f.lit(None).cast("int"))  # noqa: FBT003 - a value
    for own, clause in enumerate(clauses, number):
        found = found.when(_holds(clause), f.lit(own))
    return found


def _holds(clause: Clause) -> SparkColumn:
    return f.lit(True) if clause.condition is None else f.expr(clause.condition)  # noqa: FBT003 - a value


def _counts(rows: DataFrame, names: MatchNames) -> dict[tuple[int | None, int | None], int]:
    counted = rows.groupBy(names.file_id, names.clause).count().collect()
    return {(file_id, clause): count for file_id, clause, count in counted}


def changed_twice(found: Found, source: DataFrame, request: RowChangeSource) -> InvalidInputError | None:
    """Return the error that several rows of the source apply to the same row of the table, if they do.

    It names rows of the source by the columns that the match looks at.
    """
    ours = found.names
    own = [name for name in source.columns if name != ours.source_id]
    names = named_columns([request.on or ""], own) or tuple(own)
    found_twice = found.rows.groupBy(*ours.place).agg(
        f.count("*").alias(ours.times), f.min(ours.source_id).alias(ours.source_id)
    )
    twice = found_twice.where(f.col(ours.times) > 1)
    some = twice.select(ours.source_id).distinct().limit(_SHOWN_DUPLICATES)
    rows = source.join(some, ours.source_id, "left_semi").select(_shown(source, names)).collect()
    if not rows:
        return None
    shown = "; ".join(text for (text,) in rows)
    return InvalidInputError(
        f"Several rows of the source match the same row of {request.target.table.name}, for example "
        f"{shown}. Keep one of them in the source, or make the match condition narrower."
    )


def _shown(source: DataFrame, names: Sequence[str]) -> SparkColumn:
    """Return the values of columns as one text, made by Spark: it has dates that Python has not."""
    types = {field.name: field.dataType for field in source.schema.fields}
    parts = []
    for name in names:
        mark = "'" if isinstance(types[name], t.StringType) else ""
        value = f.substring(f.col(quoted(name)).cast("string"), 1, _LONGEST_SHOWN)
        text = f.concat(f.lit(mark), value, f.lit(mark))
        parts.append(f.concat(f.lit(f"{name}="), f.coalesce(text, f.lit("NULL"))))
    return f.concat_ws(", ", *parts)


# Which files of a table can match a source: those whose bounds meet the bounds of the source's keys.


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


def as_target_shows(source: DataFrame, changes: RowChangeSource, own: Sequence[str]) -> DataFrame:
    """Return a source whose columns are compared with the table's: those of its names, and equal ones."""
    schema = changes.target.table.schema
    named = {fold(column.name): column for column in schema.columns}
    columns = {name: named[fold(name)] for name in own if fold(name) in named}
    columns |= {other: schema.find(name) for name, other in equal_columns(changes, own)}
    return assignment.as_target_shows(source, columns)


_KEYS = frozenset({ScalarKind.INTEGER, ScalarKind.STRING, ScalarKind.DATE, ScalarKind.TIMESTAMP})


def comparable(source: DataFrame, keys: Keys, plan: ScanPlan) -> Keys:
    """Return the keys whose values are equal, and ordered, as their columns' types say."""
    find = plan.table.schema.find
    return [(name, other) for name, other in keys if _is_comparable(source, find(name), quoted(other))]


def bounds_of(source: DataFrame, keys: Keys, plan: ScanPlan) -> tuple[SourceSize, Predicate]:
    """Return the size of a source, and what is true for every row of the table that can match one.

    One job; ``keys`` are comparable.
    """
    usable = [(plan.table.schema.find(name), quoted(other)) for name, other in keys]
    values = [_exact(f.col(other), carrier_type(column)) for column, other in usable]
    ends = [end for value in values for end in (f.min(value), f.max(value))]
    count, text_bytes, *found = source.agg(f.count("*"), _text_bytes(source), *ends).collect()[0]
    return SourceSize(count, text_bytes), AllOf(
        tuple(
            _between(column, found[2 * place], found[2 * place + 1])
            for place, (column, _) in enumerate(usable)
        )
    )


@dataclass(frozen=True, slots=True)
class SourceSize:
    """The number of a source's rows, and the bytes of all their texts; None where nested values hold some."""

    row_count: int
    text_bytes: int | None

    def of_rows(self, row_count: int) -> Size | None:
        """Return the size of that many rows, each with the texts of one of the source's."""
        if self.text_bytes is None:
            return None
        return Size(row_count, self.text_bytes / max(1, self.row_count))


def _text_bytes(source: DataFrame) -> SparkColumn:
    types = {field.name: field.dataType for field in source.schema}
    if any(isinstance(one, t.ArrayType | t.MapType | t.StructType | t.VariantType) for one in types.values()):
        return f.lit(None).cast("bigint")
    texts = [name for name, one in types.items() if isinstance(one, t.StringType | t.BinaryType)]
    lengths = [f.coalesce(f.octet_length(quoted(name)).cast("bigint"), f.lit(0)) for name in texts]
    return f.coalesce(f.sum(folded(SparkColumn.__add__, [f.lit(0).cast("bigint"), *lengths])), f.lit(0))


def only_matching(source: DataFrame, keys: Keys) -> Callable[[DataFrame], DataFrame]:
    """Return a filter that drops rows of the table whose keys no row of a small source has."""

    def keep(rows: DataFrame) -> DataFrame:
        prefix = free_prefix(rows.columns)
        named = [(key, other, f"{prefix}key_{number}") for number, (key, other) in enumerate(keys)]
        wanted = source.selectExpr(*(renamed(other, name) for _, other, name in named))
        same = " AND ".join(f"{quoted(key)} = {name}" for key, _, name in named)
        return rows.join(f.broadcast(wanted), f.expr(same), "left_semi")

    return keep


def _is_comparable(source: DataFrame, column: Column, other: str) -> bool:
    found = scalar_of_spark(source.select(other).schema[0].dataType)
    type_ = column.type
    is_exact = isinstance(type_, ScalarType) and SPARK_SCALARS[type_.name].is_exact
    if found is None or not is_exact or type_.facts.kind not in _KEYS:
        return False
    return found == type_ or found.facts.kind is type_.facts.kind is ScalarKind.INTEGER


def _exact(value: SparkColumn, carrier: t.DataType) -> SparkColumn:
    """Return a key that comes to Python unchanged: Spark's strings may have bytes that are not UTF-8."""
    return value.cast("binary") if isinstance(carrier, t.StringType) else number_of(value, carrier)


def _between(column: Column, low: int | bytearray | None, high: int | bytearray | None) -> Predicate:
    if low is None or high is None:  # all of the source's keys are NULL
        return NEVER
    bounds = []
    for operator, end in ((Operator.AT_LEAST, low), (Operator.AT_MOST, high)):
        if isinstance(end, int):
            bounds.append(Comparison(column.id, operator, end))
        elif end.decode(errors="replace").encode() == end:  # no text of a lake has other bytes
            bounds.append(Comparison(column.id, operator, bytes(end)))
    return AllOf(tuple(bounds))


def files_that_may_match(plan: ScanPlan, where: Predicate) -> ScanPlan:
    """Return a plan without the files whose statistics exclude a condition; the rows of others stay."""
    types = {column.id: column.type for column in plan.table.schema.walk()}
    files = tuple(file for file in plan.files if file_may_match(where, file, types, {}))
    return replace(plan, files=files)


# The rows that a clause writes: changed ones with their row ids, and new ones.


@dataclass(frozen=True)
class ChangedRows:
    """The rows that clauses write."""

    changes: RowChangeSource
    source: DataFrame | None
    source_size: SourceSize | None
    found: Found

    def inserted_size(self) -> Size | None:
        """Return the size of the rows that a clause inserts at most."""
        return None if self.source_size is None else self.source_size.of_rows(self.source_size.row_count)

    def updated_size(self, number: int) -> Size | None:
        """Return the size of the rows that the clause of that number updates."""
        count, touched = self.found.count([number]), self.found.files([number])
        files = [file for file in self.changes.target.files if file.id in touched]
        stored = sum(file.file_size_bytes for file in files) / max(
            1, sum(file.record_count for file in files)
        )
        given: Size | None = Size(count, 0)
        if self.source_size is not None and number < len(self.changes.matched):
            given = self.source_size.of_rows(count)
        return None if given is None else Size(count, given.row_bytes + IN_MEMORY * stored)

    def inserted(self, number: int) -> DataFrame:
        """Return the rows that the clause of that number inserts."""
        assert self.source is not None
        rows = self.found.unmatched(self.source, self.changes, number)
        return rows.alias(self.changes.source_alias).select(assignments(self.changes)[number].inserted())

    def updated(self, number: int) -> DataFrame:
        """Return the rows that the clause of that number updates, behind their columns their row ids.

        The table is read again only where a column keeps its value or is computed from others.
        """
        assigned = assignments(self.changes)[number]
        names, rows = self.found.names, self._places(number)
        if assigned.needs_target or self.changes.clauses[number].values_see_target:
            same_row = f.col(names.file_id).eqNullSafe(f.col(names.found_file)) & (
                _place(names) == f.col(names.found_place)
            )
            rows = self._read_again(number).join(rows, same_row)
        if self.source is not None and number < len(self.changes.matched):
            source = self.source.alias(self.changes.source_alias)
            rows = rows.join(source, f.col(names.found_source) == f.col(names.source_id))
        return rows.select(*assigned.updated(), f.col(names.found_row).alias(table_reader.ROW_ID.name))

    def _places(self, number: int) -> DataFrame:
        names = self.found.names
        rows = self.found.rows.where(f.col(names.clause) == number).select(
            f.col(names.file_id).alias(names.found_file),
            _place(names).alias(names.found_place),
            f.col(names.row_id).alias(names.found_row),
            f.col(names.source_id).alias(names.found_source),
        )
        return broadcast_if_small(rows, self.found.count([number]))

    def _read_again(self, number: int) -> DataFrame:
        """Return all of the files, and of the rows in the catalog, that have rows to update."""
        plan, files = self.changes.target, self.found.files([number])
        touched = replace(
            plan,
            files=tuple(file for file in plan.files if file.id in files),
            inlined_rows=plan.inlined_rows if (None, number) in self.found.counts else (),
            columns=plan.table.schema.names,
            where=None,
        )
        rows = read_table(
            self.found.rows.sparkSession,
            touched,
            row_ids=True,
            positions=True,
            prefix=self.found.names.prefix,
        )
        return rows.alias(self.changes.target_alias)


def _place(names: MatchNames) -> SparkColumn:
    """Return the identity of a row: its position in a file, or the row id of an inlined one."""
    return f.coalesce(f.col(names.position), f.col(names.row_id))
