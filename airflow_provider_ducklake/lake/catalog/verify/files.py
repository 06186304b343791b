"""Check that the catalog's rows of data files and delete files have owners and possible values."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy import cast as sql_cast

from airflow_provider_ducklake.lake.catalog.database.tables import maybe
from airflow_provider_ducklake.lake.catalog.snapshot.read_files import may_mislead
from airflow_provider_ducklake.lake.catalog.verify.history import overlapping
from airflow_provider_ducklake.lake.catalog.verify.look import MOST_OF_A_KIND
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath, why_not_deletable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import FromClause, Select

    from airflow_provider_ducklake.lake.catalog.verify.look import Look


_KINDS = (("data_file", "data_file_id"), ("delete_file", "delete_file_id"))
_OF_DATA_FILES = ("file_column_stats", "file_variant_stats", "file_partition_value")
TRANSACTION_LOCAL = 10**18  # row ids from here on are numbers that the reference leaked from a transaction


def check_file_rows(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with the rows of files, without looking at a file."""
    yield from chain(
        _tables(look),
        _data_files(look),
        _two_delete_files(look),
        _mappings(look),
        _partitions(look),
        _partition_values(look),
        _counts(look),
        _delete_counts(look),
        _orphaned(look) if look.is_whole else (),
        _row_counter(look),
    )


def _named(row: Any, look: Look) -> str:  # noqa: ANN401 - a row with kind, id and table_id
    return f"{row.kind.replace('_', ' ').capitalize()} {row.id} of {look.table(row.table_id)}"


def _tables(look: Look) -> Iterator[Finding]:
    table = look.tables["table"]
    owner = (
        select(
            table.c.table_id,
            func.count(case((table.c.end_snapshot.is_(None), 1))).label("live"),
            func.max(table.c.end_snapshot).label("last"),
        )
        .group_by(table.c.table_id)
        .subquery()
    )
    parts = []
    for kind, id_ in _KINDS:
        file = look.tables[kind]
        known = owner.c.table_id.is_not(None)
        parts.append(
            select(
                literal(kind).label("kind"),
                file.c[id_].label("id"),
                file.c.table_id,
                maybe(owner.c.table_id).label("known"),
                owner.c.last,
            )
            .select_from(file.outerjoin(owner, owner.c.table_id == file.c.table_id))
            .where(
                look.chosen(file.c.table_id),
                or_(~known, and_(file.c.end_snapshot.is_(None), owner.c.live == 0)),
            )
        )
    for row in look.few(select(union_all(*parts).subquery())):
        objects = {"kind": row.kind, "id": row.id, "table_id": row.table_id}
        if row.known is not None:
            sentence = f"{_named(row, look)} is live, but the table ended with snapshot {row.last}."
            yield Finding(FindingCode.TABLE_ENDED, sentence, {**objects, "end_snapshot": row.last})
        else:
            sentence = f"{_named(row, look)}: there is no such table."
            yield Finding(FindingCode.TABLE_UNKNOWN, sentence, objects)


