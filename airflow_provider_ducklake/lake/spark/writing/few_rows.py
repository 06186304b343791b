"""Few rows are fetched and written by this process: sooner done than tasks in Python have begun.

Spark's own estimate decides, where nothing in the plan makes more rows or bytes than it estimates. It may be
wrong all the same: so no more rows are fetched than are few, and where there are more, tasks write them all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spark.writing.row_order import ordered
from airflow_provider_ducklake.lake.spec.log_lines import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.lake.planning.writing.write import WritePlan

log = logger(__name__)

MOST_ROWS = 10_000  # those of one of Spark's batches for Python
_MOST_BYTES = 4 * 2**20
_PLAN = re.compile(r"== Optimized Logical Plan ==\n(.*?)(?:\n\n|\Z)", re.DOTALL)
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+) (B|KiB|MiB)\b")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20}
# What makes any number of rows of one, is computed by code of users, or tells them of the rows it has seen.
_UNKNOWN = re.compile(
    r"^[\s:|+-]*(?:Generate|Expand|\w*Map\w*|\w*Python\w*|\w*Arrow\w*|\w*Pandas\w*|Script\w*|\w*Stream\w*"
    r"|CoGroup|CollectMetrics)\b",
    re.MULTILINE,
)
_VARIANT = t.VariantType().json()  # PySpark cannot fetch one that is NULL


def few_rows(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> pa.Table | None:
    """Return the rows as a task would get them, in order; None where they may be many.

    ``keys`` name the last columns.

    Raises:
        InvalidInputError: a value does not fit its column.
    """
    if plan.row_order.zorder_by or _VARIANT in df.schema.json():
        return None
    if not is_small(kind_of(df.sparkSession).explained(df)):
        return None
    try:
        rows = ordered(df.limit(MOST_ROWS + 1).coalesce(1), keys, plan).toArrow()
    except Exception as error:
        if type(typed(error)) is not SparkJobError:
            raise
        log.debug("The rows cannot be fetched; tasks write them", exc_info=error)
        return None
    return rows if rows.num_rows <= MOST_ROWS else None


def is_small(explained: str) -> bool:
    """Whether a plan, explained with its costs, gives few bytes for certain enough to look."""
    found = _PLAN.search(explained)
    if found is None or _UNKNOWN.search(found[1]):
        return False
    sizes = _SIZE.findall(found[1].split("\n", 1)[0])
    return bool(sizes) and float(sizes[-1][0]) * _UNITS[sizes[-1][1]] <= _MOST_BYTES
