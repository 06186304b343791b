"""``Lake``: an open DuckLake catalog with its files. A thin face; the rules live in the modules it calls."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from uuid6 import uuid7

from airflow_provider_ducklake.catalog import (
    bootstrap,
    cleanup,
    commit_keys,
    consumers,
    expiry,
    jobs,
    orphans,
    overwrite,
    read,
    read_snapshots,
    watch,
)
from airflow_provider_ducklake.catalog.base_lake import CatalogBase, Definitions
from airflow_provider_ducklake.catalog.base_rows import BaseRows
from airflow_provider_ducklake.catalog.catalog import Catalog
from airflow_provider_ducklake.catalog.change_feed import ChangeFeed
from airflow_provider_ducklake.catalog.column_bounds import ColumnBounds, column_bounds
from airflow_provider_ducklake.catalog.commit import KeyedCommit, PlannedCommit, Stage, commit
from airflow_provider_ducklake.catalog.compaction import (
    as_planned,
    compaction_change,
    plan_merge,
    plan_rewrite,
)
from airflow_provider_ducklake.catalog.connect import catalog_file, open_engine, parse_url, shown
from airflow_provider_ducklake.catalog.dialects import dialect_of
from airflow_provider_ducklake.catalog.flush import Flush, FlushRule
from airflow_provider_ducklake.catalog.health import LakeHealth, health
from airflow_provider_ducklake.catalog.indexes import create_indexes
from airflow_provider_ducklake.catalog.migrations.migrate import Files, MigrationResult, migrate
from airflow_provider_ducklake.catalog.options import write_option
from airflow_provider_ducklake.catalog.orphans import OrphanRule
from airflow_provider_ducklake.catalog.read_changes import check_complete, plan_changes
from airflow_provider_ducklake.catalog.registered_files import registered
from airflow_provider_ducklake.catalog.replaced_rows import find_earlier_rows, replaced_rows
from airflow_provider_ducklake.catalog.restore import RestoreRequest, restore
from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, RetryPolicy, with_retries
from airflow_provider_ducklake.catalog.row_changes import changes_of_job, read_targets
from airflow_provider_ducklake.catalog.row_counts import count_rows
from airflow_provider_ducklake.catalog.scan import plan_table
from airflow_provider_ducklake.catalog.staged import table_to_read
from airflow_provider_ducklake.catalog.table_info import ListedFile, TableInfo, listed_files, table_infos
from airflow_provider_ducklake.catalog.table_snapshot import find_table, load_table
from airflow_provider_ducklake.catalog.tables import catalog_tables
from airflow_provider_ducklake.catalog.transaction import LakeTransaction, TableName
from airflow_provider_ducklake.catalog.verify import verification
from airflow_provider_ducklake.catalog.verify.repair import RepairResult, repair
from airflow_provider_ducklake.errors import (
    AlreadyExistsError,
    CatalogRefusedError,
    CatalogUnavailableError,
    InvalidInputError,
    NotADuckLakeError,
    SchemaNotFoundError,
    SnapshotNotFoundError,
    TransactionConflictError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
    ViewNotFoundError,
)
from airflow_provider_ducklake.planning.compaction import MergeRule, RewriteRule
from airflow_provider_ducklake.planning.expiry import ExpiryRule
from airflow_provider_ducklake.planning.retention import NO_FLOOR
from airflow_provider_ducklake.planning.write import NewTable
from airflow_provider_ducklake.spec.commit_key import CommitKey, OnClear
from airflow_provider_ducklake.spec.identifiers import QualifiedName, fold
from airflow_provider_ducklake.spec.options import OptionRow, Options, option_text
from airflow_provider_ducklake.spec.paths import directory_name, directory_path, is_absolute
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, Snapshot, TableSnapshot
from airflow_provider_ducklake.spec.versions import CURRENT, SpecVersion
from airflow_provider_ducklake.transaction.replay import Replay, replay_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    import pyarrow as pa
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

    from airflow_provider_ducklake.catalog.cleanup import CleanupResult
    from airflow_provider_ducklake.catalog.consumers import Consumed
    from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.catalog.expiry import ExpireResult
    from airflow_provider_ducklake.catalog.jobs import RegisteredJob
    from airflow_provider_ducklake.catalog.orphans import OrphansResult
    from airflow_provider_ducklake.catalog.questions import Question
    from airflow_provider_ducklake.catalog.read_snapshots import RecordedSnapshot
    from airflow_provider_ducklake.catalog.restore import RestoreResult
    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.planning.compaction import Compaction
    from airflow_provider_ducklake.planning.findings import Finding
    from airflow_provider_ducklake.planning.flush import FlushResult
    from airflow_provider_ducklake.planning.overwrite import PartitionValues
    from airflow_provider_ducklake.planning.row_changes import NewDeletes, RowChanges
    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.planning.staged import StagedWrite
    from airflow_provider_ducklake.planning.watch import TableChanges
    from airflow_provider_ducklake.spec.consumption import Consumer, Consumption
    from airflow_provider_ducklake.spec.ids import SchemaId, SnapshotId
    from airflow_provider_ducklake.spec.snapshots import JsonValue
    from airflow_provider_ducklake.spec.views import ViewDefinition
    from airflow_provider_ducklake.storage.filesystem import Location
    from airflow_provider_ducklake.transaction.changes import Change, MergedFile, RewrittenFile

At = int | datetime | None
STAGE_TTL = timedelta(days=7)
_SHOWN = 120  # characters of a statement in an error


class Lake:
    """An open lake. Make one with ``Lake.connect`` or ``Lake.create``.

    ``version`` is the catalog's spec version, ``data_path`` the root of its files (ends with ``/``),
    ``encrypted`` whether its files are.
    """

    def __init__(
        self,
        dialect: CatalogDialect,
        tables: CatalogTables,
        options: Sequence[OptionRow],
        storage_options: Mapping[str, Any] | None,
        data_path: str | None = None,
    ) -> None:
        lake_wide = Options.effective(options)
        self.version = tables.version
        self.data_path = data_path or lake_wide.texts.get("data_path", "")
        self.encrypted = lake_wide.flag("encrypted")
        self._catalog = Catalog(dialect, tables, self.data_path)
        self.storage_options = dict(storage_options or {})
        self._definitions = Definitions()

    @classmethod
    def connect(
        cls,
        url: str | URL,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        data_path: str | None = None,
    ) -> Lake:
        """Open an existing lake.

        ``metadata_schema`` is the database schema of the catalog's tables (PostgreSQL; None: the connection's
        default); ``storage_options`` are fsspec's, for the files. ``data_path`` is where the files lie
        now, for a lake that was moved or that others open with ``OVERRIDE_DATA_PATH``; the catalog keeps its
        own record.

        Raises:
            CatalogUnavailableError: the database cannot be reached or refuses the login.
            NotADuckLakeError: it holds no DuckLake catalog.
            UnsupportedVersionError: its spec version is newer than 1.0.
        """
        parsed = parse_url(url)
        file = catalog_file(parsed)
        if file is not None and not file.exists():
            raise NotADuckLakeError(shown(parsed))  # the driver would make an empty file
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        tables = catalog_tables(CURRENT, metadata_schema)
        try:
            with _translated(parsed), dialect.reading() as connection:
                found = dialect.has_table(connection, tables["metadata"].name, metadata_schema)
                version = _version(read.stored_versions(connection, tables) if found else [], shown(parsed))
                tables = catalog_tables(version, metadata_schema)
                options = read.option_rows(connection, tables)
        except BaseException:
            dialect.engine.dispose()
            raise
        found_at = None if data_path is None else directory_path(data_path)
        return cls(dialect, tables, options, storage_options, found_at)

    @classmethod
    def create(
        cls,
        url: str | URL,
        data_path: str,
        *,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Lake:
        """Create a lake in a database, with its files below ``data_path`` (absolute, or a URI), and open it.

        Raises:
            AlreadyExistsError: the database holds a lake already.
            InvalidInputError: the data path is relative.
            CatalogUnavailableError: the database cannot be reached or refuses the login.
        """
        if not is_absolute(data_path):
            raise InvalidInputError(
                f"The data path {data_path!r} is relative; give an absolute path or a URI."
            )
        parsed = parse_url(url)
        dialect = dialect_of(open_engine(parsed), metadata_schema)
        try:
            with _translated(parsed):
                bootstrap.bootstrap(dialect, catalog_tables(CURRENT, metadata_schema), data_path)
        finally:
            dialect.engine.dispose()
        return cls.connect(parsed, metadata_schema=metadata_schema, storage_options=storage_options)

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._catalog.dialect.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({shown(self._catalog.dialect.engine.url)!r})"

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _translated(self._catalog.dialect.engine.url), self._catalog.dialect.reading() as connection:
            yield connection

    def current_snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        with self._reading() as connection:
            return read_snapshots.head(connection, self._catalog.tables)

    def snapshots(self) -> list[RecordedSnapshot]:
        """Return every snapshot with its author, message and parsed changes, oldest first."""
        with self._reading() as connection:
            return read_snapshots.recorded_snapshots(connection, self._catalog.tables)

    def snapshot_at(self, *, version: int | None = None, timestamp: datetime | None = None) -> Snapshot:
        """Return the snapshot with that id, or the newest at or before an aware time.

        Raises:
            SnapshotNotFoundError: it expired, lies in the future, or before the first one.
            InvalidInputError: both or neither given, or a time without zone.
        """
        if (version is None) == (timestamp is None):
            raise InvalidInputError("Give version or timestamp, exactly one of them.")
        with self._reading() as connection:
            return self._snapshot(connection, version if version is not None else timestamp)

    def _snapshot(self, connection: Connection, at: At) -> Snapshot:
        if at is None:
            return read_snapshots.head(connection, self._catalog.tables)
        if isinstance(at, datetime):
            return read_snapshots.snapshot_by_time(connection, self._catalog.tables, _aware(at))
        return read_snapshots.snapshot_by_id(connection, self._catalog.tables, at)

    def _first_snapshot(self, connection: Connection, start: int | datetime) -> Snapshot:
        if isinstance(start, datetime):
            return read_snapshots.snapshot_from_time(connection, self._catalog.tables, _aware(start))
        return self._snapshot(connection, start)

    def tables(self, at: At = None) -> list[QualifiedName]:
        """Return the names of all tables at a snapshot (id or aware time; None: now), sorted."""
        return [row.qualified for row in self.table_rows(at)]

    def table_rows(self, at: At = None) -> list[read.TableRow]:
        """Return the catalog's rows of all tables at a snapshot."""
        with self._reading() as connection:
            return read.table_rows(connection, self._catalog.tables, self._snapshot(connection, at).id)

    def view(self, view: TableName, at: At = None) -> ViewDefinition:
        """Return what a view shows, as its author wrote it.

        Raises:
            ViewNotFoundError: no such view at that snapshot.
        """
        name = QualifiedName.of(view)
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            found = read.find_view(connection, self._catalog.tables, snapshot.id, name)
        if found is None:
            raise ViewNotFoundError(str(name), snapshot.id)
        return found[1]

    def schema(self, name: str, at: At = None) -> read.SchemaRow | None:
        """Return a schema by name, None if there is none."""
        with self._reading() as connection:
            return read.find_schema(connection, self._catalog.tables, self._snapshot(connection, at).id, name)

    def newest(self) -> CatalogBase:
        """Return the newest snapshot as a transaction asks for it, with the options of this moment."""
        tables = self._catalog.tables
        questions: dict[str, Question[Any]] = {
            "head": read_snapshots.which_head(tables),
            "options": read.which_options(tables),
        }
        with _translated(self._catalog.dialect.engine.url):
            answers = self._catalog.dialect.ask_at_once(questions)
        head = answers["head"]
        self._definitions = self._definitions.at(head.schema_version)
        return CatalogBase(self._catalog, head, self._reading, self._definitions, answers["options"])

    def effective_options(self, schema_id: SchemaId | None = None) -> Options:
        """Return the options in force for new tables of a schema."""
        with self._reading() as connection:
            return Options.effective(read.option_rows(connection, self._catalog.tables), schema_id)

    def options(self, table: TableName | None = None, schema: str | None = None) -> Options:
        """Return the options in force for a table, a schema, or the whole lake.

        Raises:
            SchemaNotFoundError, TableNotFoundError: it does not exist.
        """
        if table is not None:
            return self.table_snapshot(table).options
        with self._reading() as connection:
            scope, scope_id = self._option_scope(connection, schema, None)
            rows = read.option_rows(connection, self._catalog.tables)
        return Options.effective(rows, scope_id if scope == "schema" else None)

    def set_option(
        self,
        key: str,
        value: str | float | bool,  # noqa: FBT001 - a value, not a switch
        schema: str | None = None,
        table: TableName | None = None,
    ) -> None:
        """Set an option of the lake, of a schema or of a table; not versioned, makes no snapshot.

        Raises:
            InvalidOptionError: no such option, one that cannot be set, or a value out of range.
            SchemaNotFoundError, TableNotFoundError: it does not exist.
        """
        self._refuse_unwritable()
        text = option_text(key, value)
        with _translated(self._catalog.dialect.engine.url):

            def attempt() -> None:
                with self._catalog.dialect.writing() as connection:
                    scope, scope_id = self._option_scope(connection, schema, table)
                    write_option(connection, self._catalog.tables, OptionRow(key, text, scope, scope_id))
                    connection.commit()

            with_retries(self._catalog.dialect, DEFAULT_RETRY, attempt)

    def _option_scope(
        self, connection: Connection, schema: str | None, table: TableName | None
    ) -> tuple[str | None, int | None]:
        tables = self._catalog.tables
        head = read_snapshots.head(connection, tables)
        if table is not None:
            return "table", find_table(connection, tables, head, QualifiedName.of(table)).id
        if schema is None:
            return None, None
        found = read.find_schema(connection, tables, head.id, schema)
        if found is None:
            raise SchemaNotFoundError(schema, head.id)
        return "schema", found.id

    def table_snapshot(self, table: TableName, at: At = None, *, with_files: bool = False) -> TableSnapshot:
        """Return a table at a snapshot (id or aware time; None: now), with its live files if asked.

        Raises:
            SchemaNotFoundError, TableNotFoundError, SnapshotNotFoundError: it did not exist then.
            UnsupportedFeatureError: the lake is encrypted.
        """
        self._refuse_unusable()
        name = QualifiedName.of(table)
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            return load_table(connection, self._catalog, snapshot, name, with_files=with_files)

    def new_table(self, name: QualifiedName) -> NewTable:
        """Return where a table that does not exist yet is to be created.

        Raises:
            SchemaNotFoundError: its schema does not exist.
            AlreadyExistsError: a view has the name.
        """
        self._refuse_unwritable()
        with self._reading() as connection:
            snapshot = read_snapshots.head(connection, self._catalog.tables)
            schema = read.find_schema(connection, self._catalog.tables, snapshot.id, name.schema)
            if schema is None:
                raise SchemaNotFoundError(name.schema, snapshot.id)
            views = read.view_names(connection, self._catalog.tables, snapshot.id, schema.id)
            options = Options.effective(read.option_rows(connection, self._catalog.tables), schema.id)
        if fold(name.name) in {fold(view) for _, view in views}:
            raise AlreadyExistsError("view", str(name))
        uuid = str(uuid7())
        root = schema.path.below(self.data_path) + directory_name(name.name, uuid)
        return NewTable(snapshot, schema.id, QualifiedName(schema.name, name.name), uuid, root, options)

    def read_arrow(
        self,
        table: TableName,
        at: At = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        staged: Sequence[StagedWrite] = (),
    ) -> pa.Table:
        """Return a table's rows at a snapshot, without Spark: for small reads; in no promised order.

        With ``where``, a condition such as ``"price > 10 AND day = '2024-01-31'"``, only rows for which it is
        true. With ``staged``, as the newest snapshot would have it were those of them to this table
        committed.

        Raises:
            InvalidPredicateError: the condition cannot be read, or compares a column with what is no value of
                it.
            ColumnNotFoundError: no such column.
            UnsupportedFeatureError: a file has types or a layout that this release cannot read.
            StorageError: a data file or delete file is missing or damaged.
            InvalidInputError: ``staged`` together with ``at``, or staged writes that do not go together.
            TransactionConflictError: the staged writes do not fit the table as it is by now.
        """
        from airflow_provider_ducklake.storage.table_reader import read_rows  # noqa: PLC0415 - heavy

        return read_rows(self._plan(table, at, columns, where, staged), self.locate)

    def scan(
        self,
        table: TableName,
        at: At = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        stats_of: Sequence[str] = (),
    ) -> ScanPlan:
        """Return what ``read_arrow`` would read: the files that may hold wanted rows, and inlined rows.

        The files have the statistics of the columns that ``where`` and ``stats_of`` name.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: as ``read_arrow``.
        """
        return self._plan(table, at, columns, where, (), stats_of=stats_of)

    def _plan(  # noqa: PLR0913 - the last has a default
        self,
        table: TableName,
        at: At,
        columns: Sequence[str] | None,
        where: str | None,
        staged: Sequence[StagedWrite],
        *,
        stats_of: Sequence[str] = (),
    ) -> ScanPlan:
        self._refuse_unusable()
        if staged and at is not None:
            raise InvalidInputError("Staged writes follow the newest snapshot: leave at out.")
        name = QualifiedName.of(table)
        with self._reading() as connection:  # one for all: a flush moves rows between files and the catalog
            found = self._snapshot(connection, at)
            without_files = table_to_read(connection, self._catalog, found, name, staged)
            chosen = None if columns is None else tuple(columns)
            return plan_table(connection, self._catalog, without_files, chosen, where, stats_of=stats_of)

    def plan_merge(
        self,
        table: TableName,
        rule: MergeRule | None = None,
        *,
        where: str | None = None,
        older_than: datetime | None = None,
    ) -> Compaction:
        """Return which small files of a table can become one, without that any snapshot shows other rows.

        ``where``: only files that may hold a row for which it is true. ``older_than``: only files of
        snapshots before that time.

        Raises:
            InvalidPredicateError, ColumnNotFoundError, TableNotFoundError, SchemaNotFoundError: as the words
                say.
        """
        self._refuse_unwritable()
        rule = rule or MergeRule()
        with self._reading() as connection:
            snapshot = self._snapshot(connection, None)
            found = load_table(connection, self._catalog, snapshot, QualifiedName.of(table), with_files=False)
            if older_than is not None:
                rule = replace(rule, before=self._first_since(connection, older_than))
            files = None
            if where is not None:
                files = plan_table(connection, self._catalog, found, (), where).files
            return plan_merge(connection, self._catalog, found, rule, files)

    def plan_rewrite(self, table: TableName, rule: RewriteRule | None = None) -> Compaction:
        """Return which files of a table are better written anew, without the rows that were deleted.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        self._refuse_unwritable()
        with self._reading() as connection:
            snapshot = self._snapshot(connection, None)
            found = load_table(connection, self._catalog, snapshot, QualifiedName.of(table), with_files=False)
            return plan_rewrite(connection, self._catalog, found, rule or RewriteRule())

    def commit_compacted(
        self, table: TableSnapshot, files: Collection[MergedFile | RewrittenFile], info: CommitInfo
    ) -> CommittedSnapshot | None:
        """Put files, of one kind, in the place of those that they were written of.

        Raises:
            TransactionConflictError: rows of a file that goes were deleted or moved since, or the table was
                altered; nothing landed.
        """
        if not files:
            return None
        with self._reading() as connection:
            head = self._snapshot(connection, None)
            if len(as_planned(connection, self._catalog, table.table_id, files)) < len(files):
                raise TransactionConflictError(
                    "compact files of it", "changed or moved rows of them", str(table.name), head.id
                )
        return self.commit(head.id, (compaction_change(table, files),), info)

    def as_planned(
        self, table: TableSnapshot, files: Collection[MergedFile | RewrittenFile]
    ) -> list[MergedFile | RewrittenFile]:
        """Return those of the compacted files whose sources are what they were when they were read."""
        with self._reading() as connection:
            return as_planned(connection, self._catalog, table.table_id, files)

    def flush_inlined_data(
        self,
        table: TableName | None = None,
        *,
        schema: str | None = None,
        min_rows: int = 0,
        info: CommitInfo | None = None,
        dry_run: bool = False,
    ) -> list[FlushResult]:
        """Move rows and deletes that lie in the catalog into Parquet files, as one snapshot; say what was.

        No reader sees a difference, at any snapshot. Without ``table``: all tables of a schema, or of the
        lake, but those whose option ``auto_compact`` is off. Tables with fewer than ``min_rows`` rows and
        deletes there are left alone. What others insert meanwhile stays in the catalog.

        Raises:
            TableNotFoundError, SchemaNotFoundError: it does not exist.
            InvalidInputError: a table and a schema, or ``min_rows`` below 0.
            UnsupportedFeatureError: rows in a database of which this release cannot read inlined rows; or
                the table, named, has a column of a type that it does not write, as ``interval``.
            TransactionConflictError: others deleted such rows again and again meanwhile; nothing landed.
        """
        self._refuse_unwritable()
        if schema is not None and self.schema(schema) is None:
            raise SchemaNotFoundError(schema, self.current_snapshot().id)
        rule = FlushRule(None if table is None else QualifiedName.of(table), schema, min_rows)

        def commit_stages(stages: Sequence[Stage], job_ids: Sequence[str]) -> CommittedSnapshot | None:
            return self.commit_stages(stages, info or CommitInfo(), job_ids=job_ids)

        flush = Flush(self._catalog, self.locate, rule, commit_stages)
        with _translated(self._catalog.dialect.engine.url):
            return flush.dry_run() if dry_run else flush.run()

    def _first_since(self, connection: Connection, time: datetime) -> SnapshotId | None:
        """Return the first snapshot at or after a time; None: there is none yet."""
        try:
            return self._first_snapshot(connection, time).id
        except SnapshotNotFoundError:
            return None

    def table_info(self, table: TableName | None = None, at: At = None) -> list[TableInfo]:
        """Return files, sizes and inlined rows of all tables, or of one, from the catalog alone.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            name = None if table is None else QualifiedName.of(table)
            if name is not None:
                find_table(connection, self._catalog.tables, snapshot, name)
            return table_infos(connection, self._catalog, snapshot.id, name)

    def files(self, table: TableName, at: At = None) -> list[ListedFile]:
        """Return the data files of a table at a snapshot, each with its delete file.

        Rows that the catalog itself keeps are in none of them; merged files may hold rows of later snapshots.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            name = QualifiedName.of(table)
            return listed_files(load_table(connection, self._catalog, snapshot, name, with_files=True))

    def row_count(self, table: TableName, at: At = None) -> int:
        """Return the number of rows of a table at a snapshot.

        The catalog knows it; files are read only where it does not: of a merged or flushed file that has rows
        or deletes of later snapshots.

        Raises:
            TableNotFoundError, SchemaNotFoundError, SnapshotNotFoundError: it did not exist then.
            StorageError: a file that has to be read is missing or damaged.
        """
        self._refuse_unusable()
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            name = QualifiedName.of(table)
            found = load_table(connection, self._catalog, snapshot, name, with_files=False)
            known, rest = count_rows(connection, self._catalog, found)
        if not rest.files:
            return known
        from airflow_provider_ducklake.storage.table_reader import count_live_rows  # noqa: PLC0415 - heavy

        return known + count_live_rows(rest, self.locate)

    def column_bounds(self, table: TableName, column: str, at: At = None) -> ColumnBounds | None:
        """Return the least and the greatest value of a column at a snapshot, from the catalog alone.

        None where the catalog does not say them exactly: files with deleted rows, long texts, NaN, types
        without bounds. NULLs are no values.

        Raises:
            ColumnNotFoundError: no such top-level column.
            TableNotFoundError, SchemaNotFoundError, SnapshotNotFoundError: it did not exist then.
        """
        self._refuse_unusable()
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            name = QualifiedName.of(table)
            found = load_table(connection, self._catalog, snapshot, name, with_files=False)
            return column_bounds(connection, self._catalog, found, column)

    def changes(self, table: TableName, start: int | datetime, end: int | datetime) -> ChangeFeed:
        """Return how a table's rows changed from snapshot ``start`` to ``end``, both included.

        Bounds are snapshot ids, or aware times: the first snapshot at or after the start, the last at or
        before the end. Rows have the columns of the end. Compaction changes no rows, and is left out.

        Raises:
            SnapshotNotFoundError: a bound expired, or never was.
            TableNotFoundError, SchemaNotFoundError: there is no such table at the end.
        """
        self._refuse_unusable()
        with self._reading() as connection:
            first = self._first_snapshot(connection, start)
            last = self._snapshot(connection, end)
            plan = plan_changes(connection, self._catalog, QualifiedName.of(table), first.id, last)
        return ChangeFeed(plan, self.locate)

    def changes_after(self, table: TableName, after: int, at: At = None) -> ChangeFeed:
        """Return how a table's rows changed after a snapshot, up to another; see ``changes``.

        Raises:
            ChangesExpiredError: a snapshot between them has expired.
            TableNotFoundError, SchemaNotFoundError: there is no such table at the end.
        """
        self._refuse_unusable()
        name = QualifiedName.of(table)
        with self._reading() as connection:
            last = self._snapshot(connection, at)
            check_complete(connection, self._catalog.tables, str(name), after, last.id)
            plan = plan_changes(connection, self._catalog, name, after + 1, last)
        return ChangeFeed(plan, self.locate)

    def insertions(self, table: TableName, start: int | datetime, end: int | datetime) -> pa.Table:
        """Return the rows that came from snapshot ``start`` to ``end``; see ``changes``."""
        return self.changes(table, start, end).insertions()

    def deletions(self, table: TableName, start: int | datetime, end: int | datetime) -> pa.Table:
        """Return the rows that went from snapshot ``start`` to ``end``; see ``changes``."""
        return self.changes(table, start, end).deletions()

    def locate(self, path: str) -> Location:
        """Return where a lake path lies, with this lake's storage options."""
        from airflow_provider_ducklake.storage.filesystem import open_filesystem  # noqa: PLC0415 - heavy

        return open_filesystem(path, self.storage_options)

    def registered_files(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of the full paths that are data files of the lake, of whatever table and snapshot."""
        with self._reading() as connection:
            return registered(connection, self._catalog, paths)

    def transaction(
        self,
        author: str | None = None,
        message: str | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> LakeTransaction:
        """Return a transaction for a ``with`` block: one snapshot over any number of schemas and tables.

        With a ``commit_key`` the commit is made once: a block that runs again under the same key changes
        nothing, and ``committed`` is the snapshot of the first time, already when the block begins.

        Raises:
            UnsupportedFeatureError: the lake is encrypted.
        """
        self._refuse_unwritable()
        key = CommitKey((commit_key,)) if isinstance(commit_key, str) else commit_key
        keyed = None
        if key is not None:
            keyed = self.keyed_commit(key, OnClear.APPEND)
            extra = {"commit_key": list(key.names), **(extra or {})}
        return LakeTransaction(self, CommitInfo(author, message, extra), keyed)

    def append_arrow(
        self,
        table: TableName,
        rows: pa.Table,
        message: str | None = None,
        *,
        author: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Append an Arrow table as one snapshot, without Spark: for small writes; no rows, no snapshot.

        See ``LakeTransaction.append_arrow`` for where the rows go, and ``transaction`` for ``commit_key``.

        Raises:
            SchemaMismatchError: lists every column that is missing, too many or of another type.
            TableNotFoundError, StorageError, CommitError: as the words say; nothing landed.
        """
        with self.transaction(author=author, message=message, commit_key=commit_key) as tx:
            tx.append_arrow(table, rows)
        return tx.committed

    def create_indexes(self) -> list[str]:
        """Add the indexes that large catalogs need where they are missing; return the names of new ones.

        The format has none; DuckDB works on beside them. Not versioned, makes no snapshot.
        """
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            return create_indexes(self._catalog)

    def commit(
        self,
        base: SnapshotId,
        changes: Iterable[Change],
        info: CommitInfo,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        keyed: KeyedCommit | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes that were planned on snapshot ``base``; see ``catalog.commit``.

        Raises:
            InvalidInputError: the lake demands a commit message and there is none.
        """
        planned = PlannedCommit((Stage(base, tuple(changes)),), info, keyed)
        self._demand_message(planned)
        return self.commit_planned(planned, retry)

    def commit_stages(
        self,
        stages: Sequence[Stage],
        info: CommitInfo,
        *,
        keyed: KeyedCommit | None = None,
        job_ids: Collection[str] = (),
        consumed: Consumed | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes planned on several snapshots as one; each is checked against what followed its own.

        The commit releases the jobs that wrote the files; where nothing is to be committed they stay as they
        are. What is ``consumed`` is noted in the same transaction, also without changes.

        Raises:
            InvalidInputError: the lake demands a commit message and there is none.
            FilesGivenUpError: a job was released before.
        """
        planned = PlannedCommit(tuple(stages), info, keyed, releases=tuple(job_ids), consumed=consumed)
        self._demand_message(planned)
        return self.commit_planned(planned)

    def _demand_message(self, planned: PlannedCommit) -> None:
        if planned.changes and planned.info.message is None:
            planned.info.check(self.effective_options())

    def commit_planned(
        self, planned: PlannedCommit, retry: RetryPolicy = DEFAULT_RETRY
    ) -> CommittedSnapshot | None:
        """Commit what was planned, and checked against the lake's options."""
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            return commit(self._catalog, planned, self.locate, retry)

    def consumptions(self, consumer: Consumer) -> tuple[Consumption, ...]:
        """Return which changes a consumer has consumed, oldest first; see ``DuckLakeSparkSQLOperator``."""
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            consumers.ensure_table(self._catalog)
        with self._reading() as connection:
            return consumers.consumptions(connection, self._catalog, consumer)

    def register_job(self, job_id: str, prefix: str) -> None:
        """Note that a job is about to write files into a directory, which another task will commit."""
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            jobs.register(self._catalog, job_id, prefix)

    def release_job(self, job_id: str) -> bool:
        """Give the files of a job up: nobody can commit them any more; return whether somebody could."""
        with _translated(self._catalog.dialect.engine.url):
            return jobs.release(self._catalog, job_id)

    def registered_jobs(self, job_ids: Collection[str]) -> dict[str, RegisteredJob]:
        """Return those of the jobs that were registered, by their ids."""
        with self._reading() as connection:
            return jobs.registered_jobs(connection, self._catalog, job_ids)

    def snapshot_of_job(self, job_id: str) -> SnapshotId | None:
        """Return the snapshot that added files of a job, 0 where they wait for deletion; None: no files."""
        with self._reading() as connection:
            return jobs.snapshot_of_job(connection, self._catalog, job_id)

    def protected_prefixes(self, stage_ttl: timedelta = STAGE_TTL) -> frozenset[str]:
        """Return the directories of staged writes that wait for their commit, if no older than that.

        A clean-up of files that no snapshot knows has to leave them alone.
        """
        with self._reading() as connection:
            return jobs.protected_prefixes(connection, self._catalog, stage_ttl)

    def replacing_where(
        self, table: TableSnapshot, where: str, found: Sequence[NewDeletes] | None = None
    ) -> tuple[Change, ...]:
        """Return the changes that take out the rows for which a condition is true, as the snapshot has them.

        ``found`` are the rows in files that ``too_large_to_read`` returned, as a job found them.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: the condition cannot be read.
            InvalidInputError: too many bytes would have to be read; see ``catalog.overwrite``.
            TransactionConflictError: a file in which rows were found is gone.
        """
        plan = self._plan((table.name.schema, table.name.name), table.snapshot.id, (), where, ())
        changes = overwrite.changes_of_condition(self._reading, self._catalog, plan, self.locate, found)
        return tuple(changes)

    def too_large_to_read(self, table: TableSnapshot, where: str) -> ScanPlan | None:
        """Return the files in which a job is to find the rows of a condition; None: ``replacing_where`` does.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: the condition cannot be read.
        """
        plan = self._plan((table.name.schema, table.name.name), table.snapshot.id, (), where, ())
        return overwrite.too_large_to_read(self._reading, self._catalog, plan)

    def replacing_partitions(
        self, table: TableSnapshot, partitions: Collection[PartitionValues]
    ) -> tuple[Change, ...]:
        """Return the changes that take out the rows of partitions, as the snapshot has them.

        Raises:
            UnsupportedFeatureError: a file may hold rows of one beside others.
        """
        changes = overwrite.changes_of_partitions(
            self._reading, self._catalog, table, partitions, self.locate
        )
        return tuple(changes)

    def next_column_id(self, table: TableSnapshot) -> int:
        """Return a column id that the table never had."""
        with self._reading() as connection:
            return read.next_column_id(connection, self._catalog.tables, table.table_id)

    def has_live_rows(self, table: TableSnapshot) -> bool:
        """Whether the table has a live data file, or live rows in the catalog."""
        return BaseRows(self._catalog, self._reading).has_live(table)

    def keyed_commit(
        self, key: CommitKey, on_clear: OnClear = OnClear.REPLACE, *, starts_over: bool = False
    ) -> KeyedCommit:
        """Look up what was committed under a key; ``seen.done`` says that nothing is left to do.

        ``starts_over`` says that nothing the key names can have been committed by this run: what is found was
        left by a run of the same name that was deleted.

        Raises:
            ZombieCommitError: a later generation of the same task has committed.
        """
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            commit_keys.ensure_table(self._catalog)
            if starts_over:
                commit_keys.start_over(self._catalog, key)
            with self._catalog.dialect.reading() as connection:
                found = commit_keys.records(connection, self._catalog, key)
        return KeyedCommit(key, on_clear, replay_of(found, key, on_clear))

    def replaced_rows(self, replay: Replay, at: SnapshotId) -> tuple[Change, ...]:
        """Return the changes that take the rows of an earlier generation out of the tables of a snapshot.

        Nothing is written yet: the commit writes the delete files that it takes.

        Raises:
            StorageError: a file that may hold such rows, beside others, cannot be read.
        """
        with self._reading() as connection:
            snapshot = self._snapshot(connection, at)
            found = find_earlier_rows(connection, self._catalog, snapshot, replay.replaced)
        return tuple(change for one in found for change in replaced_rows(one, self.locate))

    def row_changes(self, table: TableSnapshot, changes: RowChanges) -> Stage:
        """Return what is to be committed of a job that changed rows of a table, as it read it.

        Commit it with ``commit_stages``. Files of the job that the commit makes no use of are removed then.

        Raises:
            TransactionConflictError: a file that loses rows was compacted or got other deletes since, or the
                table has other columns.
            StorageError: a delete file cannot be read.
        """
        self._refuse_unwritable()
        file_ids = [one.data_file_id for one in changes.deletes]
        with self._reading() as connection:
            targets = read_targets(connection, self._catalog, table, file_ids, changes.inlined)
        return changes_of_job(targets, changes, self.locate)

    def expire_snapshots(  # noqa: PLR0913 - all have defaults
        self,
        *,
        older_than: datetime | timedelta | None = None,
        versions: Collection[int] | None = None,
        keep_last: int | None = None,
        keep: Collection[int] = (),
        keep_author: str | None = None,
        keep_message: str | None = None,
        min_retention: timedelta = NO_FLOOR,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Forget snapshots and schedule the files that no kept snapshot can reach; the newest always stays.

        ``older_than`` is an aware time or an interval before now; without it and the next two it is the
        lake's option ``expire_older_than``. ``keep_last`` protects the newest N, alone it expires all others.
        ``keep`` protects ids, ``keep_author`` and ``keep_message`` what matches a pattern as ``release-*``,
        ``min_retention`` what is younger. Makes no snapshot.

        Raises:
            InvalidInputError: ``older_than`` together with ``versions``; nothing says what to expire; it lies
                in the future or is younger than ``min_retention``; ``keep_last`` below 1.
        """
        self._refuse_unwritable()
        if older_than is None and versions is None and keep_last is None:
            older_than = self.effective_options().age("expire_older_than")
        rule = ExpiryRule(older_than, versions, keep_last, keep, keep_author, keep_message, min_retention)
        with _translated(self._catalog.dialect.engine.url):
            return expiry.expire(self._catalog, rule, dry_run=dry_run)

    def restore(  # noqa: PLR0913 - all but the first two have defaults
        self,
        table: TableName | None = None,
        *,
        at: int | datetime,
        schema: str | None = None,
        dry_run: bool = False,
        info: CommitInfo | None = None,
        keyed: KeyedCommit | None = None,
    ) -> RestoreResult:
        """Make a table, all of a schema or (neither) the lake what it was at a snapshot, as a new snapshot.

        Columns, names, keys and comments come back as well; what was made since goes, what was dropped since
        comes back. ``dry_run`` changes nothing and says what would be done. See ``catalog.restore``.

        Raises:
            SnapshotNotFoundError: the snapshot has expired, or never was.
            TableNotFoundError, SchemaNotFoundError: nothing of that name was there then.
            AlreadyExistsError: its name has been given to something else.
            StorageError: a file of then is gone; nothing was changed.
            TransactionConflictError: a table was changed meanwhile; nothing was changed.
        """
        self._refuse_unwritable()
        name = None if table is None else QualifiedName.of(table)
        request = RestoreRequest(at, name, schema, dry_run)
        with _translated(self._catalog.dialect.engine.url):
            return restore(self, self._catalog, request, info or CommitInfo(), keyed)

    def migrate(self, *, dry_run: bool = False, backup: bool = True) -> MigrationResult:
        """Bring a catalog of 0.1 to 0.4 to 1.0, in place; every snapshot reads as before.

        Stop clients of the old version first. With ``backup``, a catalog that is a file (SQLite, DuckDB) is
        copied beside itself before. ``dry_run`` changes nothing and says what would be done.

        Raises:
            UnsupportedFeatureError: a merged file cannot be copied as it is; nothing was changed.
            CatalogError, StorageError: the catalog contradicts itself, or a merged file is missing; as well.
            TransactionConflictError: clients of the old version went on committing; nothing was changed.
        """
        with _translated(self._catalog.dialect.engine.url):
            result = migrate(
                self._catalog, Files(self.locate, self._refuse_unusable), dry_run=dry_run, backup=backup
            )
        if not dry_run:
            self._catalog = replace(
                self._catalog, tables=catalog_tables(CURRENT, self._catalog.tables.metadata_schema)
            )
            self.version = CURRENT
            self._definitions = Definitions()
        return result

    def cleanup_old_files(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        min_retention: timedelta = NO_FLOOR,
        dry_run: bool = False,
    ) -> CleanupResult:
        """Delete files that were scheduled for deletion before a moment, by the catalog's clock.

        ``older_than`` is an aware time or an interval before now; default: the lake's option
        ``delete_older_than``, of 2 days. A file that a row of the lake names stays. Makes no snapshot.

        Raises:
            InvalidInputError: ``older_than`` lies in the future or is younger than ``min_retention``.
            StorageError: the data path is not there. What happens to single files is in the result.
        """
        self._refuse_unwritable()
        age = self._deletion_age(older_than)
        with _translated(self._catalog.dialect.engine.url):
            return cleanup.cleanup(self._catalog, age, min_retention, self.storage_options, dry_run=dry_run)

    def delete_orphaned_files(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        min_retention: timedelta = NO_FLOOR,
        stage_ttl: timedelta = STAGE_TTL,
        sole_owner: bool = False,
        dry_run: bool = False,
    ) -> OrphansResult:
        """Delete files below the data path that the catalog does not name: left by writes that failed.

        ``older_than`` says since when a file must not have changed, as for ``cleanup_old_files``: it has to
        be longer than the longest write of a client that does not register its jobs. Files of registered
        jobs that may still commit stay for ``stage_ttl``; after that nobody can commit them any more.
        ``sole_owner`` says that no other lake has files below the data path, whatever they look like.

        Raises:
            SharedDataPathError: another lake seems to keep files below the data path.
            InvalidInputError: ``older_than`` lies in the future or is younger than ``min_retention``.
            StorageError: the data path cannot be listed. What happens to single files is in the result.
        """
        self._refuse_unwritable()
        rule = OrphanRule(self._deletion_age(older_than), min_retention, stage_ttl, sole_owner)
        with _translated(self._catalog.dialect.engine.url):
            return orphans.delete_orphans(self._catalog, rule, self.storage_options, dry_run=dry_run)

    def _deletion_age(self, older_than: datetime | timedelta | None) -> datetime | timedelta:
        if older_than is not None:
            return older_than
        age = self.effective_options().age("delete_older_than")
        assert age is not None, "the option has a default"
        return age

    def table_changes(self, table: TableName, since: int, kinds: Collection[str]) -> TableChanges | None:
        """Return what happened to a table after snapshot ``since``: ``insert``, ``delete``, ``schema``.

        ``kinds`` says what to look for (``data`` means insert or delete). None: nothing of it, or no such
        table yet. Compaction and flushes are nothing.
        """
        with self._reading() as connection:
            return watch.table_changes(
                connection, self._catalog.tables, QualifiedName.of(table), since, kinds
            )

    def table_health(self, tables: Collection[TableName] | None = None) -> LakeHealth:
        """Return numbers that say whether tables want maintenance, from the catalog alone; default: of all.

        Raises:
            TableNotFoundError: no such table.
        """
        with self._reading() as connection:
            return health(connection, self._catalog, tables)

    def verify(
        self,
        tables: Collection[TableName] | None = None,
        *,
        sample: float = 1.0,
        with_notes: bool = False,
    ) -> list[Finding]:
        """Return which invariants of the format the lake breaks; nothing found is an empty list.

        ``tables``: only those as they are named now, and nothing that concerns the whole lake. ``sample`` is
        the share of the files that are opened, drawn anew each time; with 0 only the catalog is read.
        ``with_notes``: also what is legal and worth knowing, as files outside the data path.

        Raises:
            TableNotFoundError: no such table.
            InvalidInputError: ``sample`` is not from 0 to 1.
            UnsupportedVersionError: the catalog is older than 1.0.
            UnsupportedFeatureError: the lake is encrypted.
        """
        self._refuse_unwritable()
        with self._reading() as connection:
            only = verification.table_ids(connection, self._catalog, tables)
        return verification.verify(
            self._catalog, self._reading, self.locate, only=only, sample=sample, with_notes=with_notes
        )

    def repair(self, findings: Sequence[Finding], *, dry_run: bool = True) -> RepairResult:
        """Mend those findings of ``verify`` that can be mended without losing anything, all or none of them.

        A snapshot is made where clients that run have to notice; no row changes in any snapshot. Look at the
        dry run first, and verify again afterwards: what lay behind a finding may come to light.

        Raises:
            CommitRetriesExceededError: other writers never let it through; nothing was changed.
        """
        self._refuse_unwritable()
        with _translated(self._catalog.dialect.engine.url):
            return repair(self._catalog, findings, dry_run=dry_run)

    def _refuse_unwritable(self) -> None:
        """Refuse to change lakes whose files or catalog we cannot work on, before anything starts."""
        if self.version is not CURRENT:
            raise UnsupportedVersionError(self.version.value, [CURRENT.value])
        self._refuse_unusable()

    def _refuse_unusable(self) -> None:
        """Refuse lakes whose files we cannot read, before anything starts."""
        if not is_absolute(self.data_path):
            raise UnsupportedFeatureError(
                f"This lake's data path {self.data_path!r} is relative, so every process would look for "
                "the files below its own working directory. Give the lake an absolute data path."
            )
        if self.encrypted:
            raise UnsupportedFeatureError(
                "This lake is encrypted. DuckDB's encrypted Parquet cannot be read by Spark or pyarrow, so "
                "this provider does not work on it; use an unencrypted lake on encrypted storage."
            )


def _aware(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise InvalidInputError(f"The time {time} has no time zone; give an aware time.")
    return time


@contextmanager
def _translated(url: URL) -> Iterator[None]:
    """Turn an error of the database into ours, whose text names the database but no secret and no value."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0]
        if error.connection_invalidated or _is_connection_error(error):
            raise CatalogUnavailableError(shown(url), reason) from None
        raise CatalogRefusedError(shown(url), reason, (error.statement or "")[:_SHOWN]) from None


def _is_connection_error(error: DBAPIError) -> bool:
    """Whether connecting itself failed; such an error has no statement."""
    return error.statement is None or "file is not a database" in str(error.orig)


def _version(texts: Sequence[str], catalog: str) -> SpecVersion:
    if not texts:
        raise NotADuckLakeError(catalog)
    return min(SpecVersion.parse(text) for text in texts)
