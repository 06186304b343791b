"""Check that each file has one row, because a file is deleted with its row."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Text, case, cast, func, literal, or_, select, union_all

from airflow_provider_ducklake.lake.catalog.snapshot.file_paths import may_mislead
from airflow_provider_ducklake.lake.catalog.verify.look import MOST_OF_A_KIND
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath, why_not_deletable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import FromClause, Select

    from airflow_provider_ducklake.lake.catalog.verify.look import Look


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
