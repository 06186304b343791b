"""Plan a restore from the catalog at both snapshots, and from files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Connection, select
from uuid6 import uuid7

from ...errors import AlreadyExistsError, InvalidInputError, SchemaNotFoundError, TableNotFoundError
from ...format.names.identifiers import QualifiedName, SchemaPath
from ...format.names.paths import CatalogPath, directory_name
from ...format.snapshots import CommittedSnapshot, JsonValue, SchemaId, Snapshot, SnapshotId, TableId, ViewId
from ...format.tags import ViewDefinition, parse_aliases
from ...format.types.texts import require_offset
from ...planning.upkeep import restore as rules
from ...transaction import changes as kinds
from ...transaction.changes_made import changes_table
from ...transaction.definition import definition_changes
from ..ledger.restores import RestoreNote
from ..snapshot import read, read_snapshots
from .read_restore import TableHistory, comment, read_history

if TYPE_CHECKING:
    from ...storage.files.filesystem import Location
    from ...storage.moving.restored import Restoring
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog
    from ..snapshot.read import MacroRow, SchemaRow, TableRow
    from ..snapshot.read_snapshots import RecordedSnapshot

    Locate = Callable[[str], Location]


# Which tables a restore may skip, because earlier restores recorded that they are unchanged.


def tables_to_restore(
    connection: Connection, tables: CatalogTables, scope: RestoreScope, target: Snapshot, head: Snapshot
) -> RestoreScope:
    """Drop the tables that are already known to match the target snapshot from a scope."""
    since = _Since(read_snapshots.newer_query(tables, target.id).ask(connection), target, head)
    heirs = dict(_unchanged_heirs(scope, since))
    return replace(scope, tables=tuple(pair for pair in scope.tables if not _is_known(pair, heirs, since)))


def _unchanged_heirs(scope: RestoreScope, since: _Since) -> Iterator[tuple[TableId, TableId]]:
    """Yield tables that a restore recreated and that are unchanged since, each with its original."""
    old = {pair.target.id: pair.target for pair in scope.tables if pair.target is not None}
    for pair in scope.tables:
        if pair.target is None and pair.current is not None:
            heir_of = since.unchanged_heir_of(pair.current)
            was = None if heir_of is None else old.get(heir_of)
            if was is not None and (
                pair.current.schema.id == scope.homes[was.schema.id].ref and pair.current.name == was.name
            ):
                yield pair.current.id, was.id


def _is_known(pair: Pair[TableRow], heirs: Mapping[TableId, TableId], since: _Since) -> bool:
    if pair.target is None:
        return pair.current is not None and pair.current.id in heirs
    if pair.current is None:
        return pair.target.id in heirs.values()
    return pair.current.qualified == pair.target.qualified and since.is_as_it_was(pair.target.id)


@dataclass(frozen=True, slots=True)
class _Since:
    """The snapshots that there are of those after ``target``, up to ``head``."""

    newer: Sequence[RecordedSnapshot]
    target: Snapshot
    head: Snapshot

    def is_as_it_was(self, table_id: TableId) -> bool:
        """Return True if nothing changed a table, or the last that did restored it to this very snapshot."""
        last = max(
            (one.id for one in self.newer if changes_table(one.changes, table_id)), default=self.target.id
        )
        made = next((note for snapshot_id, note in self._restores() if snapshot_id == last), None)
        return self._has_all_after(last) and (
            last == self.target.id or (made is not None and table_id in made.table_ids)
        )

    def unchanged_heir_of(self, row: TableRow) -> TableId | None:
        """Return the original of a recreated table that is unchanged since; None: it has none."""
        for made_by, note in self._restores():
            was = next((one for one, uuid in note.heirs.items() if uuid == row.uuid), None)
            if was is not None:
                last = max(
                    (one.id for one in self.newer if changes_table(one.changes, row.id)), default=made_by
                )
                return was if last <= made_by and self._has_all_after(made_by) else None
        return None

    def _restores(self) -> Iterator[tuple[SnapshotId, RestoreNote]]:
        """Yield the snapshots that restored something to this very one."""
        for one in self.newer:
            note = RestoreNote.of(one.extra)
            if note is not None and note.as_of == self.target.id:
                yield one.id, note

    def _has_all_after(self, snapshot_id: int) -> bool:
        """Return True if no snapshot has expired since: the changes of an expired one are unknown."""
        return sum(one.id > snapshot_id for one in self.newer) == self.head.id - snapshot_id


# The tables, views, macros and schemas of a restore, at the older and the current snapshot.


Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Pair(Generic[Thing]):
    """One object as it was then and as it is now; None: it was not there, or is not."""

    target: Thing | None
    current: Thing | None


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view as the catalog holds it."""

    id: ViewId
    uuid: str
    name: QualifiedName
    schema_id: SchemaId
    definition: ViewDefinition


