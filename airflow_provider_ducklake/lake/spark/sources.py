"""Load the rows that a request names: files, jdbc tables, a query or a function over them.

A csv or json dataset without ``schema`` and ``inferSchema`` options that goes straight into an existing
table is read as the table's types by column name; its values must then be readable as those (``mode``
FAILFAST unless set). csv files have a header unless the options say otherwise: names decide where a column
goes.
"""

from __future__ import annotations

import importlib
import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    InvalidInputError,
    SourceNotFoundError,
    SparkJobError,
    StorageError,
)
from airflow_provider_ducklake.lake.spark.job.errors import (
    cause_of,
    classes_of_root,
    java_exceptions,
    message_of,
)
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
    datasets_of,
)
from airflow_provider_ducklake.lake.spark.parquet_sources import own_path, read_parquet
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote, kind_of
from airflow_provider_ducklake.lake.spark.sessions.settings import require_file_system
from airflow_provider_ducklake.lake.spark.types.frames import analysed
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spark.types.spark_types import text_type
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri, is_absolute
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem, open_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_ducklake.lake.spec.schema import TableSchema


# A database's timestamp without a zone is one in the lake.
# A quote in a quoted text is doubled, as in RFC 4180 and all other writers of CSV but Spark.
_DEFAULTS = {"csv": {"header": "true", "escape": '"'}, "jdbc": {"preferTimestampNTZ": "true"}}
TEXT_FORMATS = ("csv", "json")
_BAD = "_corrupt_record"  # which Spark makes a column where it finds a record that is no JSON
_MISSING = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


def load(spark: SparkSession, source: Source, target: TableSchema | None) -> DataFrame:
    """Return the rows of a source; ``target`` is the existing table's schema, None if it is to be created."""
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
    """Return the rows of datasets, by name."""
    return {
        name: read_dataset(spark, dataset, f"sources[{name!r}]", None) for name, dataset in datasets.items()
    }


def show_as(df: DataFrame, name: str) -> None:
    """Make the DataFrame's rows a view of its session.

    A view of that name goes first: where Spark replaces one, it forgets what was cached of it.
    """
    kind_of(df.sparkSession).drop_view(name)
    df.createOrReplaceTempView(quoted(name))


def query(spark: SparkSession, sql: str) -> DataFrame:
    """Return the rows of a query."""
    try:
        return _pinned(analysed(spark.sql(sql)))
    except AnalysisException as error:
        raise InvalidInputError(f"sql failed: {message_of(error)}") from error


def _transformed(spark: SparkSession, name: str, sources: dict[str, DataFrame]) -> DataFrame:
    result = function(name)(spark, sources)
    if not isinstance(result, DataFrame):
        raise InvalidInputError(f"transform={name!r} returned {type(result).__name__}, not a DataFrame.")
    return _pinned(result)


def _pinned(df: DataFrame) -> DataFrame:
    """Keep what a query means by the settings that it was made with; a write needs others.

    Spark Connect looks at a query again whenever it is used, and at a view once.
    """
    if not is_remote(df.sparkSession):
        return df
    name = f"ducklake_query_{uuid4().hex}"
    df.createOrReplaceTempView(name)
    return df.sparkSession.table(name)


def function(name: str) -> Callable[..., object]:
    """Return the function ``module:function``."""
    module_name, _, function_name = name.partition(":")
    try:
        found: Callable[..., object] = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"transform={name!r} cannot be imported in the job ({error}). Its module must be among py_files."
        ) from error
    return found


def read_dataset(spark: SparkSession, dataset: Dataset, name: str, target: TableSchema | None) -> DataFrame:
    """Return the rows of one dataset; ``name`` is how errors call it."""
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
        found = analysed(reader.load(_location(dataset)))
    except AnalysisException as error:
        if error.getCondition() in _MISSING:
            raise SourceNotFoundError(name, str(dataset.path)) from error
        raise InvalidInputError(f"{name} cannot be read: {message_of(error)}") from error
    except ArithmeticException as error:  # a type that Spark does not have
        raise InvalidInputError(f"{name} cannot be read: {dataset.path}: {error}") from error
    if dataset.format == "json" and found.columns == [_BAD] and schema is None:
        raise InvalidInputError(
            f"{name} cannot be read: no line of {dataset.path} is a record of JSON. Set the option multiLine "
            "to true where a record, or an array of all, has several lines, and encoding where the text is "
            "not UTF-8."
        )
    return found


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
    has_format = bool(given.keys() & {"timestampformat", "timestampntzformat"})
    types = {
        fold(column.name): (column.name, text_type(column, has_format=has_format))
        for column in target.columns
    }
    fields = [
        t.StructField(one, types[fold(one)][1] if fold(one) in types else field.dataType)
        for one, field in zip(names, found, strict=True)
    ]
    if dataset.format == "json":  # a key that no object has is a null, as everywhere in JSON
        absent = types.keys() - {fold(one) for one in names}
        fields += [t.StructField(*types[one]) for one in sorted(absent)]
    if "mode" not in given:
        reader = reader.option("mode", "FAILFAST")
    if dataset.format == "csv" and "enforceschema" not in given:
        reader = reader.option(
            "enforceSchema", "false"
        )  # files whose headers differ are refused, not misread
    return reader.schema(t.StructType(fields))


