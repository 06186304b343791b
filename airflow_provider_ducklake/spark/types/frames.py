"""What DataFrames do for us at less cost: columns by few calls to the JVM, Arrow batches without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from airflow_provider_ducklake.spark.types.names import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence


Expression = SparkColumn | str  # a text is SQL: no call to the JVM, where each step of a Column is some


def select(rows: DataFrame, expressions: Sequence[Expression]) -> DataFrame:
    """Return the expressions' values, each with its name."""
    texts = [one for one in expressions if isinstance(one, str)]
    if len(texts) == len(expressions):
        return rows.selectExpr(*texts)
    return rows.select(*(f.expr(one) if isinstance(one, str) else one for one in expressions))


def renamed(name: str, new: str) -> str:
    """Return the SQL of a column under another name.

    >>> renamed("a", "b c")
    '`a` AS `b c`'
    """
    return f"{quoted(name)} AS {quoted(new)}"


BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
    """Return what ``DataFrame.mapInArrow`` returns; that one asks for pandas, which the call does not use."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    arguments = udf(*(df[quoted(name)] for name in df.columns))
    mapped = df._jdf.mapInArrow(arguments._jc, False, None)  # noqa: FBT003, SLF001 - no public way without pandas
    return DataFrame(mapped, df.sparkSession)