@dataclass(frozen=True, slots=True)
class PlacedMacro:
    """A macro with the schema it lies in."""

    row: MacroRow
    name: QualifiedName
    schema_id: SchemaId


@dataclass(frozen=True, slots=True)
class TargetSchema:
    """The schema that has, or gets, what lay in one then: itself, or another one of its name."""

    ref: kinds.SchemaRef
    name: SchemaPath
    path: CatalogPath


@dataclass(frozen=True, slots=True)
class RestoreScope:
    """The objects to restore; ``homes`` are the target schemas of the schemas at that snapshot."""

    tables: tuple[Pair[TableRow], ...]
    homes: Mapping[SchemaId, TargetSchema]
    views: tuple[Pair[ViewRow], ...] = ()
    macros: tuple[Pair[PlacedMacro], ...] = ()
    schemas: tuple[kinds.CreateSchema | kinds.DropSchema, ...] = ()

    def moves(self, row: TableRow) -> bool:
        """Return True if a table cannot be restored under its id: the id of its schema has changed."""
        return self.homes[row.schema.id].ref != row.schema.id


def scope_of_table(
    connection: Connection, tables: CatalogTables, target: Snapshot, current: Snapshot, name: QualifiedName
) -> RestoreScope:
    """Find the table that had a name at the target snapshot, or else has it now.

    A table that took the name of one that was dropped since is dropped for it, as by CREATE OR REPLACE. Its
    schema is created if none of its name exists.
    """
    was = _table_then(connection, tables, target, current, name)
    living = read.table_rows(connection, tables, current.id)
    live = next((row for row in living if row.id == was.id), None)
    homes, created = _homes(connection, tables, [was.schema], target, current, alike=attrgetter("folded"))
    others = [row for row in living if row.qualified.folded == was.qualified.folded and row.id != was.id]
    if others and live is not None:
        raise AlreadyExistsError("table", str(was.qualified))
    if read.find_view(connection, tables, current.id, was.qualified) is not None:
        raise AlreadyExistsError("view", str(was.qualified))
    replaced = tuple(Pair(None, other) for other in others)
    return RestoreScope((Pair(was, live), *replaced), homes, schemas=created)


def _table_then(
    connection: Connection, tables: CatalogTables, target: Snapshot, current: Snapshot, name: QualifiedName
) -> TableRow:
    if named := read.table_rows(connection, tables, target.id, name):
        return named[0]
    for row in read.table_rows(connection, tables, current.id, name):
        for was in read.table_rows(connection, tables, target.id):
            if was.id == row.id:
                return was
    raise TableNotFoundError(str(name), target.id)


def scope_of_schemas(
    connection: Connection,
    tables: CatalogTables,
    target: Snapshot,
    current: Snapshot,
    schema: SchemaPath | None,
) -> RestoreScope:
    """Return all that lay in a schema then, or lies in it now, schemas as well; in any schema (None)."""

    def chosen(at: Snapshot) -> list[SchemaRow]:
        found = read.schemas(connection, tables, at.id)
        return [one for one in found if schema is None or one.name.is_below(schema)]

    old, new = chosen(target), chosen(current)
    if schema is not None and not old:
        raise SchemaNotFoundError(str(schema), target.id)
    homes, created = _homes(connection, tables, old, target, current, alike=attrgetter("parts"))
    kept = {home.ref for home in homes.values()}
    dropped = [kinds.DropSchema(one.id, one.name) for one in new if one.id not in kept]
    ids_then, ids_now = {one.id for one in old}, {one.id for one in new}
    of_tables = _pairs(
        _tables_in(connection, tables, target, ids_then),
        _tables_in(connection, tables, current, ids_now),
        lambda row: row.id,
    )
    of_views = _pairs(
        _views_in(connection, tables, target, ids_then),
        _views_in(connection, tables, current, ids_now),
        lambda row: row.id,
    )
    of_macros = _pairs(
        _macros_in(connection, tables, target, old),
        _macros_in(connection, tables, current, new),
        lambda one: one.row.id,
    )
    return RestoreScope(of_tables, homes, of_views, of_macros, (*dropped, *created))


