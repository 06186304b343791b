"""Load the rows that a request names: files, jdbc tables, a query or a function over them.

What goes straight into an existing table, or is matched with its rows, is read as the table's types by name.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyarrow import orc
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ..errors import (
    DuckLakeError,
    InvalidInputError,
    QueryTableError,
    SourceNotFoundError,
    SparkJobError,
    StorageError,
)
from ..format.names.paths import hadoop_uri, is_absolute
from ..storage.files.filesystem import open_filesystem, open_input
from .job import request as jobs
from .job.errors import cause_of, classes_of_root, java_exceptions, marks, message_of
from .parquet_sources import TRUNCATES, read_parquet
from .sessions.kind import is_remote, kind_of
from .sessions.settings import require_file_system
from .source_files import check_links, no_file, own_path
from .text_sources import read_texts
from .types.frames import analysed, folded, without_bounds
from .types.names import quoted

if TYPE_CHECKING:
    from ..format.schema import TableSchema


_DEFAULTS = {"jdbc": {"preferTimestampNTZ": "true"}}  # a timestamp without a zone is one in the lake
_TEXT_FORMATS = ("csv", "json")
_MISSING = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


def load(
    spark: SparkSession, source: jobs.Source, target: TableSchema | None, *, fills: bool = True
) -> DataFrame:
    """Return the rows of a source; ``target`` is the existing table's schema, None if it is to be created.

    ``fills``: the rows are to have all of the table's columns; else they are only compared with its rows.
    """
    match source:
        case jobs.DatasetSource(dataset):
            return read_dataset(spark, dataset, "source", target, fills=fills)
        case jobs.SqlSource(sql, datasets):
            for name, df in read_all(spark, datasets).items():
                show_as(df, name)
            return query(spark, sql, sources=tuple(datasets))
        case jobs.TransformSource(name, datasets):
            return _transformed(spark, name, read_all(spark, datasets))
        case _:
            raise AssertionError("a job over tables of the lake, or over a stream, is not an insert")


def read_all(spark: SparkSession, datasets: Mapping[str, jobs.Dataset]) -> dict[str, DataFrame]:
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


def query(
    spark: SparkSession, sql: str, name: str = "sql", sources: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of a query that errors call ``name``; that of an insert or a merge sees ``sources``."""
    try:
        return _pinned(analysed(spark.sql(sql)))
    except AnalysisException as error:
        missing = (error.getMessageParameters() or {}).get("relationName")
        if sources is not None and missing and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise QueryTableError(missing.replace("`", ""), sources) from error
        raise InvalidInputError(f"{name} failed: {message_of(error)}") from error


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


def read_dataset(
    spark: SparkSession, dataset: jobs.Dataset, name: str, target: TableSchema | None, *, fills: bool = True
) -> DataFrame:
    """Return the rows of one dataset; ``name`` is how errors call it."""
    given = {name.lower() for name in dataset.options}
    defaults = _DEFAULTS.get(dataset.format, {})
    options = {key: value for key, value in defaults.items() if key.lower() not in given} | dict(
        dataset.options
    )
    schema = options.pop("schema", None)
    if dataset.path is not None and is_absolute(dataset.path):
        require_file_system(spark, dataset.path)
    reader = spark.read.format(dataset.format).options(**options)
    try:
        if dataset.format == "parquet" and schema is None:
            return read_parquet(spark, _location(dataset), options, name, target)
        if dataset.format in _TEXT_FORMATS:
            return read_texts(spark, dataset, _location(dataset), name, target, fills=fills)
        if dataset.format == "jdbc":
            return analysed(_with_password(reader, dataset, name).load())
        if schema is not None:
            reader = reader.schema(schema)
        rows = _without_links(reader.load(_location(dataset)), _location(dataset), name)
        return _orc_rows(rows, options, name) if dataset.format == "orc" else rows
    except AnalysisException as error:
        if error.getCondition() in _MISSING:
            raise SourceNotFoundError(name, str(dataset.path)) from error
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            raise no_file(name, str(dataset.path)) from error
        raise InvalidInputError(f"{name} cannot be read: {message_of(error)}") from error
    except ArithmeticException as error:  # a type that Spark does not have
        raise InvalidInputError(f"{name} cannot be read: {dataset.path}: {error}") from error


def _without_links(rows: DataFrame, path: str, name: str) -> DataFrame:
    check_links(map(own_path, analysed(rows).inputFiles()), path, name)
    return without_bounds(rows)


# Spark's reader of ORC takes dates before 1582 for ones of the old calendar, and drops nanoseconds.
#
# Of a file that Spark wrote both are right; other files do not say what they have.


_FIRST_DAY = "1582-10-15"


