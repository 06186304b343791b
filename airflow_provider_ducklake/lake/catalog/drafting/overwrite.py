"""Find the rows of a table that new rows replace: those of a condition, or of partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from ...errors import InvalidInputError, TransactionConflictError, UnsupportedFeatureError
from ...format.partitioning import TransformKind, describe, is_local
from ...planning.reading.pruning import all_match
from ...planning.writing.overwrite import Partitions, PartitionValues, RowScope
from ...transaction import changes as kinds
from ...transaction.changes_made import ChangeKind
from ..committing.overlap import row_ids_of
from ..snapshot import read, read_files, read_snapshots
from ..snapshot.inlined_read import inlined_of, read_inlined
from ..snapshot.inlined_tables import bare_table
from ..snapshot.read_layouts import columns_query
from ..snapshot.scan import load_table, partition_specs
from .rows import Targets, delete_changes, end_files, positions_files, read_targets, read_targets_where

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.snapshots import CommitRecord, DataFileId, Snapshot, SnapshotId, TableSnapshot
    from ...planning.reading.scan import ScanPlan
    from ...planning.writing.write import FoundRows
    from ...storage.files.filesystem import Location
    from ..dialects.dialect import Catalog
    from .base_lake import Reading

    Locate = Callable[[str], Location]


MOST_BYTES_READ = 256 * 2**20


def changes_of_condition(
    reading: Reading, catalog: Catalog, plan: ScanPlan, locate: Locate, found: FoundRows | None = None
) -> Iterator[kinds.Change]:
    """Yield the changes that delete the rows that a plan with a condition reads.

    Files that go as a whole, by their statistics, are ended unread; of the others this process reads the
    condition's columns, unless a job ``found`` the rows.
    """
    from .rows import matching_positions, matching_row_ids

    whole, partly = _split(reading, catalog, plan)
    assert plan.where is not None
    yield kinds.ReadRows(
        plan.table.table_id, plan.table.name, RowScope(plan.table, plan.where), counts_gone=False
    )
    if whole:
        yield end_files(plan.table, whole)
    positions: Mapping[DataFileId, kinds.RowPositions]
    if found is None:
        _check_size(plan.table, partly)
        positions = matching_positions(replace(plan, files=partly), locate)
    else:
        _check_searched(plan.table, partly, found)
        positions = positions_files(found.deletes)
    row_ids = matching_row_ids(plan)
    if positions or row_ids:
        with reading() as connection:
            targets = read_targets(connection, catalog, plan.table, positions, row_ids)
        yield from delete_changes(targets, positions, row_ids, locate)


def _check_searched(table: TableSnapshot, files: Sequence[LiveDataFile], found: FoundRows) -> None:
    """Refuse to go on where rows have come to files that the job did not look into: a flush moves them."""
    if new := [file for file in files if file.id not in found.searched]:
        raise TransactionConflictError(
            "replace rows of it", f"moved rows to data file {new[0].id}", str(table.name), table.snapshot.id
        )


def too_large_to_read(reading: Reading, catalog: Catalog, plan: ScanPlan) -> ScanPlan | None:
    """Return the files with rows of a plan's condition and others, if this process must not read them."""
    _, partly = _split(reading, catalog, plan)
    return replace(plan, files=partly, inlined_rows=()) if _size(partly) > MOST_BYTES_READ else None


def _split(
    reading: Reading, catalog: Catalog, plan: ScanPlan
) -> tuple[tuple[LiveDataFile, ...], tuple[LiveDataFile, ...]]:
    """Split a plan's files into those whose rows all match, by their statistics, and the others."""
    assert plan.where is not None
    types = {column.id: column.type for column in plan.table.schema.walk()}
    with reading() as connection:
        specs = partition_specs(connection, catalog.tables, plan.table.table_id)
    whole = tuple(file for file in plan.files if all_match(plan.where, file, types, specs))
    ended = {file.id for file in whole}
    return whole, tuple(file for file in plan.files if file.id not in ended)


def _size(files: Sequence[LiveDataFile]) -> int:
    return sum(file.file_size_bytes for file in files)


def _check_size(table: TableSnapshot, files: Sequence[LiveDataFile]) -> None:
    if _size(files) > MOST_BYTES_READ:
        raise InvalidInputError(
            f"{len(files)} files of {table.name} with {_size(files)} bytes hold both rows to be replaced "
            f"and rows to be kept; this process reads at most {MOST_BYTES_READ} bytes to separate them. "
            "Use DuckLakeSparkInsertOperator, whose Spark job reads them."
        )


