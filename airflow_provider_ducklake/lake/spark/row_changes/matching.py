"""Which rows a clause applies to: rows of a table, found by their places, and rows of a source.

Only the columns that conditions name are read. What is found is kept, since several jobs use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.scan import named_columns
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spark.types.sizes import bytes_of, row_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.lake.spark.job.request import Action, Clause, RowChangeSource
    from airflow_provider_ducklake.lake.spark.types.names import MatchNames

_SHOWN_DUPLICATES = 3
_LONGEST_SHOWN = 100  # characters of a value


def broadcast_if_small(rows: DataFrame, count: int) -> DataFrame:
    """Return rows for a join; Spark does not know how many there are in what was kept."""
    return f.broadcast(rows) if is_small(rows, count) else rows


def is_small(rows: DataFrame, count: int) -> bool:
    """Whether Spark would send that many rows to each task of a join."""
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

    ``target`` has the columns that conditions name, and its ``place``; ``source`` all of its own, and
    ``source_id``.
    """
    target = target.alias(request.target_alias)
    if source is None:
        none = f.lit(None).cast("bigint").alias(names.source_id)
        rows = target.select(*names.place, none, _of_lone_row(request).alias(names.clause))
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
        clause = f.when(source_id.isNull(), _of_lone_row(request)).otherwise(f.col(names.clause))
    chosen = joined.select(*names.place, source_id, clause.alias(names.clause))
    return chosen.where(source_id.isNotNull() | f.col(names.clause).isNotNull())


def _of_lone_row(request: RowChangeSource) -> SparkColumn:
    """Return the number of the clause for a row of the table that no row of the source matches."""
    return _first(request.not_matched_by_source, len(request.matched) + len(request.not_matched))


def _first(clauses: Sequence[Clause], number: int) -> SparkColumn:
    """Return the number of the first clause whose condition holds, else NULL; they count from ``number``."""
    numbered = list(enumerate(clauses, number))
    nothing = f.lit(None).cast("int")
    return reduce(
        lambda rest, one: f.when(_holds(one[1]), f.lit(one[0])).otherwise(rest), reversed(numbered), nothing
    )


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
