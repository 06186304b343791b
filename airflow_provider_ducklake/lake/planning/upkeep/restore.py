"""Pure rules for restoring a table, from its older and its current snapshot.

Nothing that was registered is registered again: a path has one row for ever, since the reference schedules
the file of an unreachable row even if other rows name it (observed on 1.5.5). So what is there no
more comes back in new files; see ADR 0015.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ...errors import UnsupportedFeatureError
from ...format.partitioning import PartitionSpec, why_not_partitioned
from ...format.schema import Column
from ...format.types.ducklake_types import ScalarKind, ScalarType
from ...transaction import changes as kinds
from ...transaction.definition import Definition, column_rows, definition_changes

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.names.identifiers import QualifiedName
    from ...format.snapshots import ColumnId, DataFileId, PartitionId, SnapshotId, TableSnapshot


_COPY_SHARE = 4  # a file that lost a quarter of its rows and more since is copied whole, by the store itself


@dataclass(frozen=True, slots=True)
class FilePair:
    """A data file as it was then, and as it is now; None: it has ended."""

    target: LiveDataFile
    current: LiveDataFile | None = None


@dataclass(frozen=True, slots=True)
class FileComparison:
    """Data files that are what they were, that came since, and that have to be looked into."""

    kept: tuple[LiveDataFile, ...]
    added: tuple[LiveDataFile, ...]
    doubtful: tuple[FilePair, ...]


@dataclass(frozen=True, slots=True)
class FileState:
    """The findings in a file of the target snapshot.

    ``returning`` counts rows that it had then and has not now, ``later`` are positions of rows that it has
    now and had not then. ``is_plain``: all its rows were there then, and none says its snapshot.
    """

    pair: FilePair
    returning: int
    later: kinds.Positions
    is_plain: bool


@dataclass(frozen=True, slots=True)
class FileActions:
    """The actions on the data files of a table.

    ``copied`` files get a copy under another name; of ``rewritten`` ones the rows that return are written
    again, ``returning`` many; ``shortened`` ones lose rows that came since. ``ended`` files go with all rows.
    """

    kept: tuple[LiveDataFile, ...] = ()
    ended: tuple[LiveDataFile, ...] = ()
    copied: tuple[LiveDataFile, ...] = ()
    rewritten: tuple[FilePair, ...] = ()
    returning: int = 0
    shortened: Mapping[DataFileId, kinds.Positions] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Return True if the files match the target snapshot."""
        return not (self.ended or self.copied or self.rewritten or self.shortened)


def compare_files(
    target: TableSnapshot,
    current: TableSnapshot | None,
    marks_then: Mapping[DataFileId, Sequence[int]],
    marks_now: Mapping[DataFileId, Sequence[int]],
) -> FileComparison:
    """Compare the files of a table at the target snapshot with the current ones, by their catalog rows.

    Marks are positions of rows that were deleted in the catalog, ascending.
    """
    old = target.files or ()
    new = {file.id: file for file in (current.files or () if current is not None else ())}
    kept, doubtful = [], []
    for file in old:
        live = new.get(file.id)
        same_marks = list(marks_then.get(file.id, ())) == list(marks_now.get(file.id, ()))
        if live is not None and same_marks and _is_same(file, live, target):
            kept.append(live)
        else:
            doubtful.append(FilePair(file, live))
    had = {file.id for file in old}
    added = tuple(file for file in new.values() if file.id not in had)
    return FileComparison(tuple(kept), added, tuple(doubtful))


def _is_same(file: LiveDataFile, current: LiveDataFile, target: TableSnapshot) -> bool:
    """Return True if both have the same rows: a delete file as old as the snapshot has no later rows."""
    deletes = [one.id for one in (*file.older_delete_files, *filter(None, [file.delete_file]))]
    still = [one.id for one in (*current.older_delete_files, *filter(None, [current.delete_file]))]
    is_old = all(one < target.snapshot.next_file_id for one in deletes)
    return deletes == still and is_old and not has_later_rows(current, target.snapshot.id)


def has_later_rows(file: LiveDataFile, snapshot_id: SnapshotId) -> bool:
    """Return True if a file has rows from after the snapshot: it was merged or flushed since."""
    return file.partial_max is not None and file.partial_max > snapshot_id


def plan_files(compared: FileComparison, states: Iterable[FileState]) -> FileActions:
    """Decide for each file: keep, end, copy or rewrite; ``states`` are the contents of the unclear ones."""
    kept, ended, copied, rewritten = [*compared.kept], [*compared.added], [], []
    shortened: dict[DataFileId, kinds.Positions] = {}
    returning = 0
    for state in states:
        file, live = state.pair.target, state.pair.current
        returning += state.returning
        if state.returning and state.is_plain and (live is None or _is_much(state)):
            copied.append(file)
            if live is not None:
                ended.append(live)
                returning += _rows_left(state)
            continue
        if state.returning:
            rewritten.append(state.pair)
        if live is not None:
            kept.append(live)
            if state.later.count:
                shortened[file.id] = state.later
    return FileActions(tuple(kept), tuple(ended), tuple(copied), tuple(rewritten), returning, shortened)


