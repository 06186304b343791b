"""Read operations of ``Lake``: snapshots, tables, options, rows and their changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from uuid6 import uuid7

from .. import errors
from ..format.names.identifiers import QualifiedName, SchemaName, SchemaPath, TableName, fold
from ..format.names.paths import directory_name, schema_directory
from ..format.options import Options
from ..format.snapshots import (
    RestoredTable,
    SchemaId,
    Snapshot,
    SnapshotId,
    TableId,
    TableSnapshot,
    require_id,
)
from ..format.tags import Macro, Tag, ViewDefinition
from ..format.types.texts import require_offset
from ..format.versions import Feature
from ..planning.writing.write import NewTable, NewTableAndSchema
from ..transaction.changes_made import changes_table
from .ledger import restores
from .snapshot import read, read_snapshots
from .snapshot.read_files import registered
from .snapshot.scan import Wanted, find_scan, find_table, find_table_snapshot, load_table

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from ..planning.reading.scan import ChangeFeedPlan, ScanPlan
    from ..planning.reading.watch import RangeReport, TableChanges
    from ..planning.writing.staged import StagedWrite
    from .open_lake import OpenLake
    from .reports import watch
    from .reports.changes import ChangeFeed
    from .reports.health import LakeHealth
    from .reports.numbers import ColumnBounds, LakeClient, ListedFile, TableInfo
    from .snapshot.read_snapshots import At, RecordedSnapshot


class LakeReads:
    """The read operations of ``Lake``."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def lake_id(self) -> str:
        """Return the identity of the lake, whatever the connection to its catalog.

        It is the uuid of its first schema, which a copy of the catalog has, too.
        """
        with self._lake.reading() as connection:
            return read.first_schema_uuid(connection, self._lake.catalog.tables)

    def current_snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        with self._lake.reading() as connection:
            return self._lake.head(connection)

    def snapshots(self) -> list[RecordedSnapshot]:
        """Return every snapshot with its author, message and parsed changes, oldest first."""
        with self._lake.reading() as connection:
            return read_snapshots.recorded_snapshots(connection, self._lake.catalog.tables)

    def snapshot_at(self, at: int | datetime | str) -> Snapshot:
        """Return the snapshot with that id, of that tag (``"tag:q3-close"``), or the newest at an aware time.

        Raises:
            SnapshotNotFoundError: it has expired, is in the future, or before the first one.
            TagNotFoundError, TaggedSnapshotLostError: there is no such tag, or its snapshot has expired.
            InvalidInputError: the time has no time zone, or neither it nor the id can be that of a snapshot.
        """
        with self._lake.reading() as connection:
            return self._lake.snapshot(connection, at)

    def tags(self) -> list[Tag]:
        """Return the tags of the lake, in the order of their snapshots."""
        with self._lake.reading() as connection:
            return read_snapshots.tags(connection, self._lake.catalog)

    def _first_snapshot(self, connection: Connection, start: int | datetime | str) -> Snapshot:
        if isinstance(start, datetime):
            return read_snapshots.snapshot_from_time(connection, self._lake.catalog, require_offset(start))
        return self._lake.snapshot(connection, start)

    def tables(self, at: At = None) -> list[QualifiedName]:
        """Return the names of all tables at a snapshot (id, aware time or tag; None: the newest), sorted."""
        return [row.qualified for row in self.table_rows(at)]

    def table_rows(self, at: At = None) -> list[read.TableRow]:
        """Return the catalog's rows of all tables at a snapshot."""
        with self._lake.reading() as connection:
            return read.table_rows(
                connection, self._lake.catalog.tables, self._lake.snapshot(connection, at).id
            )

    def view(self, view: TableName, at: At = None) -> ViewDefinition:
        """Return the definition of a view, as its author wrote it.

        Raises:
            ViewNotFoundError: the view does not exist at that snapshot.
        """
        name = QualifiedName.of(view)
        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, at)
            found = read.find_view(connection, self._lake.catalog.tables, snapshot.id, name)
        if found is None:
            raise errors.ViewNotFoundError(str(name), snapshot.id)
        return found[1]

    def macros(self, at: At = None) -> list[Macro]:
        """Return all macros at a snapshot with what they stand for, sorted by name."""
        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, at)
            found = read.macro_definitions(connection, self._lake.catalog.tables, snapshot.id)
        return [Macro(name, definition) for name, definition in found]

    def schema(self, name: SchemaName, at: At = None) -> read.SchemaRow | None:
        """Return a schema by name, None if there is none."""
        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, at)
            return read.find_schema(connection, self._lake.catalog.tables, snapshot.id, SchemaPath.of(name))

    def effective_options(self, schema_id: SchemaId | None = None) -> Options:
        """Return the options in force for new tables of a schema."""
        with self._lake.reading() as connection:
            return Options.effective(read.option_rows(connection, self._lake.catalog.tables), schema_id)

    def options(self, table: TableName | None = None, schema: SchemaName | None = None) -> Options:
        """Return the options in force for a table, a schema, or the whole lake.

        Raises:
            SchemaNotFoundError, TableNotFoundError: it does not exist.
        """
        if table is not None:
            return self.table_snapshot(table).options
        with self._lake.reading() as connection:
            scope, scope_id = self.option_scope(connection, schema, None)
            rows = read.option_rows(connection, self._lake.catalog.tables)
        return Options.effective(rows, scope_id if scope == "schema" else None)

    def option_scope(
        self, connection: Connection, schema: SchemaName | None, table: TableName | None
    ) -> tuple[str | None, int | None]:
        tables = self._lake.catalog.tables
        head = read_snapshots.head(connection, tables)
        if table is not None:
            return "table", find_table(connection, tables, head, QualifiedName.of(table)).id
        if schema is None:
            return None, None
        path = SchemaPath.of(schema)
        found = read.find_schema(connection, tables, head.id, path)
        if found is None:
            raise errors.SchemaNotFoundError(str(path), head.id)
        return "schema", found.id

    def table_snapshot(self, table: TableName, at: At = None, *, with_files: bool = False) -> TableSnapshot:
        """Return a table at a snapshot (id, time or tag; None: the newest), with its live files if asked.

        Raises:
            SchemaNotFoundError, TableNotFoundError, SnapshotNotFoundError: it did not exist at that snapshot.
        """
        self._lake.refuse_unusable()
        moment = self._lake.moment(at)
        with self._lake.translated():
            name = QualifiedName.of(table)
            return find_table_snapshot(self._lake.catalog, name, moment, with_files=with_files)

    def _table(
        self, connection: Connection, table: TableName, at: At, *, with_files: bool = False
    ) -> TableSnapshot:
        name, snapshot = QualifiedName.of(table), self._lake.snapshot(connection, at)
        return load_table(connection, self._lake.catalog, snapshot, name, with_files=with_files)

    def new_table(
        self, name: QualifiedName, uuid: str | None = None, *, with_schema: bool = False
    ) -> NewTable:
        """Return the target of a table that does not exist yet; ``uuid`` is to be its own.

        ``with_schema``: its schema is to be created together with it, where it does not exist.

        Raises:
            SchemaNotFoundError: its schema does not exist, or the one in which that is to be created.
            AlreadyExistsError: a view has the name.
            UnsupportedFeatureError: the lake's version has no nested schemas.
        """
        self._lake.refuse_unwritable()
        with self._lake.reading() as connection:
            snapshot = self._lake.head(connection)
            schema = read.find_schema(connection, self._lake.catalog.tables, snapshot.id, name.schema)
            if schema is None and with_schema:
                return self._new_table_and_schema(connection, snapshot, name, uuid or str(uuid7()))
            if schema is None:
                raise errors.SchemaNotFoundError(str(name.schema), snapshot.id)
            views = read.view_names(connection, self._lake.catalog.tables, snapshot.id, schema.id)
            options = self._lake.catalog.options(
                read.option_rows(connection, self._lake.catalog.tables), schema.id
            )
        if fold(name.name) in {fold(view) for _, view in views}:
            raise errors.AlreadyExistsError("view", str(name))
        uuid = uuid or str(uuid7())
        root = schema.path.below(self._lake.data_path) + directory_name(name.name, uuid)
        return NewTable(snapshot, schema.id, QualifiedName(schema.name, name.name), uuid, root, options)

    def _new_table_and_schema(
        self, connection: Connection, snapshot: Snapshot, name: QualifiedName, uuid: str
    ) -> NewTable:
        tables, path, parent = self._lake.catalog.tables, name.schema, None
        if path.parent is not None:
            tables.writer.check(Feature.NESTED_SCHEMAS)
            parent = read.find_schema(connection, tables, snapshot.id, path.parent)
            if parent is None:
                raise errors.SchemaNotFoundError(str(path.parent), snapshot.id)
            path = SchemaPath((*parent.name.parts, path.name))
        schema_uuid = str(uuid5(UUID(uuid), str(path)))
        root = self._lake.data_path + schema_directory(path, schema_uuid) + directory_name(name.name, uuid)
        return NewTableAndSchema(
            snapshot=snapshot,
            schema_id=None if parent is None else parent.id,
            name=QualifiedName(path, name.name),
            uuid=uuid,
            root=root,
            options=self._lake.catalog.options(read.option_rows(connection, tables)),
            schema_uuid=schema_uuid,
        )

    def read_arrow(
        self,
        table: TableName,
        *,
        at: At = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        staged: Sequence[StagedWrite] = (),
    ) -> pa.Table:
        """Return a table's rows at a snapshot, without Spark: for small reads; the order is not defined.

        With ``filter``, a condition such as ``"price > 10 AND day = '2024-01-31'"``, only rows that satisfy
        it. With ``staged``, the newest snapshot's rows as if the staged writes to this table were
        committed.

        Raises:
            InvalidPredicateError: the condition cannot be parsed, or compares a column with an invalid value.
            ColumnNotFoundError: no such column.
            UnsupportedFeatureError: a file has types or a layout that this release cannot read.
            StorageError: a data file or delete file is missing or damaged.
            InvalidInputError: ``staged`` is given together with ``at``, or the staged writes contradict each
            other.
            TransactionConflictError: the staged writes conflict with later changes of the table.
        """
        from ..storage.arrow.arrow_types import in_fewest_digits
        from ..storage.rows.table_reader import read_rows

        plan = self.plan_read(table, at, Wanted(columns, filter), staged)
        self._lake.report_read(plan.table.name)
        return in_fewest_digits(read_rows(plan, self._lake.locate))

    def scan(
        self,
        table: TableName,
        *,
        at: At = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        stats_of: Sequence[str] = (),
    ) -> ScanPlan:
        """Plan what ``read_arrow`` would read: the files that may hold matching rows, and inlined rows.

        The files have the statistics of the columns that ``filter`` and ``stats_of`` name.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: as ``read_arrow``.
        """
        return self.scan_of(table, Wanted(columns, filter, stats_of), at)

    def scan_of(
        self, table: TableName, wanted: Wanted | Callable[[TableSnapshot], Wanted], at: At = None
    ) -> ScanPlan:
        """Plan a read of the wanted rows, which may depend on the table's columns; see ``scan``."""
        plan = self.plan_read(table, at, wanted)
        self._lake.report_read(plan.table.name)
        return plan

    def read_spark(
        self,
        spark: Any,  # noqa: ANN401 - a SparkSession; pyspark is imported in spark/ only
        table: TableName,
        *,
        at: At = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
    ) -> Any:  # noqa: ANN401 - a DataFrame
        """Return the rows that ``read_arrow`` returns as a Spark DataFrame.

        The catalog is read now, for one snapshot; files are read when Spark needs the rows.

        Raises:
            TableNotFoundError, ColumnNotFoundError, InvalidPredicateError: as ``read_arrow``.
        """
        from ..spark.read import read_table

        return read_table(
            spark,
            self.scan(table, at=at, columns=columns, filter=filter),
            storage_options=self._lake.storage_options,
        )

    def plan_read(
        self,
        table: TableName,
        at: At,
        wanted: Wanted | Callable[[TableSnapshot], Wanted],
        staged: Sequence[StagedWrite] = (),
    ) -> ScanPlan:
        self._lake.refuse_unusable()
        if staged and at is not None:
            raise errors.InvalidInputError(
                "Staged writes are read on top of the newest snapshot: leave out at."
            )
        moment = self._lake.moment(at)
        with self._lake.translated():
            return find_scan(self._lake.catalog, QualifiedName.of(table), moment, wanted, staged)

    def first_since(self, connection: Connection, time: datetime) -> SnapshotId | None:
        """Return the first snapshot at or after a time, or None if there is none yet."""
        try:
            return self._first_snapshot(connection, time).id
        except errors.SnapshotNotFoundError:
            return None

    def table_info(self, table: TableName | None = None, at: At = None) -> list[TableInfo]:
        """Return files, sizes and inlined rows of all tables, or of one, from the catalog alone.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        from .reports.numbers import table_infos

        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, at)
            name = None if table is None else QualifiedName.of(table)
            if name is not None:
                find_table(connection, self._lake.catalog.tables, snapshot, name)
            return table_infos(connection, self._lake.catalog, snapshot.id, name)

    def files(self, table: TableName, at: At = None) -> list[ListedFile]:
        """Return the data files of a table at a snapshot, each with its delete file.

        They do not contain inlined rows; merged files may hold rows of later snapshots.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        from .reports.numbers import listed_files

        with self._lake.reading() as connection:
            return listed_files(self._table(connection, table, at, with_files=True))

    def row_count(self, table: TableName, at: At = None) -> int:
        """Return the number of rows of a table at a snapshot.

        It comes from the catalog. Only files are read whose rows it cannot count: merged or flushed ones with
        rows or deletes of later snapshots, and those with several delete files, or with a delete file and
        inlined deletes.

        Raises:
            TableNotFoundError, SchemaNotFoundError, SnapshotNotFoundError: it did not exist then.
            StorageError: a file that must be read is missing or damaged.
        """
        from .reports.numbers import count_rows

        self._lake.refuse_unusable()
        with self._lake.reading() as connection:
            found = self._table(connection, table, at)
            known, rest = count_rows(connection, self._lake.catalog, found)
        self._lake.report_read(found.name)
        if not rest.files:
            return known
        from ..storage.rows.table_reader import count_live_rows

        return known + count_live_rows(rest, self._lake.locate)

    def column_bounds(self, table: TableName, column: str, at: At = None) -> ColumnBounds | None:
        """Return the smallest and largest value of a column at a snapshot, from the catalog alone.

        None if the catalog does not have them exactly: files with deleted rows, long strings, NaN, types
        without bounds. NULLs are ignored.

        Raises:
            ColumnNotFoundError: no such top-level column.
            TableNotFoundError, SchemaNotFoundError, SnapshotNotFoundError: it did not exist then.
        """
        from .reports.numbers import column_bounds

        self._lake.refuse_unusable()
        with self._lake.reading() as connection:
            found = self._table(connection, table, at)
            bounds = column_bounds(connection, self._lake.catalog, found, column)
        self._lake.report_read(found.name)
        return bounds

    def changes(self, table: TableName, start: int | datetime | str, end: int | datetime | str) -> ChangeFeed:
        """Return the changes of a table's rows from snapshot ``start`` to ``end``, both included.

        Bounds are snapshot ids, tags, or aware times: the first snapshot at or after the start, the last at
        or before the end. Where the start is after the end, there are no changes. Rows have the columns of
        the end snapshot. Compaction changes no rows, and is left out.

        Raises:
            SnapshotNotFoundError: a bound has expired, or never existed. TableNotFoundError,
            SchemaNotFoundError: there is no such table at the end.
        """
        from .reports.changes import ChangeFeed, find_changes

        self._lake.refuse_unusable()
        with self._lake.reading() as connection:
            first = self._first_snapshot(connection, start)
            last = self._lake.snapshot(connection, end)
            plan = find_changes(connection, self._lake.catalog, QualifiedName.of(table), first.id, last)
        self._lake.report_read(plan.table.name)
        return ChangeFeed(plan, self._lake.locate)

    def changes_after(self, table: TableName, after: int | str, at: At = None) -> ChangeFeed:
        """Return the changes of rows after a snapshot (id or tag), up to another; see ``changes``.

        Raises:
            ChangesExpiredError: a snapshot between them has expired.
            TableNotFoundError, SchemaNotFoundError: there is no such table at the end.
        """
        from .reports.changes import ChangeFeed

        plan = self._plan_after(table, self._after(after), at)
        self._lake.report_read(plan.table.name)
        return ChangeFeed(plan, self._lake.locate)

    def _after(self, after: int | str) -> int:
        return self.snapshot_at(after).id if isinstance(after, str) else require_id(after)

    def _plan_after(self, table: TableName, after: int, at: At) -> ChangeFeedPlan:
        from .reports.changes import check_complete, find_changes

        self._lake.refuse_unusable()
        name = QualifiedName.of(table)
        with self._lake.reading() as connection:
            last = self._lake.snapshot(connection, at)
            check_complete(connection, self._lake.catalog.tables, str(name), after, last.id)
            return find_changes(connection, self._lake.catalog, name, after + 1, last)

    def changes_of_source(
        self, table: TableName, source_id: TableId, after: int, upto: SnapshotId
    ) -> ChangeFeed:
        """Return the changes of the older table that a restore replaced with the named one.

        Raises:
            ChangesExpiredError: a snapshot between them has expired.
        """
        from .reports.changes import ChangeFeed, check_complete, find_changes

        with self._lake.reading() as connection:
            tables = self._lake.catalog.tables
            check_complete(connection, tables, str(QualifiedName.of(table)), after, upto)
            last = self._lake.snapshot(connection, upto)
            rows = read.table_rows(connection, tables, last.id)
            name = next(row.qualified for row in rows if row.id == source_id)
            plan = find_changes(connection, self._lake.catalog, name, after + 1, last)
        self._lake.report_read(name)
        return ChangeFeed(plan, self._lake.locate)

    def is_unchanged(self, table_id: TableId, after: SnapshotId, upto: SnapshotId) -> bool:
        """Return True if no snapshot after one, up to another, changed a table; False if one has expired."""
        with self._lake.reading() as connection:
            newer = read_snapshots.newer_query(self._lake.catalog.tables, after).ask(connection)
        between = [one for one in newer if one.id <= upto]
        is_complete = len(between) == upto - after
        return is_complete and not any(changes_table(one.changes, table_id) for one in between)

    def restored_tables(self) -> tuple[RestoredTable, ...]:
        """List what restores did to tables, even if their snapshots have expired."""
        with self._lake.reading() as connection:
            return restores.restores(connection, self._lake.catalog)

    def insertions(
        self, table: TableName, start: int | datetime | str, end: int | datetime | str
    ) -> pa.Table:
        """Return the rows inserted from snapshot ``start`` to ``end``; see ``changes``."""
        return self.changes(table, start, end).insertions()

    def deletions(self, table: TableName, start: int | datetime | str, end: int | datetime | str) -> pa.Table:
        """Return the rows deleted from snapshot ``start`` to ``end``; see ``changes``."""
        return self.changes(table, start, end).deletions()

    def registered_files(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of the full paths that are data files of the lake, of any table and snapshot."""
        with self._lake.reading() as connection:
            return registered(connection, self._lake.catalog, paths)

    def table_changes(
        self, table: TableName, since: int | str, kinds: Collection[str]
    ) -> TableChanges | None:
        """Return the changes of a table after a snapshot (id or tag): ``insert``, ``delete``, ``schema``.

        ``kinds`` says what to look for (``data`` means insert or delete). None means no such change, or that
        the table does not exist yet. Compaction and flushes do not count; a truncation does even where the
        table had no row.

        Raises:
            UnsupportedFeatureError: the table lies in a nested schema, which the lake's version has not.
        """
        return self._changes(table, since, kinds, with_expired=False)

    def possible_changes(self, table: TableName, after: int, kinds: Collection[str]) -> TableChanges | None:
        """Return the changes as ``table_changes``; if there are none, those that expired ones may hold.

        Raises:
            UnsupportedFeatureError: as ``table_changes``.
        """
        return self._changes(table, after, kinds, with_expired=True)

    def _changes(
        self, table: TableName, since: int | str, kinds: Collection[str], *, with_expired: bool
    ) -> TableChanges | None:
        from .reports import watch

        name = QualifiedName.of(table)
        if name.schema.parent is not None:  # a table that cannot exist would be waited for
            self._lake.catalog.tables.writer.check(Feature.NESTED_SCHEMAS)
        catalog = self._lake.catalog
        with self._lake.translated():
            return watch.table_changes(catalog, name, self._after(since), kinds, with_expired=with_expired)

    def range_report(self, table: TableName, after: int, kinds: Collection[str]) -> RangeReport | None:
        """Summarize what the snapshots after one did to a table, None as ``table_changes``.

        Where a snapshot of the range has expired, or the table is gone, its rows are not counted. If the
        expired ones are all that can have changed it, the report covers only those.

        Raises:
            UnsupportedFeatureError: as ``table_changes``.
        """
        from ..planning.reading.watch import RangeReport
        from .reports.watch import reported

        found = self.possible_changes(table, after, kinds)
        if found is None:
            return None
        try:
            plan = self._plan_after(table, after, found.to_snapshot)
        except (
            errors.ChangesExpiredError,
            errors.SnapshotNotFoundError,
            errors.TableNotFoundError,
            errors.SchemaNotFoundError,
        ):
            return RangeReport(
                found.table,
                found.table_id,
                found.from_snapshot,
                found.to_snapshot,
                found.changes,
                is_complete=False,
            )
        with self._lake.reading() as connection:
            return reported(connection, self._lake.catalog, plan, found.changes)

    def commit_reports(self, snapshot_id: int) -> list[RangeReport]:
        """Summarize what one snapshot did to each table that it changed.

        Raises:
            SnapshotNotFoundError: it has expired, or never existed.
        """
        from .reports.watch import commit_reports

        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, snapshot_id)
            return list(commit_reports(connection, self._lake.catalog, snapshot))

    def news(self, since: int | None) -> watch.News:
        """Read the snapshots after ``since``, in one statement if there is none.

        For pollers that serve many callers; others call ``table_changes``.

        Raises:
            TransactionConflictError: it is newer than the newest, or the lake was migrated since it was
                opened.
        """
        from .reports import watch

        with self._lake.translated():
            return watch.news(self._lake.catalog, since)

    def clients(self, files: int = 20) -> list[LakeClient]:
        """List the clients that wrote the lake, if they recorded their names.

        DuckDB names itself in the footers of its data files, of which the newest ``files`` are opened.
        """
        from .reports.numbers import clients_in_catalog, clients_of_files, newest_files

        with self._lake.reading() as connection:
            known = clients_in_catalog(connection, self._lake.catalog.tables)
            newest = newest_files(connection, self._lake.catalog, files)
        return [*known, *clients_of_files(newest, self._lake.locate)]

    def table_health(self, tables: Collection[TableName] | None = None) -> LakeHealth:
        """Return numbers that show whether tables need maintenance, from the catalog alone; default: of all.

        Raises:
            TableNotFoundError: a table does not exist.
        """
        from .reports.health import health

        with self._lake.reading() as connection:
            return health(connection, self._lake.catalog, tables)
