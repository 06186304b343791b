"""Write the rows of a bin's files as one file: in their order, with the ids and snapshots that they have."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import StorageError, UnsupportedFeatureError
from ...format.schema import TableSchema
from ...planning.reading.scan import ScanPlan
from ...transaction.changes import MergedFile, RewriteSource, RewrittenFile
from ..arrow.reshape import ordinals
from ..files.filesystem import Location, open_filesystem
from ..files.parallel import in_threads, in_threads_ahead, made_ahead
from ..parquet.reader import StoredRows, read_row_groups
from ..parquet.writer import RollingWriter
from ..rows.table_reader import ROW_ID, SNAPSHOT_ID, gone_positions, visible_rows
from .verify_files import stores_row_ids

if TYPE_CHECKING:
    from ...format.files import DataFile, LiveDataFile
    from ...format.snapshots import SnapshotId
    from ...planning.upkeep.compaction import Bin, Compaction
    from ...planning.writing.write import ParquetSettings


Locate = Callable[[str], Location]


# (how many rows of the file come before some of its rows, the snapshots of these) → which are wanted
Keep: TypeAlias = "Callable[[int, pa.ChunkedArray], pa.Array | pa.ChunkedArray]"

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
        """Write the rows of a bin to ``path``, in their order, holding little more than a row group."""
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
        """Build the catalog entry of the file that a bin became, whose rows carry their ids."""
        return MergedFile(
            _known_by_catalog(written, files),
            tuple(file.id for file in files.files),
            files.begin_snapshot,
            files.partial_max,
            None,
            files.partition_id,
        )

    def _write(self, files: Bin, path: str, row_id_start: int | None) -> DataFile:
        """Write the file; the rows say their ids unless those are consecutive from ``row_id_start``."""
        target = self.target(files)
        if row_id_start is not None:
            target = TableSchema(tuple(column for column in target.columns if column != ROW_ID))
        names = [column.name for column in target.columns]
        with RollingWriter(target, lambda: path, in_one_file(self.settings), locate=self.locate) as writer:
            found = rows_of_files(self.numbered_rows, files)
            if row_id_start is not None:
                found = _consecutive(found, row_id_start)
            for rows in made_ahead(_together(found, self.settings)):
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

        ``keep`` says which; None: all. Others are not cast.
        """
        read = TableSchema((*schema.columns, ROW_ID, SNAPSHOT_ID))
        seen = 0
        for stored in read_row_groups(
            file, read, table=self.table, snapshot_id=self.snapshot_id, locate=self.locate
        ):
            before, seen = seen, seen + stored.row_count
            if seen > file.record_count:
                continue  # counted for the error
            numbers, rows = _numbers(file, stored, before), stored
            if keep is not None:
                kept = keep(before, numbers[SNAPSHOT_ID.name])
                numbers, rows = numbers.filter(kept), stored.filter(kept)
            yield _numbered(rows.cast(), numbers)
        if seen != file.record_count:
            raise StorageError(
                f"Data file {file.path} of {self.table} has {seen} rows, but the catalog says "
                f"{file.record_count}. It was changed outside the lake; restore it from a backup."
            )


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How bins of a table become files without the deleted rows of ``plan``."""

    plan: ScanPlan
    settings: ParquetSettings
    locate: Callable[[str], Location] = open_filesystem

    def compact(self, files: Bin, path: str) -> RewrittenFile:
        """Write the live rows of a bin to ``path``, if there are any, with their ids."""
        target = self.target(files)
        names = [column.name for column in target.columns]
        with RollingWriter(target, lambda: path, in_one_file(self.settings), locate=self.locate) as writer:
            found = rows_of_files(self.numbered_rows, files)
            for rows in made_ahead(_together(found, self.settings)):
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
        live = pc.invert(marked(file, gone))

        def is_live(before: int, snapshots: pa.ChunkedArray) -> pa.Array:
            return live.slice(before, len(snapshots))

        yield from merging.numbered_rows(file, schema, is_live if len(gone) else None)

    def compacted(self, files: Bin, written: DataFile | None) -> RewrittenFile:
        """Build the catalog entry of the file that a bin became; None: no row was live."""
        new = None if written is None else _known_by_catalog(written, files)
        origins = tuple(self._origin(file) for file in files.files)
        return RewrittenFile(new, origins, self.plan.table.snapshot.id, files.partition_id)

    def _origin(self, file: LiveDataFile) -> RewriteSource:
        delete_file_id = None if file.delete_file is None else file.delete_file.id
        return RewriteSource(file.id, delete_file_id, len(self.plan.inlined_deletes.get(file.id, ())))


def compactor(compaction: Compaction, settings: ParquetSettings) -> Merging | Rewriting:
    """Choose how to make files of the bins: merge or rewrite."""
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
    """Return settings with which a writer never begins another file."""
    limit = min(settings.row_group_bytes, settings.target_file_size_bytes)
    return replace(settings, row_group_bytes=limit, target_file_size_bytes=_ENDLESS)


def _known_by_catalog(written: DataFile, files: Bin) -> DataFile:
    own = (ROW_ID.id, SNAPSHOT_ID.id)
    stats = {one: known for one, known in written.column_stats.items() if one not in own}
    return replace(written, column_stats=stats, partition_values=files.partition_values)


def marked(file: LiveDataFile, positions: pa.Array) -> pa.Array:
    """Return for each row of a file whether it is among the positions."""
    return pc.is_in(ordinals(file.record_count), value_set=positions)


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


def _together(found: Iterator[pa.Table], settings: ParquetSettings) -> Generator[pa.Table]:
    """Yield the rows in larger tables, of a row group's rows or bytes or little more."""
    waiting: list[pa.Table] = []
    count = size = 0
    for rows in found:
        waiting.append(rows)
        count, size = count + rows.num_rows, size + rows.nbytes
        if count >= settings.row_group_rows or size >= settings.row_group_bytes:
            yield pa.concat_tables(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _consecutive(found: Iterator[pa.Table], start: int) -> Generator[pa.Table]:
    """Yield the rows as long as their ids follow each other from ``start`` on."""
    for rows in found:
        expected = pc.add(ordinals(rows.num_rows), start)
        if not rows[ROW_ID.name].equals(pa.chunked_array([expected])):
            raise _OtherRowIdsError
        yield rows
        start += rows.num_rows


# Find row ids that several live rows of a table share, whether stored in files or in the catalog.
#
# Each file that stores ids is read once. Where its ids lie between those of other files, it is read again
# with them, a window of ids at a time: memory is that of the ids of a window, or of one large file.


_WINDOW = 2**24
_FEW = 1_000_000  # rows of a file; several such files are read at a time

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SharedRowIds:
    """``count`` row ids of a table that more than one live row has; ``row_id`` is the first of them.

    ``file_ids`` are data files with such rows; ``in_catalog``: rows in the catalog are among them.
    """

    row_id: int
    count: int
    file_ids: tuple[int, ...]
    in_catalog: bool


@dataclass(frozen=True, slots=True)
class _MergeSource:
    """Rows of a file, or (None) of the catalog, with ids in ``windows``; ``is_mixed``: one comes twice."""

    file: LiveDataFile | None
    windows: Sequence[int]
    is_mixed: bool = False


def shared_row_ids(
    plan: ScanPlan, in_catalog: Sequence[int], locate: Locate, *, below: int
) -> list[SharedRowIds]:
    """Find ids below a number that several live rows have, in the plan's files or the catalog.

    Files that number their rows are compared with those that store ids, not with each other. A file that
    cannot be read is passed over.
    """
    reader = _RowReader(replace(plan, columns=(), where=None), locate, below)
    held = pc.unique(pa.array((one for one in in_catalog if one < below), pa.int64()))
    found: list[SharedRowIds] = []
    for window, sources in sorted(_by_window(plan.files, reader, held).items()):
        if len(sources) > 1 or sources[0].is_mixed:
            found += _in_window(sources, reader, held, window * _WINDOW)
    return found


def _by_window(
    files: Sequence[LiveDataFile], reader: _RowReader, held: pa.Array
) -> dict[int, list[_MergeSource]]:
    """Return the rows that have ids in a window, for each window in which ids are stored."""
    stores = dict(zip((file.id for file in files), _results_of_each(reader.stores_ids, files), strict=True))
    storing = _results_of_each(reader.source, [file for file in files if stores[file.id]])
    found: dict[int, list[_MergeSource]] = {}
    for source in (*storing, _MergeSource(None, _windows(held))):
        for window in source.windows:
            found.setdefault(window, []).append(source)
    windows = sorted(found)
    for file in files:
        if stores[file.id] is False:
            for window in _windows_of(file, windows):
                found[window].append(_MergeSource(file, ()))
    return found


def _windows_of(file: LiveDataFile, windows: Sequence[int]) -> Sequence[int]:
    """Return those of the windows, which ascend, in which a file numbers its rows."""
    if file.row_id_start is None:
        return ()
    first, end = file.row_id_start // _WINDOW, (file.row_id_start + file.record_count - 1) // _WINDOW
    return windows[bisect_left(windows, first) : bisect_right(windows, end)]


def _results_of_each(work: Callable[[LiveDataFile], Result], files: Sequence[LiveDataFile]) -> list[Result]:
    """Apply ``work`` to the files, in their order; large ones one at a time."""
    results: list[Result] = []
    for is_small, found in groupby(files, key=lambda file: file.record_count <= _FEW):
        alike = list(found)
        results += in_threads(work, alike) if is_small else map(work, alike)
    return results


def _windows(ids: pa.Array) -> Sequence[int]:
    windows: list[int] = pc.unique(pc.divide(ids, _WINDOW)).to_pylist()
    return windows


def _in_window(
    sources: Sequence[_MergeSource], reader: _RowReader, held: pa.Array, start: int
) -> Iterator[SharedRowIds]:
    def within(ids: pa.Array) -> pa.Array:
        return ids.filter(pc.and_(pc.greater_equal(ids, start), pc.less(ids, start + _WINDOW)))

    files = [one.file for one in sources if one.file is not None]
    parts = [*_results_of_each(lambda file: within(reader.ids(file)), files), within(held)]
    shared = _doubled(pa.concat_arrays(parts))
    if not len(shared):
        return
    *in_files, in_catalog = (bool(pc.any(pc.is_in(part, value_set=shared)).as_py()) for part in parts)
    file_ids = tuple(file.id for file, is_among in zip(files, in_files, strict=True) if is_among)
    yield SharedRowIds(shared[0].as_py(), len(shared), file_ids, in_catalog)


def _doubled(ids: pa.Array) -> pa.Array:
    """Return the values that come more than once, ascending."""
    if len(ids) < 2:  # noqa: PLR2004 - a pair
        return ids.slice(0, 0)
    rising = ids.take(pc.sort_indices(ids))
    return pc.unique(rising.slice(1).filter(pc.equal(rising.slice(1), rising.slice(0, len(rising) - 1))))


@dataclass(frozen=True, slots=True)
class _RowReader:
    """Reads which ids below a number the live rows of a file have."""

    plan: ScanPlan
    locate: Locate
    below: int

    def stores_ids(self, file: LiveDataFile) -> bool | None:
        """Return True if a file says itself which ids its rows have; None: it cannot be read."""
        try:
            return stores_row_ids(self.locate(file.path).with_key(file.encryption_key))
        except (StorageError, UnsupportedFeatureError):
            return None  # a separate finding

    def source(self, file: LiveDataFile) -> _MergeSource:
        """Return the ranges of the ids that a file stores."""
        ids = self.ids(file)
        return _MergeSource(file, _windows(ids), is_mixed=bool(len(_doubled(ids))))

    def ids(self, file: LiveDataFile) -> pa.Array:
        """Return the ids of the live rows of a file, in its order; none where it cannot be read."""
        try:
            ids = visible_rows(self.plan, file, self.locate, numbered=True)[ROW_ID.name].combine_chunks()
        except (StorageError, UnsupportedFeatureError):
            return pa.array([], pa.int64())
        return ids.filter(pc.less(ids, self.below))