def _is_much(state: FileState) -> bool:
    return state.returning * _COPY_SHARE >= state.pair.target.record_count


def _rows_left(state: FileState) -> int:
    """Count the rows that a plain file still has: they come along with its copy."""
    return state.pair.target.record_count - state.returning


@dataclass(frozen=True, slots=True)
class RewriteBin:
    """Files of one partition whose returning rows are written together."""

    partition_id: PartitionId | None
    partition_values: tuple[str | None, ...]
    pairs: tuple[FilePair, ...]


def plan_bins(pairs: Iterable[FilePair], target_file_size: int) -> list[RewriteBin]:
    """Return the files in groups of one partition whose sizes together are no larger than the target."""
    groups: dict[tuple[PartitionId | None, tuple[str | None, ...]], list[list[FilePair]]] = defaultdict(list)
    for pair in pairs:
        runs = groups[pair.target.partition_id, pair.target.partition_values]
        if not runs or _size(runs[-1]) + _size([pair]) > target_file_size:
            runs.append([])
        runs[-1].append(pair)
    return [RewriteBin(*key, tuple(run)) for key, runs in groups.items() for run in runs]


def _size(pairs: Iterable[FilePair]) -> int:
    return sum(pair.target.file_size_bytes for pair in pairs)


def outdated_columns(
    copied: Iterable[LiveDataFile], table: TableSnapshot, since: Mapping[ColumnId, SnapshotId]
) -> frozenset[ColumnId]:
    """Return the columns that some copy may have by another name or type than the table.

    ``since`` says since when columns are as they are. A copy is as young as its snapshot, so that readers
    would take it for one with the current columns, which have to begin with it.
    """
    oldest = min((file.begin_snapshot for file in copied if file.mapping_id is None), default=None)
    if oldest is None:
        return frozenset()
    return frozenset(column.id for column in table.schema.walk() if since.get(column.id, oldest) >= oldest)


def check_writable(table: TableSnapshot, *, has_inlined: bool) -> None:
    """Refuse a table whose rows would have to be rewritten, and cannot be; ``has_inlined``: some to files."""
    keys = table.partition_spec.fields if table.partition_spec is not None and has_inlined else ()
    if problem := why_not_partitioned(keys, table.schema):
        raise UnsupportedFeatureError(
            f"{table.name} cannot be restored with its inlined rows, whose schema was dropped since: "
            f"{problem}. Read them at snapshot {table.snapshot.id}, and insert them into another table."
        )
    for column in table.schema.walk():
        if not column.type.facts.rewritable:
            raise UnsupportedFeatureError(
                f"{table.name} cannot be restored: column {column.name} has type {column.type}, which this "
                "release does not write, and the restore has to write rows: those of files that were "
                "deleted from, merged or flushed, or the inlined rows of a table whose schema was dropped "
                "since."
            )


def check_readable(table: TableSnapshot, current: TableSnapshot) -> None:
    """Refuse to make a column one of NULLs again: readers cast its other values, also those that are gone."""
    then = {column.id for column in table.schema.walk() if column.type.facts.kind is ScalarKind.NULL}
    for column in current.schema.walk():
        if column.id in then and column.type.facts.kind is not ScalarKind.NULL:
            raise UnsupportedFeatureError(
                f"{table.name} cannot be restored: column {column.name} had type null at snapshot "
                f"{table.snapshot.id}, and has type {column.type} by now, which no reader casts back. Read "
                "the rows of that snapshot, and insert them into another table."
            )


class RestoreAction(StrEnum):
    """What a restore does to a table."""

    CHANGED = "changed"
    RECREATED = "recreated"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TableRestoration:
    """What a restore does to one table; ``name`` is its name afterwards, or before it is dropped.

    ``rows_returned`` come back in files, copied or rewritten; ``bytes_copied`` are those of files that are
    copied, ``bytes_read`` those of files whose rows are rewritten. ``files_shortened`` lose single rows.
    ``inlined_returned`` and ``inlined_ended`` are rows in the catalog. ``definition`` says what else changes.
    """

    name: str
    action: RestoreAction
    files_kept: int = 0
    files_ended: int = 0
    files_shortened: int = 0
    files_copied: int = 0
    bytes_copied: int = 0
    files_rewritten: int = 0
    bytes_read: int = 0
    rows_returned: int = 0
    inlined_returned: int = 0
    inlined_ended: int = 0
    definition: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        table: TableSnapshot,
        action: RestoreAction,
        files: FileActions,
        inlined: Iterable[kinds.RestoredRows],
    ) -> TableRestoration:
        """Summarize the plan of a table."""
        parts = list(inlined)
        return cls(
            str(table.name),
            action,
            files_kept=len(files.kept),
            files_ended=len(files.ended),
            files_shortened=len(files.shortened),
            files_copied=len(files.copied),
            bytes_copied=sum(file.file_size_bytes for file in files.copied),
            files_rewritten=len(files.rewritten),
            bytes_read=_size(files.rewritten),
            rows_returned=files.returning,
            inlined_returned=sum(part.returning for part in parts),
            inlined_ended=sum(part.leaving for part in parts),
        )


