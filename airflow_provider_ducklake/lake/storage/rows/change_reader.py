"""Read the rows of a change feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.planning.reading.scan import BEGIN_SNAPSHOT, END_SNAPSHOT
from airflow_provider_ducklake.lake.spec.names.identifiers import INTERNAL_PREFIX
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.storage.deletes.delete_files import deleted_rows, row_count_of
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan, FileHistory
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_BEFORE_ALL = -1
# columns put before the table's, which may not be called so
_INSERTED, _DELETED, _ROW_ID = (f"{INTERNAL_PREFIX}{name}" for name in ("inserted", "deleted", "rowid"))
_LIFE = (_INSERTED, _DELETED, _ROW_ID)


def read_changes(plan: ChangeFeedPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return the columns ``snapshot_id``, ``rowid``, ``change_type`` and the table's own at the end.

    ``change_type`` is ``insert``, ``delete``, or for a row that a snapshot changed ``update_preimage`` and
    ``update_postimage``. A row that came and went by one snapshot is there as both, as the reference has it.
    Sorted by snapshot, row id, and what came first.

    Raises:
        StorageError: a file is missing or damaged: an old one may have been cleaned up.
    """
    lives = pa.concat_tables([*_lives(plan, locate)])
    born = lives.filter(_within(lives[_INSERTED], plan))
    died = lives.filter(_within(lives[_DELETED], plan))
    born_keys, died_keys = _keys(born, _INSERTED), _keys(died, _DELETED)
    changes = pa.concat_tables(
        [
            _changes(died, _DELETED, pc.is_in(died_keys, value_set=born_keys), "update_preimage", "delete"),
            _changes(born, _INSERTED, pc.is_in(born_keys, value_set=died_keys), "update_postimage", "insert"),
        ]
    )
    keys = pa.table({"snapshot_id": changes.column(0), "rowid": changes.column(1)})
    order = pc.sort_indices(keys, [("snapshot_id", "ascending"), ("rowid", "ascending")])
    return changes.take(order)  # stable: deletes stand before inserts


def _lives(plan: ChangeFeedPlan, locate: Callable[[str], Location]) -> Iterator[pa.Table]:
    """Yield rows with the snapshots that they came and went by; NULL: still there at the end."""
    for history in plan.files:
        yield lives_of_file(plan, history, locate)
    yield lives_in_catalog(plan)


def lives_in_catalog(plan: ChangeFeedPlan) -> pa.Table:
    """Return the rows in the catalog: when they came and went, row ids, and the table's columns."""
    rows = inlined_in_schema(plan.inlined, plan.table.schema)
    cells = [row for part in plan.inlined for row in part.rows]
    ended = [row[END_SNAPSHOT] for row in cells]
    return _with_life(
        rows,
        pa.array([row[BEGIN_SNAPSHOT] for row in cells], pa.int64()),
        pa.array([one if one is not None and one <= plan.end else None for one in ended], pa.int64()),
        pa.array([one for part in plan.inlined for one in part.row_ids], pa.int64()),
    )


def lives_of_file(plan: ChangeFeedPlan, history: FileHistory, locate: Callable[[str], Location]) -> pa.Table:
    """Return the rows of a file that came or went within the plan, as ``lives_in_catalog`` returns others.

    Raises:
        StorageError: the file, or one with its deletes, is missing or damaged.
    """
    file, table = history.file, plan.table
    stored = read_data_file(
        file,
        TableSchema((*table.schema.columns, ROW_ID, SNAPSHOT_ID)),
        table=str(table.name),
        snapshot_id=table.snapshot.id,
        locate=locate,
    )
    count = stored.row_count
    places = ordinals(count)
    begin = pc.coalesce(stored.column(SNAPSHOT_ID), _begins(file, count))
    numbered = pc.add(places, file.row_id_start if file.row_id_start is not None else 0)
    lives = pa.table(
        {
            _INSERTED: _but_of_rewrites(begin, plan),
            _DELETED: _deleted_by(plan, history, places, locate),
            _ROW_ID: pc.coalesce(stored.column(ROW_ID), numbered),
        }
    )
    changed = pc.or_kleene(_within(lives[_INSERTED], plan), _within(lives[_DELETED], plan))
    rows, lives = stored.filter(changed).cast().select(table.schema.names), lives.filter(changed)
    return _with_life(rows, *lives.columns)


