"""The files of a source as Spark lists them, in whatever format: which they are, and where they lie."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.errors import SparkRuntimeException

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spark.types.frames import analysed
from airflow_provider_ducklake.lake.spec.names.paths import is_local, with_slash
from airflow_provider_ducklake.lake.storage.files.local import lies_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

OF_LISTING = ("path", "modificationTime", "length", "content")  # columns of Spark's format binaryFile


def listing_of(spark: SparkSession, path: str, options: Mapping[str, str], name: str) -> DataFrame:
    """Return the files at a path, as Spark lists them, with the values of their folders."""
    try:
        return analysed(spark.read.format("binaryFile").options(**options).load(path))
    except SparkRuntimeException as error:  # no retry cures it
        condition = error.getCondition() or type(error).__name__
        raise InvalidInputError(
            f"{name} cannot be read: the folders of {path} do not all have the same names column=value in "
            f"one order, each with a value ({condition}). Make those that are alike sources of their own, or "
            "add the files with hive_partitioning."
        ) from error


def no_file(name: str, path: str) -> InvalidInputError:
    """Return the error for a path at which Spark lists no file."""
    return InvalidInputError(
        f"{name} cannot be read: there is no file at {path} but such as Spark leaves out, whose names begin "
        "with _ or a point. Correct the path, or name the files otherwise."
    )


def check_links(files: Iterable[str], path: str, name: str) -> None:
    """Refuse local files of a source that links lead out of its path to: who fills it may not read there.

    The path itself may be a link, and so may a file that it names.
    """
    given, folder = without_scheme(path), folder_of(path)
    for file in files:
        if is_local(file) and file != given and not lies_below(file, folder):
            raise InvalidInputError(
                f"{name} cannot be read: {file} is a link, or below one, that leads out of {folder}. Name "
                "the place that it leads to as a source, or remove the link."
            )


def folder_of(path: str) -> str:
    """Return the folder that a source's path names, up to its first pattern: a path of a user's, no URI."""
    steps = without_scheme(path).split("/")
    kept = [*takewhile(lambda step: not _PATTERN.search(step), steps)]
    return with_slash("/".join(kept))


_PATTERN = re.compile(r"[*?\[{\\]")


def own_path(uri: str) -> str:
    """Return a path as DuckLake spells it, of one that Spark gives as a URI."""
    return without_scheme(unquote(uri))


def without_scheme(path: str) -> str:
    """Return a local path without its scheme; another stays as it is."""
    return re.sub(r"^file:/+", "/", path)
