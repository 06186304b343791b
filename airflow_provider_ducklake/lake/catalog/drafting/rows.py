"""Delete given rows of a table: read the state of their files, and return the changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, true

from ...errors import InvalidInputError, TransactionConflictError, UnsupportedFeatureError
from ...format.names.paths import relative_to
from ...format.versions import Feature
from ...planning.writing.write import LostRows, NewDeletes, RowChanges, append_to_existing, plan_row_deletes
from ...storage.deletes.deletes import live_positions, positions_of
from ...storage.files.parallel import in_threads
from ...storage.rows.table_reader import wanted_positions, wanted_row_ids
from ...transaction import changes as kinds
from ..database.connect import in_parts
from ..snapshot import read_files
from ..snapshot.inlined_read import inlined_delete_snapshots, missing_row_ids
from ..snapshot.read_snapshots import head_query

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.snapshots import DataFileId, SnapshotId, TableSnapshot
    from ...planning.reading.scan import ScanPlan
    from ...planning.writing.overwrite import RowScope
    from ...storage.files.filesystem import Location
    from ..dialects.dialect import Catalog

    Locate = Callable[[str], Location]


@dataclass(frozen=True, slots=True)
class Targets:
    """The data files of ``table`` that lose rows, with what they have lost up to its snapshot.

    ``marks`` are inlined deletes: positions with the snapshots that deleted them, by data file. Up to
    ``mark_limit`` more of a file may become some. ``missing_row_ids`` (ascending) are those of the row ids
    asked for that no live row in the catalog has.
    """

    table: TableSnapshot
    files: Mapping[DataFileId, LiveDataFile]
    marks: Mapping[DataFileId, Mapping[int, int]]
    mark_limit: int
    missing_row_ids: Sequence[int] = ()


def read_targets(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    file_ids: Collection[DataFileId],
    row_ids: Collection[int] = (),
) -> Targets:
    """Read what deleting from a table needs: those of the files that it has, and where inlined rows lie."""
    if not file_ids:
        return _read_targets(connection, catalog, table, (), row_ids)
    (first, *more) = in_parts(file_ids)
    condition = true() if more else catalog.tables["data_file"].c.data_file_id.in_(first)
    wanted = frozenset(file_ids)
    files = [file for file in _files(connection, catalog, table, condition) if file.id in wanted]
    return _read_targets(connection, catalog, table, files, row_ids)


def current_targets(
    catalog: Catalog, table: TableSnapshot, file_ids: Collection[DataFileId], row_ids: Collection[int]
) -> tuple[Targets, SnapshotId | None]:
    """Return ``read_targets`` of what a job found, and the newest snapshot.

    Only a later snapshot can have moved rows. The files of a table whose snapshot is the newest are not read
    again; where the job found no row, nothing is, and the newest snapshot is None.
    """
    if not file_ids and not row_ids:
        return _targets(catalog, table, ()), None
    of_table = [] if table.files is None else [file for file in table.files if file.id in set(file_ids)]
    newest = {"head": head_query(catalog.tables)}
    if table.files is not None and not table.has_inlined_data:
        head: SnapshotId = catalog.dialect.ask_at_once(newest)["head"].id
        if head == table.snapshot.id:
            return replace(_targets(catalog, table, of_table), missing_row_ids=sorted(row_ids)), head
    with catalog.dialect.reading_after(newest) as (connection, answers):
        head = answers["head"].id
        if head == table.snapshot.id and table.files is not None:
            return _read_targets(connection, catalog, table, of_table, row_ids), head
        return read_targets(connection, catalog, table, file_ids, row_ids), head


def read_targets_where(
    connection: Connection, catalog: Catalog, table: TableSnapshot, condition: ColumnElement[bool]
) -> Targets:
    """Read the same for the data files that satisfy a condition on their rows in the catalog."""
    return _read_targets(connection, catalog, table, _files(connection, catalog, table, condition))


def _read_targets(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    found: Sequence[LiveDataFile],
    row_ids: Collection[int] = (),
) -> Targets:
    deletes = (
        inlined_delete_snapshots(connection, catalog, table.table_id, table.snapshot.id) if found else {}
    )
    missing = missing_row_ids(connection, catalog, table, row_ids)
    return replace(_targets(catalog, table, found), marks=deletes, missing_row_ids=missing)


def _targets(catalog: Catalog, table: TableSnapshot, found: Sequence[LiveDataFile]) -> Targets:
    """Return files without inlined deletes as targets."""
    for file in found:
        _check_has_one_delete_file(table, file)
        _check_not_replaced(table, file)
    can_mark = catalog.dialect.inlined_form is not None
    limit = table.options.integer("data_inlining_row_limit") if can_mark else 0
    return Targets(table, {file.id: file for file in found}, {}, limit)


def _files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, condition: ColumnElement[bool]
) -> tuple[LiveDataFile, ...]:
    return read_files.data_files(connection, catalog, table, only=condition, stats_of=())


def _check_has_one_delete_file(table: TableSnapshot, file: LiveDataFile) -> None:
    if file.older_delete_files:
        raise UnsupportedFeatureError(
            f"Data file {file.id} of {table.name} has {len(file.older_delete_files) + 1} delete files: "
            "other clients return its rows that many times. Recreate the table first."
        )


def _check_not_replaced(table: TableSnapshot, file: LiveDataFile) -> None:
    """Refuse a delete file that took the place of an older one after the table's snapshot, under its age."""
    live = file.delete_file
    if live is not None and live.partial_max is not None and live.partial_max > table.snapshot.id:
        raise TransactionConflictError(
            f"delete rows of data file {file.id}",
            "deleted other rows of it",
            str(table.name),
            live.partial_max,
        )