def _homes(  # noqa: PLR0913 - which schemas, of when, and what makes them the same
    connection: Connection,
    tables: CatalogTables,
    old: Iterable[SchemaRow],
    target: Snapshot,
    current: Snapshot,
    *,
    alike: Callable[[SchemaPath], Hashable],
) -> tuple[dict[SchemaId, TargetSchema], tuple[kinds.CreateSchema, ...]]:
    """Find the schema that restored objects of each one go to: itself, one of its name, or one to be created.

    Names are equal if ``alike`` maps them to the same value. Outer schemas are included.
    """
    were = {one.id: one for one in read.schemas(connection, tables, target.id)}
    living = read.schemas(connection, tables, current.id)
    by_id, by_name = {one.id: one for one in living}, {alike(one.name): one for one in living}
    uuids = _uuids(connection, tables, target)
    homes: dict[SchemaId, TargetSchema] = {}
    created: list[kinds.CreateSchema] = []
    for one in _outermost_first(old, were):
        found = by_id.get(one.id) or by_name.get(alike(one.name))
        if found is not None:
            homes[one.id] = TargetSchema(found.id, found.name, found.path)
            continue
        above = None if one.parent is None else homes[one.parent]
        name = SchemaPath((*(above.name.parts if above else ()), one.name.name))
        ref, parent = kinds.NewSchemaRef(len(created)), above.ref if above else None
        created.append(kinds.CreateSchema(ref, name, uuids[one.id], parent, one.path, heir_of=one.id))
        homes[one.id] = TargetSchema(ref, name, one.path)
    return homes, tuple(created)


def _outermost_first(some: Iterable[SchemaRow], were: Mapping[SchemaId, SchemaRow]) -> Iterator[SchemaRow]:
    """Yield schemas and all that they lay in, each once and after the one that it lay in."""
    found: dict[SchemaId, SchemaRow] = {}
    for one in some:
        above: SchemaRow | None = one
        while above is not None:
            found[above.id] = above
            above = None if above.parent is None else were[above.parent]
    yield from sorted(found.values(), key=lambda one: (len(one.name.parts), one.id))


def _uuids(connection: Connection, tables: CatalogTables, at: Snapshot) -> dict[SchemaId, str]:
    schema = tables["schema"]
    rows = connection.execute(
        select(schema.c.schema_id, schema.c.schema_uuid).where(read.visible(schema, at.id))
    )
    return {SchemaId(row.schema_id): str(row.schema_uuid) for row in rows}


def _pairs(
    target: Iterable[Thing], current: Iterable[Thing], id_of: Callable[[Thing], Hashable]
) -> tuple[Pair[Thing], ...]:
    old, new = {id_of(one): one for one in target}, {id_of(one): one for one in current}
    return tuple(Pair(old.get(one), new.get(one)) for one in {**old, **new})


def _tables_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schema_ids: set[SchemaId]
) -> list[TableRow]:
    return [row for row in read.table_rows(connection, tables, at.id) if row.schema.id in schema_ids]


def _views_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schema_ids: set[SchemaId]
) -> Iterator[ViewRow]:
    names = {one.id: one.name for one in read.schemas(connection, tables, at.id)}
    view = tables["view"]
    rows: Iterable[Any] = connection.execute(select(view).where(read.visible(view, at.id)))
    for row in rows:
        if row.schema_id in schema_ids:
            yield ViewRow(
                ViewId(row.view_id),
                str(row.view_uuid),
                QualifiedName(names[row.schema_id], row.view_name),
                SchemaId(row.schema_id),
                ViewDefinition(row.sql, row.dialect, parse_aliases(row.column_aliases)),
            )