def _orc_rows(rows: DataFrame, options: Mapping[str, str], name: str) -> DataFrame:
    """Return the rows of ORC files; a value that may be another one is an error."""
    columns = dict(_moments(rows.schema, ""))
    files = map(own_path, rows.inputFiles()) if columns else ()
    other = next((one for one in files if not _is_of_spark(one)), None)
    if other is None:
        return rows
    truncates = {key.lower(): value for key, value in options.items()}.get(TRUNCATES.lower(), "")
    times = [path for path, type_ in columns.items() if not isinstance(type_, t.DateType)]
    if times and truncates.lower() != "true":
        raise InvalidInputError(
            f"{name} cannot be read: {other} has timestamps ({', '.join(times)}), and Spark reads ORC "
            f"without their nanoseconds. Set the option {TRUNCATES} to true to drop them, or write the file "
            "as Parquet."
        )
    before, after = marks()
    problem = (
        f"{before}{name} cannot be read: {other} or another of its files has a date before {_FIRST_DAY}, "
        f"and ORC does not say of which calendar. Write the file as Parquet.{after}"
    )
    first = {path: f.lit(_FIRST_DAY).cast(type_) for path, type_ in columns.items()}
    is_old = folded(SparkColumn.__or__, [f.col(path) < day for path, day in first.items()])
    refused = f.raise_error(f.lit(problem)).cast("boolean")
    return rows.filter(f.when(is_old, refused).otherwise(f.lit(True)))  # noqa: FBT003 - a value


def _is_of_spark(path: str) -> bool:
    """Return True if Spark wrote an ORC file; False also where this process cannot open it."""
    try:
        with open_input(open_filesystem(path)) as file:
            return b"org.apache.spark.version" in (orc.ORCFile(file).schema.metadata or {})
    except (StorageError, OSError, pa.ArrowException):
        return False


def _moments(type_: t.StructType, path: str) -> Iterator[tuple[str, t.DataType]]:
    """Yield the dates and timestamps of a schema, and those in structs."""
    for one in type_:
        own = f"{path}{quoted(one.name)}"
        if isinstance(one.dataType, t.StructType):
            yield from _moments(one.dataType, f"{own}.")
        elif isinstance(one.dataType, t.DateType | t.TimestampType | t.TimestampNTZType):
            yield own, one.dataType
        elif _MOMENT.search(one.dataType.json()):
            raise InvalidInputError(
                f"{own} has dates or timestamps in lists or maps, which are read of Parquet, not of ORC."
            )


_MOMENT = re.compile(r'"(?:type|elementType|keyType|valueType)":"(?:date|timestamp)')


def _location(dataset: jobs.Dataset) -> str:
    assert dataset.path is not None
    return hadoop_uri(dataset.path) if is_absolute(dataset.path) else dataset.path


def _with_password(reader: DataFrameReader, dataset: jobs.Dataset, name: str) -> DataFrameReader:
    if dataset.password_env is None:
        return reader
    password = os.environ.get(dataset.password_env)
    if password is None:
        raise SparkJobError(
            f"{name}: the Spark driver's environment has no variable {dataset.password_env} "
            "with the password. It reaches the driver in client mode only."
        )
    return reader.option("password", password)


# Why a source that Spark's reader reads cannot be read, in one sentence: the file, and the column in it.
#
# What may pass until the next try stays the error that it is.


_READING = re.compile(
    r"\S+: \[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.+?)\. +(?=SQLSTATE|[A-Z])"
)
_READERS = (  # Spark's of Parquet, which name no file
    "org.apache.parquet.",
    "org.apache.spark.sql.execution.datasources.parquet.",
    "org.apache.spark.sql.execution.vectorized.",
)
_PASSING = re.compile(  # of sockets, stores and disks
    r"java\.net\.|javax\.net\.|java\.io\.InterruptedIO|java\.nio\.file\.|org\.apache\.hadoop\.|com\.amazonaws\.|"
    r"software\.amazon\.|java\.io\.IOException: (?:Input/output error|Stale file|Connection)"
)


def of_source(source: jobs.Source, error: Exception) -> DuckLakeError | None:
    """Return the error for a source's file that cannot be read; None: ``error`` is another, or may pass."""
    first = error.__cause__ if isinstance(error, SparkJobError) else error
    if not isinstance(first, Exception) or isinstance(first, DuckLakeError) or cause_of(first) is not None:
        return None
    causes = java_exceptions(first)
    found = next((match for one in causes if (match := _READING.match(one)) is not None), None)
    if found is None:
        return _error_of_only_dataset(source, first, causes)
    if _PASSING.match(causes[-1]):
        return None
    path = own_path(found[1])
    for name, dataset in jobs.datasets_of(source).items():
        if dataset.path is not None and _is_of(dataset.path, path):
            return InvalidInputError(
                f"{name} cannot be read: {path} {_harm(causes)}. Replace the file by a sound one, or leave "
                "it out."
            )
    return None


def _error_of_only_dataset(
    source: jobs.Source, error: Exception, causes: Sequence[str]
) -> DuckLakeError | None:
    """Return the error where Spark's Parquet reader names no file, but has read one dataset alone."""
    datasets = jobs.datasets_of(source)
    if len(datasets) != 1 or isinstance(source, jobs.LakeSource | jobs.RowChangeSource):
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
