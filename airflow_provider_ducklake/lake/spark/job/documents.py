"""The documents of a job: written, read and checked, as they lie where others may write, too.

A user who can write below the data path can change the rows of the lake, and no more: documents name
files of their own job alone, tables that the catalog has recorded for it, and columns without code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...errors import DuckLakeError, SparkJobError, UntrustedValueError
from ...format.names.identifiers import check_name
from ...format.names.paths import is_of_job
from ...format.schema import Default, TableSchema
from ...format.types.ducklake_types import BYTES, DuckLakeType, catalog_name
from ...format.types.values import format_physical, order_key, parse_physical
from ...planning.reading.predicates import Comparison, Predicate, conditions
from ...storage.files.filesystem import exists, file_sizes, read_bytes, write_bytes
from ...storage.files.writing import opened, sealed
from .codec import DocumentError, Json, decode, dumps, encode, loads

if TYPE_CHECKING:
    from ...format.files import ColumnStats, DataFile
    from ...planning.writing.write import WriteResult

StorageOptions: TypeAlias = "Mapping[str, Any] | None"
_T = TypeVar("_T")
_NAMES = re.compile(r"(?:part|deletes)-[0-9]{5,9}\.json")


@contextmanager
def reading(document: str) -> Iterator[None]:
    """Translate the errors of a document that lacks a part, or has another form, into ours."""
    try:
        yield
    except DuckLakeError:
        raise
    except _OF_OTHER_DOCUMENTS as error:
        kind = "" if isinstance(error, DocumentError) else f"{type(error).__name__}: "
        problem = f"{kind}{error}"[:_LONGEST_PROBLEM]
        raise SparkJobError(
            f"{document} is not a document that a job of this release writes ({problem}), and is not "
            "committed. Run the task that wrote it again."
        ) from error


_OF_OTHER_DOCUMENTS = (
    *(LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, AssertionError, RecursionError),
)
_LONGEST_PROBLEM = 300


def write_document(uri: str, value: object, storage_options: StorageOptions = None) -> None:
    """Write a value, which is none of a union, as a document."""
    write_json(uri, encode(value, type(value)), storage_options)


def write_json(uri: str, document: Json, storage_options: StorageOptions = None) -> None:
    """Write a document (mode 0600 locally)."""
    write_bytes(uri, sealed(uri, dumps(document)), storage_options, private=True)


def read_document(
    uri: str, type_: type[_T], storage_options: StorageOptions = None, *, is_proven: bool = False
) -> _T:
    """Return the value that a document says, which the caller compares with the place where it lies.

    ``is_proven``: see ``storage.files.writing.opened``.
    """
    with reading(uri):
        content = read_bytes(uri, storage_options)
        return decode(loads(opened(uri, content, is_proven=is_proven), uri), type_)


def read_json(uri: str, job_id: str, storage_options: StorageOptions = None) -> Json | None:
    """Return a document of that job, None if there is no such file."""
    if not exists(uri, storage_options):
        return None
    document = loads(opened(uri, read_bytes(uri, storage_options)), uri)
    if document.get("job_id") != job_id:
        raise SparkJobError(
            f"{uri} belongs to job {document.get('job_id')}, not to {job_id}. Nothing was committed."
        )
    return document


def checked_names(names: Iterable[object], document: str) -> list[str]:
    """Return the names of a job's documents that another one of its documents gives."""
    found = [str(name) for name in names]
    for name in found:
        if _NAMES.fullmatch(name) is None:
            raise UntrustedValueError(document, name, "is not the name of a job's document")
    check_once(found, document)
    return found


def is_document(name: str) -> bool:
    """Return True if a file is a part of a job's result by its name."""
    return _NAMES.fullmatch(name) is not None