def _macros_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schemas: Iterable[SchemaRow]
) -> Iterator[PlacedMacro]:
    for schema in schemas:
        for row in read.macros(connection, tables, at.id, schema.id):
            yield PlacedMacro(row, QualifiedName(schema.name, row.name), schema.id)


# Restore views and macros, whose definitions never change under one id.


def view_changes(
    connection: Connection, tables: CatalogTables, scope: RestoreScope, target: Snapshot, current: Snapshot
) -> Iterator[kinds.Change]:
    """Yield what brings views back, with their names and comments, and what drops those made since."""
    numbers = count()
    for pair in scope.views:
        if pair.target is None:
            assert pair.current is not None
            yield kinds.DropView(pair.current.id, pair.current.name)
            continue
        text = comment(connection, tables, target.id, pair.target.id)
        ref: kinds.ViewRef
        if pair.current is None:
            ref = kinds.NewViewRef(next(numbers))
            home = scope.homes[pair.target.schema_id].ref
            yield kinds.CreateView(
                ref, home, pair.target.name, pair.target.uuid, pair.target.definition, pair.target.id
            )
            before = None
        else:
            ref = pair.target.id
            yield from _renamed(pair.target, pair.current)
            before = comment(connection, tables, current.id, pair.target.id)
        if text != before:
            yield kinds.CommentOnView(ref, pair.target.name, text)
        was = read.view_comments(connection, tables, target.id, pair.target.id)
        are = (
            {} if pair.current is None else read.view_comments(connection, tables, current.id, pair.target.id)
        )
        for column in {**was, **are}:
            if was.get(column) != are.get(column):
                yield kinds.CommentOnViewColumn(ref, pair.target.name, column, was.get(column))


def _renamed(target: ViewRow, current: ViewRow) -> Iterator[kinds.Change]:
    if target.name != current.name:
        yield kinds.RenameView(current.id, current.name, target.name)


def macro_changes(scope: RestoreScope, target: Snapshot) -> Iterator[kinds.Change]:
    """Yield what brings macros back, and what drops those made since."""
    for pair in scope.macros:
        if pair.target is None and pair.current is not None:
            yield kinds.DropMacro(pair.current.row.id, pair.current.name, pair.current.row.is_table_macro)
        elif pair.current is None and pair.target is not None:
            home = scope.homes[pair.target.schema_id].ref
            is_table = pair.target.row.is_table_macro
            yield kinds.RestoreMacro(pair.target.row.id, home, pair.target.name, is_table, target.id)


def in_words(change: kinds.Change) -> str:  # noqa: PLR0911 - a sentence for each kind
    """Describe a change of a schema, view or macro."""
    match change:
        case kinds.CreateSchema(name=schema):
            return f"schema {schema} comes back"
        case kinds.DropSchema(name=schema):
            return f"schema {schema} goes"
        case kinds.CreateView(name=name):
            return f"view {name} comes back"
        case kinds.DropView(name=name):
            return f"view {name} goes"
        case kinds.RenameView(name=name, new_name=new_name):
            return f"view {name} becomes {new_name}"
        case kinds.CommentOnView(name=name):
            return f"the comment of view {name} changes"
        case kinds.CommentOnViewColumn(name=name, column=column):
            return f"the comment of column {column} of view {name} changes"
        case kinds.RestoreMacro(name=name):
            return f"macro {name} comes back"
        case kinds.DropMacro(name=name):
            return f"macro {name} goes"
        case _:
            raise AssertionError(change)


