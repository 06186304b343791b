"""Check users' Spark SQL expressions on rows of the right types, before any work.

An expression is computed more than once, and for one row alone: it may neither be random nor look at other
rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spark.job.errors import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_condition(rows: DataFrame, text: str, what: str) -> None:
    """Refuse what is no condition on a row of ``rows``; ``what`` is how errors call it.

    Raises:
        InvalidInputError: Spark cannot read it, it is not true or false, random, or looks at other rows.
    """
    found = check_value(rows, text, what)
    if not isinstance(found, t.BooleanType | t.NullType):
        raise InvalidInputError(f"{what}: {text!r} must be a boolean, but is {found.simpleString()}.")


def check_value(rows: DataFrame, text: str, what: str) -> t.DataType:
    """Return the type of an expression over a row of ``rows``.

    Raises:
        InvalidInputError: Spark cannot read it, or it is random, looks at other rows, or has a star.
    """
    try:
        _check_has_no_star(rows, text, what)
        value = f.expr(text)
        found = rows.select(value.alias("value")).schema[0].dataType
        _check_alone(rows.where(value.isNull()), text, what)
    except AnalysisException as error:
        raise InvalidInputError(f"{what}: {text!r} cannot be run: {message_of(error)}") from error
    return found


def _check_has_no_star(rows: DataFrame, text: str, what: str) -> None:
    """Refuse ``struct(*)`` and the like: rows have columns of ours beside their own."""
    if "*" not in text:
        return
    parser = rows.sparkSession._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - no public way
    nodes = [parser.parseExpression(text)]
    while nodes:
        node = nodes.pop()
        if node.nodeName().startswith("UnresolvedStar"):
            raise InvalidInputError(f"{what}: {text!r} uses * for all columns. Name the columns.")
        children = node.children()
        nodes += [children.apply(place) for place in range(children.size())]


def looks_at(rows: DataFrame, text: str, columns: DataFrame) -> bool:
    """Whether an expression over a row of ``rows`` needs one of the columns that it has from ``columns``."""
    needed = rows.select(value_of(text))._jdf.queryExecution().analyzed().references()  # noqa: SLF001 - no public way
    own = columns._jdf.queryExecution().analyzed().outputSet()  # noqa: SLF001
    return not needed.intersect(own).isEmpty()


def _check_alone(filtered: DataFrame, text: str, what: str) -> None:
    """Refuse what cannot be computed again; a filter takes no aggregates, windows and generators anyway."""
    plan = filtered._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
    jvm = filtered.sparkSession._jvm  # noqa: SLF001
    assert jvm is not None
    if not plan.deterministic():
        raise InvalidInputError(
            f"{what}: {text!r} is not deterministic. Compute it in the source, which is read once, or "
            "insert the rows from a query."
        )
    if jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery(plan.condition()):
        raise InvalidInputError(f"{what}: {text!r} contains a subquery. Merge with that query as the source.")


def value_of(text: str) -> SparkColumn:
    """Return an expression that was checked."""
    return f.expr(text)