def _data_files(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    has_one = exists().where(
        file.c.data_file_id == delete.c.data_file_id, file.c.table_id == delete.c.table_id
    )
    query = select(delete.c.delete_file_id, delete.c.data_file_id, delete.c.table_id).where(
        look.chosen(delete.c.table_id), ~has_one
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.DATA_FILE_UNKNOWN,
            f"Delete file {row.delete_file_id} of {look.table(row.table_id)} belongs to data file "
            f"{row.data_file_id}, which the table does not have.",
            {
                "table_id": row.table_id,
                "delete_file_id": row.delete_file_id,
                "data_file_id": row.data_file_id,
            },
        )


def _two_delete_files(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    twice = overlapping(
        delete, ("data_file_id", "table_id"), "delete_file_id", look.chosen(delete.c.table_id)
    ).subquery()
    query = (
        select(twice)
        .join(file, file.c.data_file_id == twice.c.data_file_id)
        .where(or_(file.c.end_snapshot.is_(None), file.c.end_snapshot > twice.c.begin_snapshot))
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.TWO_DELETE_FILES,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has two delete files at snapshot "
            f"{row.begin_snapshot}, one of them {row.id}: DuckDB shows its rows twice.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "delete_file_id": row.id},
        )


def _mappings(look: Look) -> Iterator[Finding]:
    file, mapping = look.tables["data_file"], look.tables["column_mapping"]
    known = exists().where(mapping.c.mapping_id == file.c.mapping_id, mapping.c.table_id == file.c.table_id)
    query = select(file.c.data_file_id, file.c.table_id, file.c.mapping_id).where(
        file.c.mapping_id.is_not(None), look.chosen(file.c.table_id), ~known
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.MAPPING_UNKNOWN,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has its columns from name mapping "
            f"{row.mapping_id}, which the table does not have.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "mapping_id": row.mapping_id},
        )


def _partitions(look: Look) -> Iterator[Finding]:
    file, info = look.tables["data_file"], look.tables["partition_info"]
    known = exists().where(info.c.partition_id == file.c.partition_id, info.c.table_id == file.c.table_id)
    query = select(file.c.data_file_id, file.c.table_id, file.c.partition_id).where(
        file.c.partition_id.is_not(None), look.chosen(file.c.table_id), ~known
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PARTITION_UNKNOWN,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} was written with partitioning "
            f"{row.partition_id}, which the table never had.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "partition_id": row.partition_id},
        )


def _partition_values(look: Look) -> Iterator[Finding]:
    file, key, value = (look.tables[one] for one in ("data_file", "partition_column", "file_partition_value"))
    keys = select(key.c.partition_id, func.count().label("count")).group_by(key.c.partition_id).subquery()
    values = (
        select(value.c.data_file_id, func.count().label("count")).group_by(value.c.data_file_id).subquery()
    )
    wanted, found = func.coalesce(keys.c.count, 0), func.coalesce(values.c.count, 0)
    query = (
        select(file.c.data_file_id, file.c.table_id, wanted.label("wanted"), found.label("found"))
        .outerjoin(keys, keys.c.partition_id == file.c.partition_id)
        .outerjoin(values, values.c.data_file_id == file.c.data_file_id)
        .where(look.chosen(file.c.table_id), wanted != found)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PARTITION_VALUES_MISSING,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has {row.found} partition values "
            f"for {row.wanted} keys.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id},
        )


def _counts(look: Look) -> Iterator[Finding]:
    file = look.tables["data_file"]
    impossible = or_(
        file.c.record_count < 0,
        file.c.record_count >= TRANSACTION_LOCAL,
        file.c.file_size_bytes < 0,
        file.c.row_id_start < 0,
        file.c.row_id_start >= 2 * TRANSACTION_LOCAL,
    )
    partial = or_(file.c.partial_max < file.c.begin_snapshot, file.c.partial_max > look.newest_id)
    query = select(
        file.c.data_file_id,
        file.c.table_id,
        file.c.record_count,
        file.c.row_id_start,
        file.c.partial_max,
        impossible.label("bad"),
    ).where(look.chosen(file.c.table_id), or_(impossible, partial))
    for row in look.few(query):
        objects = {"table_id": row.table_id, "data_file_id": row.data_file_id}
        named = f"Data file {row.data_file_id} of {look.table(row.table_id)}"
        if row.bad:
            first = "" if row.row_id_start is None else f" from id {row.row_id_start}"
            sentence = f"{named} has {row.record_count} rows{first}, or a size, that are not possible."
            yield Finding(FindingCode.COUNT_IMPOSSIBLE, sentence, objects)
        else:
            sentence = f"{named} has rows up to snapshot {row.partial_max}: before its own, or not there yet."
            yield Finding(FindingCode.PARTIAL_MAX_WRONG, sentence, objects)


def _delete_counts(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    query = (
        select(delete.c.delete_file_id, delete.c.table_id, delete.c.delete_count, file.c.record_count)
        .join(file, file.c.data_file_id == delete.c.data_file_id)
        .where(
            look.chosen(delete.c.table_id),
            or_(delete.c.delete_count < 1, delete.c.delete_count > file.c.record_count),
        )
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.COUNT_IMPOSSIBLE,
            f"Delete file {row.delete_file_id} of {look.table(row.table_id)} deletes {row.delete_count} of "
            f"{row.record_count} rows.",
            {"table_id": row.table_id, "delete_file_id": row.delete_file_id},
        )


def _orphaned(look: Look) -> Iterator[Finding]:
    file = look.tables["data_file"]
    parts: list[Select[Any]] = []
    for name in _OF_DATA_FILES:
        table = look.tables[name]
        known = exists().where(file.c.data_file_id == table.c.data_file_id)
        parts.append(
            select(literal(name).label("kind"), table.c.data_file_id.label("id")).where(~known).distinct()
        )
    for row in look.few(select(union_all(*parts).subquery())):
        yield Finding(
            FindingCode.ROWS_OF_NOTHING,
            f"ducklake_{row.kind} has rows of data file {row.id}, which does not exist.",
            {"rows_of": row.kind, "data_file_id": row.id},
        )


def _row_counter(look: Look) -> Iterator[Finding]:
    """Yield tables that would give out a row id again; files with stored ids only seem to."""
    file, stats = look.tables["data_file"], look.tables["table_stats"]
    end = func.max(file.c.row_id_start + sql_cast(file.c.record_count, BigInteger))
    query = (
        select(stats.c.table_id, stats.c.next_row_id, end.label("end"))
        .join(file, file.c.table_id == stats.c.table_id)
        .where(
            look.chosen(stats.c.table_id),
            file.c.end_snapshot.is_(None),
            file.c.partial_max.is_(None),
            file.c.row_id_start < TRANSACTION_LOCAL,
            file.c.record_count < TRANSACTION_LOCAL,
        )
        .group_by(stats.c.table_id, stats.c.next_row_id)
        .having(end > stats.c.next_row_id)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.ROW_COUNTER_BEHIND,
            f"{look.table(row.table_id)} has rows up to id {row.end - 1}, but would give the next row "
            f"{row.next_row_id}.",
            {"table_id": row.table_id, "least": row.end},
        )


# Check that each file has one row, because a file is deleted with its row.


def check_paths(look: Look, *, with_notes: bool) -> Iterator[Finding]:
    """Yield files of several rows, those that wait for deletion and must not go, and those elsewhere."""
    yield from chain(_twice(look), _scheduled(look))
    if look.is_whole:  # the rows do not say of which table they are
        yield from islice(_undeletable(look), MOST_OF_A_KIND)
    yield from _outside(look) if with_notes else ()


def misleading_paths(look: Look) -> Iterator[Finding]:
    """Yield the rows whose path this provider does not follow."""
    for kind, key in _WITH_PATHS.items():
        table = look.tables[kind]
        if "table_id" not in table.c and not look.is_whole:
            continue
        odd = or_(may_mislead(table.c.path), ~table.c.path_is_relative)
        query = select(table.c[key], table.c.path, table.c.path_is_relative).where(odd)
        if "table_id" in table.c:
            query = query.where(look.chosen(table.c.table_id))
        for id_, path, is_relative in look.connection.execute(query):
            problem = CatalogPath(path, is_relative).problem_below(look.catalog.data_path)
            if problem is not None:
                yield Finding(
                    FindingCode.PATH_MISLEADING,
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


def full_paths(look: Look) -> FromClause:
    """Return every row of a data file or delete file with its full path: kind, id, table_id, path."""
    return union_all(_of(look, "data_file"), _of(look, "delete_file")).subquery()


def _of(look: Look, kind: str) -> Select[Any]:
    file, roots = look.tables[kind], table_roots(look).subquery()
    path = case(
        (file.c.path_is_relative, func.coalesce(roots.c.root, "").concat(file.c.path)), else_=file.c.path
    )
    return select(
        literal(kind).label("kind"),
        file.c[f"{kind}_id"].label("id"),
        file.c.table_id,
        _text(path).label("path"),
    ).outerjoin(roots, roots.c.table_id == file.c.table_id)


def table_roots(look: Look) -> Select[Any]:
    """Return the query for the directory of each table: table_id, root."""
    table, schema = look.tables["table"], look.tables["schema"]
    above = _below(literal(look.catalog.data_path), schema.c.path, schema.c.path_is_relative)
    root = _below(above, table.c.path, table.c.path_is_relative)
    return (
        select(table.c.table_id, func.min(_text(root)).label("root"))
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .group_by(table.c.table_id)
    )


def _below(
    parent: ColumnElement[Any], path: ColumnElement[Any], is_relative: ColumnElement[bool]
) -> ColumnElement[Any]:
    return case((path.is_(None), parent), (is_relative, _text(parent).concat(_text(path))), else_=path)


def _text(value: ColumnElement[Any]) -> ColumnElement[str]:
    return cast(value, Text)


def _twice(look: Look) -> Iterator[Finding]:
    file = full_paths(look)
    chosen = func.max(case((look.chosen(file.c.table_id), 1), else_=0))
    query = (
        select(file.c.path, func.min(file.c.id).label("first"), func.max(file.c.id).label("last"))
        .group_by(file.c.path)
        .having(func.count() > 1, chosen == 1)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PATH_TWICE,
            f"{row.path} is the path of several files, the first {row.first} and the last {row.last}: when "
            "one of them is cleaned up, the others lose their file.",
            {"path": row.path, "first_id": row.first, "last_id": row.last},
        )


def _scheduled(look: Look) -> Iterator[Finding]:
    file, scheduled = full_paths(look), look.tables["files_scheduled_for_deletion"]
    path = _text(_below(literal(look.catalog.data_path), scheduled.c.path, scheduled.c.path_is_relative))
    # First which files, then what they are scheduled as: SQLite would join every row with every other.
    used = look.few(select(file).where(look.chosen(file.c.table_id), file.c.path.in_(select(path))))
    if not used:
        return
    query = select(scheduled.c.data_file_id, path.label("path")).where(path.in_({row.path for row in used}))
    ids: dict[str, list[int]] = {}
    for row in look.few(query.order_by(scheduled.c.data_file_id)):
        ids.setdefault(row.path, []).append(row.data_file_id)
    for row in used:
        for scheduled_id in ids.get(row.path, ()):
            yield Finding(
                FindingCode.SCHEDULED_IN_USE,
                f"{row.path} is scheduled for deletion (as file {scheduled_id}), but is {row.kind} {row.id} "
                f"of {look.table(row.table_id)}.",
                {"scheduled_id": scheduled_id, "kind": row.kind, "id": row.id, "path": row.path},
            )


def _undeletable(look: Look) -> Iterator[Finding]:
    """Yield what waits for its deletion where a clean-up refuses it: mostly outside the data path."""
    root, scheduled = look.catalog.data_path, look.tables["files_scheduled_for_deletion"]
    path = _text(_below(literal(root), scheduled.c.path, scheduled.c.path_is_relative))
    is_odd = or_(~path.startswith(root, autoescape=True), path.endswith("/"))
    for row in look.all(select(scheduled.c.data_file_id, path.label("path")).where(is_odd)):
        problem = why_not_deletable(row.path, root, foreign_files=look.catalog.foreign_files)
        if problem is not None:
            yield Finding(
                FindingCode.SCHEDULED_REFUSED,
                f"{row.path} is scheduled for deletion (as file {row.data_file_id}), which every clean-up "
                f"refuses: it {problem}.",
                {"scheduled_id": row.data_file_id, "path": row.path},
            )


def _outside(look: Look) -> Iterator[Finding]:
    file = full_paths(look)
    query = select(file).where(
        look.chosen(file.c.table_id), ~file.c.path.startswith(look.catalog.data_path, autoescape=True)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.OUTSIDE_DATA_PATH,
            f"{row.path}, {row.kind} {row.id} of {look.table(row.table_id)}, lies outside the data path.",
            {"kind": row.kind, "id": row.id, "table_id": row.table_id, "path": row.path},
        )