_TOLERANCE = timedelta(minutes=5)  # a clock may be ahead of the catalog's


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore to a snapshot, time or tag: a table, all of a schema, or (neither) the lake."""

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

    ``tables`` are those that differ from the target snapshot, ``objects`` describes the changes of schemas,
    views and macros. ``committed`` None: nothing differs, or this was a dry run. If an
    earlier commit under the same key had made the restore, ``as_of`` is None and only that commit is given.
    """

    as_of: SnapshotId | None
    tables: tuple[rules.TableRestoration, ...] = ()
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
    files: rules.FileActions
    definition: tuple[kinds.Change, ...]
    new: rules.RecreatedTable | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if the table matches the target snapshot after all."""
        return self.files.is_empty and not self.history.inlined and not self.definition

    @property
    def ref(self) -> kinds.TableRef:
        """The table that gets the rows."""
        return self.history.row.id if self.new is None else self.new.ref

    @property
    def name(self) -> QualifiedName:
        """Its name before the restore, or the one that it is created with."""
        if self.new is not None:
            return self.new.name
        current = self.history.current
        return self.history.target.table.name if current is None else current.table.name

    @property
    def makes_files(self) -> bool:
        """Return True if rows come back in new files."""
        return bool(self.files.copied) or self.writes_rows

    @property
    def writes_rows(self) -> bool:
        """Return True if rows are rewritten, not with their file."""
        return bool(self.files.rewritten) or self.writes_inlined

    @property
    def writes_inlined(self) -> bool:
        """Return True if rows of the catalog are written to files."""
        return self.new is not None and bool(self.history.returning)

    @property
    def root(self) -> str:
        """Its directory."""
        return self.history.target.table.root if self.new is None else self.new.root

    @property
    def summary(self) -> rules.TableRestoration:
        """The action on the table, for the result."""
        current = self.history.current
        action = rules.RestoreAction.RECREATED if current is None else rules.RestoreAction.CHANGED
        restoration = rules.TableRestoration.of(
            self.history.target.table, action, self.files, self.history.inlined
        )
        if self.new is not None:
            to_files = sum(len(part.rows) for part in self.history.returning)
            restoration = replace(restoration, rows_returned=restoration.rows_returned + to_files)
        words = rules.described(self.definition, None if current is None else current.table)
        return replace(restoration, definition=tuple(words))


@dataclass(frozen=True, slots=True)
class Planned:
    """All that is to be done on top of snapshot ``head``; ``others`` are changes but those of ``tables``.

    ``unchanged`` are the tables that are what they were already.
    """

    target: Snapshot
    head: Snapshot
    tables: tuple[PlannedTable, ...] = ()
    others: tuple[kinds.Change, ...] = ()
    unchanged: tuple[kinds.NoteRestored, ...] = ()
    dropped: tuple[TableRow, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Return True if anything is to be done."""
        return bool(self.tables or self.others or self.dropped)

    @property
    def noted(self) -> dict[str, JsonValue]:
        """The record of the restore in its snapshot, as JSON."""
        table_ids = frozenset(one.history.row.id for one in self.tables)
        heirs = {one.history.row.id: one.new.uuid for one in self.tables if one.new is not None}
        return RestoreNote(self.target.id, table_ids, heirs).to_json()

    def result(self, *, dry_run: bool = False) -> RestoreResult:
        """Summarize the plan, without a commit."""
        gone = (
            rules.TableRestoration(str(row.qualified), rules.RestoreAction.DROPPED) for row in self.dropped
        )
        tables = (*(one.summary for one in self.tables), *gone)
        return RestoreResult(self.target.id, tables, tuple(map(in_words, self.others)), dry_run=dry_run)


