"""Read the rows of a scan plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...format.names.identifiers import INTERNAL_PREFIX
from ...format.schema import Column, TableSchema
from ...format.snapshots import ColumnId
from ...format.types.ducklake_types import DuckLakeType, ScalarKind, ScalarType, is_float
from ...planning.reading.predicates import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Likeness,
    Membership,
    NullTest,
    Operator,
    Predicate,
)
from ...planning.reading.scan import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ChangeFeedPlan,
    FileHistory,
    ScanPlan,
    columns_to_read,
)
from ..arrow.arrow_types import from_physical
from ..arrow.reshape import field_id, ordinals
from ..deletes.deletes import deleted_rows, row_count_of
from ..files.filesystem import Location, storage_errors
from ..parquet.opening import open_parquet
from ..parquet.reader import StoredRows, naming_file, read_data_file
from .inlined_values import inlined_in_schema

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.types.values import Physical


def read_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return all rows of the plan in the table's schema at its snapshot."""
    return pa.concat_tables(
        [
            *_rows_of_files(plan, locate),
            _wanted(plan, inlined_in_schema(plan.inlined_rows, TableSchema(columns_to_read(plan)))),
        ]
    )


def _rows_of_files(plan: ScanPlan, locate: Callable[[str], Location]) -> Iterator[pa.Table]:
    for file in plan.files:
        yield live_rows(plan, file, locate)


