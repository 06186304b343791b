"""Maintenance of a lake: compaction, retention, restores, verification, migration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.committing.planned import PlannedCommit, Stage
from airflow_provider_ducklake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.catalog.ledger.jobs import STAGE_TTL
from airflow_provider_ducklake.catalog.migrations.migrate import Files, MigrationResult, migrate
from airflow_provider_ducklake.catalog.open_lake import Definitions
from airflow_provider_ducklake.catalog.restoring.plan import RestoreRequest
from airflow_provider_ducklake.catalog.restoring.restore import restore
from airflow_provider_ducklake.catalog.snapshot.scan import find_files
from airflow_provider_ducklake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.catalog.upkeep import cleanup, expiry, orphans
from airflow_provider_ducklake.catalog.upkeep.compaction import (
    as_planned,
    compaction_change,
    find_merge,
    find_rewrite,
)
from airflow_provider_ducklake.catalog.upkeep.flush import Flush, FlushRule
from airflow_provider_ducklake.catalog.upkeep.orphans import OrphanRule
from airflow_provider_ducklake.catalog.verify import verification
from airflow_provider_ducklake.catalog.verify.repair import RepairResult, repair
from airflow_provider_ducklake.errors import (
    SchemaNotFoundError,
    TransactionConflictError,
)
from airflow_provider_ducklake.planning.upkeep.compaction import MergeRule, RewriteRule
from airflow_provider_ducklake.planning.upkeep.expiry import ExpiryRule
from airflow_provider_ducklake.planning.upkeep.retention import NO_FLOOR
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot
from airflow_provider_ducklake.spec.versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from airflow_provider_ducklake.catalog.committing.committer import Committer
    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake_reads import LakeReads
    from airflow_provider_ducklake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.catalog.restoring.plan import RestoreResult
    from airflow_provider_ducklake.catalog.upkeep.cleanup import CleanupResult
    from airflow_provider_ducklake.catalog.upkeep.expiry import ExpireResult
    from airflow_provider_ducklake.catalog.upkeep.orphans import OrphansResult
    from airflow_provider_ducklake.planning.upkeep.compaction import Compaction
    from airflow_provider_ducklake.planning.upkeep.findings import Finding
    from airflow_provider_ducklake.planning.upkeep.flush import FlushResult
    from airflow_provider_ducklake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile


class Maintenance:
    """Keeps a lake in order; ``Lake.maintenance`` is the one of a lake."""

    def __init__(self, lake: OpenLake, reads: LakeReads, committer: Committer) -> None:
        self._lake = lake
        self._reads = reads
        self._committer = committer

    def plan_merge(
        self,
        table: TableName,
        rule: MergeRule | None = None,
        *,
        where: str | None = None,
        older_than: datetime | None = None,
    ) -> Compaction:
        """Return which small files of a table can be merged without changing what any snapshot shows.

        ``where``: only files that may hold a row for which it is true. ``older_than``: only files of
        snapshots before that time.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
            InvalidPredicateError, ColumnNotFoundError: ``where`` cannot be read, or names no column.
        """
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
            if where is not None:
                files = find_files(connection, self._lake.catalog, found, where)
            return find_merge(connection, self._lake.catalog, found, rule, files)

    def plan_rewrite(self, table: TableName, rule: RewriteRule | None = None) -> Compaction:
        """Return which files of a table are better rewritten, without the rows that were deleted.

        Raises:
            TableNotFoundError, SchemaNotFoundError: there is no such table.
        """
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
        """Put files, of one kind, in the place of those that they were written of.

        ``job_id`` is that of the registered job which made them.

        Raises:
            FilesGivenUpError: a clean-up gave the job's files up.
            TransactionConflictError: rows of a file that goes were deleted or moved since, or the table was
                altered; nothing landed.
        """
        if not files:
            return None
        with self._lake.reading() as connection:
            head = self._lake.snapshot(connection, None)
            if len(as_planned(connection, self._lake.catalog, table.table_id, files)) < len(files):
                raise TransactionConflictError(
                    "compact files of it", "changed or moved rows of them", str(table.name), head.id
                )
        stage = Stage(head.id, (compaction_change(table, files),))
        planned = PlannedCommit((stage,), info, open_jobs=() if job_id is None else (job_id,))
        self._committer.demand_message(planned)
        return self._committer.commit_planned(planned)

    def as_planned(
        self, table: TableSnapshot, files: Collection[MergedFile | RewrittenFile]
    ) -> list[MergedFile | RewrittenFile]:
        """Return those of the compacted files whose sources are what they were when they were read."""
        with self._lake.reading() as connection:
            return as_planned(connection, self._lake.catalog, table.table_id, files)

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
            StorageError: files cannot be written. Where no table was named, the others are flushed first,
                and the error has them all.
            TransactionConflictError: others deleted such rows again and again meanwhile; nothing landed.
        """
        self._lake.refuse_unwritable()
        if schema is not None and self._reads.schema(schema) is None:
            raise SchemaNotFoundError(schema, self._reads.current_snapshot().id)
        rule = FlushRule(None if table is None else QualifiedName.of(table), schema, min_rows)

        def commit_stages(stages: Sequence[Stage], job_ids: Sequence[str]) -> CommittedSnapshot | None:
            return self._committer.commit_stages(stages, info or CommitInfo(), job_ids=job_ids)

        flush = Flush(self._lake.catalog, self._lake.locate, rule, commit_stages)
        with self._lake.translated():
            return flush.dry_run() if dry_run else flush.run()

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
        self._lake.refuse_unwritable()
        if older_than is None and versions is None and keep_last is None:
            older_than = self._reads.effective_options().age("expire_older_than")
        rule = ExpiryRule(older_than, versions, keep_last, keep, keep_author, keep_message, min_retention)
        with self._lake.translated():
            return expiry.expire(self._lake.catalog, rule, dry_run=dry_run)

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
        comes back; a table whose schema was dropped, as a new one. ``dry_run`` changes nothing and says what
        would be done. See ``catalog.restore``.

        Raises:
            SnapshotNotFoundError: the snapshot has expired, or never was.
            TableNotFoundError, SchemaNotFoundError: nothing of that name was there then.
            AlreadyExistsError: its name has been given to something else.
            StorageError: a file of that snapshot is gone; nothing was changed.
            TransactionConflictError: a table was changed meanwhile; nothing was changed.
        """
        self._lake.refuse_unwritable()
        name = None if table is None else QualifiedName.of(table)
        request = RestoreRequest(at, name, schema, dry_run)
        with self._lake.translated():
            return restore(self._lake, self._committer, request, info or CommitInfo(), keyed)

    def migrate(self, *, dry_run: bool = False, backup: bool = True) -> MigrationResult:
        """Bring a catalog of 0.1 to 0.4 to 1.0, in place; every snapshot reads as before.

        Stop clients of the old version first. With ``backup``, a catalog that is a file (SQLite, DuckDB) is
        copied beside itself before. ``dry_run`` changes nothing and says what would be done.

        Raises:
            UnsupportedFeatureError: a merged file cannot be copied as it is; nothing was changed.
            CatalogError, StorageError: the catalog contradicts itself, or a merged file is missing; as well.
            TransactionConflictError: clients of the old version went on committing; nothing was changed.
        """
        with self._lake.translated():
            result = migrate(
                self._lake.catalog,
                Files(self._lake.locate, self._lake.refuse_unusable),
                dry_run=dry_run,
                backup=backup,
            )
        if not dry_run:
            self._lake.catalog = replace(
                self._lake.catalog, tables=catalog_tables(CURRENT, self._lake.catalog.tables.metadata_schema)
            )
            self._lake.version = CURRENT
            self._lake.definitions = Definitions()
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
        self._lake.refuse_unwritable()
        rule = OrphanRule(self._deletion_age(older_than), min_retention, stage_ttl, sole_owner)
        with self._lake.translated():
            return orphans.delete_orphans(
                self._lake.catalog, rule, self._lake.storage_options, dry_run=dry_run
            )

    def _deletion_age(self, older_than: datetime | timedelta | None) -> datetime | timedelta:
        if older_than is not None:
            return older_than
        age = self._reads.effective_options().age("delete_older_than")
        assert age is not None, "the option has a default"
        return age

    def verify(
        self,
        tables: Collection[TableName] | None = None,
        *,
        sample: float = 1.0,
        with_notes: bool = False,
    ) -> list[Finding]:
        """Return which invariants of the format the lake breaks; nothing found is an empty list.

        ``tables``: only those as they are named now, and nothing that concerns the whole lake. ``sample`` is
        the share of the files that are opened, drawn again each time; with 0 only the catalog is read.
        ``with_notes``: also what is legal and worth knowing, as files outside the data path.

        Raises:
            TableNotFoundError: no such table.
            InvalidInputError: ``sample`` is not from 0 to 1.
            UnsupportedVersionError: the catalog is older than 1.0.
            UnsupportedFeatureError: the lake is encrypted.
        """
        self._lake.refuse_unwritable()
        with self._lake.reading() as connection:
            only = verification.table_ids(connection, self._lake.catalog, tables)
        return verification.verify(
            self._lake.catalog,
            self._lake.reading,
            self._lake.locate,
            only=only,
            sample=sample,
            with_notes=with_notes,
        )

    def repair(self, findings: Sequence[Finding], *, dry_run: bool = True) -> RepairResult:
        """Mend those findings of ``verify`` that can be mended without losing anything, all or none of them.

        A snapshot is made where clients that run have to notice; no row changes in any snapshot. Look at the
        dry run first, and verify again afterwards: what lay behind a finding may come to light.

        Raises:
            CommitRetriesExceededError: other writers never let it through; nothing was changed.
        """
        self._lake.refuse_unwritable()
        with self._lake.translated():
            return repair(self._lake.catalog, findings, dry_run=dry_run)
