"""Find the changes of a table since a snapshot; the one function behind sensors and triggers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, func, or_, select

from ...format.names.identifiers import QualifiedName
from ...format.partitioning import PartitionSpec, partition_key, why_not_partitioned
from ...planning.reading.scan import BEGIN_SNAPSHOT, END_SNAPSHOT, ChangeFeedPlan, FileHistory, InlinedRows
from ...planning.reading.watch import DELETE, RangeReport, TableChanges, is_flush, wanted_words, words_of
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..database.connect import Question
from ..snapshot import read, read_snapshots
from ..snapshot.read_files import partition_values_query
from ..snapshot.scan import partition_specs
from .changes import find_changes

if TYPE_CHECKING:
    from ...format.snapshots import Snapshot, SnapshotId
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog
    from ..snapshot.read_snapshots import RecordedSnapshot


@dataclass(frozen=True, slots=True)
class News:
    """The snapshots after one: the newest, all newer ones, and the ids of the tables by folded name.

    Where nothing came, ``table_ids`` is None: they are what they were.
    """

    head: Snapshot
    newer: tuple[RecordedSnapshot, ...]
    table_ids: Mapping[tuple[str, ...], int] | None


def news(catalog: Catalog, since: int | None) -> News:
    """Read the snapshots after one, in a single statement if there is none (None: only the newest one)."""
    tables, all_tables = catalog.tables, read.tables_query(catalog.tables, None)
    if since is None:
        first: dict[str, Question[Any]] = {"head": read_snapshots.head_query(tables), "tables": all_tables}
        answers = catalog.dialect.ask_at_once(first)
        return News(answers["head"], (), _ids(answers["tables"]))
    progress = catalog.dialect.ask_at_once({"it": read_snapshots.progress_query(tables, since, None)})["it"]
    if not progress.newer:
        return News(progress.head, (), None)
    found = catalog.dialect.ask_at_once({"tables": all_tables})  # may be newer, which is harmless
    return News(progress.head, tuple(progress.newer), _ids(found["tables"]))


def _ids(rows: Sequence[read.TableRow]) -> Mapping[tuple[str, ...], int]:
    return {row.qualified.folded: row.id for row in rows}


def table_changes(
    catalog: Catalog, name: QualifiedName, since: int, kinds: Collection[str], *, with_expired: bool
) -> TableChanges | None:
    """Return the wanted changes after snapshot ``since``; None if there are none, or no such table (yet).

    ``with_expired``: if there are none, and snapshots after ``since`` have expired, return all wanted
    changes: each may have been in these. In PostgreSQL it takes two round trips, whatever it finds.
    """
    wanted, tables = wanted_words(kinds), catalog.tables
    first: dict[str, Question[Any]] = {
        "head": read_snapshots.head_query(tables),
        "rows": read.tables_query(tables, None, name),
        "newer": read_snapshots.newer_query(tables, since),
    }
    with catalog.dialect.reading_after(first) as (connection, answers):
        if not answers["rows"]:
            return None
        row, newer, head = answers["rows"][0], answers["newer"], answers["head"]
        deleting = [one for one in newer if _deletes(one.changes, row.id)]
        asked = _made_query(tables, row.id, deleting) if deleting and DELETE in wanted else {}
        made = catalog.dialect.ask(connection, asked, is_last=True)
    flushes = set(_flushes(newer, deleting, **made)) if made else set()
    found = {
        word
        for one in newer
        for word in words_of(one.changes, row.id, name, deletes_are_flush=one.id in flushes)
    }
    is_complete = sum(one.id <= head.id for one in newer) >= head.id - since
    changes = wanted & found
    if not changes and with_expired and not is_complete:
        changes = wanted
    if not changes:
        return None
    return TableChanges(str(row.qualified), since, head.id, tuple(sorted(changes)), row.id, is_complete)


def _deletes(records: Collection[ChangeRecord], table_id: int) -> bool:
    return any(one.kind is ChangeKind.DELETED_FROM_TABLE and one.object_id == table_id for one in records)


def _made_query(
    tables: CatalogTables, table_id: int, deleting: Sequence[RecordedSnapshot]
) -> dict[str, Question[Any]]:
    """Ask which delete files got their ids from snapshots, and which snapshots ended data files."""
    snapshot, delete, data = tables["snapshot"], tables["delete_file"], tables["data_file"]
    first, last = deleting[0], deleting[-1]
    before = select(func.coalesce(func.max(snapshot.c.next_file_id), 0).label("id")).where(
        snapshot.c.snapshot_id < first.id
    )
    created = select(delete).where(
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


# Report what a range of snapshots did to a table: how many rows, in which partitions, and who.


def touched_partitions(
    connection: Connection, catalog: Catalog, plan: ChangeFeedPlan
) -> tuple[str, ...] | None:
    """Return the partitions in which rows came or went, sorted; None: any may be one."""
    specs = partition_specs(connection, catalog.tables, plan.table.table_id)
    files = [one.file for one in plan.files if added(plan, one) != 0 or deleted(plan, one) != 0]
    if not specs:
        return ()
    ids = [one.id for one in files]
    asked = partition_values_query(catalog.tables, plan.table.table_id, ids)
    values = asked.ask(connection) if ids else {}
    found: set[str] = set()
    for file in files:
        spec = specs.get(file.partition_id) if file.partition_id is not None else None
        name = None if spec is None else _key(plan, spec, values.get(file.id, ()))
        if name is None:
            return None
        found.add(name)
    for name in _partitions_of_inlined(plan):
        if name is None:
            return None
        found.add(name)
    return tuple(sorted(found))


def _key(plan: ChangeFeedPlan, spec: PartitionSpec, values: Sequence[str | None]) -> str | None:
    known = {column.id for column in plan.table.schema.columns}
    if len(values) != len(spec.fields) or not known.issuperset(one.column_id for one in spec.fields):
        return None
    return partition_key(spec.fields, plan.table.schema, values)


def _partitions_of_inlined(plan: ChangeFeedPlan) -> Iterator[str | None]:
    """Yield the partitions that rows in the catalog will be flushed to."""
    from ...storage.arrow.rows import split_by_partition
    from ...storage.rows.inlined_values import inlined_in_schema

    touched = tuple(
        InlinedRows(part.table_name, part.schema, rows)
        for part in plan.inlined
        if (rows := tuple(row for row in part.rows if _is_touched(plan, row)))
    )
    if not touched:
        return
    spec = plan.table.partition_spec
    if spec is None or why_not_partitioned(spec.fields, plan.table.schema):
        yield None
        return
    rows = inlined_in_schema(touched, plan.table.schema)
    for values, _ in split_by_partition(rows, plan.table.schema, spec.fields):
        yield _key(plan, spec, values)


def _is_touched(plan: ChangeFeedPlan, row: Mapping[str, Any]) -> bool:
    moments = (row[BEGIN_SNAPSHOT], row[END_SNAPSHOT])
    return any(one is not None and plan.start <= one <= plan.end for one in moments)


def authors_of(
    connection: Connection, catalog: Catalog, table_id: int, after: int, upto: int
) -> tuple[str, ...]:
    """Return who changed a table in snapshots after one, up to another, as far as they say, sorted."""
    newer = read_snapshots.newer_query(catalog.tables, after).ask(connection)
    ours = (one for one in newer if one.id <= upto and any(of.object_id == table_id for of in one.changes))
    return tuple(sorted({one.author for one in ours if one.author}))


def commit_reports(connection: Connection, catalog: Catalog, snapshot: Snapshot) -> Iterator[RangeReport]:
    """Yield what a snapshot did to each table that it changed; upkeep changes none."""
    newer = read_snapshots.newer_query(catalog.tables, snapshot.id - 1).ask(connection)
    recorded = next((one for one in newer if one.id == snapshot.id), None)
    if recorded is None:
        return
    records = recorded.changes
    for table_id, name in _touched_tables(connection, catalog, snapshot, records):
        is_flush = _deletes(records, table_id) and _flushed(connection, catalog, table_id, recorded)
        words = words_of(records, table_id, name, deletes_are_flush=is_flush)
        if words:
            plan = find_changes(connection, catalog, name, snapshot.id, snapshot)
            report = reported(connection, catalog, plan, tuple(sorted(words)))
            yield replace(report, is_new=_creates(records, name))


def _flushed(connection: Connection, catalog: Catalog, table_id: int, recorded: RecordedSnapshot) -> bool:
    """Return True if a snapshot that deletes from a table only moved older inlined deletes into files."""
    made = catalog.dialect.ask(connection, _made_query(catalog.tables, table_id, [recorded]))
    return recorded.id in _flushes([recorded], [recorded], **made)


def _touched_tables(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, records: Iterable[ChangeRecord]
) -> list[tuple[int, QualifiedName]]:
    """Return the tables that records may be about, whatever the number of others: by id, or just created."""
    table = catalog.tables["table"].c
    ids = {one.object_id for one in records if one.object_id is not None}
    is_meant = or_(table.table_id.in_(ids), table.begin_snapshot == snapshot.id)
    query = select(table.table_id, table.schema_id, table.table_name)
    query = query.where(read.visible(catalog.tables["table"], snapshot.id), is_meant)
    rows = connection.execute(query.order_by(table.table_id)).all()
    paths = read.all_schema_paths(connection, catalog.tables) if rows else {}
    named = [(row, paths[row.schema_id]) for row in rows if row.schema_id in paths]
    return [(int(row.table_id), QualifiedName(path, row.table_name)) for row, path in named]


def _creates(records: Iterable[ChangeRecord], name: QualifiedName) -> bool:
    return any(
        one.kind is ChangeKind.CREATED_TABLE
        and isinstance(one.name, QualifiedName)
        and one.name.folded == name.folded
        for one in records
    )


def reported(
    connection: Connection, catalog: Catalog, plan: ChangeFeedPlan, changes: tuple[str, ...]
) -> RangeReport:
    """Return the report of a complete range."""
    counts, after = count_changes(plan), plan.start - 1
    return RangeReport(
        str(plan.table.name),
        plan.table.table_id,
        after,
        plan.end,
        changes,
        counts.added,
        counts.deleted,
        touched_partitions(connection, catalog, plan),
        authors_of(connection, catalog, plan.table.table_id, after, plan.end),
    )


# Count the rows that came and went between two snapshots, from what the catalog says of them.
#
# Of few files it does not say it: merged or flushed ones, whose rows each say when they came and went, as
# long as only some of them did so within the range.


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Rows that came and went, None where the catalog does not say how many. An update counts as both."""

    added: int | None
    deleted: int | None