def changes_of_partitions(
    reading: Reading,
    catalog: Catalog,
    table: TableSnapshot,
    partitions: Collection[PartitionValues],
    locate: Locate,
) -> Iterator[kinds.Change]:
    """Yield what takes out the rows of partitions, by their values for the table's keys."""
    assert table.partition_spec is not None
    fields, wanted = table.partition_spec.fields, frozenset(partitions)
    types = {column.id: column.type for column in table.schema.walk()}
    keys = frozenset(field.column_id for field in fields)
    with reading() as connection:
        specs = partition_specs(connection, catalog.tables, table.table_id)
        columns = columns_query(catalog.tables, table.table_id).ask(connection)
        files = read_files.data_files(connection, catalog, table, stats_of=keys)
        rows = read_inlined(connection, catalog, table)
    bucketed_since = {one: columns.bucketed_since(table.schema.by_id(one)) for one in keys}
    chosen = Partitions(fields, wanted, types, specs, bucketed_since)
    found = chosen.replaced(files)
    if found.partly:
        raise _shared(table, found.partly)
    scope = RowScope(table, partitions=chosen)
    yield kinds.ReadRows(table.table_id, table.name, scope, counts_gone=False)
    if found.whole:
        yield end_files(table, found.whole)
    row_ids = row_ids_of(scope, rows)
    if row_ids:
        with reading() as connection:
            targets = read_targets(connection, catalog, table, (), row_ids)
        yield from delete_changes(targets, {}, row_ids, locate)


def _shared(table: TableSnapshot, files: Sequence[LiveDataFile]) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Cannot replace partitions of {table.name}: {files[0].path} may hold rows of several partitions "
        f"({len(files)} such files), {_why_shared(table, files[0])}. Say which rows to replace with "
        "overwrite_where, or write the table again with mode='overwrite'."
    )


def _why_shared(table: TableSnapshot, file: LiveDataFile) -> str:
    """Explain why a file's rows may lie in several partitions."""
    spec = table.partition_spec
    assert spec is not None
    if file.partition_id != spec.id or len(file.partition_values) != len(spec.fields):
        return "because it was written with other partition keys"
    for field, name, value in zip(
        spec.fields, describe(spec, table.schema), file.partition_values, strict=True
    ):
        if is_local(field.transform, table.schema.by_id(field.column_id).type):
            stats = file.column_stats.get(field.column_id)
            low, high = ("?", "?") if stats is None else (stats.min_value, stats.max_value)
            return (
                f"because its {name} = {value!r} was computed in the time zone of the session that wrote "
                f"it, and its rows, from {low} to {high}, may have several values in UTC"
            )
        if field.transform.kind is TransformKind.BUCKET:
            return f"because {name} gave other values for the type that its column had before"
    return "because its partition values cannot be read"


# Plan the changes that remove the rows of an earlier commit, wherever they are now.


_MOVES_ROWS = frozenset(
    {
        ChangeKind.DELETED_FROM_TABLE,
        ChangeKind.INLINED_DELETE,
        ChangeKind.INLINE_FLUSH,
        ChangeKind.MERGE_ADJACENT,
        ChangeKind.REWRITE_DELETE,
    }
)


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """Where the live rows of an earlier commit to one table may lie.

    ``row_ids`` are those in the catalog. With ``are_together`` the files of ``targets`` hold just such rows.
    """

    record: CommitRecord
    targets: Targets
    row_ids: tuple[int, ...]
    are_together: bool


def find_earlier_rows(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, records: Iterable[CommitRecord]
) -> tuple[EarlierRows, ...]:
    """Ask the catalog for the rows of earlier commits; tables that were dropped since count as empty."""
    rows = {row.id: row for row in read.table_rows(connection, catalog.tables, snapshot.id)}
    found = []
    for record in records:
        if record.table_id is not None and record.table_id in rows:
            row = rows[record.table_id]
            table = load_table(connection, catalog, snapshot, row.qualified, with_files=False)
            found.append(_earlier_rows(connection, catalog, table, record, since=row.begin_snapshot))
    return tuple(found)


