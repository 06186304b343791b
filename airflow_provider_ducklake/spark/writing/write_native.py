"""The native engine: Spark's own Parquet writer, files adopted where it puts them.

Spark's committer moves the files of successful task attempts only. They lie below a directory that this run
of the job made and no other knows, so listing it gives exactly those. Files of a partition then move to
its folder, which is a copy in an object store.

Spark takes any bytes for a string. One that is not UTF-8 fails its task; then the rows are counted by another
job: to count while writing would cost each write as much as a third of its time.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as f

from airflow_provider_ducklake.planning.writing.write import WritePlan
from airflow_provider_ducklake.spark.job.codec import Json, decode, encode
from airflow_provider_ducklake.spark.job.errors import marked
from airflow_provider_ducklake.spark.types.names import quoted
from airflow_provider_ducklake.spark.types.spark_types import FIELD_ID_KEY, carrier_type
from airflow_provider_ducklake.spark.writing.row_order import ordered
from airflow_provider_ducklake.spec.files import DataFile
from airflow_provider_ducklake.spec.names.paths import hadoop_uri
from airflow_provider_ducklake.spec.partitioning import HIVE_NULL, PartitionField, TransformKind
from airflow_provider_ducklake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.spec.types.ducklake_types import is_float
from airflow_provider_ducklake.spec.types.values import format_physical
from airflow_provider_ducklake.storage.files.filesystem import (
    delete_file,
    move_file,
    open_filesystem,
    open_input,
    split_scheme,
)
from airflow_provider_ducklake.storage.files.parallel import in_threads
from airflow_provider_ducklake.storage.parquet.footer import NanRule, read_footer
from airflow_provider_ducklake.storage.parquet.partition_split import values_of_row
from airflow_provider_ducklake.storage.parquet.string_checks import (
    SHOWN_BYTES,
    UTF8,
    BadStrings,
    error_of,
    shown,
    string_leaves,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.errors import InvalidValueError
    from airflow_provider_ducklake.planning.writing.write import ParquetSettings
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.stats import ColumnStats


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
    df, folders = _with_folders(checked(df, plan.target), keys, plan)
    df = ordered(df, folders, plan)
    writer = _configured(df.write.mode("append"), df, plan.settings)
    if split_scheme(directory)[0] == "file":
        writer = writer.options(**_WITHOUT_CHECKSUMS)
    if folders:
        writer = writer.partitionBy(*folders)
    try:
        writer.parquet(hadoop_uri(directory))
    except Exception as error:
        refused = counted(error, rows, plan.target, plan.table)
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
    in_memory = int(df._jdf.schema().defaultSize())  # noqa: SLF001 - Spark's own estimate of a row, by types alone
    row_bytes = max(1, int(in_memory * _COMPRESSED_SHARE))
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


_PROBLEM = "a string is not valid UTF-8; nothing was written."


def checked(df: DataFrame, schema: TableSchema) -> DataFrame:
    """Return ``df``, which has the columns of ``schema`` and may have others; a bad string fails its task."""
    replaced = {column.name: _checked(column) for column in schema.columns if any(string_leaves(column))}
    if not replaced:
        return df
    return df.select([replaced.get(name, f.col(quoted(name))) for name in df.columns])


def counted(error: Exception, df: DataFrame, schema: TableSchema, table: str) -> InvalidValueError | None:
    """Return what is wrong with all strings of ``df`` if ``error`` is that of a row that ``checked`` refused.

    None also where another read of the rows finds nothing wrong with them.
    """
    if _PROBLEM not in str(error):
        return None
    paths = [path for column in schema.columns for path in string_leaves(column)]
    (values,) = df.agg(*(one for path in paths for one in _counts(_value(path)))).collect()
    found = [
        BadStrings(".".join(one.name for one in path), UTF8, count, shown(bytes(example)))
        for path, count, example in zip(paths, values[::2], values[1::2], strict=True)
        if count
    ]
    return error_of(found, table) if found else None


def _checked(column: Column) -> SparkColumn:
    value = f.col(quoted(column.name))
    problem = f.lit(marked(f"Column {column.name}: {_PROBLEM}"))
    refused = f.raise_error(problem).cast(carrier_type(column))
    return (
        f.when(reduce(SparkColumn.__and__, _are_valid(column)), value)
        .otherwise(refused)
        .alias(column.name, metadata={FIELD_ID_KEY: column.id})
    )


def _are_valid(column: Column) -> Iterator[SparkColumn]:
    for path in string_leaves(column):
        yield f.coalesce(f.is_valid_utf8(_value(path)), f.lit(True))  # noqa: FBT003 - a value


def _value(path: tuple[Column, ...]) -> SparkColumn:
    top, *fields = path
    return reduce(lambda value, child: value.getField(child.name), fields, f.col(quoted(top.name)))


def _counts(value: SparkColumn) -> tuple[SparkColumn, SparkColumn]:
    is_bad = ~f.is_valid_utf8(value)
    start = f.substring(value.cast("binary"), 1, SHOWN_BYTES + 1)
    return f.count_if(is_bad), f.max(f.when(is_bad, start))


_FILES_ON_DRIVER = 64
_FILES_PER_TASK = 16


def describe_files(spark: SparkSession, paths: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Return the finished files in the order of ``paths``; many of them are read by tasks."""
    if len(paths) <= _FILES_ON_DRIVER:
        return in_threads(lambda path: describe_file(path, plan), paths)
    document = encode(plan, WritePlan)

    def describe(path: str) -> Json:
        found: Json = encode(describe_file(path, decode(document, WritePlan)), DataFile)
        return found

    tasks = -(-len(paths) // _FILES_PER_TASK)
    found = spark.sparkContext.parallelize(list(paths), tasks).map(describe).collect()
    return [decode(item, DataFile) for item in found]


def describe_file(path: str, plan: WritePlan) -> DataFile:
    """Return one finished file as the catalog wants it."""
    schema, fields = plan.target, plan.partition_fields
    location = open_filesystem(path)
    file = read_footer(location, schema, NanRule.GREATEST)
    hidden = [stats for stats in file.column_stats.values() if stats.contains_nan and stats.bounds_unknown]
    if not file.record_count or not (fields or hidden):
        return file
    with open_input(location) as source, pq.ParquetFile(source) as reader:
        values = _partition_values(reader, schema, fields)
        bounds = {stats.column_id: _bounds_beside_nan(reader, schema, stats) for stats in hidden}
    return replace(file, partition_values=values, column_stats={**file.column_stats, **bounds})


def _partition_values(
    reader: pq.ParquetFile, schema: TableSchema, fields: tuple[PartitionField, ...]
) -> tuple[str | None, ...]:
    if not fields:
        return ()
    keys = {field.column_id for field in fields}
    columns = tuple(column for column in schema.columns if column.id in keys)
    names = [column.name for column in columns]
    row = next(reader.iter_batches(batch_size=1, row_groups=[0], columns=names))
    return values_of_row(row.select(names), TableSchema(columns), fields)


def _bounds_beside_nan(reader: pq.ParquetFile, schema: TableSchema, stats: ColumnStats) -> ColumnStats:
    """Return ``stats`` with the bounds of the numbers, which the footer hides behind NaN."""
    path = _path_to(schema, stats.column_id)
    assert is_float(path[-1].type)
    values = reader.read(columns=[".".join(column.name for column in path)]).column(0)
    for column in path[1:]:
        values = pc.struct_field(values, column.name)
    extremes = pc.min_max(values.filter(pc.invert(pc.is_nan(values))))
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    if low is None:
        return stats
    return replace(
        stats,
        min_value=format_physical(path[-1].type, low),
        max_value=format_physical(path[-1].type, high),
    )


def _path_to(schema: TableSchema, column_id: ColumnId) -> tuple[Column, ...]:
    """Return the columns from the top level down to the one with that id."""

    def search(columns: Sequence[Column]) -> tuple[Column, ...]:
        for column in columns:
            if column.id == column_id:
                return (column,)
            below = search(column.children)
            if below:
                return (column, *below)
        return ()

    return search(schema.columns)
