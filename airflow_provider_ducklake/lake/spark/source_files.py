"""The files of a source as Spark lists them, in whatever format: which they are, and where they lie."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.errors import SparkRuntimeException

from ..errors import InvalidInputError
from ..format.names.identifiers import fold
from ..format.names.paths import is_local, with_slash
from ..format.partitioning import HIVE_NULL
from ..storage.files.local import lies_below, real_path
from .types.frames import analysed

if TYPE_CHECKING:
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

    The path itself may be a link, and so may a file that it names. What patterns of it name are no folders
    that are links, and a file lies in its own.
    """
    given = without_scheme(path)
    steps = given.split("/")
    kept = [*takewhile(lambda step: not _PATTERN.search(step), steps)]
    above, has_pattern = "/".join(kept), len(kept) < len(steps)
    start = os.path.normpath(above or "/")
    place = real_path(start)
    for file in files:
        if not is_local(file) or file == given:
            continue
        folder = with_slash(file.rpartition("/")[0] if has_pattern else above)
        below = f"{place}/{os.path.relpath(folder, start)}"
        if (has_pattern and os.path.normpath(below) != real_path(folder)) or not lies_below(file, folder):
            raise InvalidInputError(
                f"{name} cannot be read: {file} is a link, or below one, that leads out of {folder}. Name "
                "the place that it leads to as a source, or remove the link."
            )


def folder_values(path: str, columns: Iterable[str]) -> dict[str, str | None]:
    """Return the values that the nearest folders ``name=value`` of a file have for columns that Spark lists.

    Raises:
        InvalidInputError: the file lies in no folder of that name.
    """
    texts: dict[str, str] = {}
    for step in reversed(path.split("/")[:-1]):
        name, equals, text = step.partition("=")
        if equals:
            texts.setdefault(fold(_unescaped(name)), _unescaped(text))
    missing = next((one for one in columns if fold(one) not in texts), None)
    if missing is not None:
        raise InvalidInputError(f"{path} lies in no folder {missing}=. Put it into one, or leave it out.")
    found = {one: texts[fold(one)] for one in columns}
    return {one: None if text == HIVE_NULL or text.upper() == "NULL" else text for one, text in found.items()}


def _unescaped(text: str) -> str:
    """Return a name or a value of a folder, whose escapes are bytes of UTF-8, or characters as Hive's are."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, "latin-1")


_PATTERN = re.compile(r"[*?\[{\\]")


def own_path(uri: str) -> str:
    """Return a path as DuckLake spells it, of one that Spark gives as a URI."""
    return without_scheme(unquote(uri))


def without_scheme(path: str) -> str:
    """Return a local path without its scheme; another stays as it is."""
    return re.sub(r"^file:/+", "/", path)
