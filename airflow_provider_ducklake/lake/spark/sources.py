"""Load the rows that a request names: files, jdbc tables, a query or a function over them.

A csv or json dataset without ``schema`` and ``inferSchema`` options that goes straight into an existing
table is read as the table's types by column name; its values must then be readable as those (``mode``
FAILFAST unless set). csv files have a header unless the options say otherwise: names decide where a column
goes.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import InvalidInputError, SourceNotFoundError, SparkJobError
from airflow_provider_ducklake.lake.spark.job.errors import message_of
from airflow_provider_ducklake.lake.spark.job.request import (
    CompactionSource,
    Dataset,
    DatasetSource,
    LakeSource,
    OverwriteSource,
    RowChangeSource,
    Source,
    SqlSource,
    StreamSource,
    TransformSource,
)
from airflow_provider_ducklake.lake.spark.parquet_sources import read_parquet
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spark.sessions.object_store import require_file_system
from airflow_provider_ducklake.lake.spark.types.frames import analysed
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spark.types.scalars import SPARK_SCALARS
from airflow_provider_ducklake.lake.spark.types.spark_types import carrier_type
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri, is_absolute
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema

# A database's timestamp without a zone is one in the lake.
# A quote in a quoted text is doubled, as RFC 4180 and all who write CSV have it but Spark.
_DEFAULTS = {"csv": {"header": "true", "escape": '"'}, "jdbc": {"preferTimestampNTZ": "true"}}
TEXT_FORMATS = ("csv", "json")
_BAD = "_corrupt_record"  # which Spark makes a column where it finds a record that is no JSON
_MISSING = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


def load(spark: SparkSession, source: Source, target: TableSchema | None) -> DataFrame:
    """Return the rows of a source; ``target`` is the existing table's schema, None if it is to be created.

    Raises:
        SourceNotFoundError: a dataset does not exist; names it.
        InvalidInputError: its options, the query or the function are wrong.
    """
    match source:
        case DatasetSource(dataset):
            return read_dataset(spark, dataset, "source", target)
        case SqlSource(sql, datasets):
            for name, df in read_all(spark, datasets).items():
                show_as(df, name)
            return query(spark, sql)
        case TransformSource(name, datasets):
            return _transformed(spark, name, read_all(spark, datasets))
        case LakeSource() | StreamSource() | RowChangeSource() | OverwriteSource() | CompactionSource():
            raise AssertionError("a job over tables of the lake, or over a stream, is not an insert")


def read_all(spark: SparkSession, datasets: Mapping[str, Dataset]) -> dict[str, DataFrame]:
    """Return the rows of datasets, by name.

    Raises:
        SourceNotFoundError: one does not exist; names it.
        InvalidInputError: its options are wrong, or Spark lacks the jar that opens its store.
    """
    return {
        name: read_dataset(spark, dataset, f"sources[{name!r}]", None) for name, dataset in datasets.items()
    }


def show_as(df: DataFrame, name: str) -> None:
    """Have queries of the DataFrame's session see its rows under a name.

    A view of that name goes first: where Spark replaces one, it forgets what was cached of it.
    """
    kind_of(df.sparkSession).drop_view(name)
    df.createOrReplaceTempView(quoted(name))


def query(spark: SparkSession, sql: str) -> DataFrame:
    """Return the rows of a query.

    Raises:
        InvalidInputError: Spark cannot run it.
    """
    try:
        return analysed(spark.sql(sql))
    except AnalysisException as error:
        raise InvalidInputError(f"sql failed: {message_of(error)}") from error


def _transformed(spark: SparkSession, name: str, sources: dict[str, DataFrame]) -> DataFrame:
    result = function(name)(spark, sources)
    if not isinstance(result, DataFrame):
        raise InvalidInputError(f"transform={name!r} returned {type(result).__name__}, not a DataFrame.")
    return result


def function(name: str) -> Callable[..., object]:
    """Return the function ``module:function``.

    Raises:
        InvalidInputError: the job cannot import it.
    """
    module_name, _, function_name = name.partition(":")
    try:
        found: Callable[..., object] = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"transform={name!r} cannot be imported in the job ({error}). Its module must be among py_files."
        ) from error
    return found


def read_dataset(spark: SparkSession, dataset: Dataset, name: str, target: TableSchema | None) -> DataFrame:
    """Return the rows of one dataset; ``name`` is how errors call it.

    Raises:
        SourceNotFoundError: it does not exist.
        InvalidInputError: its options are wrong, or Spark lacks the jar that opens its store.
    """
    options = options_of(dataset)
    schema = options.pop("schema", None)
    if dataset.path is not None and is_absolute(dataset.path):
        require_file_system(spark, dataset.path)
    reader = spark.read.format(dataset.format).options(**options)
    try:
        if dataset.format == "parquet" and schema is None:
            return read_parquet(spark, _location(dataset), options, name, target)
        if dataset.format == "jdbc":
            return analysed(_with_password(reader, dataset, name).load())
        if schema is not None:
            reader = reader.schema(schema)
        elif target is not None and _is_typed_by_target(dataset):
            reader = _typed_by_target(reader, dataset, name, target)
        return analysed(reader.load(_location(dataset)))
    except AnalysisException as error:
        if error.getCondition() in _MISSING:
            raise SourceNotFoundError(name, str(dataset.path)) from error
        raise InvalidInputError(f"{name} cannot be read: {message_of(error)}") from error
    except ArithmeticException as error:  # a type that Spark does not have
        raise InvalidInputError(f"{name} cannot be read: {dataset.path}: {error}") from error


def options_of(dataset: Dataset) -> dict[str, str]:
    """Return the options that a dataset is read by: its own, and our defaults for the others."""
    given = {name.lower() for name in dataset.options}
    defaults = _DEFAULTS.get(dataset.format, {})
    return {name: value for name, value in defaults.items() if name.lower() not in given} | dict(
        dataset.options
    )


def _location(dataset: Dataset) -> str:
    assert dataset.path is not None
    return hadoop_uri(dataset.path) if is_absolute(dataset.path) else dataset.path


def _with_password(reader: DataFrameReader, dataset: Dataset, name: str) -> DataFrameReader:
    if dataset.password_env is None:
        return reader
    password = os.environ.get(dataset.password_env)
    if password is None:
        raise SparkJobError(
            f"{name}: the Spark driver's environment has no variable {dataset.password_env} "
            "with the password. It reaches the driver in client mode only."
        )
    return reader.option("password", password)


def _is_typed_by_target(dataset: Dataset) -> bool:
    given = {key.lower() for key in dataset.options}
    return dataset.format in TEXT_FORMATS and not given & {"schema", "inferschema"}


def _typed_by_target(
    reader: DataFrameReader, dataset: Dataset, name: str, target: TableSchema
) -> DataFrameReader:
    found = t.StructType([field for field in reader.load(_location(dataset)).schema if field.name != _BAD])
    given = {key.lower(): value for key, value in dataset.options.items()}
    names = _names_of_csv(found.names, dataset, name, target) if dataset.format == "csv" else found.names
    columns = {fold(column.name): column for column in target.columns}
    fields = [
        t.StructField(one, carrier_or_text(columns[fold(one)]) if fold(one) in columns else field.dataType)
        for one, field in zip(names, found, strict=True)
    ]
    if dataset.format == "json":  # a key that no object has is a null, as everywhere in JSON
        absent = columns.keys() - {fold(one) for one in names}
        fields += [t.StructField(columns[one].name, carrier_or_text(columns[one])) for one in sorted(absent)]
    if "mode" not in given:
        reader = reader.option("mode", "FAILFAST")
    if dataset.format == "csv" and "enforceschema" not in given:
        reader = reader.option(
            "enforceSchema", "false"
        )  # files whose headers differ are refused, not misread
    return reader.schema(t.StructType(fields))


def _names_of_csv(names: list[str], dataset: Dataset, name: str, target: TableSchema) -> list[str]:
    """Return the names of a CSV file's columns: the table's, in their order, where it has no header.

    Raises:
        InvalidInputError: its first line names no column of the table, or it has another number of columns.
    """
    columns = target.columns
    if any(key.lower() == "header" and value == "false" for key, value in dataset.options.items()):
        if len(names) != len(columns):
            raise InvalidInputError(
                f"{name} cannot be read: {dataset.path} has {len(names)} columns and no header, and the "
                f"table has {len(columns)}. Name them in the option schema."
            )
        return [column.name for column in columns]
    if names and not {fold(one) for one in names} & {fold(column.name) for column in columns}:
        raise InvalidInputError(
            f"{name} cannot be read: the first line of {dataset.path}, {', '.join(map(repr, names))[:200]}, "
            "names no column of the table. Set the option header to false if the file has none: its columns "
            "are then the table's, in their order."
        )
    return names


def carrier_or_text(column: Column) -> t.DataType:
    """Return the type in which text files are read for ``column``."""
    found = SPARK_SCALARS[column.type.name].from_text if isinstance(column.type, ScalarType) else None
    return found or carrier_type(column)
