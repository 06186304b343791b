"""A lake table as a Spark DataFrame: the rows that ``Lake.read_arrow`` gives for the same plan.

Files that Spark's own reader can read are scanned in a few groups: those with one layout together, apart from
those with deleted rows. The rest goes through pyarrow, and so do the rows that lie in the catalog. Nothing is
read before the DataFrame is used, but for the footers of files older than the columns' names and types, and
for delete files. See ``docs/reading_spark.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.planning.scan import columns_to_read
from airflow_provider_ducklake.spark import read_arrow, read_native
from airflow_provider_ducklake.spark.identifiers import quoted
from airflow_provider_ducklake.spark.read_arrow import NUMBERS, ROW_ID
from airflow_provider_ducklake.spark.read_deletes import FILE_ID, POSITION, ROW_ID_START, numbered, spark_path
from airflow_provider_ducklake.spark.read_layout import layouts
from airflow_provider_ducklake.spark.read_types import presented, read_type
from airflow_provider_ducklake.spark.row_filter import condition
from airflow_provider_ducklake.spark.session import prepare_reading
from airflow_provider_ducklake.spec.identifiers import fold
from airflow_provider_ducklake.storage import table_reader
from airflow_provider_ducklake.storage.filesystem import open_filesystem
from airflow_provider_ducklake.storage.parquet_reader import folder_values, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.spark.read_layout import Layout
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.values import Physical
    from airflow_provider_ducklake.storage.filesystem import Location, StorageOptions

# (the name that callers get, the one within a read)
_ROW_IDS = (("_ducklake_row_id", ROW_ID),)
_POSITIONS = (("_ducklake_file_id", FILE_ID), ("_ducklake_position", POSITION))


def read_table(
    spark: SparkSession,
    plan: ScanPlan,
    *,
    storage_options: StorageOptions | None = None,
    row_ids: bool = False,
    positions: bool = False,
) -> DataFrame:
    """Return the rows of a scan plan (``lake.scan(…)``), with its columns in the types that an insert takes.

    ``row_ids`` adds ``_ducklake_row_id``. ``positions`` adds ``_ducklake_file_id``, the id of the data file
    (NULL for a row in the catalog), and ``_ducklake_position``, the row's place in it from 0. The session is
    set to find columns by field id. ``storage_options`` are those of fsspec, for what is not read by Spark
    itself: footers, delete files and files that need pyarrow.

    Raises:
        UnsupportedFeatureError: a column's type, or a file, that cannot be read.
        StorageError: a file is missing or damaged, as far as it is looked at before the rows are asked for.
        InvalidInputError: a column of the table has the name of one that is to be added.
    """
    added = (*(_ROW_IDS if row_ids else ()), *(_POSITIONS if positions else ()))
    _check_free(plan, [name for name, _ in added])
    prepare_reading(spark)
    columns = columns_to_read(plan)
    for column in columns:
        read_type(column)
    rows = _union(_Read(spark, plan, columns, is_numbered=bool(added), storage_options=storage_options))
    if plan.where is not None:
        rows = rows.where(condition(plan.where, plan.table.schema))
    chosen = [
        presented(f.col(quoted(column.name)), column).alias(column.name)
        for column in columns[: len(plan.columns)]
    ]
    return rows.select(*chosen, *(f.col(inner).alias(name) for name, inner in added))


def _check_free(plan: ScanPlan, added: Sequence[str]) -> None:
    taken = {fold(name) for name in plan.columns} & {fold(name) for name in added}
    if taken:
        raise InvalidInputError(
            f"{plan.table.name} has a column {', '.join(sorted(taken))}, the name of one that the read is to "
            "add: leave it out of the columns to read, or do without row ids and positions."
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """What every part of a read needs: all parts have the columns in their carriers, then ``numbers``."""

    spark: SparkSession
    plan: ScanPlan
    columns: tuple[Column, ...]
    is_numbered: bool
    storage_options: StorageOptions | None

    @property
    def numbers(self) -> tuple[str, ...]:
        return NUMBERS if self.is_numbered else ()

    def locate(self, path: str) -> Location:
        return open_filesystem(path, self.storage_options)


def _union(read: _Read) -> DataFrame:
    parts = list(_parts(read))
    if not parts:
        return read.spark.createDataFrame([], read_arrow.carrier_types(read.columns, read.numbers))
    return reduce(DataFrame.union, parts)


def _parts(read: _Read) -> Iterator[DataFrame]:
    by_arrow: list[LiveDataFile] = []
    for group, files in _groups(read).items():
        if group is None:
            by_arrow += files
        else:
            yield _scanned(read, group, files)
    names = [quoted(name) for name in (*(column.name for column in read.columns), *read.numbers)]
    if by_arrow:
        plan = replace(read.plan, files=tuple(by_arrow))
        rows = read_arrow.rows_of_files(read.spark, plan, read.columns, storage_options=read.storage_options)
        yield rows.select(*names)
    if any(part.rows for part in read.plan.inlined_rows):
        yield read_arrow.inlined_rows(read.spark, read.plan, read.columns).select(*names)


@dataclass(frozen=True, slots=True)
class _Group:
    """What files must have in common to be one scan."""

    layout: Layout
    has_deletes: bool
    hides_later: bool
    constants: tuple[tuple[ColumnId, Physical | None], ...]


def _groups(read: _Read) -> dict[_Group | None, list[LiveDataFile]]:
    """Return the files by what they have in common; None: they need pyarrow."""
    found: dict[_Group | None, list[LiveDataFile]] = {}
    for file, layout in zip(read.plan.files, layouts(read.plan, read.columns, read.locate), strict=True):
        found.setdefault(None if layout is None else _group(read, file, layout), []).append(file)
    return found


def _group(read: _Read, file: LiveDataFile, layout: Layout) -> _Group:
    at = read.plan.table.snapshot.id
    marked = read.plan.inlined_deletes.get(file.id)
    return _Group(
        layout,
        has_deletes=bool(file.delete_file is not None or marked or file.snapshot_counts),
        hides_later=file.partial_max is not None and file.partial_max > at,
        constants=tuple(folder_values(file, read.columns).items()),
    )


def _scanned(read: _Read, group: _Group, files: list[LiveDataFile]) -> DataFrame:
    reserved = [] if group.layout.is_mapped else _reserved(read, group)
    paths = [file.path for file in files]
    try:
        rows = read_native.scan(read.spark, paths, group.layout, read.columns, reserved)
    except AnalysisException as error:
        raise _missing(read, files, error) from error
    if group.has_deletes or read.is_numbered:
        rows = numbered(rows, read.plan, files, read.locate)
    if group.hides_later:
        snapshot = f.col(table_reader.SNAPSHOT_ID.name)
        rows = rows.where(snapshot.isNull() | (snapshot <= read.plan.table.snapshot.id))
    values = read_native.carried(group.layout, read.columns, dict(group.constants))
    return rows.select(*values, *_numbers(read, group))


def _reserved(read: _Read, group: _Group) -> list[Column]:
    snapshots = [table_reader.SNAPSHOT_ID] if group.hides_later else []
    return [*snapshots, *([table_reader.ROW_ID] if read.is_numbered else [])]


def _numbers(read: _Read, group: _Group) -> list[SparkColumn]:
    if not read.is_numbered:
        return []
    counted = f.col(ROW_ID_START) + f.col(POSITION)
    row_id = counted if group.layout.is_mapped else f.coalesce(table_reader.ROW_ID.name, counted)
    return [row_id.alias(ROW_ID), f.col(FILE_ID), f.col(POSITION)]


def _missing(read: _Read, files: Sequence[LiveDataFile], error: AnalysisException) -> Exception:
    """Return the error for a file that Spark did not find when it listed them."""
    if not read_native.is_path_missing(error):
        return error
    text = str(error)
    lost = next((file for file in files if spark_path(file.path) in text or file.path in text), files[0])
    table = read.plan.table
    return unreadable(lost, str(table.name), table.snapshot.id, "there is no such file.")
