"""Streaming DataFrames as a user's module has them: the JSON files of a folder, one in each batch."""

import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = "id INT, kind STRING"


def events(spark: SparkSession, _sources: dict[str, DataFrame]) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(os.environ["STREAM_FOLDER"])


def first_of_each_kind(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    """What the query remembers from batch to batch decides which rows there are."""
    return events(spark, sources).dropDuplicates(["kind"])


def known_kinds(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    return events(spark, sources).join(sources["kinds"], "kind").select("id", "kind")


def with_poison(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    poison = f.raise_error(f.lit("a poisoned row")).cast("int")
    good = f.when(f.col("kind") == "poison", poison).otherwise(f.col("id"))
    return events(spark, sources).withColumn("id", good)


def not_a_stream(spark: SparkSession, _sources: dict[str, DataFrame]) -> DataFrame:
    return spark.createDataFrame([(1, "a")], SCHEMA)


def totals(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    return events(spark, sources).groupBy("kind").agg(f.max("id").alias("id"))


def other_columns(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    return events(spark, sources).withColumnRenamed("kind", "sort")


def with_note(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    return events(spark, sources).withColumn("note", f.lit("new"))


def slow(spark: SparkSession, sources: dict[str, DataFrame]) -> DataFrame:
    """Leave a mark when the second batch is under way, which then takes its time."""

    def pass_on(batches: Any) -> Any:
        import time  # noqa: PLC0415 - it runs in Spark's Python
        from pathlib import Path  # noqa: PLC0415

        for batch in batches:
            if "slow" in batch.column("kind").to_pylist() and not Path(mark).exists():
                Path(mark).touch()
                time.sleep(2)
            yield batch

    mark = os.environ["STREAM_MARK"]
    return events(spark, sources).mapInArrow(pass_on, SCHEMA)
