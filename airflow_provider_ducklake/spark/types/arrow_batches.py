"""Arrow batches through Spark's Python workers, without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
    """Return what ``DataFrame.mapInArrow`` returns; that one asks for pandas, which the call does not use."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    arguments = udf(*(df[f"`{name.replace('`', '``')}`"] for name in df.columns))
    mapped = df._jdf.mapInArrow(arguments._jc, False, None)  # noqa: FBT003, SLF001 - no public way without pandas
    return DataFrame(mapped, df.sparkSession)
