"""Which of the two kinds of sessions one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.sessions.protocol import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as t

    from airflow_provider_ducklake.spark.sessions.protocol import BatchFunction, Kind


def kind_of(spark: SparkSession) -> Kind:
    """Return what a session offers besides DataFrames."""
    if is_remote(spark):
        from airflow_provider_ducklake.spark.sessions.connect import Connect  # noqa: PLC0415 - needs grpc

        return Connect(spark)
    from airflow_provider_ducklake.spark.sessions.classic import Classic  # noqa: PLC0415 - needs py4j

    return Classic(spark)


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
    """Return what a function makes of the rows' batches; see ``Kind``."""
    return kind_of(df.sparkSession).map_in_arrow(df, function, schema)
