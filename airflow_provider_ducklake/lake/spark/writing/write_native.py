"""The native engine: Spark's own Parquet writer, for stores that only Spark's JVM has access to.

It needs no Python in the tasks (ADR 0019). Spark's committer keeps the files of successful task attempts
only. They lie below a directory that this run of the job made and no other knows, so listing it gives exactly
those. On a disk, files of a partition then move to its folder; in a store, where that is a copy, they stay.
A committer that moves files copies them there, too: S3A's magic one does not, if Spark has its classes.
*Source:* "Committing work to S3 with the S3A committers" in Hadoop's guide to S3A.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.spark.job.errors import marked
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spark.sessions.settings import committed_by
from airflow_provider_ducklake.lake.spark.types.frames import row_bytes
from airflow_provider_ducklake.lake.spark.types.names import free_prefix, quoted
from airflow_provider_ducklake.lake.spark.types.spark_types import FIELD_ID_KEY, carrier_type
from airflow_provider_ducklake.lake.spark.writing.row_order import ordered
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri
from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    delete_file,
    file_sizes,
    move_file,
    open_filesystem,
    split_scheme,
)
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.parquet.footer import NanRule, read_footer
from airflow_provider_ducklake.lake.storage.parquet.opening import open_plain_parquet
from airflow_provider_ducklake.lake.storage.parquet.rows import values_of_row
from airflow_provider_ducklake.lake.storage.parquet.string_checks import string_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings, WritePlan
    from airflow_provider_ducklake.lake.spec.files import DataFile


_CODECS = {"lz4": "lz4_raw"}
# Else a local lake would fill with .crc files. Never for a store: S3A's buffer on disk needs the other class.
_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
# Of spark-hadoop-cloud, which PySpark does not bring.
_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
_COMMITTER = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
_MAGIC = {
    "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "fs.s3a.committer.name": "magic",
}
_COMPRESSED_SHARE = 0.5  # of a row's size in memory, by measurement an upper bound


def write(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Write the rows by one Spark action and return the files; ``keys`` name the last columns."""
    directory = f"{plan.directory}{uuid.uuid4().hex[:8]}/"
    df = _checked(df, plan.target)
    folders = [f"{free_prefix(df.columns)}partition"] if keys else []
    for name in folders:
        df = df.withColumn(name, _folder(df, keys)).drop(*keys)
    df = ordered(df, folders, plan)
    writer = _configured(df.write.mode("append"), df, plan.settings)
    if _is_on_disk(directory):
        writer = writer.options(**_WITHOUT_CHECKSUMS)
    with _committer(df.sparkSession, directory) as options:
        writer.options(**options).partitionBy(*folders).parquet(hadoop_uri(directory))
    names = sorted(name for name in file_sizes(directory) if name.endswith(".parquet"))
    files = in_threads(lambda name: _adopted(directory + name, plan), names)
    return [file for file in files if file is not None]


def _is_on_disk(path: str) -> bool:
    return split_scheme(path)[0] == "file"


@contextmanager
def _committer(spark: SparkSession, directory: str) -> Iterator[dict[str, str]]:
    """Return options of a write; as long as this lasts, S3A's magic committer is used if Spark has it."""
    if split_scheme(hadoop_uri(directory))[0] != "s3a" or not kind_of(spark).has_class(_PROTOCOL):
        yield {}
        return
    with committed_by(spark, _PROTOCOL, _COMMITTER):
        yield _MAGIC


def _folder(df: DataFrame, keys: Sequence[str]) -> SparkColumn:
    """Return a name of a directory for each distinct key: a hash, as values may be long, odd, or NULL."""
    texts = [f.hex(key) if df.schema[key].dataType.typeName() == "binary" else f.col(key) for key in keys]
    hashes = [f.coalesce(f.sha2(text.cast("string").cast("binary"), 256), f.lit("null")) for text in texts]
    return hashes[0] if len(hashes) == 1 else f.sha2(f.concat_ws("-", *hashes).cast("binary"), 256)


def _configured(writer: DataFrameWriter, df: DataFrame, settings: ParquetSettings) -> DataFrameWriter:
    codec = settings.compression.lower()
    stored_bytes = max(1, int(row_bytes(df.schema) * _COMPRESSED_SHARE))
    options = {
        "compression": _CODECS.get(codec, codec),
        "parquet.block.size": str(settings.row_group_bytes),
        "parquet.writer.version": settings.page_version.lower(),
        "maxRecordsPerFile": str(max(1, settings.target_file_size_bytes // stored_bytes)),
        "mapreduce.fileoutputcommitter.algorithm.version": "1",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Cut bounds would pass for values of the column.
        "parquet.statistics.truncate.length": str(2**31 - 1),
    }
    if settings.row_group_is_given:
        options["parquet.block.row.count.limit"] = str(settings.row_group_rows)
    if settings.compression_level is not None:
        options["parquet.compression.codec.zstd.level"] = str(settings.compression_level)
    return writer.options(**options)


def _adopted(path: str, plan: WritePlan) -> DataFile | None:
    """Return the finished file in its place; None for one without rows, which Spark writes if there are none.

    Its statistics are its footer's: where a float column holds NaN, that has no upper bound.
    """
    file = read_footer(open_filesystem(path), plan.target, NanRule.GREATEST)
    if not file.record_count:
        delete_file(path)
        return None
    if not plan.partition_fields:
        return file
    values = _partition_values(path, plan)
    folder = plan.partition_folder(values) if _is_on_disk(path) else None
    if folder is None:
        return replace(file, partition_values=values)
    place = folder + plan.prefix + uuid.uuid4().hex + ".parquet"
    move_file(path, place)
    return replace(file, path=place, partition_values=values)


def _partition_values(path: str, plan: WritePlan) -> tuple[str | None, ...]:
    keys = {field.column_id for field in plan.partition_fields}
    columns = tuple(column for column in plan.target.columns if column.id in keys)
    names = [column.name for column in columns]
    with open_plain_parquet(open_filesystem(path)) as source, pq.ParquetFile(source) as reader:
        row = next(reader.iter_batches(batch_size=1, row_groups=[0], columns=names))
    return values_of_row(row.select(names), TableSchema(columns), plan.partition_fields)


def _checked(df: DataFrame, schema: TableSchema) -> DataFrame:
    """Return ``df``, the columns of ``schema`` and maybe others; a string not in UTF-8 fails its task."""
    replaced = {column.name: _valid(column) for column in schema.columns if any(string_leaves(column))}
    if not replaced:
        return df
    return df.select([replaced.get(name, f.col(quoted(name))) for name in df.columns])


def _valid(column: Column) -> SparkColumn:
    value = f.col(quoted(column.name))
    are_valid = (f.is_valid_utf8(_value(path)) for path in string_leaves(column))
    problem = (
        f"Column {column.name}: a string is not valid UTF-8; nothing was written. Read the source in its own "
        "encoding, or use decode(value, 'ISO-8859-1')."
    )
    refused = f.raise_error(f.lit(marked(problem))).cast(carrier_type(column))
    checked = f.when(~reduce(SparkColumn.__and__, are_valid), refused).otherwise(value)
    return checked.alias(column.name, metadata={FIELD_ID_KEY: column.id})


def _value(path: tuple[Column, ...]) -> SparkColumn:
    top, *fields = path
    return reduce(lambda value, child: value.getField(child.name), fields, f.col(quoted(top.name)))
