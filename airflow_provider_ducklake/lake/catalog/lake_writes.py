"""Write operations of ``Lake``: transactions, commits, options; and the jobs whose files they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from ..errors import InvalidInputError
from ..format.names.identifiers import QualifiedName, SchemaName, TableName
from ..format.options import SKIP_STATS_COLUMNS, OptionRow, option_text
from ..format.snapshots import (
    CommitInfo,
    CommitKey,
    CommittedSnapshot,
    Consumer,
    Consumption,
    JsonValue,
    OnClear,
    SnapshotId,
    TableSnapshot,
)
from ..format.tags import TagResult, check_tag_name
from ..planning.reading.predicates import ALWAYS, Predicate
from ..planning.writing.overwrite import PartitionValues, RowScope
from .committing.commit import Committer, KeyedCommit
from .database.connect import write_option
from .dialects.dialect import in_transaction
from .drafting.base_lake import BaseRows
from .drafting.rows import changes_of_job, current_targets
from .drafting.transaction import LakeTransaction
from .ledger import commit_keys, consumers, jobs
from .snapshot import read
from .snapshot.read_snapshots import At, check_version
from .snapshot.scan import Wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from ..planning.reading.scan import ScanPlan
    from ..planning.writing.write import FoundRows, JobTarget, RowChanges
    from ..transaction.changes import Change, ChangeSet
    from ..transaction.changes_made import Replay
    from .lake_reads import LakeReads
    from .ledger.jobs import RegisteredJob, SubmittedJob
    from .open_lake import OpenLake

Key: TypeAlias = "str | CommitKey | KeyedCommit | None"  # a commit key, as a caller gives it


class LakeWrites:
    """The write operations of ``Lake``."""

    def __init__(self, lake: OpenLake, reads: LakeReads, committer: Committer) -> None:
        self._lake = lake
        self._reads = reads
        self._committer = committer

    def set_option(
        self,
        key: str,
        value: str | float | bool | Sequence[str],  # noqa: FBT001 - a value, not a switch
        *,
        schema: SchemaName | None = None,
        table: TableName | None = None,
    ) -> None:
        """Set an option of the lake, of a schema or of a table; not versioned, makes no snapshot.

        ``skip_stats_columns`` takes names of columns of a table; see ``LakeTransaction.set_option``.

        Raises:
            InvalidInputError: both a schema and a table are given.
            InvalidOptionError: the option is unknown or cannot be set, or the value is out of range.
            SchemaNotFoundError, TableNotFoundError: it does not exist.
        """
        if table is not None and schema is not None:
            raise InvalidInputError(f"Give a table or a schema, not both: {table!r} and {schema!r}.")
        if table is not None and key == SKIP_STATS_COLUMNS:
            with self.transaction() as tx:
                tx.set_option(table, key, value)
            return
        self._lake.refuse_unwritable()
        of = "" if table is None else f" of {QualifiedName.of(table)}"
        text = option_text(key, value, of)
        with self._lake.translated():

            def write(connection: Connection) -> None:
                check_version(connection, self._lake.catalog.tables)
                scope, scope_id = self._reads.option_scope(connection, schema, table)
                write_option(connection, self._lake.catalog.tables, OptionRow(key, text, scope, scope_id))

            in_transaction(self._lake.catalog.dialect, write)

    def reset_option(self, key: str, table: TableName) -> None:
        """Remove a table's own option; makes no snapshot.

        Raises:
            InvalidOptionError: the option is unknown or cannot be set.
            SchemaNotFoundError, TableNotFoundError: it does not exist.
        """
        with self.transaction() as tx:
            tx.reset_option(table, key)

    def tag(  # noqa: PLR0913 - all but the first have defaults
        self,
        name: str,
        at: At = None,
        *,
        replace: bool = False,
        author: str | None = None,
        message: str | None = None,
        commit_key: Key = None,
    ) -> TagResult:
        """Name a snapshot (id, aware time or another tag; None: the newest), which does not expire then.

        It is read as ``at="tag:q3-close"``. The name has up to 255 characters, and upper and lower case
        differ. Tagging the same snapshot again changes nothing. Makes no snapshot.

        Raises:
            InvalidNameError: no tag can have the name.
            SnapshotNotFoundError: the snapshot has expired, or never existed.
            TagExistsError: the name is that of another snapshot, and ``replace`` was not given.
        """
        from .ledger import tags

        self._lake.refuse_unwritable()
        CommitInfo(author, message)  # which checks them
        request = tags.TagRequest(check_tag_name(name), self._lake.here(at), replace, author, message)
        with self._lake.translated():
            keyed = self.keyed(commit_key, makes_snapshot=False)
            return tags.tag(self._lake.catalog, request, None if keyed is None else keyed.key)

    def untag(self, name: str, *, commit_key: Key = None) -> TagResult:
        """Remove a tag; the next expiry may remove its snapshot. Makes no snapshot.

        Raises:
            InvalidNameError: no tag can have the name.
            TagNotFoundError: there is no such tag.
        """
        from .ledger import tags

        self._lake.refuse_unwritable()
        with self._lake.translated():
            keyed = self.keyed(commit_key, makes_snapshot=False)
            return tags.untag(self._lake.catalog, check_tag_name(name), None if keyed is None else keyed.key)

    def transaction(
        self,
        author: str | None = None,
        message: str | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        commit_key: Key = None,
    ) -> LakeTransaction:
        """Return a transaction for a ``with`` block: one snapshot over any number of schemas and tables.

        With a ``commit_key`` the commit is made once: a block that runs again with the same key changes
        nothing, and ``committed`` is the first run's snapshot, already when the block begins.
        """
        self._lake.refuse_unwritable()
        info = CommitInfo(author, message, extra)
        return LakeTransaction(self._lake, self._committer, info, self.keyed(commit_key))

    def add_table(  # noqa: PLR0913 - where the table lies, at what, and how it is read
        self,
        table: TableName,
        source: str,
        format: str,  # noqa: A002 - what it is called
        *,
        snapshot_id: int | None = None,
        version: int | None = None,
        create_table: bool = False,
        catalog: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        allowed_paths: Sequence[str] = (),
        message: str | None = None,
        author: str | None = None,
        commit_key: Key = None,
    ) -> CommittedSnapshot | None:
        """Append the data files of an Iceberg or Delta table where they are, as one snapshot; None: no rows.

        The files belong to the lake from then on: compaction and clean-up delete them. See
        ``LakeTransaction.add_table``, also for what it raises; with a ``commit_key`` it is done once.

        Raises:
            CommitError: the commit did not land.
            CommitStateUnknownError: the answer to COMMIT was lost, so that it may have landed.
        """
        with self.transaction(author, message, commit_key=commit_key) as tx:
            if tx.committed is None:
                tx.add_table(
                    table,
                    source,
                    format,
                    snapshot_id=snapshot_id,
                    version=version,
                    create_table=create_table,
                    catalog=catalog,
                    storage_options=storage_options,
                    allowed_paths=allowed_paths,
                )
        return tx.committed

    def append_arrow(
        self,
        table: TableName,
        rows: pa.Table,
        *,
        message: str | None = None,
        author: str | None = None,
        commit_key: Key = None,
    ) -> CommittedSnapshot | None:
        """Append an Arrow table as one snapshot, without Spark: for small writes.

        Without rows no snapshot is made.

        See ``LakeTransaction.append_arrow`` for where the rows go, and ``transaction`` for ``commit_key``.

        Raises:
            SchemaMismatchError: columns are missing, unexpected or of another type; it lists all of them.
            TableNotFoundError: the table does not exist.
            StorageError: a file cannot be written.
            CommitError: the commit did not land.
            CommitStateUnknownError: the answer to COMMIT was lost, so that it may have landed.
        """
        with self.transaction(author=author, message=message, commit_key=commit_key) as tx:
            tx.append_arrow(table, rows)
        return tx.committed

    def consumptions(
        self, consumer: Consumer, starts_over: CommitKey | None = None
    ) -> tuple[Consumption, ...]:
        """List the changes that a consumer has consumed, oldest first; see ``DuckLakeSparkSQLOperator``.

        ``starts_over``: records under that key belong to a deleted run of the same name.
        """
        self._lake.refuse_unwritable()
        with self._lake.translated():
            consumers.CONSUMERS.ensure(self._lake.catalog)
            if starts_over is not None:
                consumers.start_over(self._lake.catalog, consumer, starts_over)
        with self._lake.reading() as connection:
            return consumers.consumptions(connection, self._lake.catalog, consumer)

    def watermark(self, watcher: Consumer) -> str | None:
        """Read the watermark that ``note_watermark`` stored last for a watcher; None: there is none."""
        with self._lake.translated():
            return consumers.watermark(self._lake.catalog, watcher)

    def note_watermark(self, watcher: Consumer, state: str) -> None:
        """Store a watcher's position, in a table of the provider; makes no snapshot."""
        self._lake.refuse_unwritable()
        with self._lake.translated():
            consumers.note_watermark(self._lake.catalog, watcher, state)

    def replacing_where(
        self, table: TableSnapshot, where: str, found: FoundRows | None = None
    ) -> tuple[Change, ...]:
        """Return the changes that remove the rows for which a condition is true at the snapshot.

        ``found`` are the rows in files that ``too_large_to_read`` returned, as a job found them.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: the condition cannot be read.
            InvalidInputError: too many bytes would have to be read; see ``catalog.drafting.overwrite``.
            TransactionConflictError: a file in which rows were found is gone, or rows came to another, or
                the snapshot has expired.
        """
        from .drafting import overwrite

        with self._lake.planned_on(table.snapshot.id):
            plan = self._reads.plan_read(table.name, table.snapshot.id, Wanted((), where))
        changes = overwrite.changes_of_condition(
            self._lake.reading, self._lake.catalog, plan, self._lake.locate, found
        )
        return tuple(changes)

    def too_large_to_read(self, table: TableSnapshot, where: str) -> ScanPlan | None:
        """Return the files in which a job is to find the rows of a condition; None: ``replacing_where`` does.

        Raises:
            InvalidPredicateError, ColumnNotFoundError: the condition cannot be read.
            TransactionConflictError: the snapshot has expired.
        """
        from .drafting import overwrite

        with self._lake.planned_on(table.snapshot.id):
            plan = self._reads.plan_read(table.name, table.snapshot.id, Wanted((), where))
        return overwrite.too_large_to_read(self._lake.reading, self._lake.catalog, plan)

    def replacing_partitions(
        self, table: TableSnapshot, partitions: Collection[PartitionValues]
    ) -> tuple[Change, ...]:
        """Return the changes that remove the rows of partitions at the snapshot.

        Raises:
            UnsupportedFeatureError: a file may hold rows of several partitions.
        """
        from .drafting import overwrite

        changes = overwrite.changes_of_partitions(
            self._lake.reading, self._lake.catalog, table, partitions, self._lake.locate
        )
        return tuple(changes)

    def next_column_id(self, table: TableSnapshot) -> int:
        """Return a column id that the table never had."""
        with self._lake.reading() as connection:
            return read.next_column_id(connection, self._lake.catalog.tables, table.table_id)

    def has_live_rows(self, table: TableSnapshot) -> bool:
        """Return True if the table has a live data file, or live inlined rows."""
        return BaseRows(self._lake.catalog, self._lake.reading).has_live(table)

    def keyed_commit(
        self,
        key: CommitKey,
        on_clear: OnClear = OnClear.REPLACE,
        *,
        starts_over: bool = False,
        makes_snapshot: bool = True,
    ) -> KeyedCommit:
        """Look up what was committed under a key; ``seen.done`` says that nothing is left to do.

        ``starts_over`` says that nothing the key names can have been committed by this run: what is found was
        left by a run of the same name that was deleted. What ``makes_snapshot`` is confirmed by its snapshot.

        Raises:
            UntrustedValueError: a record names a snapshot of another time: it is of another lake.
            ZombieCommitError: a later generation of the same task has committed.
        """
        self._lake.refuse_unwritable()
        catalog = self._lake.catalog
        records = commit_keys.records if makes_snapshot else commit_keys.records_without_snapshot
        with self._lake.translated():
            commit_keys.COMMITS.ensure(catalog)
            if starts_over:
                with catalog.dialect.reading() as connection:
                    found = records(connection, catalog, key)
                commit_keys.start_over(catalog, key, found)
            with catalog.dialect.reading() as connection:
                found = records(connection, catalog, key)
                seen = commit_keys.replay(connection, catalog, found, key, on_clear)
        return KeyedCommit(key, on_clear, seen)

    def keyed(self, key: Key, *, makes_snapshot: bool = True) -> KeyedCommit | None:
        """Look up what was committed under a key that a caller gives; None: no key."""
        if key is None or isinstance(key, KeyedCommit):
            return key
        name = CommitKey((key,)) if isinstance(key, str) else key
        return self.keyed_commit(name, OnClear.APPEND, makes_snapshot=makes_snapshot)

    def replaced_rows(self, replay: Replay, at: SnapshotId) -> tuple[Change, ...]:
        """Return the changes that take the rows of an earlier generation out of the tables of a snapshot.

        Nothing is written yet: the commit writes the delete files that it takes.

        Raises:
            StorageError: a file that may hold such rows and others cannot be read.
            TransactionConflictError: the snapshot has expired.
        """
        from .drafting.overwrite import find_earlier_rows, replaced_rows

        with self._lake.planned_on(at), self._lake.reading() as connection:
            snapshot = self._lake.snapshot(connection, at)
            found = find_earlier_rows(connection, self._lake.catalog, snapshot, replay.replaced)
        return tuple(change for one in found for change in replaced_rows(one, self._lake.locate))

    def row_changes(
        self,
        table: TableSnapshot,
        changes: RowChanges,
        where: Predicate = ALWAYS,
        *,
        may_insert: bool = False,
    ) -> ChangeSet:
        """Return the changes of a job that changed rows of a table, as it read the table.

        ``where`` is true for all rows that the job may have changed; what others do with other rows is no
        conflict. ``may_insert``: it inserts rows that match none of the table, also if it found none.

        Commit it with ``commit_change_sets``. It then removes files of the job that the commit does not need.

        Raises:
            TransactionConflictError: a file with deleted rows was compacted or got other deletes since, or
                the table has other columns.
            StorageError: a delete file cannot be read.
        """
        self._lake.refuse_unwritable()
        file_ids = [one.data_file_id for one in changes.deletes]
        with self._lake.translated():
            targets, newest = current_targets(self._lake.catalog, table, file_ids, changes.inlined)
        scope, inserts = RowScope(table, where), may_insert or bool(changes.inserted.data_files)
        change_set = changes_of_job(targets, changes, scope, self._lake.locate, may_insert=inserts)
        return replace(change_set, newest=newest)


