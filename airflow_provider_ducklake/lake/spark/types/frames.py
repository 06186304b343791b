"""Columns of DataFrames by few calls to the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.spark.types.names import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence


Expression = SparkColumn | str  # a text is SQL: no call to the JVM, where each step of a Column is some


def select(rows: DataFrame, expressions: Sequence[Expression]) -> DataFrame:
    """Return the expressions' values, each with its name."""
    texts = [one for one in expressions if isinstance(one, str)]
    if len(texts) == len(expressions):
        return rows.selectExpr(*texts)
    return rows.select(*(f.expr(one) if isinstance(one, str) else one for one in expressions))


def analysed(df: DataFrame) -> DataFrame:
    """Return the DataFrame when Spark has looked at it: with Spark Connect it waits until it is asked.

    Raises:
        AnalysisException: Spark cannot make sense of it, or a file that it names is missing.
    """
    _ = df.schema
    return df


def renamed(name: str, new: str) -> str:
    """Return the SQL of a column under another name.

    >>> renamed("a", "b c")
    '`a` AS `b c`'
    """
    return f"{quoted(name)} AS {quoted(new)}"
