"""A lake table as a Spark DataFrame: the rows that ``Lake.read_arrow`` gives for the same plan.

Nothing is read before the DataFrame is used, but for the footers of files older than the columns' names and
types, and for delete files. See ``docs/reading_spark.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ..errors import DuckLakeError, InvalidInputError, SparkJobError, StorageError, UnsupportedFeatureError
from ..format.names.identifiers import fold
from ..planning.reading.scan import ChangeFeedPlan, ScanPlan, columns_to_read
from ..storage.parquet.readable import undecodable
from ..storage.parquet.reader import file_footer, unreadable
from .job.errors import cause_of, is_of_spark, typed
from .reading.read_changes import read_changes
from .reading.read_deletes import spark_path
from .reading.read_files import Read, rows_of
from .reading.row_filter import condition
from .sessions.settings import prepare_reading
from .types.frames import Expression, renamed, select
from .types.names import ReadNames, quoted
from .types.spark_types import check_readable, is_converted, to_insertable

if TYPE_CHECKING:
    from ..format.files import LiveDataFile
    from ..format.schema import Column
    from ..format.snapshots import TableSnapshot
    from ..storage.files.filesystem import StorageOptions


__all__ = ["read_changes", "read_table"]

PREFIX = "_ducklake_"  # of columns that are added


def read_table(  # noqa: PLR0913 - callers name them
    spark: SparkSession,
    plan: ScanPlan,
    *,
    storage_options: StorageOptions | None = None,
    row_ids: bool = False,
    positions: bool = False,
    prefix: str = PREFIX,
    keep: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Return the rows of a scan plan (``lake.scan(…)``), with its columns in the types that an insert takes.

    ``row_ids`` adds ``_ducklake_row_id``. ``positions`` adds ``_ducklake_file_id``, the id of the data file
    (NULL for a row in the catalog), and ``_ducklake_position``, the row's place in it from 0; ``prefix`` is
    another beginning of these names. The session is set to find columns by field id. ``storage_options``
    are those of fsspec, for what is not read by Spark itself: footers, delete files and files that need
    pyarrow. ``keep`` may leave out unwanted rows before more is done for them, by the columns in
    their carriers; not every row passes it.

    Raises:
        UnsupportedFeatureError: a column's type, or a file, that cannot be read.
        StorageError: a file is missing or damaged, if this shows before the rows are computed.
        InvalidInputError: a column of the table has the name of one that is to be added: take a ``prefix``.
    """
    added = [*(["row_id"] if row_ids else []), *(["file_id", "position"] if positions else [])]
    _check_free(plan, [prefix + name for name in added])
    prepare_reading(spark)
    columns = columns_to_read(plan)
    check_readable(columns, plan.table.name)
    names = ReadNames.beside([*(column.name for column in columns), f"{prefix}row_id"])
    read = Read(
        spark, plan, columns, names, is_numbered=bool(added), storage_options=storage_options, keep=keep
    )
    rows = rows_of(read)
    if plan.where is not None:
        rows = rows.where(condition(plan.where, plan.table.schema))
    wanted = columns[: len(plan.columns)]
    if columns == wanted and not added and not any(is_converted(column) for column in wanted):
        return rows
    return select(
        rows, [*map(_shown, wanted), *(renamed(getattr(names, name), prefix + name) for name in added)]
    )


def _shown(column: Column) -> Expression:
    if is_converted(column):
        return to_insertable(f.col(quoted(column.name)), column).alias(column.name)
    return quoted(column.name)


def _check_free(plan: ScanPlan, added: Sequence[str]) -> None:
    taken = {fold(name) for name in plan.columns} & {fold(name) for name in added}
    if taken:
        raise InvalidInputError(
            f"{plan.table.name} already has a column {', '.join(sorted(taken))}, which the read would add. "
            "Give another prefix for the added columns, or leave the table's column out of the columns to "
            "read."
        )


_MISSING = ("FILE_NOT_EXIST", "FileNotFoundException", "PATH_NOT_FOUND")
_WITHOUT_IDS = "expects field Ids"


def read_error(error: Exception, plans: Iterable[ScanPlan | ChangeFeedPlan]) -> DuckLakeError:
    """Return the error of ours for one that Spark raised over DataFrames of this module with these plans.

    That is a ``StorageError`` where Spark names one of their files and no other cause, and an
    ``UnsupportedFeatureError`` where that file has what Spark cannot decode; else what
    ``spark.job.errors.typed`` returns.
    """
    found = typed(error)
    if not isinstance(found, SparkJobError) or cause_of(error) is not None:
        return found
    text = str(error)
    for plan in plans:
        for file in plan.files if isinstance(plan, ScanPlan) else (history.file for history in plan.files):
            if spark_path(file.path).rpartition("/")[2] in text:
                if any(word in text for word in _OF_CODINGS) and (coded := _coded(plan.table, file)):
                    return coded
                log_lines = " ".join(map(str.strip, [found.problem, *found.log]))
                return StorageError(f"{_unreadable(plan.table, file, text)} Spark says: {log_lines}")
    return found


@contextmanager
def reading(plans: Iterable[ScanPlan | ChangeFeedPlan]) -> Iterator[None]:
    """Raise ``read_error`` for errors of Spark."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise read_error(error, plans) from error


# errors of Spark over a file that it cannot decode
_OF_CODINGS = (
    "Unsupported encoding",
    "ClassNotFoundException",
    "NullPointerException",
    "EOFException",
    "ArrayIndexOutOfBoundsException",
    "UnsupportedOperationException",
)


def _coded(table: TableSnapshot, file: LiveDataFile) -> DuckLakeError | None:
    """Return the error of a file with something that Spark cannot decode; None: its footer says nothing."""
    with suppress(DuckLakeError):
        problem = next(undecodable(file_footer(file, table)), None)
        if problem is not None:
            return UnsupportedFeatureError(
                f"Spark's own reader cannot decode data file {file.path} of {table.name} at snapshot "
                f"{table.snapshot.id}: {problem}. Set the table's option parquet_version, even to the value "
                "that it has: Spark's verbs then look for such files and read them with pyarrow."
            )
    return None


def _unreadable(table: TableSnapshot, file: LiveDataFile, text: str) -> DuckLakeError:
    if any(word in text for word in _MISSING):
        reason = "the file does not exist."
    elif _WITHOUT_IDS in text:
        reason = "its columns have no field ids, and it has no name mapping."
    else:
        reason = "Spark cannot read it."
    return unreadable(file, str(table.name), table.snapshot.id, reason)