class LakeJobs:
    """The jobs that write files for a lake, and wait for their commit."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def register(self, job_id: str, prefix: str, target: JobTarget | None = None) -> None:
        """Record that a job is about to write files into a directory, and what they are for.

        ``target`` is what they are for, which the commit compares.

        Raises:
            UntrustedValueError: the lake may not write there.
        """
        self._lake.refuse_unwritable()
        with self._lake.translated():
            seal_documents(self._lake)
            jobs.register(self._lake.catalog, job_id, prefix, target)

    def target_of(self, job_id: str) -> JobTarget | None:
        """Look up the target of a job's files, or None if it was not recorded."""
        with self._lake.reading() as connection:
            return jobs.target_of(connection, self._lake.catalog, job_id)

    def release(self, job_id: str) -> bool:
        """Release the files of a job, so that they cannot be committed; return whether they could be."""
        with self._lake.translated():
            return jobs.release(self._lake.catalog, job_id)

    def registered(self, job_ids: Collection[str]) -> dict[str, RegisteredJob]:
        """Return those of the jobs that were registered, by their ids."""
        with self._lake.reading() as connection:
            return jobs.registered_jobs(connection, self._lake.catalog, job_ids)

    def check_directory(self, job: RegisteredJob) -> None:
        """Refuse a registered job whose directory is not its own, or not the lake's to write to.

        Raises:
            UntrustedValueError: says which.
        """
        jobs.check_directory(self._lake.catalog, job)

    def note_submitted(self, job: SubmittedJob) -> None:
        """Record a job that outlives its task, in a table of the provider's; makes no snapshot."""
        self._lake.refuse_unwritable()
        with self._lake.translated():
            jobs.note_submitted(self._lake.catalog, job)

    def note_named(self, job: SubmittedJob) -> None:
        """Record the cluster's name for a job, unless another try waits for it now; makes no snapshot."""
        with self._lake.translated():
            jobs.note_named(self._lake.catalog, job)

    def forget_submitted(self, job_id: str) -> None:
        """Remove the record of a job that is over."""
        with self._lake.translated():
            jobs.forget_submitted(self._lake.catalog, job_id)

    def forget_submitted_of(self, key: CommitKey) -> None:
        """Remove the records of the jobs of a commit that was made."""
        with self._lake.translated():
            jobs.forget_submitted_of(self._lake.catalog, key)

    def submitted_of(self, key: CommitKey) -> tuple[SubmittedJob, ...]:
        """Return the recorded jobs of a commit whose files are neither committed nor discarded.

        Raises:
            UntrustedValueError: a record names a directory that its job was not registered for.
        """
        with self._lake.translated():
            return jobs.submitted_jobs(self._lake.catalog, key)

    def submitted(self, job_id: str) -> SubmittedJob | None:
        """Return the record of a job; None: its files are committed or discarded, or it never had one."""
        with self._lake.translated():
            return jobs.submitted_job(self._lake.catalog, job_id)

    def snapshot_of(self, job_id: str) -> SnapshotId | None:
        """Return the snapshot that added files of a job, 0 where they wait for deletion; None: no files."""
        with self._lake.reading() as connection:
            return jobs.snapshot_of_job(connection, self._lake.catalog, job_id)

    def protected_prefixes(self, stage_ttl: timedelta = jobs.STAGE_TTL) -> frozenset[str]:
        """Return the directories of jobs that wait for their commit and are not older than that.

        A clean-up of orphaned files must not delete them.
        """
        with self._lake.reading() as connection:
            return jobs.protected_prefixes(connection, self._lake.catalog, stage_ttl)


def open_documents(lake: OpenLake, key_file: str | None) -> None:
    """Load the key that seals job documents, if there is one yet.

    Raises:
        StorageError: the file cannot be read, or has no key.
    """
    if not lake.encrypted:
        return
    from ..storage.files import writing

    if key_file is not None:
        writing.learn_from_file(lake.data_path, key_file)
        return
    with lake.translated():
        writing.learn(lake.data_path, jobs.document_key(lake.catalog))


def seal_documents(lake: OpenLake) -> None:
    """Seal job documents from now on."""
    if not lake.encrypted:
        return
    from ..storage.files import writing

    if writing.file_of(lake.data_path) is None:
        writing.learn(lake.data_path, jobs.ensure_document_key(lake.catalog, writing.new_key()))
