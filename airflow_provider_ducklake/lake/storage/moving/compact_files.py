"""Write the rows of a bin's files as one file: in their order, with the ids and snapshots that they have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads_ahead, made_ahead
from airflow_provider_ducklake.lake.storage.parquet.reader import read_row_groups
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, SNAPSHOT_ID, gone_positions
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewriteSource, RewrittenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from airflow_provider_ducklake.lake.planning.upkeep.compaction import Bin, Compaction
    from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
    from airflow_provider_ducklake.lake.spec.files import DataFile, LiveDataFile
    from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.parquet.reader import StoredRows

# (positions of rows in their file, the snapshots that they came by) → which of them are wanted
Keep: TypeAlias = "Callable[[pa.Array, pa.ChunkedArray], pa.Array | pa.ChunkedArray]"

_SMALL, _SMALL_VALUES = 2 * 2**20, 1_000_000  # bytes and values of a file that is read at once
_ENDLESS = 2**62  # bytes: a bin becomes one file, however large


class _OtherRowIdsError(Exception):
    """A row has another id than the catalog says of its file."""


@dataclass(frozen=True, slots=True)
class Merging:
    """How bins of a table become files; table and snapshot are for the messages."""

    table: str
    snapshot_id: SnapshotId
    settings: ParquetSettings
    locate: Callable[[str], Location] = open_filesystem

    def compact(self, files: Bin, path: str) -> MergedFile:
        """Write the rows of a bin to ``path``, in their order; little more than a row group is held at once.

        Raises:
            StorageError: a file is missing, damaged or has another number of rows than the catalog says.
            UnsupportedFeatureError: a file has a layout that this release cannot read.
        """
        if files.row_id_start is not None:
            try:
                written = self._write(files, path, files.row_id_start)
                return replace(self.compacted(files, written), row_id_start=files.row_id_start)
            except _OtherRowIdsError:
                pass
        return self.compacted(files, self._write(files, path, None))

    def target(self, files: Bin) -> TableSchema:
        """Return the columns of the file that a bin becomes; the last say the ids and snapshots of rows."""
        snapshots = () if files.partial_max is None else (SNAPSHOT_ID,)
        return TableSchema((*files.schema.columns, ROW_ID, *snapshots))

    def compacted(self, files: Bin, written: DataFile) -> MergedFile:
        """Return what the catalog is to know of the file that a bin became, whose rows say their ids."""
        return MergedFile(
            _known_by_catalog(written, files),
            tuple(file.id for file in files.files),
            files.begin_snapshot,
            files.partial_max,
            None,
            files.partition_id,
        )

    def _write(self, files: Bin, path: str, row_id_start: int | None) -> DataFile:
        """Write the file; the rows say their ids unless those are consecutive from ``row_id_start``.

        Raises:
            _OtherRowIdsError: they are not.
        """
        target = self.target(files)
        if row_id_start is not None:
            target = TableSchema(tuple(column for column in target.columns if column != ROW_ID))
        names = [column.name for column in target.columns]
        with RollingWriter(target, lambda: path, in_one_file(self.settings), locate=self.locate) as writer:
            found = rows_of_files(self.numbered_rows, files)
            if row_id_start is not None:
                found = _consecutive(found, row_id_start)
            for rows in made_ahead(_together(found, self.settings.row_group_rows)):
                writer.write(rows.select(names))
        (written,) = writer.files
        if written.record_count != files.record_count:
            raise StorageError(
                f"{path} has {written.record_count} rows, but its sources have {files.record_count}."
            )
        return written

    def numbered_rows(
        self, file: LiveDataFile, schema: TableSchema, keep: Keep | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file, a row group at a time, and behind them their ids and snapshots.

        ``keep`` says which, by their positions and snapshots; None: all. Others are not cast.
        """
        read = TableSchema((*schema.columns, ROW_ID, SNAPSHOT_ID))
        seen = 0
        for stored in read_row_groups(
            file, read, table=self.table, snapshot_id=self.snapshot_id, locate=self.locate
        ):
            numbers, rows = _numbers(file, stored, seen), stored
            if keep is not None:
                kept = keep(pc.add(ordinals(stored.row_count), seen), numbers[SNAPSHOT_ID.name])
                numbers, rows = numbers.filter(kept), stored.filter(kept)
            yield _numbered(rows.cast(), numbers)
            seen += stored.row_count
        if seen != file.record_count:
            raise StorageError(
                f"Data file {file.path} of {self.table} has {seen} rows, but the catalog says "
                f"{file.record_count}. It was changed outside the lake; restore it from a backup."
            )


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How bins of a table become files without the rows that were deleted, which ``plan`` knows."""

    plan: ScanPlan
    settings: ParquetSettings
    locate: Callable[[str], Location] = open_filesystem

    def compact(self, files: Bin, path: str) -> RewrittenFile:
        """Write the live rows of a bin to ``path``, if there are any, with their ids.

        Raises:
            StorageError, UnsupportedFeatureError: as ``Merging.merge``; or a delete file is missing.
        """
        target = self.target(files)
        names = [column.name for column in target.columns]
        with RollingWriter(target, lambda: path, in_one_file(self.settings), locate=self.locate) as writer:
            found = rows_of_files(self.numbered_rows, files)
            for rows in made_ahead(_together(found, self.settings.row_group_rows)):
                writer.write(rows.select(names))
        return self.compacted(files, writer.files[0] if writer.files else None)

    def target(self, files: Bin) -> TableSchema:
        """Return the columns of the file that a bin becomes; the last says the ids of rows."""
        return TableSchema((*files.schema.columns, ROW_ID))

    def numbered_rows(self, file: LiveDataFile, schema: TableSchema) -> Iterator[pa.Table]:
        """Yield the live rows of a file as ``Merging`` does all."""
        table = self.plan.table
        merging = Merging(str(table.name), table.snapshot.id, self.settings, self.locate)
        gone = gone_positions(self.plan, file, self.locate)

        def is_live(places: pa.Array, _snapshots: pa.ChunkedArray) -> pa.Array:
            return pc.invert(pc.is_in(places, value_set=gone))

        yield from merging.numbered_rows(file, schema, is_live if len(gone) else None)

    def compacted(self, files: Bin, written: DataFile | None) -> RewrittenFile:
        """Return what the catalog is to know of the file that a bin became; None: no row was live."""
        new = None if written is None else _known_by_catalog(written, files)
        origins = tuple(self._origin(file) for file in files.files)
        return RewrittenFile(new, origins, self.plan.table.snapshot.id, files.partition_id)

    def _origin(self, file: LiveDataFile) -> RewriteSource:
        delete_file_id = None if file.delete_file is None else file.delete_file.id
        return RewriteSource(file.id, delete_file_id, len(self.plan.inlined_deletes.get(file.id, ())))


def compactor(compaction: Compaction, settings: ParquetSettings) -> Merging | Rewriting:
    """Return what makes files of the bins."""
    table = compaction.table
    if not compaction.is_rewrite:
        return Merging(str(table.name), table.snapshot.id, settings)
    files = tuple(file for one in compaction.bins for file in one.files)
    return Rewriting(ScanPlan(table, files, (), inlined_deletes=compaction.marks), settings)


def rows_of_files(
    read: Callable[[LiveDataFile, TableSchema], Iterator[pa.Table]], files: Bin
) -> Generator[pa.Table]:
    """Yield the rows of a bin's files in order; small files are read several at a time."""
    width = len(files.schema.columns)

    def is_small_file(file: LiveDataFile) -> bool:
        return file.file_size_bytes <= _SMALL and file.record_count * width <= _SMALL_VALUES

    for is_small, alike in groupby(files.files, key=is_small_file):
        if is_small:
            for tables in in_threads_ahead(lambda file: list(read(file, files.schema)), alike):
                yield from tables
        else:
            for file in alike:
                yield from read(file, files.schema)