def check_filter(rows: Predicate, schema: TableSchema) -> None:
    """Refuse what a job says of rows of a table unless it compares columns with values of their types."""
    types = {column.id: column.type for column in schema.walk()}
    for one in conditions(rows):
        if not isinstance(one, Comparison) or one.column_id not in types:
            raise DocumentError("matching is no comparison of the table's columns")
        type_ = types[one.column_id]
        if parse_physical(type_, format_physical(type_, one.value)) != one.value:
            raise DocumentError(f"matching compares a {type_} with another value")


def check_once(values: Iterable[object], document: str) -> None:
    """Refuse what a job names twice: its parts, its files and the rows that it deletes are sets."""
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise UntrustedValueError(document, str(value), "is named twice there")
        seen.add(value)


def check_own_files(paths: Iterable[object], directory: str, document: str) -> None:
    """Refuse files that the job with that directory cannot have written."""
    for path in paths:
        if not isinstance(path, str) or not is_of_job(path, directory):
            raise UntrustedValueError(document, str(path), f"is not a file of the job that owns {directory}")


def incomplete_file(
    data_files: Sequence[DataFile], storage_options: StorageOptions = None, directory: str | None = None
) -> str | None:
    """Return the first of the files that is missing or of another length; None: they are complete.

    Those below ``directory`` are found by one listing, others by one for each folder.
    """
    folders = {file.path.rpartition("/")[0] + "/" for file in data_files}
    if directory is not None:
        folders = {directory if folder.startswith(directory) else folder for folder in folders}
    sizes = {
        folder + name: size
        for folder in folders
        for name, size in file_sizes(folder, storage_options).items()
    }
    return next((one.path for one in data_files if sizes.get(one.path) != one.file_size_bytes), None)


def check_defaults(schema: TableSchema, before: TableSchema | None, document: str) -> None:
    """Refuse columns with a default that they did not have before: a job gives none, and one may be code."""
    known = {} if before is None else {one.id: (one.default, one.initial_default) for one in before.walk()}
    for column in schema.walk():
        if (column.default, column.initial_default) != known.get(column.id, (Default(), None)):
            given = column.default.value if column.initial_default is None else column.initial_default
            raise UntrustedValueError(document, str(given), f"was never a default of column {column.name}")


def check_result(result: WriteResult, document: str) -> None:
    """Refuse files and columns that no reader of the lake could make sense of."""
    columns = list(result.schema.walk())
    check_once((column.id for column in columns), document)
    for column in columns:
        check_name(column.name, "column")
    types = {column.id: column.type for column in columns if not column.children}
    for file in result.data_files:
        if len(file.partition_values) != len(result.partition_fields):
            raise UntrustedValueError(
                document, str(file.partition_values), "are not the values of the partition keys"
            )
        for stats in file.column_stats.values():
            _check_stats(stats, types.get(stats.column_id), document)


def _check_stats(stats: ColumnStats, type_: DuckLakeType | None, document: str) -> None:
    if type_ is None:
        raise UntrustedValueError(
            document, str(stats.column_id), "is not a column of the table that has statistics"
        )
    bounds = [one for one in (stats.min_value, stats.max_value) if one is not None]
    for bound in bounds:
        if not _is_text_of(bound, type_):
            raise UntrustedValueError(document, bound, f"is not a valid {catalog_name(type_)}")
    if len(bounds) > 1 and order_key(type_, bounds[0]) > order_key(type_, bounds[1]):
        raise UntrustedValueError(document, bounds[0], f"is greater than {bounds[1]!r}, the greatest value")


def _is_text_of(value: str, type_: DuckLakeType) -> bool:
    """Return True if all readers take the text for a value of the type; Python's parsers take more texts."""
    if type_.facts.kind in BYTES:
        return True
    try:
        parse_physical(type_, value)
    except (ValueError, ArithmeticError):
        return False
    return value.isascii() and "_" not in value and value == value.strip()


def digest_of_bytes(content: bytes) -> str:
    """Return a digest of a file's content."""
    return hashlib.sha256(content).hexdigest()
