"""Snapshots as the catalog holds them: the newest, one by id or time, all after another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from ... import errors
from ...format.snapshots import Snapshot, SnapshotId, require_id
from ...format.tags import LONGEST_NAME, Tag, tag_name
from ...format.types.texts import require_offset
from ...transaction.changes_made import ChangeRecord, parse_changes
from ..database.connect import AT, Question, in_parts
from ..database.tables import CatalogInteger, CatalogTables, CatalogText, CatalogTimestamp, maybe
from ..dialects.bootstrap import DIGEST, OwnTable

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog


# The table of tags: which snapshots have names, and are not to expire; DuckDB's expiry ignores it.


TAGS = OwnTable(
    "airflow_ducklake_tag",
    sa.Column("tag_name", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("snapshot_id", CatalogInteger, nullable=False),
    sa.Column("snapshot_time", CatalogTimestamp, nullable=False),
    sa.Column("tagged_at", CatalogTimestamp, nullable=False),
    sa.Column("author", CatalogText),
    sa.Column("message", CatalogText),
    sa.Column("commit_key", DIGEST),  # of the task which tagged
)


def tags(connection: sa.Connection, catalog: Catalog) -> list[Tag]:
    """List all tags, in the order of their snapshots; none if the lake has no table of tags."""
    return sorted(map(_tag, _rows(connection, catalog)), key=lambda one: (one.snapshot_id, one.name))


def tags_by_snapshot(connection: sa.Connection, catalog: Catalog) -> dict[int, tuple[str, ...]]:
    """Return the names of the tags of each tagged snapshot, whether that is there or not."""
    found: dict[int, tuple[str, ...]] = {}
    for tag in tags(connection, catalog):
        found[tag.snapshot_id] = (*found.get(tag.snapshot_id, ()), tag.name)
    return found


def find_tag(connection: sa.Connection, catalog: Catalog, name: str) -> Tag | None:
    """Return the tag of a name, None if there is none."""
    return next(map(_tag, _rows(connection, catalog, name)), None)


def tagged_snapshot(connection: sa.Connection, catalog: Catalog, at: str) -> SnapshotId:
    """Return the snapshot that is named by its tag: ``"tag:q3-close"``."""
    name = tag_name(at)
    tag = find_tag(connection, catalog, name)
    if tag is None:
        raise errors.TagNotFoundError(name, [one.name for one in tags(connection, catalog)])
    if tag.is_lost:
        raise errors.TaggedSnapshotLostError(name, tag.snapshot_id, tag.snapshot_time)
    return tag.snapshot_id


def _rows(connection: sa.Connection, catalog: Catalog, name: str | None = None) -> Sequence[sa.Row[Any]]:
    tag, snapshot = TAGS.of(catalog), catalog.tables["snapshot"]
    query = sa.select(tag, maybe(snapshot.c.snapshot_time).label("made_at")).outerjoin(
        snapshot, snapshot.c.snapshot_id == tag.c.snapshot_id
    )
    return TAGS.rows(connection, catalog, query if name is None else query.where(tag.c.tag_name == name))


def _tag(row: sa.Row[Any]) -> Tag:
    return Tag(
        row.tag_name,
        SnapshotId(row.snapshot_id),
        row.snapshot_time,
        row.tagged_at,
        row.author,
        row.message,
        row.made_at != row.snapshot_time,  # one of its number may be of another lake, or history
    )


def head(connection: sa.Connection, tables: CatalogTables) -> Snapshot:
    """Return the newest snapshot."""
    return head_query(tables).ask(connection)


def check_version(connection: sa.Connection, tables: CatalogTables) -> None:
    """Refuse what needs no snapshot, but the lake's version."""
    _check_is_of(tables, connection.execute(sa.select(_version(tables))).scalar_one())


def head_of_any_version(connection: sa.Connection, tables: CatalogTables) -> Snapshot:
    """Return the newest snapshot of a lake that is being migrated."""
    return _snapshot(connection.execute(_by_id(tables, is_newest=True)).one())


@lru_cache
def head_query(tables: CatalogTables) -> Question[Snapshot]:
    """Return the query for the newest snapshot."""
    return Question(_by_id(tables, is_newest=True), lambda rows: _snapshots_of_version(tables, rows)[0])


Moment: TypeAlias = int | datetime | None
At: TypeAlias = Moment | str  # also a tag, such as "tag:q3-close"


def snapshot_at(connection: sa.Connection, catalog: Catalog, at: At) -> Snapshot:
    """Return the snapshot that an id, an aware time or a tag names (None: the newest).

    By a time it is the newest at or before it; at equal times the one with the highest id.
    """
    moment = moment_of(connection, catalog, at)
    return chosen(connection, catalog.tables, moment, snapshot_query(catalog, moment).ask(connection))