def _but_of_rewrites(begin: pa.ChunkedArray, plan: ChangeFeedPlan) -> pa.ChunkedArray:
    """Return the snapshots that rows came by; what a rewrite moved, and perhaps a merge since, was there."""
    moved = pc.is_in(begin, value_set=pa.array(sorted(plan.rewrites), pa.int64()))
    return pc.if_else(moved, _BEFORE_ALL, begin)


def _begins(file: LiveDataFile, row_count: int) -> pa.Array:
    """Return the snapshot that each row came by, as far as the catalog says it."""
    if not file.snapshot_counts:
        return pa.repeat(pa.scalar(file.begin_snapshot, pa.int64()), row_count)
    parts, done = [], 0
    for snapshot, count in file.snapshot_counts:
        parts.append(pa.repeat(pa.scalar(snapshot, pa.int64()), count - done))
        done = count
    return pa.concat_arrays(parts)


def _with_life(rows: pa.Table, inserted: pa.Array, deleted: pa.Array, row_ids: pa.Array) -> pa.Table:
    for name, values in zip(reversed(_LIFE), (row_ids, deleted, inserted), strict=True):
        rows = rows.add_column(0, pa.field(name, pa.int64()), values)
    return rows


def _deleted_by(
    plan: ChangeFeedPlan, history: FileHistory, places: pa.Array, locate: Callable[[str], Location]
) -> pa.Array:
    """Return for each row the first snapshot that deleted it; NULL: none did, but perhaps moved it."""
    marks = pa.table(
        {
            "pos": pa.array(history.marks.keys(), pa.int64()),
            "snapshot_id": pa.array(history.marks.values(), pa.int64()),
        }
    )
    row_count = row_count_of(history.file, locate) if history.delete_files else 0
    parts = [
        deleted_rows(locate(one.path).with_key(one.encryption_key), one.format, one.begin_snapshot, row_count)
        for one in history.delete_files
    ]
    deletes = pa.concat_tables([*parts, marks])
    first = deletes.group_by("pos").aggregate([("snapshot_id", "min")])
    first = first.filter(pc.less_equal(first["snapshot_id_min"], plan.end))
    found = pc.index_in(places, value_set=first["pos"].combine_chunks())
    deleted = first["snapshot_id_min"].combine_chunks().take(found)
    if history.ended_by is None or history.ended_by in plan.rewrites:
        return deleted
    return pc.coalesce(deleted, pa.scalar(history.ended_by, pa.int64()))


def _within(snapshots: pa.ChunkedArray, plan: ChangeFeedPlan) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(snapshots, plan.start), pc.less_equal(snapshots, plan.end))


def _keys(rows: pa.Table, when: str) -> pa.ChunkedArray:
    """Return a text for each row: its snapshot and row id."""
    return pc.binary_join_element_wise(rows[when].cast(pa.string()), rows[_ROW_ID].cast(pa.string()), ":")


def _changes(rows: pa.Table, when: str, is_update: pa.ChunkedArray, update: str, otherwise: str) -> pa.Table:
    kinds = pc.if_else(is_update, update, otherwise)
    columns = {"snapshot_id": rows[when], "rowid": rows[_ROW_ID], "change_type": kinds}
    own = rows.drop_columns(list(_LIFE)) if rows.num_columns > len(_LIFE) else None
    fields = [pa.field(name, values.type) for name, values in columns.items()]
    arrays: list[pa.ChunkedArray] = [*columns.values(), *(own.columns if own is not None else [])]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*fields, *(own.schema if own is not None else [])]))
