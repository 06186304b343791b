"""How a snapshot gets written and retried.

One commit is one SQL transaction with exactly one row in ``ducklake_snapshot``, whose primary key is the only
lock that DuckDB respects. Our own writers queue on the dialect's commit lock first, so among themselves they
never lose a race. Everything is recomputed on every attempt: ids, row ids, statistics, conflicts. *Source:*
dossier §10.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.catalog import commit_keys, read
from airflow_provider_ducklake.catalog.effects import effects_of
from airflow_provider_ducklake.catalog.effects.effect import Effect, insert
from airflow_provider_ducklake.catalog.known_stats import known_stats
from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, RetryPolicy, with_retries
from airflow_provider_ducklake.errors import (
    CommitStateUnknownError,
    TransactionConflictError,
)
from airflow_provider_ducklake.spec.commit_key import OnClear
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot
from airflow_provider_ducklake.transaction.change_set import changes_catalog, ordered
from airflow_provider_ducklake.transaction.changes_made import format_changes
from airflow_provider_ducklake.transaction.commit_state import CommitState
from airflow_provider_ducklake.transaction.conflicts import check_conflicts
from airflow_provider_ducklake.transaction.replay import Replay, replay_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.spec.commit_key import CommitKey, CommitRecord
    from airflow_provider_ducklake.spec.ids import SnapshotId
    from airflow_provider_ducklake.spec.snapshots import Snapshot
    from airflow_provider_ducklake.transaction.changes import Change

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeyedCommit:
    """A commit that is to be made once; ``seen`` is what its key's records said when it was planned."""

    key: CommitKey
    on_clear: OnClear = OnClear.REPLACE
    seen: Replay = field(default_factory=Replay)


def commit(  # noqa: PLR0913 - the last two have defaults
    catalog: Catalog,
    base: SnapshotId,
    changes: Iterable[Change],
    info: CommitInfo,
    *,
    retry: RetryPolicy = DEFAULT_RETRY,
    keyed: KeyedCommit | None = None,
) -> CommittedSnapshot | None:
    """Commit ``changes``, planned on snapshot ``base``, as one new snapshot; no changes, no snapshot (None).

    Raises:
        TransactionConflictError: somebody committed what ours does not go together with; nothing landed.
        ZombieCommitError: a later generation of the same task has committed; nothing landed.
        CommitRetriesExceededError: every attempt lost the race; nothing landed.
        CommitStateUnknownError: the connection broke during COMMIT; the snapshot may exist.
    """
    changes = ordered(changes)
    if not changes:
        return None
    committed, attempts = with_retries(
        catalog.dialect, retry, lambda: _attempt(catalog, base, changes, info, keyed)
    )
    if committed.is_earlier:
        log.info("Snapshot %d is this commit already; nothing was written", committed.id)
        return committed
    log.info("Committed snapshot %d, attempt %d", committed.id, attempts)
    return replace(committed, attempts=attempts)


def _attempt(
    catalog: Catalog,
    base: SnapshotId,
    changes: Collection[Change],
    info: CommitInfo,
    keyed: KeyedCommit | None,
) -> CommittedSnapshot:
    dialect, tables = catalog.dialect, catalog.tables
    with dialect.writing() as connection:
        if keyed is not None and (done := _earlier(connection, catalog, keyed)):
            return CommittedSnapshot.earlier(done)
        state = _begin(connection, catalog, base, changes)
        effects = [effect for change in changes for effect in effects_of(change, state, tables)]
        if keyed is not None:
            effects.append(commit_keys.record_effect(catalog, keyed.key, state))
        _run(connection, _snapshot_effect(state, tables))  # first: its primary key fails fast
        for effect in effects:
            _run(connection, effect)
        _run(connection, _changes_effect(state, info, tables))
        _finish(connection, dialect, state.snapshot_id)
    return CommittedSnapshot(state.snapshot_id, state.time, attempts=1)


def _earlier(connection: Connection, catalog: Catalog, keyed: KeyedCommit) -> tuple[CommitRecord, ...]:
    """Return the records of this commit if it was made already.

    Raises:
        ZombieCommitError: a later generation was.
        TransactionConflictError: an earlier generation was, since we planned.
    """
    found = commit_keys.records(connection, catalog, keyed.key)
    now = replay_of(found, keyed.key, keyed.on_clear)
    if not now.done and now.replaced != keyed.seen.replaced:
        raise TransactionConflictError(
            "replace what it had added", "is another one of the same task", "the lake", found[-1].snapshot_id
        )
    return now.done


def _begin(
    connection: Connection, catalog: Catalog, base: SnapshotId, changes: Collection[Change]
) -> CommitState:
    """Read the head and what happened since our plan, check conflicts, and return the state to build on."""
    tables = catalog.tables
    head = read.head(connection, tables)
    _check_since(connection, tables, base, head, changes)
    known = known_stats(connection, catalog, changes)
    clock = catalog.dialect.server_time(connection)
    return CommitState(head, clock, known, catalog_changes=changes_catalog(changes))


def _check_since(
    connection: Connection,
    tables: CatalogTables,
    base: SnapshotId,
    head: Snapshot,
    changes: Collection[Change],
) -> None:
    if head.id == base:
        return
    newer = read.recorded_snapshots(connection, tables, after=base)
    check_conflicts(changes, ((one.id, record) for one in newer for record in one.changes))
    if len(newer) != head.id - base:
        raise TransactionConflictError(
            "commit on top of it", "follows snapshots that were expired since we planned", "the lake", head.id
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


def _changes_effect(state: CommitState, info: CommitInfo, tables: CatalogTables) -> Effect:
    return insert(
        tables["snapshot_changes"],
        {
            "snapshot_id": state.snapshot_id,
            "changes_made": format_changes(state.records),
            "author": info.author,
            "commit_message": info.message,
            "commit_extra_info": json.dumps(info.extra, sort_keys=True) if info.extra is not None else None,
        },
    )


def _run(connection: Connection, effect: Effect) -> None:
    if effect.rows is None:
        connection.execute(effect.statement)
    else:
        connection.execute(effect.statement, list(effect.rows))


def _finish(connection: Connection, dialect: CatalogDialect, snapshot_id: SnapshotId) -> None:
    """COMMIT; an error that is not a lost race leaves it open whether the snapshot landed."""
    try:
        connection.commit()
    except DBAPIError as error:
        if dialect.is_lost_race(error):
            raise
        raise _unknown(connection, snapshot_id, error.orig) from error
    except Exception as error:  # raised by a signal handler, say
        raise _unknown(connection, snapshot_id, error) from error
    except BaseException:
        connection.invalidate()
        raise


def _unknown(connection: Connection, snapshot_id: SnapshotId, cause: BaseException | None) -> Exception:
    connection.invalidate()  # it may still be in the transaction
    return CommitStateUnknownError(snapshot_id, type(cause).__name__)