def live_rows(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Table:
    """Return the rows of a data file that the plan wants: the plan's columns, in file order."""
    rows = visible_rows(plan, file, locate)
    with naming_file(file, str(plan.table.name), plan.table.snapshot.id):
        return _wanted(plan, rows)


def wanted_positions(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Array:
    """Find the positions of the rows that the plan wants in a data file: int64, ascending, from 0."""
    rows = visible_rows(plan, file, locate, numbered=True)
    with naming_file(file, str(plan.table.name), plan.table.snapshot.id):
        return _matching(plan, rows)[POSITION].combine_chunks()


def wanted_row_ids(plan: ScanPlan) -> pa.ChunkedArray:
    """Return the ids (int64) of the rows that the plan wants and the catalog keeps."""
    row_ids = [row_id for part in plan.inlined_rows for row_id in part.row_ids]
    rows = inlined_in_schema(plan.inlined_rows, TableSchema(columns_to_read(plan)))
    numbered = rows.append_column(ROW_ID.name, pa.array(row_ids, pa.int64()))
    return _matching(plan, numbered)[ROW_ID.name]


def visible_rows(
    plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location], *, numbered: bool = False
) -> pa.Table:
    """Return the rows of a data file that the plan's snapshot has, in file order: ``columns_to_read``.

    ``numbered`` adds two columns at the end, int64: the row id and the position in the file.
    """
    names = tuple(column.name for column in columns_to_read(plan))
    stored = _all_rows(plan, file, names, locate, numbered=numbered)
    keep = _live(plan, file, stored, locate)
    read = (stored if keep is None else stored.filter(keep)).cast()
    if not numbered:
        return read.select(names)
    places = ordinals(stored.row_count)
    kept = places if keep is None else places.filter(keep)
    return _numbered(read, names, kept, file.row_id_start or 0)


def _numbered(read: pa.Table, names: Sequence[str], places: pa.Array, row_id_start: int) -> pa.Table:
    row_ids = pc.coalesce(read[ROW_ID.name], pc.add(places, row_id_start))
    return read.select(names).append_column(ROW_ID.name, row_ids).append_column(POSITION, places)


def count_live_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> int:
    """Count the live rows of the plan's files, with none of its columns read and no filter applied."""
    count = 0
    for file in plan.files:
        rows = _all_rows(plan, file, (), locate)
        keep = _live(plan, file, rows, locate)
        count += rows.row_count if keep is None else pc.sum(keep).as_py() or 0
    return count


def _all_rows(
    plan: ScanPlan,
    file: LiveDataFile,
    names: tuple[str, ...],
    locate: Callable[[str], Location],
    *,
    numbered: bool = False,
) -> StoredRows:
    """Read all rows of a file, with the column of their snapshots, if there is one.

    ``numbered`` adds the column of stored row ids, NULL where the file has none.
    """
    table = plan.table
    reserved = (*(() if file.partial_max is None else (SNAPSHOT_ID,)), *((ROW_ID,) if numbered else ()))
    return read_data_file(
        file,
        TableSchema((*table.schema.columns, *reserved)),
        table=str(table.name),
        snapshot_id=table.snapshot.id,
        columns=(*names, *(one.name for one in reserved)),
        locate=locate,
    )


def _live(
    plan: ScanPlan, file: LiveDataFile, rows: StoredRows, locate: Callable[[str], Location]
) -> pa.ChunkedArray | pa.Array | None:
    """Return a mask of the rows of a file that the plan's snapshot shows; None: all."""
    keep = _visible(rows, plan.table.snapshot.id)
    gone = gone_positions(plan, file, locate)
    if len(gone):
        keep = _and(keep, pc.invert(pc.is_in(ordinals(rows.row_count), value_set=gone)))
    return keep


def _wanted(plan: ScanPlan, rows: pa.Table) -> pa.Table:
    return rows if plan.where is None else _matching(plan, rows).select(plan.columns)


def _matching(plan: ScanPlan, rows: pa.Table) -> pa.Table:
    return rows if plan.where is None else matching(rows, plan.where, plan.table.schema)


# Rows of several snapshots in one file (merged, or flushed from the catalog) say which each of them is.
SNAPSHOT_ID = Column(ColumnId(2147483539), "_ducklake_internal_snapshot_id", ScalarType("int64"))
POSITION = f"{INTERNAL_PREFIX}position"  # which no column of a table may be called
# Rows that moved from another file keep their ids.
ROW_ID = Column(ColumnId(2147483540), "_ducklake_internal_row_id", ScalarType("int64"))


def _visible(rows: StoredRows, snapshot_id: int) -> pa.ChunkedArray | None:
    if SNAPSHOT_ID not in rows.columns:
        return None
    came_by = rows.column(SNAPSHOT_ID)
    return pc.fill_null(pc.less_equal(came_by, snapshot_id), True)  # noqa: FBT003 - the filling


def gone_positions(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Array:
    """Return the positions (int64) of rows that the plan's snapshot does not have, by delete file or catalog.

    Rows that say themselves which snapshot they came by are not among them.
    """
    marked = pa.array(plan.inlined_deletes.get(file.id, ()), pa.int64())
    if file.delete_file is None:
        return marked
    gone, row_count = [marked], row_count_of(file, locate)
    for delete in (*file.older_delete_files, file.delete_file):
        place = locate(delete.path).with_key(delete.encryption_key)
        rows = deleted_rows(place, delete.format, delete.begin_snapshot, row_count)
        gone += rows.filter(pc.less_equal(rows["snapshot_id"], plan.table.snapshot.id))["pos"].chunks
    return pa.concat_arrays(gone)


def _and(left: pa.ChunkedArray | None, right: pa.Array) -> pa.ChunkedArray | pa.Array:
    return right if left is None else pc.and_(left, right)


# Read the rows of a change feed.


_BEFORE_ALL = -1
# columns put before the table's, which may not be called so
_INSERTED, _DELETED, _ROW_ID = (f"{INTERNAL_PREFIX}{name}" for name in ("inserted", "deleted", "rowid"))
_LIFE = (_INSERTED, _DELETED, _ROW_ID)


def read_changes(plan: ChangeFeedPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return the columns ``snapshot_id``, ``rowid``, ``change_type`` and the table's own at the end.

    ``change_type`` is ``insert``, ``delete``, or for a row that a snapshot changed ``update_preimage`` and
    ``update_postimage``. A row that one snapshot inserted and deleted is there as both, as in the reference.
    Sorted by snapshot, row id, and what came first.
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
    """Return the rows of a file that came or went within the plan, as ``lives_in_catalog`` returns others."""
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
    return pa.repeat(pa.scalar(file.begin_snapshot, pa.int64()), row_count)


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


# Which rows of a data file have given row ids: rows that were updated, merged or flushed keep theirs.
#
# *Source:* DuckLake's reserved field id, which is Iceberg's ``_row_id`` (docs/sources.md, deletes).


ROW_ID_FIELD_ID = 2147483540
ROW_ID_COLUMN = "_ducklake_internal_row_id"


def stored_positions(location: Location, first: int, end: int) -> pa.Array | None:
    """Find the positions of the row ids from ``first`` to before ``end`` (int64); None: the file has none."""
    with storage_errors(location.uri, "read"), open_parquet(location) as source:
        file = pq.ParquetFile(source)
        name = row_id_column(file.schema_arrow)
        if name is None:
            return None
        ids = file.read(columns=[name]).column(0).combine_chunks()
    is_wanted = pc.and_(pc.greater_equal(ids, first), pc.less(ids, end))
    return ordinals(len(ids)).filter(is_wanted)


def numbered_positions(file: LiveDataFile, first: int, end: int) -> pa.Array:
    """Return the same of a file that stores no ids: its rows are numbered from its first one's."""
    start = file.row_id_start
    if start is None:
        return pa.array([], pa.int64())
    begin, stop = max(first, start), min(end, start + file.record_count)
    return pc.add(ordinals(max(0, stop - begin)), begin - start)


def row_id_column(schema: pa.Schema) -> str | None:
    """Return the name of the column with stored row ids, None where a file has none."""
    for field in schema:
        if field_id(field) == ROW_ID_FIELD_ID or field.name == ROW_ID_COLUMN:
            return str(field.name)
    return None


# The rows of an Arrow table for which a filter is true, compared as DuckDB compares.
#
# Where a condition is NULL it is not true, so every mask here may say false for it.


def matching(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Table:
    """Return the rows for which a filter on columns of ``schema`` is true; they have the ones it needs."""
    return rows.filter(_mask(rows, predicate, schema))


def _mask(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Array | pa.ChunkedArray:
    match predicate:
        case AllOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.and_, masks, pa.repeat(pa.scalar(True), rows.num_rows))  # noqa: FBT003 - a value
        case AnyOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.or_, masks, pa.repeat(pa.scalar(False), rows.num_rows))  # noqa: FBT003
        case _:
            path = path_to(schema, predicate.column_id)
            values = _values(rows, path)
            return pc.fill_null(_condition(predicate, values, path[-1].type), False)  # noqa: FBT003


def path_to(schema: TableSchema, column_id: ColumnId) -> tuple[Column, ...]:
    """Return a top-level column and the struct fields below it that lead to an id."""

    def below(column: Column) -> Iterator[tuple[Column, ...]]:
        if column.id == column_id:
            yield (column,)
        for child in column.children:
            for path in below(child):
                yield (column, *path)

    return next(path for column in schema.columns for path in below(column))


def _values(rows: pa.Table, path: tuple[Column, ...]) -> pa.ChunkedArray:
    """Return the values of a column or struct field; NULL where a struct around it is."""
    top, *fields = path
    values = rows[top.name]
    for column, child in zip(path, fields, strict=False):
        values = pc.struct_field(values, [column.children.index(child)])
    return values


def _condition(condition: Condition, values: pa.ChunkedArray, type_: DuckLakeType) -> pa.ChunkedArray:
    match condition:
        case NullTest(_, negated):
            return pc.is_valid(values) if negated else pc.is_null(values)
        case Likeness(_, pattern, negated):
            found = pc.match_substring_regex(values, regex(pattern))
            return pc.invert(found) if negated else found
        case Membership(_, wanted, negated):
            found = pc.is_in(_plain(values, type_), value_set=_array(type_, wanted))
            return pc.and_(pc.invert(found), pc.is_valid(values)) if negated else found
        case Comparison(_, operator, value) if is_float(type_):
            return _compare_floats(_plain(values, type_), operator, float(value))
        case Comparison(_, operator, value):
            return _COMPUTE[operator](_plain(values, type_), _array(type_, (value,))[0])


_COMPUTE = {
    Operator.EQUAL: pc.equal,
    Operator.UNEQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.AT_MOST: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
}


def _plain(values: pa.ChunkedArray, type_: DuckLakeType) -> pa.ChunkedArray:
    """Return values that Arrow compares as DuckDB does: uuids as bytes, floats with one zero and one NaN."""
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if is_float(type_):
        numbers = pc.add(values.cast(pa.float64()), 0.0)
        return pc.if_else(pc.is_nan(numbers), math.nan, numbers)
    return values


def _array(type_: DuckLakeType, values: tuple[Physical, ...]) -> pa.Array:
    if is_float(type_):  # a value for a float32 may be a double
        numbers = [math.nan if math.isnan(float(one)) else float(one) + 0.0 for one in values]
        return pa.array(numbers, pa.float64())  # of none, too
    if type_.facts.kind is ScalarKind.BOOLEAN:
        return pa.array(values, pa.bool_())
    made = from_physical(type_, values)
    return made.storage if isinstance(made.type, pa.BaseExtensionType) else made


def _compare_floats(values: pa.ChunkedArray, operator: Operator, value: float) -> pa.ChunkedArray:
    """Compare floats where NaN equals itself and is greater than any other."""
    is_nan = pc.is_nan(values)
    goes_up = operator in (Operator.GREATER, Operator.AT_LEAST)
    if not math.isnan(value):
        found = _COMPUTE[operator](values, value)
        return pc.or_(found, is_nan) if goes_up else found
    match operator:
        case Operator.EQUAL | Operator.AT_LEAST:
            return is_nan
        case Operator.UNEQUAL | Operator.LESS:
            return pc.invert(is_nan)
        case Operator.AT_MOST:
            return pc.is_valid(values)
        case Operator.GREATER:
            return pc.and_(is_nan, pc.invert(is_nan))


def regex(pattern: str) -> str:
    """Return the RE2 expression of a LIKE pattern."""
    return rf"(?s)\A{''.join(map(_piece, pattern))}\z"


def _piece(char: str) -> str:
    if char == "%":
        return ".*"
    if char == "_":
        return "."
    return char if char.isalnum() or not char.isascii() else rf"\x{ord(char):02x}"
