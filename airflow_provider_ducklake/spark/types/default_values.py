"""The value of a column that a row lacks: the column's default, or NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.read_types import literal
from airflow_provider_ducklake.spark.types.spark_types import carrier_type
from airflow_provider_ducklake.spec.defaults import literal_physical
from airflow_provider_ducklake.spec.schema import NO_DEFAULT

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.schema import Column


def has_default(column: Column) -> bool:
    """Whether a column has a default other than NULL."""
    return column.default.value not in (None, NO_DEFAULT) and not column.children


def default_value(column: Column) -> SparkColumn:
    """Return a column's default in its carrier.

    Raises:
        UnsupportedFeatureError: it is an expression, which only DuckDB can compute.
    """
    carrier = carrier_type(column)
    if not has_default(column):
        return f.lit(None).cast(carrier)
    default = column.default
    if default.kind != "literal" or default.value is None:
        raise _not_ours(column)
    try:
        return literal(column.type, literal_physical(column.type, default.value)).cast(carrier)
    except (ValueError, ArithmeticError):
        raise _not_ours(column) from None


def _not_ours(column: Column) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Column {column.name} is missing in the rows, and its default {column.default.value} is an "
        "expression that only DuckDB can compute. Add the column to the rows."
    )
