"""Check that snapshots record their changes, counters rise, and each object has one row at each snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Table, func, literal, null, or_, select, true, union_all

from ...errors import CatalogError
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ...transaction.changes_made import ChangeKind, ChangeRecord, parse_changes
from ..database.tables import maybe
from ..snapshot import read, read_snapshots
from .scope import Check, Fields, Search, VerificationScope, lacking

_COUNTERS = ("schema_version", "next_catalog_id", "next_file_id")
_OF_DEFINITIONS = ("created_", "dropped_", "altered_")
_WITH_STATISTICS = (ChangeKind.INSERTED_INTO_TABLE, ChangeKind.INLINED_INSERT)


def _findings_of_snapshots(scope: VerificationScope) -> Iterator[Finding]:
    """Yield what is wrong with the snapshots and their changes, each beside the one before it."""
    snapshot, changes = scope.tables["snapshot"], scope.tables["snapshot_changes"]
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
    before = None
    for row in scope.all(query):
        objects = {"snapshot_id": row.snapshot_id}
        records, problem = _parsed(row.changes_made)
        if row.changes_id is None:
            sentence = f"Snapshot {row.snapshot_id} has no row in ducklake_snapshot_changes."
            yield Finding(Code.CHANGES_MISSING, sentence, objects)
        if problem is not None:
            sentence = f"What snapshot {row.snapshot_id} says it changed cannot be read: {problem}"
            yield Finding(Code.CHANGES_UNREADABLE, sentence, objects)
        if before is not None:
            yield from _counters(before, row, records)
        before = row


def _parsed(text: str | None) -> tuple[tuple[ChangeRecord, ...], str | None]:
    """Parse the changes of a snapshot as far as they can be read, and say what cannot."""
    try:
        records = parse_changes(text)
    except CatalogError as error:
        return (), str(error)
    words = [one.word for one in records if one.kind is None]
    return records, f"DuckDB has no such change: {', '.join(words)}." if words else None


def _counters(before: Row[Any], row: Row[Any], records: Sequence[ChangeRecord]) -> Iterator[Finding]:
    objects = {"snapshot_id": row.snapshot_id}
    for name in _COUNTERS:
        old, new = getattr(before, name), getattr(row, name)
        if new < old:
            sentence = f"{name} is {new} in snapshot {row.snapshot_id}, after {old} in {before.snapshot_id}."
            yield Finding(Code.COUNTER_FELL, sentence, objects)
    if row.snapshot_id != before.snapshot_id + 1:
        return  # of what came between, nothing is known
    kinds = [one.kind for one in records if one.kind is not None]
    defines = any(kind.value.startswith(_OF_DEFINITIONS) for kind in kinds)
    if defines and row.schema_version == before.schema_version:
        sentence = (
            f"Snapshot {row.snapshot_id} changed definitions ({row.changes_made}) but left schema_version "
            f"{row.schema_version}: clients that ran before do not see it."
        )
        yield Finding(Code.SCHEMA_VERSION_STOOD, sentence, objects)
    if any(kind in _WITH_STATISTICS for kind in kinds) and row.next_file_id == before.next_file_id:
        sentence = (
            f"Snapshot {row.snapshot_id} added rows ({row.changes_made}) but left next_file_id "
            f"{row.next_file_id}: clients that ran before use old statistics, and give wrong rows."
        )
        yield Finding(Code.FILE_COUNTER_STOOD, sentence, objects)


def _changes_of_nothing(scope: VerificationScope) -> Select[Any]:
    snapshot, changes = scope.tables["snapshot"], scope.tables["snapshot_changes"]
    of_snapshot = snapshot.c.snapshot_id == changes.c.snapshot_id
    rows_of = literal("snapshot_changes").label("rows_of")
    return lacking(snapshot.c.snapshot_id, of_snapshot, changes.c.snapshot_id, rows_of)


def _counters_behind(scope: VerificationScope) -> Iterator[Fields]:
    least = read.counters_query(scope.tables, definitions=True).ask(scope.connection)
    for counter, wanted in least.items():
        if (found := getattr(scope.head, counter)) < wanted:
            yield {"counter": counter, "found": found, "least": wanted, "head": scope.head.id}


def _lost_tags(scope: VerificationScope) -> Iterator[Fields]:
    for tag in read_snapshots.tags(scope.connection, scope.catalog):
        if tag.is_lost:
            yield {"tag": tag.name, "snapshot_id": tag.snapshot_id, "time": tag.snapshot_time}


# At each snapshot there is one row of each object.


# Catalog table, and the column that names the object; the format's tags are comments.
_VERSIONED = {
    "schema": "schema_id", "table": "table_id", "view": "view_id", "macro": "macro_id", "tag": "object_id",
    "view_column_tag": "view_id", "column": "column_id", "column_tag": "column_id",
    "partition_info": "partition_id", "sort_info": "sort_id", "data_file": "data_file_id",
    "delete_file": "delete_file_id",
}  # fmt: skip
_FOREVER = 2**62


def _misplaced_rows(scope: VerificationScope) -> Iterator[Finding]:
    """Yield the rows that end before they begin, or lie behind the newest snapshot.

    A column may end with the snapshot that it begins with: so the reference keeps the id of one that came and
    went in the transaction that made its table.
    """
    there = [kind for kind in _VERSIONED if kind in scope.tables]
    parts = [
        _misplaced(scope, kind) for kind in there if scope.is_whole or "table_id" in scope.tables[kind].c
    ]
    for row in scope.limited(select(union_all(*parts).subquery())):
        ends_early = row.end_snapshot is not None and row.end_snapshot <= row.begin_snapshot
        where = f"from {row.begin_snapshot} to {row.end_snapshot}"
        says = "ends before it begins" if ends_early else f"is after the newest snapshot {scope.head.id}"
        of_table = "" if row.table_id is None else f" of {scope.table(row.table_id)}"
        yield Finding(
            Code.ENDS_BEFORE_BEGIN if ends_early else Code.IN_THE_FUTURE,
            f"The row of {row.kind} {row.id}{of_table} ({where}) {says}.",
            {"kind": row.kind, "id": row.id, "table_id": row.table_id},
        )


def _misplaced(scope: VerificationScope, kind: str) -> Select[Any]:
    table = scope.tables[kind]
    begin, end = table.c.begin_snapshot, table.c.end_snapshot
    ends_early = end < begin if kind == "column" else end <= begin
    query = select(
        literal(kind).label("kind"),
        table.c[_VERSIONED[kind]].label("id"),
        (table.c.table_id if "table_id" in table.c else null()).label("table_id"),
        begin.label("begin_snapshot"),
        end.label("end_snapshot"),
    ).where(or_(ends_early, begin > scope.head.id, end > scope.head.id))
    return query.where(scope.chosen(table.c.table_id)) if "table_id" in table.c else query


def _two_at_once(kind: str, *keys: str) -> Check:
    """Check that no two rows of the same ``keys`` are there at one snapshot."""
    of_table = "table_id" in keys

    def query(scope: VerificationScope) -> Select[Any]:
        table = scope.tables[kind]
        chosen = scope.chosen(table.c.table_id) if of_table else true()
        rows = overlapping(table, keys, _VERSIONED[kind], chosen)
        return rows.add_columns(literal(kind).label("kind"))

    code = Code.COLUMN_TWICE if kind == "column" else Code.TWO_AT_ONCE
    sentence = "has a second row at snapshot {begin_snapshot}."
    if of_table:
        return Check(code, query, ("kind", "id", "table_id"), f"{{kind}} {{id}} of {{table}} {sentence}")
    return Check(code, query, ("kind", "id"), f"{{kind}} {{id}} {sentence}", of_lake=True)


def overlapping(table: Table, keys: Sequence[str], id_: str, condition: ColumnElement[bool]) -> Select[Any]:
    """Return the query for rows that begin before another of the same ``keys`` has ended."""
    end = func.coalesce(table.c.end_snapshot, _FOREVER)
    before = func.max(end).over(
        partition_by=[table.c[key] for key in keys], order_by=(table.c.begin_snapshot, end), rows=(None, -1)
    )
    rows = (
        select(
            *(table.c[key] for key in keys),
            table.c[id_].label("id"),
            table.c.begin_snapshot,
            before.label("before"),
        )
        .where(condition, end > table.c.begin_snapshot)
        .subquery()
    )
    return select(rows).where(rows.c.before > rows.c.begin_snapshot)


def _same_names(scope: VerificationScope) -> Select[Any]:
    table, view = scope.tables["table"], scope.tables["view"]
    live = union_all(
        *(
            select(one.c.schema_id, one.c[id_].label("id"), func.lower(one.c[name]).label("name")).where(
                one.c.end_snapshot.is_(None)
            )
            for one, id_, name in ((table, "table_id", "table_name"), (view, "view_id", "view_name"))
        )
    ).subquery()
    ids = func.min(live.c.id).label("first_id"), func.max(live.c.id).label("last_id")
    names = select(live.c.schema_id, live.c.name, *ids).group_by(live.c.schema_id, live.c.name)
    return names.having(func.count(live.c.id.distinct()) > 1)


def _same_columns(scope: VerificationScope) -> Select[Any]:
    column = scope.tables["column"]
    name = func.lower(column.c.column_name)
    return (
        select(column.c.table_id, column.c.parent_column, name.label("name"))
        .where(column.c.end_snapshot.is_(None), scope.chosen(column.c.table_id))
        .group_by(column.c.table_id, column.c.parent_column, name)
        .having(func.count(column.c.column_id.distinct()) > 1)
    )


CHECKS = (
    Search(_findings_of_snapshots, (Code.CHANGES_MISSING, Code.CHANGES_UNREADABLE, Code.COUNTER_FELL,
                           Code.SCHEMA_VERSION_STOOD, Code.FILE_COUNTER_STOOD), of_lake=True),
    Check(Code.ROWS_OF_NOTHING, _changes_of_nothing, ("rows_of", "snapshot_id"),
          "ducklake_snapshot_changes has a row of snapshot {snapshot_id}, which does not exist.",
          of_lake=True),
    Check(Code.COUNTER_BEHIND, _counters_behind, ("counter", "least"),
          "The newest snapshot {head} has {counter} {found}, and the catalog uses {least} - 1 already: the "
          "next commit would give out the same number twice.", of_lake=True),
    Check(Code.TAG_WITHOUT_SNAPSHOT, _lost_tags, ("tag", "snapshot_id"),
          "The tag {tag!r} names snapshot {snapshot_id}, made at {time}, which is not in the lake.",
          of_lake=True),
    Search(_misplaced_rows, (Code.ENDS_BEFORE_BEGIN, Code.IN_THE_FUTURE)),
    _two_at_once("table", "table_id"),
    _two_at_once("view", "view_id"),
    _two_at_once("macro", "macro_id"),
    _two_at_once("column", "table_id", "column_id"),
    _two_at_once("partition_info", "table_id"),
    _two_at_once("sort_info", "table_id"),
    Check(Code.NAME_TWICE, _same_names, ("schema_id", "first_id", "last_id"),
          "The name {name} stands for two tables or views of schema {schema_id}: {first_id} and {last_id}.",
          of_lake=True),
    Check(Code.NAME_TWICE, _same_columns, ("table_id", "parent_column"),
          "{table} has two columns with the name {name}."),
)  # fmt: skip
