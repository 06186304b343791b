"""Which rows a clause applies to: rows of a table, found by their places, and rows of a source.

Only the columns that conditions name are read. What is found is kept, since more than one job uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.planning.named_columns import named_columns
from airflow_provider_ducklake.spark.expressions import value_of
from airflow_provider_ducklake.spark.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.spark.job_request import Action, Clause, RowChangeSource

# of a row of the table: as read_table calls them
ROW_ID, FILE_ID, POSITION = "_ducklake_row_id", "_ducklake_file_id", "_ducklake_position"
# of a row of the source; and the clause that applies, by its number
SOURCE_ID, CLAUSE = "_ducklake_source_id", "_ducklake_clause"
_ALONE = "_ducklake_clause_alone"
PLACE = (FILE_ID, POSITION, ROW_ID)
_SHOWN_DUPLICATES = 3


def broadcast_if_small(rows: DataFrame, count: int) -> DataFrame:
    """Return rows for a join; Spark does not know how many there are in what was kept."""
    session = rows.sparkSession
    limit = session._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()  # noqa: SLF001 - no public way
    row_bytes = rows._jdf.schema().defaultSize()  # noqa: SLF001
    return f.broadcast(rows) if count * row_bytes <= limit else rows


@dataclass(frozen=True, slots=True)
class Found:
    """Rows to which a clause applies, with the columns ``PLACE``, ``SOURCE_ID`` and ``CLAUSE``.

    A row of the table has no source id where no row of the source matches it; a row of the source that
    matches none has no place. ``counts`` says how many rows there are by file (None: in the catalog, or no
    row of the table) and by clause. ``kept`` is to be let go.
    """

    rows: DataFrame
    counts: dict[tuple[int | None, int], int]
    kept: tuple[DataFrame, ...]

    def count(self, clauses: Sequence[int]) -> int:
        """Return the number of rows to which one of the clauses applies."""
        return sum(count for (_, clause), count in self.counts.items() if clause in clauses)

    def files(self, clauses: Sequence[int]) -> set[int]:
        """Return the data files that have such rows."""
        return {file for (file, clause) in self.counts if file is not None and clause in clauses}

    def close(self) -> None:
        """Let go of what is kept in memory and on the executors' disks."""
        for one in self.kept:
            one.unpersist()


def numbers(request: RowChangeSource, *actions: Action) -> list[int]:
    """Return the numbers of the clauses that do one of the actions."""
    return [number for number, clause in enumerate(request.clauses) if clause.action in actions]


def find(target: DataFrame, source: DataFrame | None, request: RowChangeSource) -> Found:
    """Return the rows to which a clause applies.

    ``target`` has the columns that conditions name, and ``PLACE``; ``source`` all of its own, and
    ``SOURCE_ID``.

    Raises:
        InvalidInputError: several rows of the source apply to the same row of the table; names some.
    """
    target = target.alias(request.target_alias)
    if request.not_matched_by_source:
        number = len(request.matched) + len(request.not_matched)
        alone = _first(request.not_matched_by_source, number)
        target = target.withColumn(_ALONE, alone).alias(request.target_alias)
    if source is None:
        none = f.lit(None).cast("bigint").alias(SOURCE_ID)
        rows = target.where(f.col(_ALONE).isNotNull())
        kept: tuple[DataFrame, ...] = (rows.select(*PLACE, none, f.col(_ALONE).alias(CLAUSE)).persist(),)
        return Found(kept[0], _counts(kept[0]), kept)
    pairs = _pairs(target, source.alias(request.source_alias), request).persist()
    found = pairs.where(f.col(CLAUSE).isNotNull())
    if request.not_matched:
        found = found.union(_unmatched(source.alias(request.source_alias), pairs, request))
    found = found.persist()
    try:
        counts = _checked_counts(found, source, request)
    except BaseException:
        found.unpersist()
        pairs.unpersist()
        raise
    return Found(found, counts, (found, pairs))


