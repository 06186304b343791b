"""The rows of a scan plan in their carriers: data files in a few groups, each one scan, and inlined rows.

Files with one layout are scanned together by Spark's own reader, apart from those with deleted rows. The rest
goes through pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from airflow_provider_ducklake.spark.reading import read_arrow, read_native
from airflow_provider_ducklake.spark.reading.read_deletes import numbered, place, spark_path
from airflow_provider_ducklake.spark.reading.read_layout import layouts
from airflow_provider_ducklake.spark.types.identifiers import quoted
from airflow_provider_ducklake.spark.types.selecting import select
from airflow_provider_ducklake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.storage.parquet.reader import folder_values, unreadable
from airflow_provider_ducklake.storage.rows import table_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.spark.reading.read_layout import Layout
    from airflow_provider_ducklake.spark.types.own_names import ReadNames
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.types.values import Physical
    from airflow_provider_ducklake.storage.files.filesystem import Location, StorageOptions


@dataclass(frozen=True, slots=True)
class Read:
    """What every part of a read needs: all parts have the columns in their carriers, then ``numbers``."""

    spark: SparkSession
    plan: ScanPlan
    columns: tuple[Column, ...]
    names: ReadNames
    is_numbered: bool
    storage_options: StorageOptions | None
    keep: Callable[[DataFrame], DataFrame] | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.names.numbers if self.is_numbered else ()

    def locate(self, path: str) -> Location:
        return open_filesystem(path, self.storage_options)


def rows_of(read: Read) -> DataFrame:
    """Return the rows of a plan, unfiltered: its files' and those that lie in the catalog."""
    parts = list(_parts(read))
    if not parts:
        return read.spark.createDataFrame([], read_arrow.carrier_types(read.columns, read.numbers))
    return reduce(DataFrame.union, parts)


def _parts(read: Read) -> Iterator[DataFrame]:
    by_arrow: list[LiveDataFile] = []
    for group, files in _groups(read).items():
        if group is None:
            by_arrow += files
        else:
            yield _scanned(read, group, files)
    names = [quoted(name) for name in (*(column.name for column in read.columns), *read.numbers)]
    if by_arrow:
        plan = replace(read.plan, files=tuple(by_arrow))
        rows = read_arrow.rows_of_files(
            read.spark, plan, read.columns, read.names.numbers, storage_options=read.storage_options
        )
        yield rows.select(*names)
    if any(part.rows for part in read.plan.inlined_rows):
        rows = read_arrow.inlined_rows(read.spark, read.plan, read.columns, read.names.numbers)
        yield rows.select(*names)


@dataclass(frozen=True, slots=True)
class Group:
    """What files must have in common to be one scan."""

    layout: Layout
    has_deletes: bool
    hides_later: bool
    constants: tuple[tuple[ColumnId, Physical | None], ...]


def _groups(read: Read) -> dict[Group | None, list[LiveDataFile]]:
    """Return the files by what they have in common; None: they need pyarrow."""
    found: dict[Group | None, list[LiveDataFile]] = {}
    for file, layout in zip(read.plan.files, _layouts(read), strict=True):
        found.setdefault(None if layout is None else _group(read, file, layout), []).append(file)
    return found


def _layouts(read: Read) -> list[Layout | None]:
    return layouts(read.plan, read.columns, read.locate, read.names)


def _group(read: Read, file: LiveDataFile, layout: Layout) -> Group:
    at = read.plan.table.snapshot.id
    marked = read.plan.inlined_deletes.get(file.id)
    return Group(
        layout,
        has_deletes=bool(file.delete_file is not None or marked or file.snapshot_counts),
        hides_later=file.partial_max is not None and file.partial_max > at,
        constants=tuple(folder_values(file, read.columns).items()),
    )


def _scanned(read: Read, group: Group, files: list[LiveDataFile]) -> DataFrame:
    reserved = [] if group.layout.is_mapped else _reserved(read, group)
    paths = [file.path for file in files]
    try:
        rows = read_native.scan(read.spark, paths, group.layout, read.columns, reserved)
    except AnalysisException as error:
        raise _missing(read, files, error) from error
    if group.hides_later:
        snapshot = table_reader.SNAPSHOT_ID.name
        rows = rows.where(f"{snapshot} IS NULL OR {snapshot} <= {read.plan.table.snapshot.id}")
    values = read_native.carried(group.layout, read.columns, dict(group.constants))
    if not group.has_deletes and not read.is_numbered:
        return _kept(read, select(rows, values))
    stored = [table_reader.ROW_ID.name] if table_reader.ROW_ID in reserved else []
    placed = _kept(read, select(rows, [*values, *place(read.names), *stored]))
    names = [quoted(column.name) for column in read.columns]
    live = numbered(placed, read.plan, files, read.locate, read.names)
    return select(live, [*names, *_numbers(read, group)])


def _kept(read: Read, rows: DataFrame) -> DataFrame:
    return rows if read.keep is None else read.keep(rows)


def _reserved(read: Read, group: Group) -> list[Column]:
    snapshots = [table_reader.SNAPSHOT_ID] if group.hides_later else []
    return [*snapshots, *([table_reader.ROW_ID] if read.is_numbered else [])]


def _numbers(read: Read, group: Group) -> list[str]:
    if not read.is_numbered:
        return []
    own = read.names
    counted = f"{own.row_id_start} + {own.position}"
    row_id = counted if group.layout.is_mapped else f"coalesce({table_reader.ROW_ID.name}, {counted})"
    return [f"{row_id} AS {own.row_id}", own.file_id, own.position]


def _missing(read: Read, files: Sequence[LiveDataFile], error: AnalysisException) -> Exception:
    """Return the error for a file that Spark did not find when it listed them."""
    if not read_native.is_path_missing(error):
        return error
    text = str(error)
    lost = next((file for file in files if spark_path(file.path) in text or file.path in text), files[0])
    table = read.plan.table
    return unreadable(lost, str(table.name), table.snapshot.id, "the file does not exist.")
