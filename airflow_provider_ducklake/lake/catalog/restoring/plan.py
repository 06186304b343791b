"""Plan a restore from the catalog at both snapshots, and from files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.ledger.restore_notes import RestoreNote
from airflow_provider_ducklake.lake.catalog.restoring.notes import doubtful_part
from airflow_provider_ducklake.lake.catalog.restoring.read_restore import read_history
from airflow_provider_ducklake.lake.catalog.restoring.scope import scope_of_schemas, scope_of_table
from airflow_provider_ducklake.lake.catalog.restoring.views import in_words, macro_changes, view_changes
from airflow_provider_ducklake.lake.catalog.snapshot import read_snapshots
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.upkeep.restore import (
    Fate,
    FileActions,
    NewTable,
    TableRestoration,
    check_writable,
    creation,
    described,
    in_own_partitions,
    outdated_columns,
    plan_files,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.spec.names.paths import directory_name
from airflow_provider_ducklake.lake.transaction.changes import NewTableRef, NoteRestored, RestoreTable
from airflow_provider_ducklake.lake.transaction.definition import definition_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.restoring.read_restore import TableHistory
    from airflow_provider_ducklake.lake.catalog.restoring.scope import Home, Pair, Scope
    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
    from airflow_provider_ducklake.lake.planning.upkeep.restore import Counters
    from airflow_provider_ducklake.lake.spec.names.identifiers import SchemaPath
    from airflow_provider_ducklake.lake.spec.snapshots import (
        CommittedSnapshot,
        JsonValue,
        Snapshot,
        SnapshotId,
    )
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.moving.restored import Restoring
    from airflow_provider_ducklake.lake.transaction.changes import Change, SchemaRef, TableRef

    Locate = Callable[[str], Location]

_TOLERANCE = timedelta(minutes=5)  # a clock may be ahead of the catalog's


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What is to be as it was at a snapshot, time or tag: a table, all of a schema, or (neither) the lake."""

    at: int | datetime | str
    table: QualifiedName | None = None
    schema: SchemaPath | None = None
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


@dataclass(frozen=True, slots=True)
class PlannedTable:
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
        """Whether it is what it was after all."""
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
        return bool(self.files.copied) or self.writes_rows

    @property
    def writes_rows(self) -> bool:
        """Whether rows are rewritten, not with their file."""
        from_catalog = self.new is not None and bool(self.history.returning)
        return bool(self.files.rewritten) or from_catalog

    @property
    def root(self) -> str:
        """Its directory."""
        return self.history.then.table.root if self.new is None else self.new.root

    @property
    def summary(self) -> TableRestoration:
        """What becomes of it, for the result."""
        now = self.history.now
        fate = Fate.RECREATED if now is None else Fate.CHANGED
        said = TableRestoration.of(self.history.then.table, fate, self.files, self.history.inlined)
        if self.new is not None:
            to_files = sum(len(part.rows) for part in self.history.returning)
            said = replace(said, rows_returned=said.rows_returned + to_files)
        words = described(self.definition, None if now is None else now.table)
        return replace(said, definition=tuple(words))


@dataclass(frozen=True, slots=True)
class Planned:
    """All that is to be done on top of snapshot ``head``; ``others`` are changes but those of ``tables``.

    ``unchanged`` are the tables that are what they were already.
    """

    then: Snapshot
    head: Snapshot
    tables: tuple[PlannedTable, ...] = ()
    others: tuple[Change, ...] = ()
    unchanged: tuple[NoteRestored, ...] = ()
    dropped: tuple[TableRow, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.tables or self.others or self.dropped)

    @property
    def noted(self) -> dict[str, JsonValue]:
        """What the snapshot says of itself."""
        table_ids = frozenset(one.history.row.id for one in self.tables)
        heirs = {one.history.row.id: one.new.uuid for one in self.tables if one.new is not None}
        return RestoreNote(self.then.id, table_ids, heirs).to_json()

    def result(self, *, dry_run: bool = False) -> RestoreResult:
        """Return what it comes to, but for the commit."""
        gone = (TableRestoration(str(row.qualified), Fate.DROPPED) for row in self.dropped)
        tables = (*(one.summary for one in self.tables), *gone)
        return RestoreResult(self.then.id, tables, tuple(map(in_words, self.others)), dry_run=dry_run)