def _names_of_csv(names: list[str], dataset: Dataset, name: str, target: TableSchema) -> list[str]:
    """Return the names of a CSV file's columns: the table's, in their order, where it has no header."""
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


# Why a source cannot be read, in one sentence: the file, the line in it, the column and the value.
#
# Spark names the file, and says of a record that it is malformed; a second look at that file alone, by the
# same options, finds the record. What may pass until the next try stays the error that it is.


_READING = re.compile(
    r"\S+: \[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.+?)\. +(?=SQLSTATE|[A-Z])"
)
_READERS = (  # Spark's of Parquet, which name no file
    "org.apache.parquet.",
    "org.apache.spark.sql.execution.datasources.parquet.",
    "org.apache.spark.sql.execution.vectorized.",
)
_MALFORMED = re.compile(r"\S+: \[MALFORMED_RECORD_IN_PARSING\.")
_HEADER = re.compile(
    r"\S+: CSV header does not conform to the schema\.[\s\S]*\nExpected: (.*) but found: (.*)\n"
)
_PASSING = re.compile(  # of sockets, stores and disks
    r"java\.net\.|javax\.net\.|java\.io\.InterruptedIO|java\.nio\.file\.|org\.apache\.hadoop\.|com\.amazonaws\.|"
    r"software\.amazon\.|java\.io\.IOException: (?:Input/output error|Stale file|Connection)"
)
_BAD_RECORD = "_ducklake_bad_record"
_SHOWN = 200  # characters of a record, or of a value in it
_SEARCHED_BYTES = 2**30  # of a file, for the line of a record


def of_source(
    spark: SparkSession, source: Source, target: TableSchema | None, error: Exception
) -> DuckLakeError | None:
    """Return the error for a source's file that cannot be read; None: ``error`` is another, or may pass.

    ``target`` is the existing table's schema, by which text files are read.
    """
    first = error.__cause__ if isinstance(error, SparkJobError) else error
    if not isinstance(first, Exception) or isinstance(first, DuckLakeError) or cause_of(first) is not None:
        return None
    causes = java_exceptions(first)
    found = next((match for one in causes if (match := _READING.match(one)) is not None), None)
    if found is None:
        return _of_only_dataset(source, first, causes)
    if _PASSING.match(causes[-1]):
        return None
    path = own_path(found[1])
    for name, dataset in datasets_of(source).items():
        if dataset.path is not None and _is_of(dataset.path, path):
            typed_by = target if name == "source" else None
            return InvalidInputError(
                f"{name} cannot be read: {path}{_problem(spark, dataset, typed_by, path, causes)}"
            )
    return None


def _of_only_dataset(source: Source, error: Exception, causes: Sequence[str]) -> DuckLakeError | None:
    """Return the error where Spark's Parquet reader names no file, but has read one dataset alone."""
    datasets = datasets_of(source)
    if len(datasets) != 1 or isinstance(source, LakeSource | RowChangeSource):
        return None
    if not any(one.startswith(_READERS) for one in classes_of_root(error)):
        return None
    ((name, dataset),) = datasets.items()
    return InvalidInputError(
        f"{name} cannot be read: Spark's Parquet reader failed in a file of {dataset.path}, which "
        f"{_harm(causes)}. Replace it by a sound one, or leave it out."
    )


def _is_of(given: str, path: str) -> bool:
    """Return True if a file is one of those that a path names, in which Spark's patterns may be."""
    fixed = re.split(r"[*?\[{]", own_path(given), maxsplit=1)[0].rstrip("/")
    scheme = re.compile(r"[a-z0-9]+://")
    return scheme.sub("", path, count=1).startswith(scheme.sub("", fixed, count=1))


def _problem(
    spark: SparkSession, dataset: Dataset, target: TableSchema | None, path: str, causes: Sequence[str]
) -> str:
    header = next((match for one in causes if (match := _HEADER.match(one)) is not None), None)
    if header is not None:
        return (
            f" has {header[2]!r} in its header where others have {header[1]!r}. Make it a source of its own."
        )
    if any(map(_MALFORMED.match, causes)) and dataset.format in TEXT_FORMATS:
        with suppress(Exception):  # the error of the first read is enough
            return _bad_record(spark, dataset, target, path)
        return f": {_root(causes)}. Correct the file."
    return f" {_harm(causes)}. Replace the file by a sound one, or leave it out."


