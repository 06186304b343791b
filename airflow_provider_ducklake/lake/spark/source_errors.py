"""Why a source cannot be read, in one sentence: the file, the line in it, the column and the value.

Spark names the file, and says of a record that it is malformed; a second look at that file alone, by the same
options, finds the record. What may pass until the next try stays the error that it is.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    InvalidInputError,
    SparkJobError,
    StorageError,
)
from airflow_provider_ducklake.lake.spark.job.errors import cause_of, classes_of_root, java_exceptions
from airflow_provider_ducklake.lake.spark.job.request import LakeSource, RowChangeSource, datasets_of
from airflow_provider_ducklake.lake.spark.parquet_sources import own_path
from airflow_provider_ducklake.lake.spark.sources import TEXT_FORMATS, options_of, read_dataset
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem, open_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql import types as t

    from airflow_provider_ducklake.lake.spark.job.request import Dataset, Source
    from airflow_provider_ducklake.lake.spec.schema import TableSchema

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
_BAD = "_ducklake_bad_record"
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
    said = java_exceptions(first)
    found = next((match for one in said if (match := _READING.match(one)) is not None), None)
    if found is None:
        return _of_only_dataset(source, first, said)
    if _PASSING.match(said[-1]):
        return None
    path = own_path(found[1])
    for name, dataset in datasets_of(source).items():
        if dataset.path is not None and _is_of(dataset.path, path):
            typed_by = target if name == "source" else None
            return InvalidInputError(
                f"{name} cannot be read: {path}{_problem(spark, dataset, typed_by, path, said)}"
            )
    return None


def _of_only_dataset(source: Source, error: Exception, said: Sequence[str]) -> DuckLakeError | None:
    """Return the error where Spark's Parquet reader names no file, but has read one dataset alone."""
    datasets = datasets_of(source)
    if len(datasets) != 1 or isinstance(source, LakeSource | RowChangeSource):
        return None
    if not any(one.startswith(_READERS) for one in classes_of_root(error)):
        return None
    ((name, dataset),) = datasets.items()
    return InvalidInputError(
        f"{name} cannot be read: Spark's Parquet reader failed in a file of {dataset.path}, which "
        f"{_harm(said)}. Replace it by a sound one, or leave it out."
    )


def _is_of(given: str, path: str) -> bool:
    """Whether a file is one of those that a path names, in which Spark's patterns may be."""
    fixed = re.split(r"[*?\[{]", own_path(given), maxsplit=1)[0].rstrip("/")
    scheme = re.compile(r"[a-z0-9]+://")
    return scheme.sub("", path, count=1).startswith(scheme.sub("", fixed, count=1))


def _problem(
    spark: SparkSession, dataset: Dataset, target: TableSchema | None, path: str, said: Sequence[str]
) -> str:
    header = next((match for one in said if (match := _HEADER.match(one)) is not None), None)
    if header is not None:
        return (
            f" has {header[2]!r} in its header where others have {header[1]!r}. Make it a source of its own."
        )
    if any(map(_MALFORMED.match, said)) and dataset.format in TEXT_FORMATS:
        with suppress(Exception):  # of a second look: the first one has said enough
            return _bad_record(spark, dataset, target, path)
        return f": {_root(said)}. Correct the file."
    return f" {_harm(said)}. Replace the file by a sound one, or leave it out."


def _root(said: Sequence[str]) -> str:
    """Return what the last cause says, behind the one that names a column of a Parquet file."""
    named = [one for one in said[:-1] if " in col [" in one][-1:]
    return ", ".join(_without_classes(one) for one in [*named, said[-1]] if _without_classes(one))


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


def _harm(said: Sequence[str]) -> str:
    """Return the end of a sentence on a file: that it is damaged, and what of it cannot be read."""
    stumble = next((words for pattern, words in _STUMBLES if pattern.match(said[-1])), None)
    column = next((found[1] for one in reversed(said) if (found := _IN_COLUMN.search(one))), None)
    of_column = "" if column is None else f", at column {column}"
    if stumble is not None:
        return f"is damaged{of_column}: {stumble}"
    return f"is damaged: {_root(said).rstrip('.') or 'it cannot be decoded'}"


_IN_COLUMN = re.compile(r" in col \[([^\]]*)\]")


def _without_classes(text: str) -> str:
    """Return the first line of what an exception says, without names of classes and packages of Java."""
    line = text.split("\n", maxsplit=1)[0].strip()
    return _CLASS.sub(r"\1", re.sub(r"^(?:[\w.$]+(?:Exception|Error)(?:: |$))+", "", line))


def _bad_record(spark: SparkSession, dataset: Dataset, target: TableSchema | None, path: str) -> str:
    """Return where the first malformed record of a text file is, and what is wrong with it."""
    schema = read_dataset(spark, replace(dataset, path=path), "source", target).schema
    typed = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)
    options = {key: value for key, value in dataset.options.items() if key.lower() not in _OURS}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD, "schema": f"{typed}, {_BAD} string"}
    rows = read_dataset(spark, replace(dataset, path=path, options=options), "source", None)
    (row,) = rows.where(f"{_BAD} IS NOT NULL").limit(1).collect()
    raw = str(row[_BAD])
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
    (row,) = spark.range(1).select(parse(f.lit(raw), texts, options).alias("texts")).collect()
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
