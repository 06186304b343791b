"""Maintenance of a lake: compaction, retention, restores, verification, migration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import SchemaNotFoundError, TransactionConflictError
from ..format.limits import NO_FLOOR
from ..format.names.identifiers import QualifiedName, SchemaName, SchemaPath, TableName
from ..format.snapshots import CommitInfo, CommitKey, CommittedSnapshot, JsonValue, TableSnapshot
from ..format.versions import DEFAULT, SpecVersion, check_target, is_locked_out, writable_version
from ..transaction.changes import ChangeSet, MergedFile, RewrittenFile
from .committing.commit import Committer, PlannedCommit
from .database.tables import catalog_tables
from .ledger.jobs import STAGE_TTL
from .open_lake import Definitions, OpenLake
from .snapshot.scan import find_files, load_table

if TYPE_CHECKING:
    from ..format.tags import ExportResult
    from ..planning.upkeep.compaction import Compaction, FlushResult, MergeRule, RewriteRule
    from ..planning.upkeep.findings import Finding
    from .lake_reads import LakeReads
    from .lake_writes import Key, LakeWrites
    from .migrations.migrate import MigrationResult
    from .restoring.plan import RestoreResult
    from .snapshot.read_snapshots import At
    from .upkeep.cleanup import CleanupResult
    from .upkeep.expiry import ExpireResult
    from .upkeep.orphans import OrphansResult
    from .verify.repair import RepairResult


class Maintenance:
    """The maintenance operations of a lake; see ``Lake.maintenance``."""

    def __init__(self, lake: OpenLake, reads: LakeReads, writes: LakeWrites, committer: Committer) -> None:
        self._lake = lake
        self._reads = reads
        self._writes = writes
        self._committer = committer

    def plan_merge(
        self,
        table: TableName,
        rule: MergeRule | None = None,
        *,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        older_than: datetime | None = None,
    ) -> Compaction:
        """Plan the merge of a table's small files, without changing what any snapshot shows.

        ``filter``: only files that may hold a row for which it is true. ``older_than``: only files of
        snapshots before that time.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
            InvalidPredicateError, ColumnNotFoundError: ``filter`` cannot be parsed, or names an unknown
            column.
        """
        from ..planning.upkeep.compaction import MergeRule
        from .upkeep.compaction import find_merge

        self._lake.refuse_unwritable()
        rule = rule or MergeRule()
        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, None)
            found = load_table(
                connection, self._lake.catalog, snapshot, QualifiedName.of(table), with_files=False
            )
            if older_than is not None:
                rule = replace(rule, before=self._reads.first_since(connection, older_than))
            files = None
            if filter is not None:
                files = find_files(connection, self._lake.catalog, found, filter)
            return find_merge(connection, self._lake.catalog, found, rule, files)

    def check_may_merge(self) -> None:
        """Check that the database's user may remove the rows of merged files, before a job writes any.

        Raises:
            CatalogRefusedError: the user may not.
        """
        from .upkeep.cleanup import check_may_delete

        with self._lake.translated():
            check_may_delete(self._lake.catalog, "data_file")

    def plan_rewrite(self, table: TableName, rule: RewriteRule | None = None) -> Compaction:
        """Plan the rewrite of a table's files without their deleted rows.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
        from ..planning.upkeep.compaction import RewriteRule
        from .upkeep.compaction import find_rewrite

        self._lake.refuse_unwritable()
        with self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, None)
            found = load_table(
                connection, self._lake.catalog, snapshot, QualifiedName.of(table), with_files=False
            )
            return find_rewrite(connection, self._lake.catalog, found, rule or RewriteRule())

    def commit_compacted(
        self,
        table: TableSnapshot,
        files: Collection[MergedFile | RewrittenFile],
        info: CommitInfo,
        job_id: str | None = None,
    ) -> CommittedSnapshot | None:
        """Replace files with the compacted files that were written from them.

        ``job_id`` is that of the registered job which made them.

        Raises:
            FilesReleasedError: a clean-up has released the job's files.
            TransactionConflictError: rows of a replaced file were deleted or moved since, or the table was
                altered; nothing landed.
        """
        from .upkeep.compaction import as_planned, compaction_change

        if not files:
            return None
        with self._lake.reading() as connection:
            head = self._lake.snapshot(connection, None)
            if len(as_planned(connection, self._lake.catalog, table.table_id, files)) < len(files):
                raise TransactionConflictError(
                    "compact files of it", "changed or moved rows of them", str(table.name), head.id
                )
        change_set = ChangeSet(head.id, (compaction_change(table, files),))
        open_jobs = () if job_id is None else (job_id,)
        planned = PlannedCommit((change_set,), info, open_jobs=open_jobs, demands_message=True)
        return self._committer.commit_planned(planned)

    def as_planned(
        self, table: TableSnapshot, files: Collection[MergedFile | RewrittenFile]
    ) -> list[MergedFile | RewrittenFile]:
        """Return those of the compacted files whose sources are unchanged since they were read."""
        from .upkeep.compaction import as_planned

        with self._lake.reading() as connection:
            return as_planned(connection, self._lake.catalog, table.table_id, files)

    def flush_inlined_data(  # noqa: PLR0913 - all have defaults
        self,
        table: TableName | None = None,
        *,
        schema: SchemaName | None = None,
        min_rows: int = 0,
        dry_run: bool = False,
        message: str | None = None,
        author: str | None = None,
        extra: Mapping[str, JsonValue] | None = None,
    ) -> list[FlushResult]:
        """Move inlined rows and deletes to Parquet files, as one snapshot; return what was moved.

        Readers see no difference at any snapshot. Without ``table``: all tables of a schema, or of the lake,
        except those whose option ``auto_compact`` is off. Tables with fewer than ``min_rows`` inlined rows
        and deletes are skipped. Rows that others insert in the meantime stay in the catalog.

        Raises:
            TableNotFoundError, SchemaNotFoundError: it does not exist.
            InvalidInputError: both a table and a schema are given, or ``min_rows`` is below 0.
            UnsupportedFeatureError: this release cannot read inlined rows from the catalog's database; or the
                named table has a column of a type that it does not write, such as ``interval``.
            StorageError: files cannot be written. If no table was named, the others are flushed first, and
                the error names all failed ones.
            TransactionConflictError: others kept deleting such rows in the meantime; nothing landed.
        """
        from .upkeep.flush import Flush, FlushRule

        self._lake.refuse_unwritable()
        info = CommitInfo(author, message, extra)
        if schema is not None and self._reads.schema(schema) is None:
            raise SchemaNotFoundError(str(SchemaPath.of(schema)), self._reads.current_snapshot().id)
        rule = FlushRule(
            None if table is None else QualifiedName.of(table),
            None if schema is None else SchemaPath.of(schema),
            min_rows,
        )

        def commit_change_sets(
            change_sets: Sequence[ChangeSet], job_ids: Sequence[str]
        ) -> CommittedSnapshot | None:
            return self._committer.commit_change_sets(change_sets, info, job_ids=job_ids)

        flush = Flush(self._lake.catalog, self._lake.locate, rule, commit_change_sets)
        with self._lake.translated():
            return flush.dry_run() if dry_run else flush.run()

    def expire_snapshots(  # noqa: PLR0913 - all have defaults
        self,
        *,
        older_than: datetime | timedelta | None = None,
        snapshots: Collection[int] | None = None,
        keep_last: int | None = None,
        keep: Collection[int] = (),
        keep_author: str | None = None,
        keep_message: str | None = None,
        min_retention: timedelta = NO_FLOOR,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Expire snapshots and schedule the files that no kept snapshot needs; the newest always stays.

        ``older_than`` is an aware time or an interval before now; without it and the next two it is the
        lake's option ``expire_older_than``. ``keep_last`` protects the newest N, alone it expires all others.
        ``keep`` protects ids, ``keep_author`` and ``keep_message`` snapshots that match a pattern such as
        ``release-*``, ``min_retention`` younger ones. Makes no snapshot.

        Raises:
            InvalidInputError: ``older_than`` together with ``snapshots``; nothing says what to expire; it
                lies in the future or is younger than ``min_retention``; ``keep_last`` below 1.
            SnapshotTaggedError: ``snapshots`` names a tagged snapshot. Otherwise tagged ones are kept.
        """
        from ..planning.upkeep.files import ExpiryRule
        from .upkeep import expiry

        self._lake.refuse_unwritable()
        if older_than is None and snapshots is None and keep_last is None:
            older_than = self._reads.effective_options().age("expire_older_than")
        rule = ExpiryRule(older_than, snapshots, keep_last, keep, keep_author, keep_message, min_retention)
        with self._lake.translated():
            return expiry.expire(self._lake.catalog, rule, dry_run=dry_run)

    def restore(  # noqa: PLR0913 - all but the first two have defaults
        self,
        table: TableName | None = None,
        *,
        at: int | datetime | str,
        schema: SchemaName | None = None,
        dry_run: bool = False,
        message: str | None = None,
        author: str | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        commit_key: Key = None,
    ) -> RestoreResult:
        """Restore a table, a schema or (with neither) the lake to a snapshot, as a new snapshot.

        ``at`` is its id, an aware time or a tag.

        Columns, names, keys and comments are restored as well. Objects created since are dropped, and objects
        dropped since are restored; a table whose schema was dropped as a new one. ``dry_run`` changes nothing
        and returns what would be done.

        Raises:
            SnapshotNotFoundError: the snapshot has expired, or never existed. TableNotFoundError,
            SchemaNotFoundError: it did not exist at that snapshot.
            AlreadyExistsError: its name has been given to something else.
            StorageError: a file of that snapshot no longer exists; nothing was changed.
            TransactionConflictError: a table was changed in the meantime; nothing was restored.
            CommitStateUnknownError: the answer to COMMIT was lost, so that it may have landed.
        """
        from .restoring.plan import RestoreRequest
        from .restoring.restore import restore

        self._lake.refuse_unwritable()
        name = None if table is None else QualifiedName.of(table)
        path = None if schema is None else SchemaPath.of(schema)
        request = RestoreRequest(at, name, path, dry_run)
        info, keyed = CommitInfo(author, message, extra), self._writes.keyed(commit_key)
        with self._lake.translated():
            return restore(self._lake, self._committer, request, info, keyed)

    def migrate(
        self, to_version: str = DEFAULT.value, *, dry_run: bool = False, backup: bool = True
    ) -> MigrationResult:
        """Migrate an older catalog in place; every snapshot reads as before.

        ``to_version`` is ``"1.0"``, or ``"1.1"``, which no DuckDB 1.x opens; there is no way back. A catalog
        that has the version, or a newer one, is not changed. Stop clients of the old version first. With
        ``backup``, a catalog file (SQLite, DuckDB) is first copied in its own directory. ``dry_run`` changes
        nothing and returns what would be done, or what is in the way.

        Raises:
            InvalidInputError: no catalog can be migrated to ``to_version``, or the lake was opened with an
                older ``max_version``.
            UnsupportedVersionError: a migration to 1.1 has not finished, and this is not one.
            UnsupportedFeatureError: a merged file cannot be copied as it is; nothing was changed.
            CatalogError, StorageError: the catalog contradicts itself, or a merged file is missing; nothing
            was changed.
            TransactionConflictError: clients of the old version kept committing; nothing was changed.
        """
        from .migrations.migrate import Files, migrate

        self._lake.refuse_frozen()
        target = writable_version(to_version, "to_version")
        check_target(target, self._lake.newest)
        with self._lake.translated():
            result = migrate(
                self._lake.catalog,
                Files(self._lake.locate, self._lake.refuse_unreadable_files),
                target,
                dry_run=dry_run,
                backup=backup,
            )
        version = SpecVersion.parse(result.to_version)
        if dry_run and result.steps:
            names = dict.fromkeys(client.name for client in self._reads.clients())
            result = replace(result, locked_out=tuple(name for name in names if is_locked_out(name, version)))
        if not dry_run:
            self._lake.catalog = replace(
                self._lake.catalog, tables=catalog_tables(version, self._lake.catalog.tables.metadata_schema)
            )
            self._lake.version = version
            self._lake.definitions = Definitions()
        return result

    def cleanup_old_files(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        min_retention: timedelta = NO_FLOOR,
        dry_run: bool = False,
    ) -> CleanupResult:
        """Delete files that were scheduled for deletion before a time, by the catalog's clock.

        ``older_than`` is an aware time or an interval before now; default: the lake's option
        ``delete_older_than``, of 2 days. A file that a row of the lake names stays. Makes no snapshot.

        Raises:
            InvalidInputError: ``older_than`` lies in the future or is younger than ``min_retention``.
            StorageError: the data path is on a local disk and does not exist. Failures of single files are in
                the result.
        """
        from .upkeep import cleanup

        self._lake.refuse_unwritable()
        age = self._deletion_age(older_than)
        with self._lake.translated():
            return cleanup.cleanup(
                self._lake.catalog, age, min_retention, self._lake.storage_options, dry_run=dry_run
            )

    def delete_orphaned_files(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        min_retention: timedelta = NO_FLOOR,
        stage_ttl: timedelta = STAGE_TTL,
        sole_owner: bool = False,
        dry_run: bool = False,
    ) -> OrphansResult:
        """Delete files below the data path that the catalog does not name, left by failed writes.

        ``older_than`` is the time since which a file must be unchanged, as for ``cleanup_old_files``: it must
        be longer than the longest write of a client that does not register its jobs. Files of registered jobs
        that may still commit stay for ``stage_ttl``; after that they can no longer be committed.
        ``sole_owner`` asserts that no other lake has files below the data path, even if it looks so.

        Raises:
            SharedDataPathError: another lake seems to keep files below the data path.
            InvalidInputError: ``older_than`` lies in the future or is younger than ``min_retention``.
            StorageError: the data path cannot be listed. Failures of single files are in the result.
        """
        from .upkeep.orphans import OrphanRule, delete_orphans

        self._lake.refuse_unwritable()
        rule = OrphanRule(self._deletion_age(older_than), min_retention, stage_ttl, sole_owner)
        with self._lake.translated():
            return delete_orphans(self._lake.catalog, rule, self._lake.storage_options, dry_run=dry_run)

    def _deletion_age(self, older_than: datetime | timedelta | None) -> datetime | timedelta:
        if older_than is not None:
            return older_than
        age = self._reads.effective_options().age("delete_older_than")
        assert age is not None, "the option has a default"
        return age

    def export_catalog(  # noqa: PLR0913 - all but the first have defaults
        self,
        path: str,
        at: At = None,
        *,
        format: str | None = None,  # noqa: A002 - what it is
        copy_files: bool = False,
        files_path: str | None = None,
        data_path: str | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        commit_key: CommitKey | None = None,
        starts_over: bool = False,
    ) -> ExportResult:
        """Export a snapshot (id, time or tag; None: the newest) as a frozen lake: a catalog in one file.

        DuckDB attaches it, also over HTTP and S3, to read. ``format`` is ``"duckdb"`` or ``"sqlite"``;
        default: as the name of the file says. The data files stay where they are, or are copied to
        ``files_path`` (default: ``path`` with ``.files`` behind it) with ``copy_files``. ``data_path`` is
        where readers find them, if they reach them by another address, such as ``https://…``.
        ``storage_options`` are fsspec's for what is written; default: the lake's. Makes no snapshot.

        Raises:
            ExportExistsError: there is a file already, no frozen lake's or without ``overwrite``.
            InvalidInputError: a path is relative, or the format is unknown.
            SnapshotNotFoundError: the snapshot has expired, or never existed.
            StorageError: a file cannot be copied or written; no catalog was put in its place.
            UnsupportedFeatureError: inlined rows cannot be exported, or the lake's data path is relative.
            UnsupportedVersionError: the catalog is older than 1.0.
            CatalogUnavailableError: the format is that of DuckDB, which is not installed here.
        """
        from .upkeep.export import ExportRequest, export

        self._lake.refuse_unusable()
        options = self._lake.storage_options if storage_options is None else storage_options
        request = ExportRequest(
            path, at, format, copy_files, files_path, data_path, overwrite, options, commit_key, starts_over
        )
        with self._lake.translated():
            return export(self._lake, request)

    def create_indexes(self) -> list[str]:
        """Add the missing indexes that large catalogs need; return the names of new ones.

        The format has none, but DuckDB works with them. Not versioned; makes no snapshot.
        """
        from .dialects.bootstrap import create_indexes

        self._lake.refuse_unwritable()
        with self._lake.translated():
            return create_indexes(self._lake.catalog)

    def verify(
        self, tables: Collection[TableName] | None = None, *, sample: float = 1.0, with_notes: bool = False
    ) -> list[Finding]:
        """Check the invariants of the format; list those that the lake breaks (empty: none).

        ``tables``: only these tables, by their current names, and nothing that concerns the whole lake, but
        for rows that cannot be read: where there are any, nothing else is looked at.
        ``sample`` is the fraction of files that are opened, drawn again each time; with 0 only the catalog is
        read. ``with_notes``: also things that are legal but worth knowing, such as files outside the data
        path.

        Raises:
            TableNotFoundError: no such table.
            InvalidInputError: ``sample`` is not from 0 to 1.
            UnsupportedVersionError: the catalog is older than 1.0.
        """
        from .verify.verification import verify

        self._lake.refuse_unusable()
        return verify(
            self._lake.catalog,
            self._lake.reading,
            self._lake.locate,
            tables=tables,
            sample=sample,
            with_notes=with_notes,
        )

    def repair(self, findings: Sequence[Finding], *, dry_run: bool = False) -> RepairResult:
        """Repair those findings of ``verify`` that can be repaired without losing anything, all or none.

        A snapshot is made if running clients must notice; no row changes in any snapshot. Check the dry run
        first, and verify again afterwards: a repair may reveal further findings.

        Raises:
            CommitRetriesExceededError: other writers always committed first; nothing was changed.
        """
        from .verify.repair import repair

        self._lake.refuse_unwritable()
        with self._lake.translated():
            return repair(self._lake.catalog, findings, dry_run=dry_run)
