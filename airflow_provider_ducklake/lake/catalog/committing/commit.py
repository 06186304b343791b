"""Write a snapshot, and retry when another writer commits first.

One commit is one SQL transaction with exactly one row in ``ducklake_snapshot``, whose primary key is the only
lock that DuckDB respects. Our own writers queue on the dialect's commit lock first, so among themselves they
never lose a race. Everything is recomputed on every attempt: ids, row ids, statistics, conflicts. *Source:*
docs/sources.md, commits.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from ...errors import CommitStateUnknownError, TransactionConflictError
from ...format.log_lines import logger
from ...format.options import Options
from ...format.snapshots import (
    CommitInfo,
    CommitKey,
    CommitRecord,
    CommittedSnapshot,
    JsonValue,
    OnClear,
    Snapshot,
    SnapshotId,
    TableId,
)
from ...storage.files.local import sync_added
from ...transaction import changes as kinds
from ...transaction.changes import CommitState
from ...transaction.changes_made import Replay, format_changes
from ...transaction.conflicts import check_conflicts
from ...transaction.declared import Needs, OfTable
from ..database.connect import Question, driver_error
from ..dialects.dialect import (
    DEFAULT_RETRY,
    Catalog,
    CatalogDialect,
    CommitRetryPolicy,
    Effect,
    Writer,
    insert,
    with_retries,
)
from ..effects import effects_of
from ..ledger import commit_keys, consumers, jobs, restores
from ..snapshot import read, read_snapshots
from ..snapshot.read import check_counters, counters_query
from ..snapshot.read_snapshots import Progress, RecordedSnapshot, head_query
from .delete_writer import DeleteWriter, OtherSnapshotError, remove_unused, with_flushed_deletes
from .locked_facts import locked_facts, questions_of
from .overlap import check_overlap

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ...storage.files.filesystem import Location
    from ..database.tables import CatalogTables
    from ..ledger.consumers import Consumed
    from ..open_lake import OpenLake


# Planned commits: changes, the snapshots they were planned on, and the key that makes them once.


@dataclass(frozen=True, slots=True)
class KeyedCommit:
    """A commit that is to be made once; ``seen`` is the content of its key's records when it was planned."""

    key: CommitKey
    on_clear: OnClear = OnClear.REPLACE
    seen: Replay = field(default_factory=Replay)


@dataclass(frozen=True)
class PlannedCommit:
    """Stages that become one snapshot, what they say of themselves, and how to make them once.

    ``releases`` are the ids of registered jobs whose files these are; those ``open_jobs`` have more of them,
    and go on. ``consumed`` is what the changes were made of. ``demands_message``: a lake that requires
    messages refuses a snapshot without one.
    """

    change_sets: Sequence[kinds.ChangeSet]
    info: CommitInfo
    keyed: KeyedCommit | None = None
    releases: Sequence[str] = ()
    open_jobs: Sequence[str] = ()
    consumed: Consumed | None = None
    demands_message: bool = False

    @property
    def makes_snapshot(self) -> bool:
        """Return True if a versioned object changes; a consumer's position alone makes no snapshot."""
        return any(change.makes_snapshot for change in self.changes)

    @property
    def extra(self) -> Mapping[str, JsonValue] | None:
        """What ``commit_extra_info`` gets: the author's values, and the key of a commit that is made once."""
        if self.keyed is None:
            return self.info.extra
        return {**(self.info.extra or {}), **self.keyed.key.extra}

    @property
    def newest(self) -> SnapshotId | None:
        """The newest snapshot when the changes were made, None where it was not read."""
        return max(
            (change_set.newest for change_set in self.change_sets if change_set.newest is not None),
            default=None,
        )

    @cached_property
    def changes(self) -> tuple[kinds.Change, ...]:
        """The changes of all change sets, in the order of their effects."""
        return kinds.ordered([change for change_set in self.change_sets for change in change_set.changes])

    @cached_property
    def needs(self) -> Needs:
        """What the checks of the changes read under the lock."""
        return Needs.of_all(change.needs for change in self.changes)


log = logger(__name__)


def commit(
    catalog: Catalog,
    planned: PlannedCommit,
    locate: Callable[[str], Location],
    retry: CommitRetryPolicy = DEFAULT_RETRY,
) -> CommittedSnapshot | None:
    """Commit the changes as one new snapshot; where nothing changes, note the rest and return None.

    ``locate`` says where a lake path lies: delete files that hold the snapshot's id are written here.
    """
    if not planned.makes_snapshot:
        return _note(catalog, planned, retry) if planned.changes or planned.consumed is not None else None
    planned = replace(
        planned, change_sets=[with_flushed_deletes(catalog, change_set) for change_set in planned.change_sets]
    )
    added = (
        path for change in planned.changes if isinstance(change, kinds.AppendFiles) for path in change.paths
    )
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
    remove_unused((path for change_set in planned.change_sets for path in change_set.unused), locate)
    return committed


