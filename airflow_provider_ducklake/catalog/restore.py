"""Make a table, a schema or the whole lake what it was at an older snapshot, as one new snapshot."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

from uuid6 import uuid7

from airflow_provider_ducklake.catalog import read_snapshots
from airflow_provider_ducklake.catalog.commit import Stage
from airflow_provider_ducklake.catalog.read_restore import read_history, with_statistics
from airflow_provider_ducklake.catalog.restore_notes import RestoreNote, doubtful_part
from airflow_provider_ducklake.catalog.restore_scope import scope_of_schemas, scope_of_table
from airflow_provider_ducklake.catalog.restore_views import in_words, macro_changes, view_changes
from airflow_provider_ducklake.catalog.row_changes import delete_changes, read_targets
from airflow_provider_ducklake.catalog.unused_files import remove_unused
from airflow_provider_ducklake.errors import CommitStateUnknownError, InvalidInputError
from airflow_provider_ducklake.planning.recreation import (
    NewTable,
    creation,
    in_own_partitions,
    without_bounds,
)
from airflow_provider_ducklake.planning.restore import (
    Fate,
    FileActions,
    TableRestoration,
    alterations,
    comments,
    described,
    keys,
    layout_of_inlined_rows,
    outdated_columns,
    plan_bins,
    plan_files,
)
from airflow_provider_ducklake.planning.write import ParquetSettings
from airflow_provider_ducklake.spec.files import DataFile
from airflow_provider_ducklake.spec.identifiers import QualifiedName
from airflow_provider_ducklake.spec.paths import directory_name, relative_to
from airflow_provider_ducklake.spec.schema import TableSchema
from airflow_provider_ducklake.spec.snapshots import CommittedSnapshot
from airflow_provider_ducklake.transaction.changes import (
    DropTable,
    EndFiles,
    NewTableRef,
    RestoredFile,
    RestoreRows,
    RestoreTable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.catalog.commit import KeyedCommit
    from airflow_provider_ducklake.catalog.lake_writes import LakeWrites
    from airflow_provider_ducklake.catalog.read import TableRow
    from airflow_provider_ducklake.catalog.read_restore import TableHistory
    from airflow_provider_ducklake.catalog.restore_scope import Home, Scope
    from airflow_provider_ducklake.planning.recreation import Counters
    from airflow_provider_ducklake.planning.restore import RewriteBin
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, JsonValue, Snapshot
    from airflow_provider_ducklake.spec.stats import TableColumnStats
    from airflow_provider_ducklake.storage.filesystem import Location
    from airflow_provider_ducklake.storage.restored_files import Restoring
    from airflow_provider_ducklake.transaction.changes import Change, SchemaRef, TableRef

    Locate = Callable[[str], Location]

log = logging.getLogger(__name__)

_TOLERANCE = timedelta(minutes=5)  # a clock may be ahead of the catalog's


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What is to be as it was at a snapshot or time: a table, all of a schema, or (neither) the lake."""

    at: int | datetime
    table: QualifiedName | None = None
    schema: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.table is not None and self.schema is not None:
            raise InvalidInputError("Give a table or a schema, not both.")


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored, or of a dry run what would be.

    ``tables`` are those that differ from what they were, ``objects`` says in words what becomes of schemas,
    views and macros. ``committed`` None: nothing differs, or this was a dry run. Of a restore that an earlier
    commit under the same key had made only that is known: ``as_of`` is None.
    """

    as_of: SnapshotId | None
    tables: tuple[TableRestoration, ...] = ()
    objects: tuple[str, ...] = ()
    committed: CommittedSnapshot | None = None
    dry_run: bool = False


def restore(
    lake: LakeWrites,
    catalog: Catalog,
    request: RestoreRequest,
    info: CommitInfo,
    keyed: KeyedCommit | None = None,
) -> RestoreResult:
    """Restore what is asked for; the same request under the same key is carried out once.

    Raises:
        SnapshotNotFoundError: the snapshot has expired, or never was.
        TableNotFoundError, SchemaNotFoundError: nothing of that name was there then.
        AlreadyExistsError: its name has been given to something else.
        StorageError: a file of then is gone; nothing was changed.
        TransactionConflictError: a table was changed meanwhile; nothing was changed.
        CommitStateUnknownError: the connection broke during COMMIT.
    """
    if keyed is not None and keyed.seen.done:
        return RestoreResult(None, committed=CommittedSnapshot.earlier(keyed.seen.done))
    planned = _plan(lake.locate, catalog, request)
    if request.dry_run or not planned.has_changes:
        _log(planned, request)
        return planned.result(dry_run=request.dry_run)
    work = _Work(lake, catalog)
    stage = work.stage(planned)
    info = replace(info, extra={**(info.extra or {}), **planned.noted})
    try:
        committed = lake.commit_stages([stage], info, keyed=keyed, job_ids=work.job_ids)
    except CommitStateUnknownError:
        raise
    except Exception:  # did not land; an interruption may follow COMMIT and keeps the files
        work.give_up()
        raise
    if committed is not None and committed.is_earlier:
        work.give_up()
    _log(planned, request)
    return replace(planned.result(), committed=committed)


@dataclass(frozen=True, slots=True)
class _PlannedTable:
    """A table that differs from what it was, and what is to be done; ``definition`` are changes of it.

    ``new`` is the table that takes its place where its schema was dropped.
    """

    history: TableHistory
    restoring: Restoring
    files: FileActions
    definition: tuple[Change, ...]
    new: NewTable | None = None

    @property
    def is_nothing(self) -> bool:
        return self.files.is_nothing and not self.history.inlined and not self.definition

    @property
    def ref(self) -> TableRef:
        """The table that gets the rows."""
        return self.history.row.id if self.new is None else self.new.ref

    @property
    def name(self) -> QualifiedName:
        """Its name before the restore, or the one that it is created with."""
        if self.new is not None:
            return self.new.name
        now = self.history.now
        return self.history.then.table.name if now is None else now.table.name

    @property
    def makes_files(self) -> bool:
        """Whether rows come back in new files."""
        from_catalog = self.new is not None and bool(self.history.returning)
        return bool(self.files.copied or self.files.rewritten) or from_catalog

    @property
    def root(self) -> str:
        """Its directory."""
        return self.history.then.table.root if self.new is None else self.new.root

    @property
    def summary(self) -> TableRestoration:
        now = self.history.now
        fate = Fate.RECREATED if now is None else Fate.CHANGED
        said = TableRestoration.of(self.history.then.table, fate, self.files, self.history.inlined)
        if self.new is not None:
            to_files = sum(len(part.rows) for part in self.history.returning)
            said = replace(said, rows_returned=said.rows_returned + to_files)
        words = described(self.definition, None if now is None else now.table)
        return replace(said, definition=tuple(words))


@dataclass(frozen=True, slots=True)
class _Planned:
    """All that is to be done on top of snapshot ``head``; ``others`` are changes but those of ``tables``."""

    then: Snapshot
    head: Snapshot
    tables: tuple[_PlannedTable, ...] = ()
    others: tuple[Change, ...] = ()
    dropped: tuple[TableRow, ...] = ()

    @property
    def has_changes(self) -> bool:
        return bool(self.tables or self.others or self.dropped)

    @property
    def noted(self) -> dict[str, JsonValue]:
        """What the snapshot says of itself."""
        table_ids = frozenset(one.history.row.id for one in self.tables)
        heirs = {one.history.row.id: one.new.uuid for one in self.tables if one.new is not None}
        return RestoreNote(self.then.id, table_ids, heirs).to_json()

    def result(self, *, dry_run: bool = False) -> RestoreResult:
        gone = (TableRestoration(str(row.qualified), Fate.DROPPED) for row in self.dropped)
        tables = (*(one.summary for one in self.tables), *gone)
        return RestoreResult(self.then.id, tables, tuple(map(in_words, self.others)), dry_run=dry_run)


def _plan(locate: Locate, catalog: Catalog, request: RestoreRequest) -> _Planned:
    from airflow_provider_ducklake.storage.parallel import in_threads  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.storage.restored_files import Restoring  # noqa: PLC0415

    with catalog.dialect.reading() as connection:
        head = read_snapshots.head(connection, catalog.tables)
        then = _snapshot(connection, catalog, request.at)
        if then.id == head.id:
            return _Planned(then, head)
        scope = _scope(connection, catalog, request, then, head)
        scope = doubtful_part(connection, catalog.tables, scope, then, head)
        histories = [
            read_history(connection, catalog, pair, then, head, is_moved=scope.moves(pair.then))
            for pair in scope.tables
            if pair.then is not None
        ]
        others = (
            *scope.schemas,
            *view_changes(connection, catalog.tables, scope, then, head),
            *macro_changes(scope),
        )
    planned = []
    for number, history in enumerate(histories):
        restoring = Restoring(history.then, history.now, locate)
        files = plan_files(history.files, in_threads(restoring.look, history.files.doubtful))
        home = scope.homes[history.row.schema.id]
        if history.counters is not None:
            new = _new_table(NewTableRef(number), history.row, history.counters, home, catalog)
            one = _anew(history, restoring, files, new)
        else:
            one = _PlannedTable(history, restoring, files, tuple(_definition(history, files, home.ref)))
        if not one.is_nothing:
            planned.append(one)
    dropped = tuple(pair.now for pair in scope.tables if pair.then is None and pair.now is not None)
    return _Planned(then, head, tuple(planned), others, dropped)


def _snapshot(connection: Connection, catalog: Catalog, at: int | datetime) -> Snapshot:
    if not isinstance(at, datetime):
        return read_snapshots.snapshot_by_id(connection, catalog.tables, at)
    if at.tzinfo is None:
        raise InvalidInputError(f"The time {at} has no time zone; give an aware time.")
    now = catalog.dialect.server_time(connection)
    if at > now + _TOLERANCE:
        raise InvalidInputError(
            f"at={at} lies in the future: the catalog's clock says {now:%Y-%m-%d %H:%M} UTC."
        )
    return read_snapshots.snapshot_by_time(connection, catalog.tables, at)


def _scope(
    connection: Connection, catalog: Catalog, request: RestoreRequest, then: Snapshot, head: Snapshot
) -> Scope:
    if request.table is not None:
        return scope_of_table(connection, catalog.tables, then, head, request.table)
    return scope_of_schemas(connection, catalog.tables, then, head, request.schema)


def _new_table(ref: NewTableRef, row: TableRow, counters: Counters, home: Home, catalog: Catalog) -> NewTable:
    uuid = str(uuid7())
    directory = directory_name(row.name, uuid)
    root = home.path.below(catalog.data_path) + directory
    name = QualifiedName(home.name, row.name)
    return NewTable(ref, home.ref, name, uuid, directory, root, counters)


def _anew(history: TableHistory, restoring: Restoring, files: FileActions, new: NewTable) -> _PlannedTable:
    own = in_own_partitions(files, history.then.table.partition_spec)
    return _PlannedTable(history, restoring, own, tuple(creation(history.then_state, new)), new)


def _definition(history: TableHistory, files: FileActions, home: SchemaRef) -> Iterator[Change]:
    """Yield the changes of all but rows."""
    table, row = history.then.table, history.row
    if history.now_state is not None:
        outdated = outdated_columns(files.copied, table, history.since)
        yield from alterations(history.then_state, history.now_state, outdated)
        return
    yield RestoreTable(table.table_id, home, table.name, row.uuid, row.path, table.schema)
    yield from keys(table, None)
    yield from comments(history.then_state, None)
    if not history.has_layout:
        yield layout_of_inlined_rows(table)


@dataclass(slots=True)
class _Work:
    """A restore under way: the files that it has written, and the jobs that protect them."""

    lake: LakeWrites
    catalog: Catalog
    paths: list[str] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)

    def stage(self, planned: _Planned) -> Stage:
        """Write what has to be written, and return what is to be committed."""
        try:
            return Stage(planned.head.id, tuple(self._changes(planned)))
        except BaseException:
            self.give_up()
            raise

    def _changes(self, planned: _Planned) -> Iterator[Change]:
        yield from (DropTable(row.id, row.qualified) for row in planned.dropped)
        yield from planned.others
        for table in planned.tables:
            yield from self._of_table(table)

    def _of_table(self, planned: _PlannedTable) -> Iterator[Change]:
        history = planned.history
        table = history.then.table
        files = tuple(self._new_files(planned)) if planned.makes_files else ()
        rows = RestoreRows(
            planned.ref, planned.name, table.snapshot.id, table.schema, files, retyped=history.retyped
        )
        if history.counters is None:
            yield replace(rows, inlined=history.inlined, column_stats=_statistics(history))
        else:
            yield replace(rows, next_row_id=history.counters.next_row_id)
        yield from planned.definition
        if history.now is not None:
            yield from self._ends(planned)

    def _ends(self, planned: _PlannedTable) -> Iterator[Change]:
        assert planned.history.now is not None
        now, files = planned.history.now.table, planned.files
        if files.ended:
            deletes = tuple(one.delete_file.id if one.delete_file else None for one in files.ended)
            yield EndFiles(now.table_id, now.name, tuple(one.id for one in files.ended), deletes)
        if files.shortened:
            with self.catalog.dialect.reading() as connection:
                targets = read_targets(connection, self.catalog, now, list(files.shortened))
            yield from delete_changes(targets, files.shortened, (), self.lake.locate)

    def _new_files(self, planned: _PlannedTable) -> Iterator[RestoredFile]:
        """Copy and write the files of a table, under the protection of a registered job."""
        from airflow_provider_ducklake.storage.parallel import in_threads  # noqa: PLC0415 - heavy

        table, files, root = planned.history.then.table, planned.files, planned.root
        settings = ParquetSettings.of_options(table.options)
        job_id, numbers = str(uuid4()), count()
        self.lake.register_job(job_id, f"{root}ducklake-{job_id}")
        self.job_ids.append(job_id)

        def path_in(folders: str) -> str:
            path = f"{root}{folders}ducklake-{job_id}-{next(numbers)}.parquet"
            self.paths.append(path)
            return path

        def next_path(like: str) -> str:
            return path_in(_hive_folders(like, table.root))

        def rewrite(files: RewriteBin) -> list[DataFile]:
            like = files.pairs[0].then.path
            return planned.restoring.rewrite(files, lambda: next_path(like), settings)

        copies = [(file.path, next_path(file.path)) for file in files.copied]
        in_threads(lambda ends: planned.restoring.copy(*ends), copies)
        with self.catalog.dialect.reading() as connection:
            known = with_statistics(connection, self.catalog, table.table_id, files.copied)
        if planned.new is not None:
            known = [without_bounds(file, planned.history.retyped) for file in known]
        for file, (_, path) in zip(known, copies, strict=True):
            yield _copied(file, path, root, has_new_mapping=planned.new is not None)
        bins = plan_bins(files.rewritten, table.options.integer("target_file_size"))
        for one, written in zip(bins, in_threads(rewrite, bins), strict=True):
            for new in written:
                yield RestoredFile(_below(new, root), partition_id=one.partition_id)
        if planned.new is not None:
            for new in planned.restoring.write_inlined(planned.history.returning, path_in, settings):
                yield RestoredFile(_below(new, root))

    def give_up(self) -> None:
        """Remove what was written: nothing landed."""
        remove_unused(self.paths, self.lake.locate)
        for job_id in self.job_ids:
            self.lake.release_job(job_id)


def _hive_folders(path: str, root: str) -> str:
    """Return the folders ``name=value`` of a file: values of columns may lie in them."""
    folders = path.removeprefix(root).split("/")[:-1]
    return "".join(f"{one}/" for one in folders if "=" in one)


def _below(file: DataFile, root: str) -> DataFile:
    return replace(file, path=relative_to(file.path, root).path or "")


def _copied(file: LiveDataFile, path: str, root: str, *, has_new_mapping: bool) -> RestoredFile:
    """Return what is registered of a copy; a name mapping belongs to one table."""
    copied = DataFile(
        relative_to(path, root).path or "",
        file.record_count,
        file.file_size_bytes,
        file.footer_size,
        file.column_stats,
        file.partition_values,
        (file.mapping or ()) if has_new_mapping and file.mapping_id is not None else None,
    )
    known = None if has_new_mapping else file.mapping_id
    return RestoredFile(copied, file.row_id_start, file.partition_id, known)


def _statistics(history: TableHistory) -> tuple[Mapping[ColumnId, TableColumnStats | None], ...]:
    """Return what the rows that come back to the catalog say of each leaf column."""
    if not history.returning:
        return ()
    from airflow_provider_ducklake.storage.inlined_values import (  # noqa: PLC0415 - heavy
        inlined_in_schema,
        inlined_stats,
    )

    columns = history.then.table.schema.columns
    bounded = TableSchema(tuple(one for one in columns if not _is_unordered(one)))
    return (inlined_stats(inlined_in_schema(history.returning, bounded), bounded),)


_UNORDERED = ("interval", "timetz")


def _is_unordered(column: Column) -> bool:
    """Whether values of a column, or their texts, are in no order: statistics had better say nothing."""
    return any(str(inner.type) in _UNORDERED for inner in column.walk())


def _log(planned: _Planned, request: RestoreRequest) -> None:
    what = request.table or (f"schema {request.schema}" if request.schema else "the lake")
    if not planned.has_changes:
        log.info("%s is as it was at snapshot %d: nothing to restore", what, planned.then.id)
        return
    verb = "Would restore" if request.dry_run else "Restored"
    log.info("%s %s to snapshot %d", verb, what, planned.then.id)
    result = planned.result()
    for one in result.tables:
        log.info(
            "%s is %s: %d files stay, %d end, %d lose rows, %d are copied (%d bytes), rows of %d are written "
            "anew (%d bytes read); %d rows return to the catalog, %d end there; %s",
            *(one.name, one.fate, one.files_kept, one.files_ended, one.files_shortened, one.files_copied),
            *(one.bytes_copied, one.files_rewritten, one.bytes_read, one.inlined_returned, one.inlined_ended),
            ", ".join(one.definition) or "the same columns and keys",
        )
    for text in result.objects:
        log.info("%s", text)
