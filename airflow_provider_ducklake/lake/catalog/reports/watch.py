"""Find the changes of a table since a snapshot; the one function behind sensors and triggers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from airflow_provider_ducklake.lake.catalog.database.questions import Question
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.planning.reading.watch import (
    DELETE,
    TableChanges,
    is_flush,
    wanted_words,
    words_of,
)
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Row

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import RecordedSnapshot
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot, SnapshotId


@dataclass(frozen=True, slots=True)
class News:
    """What came after a snapshot: the newest, all that are newer, and the ids of the tables by folded name.

    Where nothing came, ``table_ids`` is None: they are what they were.
    """

    head: Snapshot
    newer: tuple[RecordedSnapshot, ...]
    table_ids: Mapping[tuple[str, ...], int] | None


def news(catalog: Catalog, since: int | None) -> News:
    """Return what came after a snapshot, None: nothing but where the lake is; one statement if nothing came.

    Raises:
        TransactionConflictError: the newest snapshot is older, or the lake was migrated since it was opened.
    """
    tables, all_tables = catalog.tables, read.which_tables(catalog.tables, None)
    if since is None:
        first: dict[str, Question[Any]] = {
            "head": read_snapshots.which_head(tables),
            "tables": all_tables,
        }
        answers = catalog.dialect.ask_at_once(first)
        return News(answers["head"], (), _ids(answers["tables"]))
    progress = catalog.dialect.ask_at_once({"it": read_snapshots.which_progress(tables, since, None)})["it"]
    if not progress.newer:
        return News(progress.head, (), None)
    found = catalog.dialect.ask_at_once({"tables": all_tables})  # perhaps newer: nobody minds
    return News(progress.head, tuple(progress.newer), _ids(found["tables"]))


def _ids(rows: Sequence[read.TableRow]) -> Mapping[tuple[str, ...], int]:
    return {row.qualified.folded: row.id for row in rows}


def table_changes(
    catalog: Catalog, name: QualifiedName, since: int, kinds: Collection[str]
) -> TableChanges | None:
    """Return the wanted changes after snapshot ``since``; None if there are none, or no such table (yet).

    In PostgreSQL it takes two round trips, whatever it finds.
    """
    wanted, tables = wanted_words(kinds), catalog.tables
    first: dict[str, Question[Any]] = {
        "head": read_snapshots.which_head(tables),
        "rows": read.which_tables(tables, None, name),
        "newer": read_snapshots.which_newer(tables, since),
    }
    with catalog.dialect.reading_after(first) as (connection, answers):
        if not answers["rows"]:
            return None
        row, newer, head = answers["rows"][0], answers["newer"], answers["head"]
        deleting = [one for one in newer if _deletes(one.changes, row.id)]
        asked = _which_made(tables, row.id, deleting) if deleting and DELETE in wanted else {}
        made = catalog.dialect.ask(connection, asked, is_last=True)
    flushes = set(_flushes(newer, deleting, **made)) if made else set()
    found = {
        word
        for one in newer
        for word in words_of(one.changes, row.id, name, deletes_are_flush=one.id in flushes)
    }
    if found.isdisjoint(wanted):
        return None
    return TableChanges(str(row.qualified), since, head.id, tuple(sorted(found & wanted)), row.id)


def expired_changes(
    catalog: Catalog, name: QualifiedName, since: int, kinds: Collection[str]
) -> TableChanges | None:
    """Return the changes that there may have been of a table in snapshots that expired after ``since``.

    None if all snapshots are there, or there is no such table.
    """
    wanted, tables = wanted_words(kinds), catalog.tables
    asked: dict[str, Question[Any]] = {
        "head": read_snapshots.which_head(tables),
        "rows": read.which_tables(tables, None, name),
        "newer": read_snapshots.which_newer(tables, since),
    }
    answers = catalog.dialect.ask_at_once(asked)
    head, rows = answers["head"], answers["rows"]
    there = sum(one.id <= head.id for one in answers["newer"])
    if not rows or there >= head.id - since:
        return None
    return TableChanges(str(rows[0].qualified), since, head.id, tuple(sorted(wanted)), rows[0].id)


def _deletes(records: Collection[ChangeRecord], table_id: int) -> bool:
    return any(one.kind is ChangeKind.DELETED_FROM_TABLE and one.object_id == table_id for one in records)


def _which_made(
    tables: CatalogTables, table_id: int, deleting: Sequence[RecordedSnapshot]
) -> dict[str, Question[Any]]:
    """Ask which delete files got their ids from snapshots, and which snapshots ended data files."""
    snapshot, delete, data = tables["snapshot"], tables["delete_file"], tables["data_file"]
    first, last = deleting[0], deleting[-1]
    before = select(func.coalesce(func.max(snapshot.c.next_file_id), 0).label("id")).where(
        snapshot.c.snapshot_id < first.id
    )
    created = read.select_all(delete, "partial_max").where(
        delete.c.table_id == table_id,
        delete.c.delete_file_id >= before.scalar_subquery(),
        delete.c.delete_file_id < last.snapshot.next_file_id,
    )
    created = created.order_by(delete.c.delete_file_id)
    ended = (
        select(data.c.end_snapshot.label("id"))
        .distinct()
        .where(data.c.table_id == table_id, data.c.end_snapshot >= first.id)
    )
    return {
        "before": Question(before, lambda rows: int(rows[0].id)),
        "created": Question(created, list),
        "ended": Question(ended, lambda rows: {row.id for row in rows}),
    }


def _flushes(
    newer: Sequence[RecordedSnapshot],
    deleting: Sequence[RecordedSnapshot],
    before: int,
    created: Sequence[Row[Any]],
    ended: Collection[int],
) -> Iterator[SnapshotId]:
    asked = {one.id for one in deleting}
    ids = [row.delete_file_id for row in created]
    first = before
    for one in newer:
        if one.id in asked:
            made = created[bisect_left(ids, first) : bisect_left(ids, one.snapshot.next_file_id)]
            ages = [(row.begin_snapshot, row.partial_max) for row in made]
            if is_flush(one.id, ages, ended_files=one.id in ended):
                yield one.id
        first = max(first, one.snapshot.next_file_id)
