"""Write a snapshot, and retry when another writer commits first.

One commit is one SQL transaction with exactly one row in ``ducklake_snapshot``, whose primary key is the only
lock that DuckDB respects. Our own writers queue on the dialect's commit lock first, so among themselves they
never lose a race. Everything is recomputed on every attempt: ids, row ids, statistics, conflicts. *Source:*
docs/sources.md, commits.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake.catalog.committing.delete_writer import (
    DeleteWriter,
    OtherSnapshotError,
    remove_unused,
    with_marks_in_files,
)
from airflow_provider_ducklake.lake.catalog.committing.locked_facts import locked_facts, questions_of
from airflow_provider_ducklake.lake.catalog.committing.overlap import check_overlap
from airflow_provider_ducklake.lake.catalog.committing.planned import KeyedCommit, PlannedCommit, Stage
from airflow_provider_ducklake.lake.catalog.database.connect import driver_error
from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.lake.catalog.dialects.retry import DEFAULT_RETRY, RetryPolicy, with_retries
from airflow_provider_ducklake.lake.catalog.effects import effects_of
from airflow_provider_ducklake.lake.catalog.ledger import commit_keys, consumers, jobs, restore_log
from airflow_provider_ducklake.lake.catalog.snapshot import read_counters, read_snapshots
from airflow_provider_ducklake.lake.errors import (
    CommitStateUnknownError,
    TransactionConflictError,
)
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.snapshots import CommitInfo, CommittedSnapshot, SnapshotId
from airflow_provider_ducklake.lake.storage.files.durable import sync_added
from airflow_provider_ducklake.lake.transaction.changes import (
    AppendFiles,
    changes_catalog,
    changes_definitions,
    check_changes,
)
from airflow_provider_ducklake.lake.transaction.changes_made import format_changes
from airflow_provider_ducklake.lake.transaction.commit_state import CommitState
from airflow_provider_ducklake.lake.transaction.conflicts import check_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.questions import Question
    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.catalog.dialects.effect import Writer
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import Progress, RecordedSnapshot
    from airflow_provider_ducklake.lake.spec.snapshots import CommitRecord, Snapshot
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

log = logger(__name__)


def commit(
    catalog: Catalog,
    planned: PlannedCommit,
    locate: Callable[[str], Location],
    retry: RetryPolicy = DEFAULT_RETRY,
) -> CommittedSnapshot | None:
    """Commit the changes as one new snapshot; where nothing changes, note the rest and return None.

    ``locate`` says where a lake path lies: delete files that hold the snapshot's id are written here.

    Raises:
        TransactionConflictError: a later commit conflicts with this one; nothing landed.
        ZombieCommitError: a later generation of the same task has committed; nothing landed.
        CommitRetriesExceededError: every attempt lost the race; nothing landed.
        CommitStateUnknownError: the connection broke during COMMIT; the snapshot may exist.
        CounterBehindError: a counter of the newest snapshot is wrong; nothing landed.
        StorageError: a local file of the commit cannot be made to last.
    """
    if not planned.makes_snapshot:
        return _note(catalog, planned, retry) if planned.changes or planned.consumed is not None else None
    planned = replace(planned, stages=[with_marks_in_files(catalog, stage) for stage in planned.stages])
    added = (path for change in planned.changes if isinstance(change, AppendFiles) for path in change.paths)
    sync_added(added, catalog.data_path)
    deletes = DeleteWriter(planned.changes, locate, catalog.check_writable)
    try:
        committed = _commit(catalog, planned, deletes, retry)
    except CommitStateUnknownError:
        raise
    except Exception:
        deletes.discard()
        raise
    if committed.is_earlier:
        deletes.discard()
        return committed
    deletes.tidy_up()
    remove_unused((path for stage in planned.stages for path in stage.unused), locate)
    return committed


def _commit(
    catalog: Catalog, planned: PlannedCommit, deletes: DeleteWriter, retry: RetryPolicy
) -> CommittedSnapshot:
    sent: list[SnapshotId] = []
    try:
        committed, attempts = with_retries(
            catalog.dialect, retry, lambda: _attempt(catalog, planned, deletes, sent)
        )
        if committed.is_earlier:
            log.info("This commit was already made as snapshot %d; nothing was written", committed.id)
            return committed
        level = logging.INFO if attempts > 1 else logging.DEBUG  # who asked for the commit says the rest
        log.log(level, "Committed snapshot %d, attempt %d", committed.id, attempts)
        return replace(committed, attempts=attempts)
    except CommitStateUnknownError:
        raise
    except Exception as error:  # after COMMIT a signal handler may raise as well: the files must stay
        if not sent:
            raise
        raise CommitStateUnknownError(sent[-1], type(error).__name__) from driver_error(error)


def _note(catalog: Catalog, planned: PlannedCommit, retry: RetryPolicy) -> CommittedSnapshot | None:
    """Move a consumer's marks, or write what has no versions, where nothing else comes of the changes.

    A lost connection leaves it open whether.
    """

    def attempt() -> CommittedSnapshot | None:
        with catalog.dialect.writing_after(_questions(catalog, planned)) as (connection, answers):
            if planned.keyed is not None and (
                done := _earlier(connection, catalog, planned, planned.keyed, answers)
            ):
                return CommittedSnapshot.earlier(done)
            writer = catalog.dialect.writer(connection)
            for effect in _notes(connection, catalog, planned, answers):
                writer.send(effect)
            writer.prepare()
            writer.commit()
            return None

    return with_retries(catalog.dialect, retry, attempt)[0]


def _notes(
    connection: Connection, catalog: Catalog, planned: PlannedCommit, answers: Mapping[str, Any]
) -> Iterator[Effect]:
    if planned.changes:
        state = _begin(connection, catalog, planned, answers)
        for change in planned.changes:
            yield from effects_of(change, state, catalog.tables)
        yield from restore_log.record_effects(catalog, planned.changes, state)
    if planned.consumed is not None:
        consumers.check_unchanged(planned.consumed, answers["consumed"])
        yield from consumers.record_effects(catalog, planned.consumed, _now(answers["progress"]))


def _now(progress: Progress) -> datetime:
    return progress.server_time or datetime.now(UTC)


def _attempt(
    catalog: Catalog, planned: PlannedCommit, deletes: DeleteWriter, sent: list[SnapshotId]
) -> CommittedSnapshot:
    """Try until the delete files are written for the snapshot that the commit becomes."""
    while deletes.may_write_outside:
        with catalog.dialect.reading() as connection:
            head = read_snapshots.head(connection, catalog.tables)
        deletes.write_for(SnapshotId(head.id + 1))
        with suppress(OtherSnapshotError):
            return _attempt_locked(catalog, planned, deletes, sent)
    return _attempt_locked(catalog, planned, deletes, sent)


def _attempt_locked(
    catalog: Catalog, planned: PlannedCommit, deletes: DeleteWriter, sent: list[SnapshotId]
) -> CommittedSnapshot:
    """Try once under the lock; ``sent`` gets the snapshot's id when COMMIT is sent and was not refused."""
    dialect, tables = catalog.dialect, catalog.tables
    with dialect.writing_after(_questions(catalog, planned)) as (connection, answers):
        if planned.keyed is not None and (
            done := _earlier(connection, catalog, planned, planned.keyed, answers)
        ):
            return CommittedSnapshot.earlier(done)
        state = _begin(connection, catalog, planned, answers)
        effects = [
            effect
            for change in deletes.changes_for(state.snapshot_id)
            for effect in effects_of(change, state, tables)
        ]
        effects.extend(restore_log.record_effects(catalog, planned.changes, state))
        if planned.keyed is not None:
            effects.append(commit_keys.record_effect(catalog, planned.keyed.key, state))
        if planned.consumed is not None:
            consumers.check_unchanged(planned.consumed, answers["consumed"])
            effects.extend(consumers.record_effects(catalog, planned.consumed, state.time))
        if "jobs" in answers:
            jobs.check_open((*planned.releases, *planned.open_jobs), answers["jobs"])
        if planned.releases:
            effects.append(jobs.release_effect(catalog, planned.releases, state.time))
        writer = dialect.writer(connection)
        writer.send(_snapshot_effect(state, tables))  # first: its primary key fails fast
        for effect in effects:
            writer.send(effect)
        writer.send(_changes_effect(state, planned, tables))
        writer.prepare()
        sent.append(state.snapshot_id)
        _finish(connection, dialect, writer, sent)
    return CommittedSnapshot(state.snapshot_id, state.time, attempts=1)