def find_restore(locate: Locate, catalog: Catalog, request: RestoreRequest) -> Planned:
    """Read what differs from what it was, and decide what becomes of it.

    Raises:
        SnapshotNotFoundError, TableNotFoundError, SchemaNotFoundError, AlreadyExistsError, StorageError: see
            ``restore``.
        UnsupportedFeatureError: rows would have to be written of a type that this release does not write.
    """
    from airflow_provider_ducklake.lake.storage.files.parallel import in_threads  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.lake.storage.moving.restored import Restoring  # noqa: PLC0415

    with catalog.dialect.reading() as connection:
        head = read_snapshots.head(connection, catalog.tables)
        then = _snapshot(connection, catalog, request.at)
        if then.id == head.id:
            return Planned(then, head)
        scope = _scope(connection, catalog, request, then, head)
        doubtful = doubtful_part(connection, catalog.tables, scope, then, head)
        unchanged = [*_as_they_were(scope.tables, doubtful.tables, then)]
        scope = doubtful
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
            one = _recreated(history, restoring, files, new)
        else:
            one = PlannedTable(history, restoring, files, tuple(_definition(history, files, home.ref)))
        if one.writes_rows:
            check_writable(history.then.table)
        if one.is_nothing:
            unchanged.append(NoteRestored(history.row.id, history.row.qualified, then.id))
        else:
            planned.append(one)
    dropped = tuple(pair.now for pair in scope.tables if pair.then is None and pair.now is not None)
    return Planned(then, head, tuple(planned), others, tuple(unchanged), dropped)


def _as_they_were(
    pairs: Iterable[Pair[TableRow]], doubtful: Collection[Pair[TableRow]], then: Snapshot
) -> Iterator[NoteRestored]:
    """Yield the tables that are known to be as they were; a recreated one, as it was recreated."""
    for pair in pairs:
        if pair.now is not None and pair not in doubtful:
            as_of = then.id if pair.then is not None else pair.now.begin_snapshot
            yield NoteRestored(pair.now.id, pair.now.qualified, as_of)


def _snapshot(connection: Connection, catalog: Catalog, at: int | datetime | str) -> Snapshot:
    if not isinstance(at, datetime):
        return read_snapshots.snapshot_at(connection, catalog, at)
    if at.tzinfo is None:
        raise InvalidInputError(f"The time {at} has no time zone; give an aware datetime.")
    now = catalog.dialect.server_time(connection)
    if at > now + _TOLERANCE:
        raise InvalidInputError(
            f"at={at} is in the future: the catalog's clock shows {now:%Y-%m-%d %H:%M} UTC."
        )
    return read_snapshots.snapshot_at(connection, catalog, at)


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


def _recreated(
    history: TableHistory, restoring: Restoring, files: FileActions, new: NewTable
) -> PlannedTable:
    own = in_own_partitions(files, history.then.table.partition_spec)
    return PlannedTable(
        history, restoring, own, tuple(creation(history.then.table, history.definition_then, new)), new
    )


def _definition(history: TableHistory, files: FileActions, home: SchemaRef) -> Iterator[Change]:
    table, row = history.then.table, history.row
    if history.now is not None:
        outdated = outdated_columns(files.copied, table, history.since)
        yield from definition_changes(
            table.table_id, history.definition_now, history.definition_then, outdated=outdated
        )
        return
    yield RestoreTable(table.table_id, home, table.name, row.uuid, row.path, table.schema)
    came_back = replace(history.definition_then, has_layout=history.has_layout)
    yield from definition_changes(table.table_id, None, came_back)