def described(changes: Iterable[kinds.Change], current: TableSnapshot | None) -> Iterator[str]:
    """Yield in words what changes of a definition do; ``current`` is the table before them."""
    for change in changes:
        match change:
            case kinds.RestoreTable(name=name):
                yield f"{name} comes back"
            case kinds.CreateTable(name=name):
                yield f"{name} comes back as a new table"
            case kinds.RenameTable(name=name, new_name=new_name):
                yield f"{name} becomes {new_name}"
            case kinds.ChangeColumns():
                yield from _described_columns(change, current)
            case kinds.SetPartitioning(fields=fields):
                yield "partition keys come back" if fields else "partition keys go"
            case kinds.SetSorting(fields=fields):
                yield "sort keys come back" if fields else "sort keys go"
            case kinds.CommentOnTable():
                yield "the comment changes"
            case kinds.CommentOnColumn(column_id=column_id):
                yield f"the comment of column {column_id} changes"
            case _:
                pass


def _described_columns(change: kinds.ChangeColumns, current: TableSnapshot | None) -> Iterator[str]:
    before = {} if current is None else column_rows(current.schema)
    after = {row.column.id: row for row in change.begun}
    for column_id in change.ended:
        if column_id not in after:
            yield f"column {before[column_id].column.name} goes"
    for column_id, row in after.items():
        if column_id not in before:
            yield f"column {row.column.name} comes back"
        elif before[column_id] != row:
            column = row.column
            yield f"column {before[column_id].column.name} becomes {column.name} {column.catalog_type}"


# Pure rules for creating a table again whose schema was dropped.
#
# A schema never comes back under its id, and a table whose rows name two schemas breaks the reference once
# the older one has expired (ADR 0015). So such a table comes back as another one, which has the old columns
# under their ids: ids of columns are a table's own, and files name them.


@dataclass(frozen=True, slots=True)
class Counters:
    """A table's counters: its next row id, and the largest id that a column of it ever had."""

    next_row_id: int
    last_column_id: ColumnId


@dataclass(frozen=True, slots=True)
class RecreatedTable:
    """A table that takes the place of another; ``root`` is its directory, absolute, ending in ``/``."""

    ref: kinds.NewTableRef
    schema: kinds.SchemaRef
    name: QualifiedName
    uuid: str
    directory: str
    root: str
    counters: Counters


def creation(table: TableSnapshot, target: Definition, new: RecreatedTable) -> Iterator[kinds.Change]:
    """Yield what makes a table that has all that another had, but rows; ``target`` is its definition."""
    yield kinds.CreateTable(
        new.ref,
        new.schema,
        new.name,
        new.uuid,
        new.directory,
        table.schema,
        undone=_used_ids(table, new.counters.last_column_id),
        heir_of=table.table_id,
    )
    yield from definition_changes(new.ref, None, replace(target, name=new.name, partition_id=None))


def _used_ids(table: TableSnapshot, last: ColumnId) -> tuple[kinds.ColumnRow, ...]:
    """Return a column that no snapshot shows, and that keeps later ones from the ids of dropped ones.

    Files that come back may have values of those.
    """
    if last <= max(column.id for column in table.schema.walk()):
        return ()
    return (kinds.ColumnRow(Column(last, f"column_{last}", ScalarType("int32")), None),)


def in_own_partitions(files: FileActions, spec: PartitionSpec | None) -> FileActions:
    """Return the files with values of the newest partition keys alone: the new table has no older keys."""
    return replace(
        files,
        copied=tuple(_repartitioned(file, spec) for file in files.copied),
        rewritten=tuple(replace(pair, target=_repartitioned(pair.target, spec)) for pair in files.rewritten),
    )


def without_bounds(file: LiveDataFile, columns: Collection[ColumnId]) -> LiveDataFile:
    """Return a file without bounds of columns: their former types would no longer be recorded."""
    stats = {
        one: replace(known, min_value=None, max_value=None) if one in columns else known
        for one, known in file.column_stats.items()
    }
    return replace(file, column_stats=stats)


def _repartitioned(file: LiveDataFile, spec: PartitionSpec | None) -> LiveDataFile:
    is_newest = spec is not None and file.partition_id == spec.id
    values = file.partition_values if is_newest else ()
    return replace(file, partition_id=None, partition_values=values)
