"""Check that the catalog's rows of data files and delete files have owners, possible values and paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa

from ...format.names.paths import CatalogPath, is_below, why_not_deletable
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..database.tables import maybe
from ..snapshot.read_files import may_mislead
from .history import overlapping
from .scope import MOST_OF_A_KIND, Check, Fields, Search, VerificationScope

_OF_DATA_FILES = ("file_column_stats", "file_variant_stats", "file_partition_value")
TRANSACTION_LOCAL = 10**18  # row ids from here on are numbers that the reference leaked from a transaction


def _without_live_table(scope: VerificationScope) -> Iterator[Finding]:
    """Yield the files whose table never was, and live ones whose table has ended."""
    table = scope.tables["table"]
    live = sa.func.count(sa.case((table.c.end_snapshot.is_(None), 1))).label("live")
    owners = sa.select(table.c.table_id, live, sa.func.max(table.c.end_snapshot).label("last"))
    owner = owners.group_by(table.c.table_id).subquery()
    parts = []
    for kind in ("data_file", "delete_file"):
        file = scope.tables[kind]
        has_ended = sa.and_(file.c.end_snapshot.is_(None), owner.c.live == 0)
        parts.append(
            sa.select(
                sa.literal(kind).label("kind"),
                file.c[f"{kind}_id"].label("id"),
                file.c.table_id,
                maybe(owner.c.table_id).label("known"),
                owner.c.last,
            )
            .outerjoin(owner, owner.c.table_id == file.c.table_id)
            .where(scope.chosen(file.c.table_id), sa.or_(owner.c.table_id.is_(None), has_ended))
        )
    for row in scope.limited(sa.select(sa.union_all(*parts).subquery())):
        objects = {"kind": row.kind, "id": row.id, "table_id": row.table_id}
        named = f"{row.kind.replace('_', ' ').capitalize()} {row.id} of {scope.table(row.table_id)}"
        if row.known is not None:
            sentence = f"{named} is live, but the table ended with snapshot {row.last}."
            yield Finding(Code.TABLE_ENDED, sentence, {**objects, "end_snapshot": row.last})
        else:
            yield Finding(Code.TABLE_UNKNOWN, f"{named}: there is no such table.", objects)


def _referring(kind: str, column: str, other: str) -> Callable[[VerificationScope], sa.Select[Any]]:
    """Select the files whose ``column`` names no row that their table has in the ``other`` catalog table."""

    def query(scope: VerificationScope) -> sa.Select[Any]:
        file, owner = scope.tables[kind], scope.tables[other]
        is_there = sa.exists().where(owner.c[column] == file.c[column], owner.c.table_id == file.c.table_id)
        rows = sa.select(file.c[f"{kind}_id"], file.c.table_id, file.c[column])
        return rows.where(file.c[column].is_not(None), scope.chosen(file.c.table_id), ~is_there)

    return query


def _two_delete_files(scope: VerificationScope) -> sa.Select[Any]:
    file, delete = scope.tables["data_file"], scope.tables["delete_file"]
    keys, chosen = ("data_file_id", "table_id"), scope.chosen(delete.c.table_id)
    twice = overlapping(delete, keys, "delete_file_id", chosen).subquery()
    return (
        sa.select(
            twice.c.table_id, twice.c.data_file_id, twice.c.id.label("delete_file_id"), twice.c.begin_snapshot
        )
        .join(file, file.c.data_file_id == twice.c.data_file_id)
        .where(sa.or_(file.c.end_snapshot.is_(None), file.c.end_snapshot > twice.c.begin_snapshot))
    )


def _other_partition_values(scope: VerificationScope) -> sa.Select[Any]:
    file, key, value = (
        scope.tables[one] for one in ("data_file", "partition_column", "file_partition_value")
    )
    count = sa.func.count().label("count")
    keys = sa.select(key.c.partition_id, count).group_by(key.c.partition_id).subquery()
    values = sa.select(value.c.data_file_id, count).group_by(value.c.data_file_id).subquery()
    wanted, found = sa.func.coalesce(keys.c.count, 0), sa.func.coalesce(values.c.count, 0)
    return (
        sa.select(file.c.data_file_id, file.c.table_id, wanted.label("wanted"), found.label("found"))
        .outerjoin(keys, keys.c.partition_id == file.c.partition_id)
        .outerjoin(values, values.c.data_file_id == file.c.data_file_id)
        .where(scope.chosen(file.c.table_id), wanted != found)
    )


def _impossible_counts(scope: VerificationScope) -> Iterator[Finding]:
    """Yield the data files with impossible counts or row ids, or with rows of impossible snapshots."""
    file = scope.tables["data_file"]
    impossible = sa.or_(
        file.c.record_count < 0,
        file.c.record_count >= TRANSACTION_LOCAL,
        file.c.file_size_bytes < 0,
        file.c.row_id_start < 0,
        file.c.row_id_start >= 2 * TRANSACTION_LOCAL,
    )
    of_others = sa.or_(file.c.partial_max < file.c.begin_snapshot, file.c.partial_max > scope.newest_id)
    ids, numbers = ("data_file_id", "table_id"), ("record_count", "row_id_start", "partial_max")
    query = sa.select(*(file.c[one] for one in (*ids, *numbers)), impossible.label("bad"))
    for row in scope.limited(query.where(scope.chosen(file.c.table_id), sa.or_(impossible, of_others))):
        objects = {"table_id": row.table_id, "data_file_id": row.data_file_id}
        named = f"Data file {row.data_file_id} of {scope.table(row.table_id)}"
        if row.bad:
            first = "" if row.row_id_start is None else f" from id {row.row_id_start}"
            sentence = f"{named} has {row.record_count} rows{first}, or a size, that are not possible."
            yield Finding(Code.COUNT_IMPOSSIBLE, sentence, objects)
        else:
            sentence = f"{named} has rows up to snapshot {row.partial_max}: before its own, or not there yet."
            yield Finding(Code.PARTIAL_MAX_WRONG, sentence, objects)


def _impossible_delete_counts(scope: VerificationScope) -> sa.Select[Any]:
    file, delete = scope.tables["data_file"], scope.tables["delete_file"]
    impossible = sa.or_(delete.c.delete_count < 1, delete.c.delete_count > file.c.record_count)
    return (
        sa.select(delete.c.delete_file_id, delete.c.table_id, delete.c.delete_count, file.c.record_count)
        .join(file, file.c.data_file_id == delete.c.data_file_id)
        .where(scope.chosen(delete.c.table_id), impossible)
    )


def _rows_without_file(scope: VerificationScope) -> sa.Select[Any]:
    file = scope.tables["data_file"]
    parts: list[sa.Select[Any]] = []
    for name in _OF_DATA_FILES:
        table = scope.tables[name]
        is_there = sa.exists().where(file.c.data_file_id == table.c.data_file_id)
        parts.append(
            sa.select(sa.literal(name).label("rows_of"), table.c.data_file_id).where(~is_there).distinct()
        )
    return sa.select(sa.union_all(*parts).subquery())


def _row_counters_behind(scope: VerificationScope) -> Iterator[Fields]:
    """Yield the tables that would give out a row id again; files with stored ids only seem to."""
    file, stats = scope.tables["data_file"], scope.tables["table_stats"]
    end = sa.func.max(file.c.row_id_start + sa.cast(file.c.record_count, sa.BigInteger))
    query = (
        sa.select(stats.c.table_id, stats.c.next_row_id, end.label("least"))
        .join(file, file.c.table_id == stats.c.table_id)
        .where(
            scope.chosen(stats.c.table_id),
            file.c.end_snapshot.is_(None),
            file.c.partial_max.is_(None),
            file.c.row_id_start < TRANSACTION_LOCAL,
            file.c.record_count < TRANSACTION_LOCAL,
        )
        .group_by(stats.c.table_id, stats.c.next_row_id)
        .having(end > stats.c.next_row_id)
    )
    return ({**row._asdict(), "last": row.least - 1} for row in scope.limited(query))


# Each file has one row, because a file is deleted with its row.


def misleading_paths(scope: VerificationScope) -> Iterator[Finding]:
    """Yield the rows whose path this provider does not follow: nothing else is checked then."""
    for kind, key in _WITH_PATHS.items():
        table = scope.tables[kind]
        if "table_id" not in table.c and not scope.is_whole:
            continue
        odd = sa.or_(may_mislead(table.c.path), ~table.c.path_is_relative)
        query = sa.select(table.c[key], table.c.path, table.c.path_is_relative).where(odd)
        if "table_id" in table.c:
            query = query.where(scope.chosen(table.c.table_id))
        for id_, path, is_relative in scope.connection.execute(query):
            problem = CatalogPath(path, is_relative).problem_below(scope.catalog.data_path)
            if problem is not None:
                yield Finding(
                    Code.PATH_MISLEADING,
                    f"ducklake_{kind} {id_} has the path {path!r}, which {problem}: nothing else was "
                    "checked.",
                    {"kind": kind, "id": id_, "path": path},
                )


_WITH_PATHS = {
    "schema": "schema_id",
    "table": "table_id",
    "data_file": "data_file_id",
    "delete_file": "delete_file_id",
    "files_scheduled_for_deletion": "data_file_id",
}


def full_paths(scope: VerificationScope) -> sa.FromClause:
    """Return every row of a data file or delete file with its full path: kind, id, table_id, path."""
    return sa.union_all(_files_of_kind(scope, "data_file"), _files_of_kind(scope, "delete_file")).subquery()


def _files_of_kind(scope: VerificationScope, kind: str) -> sa.Select[Any]:
    file, roots = scope.tables[kind], table_roots(scope).subquery()
    path = sa.case(
        (file.c.path_is_relative, sa.func.coalesce(roots.c.root, "").concat(file.c.path)), else_=file.c.path
    )
    return sa.select(
        sa.literal(kind).label("kind"),
        file.c[f"{kind}_id"].label("id"),
        file.c.table_id,
        _text(path).label("path"),
    ).outerjoin(roots, roots.c.table_id == file.c.table_id)


def table_roots(scope: VerificationScope) -> sa.Select[Any]:
    """Return the query for the directory of each table: table_id, root."""
    table, schema = scope.tables["table"], scope.tables["schema"]
    above = _below(sa.literal(scope.catalog.data_path), schema)
    return (
        sa.select(table.c.table_id, sa.func.min(_text(_below(above, table))).label("root"))
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .group_by(table.c.table_id)
    )


def _below(parent: sa.ColumnElement[Any], rows: sa.FromClause) -> sa.ColumnElement[Any]:
    """Return the path of rows below a directory."""
    path = rows.c.path
    below = _text(parent).concat(_text(path))
    return sa.case((path.is_(None), parent), (rows.c.path_is_relative, below), else_=path)


def _text(value: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    return sa.cast(value, sa.Text)


def _same_paths(scope: VerificationScope) -> sa.Select[Any]:
    file = full_paths(scope)
    chosen = sa.func.max(sa.case((scope.chosen(file.c.table_id), 1), else_=0))
    return (
        sa.select(
            file.c.path, sa.func.min(file.c.id).label("first_id"), sa.func.max(file.c.id).label("last_id")
        )
        .group_by(file.c.path)
        .having(sa.func.count() > 1, chosen == 1)
    )


def _scheduled_in_use(scope: VerificationScope) -> Iterator[Fields]:
    file, scheduled = full_paths(scope), scope.tables["files_scheduled_for_deletion"]
    path = _text(_below(sa.literal(scope.catalog.data_path), scheduled))
    # First which files, then what they are scheduled as: SQLite would join every row with every other.
    used = scope.limited(
        sa.select(file).where(scope.chosen(file.c.table_id), file.c.path.in_(sa.select(path)))
    )
    if not used:
        return
    query = sa.select(scheduled.c.data_file_id, path.label("path")).where(
        path.in_({row.path for row in used})
    )
    ids: dict[str, list[int]] = {}
    for row in scope.limited(query.order_by(scheduled.c.data_file_id)):
        ids.setdefault(row.path, []).append(row.data_file_id)
    for row in used:
        for scheduled_id in ids.get(row.path, ()):
            yield {**row._asdict(), "scheduled_id": scheduled_id}


def _undeletable(scope: VerificationScope) -> Iterator[Fields]:
    """Yield what waits for its deletion where a clean-up refuses it: mostly outside the data path."""
    root, scheduled = scope.catalog.data_path, scope.tables["files_scheduled_for_deletion"]
    path = _text(_below(sa.literal(root), scheduled))
    is_odd = sa.or_(~path.startswith(root, autoescape=True), path.endswith("/"))
    query = sa.select(scheduled.c.data_file_id.label("scheduled_id"), path.label("path")).where(is_odd)
    found = (
        {**row._asdict(), "problem": problem}
        for row in scope.all(query)
        if (problem := why_not_deletable(row.path, root, foreign_files=scope.catalog.foreign_files))
    )
    return islice(found, MOST_OF_A_KIND)


def _outside(scope: VerificationScope) -> Iterator[Fields]:
    """Yield what lies outside the data path, in whatever spelling of it."""
    file, root = full_paths(scope), scope.catalog.data_path
    query = sa.select(file).where(
        scope.chosen(file.c.table_id), ~file.c.path.startswith(root, autoescape=True)
    )
    found = (row._asdict() for row in scope.all(query) if not is_below(row.path or "", root))
    return islice(found, MOST_OF_A_KIND)


CHECKS = (
    Search(_without_live_table, (Code.TABLE_ENDED, Code.TABLE_UNKNOWN)),
    Check(Code.DATA_FILE_UNKNOWN, _referring("delete_file", "data_file_id", "data_file"),
          ("table_id", "delete_file_id", "data_file_id"),
          "Delete file {delete_file_id} of {table} belongs to data file {data_file_id}, which the table does "
          "not have."),
    Check(Code.TWO_DELETE_FILES, _two_delete_files, ("table_id", "data_file_id", "delete_file_id"),
          "Data file {data_file_id} of {table} has two delete files at snapshot {begin_snapshot}, one of "
          "them {delete_file_id}: DuckDB shows its rows twice."),
    Check(Code.MAPPING_UNKNOWN, _referring("data_file", "mapping_id", "column_mapping"),
          ("table_id", "data_file_id", "mapping_id"),
          "Data file {data_file_id} of {table} has its columns from name mapping {mapping_id}, which the "
          "table does not have."),
    Check(Code.PARTITION_UNKNOWN, _referring("data_file", "partition_id", "partition_info"),
          ("table_id", "data_file_id", "partition_id"),
          "Data file {data_file_id} of {table} was written with partitioning {partition_id}, which the table "
          "never had."),
    Check(Code.PARTITION_VALUES_MISSING, _other_partition_values, ("table_id", "data_file_id"),
          "Data file {data_file_id} of {table} has {found} partition values for {wanted} keys."),
    Search(_impossible_counts, (Code.COUNT_IMPOSSIBLE, Code.PARTIAL_MAX_WRONG)),
    Check(Code.COUNT_IMPOSSIBLE, _impossible_delete_counts, ("table_id", "delete_file_id"),
          "Delete file {delete_file_id} of {table} deletes {delete_count} of {record_count} rows."),
    Check(Code.ROWS_OF_NOTHING, _rows_without_file, ("rows_of", "data_file_id"),
          "ducklake_{rows_of} has rows of data file {data_file_id}, which does not exist.", of_lake=True),
    Check(Code.ROW_COUNTER_BEHIND, _row_counters_behind, ("table_id", "least"),
          "{table} has rows up to id {last}, but would give the next row {next_row_id}."),
    Check(Code.PATH_TWICE, _same_paths, ("path", "first_id", "last_id"),
          "{path} is the path of several files, the first {first_id} and the last {last_id}: when one of "
          "them is cleaned up, the others lose their file."),
    Check(Code.SCHEDULED_IN_USE, _scheduled_in_use, ("scheduled_id", "kind", "id", "path"),
          "{path} is scheduled for deletion (as file {scheduled_id}), but is {kind} {id} of {table}."),
    Check(Code.SCHEDULED_REFUSED, _undeletable, ("scheduled_id", "path"),
          "{path} is scheduled for deletion (as file {scheduled_id}), which every clean-up refuses: it "
          "{problem}.", of_lake=True),
    Check(Code.OUTSIDE_DATA_PATH, _outside, ("kind", "id", "table_id", "path"),
          "{path}, {kind} {id} of {table}, lies outside the data path."),
)  # fmt: skip