def _commit(
    catalog: Catalog, planned: PlannedCommit, deletes: DeleteWriter, retry: CommitRetryPolicy
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


def _note(catalog: Catalog, planned: PlannedCommit, retry: CommitRetryPolicy) -> CommittedSnapshot | None:
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
        yield from restores.record_effects(catalog, planned.changes, state)
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
        newest = planned.newest if deletes.is_first_round else None
        if newest is None:
            newest = catalog.dialect.ask_at_once({"head": head_query(catalog.tables)})["head"].id
        deletes.write_for(SnapshotId(newest + 1))
        with suppress(OtherSnapshotError):
            return _attempt_locked(catalog, planned, deletes, sent)
    return _attempt_locked(catalog, planned, deletes, sent)


def _attempt_locked(
    catalog: Catalog, planned: PlannedCommit, deletes: DeleteWriter, sent: list[SnapshotId]
) -> CommittedSnapshot:
    """Try once under the lock; ``sent`` gets the snapshot's id when COMMIT is sent and was not refused."""
    dialect, tables = catalog.dialect, catalog.tables
    with dialect.writing_after(_questions(catalog, planned)) as (connection, answers):
        if "options" in answers:
            planned.info.check(Options.effective(answers["options"]))
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
        effects.extend(restores.record_effects(catalog, planned.changes, state))
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
    removed: Counter[TableId] = Counter()
    for change in planned.changes:
        if isinstance(change, OfTable) and (count := change.rows_removed(state.facts)):
            removed[change.table_id] += count
    return CommittedSnapshot(state.snapshot_id, state.time, attempts=1, removed=removed)


def check_change_set(catalog: Catalog, change_set: kinds.ChangeSet) -> None:
    """Check a change set as its commit would do now; by the commit itself it may be another matter."""
    planned = PlannedCommit((change_set,), CommitInfo())
    with catalog.dialect.reading() as connection:
        questions = _questions(catalog, planned)
        answers = {name: question.ask(connection) for name, question in questions.items()}
        _begin(connection, catalog, planned, answers)


def _questions(catalog: Catalog, planned: PlannedCommit) -> dict[str, Question[Any]]:
    """Build the queries that are sent under the lock, in one round trip where the database can do that."""
    bases = [change_set.base for change_set in planned.change_sets]
    if not bases and planned.consumed is not None:
        bases = [one.upto for one in planned.consumed.ranges]
    questions: dict[str, Question[Any]] = {
        "progress": read_snapshots.progress_query(catalog.tables, min(bases), catalog.dialect.clock),
        "counters": counters_query(catalog.tables, definitions=kinds.changes_definitions(planned.changes)),
        **questions_of(catalog, planned.needs),
    }
    if planned.demands_message and planned.makes_snapshot and planned.info.message is None:
        questions["options"] = read.options_query(catalog.tables)
    if planned.keyed is not None:
        questions["records"] = commit_keys.records_query(catalog, planned.keyed.key)
    if planned.releases or planned.open_jobs:
        questions["jobs"] = jobs.jobs_query(catalog, (*planned.releases, *planned.open_jobs))
    if planned.consumed is not None:
        questions["consumed"] = consumers.consumptions_query(catalog, planned.consumed.consumer)
    return questions


def _earlier(
    connection: Connection,
    catalog: Catalog,
    planned: PlannedCommit,
    keyed: KeyedCommit,
    answers: Mapping[str, Any],
) -> tuple[CommitRecord, ...]:
    """Return the records of this commit if it was made already."""
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
    base = max((change_set.base for change_set in planned.change_sets), default=0)
    for one in restores.restores(connection, catalog) if tables and base else ():
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
    for change_set in planned.change_sets:
        since = [one for one in progress.newer if one.id > change_set.base]
        _check_since(change_set, head, since)
        check_overlap(connection, catalog, change_set, head, since)
    check_counters(head, answers["counters"])
    facts = locked_facts(connection, catalog, head.id, planned.needs, answers)
    kinds.check_changes(changes, facts)
    return CommitState(head, _now(progress), facts, catalog_changes=kinds.changes_catalog(changes, facts))


def _check_since(change_set: kinds.ChangeSet, head: Snapshot, since: Collection[RecordedSnapshot]) -> None:
    ours = [change.claim for change in change_set.changes if change.claim is not None]
    check_conflicts(ours, ((one.id, record) for one in since for record in one.changes))
    if len(since) != head.id - change_set.base:
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


# Commit planned changes to an open lake, checked against the lake's options.


class Committer:
    """Commits to one lake."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def commit(
        self,
        base: SnapshotId,
        changes: Iterable[kinds.Change],
        info: CommitInfo,
        *,
        retry: CommitRetryPolicy = DEFAULT_RETRY,
        keyed: KeyedCommit | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes that were planned on snapshot ``base``; see ``commit``."""
        planned = PlannedCommit((kinds.ChangeSet(base, tuple(changes)),), info, keyed, demands_message=True)
        return self.commit_planned(planned, retry)

    def commit_change_sets(
        self,
        change_sets: Sequence[kinds.ChangeSet],
        info: CommitInfo,
        *,
        keyed: KeyedCommit | None = None,
        job_ids: Collection[str] = (),
        consumed: Consumed | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes planned on several snapshots as one; each is checked against what followed its own.

        The commit releases the jobs that wrote the files; where nothing is to be committed they stay as they
        are. What is ``consumed`` is noted in the same transaction, also without changes.
        """
        planned = PlannedCommit(
            tuple(change_sets), info, keyed, releases=tuple(job_ids), consumed=consumed, demands_message=True
        )
        return self.commit_planned(planned)

    def commit_planned(
        self, planned: PlannedCommit, retry: CommitRetryPolicy = DEFAULT_RETRY
    ) -> CommittedSnapshot | None:
        """Commit what was planned."""
        self._lake.refuse_unwritable()
        with self._lake.translated():
            committed = commit(self._lake.catalog, planned, self._lake.locate, retry)
        if committed is not None:
            self._lake.report_written(planned.changes)
        return committed