def _pairs(target: DataFrame, source: DataFrame, request: RowChangeSource) -> DataFrame:
    """Return the pairs of rows that match, and rows of the table that match none but are to change."""
    assert request.on is not None
    how = "left" if request.not_matched_by_source else "inner"
    joined = target.join(source, value_of(request.on), how)
    clause = _first(request.matched, 0)
    if request.not_matched_by_source:
        clause = f.when(f.col(SOURCE_ID).isNull(), f.col(_ALONE)).otherwise(clause)
    chosen = joined.select(*PLACE, SOURCE_ID, clause.alias(CLAUSE))
    return chosen.where(f.col(SOURCE_ID).isNotNull() | f.col(CLAUSE).isNotNull())


def _unmatched(source: DataFrame, pairs: DataFrame, request: RowChangeSource) -> DataFrame:
    clause = _first(request.not_matched, len(request.matched))
    rows = source.select(SOURCE_ID, clause.alias(CLAUSE)).where(f.col(CLAUSE).isNotNull())
    nowhere = (f.lit(None).cast("bigint").alias(name) for name in PLACE)
    return rows.join(pairs.select(SOURCE_ID), SOURCE_ID, "left_anti").select(*nowhere, SOURCE_ID, CLAUSE)


def _first(clauses: Sequence[Clause], number: int) -> SparkColumn:
    """Return the number of the first clause whose condition holds, else NULL; they count from ``number``."""
    numbered = list(enumerate(clauses, number))
    nothing = f.lit(None).cast("int")
    return reduce(
        lambda rest, one: f.when(_holds(one[1]), f.lit(one[0])).otherwise(rest), reversed(numbered), nothing
    )


def _holds(clause: Clause) -> SparkColumn:
    return f.lit(True) if clause.condition is None else value_of(clause.condition)  # noqa: FBT003 - a value


# --- how many rows, and that no row changes twice


def _counts(rows: DataFrame) -> dict[tuple[int | None, int], int]:
    counted = rows.groupBy(FILE_ID, CLAUSE).count().collect()
    return {(row[FILE_ID], row[CLAUSE]): row["count"] for row in counted}


def _checked_counts(
    found: DataFrame, source: DataFrame, request: RowChangeSource
) -> dict[tuple[int | None, int], int]:
    is_new = f.col(ROW_ID).isNull()
    of_source = f.when(is_new, f.col(SOURCE_ID)).alias("of_source")
    places = found.groupBy(*PLACE, of_source).agg(f.count("*").alias("times"), f.min(CLAUSE).alias(CLAUSE))
    counted = places.groupBy(FILE_ID, CLAUSE).agg(f.count("*").alias("count"), f.max("times").alias("times"))
    rows = counted.collect()
    if any(row["times"] > 1 for row in rows):
        raise _changed_twice(found, source, request)
    return {(row[FILE_ID], row[CLAUSE]): row["count"] for row in rows}


def _changed_twice(found: DataFrame, source: DataFrame, request: RowChangeSource) -> InvalidInputError:
    """Return the error that names rows of the source by the columns that the match looks at."""
    own = [name for name in source.columns if name != SOURCE_ID]
    names = named_columns([request.on or ""], own) or tuple(own)
    places = found.where(f.col(ROW_ID).isNotNull())
    twice = places.groupBy(*PLACE).agg(f.count("*").alias("times"), f.min(SOURCE_ID).alias(SOURCE_ID))
    rows = (
        twice.where(f.col("times") > 1)
        .join(source, SOURCE_ID)
        .select(*(f.col(quoted(name)) for name in names))
        .distinct()
        .limit(_SHOWN_DUPLICATES)
        .collect()
    )
    shown = "; ".join(
        ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True)) for row in rows
    )
    return InvalidInputError(
        f"Several rows of the source match the same row of {request.target.table.name}, for one: {shown}. "
        "Leave one of them in the source, or narrow the match."
    )