def changes_of_job(
    targets: Targets, changes: RowChanges, scope: RowScope, locate: Locate, *, may_insert: bool
) -> kinds.ChangeSet:
    """Build the change set of a job's row changes, based on the snapshot that it read.

    ``scope`` are the rows among which it looked for those to change.

    The delete files of the job become those of the lake where nothing was deleted before; others are read,
    and are among the files that are unused after the commit. Which rows a job inserts depends on those that
    the table has: where it may insert some, even if it inserted none, rows deleted concurrently are a
    conflict, too.
    """
    table = targets.table
    made = [
        kinds.ReadRows(table.table_id, table.name, scope, counts_gone=may_insert),
        *delete_changes(targets, positions_files(changes.deletes), changes.inlined, locate),
        *append_to_existing(table, changes.updated),
        *append_to_existing(table, changes.inserted),
    ]
    return kinds.ChangeSet(table.snapshot.id, tuple(made), unused_files(made, changes.deletes))


def positions_files(deletes: Iterable[NewDeletes]) -> dict[DataFileId, kinds.PositionsFile]:
    """Map each data file to the file with the positions that a job found in it."""
    return {
        one.data_file_id: kinds.PositionsFile(
            one.path, one.count, one.file_size_bytes, one.footer_size, one.encryption_key
        )
        for one in deletes
    }


def unused_files(changes: Iterable[kinds.Change], deletes: Iterable[NewDeletes]) -> tuple[str, ...]:
    """Return the paths of those delete files of a job that changes do not name: others take their place."""
    used = {
        file.data_file_id
        for change in changes
        if isinstance(change, kinds.AddDeletes)
        for file in change.files
        if isinstance(file, kinds.FileDeletes)
    }
    return tuple(one.path for one in deletes if one.data_file_id not in used)


def _check_present(targets: Targets, file_ids: Iterable[DataFileId]) -> None:
    """Refuse to delete what a table no longer has: a compaction takes files out of old snapshots, too."""
    gone = [f"data file {file_id}" for file_id in file_ids if file_id not in targets.files]
    gone += [f"inlined row {row_id}" for row_id in targets.missing_row_ids]
    if gone:
        table = targets.table
        raise TransactionConflictError(
            "delete rows of it", f"no longer has {gone[0]}", str(table.name), table.snapshot.id
        )


def delete_changes(
    targets: Targets,
    positions: Mapping[DataFileId, kinds.RowPositions],
    row_ids: Collection[int],
    locate: Locate,
) -> Iterator[kinds.Change]:
    """Yield what deletes live rows at positions of data files, and inlined rows by their ids."""
    _check_present(targets, positions)
    from ...storage.files.parallel import in_threads

    def loss(file_id: DataFileId) -> LostRows:
        file, chosen = targets.files[file_id], positions[file_id]
        dead_count = _dead_count(targets, file, chosen, locate)
        return LostRows(file, chosen, dead_count, has_marks=file_id in targets.marks)

    plan = plan_row_deletes(in_threads(loss, positions), mark_limit=targets.mark_limit)
    table_id, name = targets.table.table_id, targets.table.name
    if plan.ended:
        yield end_files(targets.table, [one.file for one in plan.ended])
    if plan.in_delete_files:
        files = tuple(_file_deletes(targets, one) for one in plan.in_delete_files)
        folded = tuple(one.file.id for one in plan.in_delete_files if one.file.id in targets.marks)
        yield kinds.AddDeletes(table_id, name, files, folded)
    if plan.marked or row_ids:
        marked = in_threads(lambda one: _places(one, locate), plan.marked)
        by_file = {one.file.id: places for one, places in zip(plan.marked, marked, strict=True)}
        yield kinds.InlineDeletes(table_id, name, by_file, tuple(sorted(row_ids)))


