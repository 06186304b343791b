"""Tag snapshots, and remove tags, under the lock under which snapshots expire.

So a snapshot is tagged and stays, or it has expired and tagging it fails. A task's tag is made once: the
task's commit key is recorded in the same transaction, as of its commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from ...errors import TagExistsError, TagNotFoundError
from ...format.snapshots import CommitKey, OnClear, Snapshot, SnapshotId
from ...format.tags import Tag, TagResult
from ..dialects.dialect import Catalog, in_transaction
from ..snapshot import read_snapshots
from ..snapshot.read_snapshots import TAGS, At
from . import commit_keys


@dataclass(frozen=True, slots=True)
class TagRequest:
    """A tag to be made, by whom and what for; ``replace``: also where it names another snapshot."""

    name: str
    at: At = None
    replace: bool = False
    author: str | None = None
    message: str | None = None


def tag(catalog: Catalog, request: TagRequest, key: CommitKey | None = None) -> TagResult:
    """Tag a snapshot, in a transaction of its own.

    A task that was cleared moves the tag that it made before.
    """
    TAGS.ensure(catalog)

    def write(connection: Connection) -> TagResult:
        if (done := _done(connection, catalog, request.name, key)) is not None:
            return done
        snapshot = read_snapshots.snapshot_at(connection, catalog, request.at)
        result = _tag(connection, catalog, request, snapshot, key)
        _record(connection, catalog, key, snapshot.id)
        return result

    return in_transaction(catalog.dialect, write)


def untag(catalog: Catalog, name: str, key: CommitKey | None = None) -> TagResult:
    """Remove a tag, in a transaction of its own; the snapshot stays until the next expiry."""

    def write(connection: Connection) -> TagResult:
        if (done := _done(connection, catalog, name, key)) is not None:
            return done
        read_snapshots.check_version(connection, catalog.tables)
        found = read_snapshots.find_tag(connection, catalog, name)
        if found is None:
            raise TagNotFoundError(name, [one.name for one in read_snapshots.tags(connection, catalog)])
        _forget(connection, catalog, name)
        _record(connection, catalog, key, found.snapshot_id)
        return TagResult(name, found.snapshot_id)

    return in_transaction(catalog.dialect, write)


def _done(connection: Connection, catalog: Catalog, name: str, key: CommitKey | None) -> TagResult | None:
    """Look up the result of an earlier try of the same task; None if there is none."""
    if key is None:
        return None
    found = commit_keys.records_without_snapshot(connection, catalog, key)
    done = commit_keys.replay(connection, catalog, found, key, OnClear.APPEND).done
    return TagResult(name, done[0].snapshot_id, is_earlier=True) if done else None


def _tag(
    connection: Connection, catalog: Catalog, request: TagRequest, snapshot: Snapshot, key: CommitKey | None
) -> TagResult:
    before = read_snapshots.find_tag(connection, catalog, request.name)
    if before is not None and before.snapshot_id == snapshot.id:
        return TagResult(request.name, snapshot.id, is_earlier=True)
    if before is not None and not request.replace and not _is_own(connection, catalog, before, key):
        raise TagExistsError("tag", request.name, before.snapshot_id, snapshot.id)
    _forget(connection, catalog, request.name)
    row = {
        "tag_name": request.name,
        "snapshot_id": snapshot.id,
        "snapshot_time": snapshot.time,
        "tagged_at": catalog.dialect.server_time(connection),
        "author": request.author,
        "message": request.message,
        "commit_key": None if key is None else key.digest,
    }
    connection.execute(TAGS.of(catalog).insert(), row)
    return TagResult(request.name, snapshot.id, None if before is None else before.snapshot_id)


def _is_own(connection: Connection, catalog: Catalog, before: Tag, key: CommitKey | None) -> bool:
    """Return True if the same task of the same run made a tag, before it was cleared."""
    table = TAGS.of(catalog)
    query = select(table.c.commit_key).where(table.c.tag_name == before.name)
    return key is not None and connection.execute(query).scalar_one() == key.digest


def _forget(connection: Connection, catalog: Catalog, name: str) -> None:
    table = TAGS.of(catalog)
    connection.execute(table.delete().where(table.c.tag_name == name))


def _record(connection: Connection, catalog: Catalog, key: CommitKey | None, snapshot_id: SnapshotId) -> None:
    if key is not None:
        commit_keys.record_without_rows(connection, catalog, key, snapshot_id)
