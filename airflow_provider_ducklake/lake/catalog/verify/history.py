"""Check that every snapshot records its changes, and that counters rise as running clients expect."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, func, literal, null, or_, select, union_all

from airflow_provider_ducklake.lake.catalog.database.tables import maybe
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.catalog.verify.look import lacking
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord, parse_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Row, Select, Table

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
    for tag in read_snapshots.tags(look.connection, look.catalog):
        if tag.is_lost:
            yield Finding(
                FindingCode.TAG_WITHOUT_SNAPSHOT,
                f"The tag {tag.name!r} names snapshot {tag.snapshot_id}, made at {tag.snapshot_time}, which "
                "has expired.",
                {"tag": tag.name, "snapshot_id": tag.snapshot_id},
            )


def check_counters(look: Look) -> Iterator[Finding]:
    """Yield the counters of the newest snapshot that would give out an id again."""
    least = read.which_counters(look.tables, definitions=True).ask(look.connection)
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


# Check that lifetimes are in order: at each snapshot there is one row of each object.


# Catalog table, the column that names the thing, and the one that names its table.
_VERSIONED = (
    ("schema", "schema_id", None),
    ("table", "table_id", "table_id"),
    ("view", "view_id", None),
    ("macro", "macro_id", None),
    ("tag", "object_id", None),
    ("view_column_tag", "view_id", None),
    ("column", "column_id", "table_id"),
    ("column_tag", "column_id", "table_id"),
    ("partition_info", "partition_id", "table_id"),
    ("sort_info", "sort_id", "table_id"),
    ("data_file", "data_file_id", "table_id"),
    ("delete_file", "delete_file_id", "table_id"),
)
# Catalog table, the column that names its row, and what may have one row at a time.
_SINGLE = (
    ("table", "table_id", ("table_id",)),
    ("view", "view_id", ("view_id",)),
    ("macro", "macro_id", ("macro_id",)),
    ("column", "column_id", ("table_id", "column_id")),
    ("partition_info", "partition_id", ("table_id",)),
    ("sort_info", "sort_id", ("table_id",)),
)
_FOR_EVER = 2**62


def check_lifetimes(look: Look) -> Iterator[Finding]:
    """Yield the rows that end before they begin, or lie behind the newest snapshot.

    A column may end with the snapshot that it begins with: so the reference keeps the id of one that came and
    went in the transaction that made its table.
    """
    there = (one for one in _VERSIONED if one[0] in look.tables)
    parts = [_misplaced(look, *one) for one in there if look.is_whole or one[2] is not None]
    for row in look.few(select(union_all(*parts).subquery())):
        ends_early = row.end_snapshot is not None and row.end_snapshot <= row.begin_snapshot
        where = f"from {row.begin_snapshot} to {row.end_snapshot}"
        says = "ends before it begins" if ends_early else f"is after the newest snapshot {look.head.id}"
        of_table = "" if row.table_id is None else f" of {look.table(row.table_id)}"
        yield Finding(
            FindingCode.ENDS_BEFORE_BEGIN if ends_early else FindingCode.IN_THE_FUTURE,
            f"The row of {row.kind} {row.id}{of_table} ({where}) {says}.",
            {"kind": row.kind, "id": row.id, "table_id": row.table_id},
        )


def _misplaced(look: Look, name: str, id_: str, table_id: str | None) -> Select[Any]:
    table = look.tables[name]
    begin, end = table.c.begin_snapshot, table.c.end_snapshot
    ends_early = end < begin if name == "column" else end <= begin
    query = select(
        literal(name).label("kind"),
        table.c[id_].label("id"),
        (null() if table_id is None else table.c[table_id]).label("table_id"),
        begin.label("begin_snapshot"),
        end.label("end_snapshot"),
    ).where(or_(ends_early, begin > look.head.id, end > look.head.id))
    return query if table_id is None else query.where(look.chosen(table.c[table_id]))


def check_single(look: Look) -> Iterator[Finding]:
    """Yield what has two rows at one snapshot, or a name that something else has."""
    for name, id_, keys in _SINGLE:
        table = look.tables[name]
        if not look.is_whole and "table_id" not in table.c:
            continue
        condition = look.chosen(table.c.table_id) if "table_id" in table.c else literal(value=True)
        for row in look.few(overlapping(table, keys, id_, condition)):
            of_table = f" of {look.table(row.table_id)}" if "table_id" in keys else ""
            yield Finding(
                FindingCode.COLUMN_TWICE if name == "column" else FindingCode.TWO_AT_ONCE,
                f"{name} {row.id}{of_table} has a second row at snapshot {row.begin_snapshot}.",
                {"kind": name, "id": row.id, **({"table_id": row.table_id} if of_table else {})},
            )
    yield from _same_names(look)
    yield from _same_columns(look)


def overlapping(table: Table, keys: Sequence[str], id_: str, condition: ColumnElement[bool]) -> Select[Any]:
    """Return the query for rows that begin before another of the same ``keys`` has ended."""
    end = func.coalesce(table.c.end_snapshot, _FOR_EVER)
    before = func.max(end).over(
        partition_by=[table.c[key] for key in keys],
        order_by=(table.c.begin_snapshot, end),
        rows=(None, -1),
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


def _same_names(look: Look) -> Iterator[Finding]:
    table, view = look.tables["table"], look.tables["view"]
    live = union_all(
        *(
            select(one.c.schema_id, one.c[id_].label("id"), func.lower(one.c[name]).label("name")).where(
                one.c.end_snapshot.is_(None)
            )
            for one, id_, name in ((table, "table_id", "table_name"), (view, "view_id", "view_name"))
        )
    ).subquery()
    query = (
        select(
            live.c.schema_id,
            live.c.name,
            func.min(live.c.id).label("first"),
            func.max(live.c.id).label("last"),
        )
        .group_by(live.c.schema_id, live.c.name)
        .having(func.count(live.c.id.distinct()) > 1)
    )
    for row in look.few(query) if look.is_whole else ():
        yield Finding(
            FindingCode.NAME_TWICE,
            f"The name {row.name} stands for two tables or views of schema {row.schema_id}: {row.first} and "
            f"{row.last}.",
            {"schema_id": row.schema_id, "first_id": row.first, "last_id": row.last},
        )


def _same_columns(look: Look) -> Iterator[Finding]:
    column = look.tables["column"]
    name = func.lower(column.c.column_name)
    query = (
        select(column.c.table_id, column.c.parent_column, name.label("name"))
        .where(column.c.end_snapshot.is_(None), look.chosen(column.c.table_id))
        .group_by(column.c.table_id, column.c.parent_column, name)
        .having(func.count(column.c.column_id.distinct()) > 1)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.NAME_TWICE,
            f"{look.table(row.table_id)} has two columns with the name {row.name}.",
            {"table_id": row.table_id, "parent_column": row.parent_column},
        )