def check_stage(catalog: Catalog, stage: Stage) -> None:
    """Check a stage as its commit would do now; by the commit itself it may be another matter.

    Raises:
        TransactionConflictError: it conflicts with a commit since its base.
    """
    planned = PlannedCommit((stage,), CommitInfo())
    with catalog.dialect.reading() as connection:
        questions = _questions(catalog, planned)
        answers = {name: question.ask(connection) for name, question in questions.items()}
        _begin(connection, catalog, planned, answers)


def _questions(catalog: Catalog, planned: PlannedCommit) -> dict[str, Question[Any]]:
    """Return what is asked under the lock, in one round trip where the database can do that."""
    bases = [stage.base for stage in planned.stages]
    if not bases and planned.consumed is not None:
        bases = [one.upto for one in planned.consumed.ranges]
    questions: dict[str, Question[Any]] = {
        "progress": read_snapshots.which_progress(catalog.tables, min(bases), catalog.dialect.clock),
        "counters": read_counters.which_counters(
            catalog.tables, definitions=changes_definitions(planned.changes)
        ),
        **questions_of(catalog, planned.needs),
    }
    if planned.keyed is not None:
        questions["records"] = commit_keys.which_records(catalog, planned.keyed.key)
    if planned.releases or planned.open_jobs:
        questions["jobs"] = jobs.which_jobs(catalog, (*planned.releases, *planned.open_jobs))
    if planned.consumed is not None:
        questions["consumed"] = consumers.which_consumptions(catalog, planned.consumed.consumer)
    return questions


