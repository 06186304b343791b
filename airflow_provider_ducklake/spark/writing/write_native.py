"""The native engine: Spark's own Parquet writer, files adopted where it puts them.

Spark's committer moves the files of successful task attempts only. They lie below a directory that this run
of the job made and no other knows, so listing it gives exactly those. Files of a partition then move to
its folder, which is a copy in an object store.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as f

from airflow_provider_ducklake.spark.writing import utf8_check
from airflow_provider_ducklake.spark.writing.footers import describe_files
from airflow_provider_ducklake.spark.writing.row_order import ordered
from airflow_provider_ducklake.spec.names.paths import hadoop_uri
from airflow_provider_ducklake.spec.partitioning import HIVE_NULL, PartitionField, TransformKind
from airflow_provider_ducklake.storage.files.filesystem import (
    delete_file,
    move_file,
    open_filesystem,
    split_scheme,
)
from airflow_provider_ducklake.storage.files.parallel import in_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.planning.writing.write import ParquetSettings, WritePlan
    from airflow_provider_ducklake.spec.files import DataFile

_CODECS = {"lz4": "lz4_raw"}
_LONGEST_DIRECTORY = 80  # bytes of a value that names a directory
# Else a local lake would fill with .crc files. Never for a store: S3A's buffer on disk needs the other class.
_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_COMPRESSED_SHARE = 0.5  # of a row's size in memory, by measurement an upper bound


def write(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Write the rows by one Spark action and return the files; ``keys`` name the last columns.

    Raises:
        InvalidValueError: strings that are not UTF-8.
    """
    directory = f"{plan.directory}{uuid.uuid4().hex[:8]}/"
    rows = df
    df, folders = _with_folders(utf8_check.checked(df, plan.target), keys, plan)
    df = ordered(df, folders, plan)
    writer = _configured(df.write.mode("append"), df, plan.settings)
    if split_scheme(directory)[0] == "file":
        writer = writer.options(**_WITHOUT_CHECKSUMS)
    if folders:
        writer = writer.partitionBy(*folders)
    try:
        writer.parquet(hadoop_uri(directory))
    except Exception as error:
        refused = utf8_check.counted(error, rows, plan.target, plan.table)
        if refused is not None:
            raise refused from error
        raise
    files = describe_files(df.sparkSession, _written(directory), plan)
    return in_threads(lambda file: _in_its_folder(file, plan), filter(_has_rows, files))


def _in_its_folder(file: DataFile, plan: WritePlan) -> DataFile:
    folder = plan.partition_folder(file.partition_values)
    if folder is None:
        return file
    path = folder + plan.prefix + uuid.uuid4().hex + ".parquet"
    move_file(file.path, path)
    return replace(file, path=path)


def _configured(writer: DataFrameWriter, df: DataFrame, settings: ParquetSettings) -> DataFrameWriter:
    codec = settings.compression.lower()
    row_bytes = max(1, int(_row_bytes(df) * _COMPRESSED_SHARE))
    options = {
        "compression": _CODECS.get(codec, codec),
        "parquet.writer.version": settings.page_version.lower(),
        "maxRecordsPerFile": str(max(1, settings.target_file_size_bytes // row_bytes)),
        "mapreduce.fileoutputcommitter.algorithm.version": "1",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Cut bounds would pass for values of the column.
        "parquet.statistics.truncate.length": str(2**31 - 1),
    }
    if settings.row_group_bytes is not None:
        options["parquet.block.size"] = str(settings.row_group_bytes)
    if settings.row_group_is_given:
        options["parquet.block.row.count.limit"] = str(settings.row_group_rows)
    if settings.compression_level is not None:
        options["parquet.compression.codec.zstd.level"] = str(settings.compression_level)
    return writer.options(**options)


def _row_bytes(df: DataFrame) -> int:
    """Return Spark's own estimate of a row, by types alone."""
    return int(df._jdf.schema().defaultSize())  # noqa: SLF001 - no public way


def _with_folders(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> tuple[DataFrame, list[str]]:
    """Replace the key columns by texts that name directories, one for each distinct key.

    Spark puts null and the empty string in one directory, and names have limits: odd values go by a hash.
    Null goes by its name, for Spark would sort texts that may be null again, and not by what follows them.
    """
    schema = plan.target
    taken = {name.lower() for name in df.columns}
    folders: list[str] = []
    for key, field in zip(keys, plan.partition_fields, strict=True):
        name = _folder_name(schema.by_id(field.column_id).name, field, taken)
        text = _hex_or_text(df, key)
        odd = (
            (text == "")
            | text.startswith("#")
            | (text == HIVE_NULL)
            | (f.octet_length(text) > _LONGEST_DIRECTORY)
        )
        hashed = f.concat(f.lit("#"), f.sha2(text.cast("binary"), 256))
        folder = f.coalesce(f.when(odd, hashed).otherwise(text), f.lit(HIVE_NULL))
        df = df.withColumn(name, folder).drop(key)
        folders.append(name)
    return df, folders


def _hex_or_text(df: DataFrame, key: str) -> SparkColumn:
    return f.hex(key) if df.schema[key].dataType.typeName() == "binary" else f.col(key).cast("string")


def _folder_name(column: str, field: PartitionField, taken: set[str]) -> str:
    name = column if field.transform.kind is TransformKind.IDENTITY else field.transform.kind.value
    while name.lower() in taken or not name:
        name = f"_{name}"
    taken.add(name.lower())
    return name


def _written(directory: str) -> list[str]:
    location = open_filesystem(directory)
    selector = pafs.FileSelector(location.path.rstrip("/"), recursive=True, allow_not_found=True)
    found = location.filesystem.get_file_info(selector)
    root = location.path.rstrip("/") + "/"
    names = (info.path.removeprefix(root) for info in found if info.type == pafs.FileType.File)
    return sorted(directory + name for name in names if name.endswith(".parquet"))


def _has_rows(file: DataFile) -> bool:
    """Whether the file holds rows; Spark writes one without any when there are none, which is removed."""
    if file.record_count:
        return True
    delete_file(file.path)
    return False
