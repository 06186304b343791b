"""What the documents of a job may say: they lie where others than the job may write.

Whoever can write below the data path can change the rows of the lake, and no more than that: documents name
files of their own job alone, tables that the catalog has noted for it, and columns without code of their own.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import DuckLakeError, SparkJobError, UntrustedValueError
from airflow_provider_ducklake.spec.paths import is_of_job
from airflow_provider_ducklake.spec.schema import Default

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_ducklake.spec.schema import TableSchema

_NAMES = re.compile(r"(?:part|deletes)-[0-9]{5,9}\.json")


@contextmanager
def reading(document: str) -> Iterator[None]:
    """Turn what comes of a document that lacks something, or has it in another form, into an error of ours.

    Raises:
        SparkJobError: names the document.
    """
    try:
        yield
    except DuckLakeError:
        raise
    except _OF_OTHER_DOCUMENTS as error:
        problem = f"{type(error).__name__}: {error}"[:_LONGEST_PROBLEM]
        raise SparkJobError(
            f"{document} is not what a job of this release writes ({problem}); refusing to commit it. Run "
            "the task that wrote it again."
        ) from error


_OF_OTHER_DOCUMENTS = (
    *(LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, AssertionError, RecursionError),
)
_LONGEST_PROBLEM = 300


def checked_names(names: Iterable[object], document: str) -> list[str]:
    """Return the names of a job's documents that another one of its documents gives.

    Raises:
        UntrustedValueError: one is no such name, or is given twice.
    """
    found = [str(name) for name in names]
    for name in found:
        if _NAMES.fullmatch(name) is None:
            raise UntrustedValueError(document, name, "is no name of a job's document")
    check_once(found, document)
    return found


def is_document(name: str) -> bool:
    """Whether a file is a part of a job's result by its name."""
    return _NAMES.fullmatch(name) is not None


def check_once(values: Iterable[object], document: str) -> None:
    """Refuse what a job names twice: its parts, its files and the rows that it deletes are sets.

    Raises:
        UntrustedValueError: names the first such value.
    """
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise UntrustedValueError(document, str(value), "is named twice there")
        seen.add(value)


def check_own_files(paths: Iterable[object], directory: str, document: str) -> None:
    """Refuse files that the job with that directory cannot have written.

    Raises:
        UntrustedValueError: names the first of them.
    """
    for path in paths:
        if not isinstance(path, str) or not is_of_job(path, directory):
            raise UntrustedValueError(document, str(path), f"is no file of the job that has {directory}")


def check_defaults(schema: TableSchema, before: TableSchema | None, document: str) -> None:
    """Refuse columns with a default that they did not have before: a job gives none, and one may be code.

    Raises:
        UntrustedValueError: names the default.
    """
    known = {} if before is None else {one.id: (one.default, one.initial_default) for one in before.walk()}
    for column in schema.walk():
        if (column.default, column.initial_default) != known.get(column.id, (Default(), None)):
            given = column.default.value if column.initial_default is None else column.initial_default
            raise UntrustedValueError(document, str(given), f"is no default that column {column.name} had")


def digest_of_bytes(content: bytes) -> str:
    """Return what tells a file from every other."""
    return hashlib.sha256(content).hexdigest()
