"""Write inlined rows to data files, and the delete files of those that have ended.

Each row, and so each version of an updated one, has a place in a file, with the id that it had, the snapshot
that it came by, and in the delete file of that file the one that ended it. A file whose rows have all ended
ends with the last of them: no snapshot since then has to read it, by columns that a restore may have
narrowed. *Source:* the files of the reference's ``ducklake_flush_inlined_data`` (docs/sources.md, inlining),
which of a row that was updated twice says that both versions ended by the second update, and ends no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...format.names.paths import relative_to
from ...format.schema import TableSchema
from ...format.snapshots import PartitionId, SnapshotId
from ...planning.reading.scan import END_SNAPSHOT, SYSTEM_CELLS, InlinedRows
from ...transaction.changes import FlushedDeletes, FlushedFile
from ..arrow.reshape import ordinals
from ..arrow.rows import sorted_rows, split_by_partition
from ..arrow.string_checks import BadStrings, bad_strings, error_of
from ..deletes.deletes import write_delete_file
from ..parquet.writer import RollingWriter
from ..rows.inlined_values import rows_of
from ..rows.table_reader import ROW_ID, SNAPSHOT_ID
from .compact import in_one_file

if TYPE_CHECKING:
    from ...planning.writing.write import ParquetSettings, WritePlan
    from ..files.filesystem import Location


Values = tuple[str | None, ...]

RUN_BYTES = 64 * 2**20  # rows that are sorted together, in Arrow's memory
WAITING_BYTES = 128 * 2**20  # rows that wait for their row groups, of all partitions together


@dataclass(frozen=True, slots=True)
class Flushing:
    """How the rows of one inlined table become files: with the columns and the partition keys of ``plan``.

    ``paths`` gets the path of every file before it is written.
    """

    plan: WritePlan
    partition_id: PartitionId | None
    locate: Callable[[str], Location]
    paths: list[str]

    def write(self, batches: Iterable[pa.Table]) -> list[FlushedFile]:
        """Write rows: the table's columns, ``ROW_ID``, ``SNAPSHOT_ID`` and ``END_SNAPSHOT`` (NULL: live).

        They are sorted as far as ``RUN_BYTES`` of them go.
        """
        done: list[FlushedFile] = []
        files: dict[Values, _OpenFlushFile] = {}
        try:
            for run in _runs(batches):
                for values, rows in self._partitions(run):
                    done += self._write_partition(files, values, rows)
                _shrink(files.values())
            done += [self._finish(one) for one in files.values()]
        except BaseException:
            for one in files.values():
                one.writer.abort()
            raise
        return done

    def _partitions(self, run: pa.Table) -> Iterator[tuple[Values, pa.Table]]:
        columns = run.select(list(range(len(self.plan.target.columns))))
        if found := bad_strings(columns, self.plan.target):
            raise error_of([_named_by_row_id(one, run[ROW_ID.name]) for one in found], self.plan.table)
        rows = sorted_rows(run, self.plan.row_order.sort_by)
        return split_by_partition(rows, self.plan.target, self.plan.partition_fields)

    def _write_partition(
        self, files: dict[Values, _OpenFlushFile], values: Values, rows: pa.Table
    ) -> Iterator[FlushedFile]:
        """Write rows of one partition, and yield the files that they fill."""
        limit = self.plan.settings.target_file_size_bytes
        for part in _parts(rows, limit):
            if values not in files:
                files[values] = self._open(values)
            files[values].write(part)
            if files[values].writer.bytes_written >= limit:
                yield self._finish(files.pop(values))

    def _open(self, values: Values) -> _OpenFlushFile:
        folder = self.plan.partition_folder(values) or self.plan.root
        path = self._new_path(folder)
        schema = TableSchema((*self.plan.target.columns, ROW_ID, SNAPSHOT_ID))
        writer = RollingWriter(schema, lambda: path, _bounded(self.plan.settings), locate=self.locate)
        return _OpenFlushFile(path, values, writer)

    def _new_path(self, folder: str, suffix: str = "") -> str:
        path = f"{folder}{self.plan.prefix}{len(self.paths)}{suffix}.parquet"
        self.paths.append(path)
        return path

    def _finish(self, file: _OpenFlushFile) -> FlushedFile:
        (written,) = file.writer.close()
        own = (ROW_ID.id, SNAPSHOT_ID.id)
        stats = {one: known for one, known in written.column_stats.items() if one not in own}
        data_file = replace(
            written, path=self._below(file.path), column_stats=stats, partition_values=file.values
        )
        end, deleted = file.last_of_it()
        return FlushedFile(
            data_file,
            SnapshotId(file.first),
            SnapshotId(file.last),
            self.partition_id,
            self._write_deletes(file.path, deleted) if deleted is not None else None,
            end,
        )

    def _write_deletes(self, data_path: str, deleted: pa.Table) -> FlushedDeletes:
        path = self._new_path(self.plan.root, "-delete")
        written = write_delete_file(self.locate(path), data_path, deleted)
        first, last = (SnapshotId(one.as_py()) for one in pc.min_max(deleted["snapshot_id"]).values())
        return FlushedDeletes(
            self._below(path),
            deleted.num_rows,
            written.file_size_bytes,
            written.footer_size,
            first,
            last,
            written.encryption_key,
        )

    def _below(self, path: str) -> str:
        return relative_to(path, self.plan.root).path or ""


@dataclass
class _OpenFlushFile:
    """A file being written, and what its rows say: ``ended`` has ``pos`` and ``snapshot_id`` of some."""

    path: str
    values: Values
    writer: RollingWriter
    row_count: int = 0
    first: int = 0
    last: int = 0
    ended: list[pa.Table] = field(default_factory=list)

    def last_of_it(self) -> tuple[SnapshotId | None, pa.Table | None]:
        """Return the snapshot since which no row is left, None: some are; and the rows that ended before."""
        if not self.ended:
            return None, None
        ended = pa.concat_tables(self.ended)
        if ended.num_rows < self.row_count:
            return None, ended
        end = pc.max(ended["snapshot_id"])
        earlier = ended.filter(pc.less(ended["snapshot_id"], end))
        return SnapshotId(end.as_py()), earlier if earlier.num_rows else None

    def write(self, rows: pa.Table) -> None:
        self._note_snapshots(rows[SNAPSHOT_ID.name])
        places = pc.add(ordinals(rows.num_rows), self.row_count)
        lives = pa.table({"pos": places, "snapshot_id": rows[END_SNAPSHOT]})
        ended = lives.filter(pc.is_valid(lives["snapshot_id"]))
        if ended.num_rows:
            self.ended.append(ended)
        self.row_count += rows.num_rows
        self.writer.write(rows.drop_columns([END_SNAPSHOT]))

    def _note_snapshots(self, snapshots: pa.ChunkedArray) -> None:
        first, last = (one.as_py() for one in pc.min_max(snapshots).values())
        self.first = min(self.first, first) if self.row_count else first
        self.last = max(self.last, last)


def _named_by_row_id(bad: BadStrings, row_ids: pa.ChunkedArray) -> BadStrings:
    if bad.place is None:
        return bad
    return replace(bad, example=f"{bad.example} of row id {row_ids[bad.place]}", place=None)


def _runs(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows together, so many as may be sorted at once."""
    waiting: list[pa.Table] = []
    size = 0
    for batch in batches:
        if waiting and size + batch.nbytes > RUN_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _parts(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield slices of about so many bytes in memory."""
    count = max(1, rows.num_rows * size // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _shrink(files: Iterable[_OpenFlushFile]) -> None:
    """Write the largest of the rows that wait for their row groups, until few enough are left."""
    waiting = sorted(files, key=lambda one: one.writer.bytes_waiting)
    while waiting and sum(one.writer.bytes_waiting for one in waiting) > WAITING_BYTES:
        waiting.pop().writer.write_waiting()


def _bounded(settings: ParquetSettings) -> ParquetSettings:
    limit = min(settings.row_group_bytes, settings.target_file_size_bytes, WAITING_BYTES)
    return in_one_file(replace(settings, row_group_bytes=limit))


def rows_with_lives(part: InlinedRows) -> pa.Table:
    """Return rows as ``Flushing.write`` takes them."""
    rows = rows_of(part.rows, part.schema)
    own = (ROW_ID.name, SNAPSHOT_ID.name, END_SNAPSHOT)
    for name, cell in zip(own, SYSTEM_CELLS, strict=True):
        rows = rows.append_column(name, pa.array([row[cell] for row in part.rows], pa.int64()))
    return rows
