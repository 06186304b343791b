"""Write restored rows to new files.

A file is copied as it is where all its rows come back and none says which snapshot it came by: the change
feed would show rows of a copy at the snapshots that they name, a second time, and would show the rows that a
copy's delete file leaves out as born and gone. Any other rows are rewritten, with their ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.planning.upkeep.restore import FileLook, FilePair, has_later_rows
from airflow_provider_ducklake.lake.spec.partitioning import hive_directory
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.storage.deletes.merged_deletes import positions_of
from airflow_provider_ducklake.lake.storage.files.copying import copy_file
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, open_filesystem
from airflow_provider_ducklake.lake.storage.moving.compact_files import Merging
from airflow_provider_ducklake.lake.storage.parquet.opening import open_parquet
from airflow_provider_ducklake.lake.storage.parquet.partition_split import split_by_partition
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.reshape import field_id, ordinals
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, SNAPSHOT_ID, gone_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows, ScanPlan
    from airflow_provider_ducklake.lake.planning.upkeep.restore import RewriteBin
    from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
    from airflow_provider_ducklake.lake.spec.files import DataFile, LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location


@dataclass(frozen=True, slots=True)
class Restoring:
    """A table as two snapshots read it: the one that comes back, and the newest; None: it was dropped."""

    then: ScanPlan
    now: ScanPlan | None
    locate: Callable[[str], Location] = open_filesystem

    def look(self, pair: FilePair) -> FileLook:
        """Find out which rows of a file return, and which came since.

        Raises:
            StorageError: the file or one with its deletes is gone, or damaged.
        """
        dead, later = self._gone_then(pair.then), self._later(pair.then)
        absent = _union(dead, later)
        is_plain = not len(absent) and not self._has_stamps(pair.then)
        if pair.now is None or self.now is None:
            return FileLook(pair, pair.then.record_count - len(absent), positions_of(_NONE), is_plain)
        gone = _unique(gone_positions(self.now, pair.now, self.locate))
        return FileLook(
            pair, len(_minus(gone, absent)), positions_of(_ascending(_minus(later, gone))), is_plain
        )

    def _gone_then(self, file: LiveDataFile) -> pa.Array:
        return _unique(gone_positions(self.then, file, self.locate))

    def _later(self, file: LiveDataFile) -> pa.Array:
        """Return where the rows lie that came after the snapshot."""
        at = self.then.table.snapshot.id
        if not has_later_rows(file, at):
            return _NONE
        rows = read_data_file(
            file,
            TableSchema((SNAPSHOT_ID,)),
            table=str(self.then.table.name),
            snapshot_id=at,
            locate=self.locate,
        )
        is_later = pc.fill_null(pc.greater(rows.column(SNAPSHOT_ID), at), False)  # noqa: FBT003 - the filling
        return ordinals(rows.row_count).filter(is_later.combine_chunks())

    def _has_stamps(self, file: LiveDataFile) -> bool:
        location = self.locate(file.path).with_key(file.encryption_key)
        with naming_errors(location.uri, "read"), open_parquet(location) as source:
            fields = pq.ParquetFile(source).schema_arrow
        own = (SNAPSHOT_ID.id, SNAPSHOT_ID.name)
        return any(field_id(field) in own or field.name in own for field in fields)

    def copy(self, source: str, target: str) -> None:
        """Copy a file whole, within its store where it can do that.

        Raises:
            StorageError: it is gone, or cannot be written.
        """
        try:
            copy_file(self.locate(source), self.locate(target))
        except StorageError as error:
            table = self.then.table
            raise StorageError(
                f"{error} It held rows of {table.name} at snapshot {table.snapshot.id}, which cannot be "
                "restored without it. Nothing was changed."
            ) from error

    def rewrite(
        self, files: RewriteBin, next_path: Callable[[], str], settings: ParquetSettings
    ) -> list[DataFile]:
        """Write the rows of files that return, with their ids; little more than a row group is held at once.

        Raises:
            StorageError: a file is gone, or damaged.
            UnsupportedFeatureError: a file has a layout that this release cannot read, or the table a type
                that it cannot write.
        """
        schema = self.then.table.schema
        rows = (part for pair in files.pairs for part in self._returning(pair, schema, settings))
        written = self._written(rows, next_path, settings)
        return [_known_by_catalog(one, files.partition_values) for one in written]

    def write_inlined(
        self, parts: Sequence[InlinedRows], path_in: Callable[[str], str], settings: ParquetSettings
    ) -> Iterator[DataFile]:
        """Write rows that lay in the catalog, with their ids, a file or more for each partition.

        ``path_in`` is given the folders of a partition, below the table's directory.

        Raises:
            StorageError: a file cannot be written.
            UnsupportedFeatureError: the table has a type that this release cannot write.
        """
        if not parts:
            return
        schema = self.then.table.schema
        spec = self.then.table.partition_spec
        keys = spec.fields if spec is not None else ()
        row_ids = pa.array([one for part in parts for one in part.row_ids], pa.int64())
        rows = inlined_in_schema(parts, schema).append_column(ROW_ID.name, row_ids)
        for values, partition in split_by_partition(rows, schema, keys):
            folders = hive_directory(keys, schema, values) if settings.hive_file_pattern else ""
            for one in self._written(iter([partition]), partial(path_in, folders), settings):
                yield _known_by_catalog(one, values)

    def _written(
        self, parts: Iterator[pa.Table], next_path: Callable[[], str], settings: ParquetSettings
    ) -> Sequence[DataFile]:
        """Write rows, each with its id behind its columns."""
        target = TableSchema((*self.then.table.schema.columns, ROW_ID))
        with RollingWriter(target, next_path, settings, locate=self.locate) as writer:
            for rows in parts:
                writer.write(rows)
        return writer.files

    def _returning(
        self, pair: FilePair, schema: TableSchema, settings: ParquetSettings
    ) -> Iterator[pa.Table]:
        """Yield the rows that return, each with its id behind its columns."""
        table = self.then.table
        merging = Merging(str(table.name), table.snapshot.id, settings, self.locate)
        dead = self._gone_then(pair.then)
        gone = None
        if pair.now is not None and self.now is not None:
            gone = _unique(gone_positions(self.now, pair.now, self.locate))

        def return_(places: pa.Array, snapshots: pa.ChunkedArray) -> pa.ChunkedArray:
            had = pc.and_(
                pc.less_equal(snapshots, table.snapshot.id), pc.invert(pc.is_in(places, value_set=dead))
            )
            return had if gone is None else pc.and_(had, pc.is_in(places, value_set=gone))

        for rows in merging.numbered_rows(pair.then, schema, return_):
            yield rows.drop_columns([SNAPSHOT_ID.name])


_NONE = pa.array([], pa.int64())


def _unique(positions: pa.Array) -> pa.Array:
    return pc.unique(positions)


def _union(left: pa.Array, right: pa.Array) -> pa.Array:
    return _unique(pa.concat_arrays([left, right]))


def _minus(left: pa.Array, right: pa.Array) -> pa.Array:
    return left.filter(pc.invert(pc.is_in(left, value_set=right)))


def _ascending(positions: pa.Array) -> pa.Array:
    return positions.take(pc.sort_indices(positions))


def _known_by_catalog(written: DataFile, partition_values: tuple[str | None, ...]) -> DataFile:
    stats = {one: known for one, known in written.column_stats.items() if one != ROW_ID.id}
    return replace(written, column_stats=stats, partition_values=partition_values, has_row_ids=True)
