"""Check that every snapshot records its changes, and that counters rise as running clients expect."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.snapshot import read_counters, read_tags
from airflow_provider_ducklake.lake.catalog.verify.look import lacking
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord, parse_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Row

    from airflow_provider_ducklake.lake.catalog.verify.look import Look

_COUNTERS = ("schema_version", "next_catalog_id", "next_file_id")
_OF_DEFINITIONS = ("created_", "dropped_", "altered_")
_WITH_STATISTICS = (ChangeKind.INSERTED_INTO_TABLE, ChangeKind.INLINED_INSERT)


def check_snapshots(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with the snapshots and their changes."""
    rows = _snapshots(look)
    first = next(rows)
    yield from _one(first)
    for before, row in pairwise((first, *rows)):
        yield from _one(row)
        yield from _counters(before, row)
    yield from _changes_of_none(look)


def _snapshots(look: Look) -> Iterator[Row[Any]]:
    snapshot, changes = look.tables["snapshot"], look.tables["snapshot_changes"]
    query = (
        select(
            snapshot.c.snapshot_id,
            *(snapshot.c[name] for name in _COUNTERS),
            maybe(changes.c.snapshot_id).label("changes_id"),
            changes.c.changes_made,
        )
        .outerjoin(changes, changes.c.snapshot_id == snapshot.c.snapshot_id)
        .order_by(snapshot.c.snapshot_id)
    )
    return look.all(query)


def _one(row: Row[Any]) -> Iterator[Finding]:
    objects = {"snapshot_id": row.snapshot_id}
    if row.changes_id is None:
        sentence = f"Snapshot {row.snapshot_id} has no row in ducklake_snapshot_changes."
        yield Finding(FindingCode.CHANGES_MISSING, sentence, objects)
    if (problem := _unreadable(row.changes_made)) is not None:
        sentence = f"What snapshot {row.snapshot_id} says it changed cannot be read: {problem}"
        yield Finding(FindingCode.CHANGES_UNREADABLE, sentence, objects)


def _unreadable(text: str | None) -> str | None:
    try:
        records = parse_changes(text)
    except CatalogError as error:
        return str(error)
    words = [one.word for one in records if one.kind is None]
    return f"DuckDB has no such change: {', '.join(words)}." if words else None


def _records(text: str | None) -> tuple[ChangeRecord, ...]:
    try:
        return parse_changes(text)
    except CatalogError:
        return ()


def _counters(before: Row[Any], row: Row[Any]) -> Iterator[Finding]:
    for name in _COUNTERS:
        old, new = getattr(before, name), getattr(row, name)
        if new < old:
            sentence = f"{name} is {new} in snapshot {row.snapshot_id}, after {old} in {before.snapshot_id}."
            yield Finding(FindingCode.COUNTER_FELL, sentence, {"snapshot_id": row.snapshot_id})
    if row.snapshot_id == before.snapshot_id + 1:  # of what came between, nothing is known
        yield from _stood(before, row)


def _stood(before: Row[Any], row: Row[Any]) -> Iterator[Finding]:
    records = _records(row.changes_made)
    objects = {"snapshot_id": row.snapshot_id}
    defines = any(one.kind is not None and one.kind.value.startswith(_OF_DEFINITIONS) for one in records)
    if defines and row.schema_version == before.schema_version:
        sentence = (
            f"Snapshot {row.snapshot_id} changed definitions ({row.changes_made}) but left schema_version "
            f"{row.schema_version}: clients that ran before do not see it."
        )
        yield Finding(FindingCode.SCHEMA_VERSION_STOOD, sentence, objects)
    if any(one.kind in _WITH_STATISTICS for one in records) and row.next_file_id == before.next_file_id:
        sentence = (
            f"Snapshot {row.snapshot_id} added rows ({row.changes_made}) but left next_file_id "
            f"{row.next_file_id}: clients that ran before use old statistics, and give wrong rows."
        )
        yield Finding(FindingCode.FILE_COUNTER_STOOD, sentence, objects)


def _changes_of_none(look: Look) -> Iterator[Finding]:
    snapshot, changes = look.tables["snapshot"], look.tables["snapshot_changes"]
    of_snapshot = snapshot.c.snapshot_id == changes.c.snapshot_id
    joined, has_none = lacking(changes, snapshot.c.snapshot_id, of_snapshot)
    query = select(changes.c.snapshot_id).select_from(joined).where(has_none)
    for row in look.few(query):
        yield Finding(
            FindingCode.ROWS_OF_NOTHING,
            f"ducklake_snapshot_changes has a row of snapshot {row.snapshot_id}, which does not exist.",
            {"rows_of": "snapshot_changes", "snapshot_id": row.snapshot_id},
        )


def check_tags(look: Look) -> Iterator[Finding]:
    """Yield the tags whose snapshots have expired, by a client that does not know tags."""
    for tag in read_tags.tags(look.connection, look.catalog):
        if tag.is_lost:
            yield Finding(
                FindingCode.TAG_WITHOUT_SNAPSHOT,
                f"The tag {tag.name!r} names snapshot {tag.snapshot_id}, made at {tag.snapshot_time}, which "
                "has expired.",
                {"tag": tag.name, "snapshot_id": tag.snapshot_id},
            )


def check_counters(look: Look) -> Iterator[Finding]:
    """Yield the counters of the newest snapshot that would give out an id again."""
    least = read_counters.which_counters(look.tables, definitions=True).ask(look.connection)
    yield from (
        Finding(
            FindingCode.COUNTER_BEHIND,
            f"The newest snapshot {look.head.id} has {name} {getattr(look.head, name)}, but the catalog "
            f"holds what needs {wanted}: the next commit would give out the same number twice.",
            {"counter": name, "least": wanted},
        )
        for name, wanted in least.items()
        if getattr(look.head, name) < wanted
    )