def _earlier(
    connection: Connection,
    catalog: Catalog,
    planned: PlannedCommit,
    keyed: KeyedCommit,
    answers: Mapping[str, Any],
) -> tuple[CommitRecord, ...]:
    """Return the records of this commit if it was made already.

    Raises:
        ZombieCommitError: a later generation was.
        TransactionConflictError: an earlier generation was, since we planned, or a restore undid one, or
            brought rows of it back.
    """
    found: Sequence[CommitRecord] = answers["records"]
    head: SnapshotId = answers["progress"].head.id
    now = commit_keys.replay(connection, catalog, found, keyed.key, keyed.on_clear)
    if not now.done and now.replaced != keyed.seen.replaced:
        raise TransactionConflictError(
            "replace the rows it had added",
            "of the same task was committed, or undone by a restore, in the meantime",
            "the lake",
            (found or keyed.seen.replaced)[-1].snapshot_id,  # records may be gone
        )
    tables = {record.table_id for record in now.replaced}
    base = max((stage.base for stage in planned.stages), default=0)
    for one in restore_log.restores(connection, catalog) if tables and base else ():
        # one that changed nothing is noted for the next snapshot
        if one.table_id in tables and base < one.restored_at <= head:
            ours, name = "replace the rows it had added", f"table {one.table_id}"
            raise TransactionConflictError(ours, "restored it", name, one.restored_at)
    return now.done


def _begin(
    connection: Connection, catalog: Catalog, planned: PlannedCommit, answers: Mapping[str, Any]
) -> CommitState:
    """Check what was read under the lock, and return the state to build on."""
    progress: Progress = answers["progress"]
    head, changes = progress.head, planned.changes
    for stage in planned.stages:
        since = [one for one in progress.newer if one.id > stage.base]
        _check_since(stage, head, since)
        check_overlap(connection, catalog, stage, head, since)
    read_counters.check_counters(head, answers["counters"])
    facts = locked_facts(connection, catalog, head.id, planned.needs, answers)
    check_changes(changes, facts)
    return CommitState(head, _now(progress), facts, catalog_changes=changes_catalog(changes, facts))


def _check_since(stage: Stage, head: Snapshot, since: Collection[RecordedSnapshot]) -> None:
    ours = [change.claim for change in stage.changes if change.claim is not None]
    check_conflicts(ours, ((one.id, record) for one in since for record in one.changes))
    if len(since) != head.id - stage.base:
        raise TransactionConflictError(
            "commit on top of it",
            "follows snapshots that have expired since this commit was planned",
            "the lake",
            head.id,
        )


def _snapshot_effect(state: CommitState, tables: CatalogTables) -> Effect:
    snapshot = state.snapshot
    return insert(
        tables["snapshot"],
        {
            "snapshot_id": snapshot.id,
            "snapshot_time": snapshot.time,
            "schema_version": snapshot.schema_version,
            "next_catalog_id": snapshot.next_catalog_id,
            "next_file_id": snapshot.next_file_id,
        },
    )


def _changes_effect(state: CommitState, planned: PlannedCommit, tables: CatalogTables) -> Effect:
    info, extra = planned.info, planned.extra
    return insert(
        tables["snapshot_changes"],
        {
            "snapshot_id": state.snapshot_id,
            "changes_made": format_changes(state.records),
            "author": info.author,
            "commit_message": info.message,
            "commit_extra_info": json.dumps(extra, sort_keys=True) if extra is not None else None,
        },
    )


def _finish(connection: Connection, dialect: CatalogDialect, writer: Writer, sent: list[SnapshotId]) -> None:
    """COMMIT; an error that does not say that nothing landed leaves it open whether the snapshot did."""
    try:
        writer.commit()
    except DBAPIError as error:
        if dialect.is_lost_race(error) or dialect.is_refusal(error):
            sent.clear()
            raise
        raise _unknown(connection, sent[-1], error.orig) from driver_error(error)
    except Exception as error:  # raised by a signal handler, say
        raise _unknown(connection, sent[-1], error) from error
    except BaseException:
        connection.invalidate()
        raise


def _unknown(connection: Connection, snapshot_id: SnapshotId, cause: BaseException | None) -> Exception:
    connection.invalidate()  # it may still be in the transaction
    return CommitStateUnknownError(snapshot_id, type(cause).__name__)