def moment_of(connection: sa.Connection, catalog: Catalog, at: At) -> Moment:
    """Resolve a tag to its snapshot's id; other values stay."""
    match at:
        case str():
            return tagged_snapshot(connection, catalog, at)
        case _:
            return possible(at)


def possible(at: Moment) -> Moment:
    """Refuse a time or an id that no snapshot can have."""
    match at:
        case datetime():
            return require_offset(at)
        case int():
            return require_id(at)
        case _:
            return at


def snapshot_query(catalog: Catalog, at: Moment) -> Question[list[Snapshot]]:
    """Build the query of ``snapshot_at``: it finds a few snapshots, and ``chosen`` picks one."""
    if isinstance(at, datetime):
        return _near_query(catalog, at, newest=True)
    tables = catalog.tables
    return Question(
        _by_id(tables, is_newest=at is None),
        lambda rows: _snapshots_of_version(tables, rows),
        {} if at is None else {"at": at},
    )


@lru_cache
def _by_id(tables: CatalogTables, *, is_newest: bool) -> sa.Select[Any]:
    snapshot = tables["snapshot"]
    query = sa.select(snapshot, _version(tables))
    if is_newest:
        return query.order_by(snapshot.c.snapshot_id.desc()).limit(1)
    return query.where(snapshot.c.snapshot_id == AT)


def _version(tables: CatalogTables) -> sa.ColumnElement[Any]:
    """Return the version of the lake as it is now, beside each row."""
    metadata = tables["metadata"]
    version = sa.select(maybe(sa.func.max(metadata.c.value))).where(metadata.c.key == "version")
    return version.scalar_subquery().label("version")


def _snapshots_of_version(tables: CatalogTables, rows: Sequence[sa.Row[Any]]) -> list[Snapshot]:
    """Return snapshots of a lake of the version that it was opened at: in others names mean other things."""
    for row in rows:
        _check_is_of(tables, row.version)
    return [_snapshot(row) for row in rows]


def _check_is_of(tables: CatalogTables, version: str) -> None:
    if version != tables.version.value:
        raise errors.CatalogMigratedError(tables.version.value, version)


def chosen(
    connection: sa.Connection, tables: CatalogTables, at: Moment, found: Sequence[Snapshot]
) -> Snapshot:
    """Return the one of the answers to ``snapshot_query``; raises as ``snapshot_at``."""
    if isinstance(at, datetime):
        found = [one for one in found if one.time <= at]
    if not found:
        if isinstance(at, datetime):
            raise _not_found(connection, tables, f"at {at.isoformat()}", with_times=True)
        raise _not_found(connection, tables, str(at))
    return max(found, key=lambda one: (one.time, one.id))


def existing(
    connection: sa.Connection, tables: CatalogTables, snapshot_ids: Collection[SnapshotId]
) -> frozenset[SnapshotId]:
    """Return those of the snapshots that are there."""
    ids = tables["snapshot"].c.snapshot_id
    return frozenset(
        SnapshotId(one)
        for part in in_parts(snapshot_ids)
        for one in connection.execute(sa.select(ids).where(ids.in_(part))).scalars()
    )


def snapshot_from_time(connection: sa.Connection, catalog: Catalog, timestamp: datetime) -> Snapshot:
    """Return the oldest snapshot at or after an aware time; at equal times the lowest id."""
    near = _near_query(catalog, timestamp, newest=False).ask(connection)
    found = [one for one in near if one.time >= timestamp]
    if not found:
        raise _not_found(connection, catalog.tables, f"at or after {timestamp.isoformat()}", with_times=True)
    return min(found, key=lambda one: (one.time, one.id))