def count_changes(plan: ChangeFeedPlan) -> ChangeCounts:
    """Count the rows of a change feed without reading a file."""
    inlined = [row for part in plan.inlined for row in part.rows]
    return ChangeCounts(
        _sum_of_known(
            [
                *(added(plan, one) for one in plan.files),
                _within(plan, (row[BEGIN_SNAPSHOT] for row in inlined)),
            ]
        ),
        _sum_of_known(
            [
                *(deleted(plan, one) for one in plan.files),
                _within(plan, (row[END_SNAPSHOT] for row in inlined)),
            ]
        ),
    )


def added(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Count a file's rows that were added within the range; None: only reading it can show that."""
    file, before = history.file, plan.start - 1
    if file.begin_snapshot in plan.rewrites:
        return 0 if file.partial_max is None else None
    first, last = file.begin_snapshot, file.partial_max or file.begin_snapshot
    if last <= before or first > plan.end:
        return 0
    is_whole = first > before and last <= plan.end and not plan.rewrites.intersection(range(first, last + 1))
    return file.record_count if is_whole else None


def deleted(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Count a file's rows that were deleted within the range; None: only reading more can show that."""
    gone, gone_before = _gone(history, plan.end), _gone(history, plan.start - 1)
    if gone is None or gone_before is None:
        return None
    ended = history.ended_by
    if ended is not None and plan.start <= ended <= plan.end and ended not in plan.rewrites:
        gone = history.file.record_count
    return gone - gone_before


def _gone(history: FileHistory, at: int) -> int | None:
    """Count a file's rows deleted up to a snapshot, in delete files and in the catalog; None: unknown."""
    counts = [0]
    for one in history.delete_files:
        if one.begin_snapshot > at:
            continue
        if (one.partial_max or one.begin_snapshot) > at:
            return None
        counts.append(one.delete_count)
    return max(counts) + sum(snapshot <= at for snapshot in history.marks.values())


def _within(plan: ChangeFeedPlan, snapshots: Iterable[int | None]) -> int:
    return sum(one is not None and plan.start <= one <= plan.end for one in snapshots)


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    total = 0
    for one in counts:
        if one is None:
            return None
        total += one
    return total