def find_restore(locate: Locate, catalog: Catalog, request: RestoreRequest) -> Planned:
    """Read what differs from what it was, and decide what becomes of it."""
    from ...storage.files.parallel import in_threads
    from ...storage.moving.restored import Restoring

    with catalog.dialect.reading() as connection:
        head = read_snapshots.head(connection, catalog.tables)
        target = _snapshot(connection, catalog, request.at)
        if target.id == head.id:
            return Planned(target, head)
        scope = _scope(connection, catalog, request, target, head)
        doubtful = tables_to_restore(connection, catalog.tables, scope, target, head)
        unchanged = [*_as_they_were(scope.tables, doubtful.tables, target)]
        scope = doubtful
        histories = [
            read_history(connection, catalog, pair, target, head, is_moved=scope.moves(pair.target))
            for pair in scope.tables
            if pair.target is not None
        ]
        others = (
            *scope.schemas,
            *view_changes(connection, catalog.tables, scope, target, head),
            *macro_changes(scope, target),
        )
    planned = []
    for number, history in enumerate(histories):
        restoring = Restoring(history.target, history.current, locate)
        files = rules.plan_files(history.files, in_threads(restoring.file_state, history.files.doubtful))
        home = scope.homes[history.row.schema.id]
        if history.counters is not None:
            new = _new_table(kinds.NewTableRef(number), history.row, history.counters, home, catalog)
            one = _recreated(history, restoring, files, new)
        else:
            one = PlannedTable(history, restoring, files, tuple(_definition(history, files, home.ref)))
        if history.current is not None:
            rules.check_readable(history.target.table, history.current.table)
        if one.writes_rows:
            rules.check_writable(history.target.table, has_inlined=one.writes_inlined)
        if one.is_empty:
            unchanged.append(kinds.NoteRestored(history.row.id, history.row.qualified, target.id))
        else:
            planned.append(one)
    dropped = tuple(pair.current for pair in scope.tables if pair.target is None and pair.current is not None)
    return Planned(target, head, tuple(planned), others, tuple(unchanged), dropped)


def _as_they_were(
    pairs: Iterable[Pair[TableRow]], doubtful: Collection[Pair[TableRow]], target: Snapshot
) -> Iterator[kinds.NoteRestored]:
    """Yield the tables that are known to match; a recreated one, as of the snapshot that recreated it."""
    for pair in pairs:
        if pair.current is not None and pair not in doubtful:
            as_of = target.id if pair.target is not None else pair.current.begin_snapshot
            yield kinds.NoteRestored(pair.current.id, pair.current.qualified, as_of)


def _snapshot(connection: Connection, catalog: Catalog, at: int | datetime | str) -> Snapshot:
    if not isinstance(at, datetime):
        return read_snapshots.snapshot_at(connection, catalog, at)
    require_offset(at)
    current = catalog.dialect.server_time(connection)
    if at > current + _TOLERANCE:
        raise InvalidInputError(
            f"at={at} is in the future: the catalog's clock shows {current:%Y-%m-%d %H:%M} UTC."
        )
    return read_snapshots.snapshot_at(connection, catalog, at)


def _scope(
    connection: Connection, catalog: Catalog, request: RestoreRequest, target: Snapshot, head: Snapshot
) -> RestoreScope:
    if request.table is not None:
        return scope_of_table(connection, catalog.tables, target, head, request.table)
    return scope_of_schemas(connection, catalog.tables, target, head, request.schema)


def _new_table(
    ref: kinds.NewTableRef, row: TableRow, counters: rules.Counters, home: TargetSchema, catalog: Catalog
) -> rules.RecreatedTable:
    uuid = str(uuid7())
    directory = directory_name(row.name, uuid)
    root = home.path.below(catalog.data_path) + directory
    name = QualifiedName(home.name, row.name)
    return rules.RecreatedTable(ref, home.ref, name, uuid, directory, root, counters)


def _recreated(
    history: TableHistory, restoring: Restoring, files: rules.FileActions, new: rules.RecreatedTable
) -> PlannedTable:
    own = rules.in_own_partitions(files, history.target.table.partition_spec)
    return PlannedTable(
        history,
        restoring,
        own,
        tuple(rules.creation(history.target.table, history.definition_then, new)),
        new,
    )


def _definition(
    history: TableHistory, files: rules.FileActions, home: kinds.SchemaRef
) -> Iterator[kinds.Change]:
    table, row = history.target.table, history.row
    if history.current is not None:
        outdated = rules.outdated_columns(files.copied, table, history.since)
        yield from definition_changes(
            table.table_id, history.definition_now, history.definition_then, outdated=outdated
        )
        return
    yield kinds.RestoreTable(table.table_id, home, table.name, row.uuid, row.path, table.schema)
    came_back = replace(history.definition_then, has_layout=history.has_layout)
    yield from definition_changes(table.table_id, None, came_back)