def _near_query(catalog: Catalog, time: datetime, *, newest: bool) -> Question[list[Snapshot]]:
    """Ask for few snapshots, among them the newest up to a time, or the oldest from it on."""
    snapshot = catalog.tables["snapshot"]
    times, ids = snapshot.c.snapshot_time, snapshot.c.snapshot_id
    is_comparable = catalog.dialect.is_ordered(times)
    order = (times.desc(), ids.desc()) if newest else (times, ids)
    nearest = (
        sa.select(ids)
        .where(is_comparable, times <= time if newest else times >= time)
        .order_by(*order)
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(snapshot, _version(catalog.tables)).where(sa.or_(ids == nearest, ~is_comparable))
    return Question(query, lambda rows: _snapshots_of_version(catalog.tables, rows))


def _not_found(
    connection: sa.Connection, tables: CatalogTables, wanted: str, *, with_times: bool = False
) -> errors.SnapshotNotFoundError:
    snapshot = tables["snapshot"]
    ids = snapshot.c.snapshot_id
    oldest, newest = connection.execute(sa.select(maybe(sa.func.min(ids)), maybe(sa.func.max(ids)))).one()
    made: tuple[datetime, ...] = ()
    if with_times:
        ends = sa.select(snapshot).where(ids.in_((oldest, newest))).order_by(ids)
        rows = [_snapshot(row) for row in connection.execute(ends)]
        made = (rows[0].time, rows[-1].time)
    return errors.SnapshotNotFoundError(wanted, oldest, newest, made)


def _snapshot(row: sa.Row[Any]) -> Snapshot:
    return Snapshot(
        SnapshotId(row.snapshot_id),
        row.schema_version,
        row.next_catalog_id,
        row.next_file_id,
        row.snapshot_time,
    )


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """A snapshot, its author and message, and what it changed; ``extra`` is ``commit_extra_info``."""

    snapshot: Snapshot
    changes: tuple[ChangeRecord, ...]
    author: str | None
    message: str | None
    extra: str | None

    @property
    def id(self) -> SnapshotId:
        """Its snapshot id."""
        return self.snapshot.id

    @property
    def time(self) -> datetime:
        """Its aware UTC time."""
        return self.snapshot.time


def all_snapshots(connection: sa.Connection, tables: CatalogTables) -> list[Snapshot]:
    """Return all snapshots, oldest first, without what they changed."""
    snapshot = tables["snapshot"]
    return [
        _snapshot(row) for row in connection.execute(sa.select(snapshot).order_by(snapshot.c.snapshot_id))
    ]


def authors_and_messages(
    connection: sa.Connection, tables: CatalogTables
) -> list[tuple[int, str | None, str | None]]:
    """Return the id, author and message of each snapshot that has one of the two."""
    changes = tables["snapshot_changes"]
    has_one = sa.or_(changes.c.author.is_not(None), changes.c.commit_message.is_not(None))
    query = sa.select(changes.c.snapshot_id, changes.c.author, changes.c.commit_message).where(has_one)
    return [(row.snapshot_id, row.author, row.commit_message) for row in connection.execute(query)]


def recorded_snapshots(connection: sa.Connection, tables: CatalogTables) -> list[RecordedSnapshot]:
    """Return all snapshots, oldest first."""
    return _recorded(connection.execute(_with_changes(tables)).all())


def newer_query(tables: CatalogTables, than: int) -> Question[list[RecordedSnapshot]]:
    """Return the query for the snapshots newer than one, oldest first."""
    return Question(_newer(tables), _recorded, {"after": than})


@lru_cache
def _newer(tables: CatalogTables) -> sa.Select[Any]:
    ids = tables["snapshot"].c.snapshot_id
    return _with_changes(tables).where(ids > sa.bindparam("after", type_=sa.BigInteger))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a lake is: its newest snapshot, those after the one asked about, and its server's time."""

    head: Snapshot
    newer: list[RecordedSnapshot]
    server_time: datetime | None


def progress_query(
    tables: CatalogTables, since: int, clock: sa.ColumnElement[datetime] | None
) -> Question[Progress]:
    """Ask what came after a snapshot; ``clock`` is the server's, where it has one.

    The answer raises a TransactionConflictError where the newest snapshot is older (a backup was restored),
    and where the lake was migrated since it was opened: names may mean other schemas by now.
    """

    def progress(rows: Sequence[sa.Row[Any]]) -> Progress:
        if not rows:
            theirs = "is newer than any snapshot in the catalog, as if a backup had been restored"
            raise errors.TransactionConflictError("commit on top of it", theirs, "the lake", since)
        if (version := rows[-1].version) != tables.version.value:
            ours = f"write it as DuckLake {tables.version.value}"
            theirs = f"is of DuckLake {version} by now"
            raise errors.TransactionConflictError(ours, theirs, "the lake", SnapshotId(rows[-1].snapshot_id))
        newer = _recorded(row for row in rows if row.snapshot_id > since)
        return Progress(_snapshot(rows[-1]), newer, None if clock is None else rows[-1].now)

    return Question(_progress(tables, clock), progress, {"since": since})


@lru_cache
def _progress(tables: CatalogTables, clock: sa.ColumnElement[datetime] | None) -> sa.Select[Any]:
    ids = tables["snapshot"].c.snapshot_id
    query = _with_changes(tables).where(ids >= sa.bindparam("since", type_=sa.BigInteger))
    query = query.add_columns(_version(tables))
    return query if clock is None else query.add_columns(clock.label("now"))


def _with_changes(tables: CatalogTables) -> sa.Select[Any]:
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    texts = [changes.c[name] for name in _SAID]
    return (
        sa.select(snapshot, changes.c.changes_made, *texts)
        .outerjoin(changes, snapshot.c.snapshot_id == changes.c.snapshot_id)
        .order_by(snapshot.c.snapshot_id)
    )


_SAID = ("author", "commit_message", "commit_extra_info")


def _recorded(rows: Iterable[sa.Row[Any]]) -> list[RecordedSnapshot]:
    return [
        RecordedSnapshot(
            _snapshot(row), parse_changes(row.changes_made), *(getattr(row, name) for name in _SAID)
        )
        for row in rows
    ]