def _root(causes: Sequence[str]) -> str:
    """Return the text of the last cause, after the one that names a column of a Parquet file."""
    named = [one for one in causes[:-1] if " in col [" in one][-1:]
    return ", ".join(_without_classes(one) for one in [*named, causes[-1]] if _without_classes(one))


# What a reader of damaged bytes stumbles over; their own words are of its code.
_STUMBLES = (
    (
        re.compile(
            r"java\.io\.EOFException|java\.nio\.Buffer(?:Under|Over)flowException|[\w.]+\.TTransportException"
        ),
        "it ends too early",
    ),
    (
        re.compile(
            r"java\.lang\.(?:\w*IndexOutOfBounds|NullPointer|NegativeArraySize|ArrayStore|ClassCast|Arithmetic|"
            r"IllegalState|NumberFormat)Exception|java\.lang\.(?:StackOverflow|Assertion|Internal)Error|"
            r"java\.util\.NoSuchElementException|scala\.MatchError"
        ),
        "its pages are not what its footer says",
    ),
)
_CLASS = re.compile(r"\b(?:[a-z]\w*\.){2,}([A-Z]\w*)(?:\$\w+)*(?:@[0-9a-f]+)?")


def _harm(causes: Sequence[str]) -> str:
    """Return the end of a sentence on a file: that it is damaged, and what of it cannot be read."""
    stumble = next((words for pattern, words in _STUMBLES if pattern.match(causes[-1])), None)
    column = next((found[1] for one in reversed(causes) if (found := _IN_COLUMN.search(one))), None)
    of_column = "" if column is None else f", at column {column}"
    if stumble is not None:
        return f"is damaged{of_column}: {stumble}"
    return f"is damaged: {_root(causes).rstrip('.') or 'it cannot be decoded'}"


_IN_COLUMN = re.compile(r" in col \[([^\]]*)\]")


def _without_classes(text: str) -> str:
    """Return the first line of what an exception says, without names of classes and packages of Java."""
    line = text.split("\n", maxsplit=1)[0].strip()
    return _CLASS.sub(r"\1", re.sub(r"^(?:[\w.$]+(?:Exception|Error)(?:: |$))+", "", line))


def _bad_record(spark: SparkSession, dataset: Dataset, target: TableSchema | None, path: str) -> str:
    """Describe the first malformed record of a text file, with its line."""
    schema = read_dataset(spark, replace(dataset, path=path), "source", target).schema
    typed = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)
    options = {key: value for key, value in dataset.options.items() if key.lower() not in _OURS}
    options |= {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _BAD_RECORD,
        "schema": f"{typed}, {_BAD_RECORD} string",
    }
    rows = read_dataset(spark, replace(dataset, path=path, options=options), "source", None)
    (row,) = rows.where(f"{_BAD_RECORD} IS NOT NULL").limit(1).collect()
    raw = str(row[_BAD_RECORD])
    line = _line_of(path, raw)
    place = "" if line is None else f", line {line}"
    for field, text in zip(schema, _texts(spark, dataset, raw, schema), strict=True):
        if text is not None and row[field.name] is None:
            return (
                f"{place}: column {field.name} has {text[:_SHOWN]!r}, which is no "
                f"{field.dataType.simpleString()}. Correct the record, or give the column as string in the "
                "option schema and convert it by sql."
            )
    return f"{place}: {raw[:_SHOWN]!r} is no record of the columns {', '.join(schema.names)}. Correct it."


_OURS = ("mode", "schema", "columnnameofcorruptrecord", "enforceschema", "inferschema")


def _texts(spark: SparkSession, dataset: Dataset, raw: str, schema: t.StructType) -> Sequence[str | None]:
    texts = ", ".join(f"{quoted(name)} string" for name in schema.names)
    parse = f.from_csv if dataset.format == "csv" else f.from_json
    options = {key: value for key, value in options_of(dataset).items() if key.lower() not in _OURS}
    parsed = parse(f.lit(raw), texts, options or None)  # Connect makes a map without types of no options
    (row,) = spark.range(1).select(parsed.alias("texts")).collect()
    return tuple(row["texts"])


def _line_of(path: str, raw: str) -> int | None:
    """Return the line on which a record begins, from 1; None: not in what is searched of the file."""
    wanted, before, lines, seen = b"\n" + raw.encode(), b"\n", 0, 0
    with suppress(StorageError, OSError, pa.ArrowException), open_input(open_filesystem(path)) as source:
        kind = pa.Codec.detect(path).name if path.endswith((".gz", ".bz2", ".zst")) else None
        stream = source if kind is None else pa.CompressedInputStream(source, kind)
        while seen < _SEARCHED_BYTES and (chunk := stream.read(2**22)):
            seen += len(chunk)
            text = before + chunk
            place: int = text.find(wanted)
            if place >= 0:
                return lines + int(text.count(b"\n", 0, place + 1))
            kept = len(text) - min(len(text), len(wanted))
            lines += text.count(b"\n", 0, kept)
            before = text[kept:]
    return None