def end_files(table: TableSnapshot, files: Sequence[LiveDataFile]) -> kinds.EndFiles:
    """Return the end of files as the table's snapshot has them."""
    deletes = tuple(file.delete_file.id if file.delete_file else None for file in files)
    return kinds.EndFiles(table.table_id, table.name, tuple(file.id for file in files), deletes)


def _dead_count(targets: Targets, file: LiveDataFile, positions: kinds.RowPositions, locate: Locate) -> int:
    """Count a file's deleted rows; deletes of other writers are read if all rows might be gone."""
    marks = targets.marks.get(file.id, {})
    deleted = len(marks) + (file.delete_file.delete_count if file.delete_file is not None else 0)
    if not deleted or deleted + positions.count < file.record_count:
        return deleted
    from ...storage.deletes.deletes import deleted_before, row_count_of

    return len(deleted_before(file.delete_file, marks, row_count_of(file, locate), locate))


def _file_deletes(targets: Targets, loss: LostRows) -> kinds.FileDeletes | kinds.UnwrittenDeletes:
    """Return a delete file of the first deletes as the job wrote it; any other is still to be written."""
    file, positions, root = loss.file, loss.positions, targets.table.root
    options = targets.table.options
    unwritten = kinds.UnwrittenDeletes(
        file.id,
        file.path,
        file.record_count,
        root,
        positions,
        file.delete_file,
        targets.marks.get(file.id, {}),
        as_vectors=options.flag("write_deletion_vectors"),
        in_containers=Feature.DELETION_VECTOR_CONTAINERS in options.writer.features,
    )
    is_rewritten = unwritten.holds_ids or unwritten.format != "parquet"
    if is_rewritten or not isinstance(positions, kinds.PositionsFile):
        return unwritten
    return kinds.FileDeletes(
        file.id,
        relative_to(positions.path, root).path or "",
        positions.count,
        positions.file_size_bytes,
        positions.footer_size,
        encryption_key=positions.encryption_key,
    )


def _places(loss: LostRows, locate: Locate) -> tuple[int, ...]:
    from ...storage.deletes.deletes import read_positions

    return tuple(read_positions(loss.positions, locate).to_pylist())


# Find rows to delete, given by their positions or by a condition that this process evaluates.


def changes_of_given_rows(
    targets: Targets,
    positions: Mapping[DataFileId, Collection[int]],
    row_ids: Collection[int],
    locate: Locate,
) -> Iterator[kinds.Change]:
    """Yield what deletes rows at positions of data files, and inlined rows by their ids."""
    table = targets.table
    if targets.missing_row_ids:
        raise InvalidInputError(
            f"{table.name} at snapshot {table.snapshot.id} has no inlined row with id "
            f"{targets.missing_row_ids[0]} ({len(targets.missing_row_ids)} of the given row ids are "
            "missing). Give rows in data files by their positions."
        )
    for file_id in positions:
        if file_id not in targets.files:
            raise InvalidInputError(f"The table has no live data file {file_id}.")
    checked = {
        file_id: live_positions(targets.files[file_id], targets.marks.get(file_id, {}), places, locate)
        for file_id, places in positions.items()
    }
    return delete_changes(targets, checked, row_ids, locate)


def check_size(plan: ScanPlan, max_bytes: int) -> None:
    """Refuse to read more than so many bytes of data files."""
    size = sum(file.file_size_bytes for file in plan.files)
    if size > max_bytes:
        raise InvalidInputError(
            f"{len(plan.files)} files of {plan.table.name} with {size} bytes may hold rows to delete, and "
            f"max_bytes allows this process to read {max_bytes} bytes. Use DuckLakeSparkDeleteOperator, "
            "which reads them in Spark, or raise max_bytes."
        )


def matching_positions(plan: ScanPlan, locate: Locate) -> dict[DataFileId, kinds.Positions]:
    """Find the positions of the rows that the plan wants; files without one are left out."""
    found = in_threads(lambda file: positions_of(wanted_positions(plan, file, locate)), plan.files)
    return {file.id: places for file, places in zip(plan.files, found, strict=True) if places.count}


def matching_row_ids(plan: ScanPlan) -> tuple[int, ...]:
    """Return the ids of those rows in the catalog that the plan wants."""
    if not plan.columns:  # a condition may name none either, and Arrow counts no rows without a column
        plan = replace(plan, columns=plan.table.schema.names[:1])
    return tuple(wanted_row_ids(plan).to_pylist())
