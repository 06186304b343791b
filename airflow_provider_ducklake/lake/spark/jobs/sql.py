"""The SQL job: queries over tables of the lake, whose rows become data files of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ...errors import InvalidInputError, SchemaMismatchError
from ...format.names.identifiers import QualifiedName
from ...planning.reading.scan import ChangeFeedPlan, ScanPlan
from .. import sources
from ..job.request import JobRequest, LakeSource, Step
from ..read import read_changes, read_table, reading
from ..sessions.settings import prepare_reading
from ..types.names import free_prefix, quoted
from .insert import write
from .lake_views import rows_of_view

if TYPE_CHECKING:
    from ...planning.writing.write import WritePlan, WriteResult


def run_sql(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Run the request's queries, or its function, and write what they give."""
    source = request.source
    assert isinstance(source, LakeSource)
    with reading(source.tables.values()):
        rows = rows_of(spark, source, request.plans)
        return tuple(write(df, plan) for df, plan in zip(rows, request.plans, strict=True))


def rows_of(spark: SparkSession, source: LakeSource, plans: tuple[WritePlan, ...]) -> list[DataFrame]:
    """Return the rows of the queries, or of the function, for each plan."""
    tables = {
        name: _table(spark, plan, as_inserts=name in source.as_inserts)
        for name, plan in source.tables.items()
    }
    datasets = sources.read_all(spark, source.datasets)
    if source.function is None:
        return _rows_of_steps(spark, source, plans, {**datasets, **tables})
    lake_views = {step.view: df for step, df in _ran(spark, source, tables) if step.view is not None}
    rows = _rows_of_function(spark, source.function, plans, {**tables, **lake_views}, datasets)
    prepare_reading(spark)  # the function may have set the session, and the tables are read from here on
    return rows


def _table(spark: SparkSession, plan: ScanPlan | ChangeFeedPlan, *, as_inserts: bool) -> DataFrame:
    if not isinstance(plan, ScanPlan):
        return read_changes(spark, plan, only_seen=True)
    if not as_inserts:
        return read_table(spark, plan)
    prefix = free_prefix(plan.columns)
    rows = read_table(spark, plan, row_ids=True, prefix=prefix)
    return rows.select(
        f.lit(int(plan.table.snapshot.id)).cast("bigint").alias("snapshot_id"),
        f.col(f"{prefix}row_id").alias("rowid"),
        f.lit("insert").alias("change_type"),
        *(f.col(quoted(column)) for column in plan.columns),
    )


def _rows_of_steps(
    spark: SparkSession, source: LakeSource, plans: tuple[WritePlan, ...], views: Mapping[str, DataFrame]
) -> list[DataFrame]:
    rows: dict[int, DataFrame] = {}
    for step, df in _ran(spark, source, views):
        if step.plan is not None:
            rows[step.plan] = _named(df, step, plans[step.plan].table)
    return [rows[number] for number in range(len(plans))]


def _ran(
    spark: SparkSession, source: LakeSource, views: Mapping[str, DataFrame]
) -> Iterator[tuple[Step, DataFrame]]:
    """Yield each step with the rows of its query, which sees ``views`` and those of earlier steps.

    A view of the lake sees the lake's tables and views only.
    """
    of_lake = set(source.tables)
    for name, df in views.items():
        sources.show_as(df, name)
    for step in source.steps:
        if step.lake_view is None:
            df = sources.query(spark, step.query)
        else:
            df = rows_of_view(spark, step, of_lake)
        if step.view is not None:
            sources.show_as(df, step.view)
            of_lake |= {step.view} if step.lake_view else set()
        yield step, df


def _named(df: DataFrame, step: Step, table: str) -> DataFrame:
    """Return the rows with the columns' names that the statement gives them, by position."""
    if step.columns is None:
        return df
    if len(df.columns) != len(step.columns):
        raise SchemaMismatchError(
            table,
            (
                (
                    f"the query has {len(df.columns)} columns ({', '.join(df.columns)}), but the statement "
                    f"fills {len(step.columns)}: {', '.join(step.columns)}"
                ),
            ),
        )
    return df.toDF(*step.columns)


def _rows_of_function(
    spark: SparkSession,
    function: str,
    plans: tuple[WritePlan, ...],
    tables: Mapping[str, DataFrame],
    datasets: Mapping[str, DataFrame],
) -> list[DataFrame]:
    """Call the user's function with the session, ``lake_table`` and the datasets."""
    wanted = [name for name in tables if "." in name]  # those that only views read have names of ours
    known = {QualifiedName.of(name).folded: tables[name] for name in wanted}

    def lake_table(name: str) -> DataFrame:
        """Return a table of the lake that the operator was given in ``tables``."""
        found = known.get(QualifiedName.of(name).folded)
        if found is None:
            raise InvalidInputError(
                f"lake_table({name!r}): the task reads {', '.join(wanted) or 'no table'}. Name it in the "
                "operator's tables."
            )
        return found

    result = sources.function(function)(
        spark, lake_table, **({"sources": dict(datasets)} if datasets else {})
    )
    return _by_plan(function, result, plans)


def _by_plan(function: str, result: object, plans: tuple[WritePlan, ...]) -> list[DataFrame]:
    if isinstance(result, DataFrame) and len(plans) == 1:
        return [result]
    wanted = [plan.table for plan in plans]
    if not isinstance(result, dict):
        raise InvalidInputError(
            f"transform={function!r} returned {type(result).__name__}. For {', '.join(wanted)} it must "
            "return a dict with a DataFrame for each table"
            + (", or just the DataFrame." if len(plans) == 1 else ".")
        )
    given = {QualifiedName.of(name).folded: df for name, df in result.items()}
    if given.keys() != {QualifiedName.of(name).folded for name in wanted}:
        raise InvalidInputError(
            f"transform={function!r} returned rows for {', '.join(map(str, result)) or 'no table'}; the task "
            f"writes {', '.join(wanted)}."
        )
    for name, df in result.items():
        if not isinstance(df, DataFrame):
            raise InvalidInputError(
                f"transform={function!r} returned {type(df).__name__} for {name}, not a DataFrame."
            )
    return [given[QualifiedName.of(name).folded] for name in wanted]