def in_one_file(settings: ParquetSettings) -> ParquetSettings:
    """Return settings by which a writer never begins another file."""
    limit = min(settings.row_group_bytes, settings.target_file_size_bytes)
    return replace(settings, row_group_bytes=limit, target_file_size_bytes=_ENDLESS)


def _known_by_catalog(written: DataFile, files: Bin) -> DataFile:
    own = (ROW_ID.id, SNAPSHOT_ID.id)
    stats = {one: known for one, known in written.column_stats.items() if one not in own}
    return replace(written, column_stats=stats, partition_values=files.partition_values)


def _numbers(file: LiveDataFile, rows: StoredRows, before: int) -> pa.Table:
    """Return an id and a snapshot for each row; ``before`` rows of the file come before them."""
    row_ids, snapshots = rows.column(ROW_ID), pc.fill_null(rows.column(SNAPSHOT_ID), file.begin_snapshot)
    if file.row_id_start is not None:
        row_ids = pc.coalesce(row_ids, pc.add(ordinals(rows.row_count), file.row_id_start + before))
    if row_ids.null_count:
        raise UnsupportedFeatureError(
            f"{file.path} has rows without row ids, and the catalog does not have them either."
        )
    return pa.table({ROW_ID.name: row_ids, SNAPSHOT_ID.name: snapshots})


def _numbered(rows: pa.Table, numbers: pa.Table) -> pa.Table:
    plain = rows.drop_columns([ROW_ID.name, SNAPSHOT_ID.name])
    for name in numbers.column_names:
        plain = plain.append_column(name, numbers[name])
    return plain


def _together(found: Iterator[pa.Table], count: int) -> Generator[pa.Table]:
    """Yield the rows in larger tables, of ``count`` rows or little more."""
    waiting: list[pa.Table] = []
    for rows in found:
        waiting.append(rows)
        if sum(one.num_rows for one in waiting) >= count:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _consecutive(found: Iterator[pa.Table], start: int) -> Generator[pa.Table]:
    """Yield the rows as long as their ids follow each other from ``start`` on.

    Raises:
        _OtherRowIdsError: they do not.
    """
    for rows in found:
        expected = pc.add(ordinals(rows.num_rows), start)
        if not rows[ROW_ID.name].equals(pa.chunked_array([expected])):
            raise _OtherRowIdsError
        yield rows
        start += rows.num_rows