def _earlier_rows(
    connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord, *, since: SnapshotId
) -> EarlierRows:
    """Read the files and inlined rows that may hold them; ``since``: when the table was made or restored."""
    file = catalog.tables["data_file"]
    moved = since > record.snapshot_id or _rows_moved(connection, catalog, table, record)
    condition = _may_hold(catalog, record) if moved else file.c.begin_snapshot == record.snapshot_id
    targets = read_targets_where(connection, catalog, table, condition)
    row_ids = tuple(_inlined_row_ids(connection, catalog, table, record))
    return EarlierRows(record, targets, row_ids, are_together=not moved)


def _may_hold(catalog: Catalog, record: CommitRecord) -> ColumnElement[bool]:
    """Return the condition for files with row ids of a commit: numbered so, or perhaps stored in the file."""
    file = catalog.tables["data_file"]
    first, end = record.row_id_start, record.row_id_start + record.row_count
    return or_(
        file.c.row_id_start.is_(None),
        file.c.partial_max.is_not(None),
        file.c.begin_snapshot >= record.snapshot_id,
        and_(file.c.row_id_start < end, file.c.row_id_start + file.c.record_count > first),
    )


def _may_store_row_ids(file: LiveDataFile, record: CommitRecord) -> bool:
    """Return True if a file may have rows of the commit: merged files begin as early as any part."""
    return (
        file.row_id_start is None or file.partial_max is not None or file.begin_snapshot >= record.snapshot_id
    )


def _rows_moved(connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord) -> bool:
    """Return True if rows may have moved to other files, also by the commit or if snapshots expired."""
    before = record.snapshot_id - 1
    after = read_snapshots.newer_query(catalog.tables, before).ask(connection)
    newer = [snapshot for snapshot in after if snapshot.id <= table.snapshot.id]
    if len(newer) != table.snapshot.id - before:
        return True
    return any(
        change.object_id == table.table_id and (change.kind is None or change.kind in _MOVES_ROWS)
        for snapshot in newer
        for change in snapshot.changes
    )


def _inlined_row_ids(
    connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord
) -> Iterator[int]:
    first, last = record.row_id_start, record.row_id_start + record.row_count - 1
    for layout in inlined_of(connection, catalog, table).layouts:
        rows = bare_table(layout.name, catalog.tables)
        alive = read.visible(rows, table.snapshot.id)
        query = select(rows.c.row_id).where(alive, rows.c.row_id.between(first, last))
        yield from connection.execute(query).scalars()


def replaced_rows(found: EarlierRows, locate: Locate) -> tuple[kinds.Change, ...]:
    """Return the changes that delete the live rows of an earlier commit, and no other rows."""
    from ...storage.files.parallel import in_threads

    targets = found.targets
    looked_up = in_threads(lambda file: _positions(found, file, locate), targets.files.values())
    by_file = dict(zip(targets.files, looked_up, strict=True))
    whole = [targets.files[file_id] for file_id, places in by_file.items() if places is None]
    parts = {file_id: places for file_id, places in by_file.items() if places and places.count}
    changes: list[kinds.Change] = []
    if whole:
        changes.append(end_files(targets.table, whole))
    changes.extend(delete_changes(targets, parts, found.row_ids, locate))
    return tuple(_changes_of_earlier_commit(changes))


def _positions(found: EarlierRows, file: LiveDataFile, locate: Locate) -> kinds.Positions | None:
    """Find the live rows of the commit in a file; None: it has no others."""
    if found.are_together:
        return None
    from ...storage.deletes.deletes import deleted_before, positions_of, row_count_of, without
    from ...storage.rows import table_reader as row_ids

    record = found.record
    first, end = record.row_id_start, record.row_id_start + record.row_count
    places = None
    if _may_store_row_ids(file, record):
        places = row_ids.stored_positions(locate(file.path).with_key(file.encryption_key), first, end)
    if places is None:
        places = row_ids.numbered_positions(file, first, end)
    if len(places) == file.record_count:
        return None
    marks = found.targets.marks.get(file.id, {})
    deleted = deleted_before(file.delete_file, marks, row_count_of(file, locate), locate)
    return positions_of(without(places, deleted))


def _changes_of_earlier_commit(changes: Iterable[kinds.Change]) -> Iterator[kinds.Change]:
    for change in changes:
        assert isinstance(change, kinds.EndFiles | kinds.AddDeletes | kinds.InlineDeletes)
        yield replace(change, of_earlier_commit=True)
