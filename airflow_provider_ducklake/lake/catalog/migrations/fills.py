"""Fill the columns that an older catalog lacks with the values that 1.0 expects.

A handful of statements each, all in one transaction. They find all columns of the version that the catalog
is migrated to, besides those that it dropped. *Source:* docs/sources.md, versions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, case, func, select, union, update

from airflow_provider_ducklake.lake.catalog.migrations import repairs
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.planning.upkeep.migration import (
    column_ids_of_ordinals,
    versions_of_tables,
)
from airflow_provider_ducklake.lake.spec.versions import SpecVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables


@dataclass(frozen=True, slots=True)
class Fill:
    """What catalogs before a version need, in words and as a function of a connection and the new tables."""

    before: SpecVersion
    what: str
    run: Callable[[Connection, CatalogTables, SpecVersion], None]


def fills_of(version: SpecVersion, target: SpecVersion) -> tuple[Fill, ...]:
    """Return what catalogs of a version need to become those of another, in order."""
    return tuple(one for one in _FILLS if version < one.before <= target)


def _folders(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """All files of 0.1 lie in the data path itself."""
    for name in ("schema", "table"):
        connection.execute(update(tables[name]).values(path="", path_is_relative=True))


def _partition_columns(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    key = tables["partition_column"]
    rows = connection.execute(select(key.c.partition_id, key.c.partition_key_index, key.c.column_id)).all()
    if not rows:
        return
    ids = column_ids_of_ordinals(
        ((row.partition_id, row.column_id) for row in rows), _columns_at_start(connection, tables)
    )
    statement = update(key).where(
        key.c.partition_id == bindparam("partition"), key.c.partition_key_index == bindparam("place")
    )
    connection.execute(
        statement.values(column_id=bindparam("id")),
        [
            {"partition": row.partition_id, "place": row.partition_key_index, "id": column_id}
            for row, column_id in zip(rows, ids, strict=True)
        ],
    )


def why_not_keyed(connection: Connection, tables: CatalogTables) -> tuple[str, ...]:
    """Return which partition keys of 0.1 name no column, each with what to do; none since 0.2."""
    if tables.version >= SpecVersion.V0_2:
        return ()
    key = tables["partition_column"]
    columns, found = _columns_at_start(connection, tables), []
    for row in connection.execute(select(key.c.partition_id, key.c.column_id)):
        try:
            column_ids_of_ordinals([(row.partition_id, row.column_id)], columns)
        except CatalogError as error:
            found.append(str(error))
    return tuple(found)


def _columns_at_start(connection: Connection, tables: CatalogTables) -> dict[int, list[int]]:
    """Return the top-level columns of each partitioning's table when it began, in order."""
    info, column = tables["partition_info"], tables["column"]
    rows = connection.execute(
        select(info.c.partition_id, column.c.column_id)
        .join(column, column.c.table_id == info.c.table_id)
        .where(
            column.c.parent_column.is_(None),
            column.c.begin_snapshot <= info.c.begin_snapshot,
            column.c.end_snapshot.is_(None) | (column.c.end_snapshot > info.c.begin_snapshot),
        )
        .order_by(info.c.partition_id, column.c.column_order, column.c.column_id)
    )
    found = defaultdict(list)
    for row in rows:
        found[row.partition_id].append(row.column_id)
    return found


def _mappings(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    connection.execute(update(tables["name_mapping"]).values(is_partition=False))


_OF_TABLE = ("column", "column_tag", "data_file", "delete_file", "partition_info")


def _dropped_tables(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """0.2 ended no row but the table's own."""
    table = tables["table"]
    live = select(table.c.table_id).where(table.c.end_snapshot.is_(None))
    for name in _OF_TABLE:
        row = tables[name]
        dropped_at = (
            select(func.max(table.c.end_snapshot)).where(table.c.table_id == row.c.table_id).scalar_subquery()
        )
        is_left = row.c.end_snapshot.is_(None) & row.c.table_id.not_in(live)
        connection.execute(update(row).where(is_left).values(end_snapshot=dropped_at))


def _schema_versions(connection: Connection, tables: CatalogTables, version: SpecVersion) -> None:
    """Before 0.4 the whole lake has them, before 0.3 only its snapshots say so."""
    own = tables["schema_versions"]
    rows = versions_of_tables(_changes_of_tables(connection, tables), _versions(connection, tables, version))
    connection.execute(own.delete())
    if rows:
        names = ("begin_snapshot", "schema_version", "table_id")
        connection.execute(own.insert(), [dict(zip(names, row, strict=True)) for row in rows])


def _versions(connection: Connection, tables: CatalogTables, version: SpecVersion) -> list[tuple[int, int]]:
    """Return the snapshots by which schema versions began, as far as known, ascending."""
    snapshot, own = tables["snapshot"], tables["schema_versions"]
    query = select(snapshot.c.snapshot_id, snapshot.c.schema_version)
    if version == SpecVersion.V0_3:
        query = select(own.c.begin_snapshot, own.c.schema_version)
    first: dict[int, int] = {}
    for begin, schema_version in sorted(tuple(row) for row in connection.execute(query)):
        first.setdefault(schema_version, begin)
    return [(begin, schema_version) for schema_version, begin in first.items()]


def _changes_of_tables(connection: Connection, tables: CatalogTables) -> Iterable[tuple[int, int]]:
    """Return tables with the snapshots by which they, their columns or their partitioning began or ended."""
    table, column, info = tables["table"], tables["column"], tables["partition_info"]
    changes = union(
        *(select(one.c.table_id, one.c.begin_snapshot.label("snapshot")) for one in (table, column, info)),
        select(column.c.table_id, column.c.end_snapshot).where(column.c.end_snapshot.is_not(None)),
    )
    ended = select(table.c.table_id, func.max(table.c.end_snapshot)).group_by(table.c.table_id)
    live = set(connection.execute(select(table.c.table_id).where(table.c.end_snapshot.is_(None))).scalars())
    dropped = {(one, end) for one, end in connection.execute(ended) if one not in live}
    present = {one for one, _ in dropped} | live
    return [
        (one, snapshot)
        for one, snapshot in connection.execute(changes)
        if one in present and (one, snapshot) not in dropped
    ]


def _defaults(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    column = tables["column"]
    connection.execute(update(column).values(default_value_type="literal", default_value_dialect="duckdb"))
    is_nested = column.c.column_type.in_(("struct", "list", "map"))
    connection.execute(update(column).where(is_nested).values(default_value_type=""))
    no_default = column.c.default_value.is_(None)
    connection.execute(update(column).where(no_default).values(default_value="NULL"))


def _table_statistics(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Forget bounds that do not cover a file's, which older clients left: the next insert trusts them.

    Without a row DuckDB looks at every file; with one that is too narrow it leaves rows out.
    """
    own, file = tables["table_column_stats"], tables["file_column_stats"]
    unknown = case(((file.c.value_count > 0) & (file.c.min_value.is_(None) | file.c.max_value.is_(None)), 1))
    known = select(
        file.c.table_id, file.c.column_id, func.count(file.c.min_value).label("known"), func.count(unknown)
    ).group_by(file.c.table_id, file.c.column_id)
    facts = {(table, column): counts for table, column, *counts in connection.execute(known)}
    rows = connection.execute(select(own.c.table_id, own.c.column_id, own.c.min_value, own.c.max_value))
    narrow = [
        {"table": row.table_id, "column": row.column_id}
        for row in rows
        for known_count, unknown_count in [facts.get((row.table_id, row.column_id), (0, 0))]
        if (known_count if None in (row.min_value, row.max_value) else unknown_count)
    ]
    if narrow:
        is_it = (own.c.table_id == bindparam("table")) & (own.c.column_id == bindparam("column"))
        connection.execute(own.delete().where(is_it), narrow)


_FILLS = (
    Fill(SpecVersion.V0_2, "schemas and tables: their files lie in the data path itself", _folders),
    Fill(SpecVersion.V0_2, "partition keys: name columns by their ids", _partition_columns),
    Fill(SpecVersion.V0_3, "name mappings: no value lies in a folder's name", _mappings),
    Fill(SpecVersion.V0_3, "dropped tables: end their columns and files with them", _dropped_tables),
    Fill(SpecVersion.V0_4, "schema versions: of each table, instead of the lake", _schema_versions),
    Fill(SpecVersion.V0_4, "table statistics: forget bounds that leave a file out", _table_statistics),
    Fill(SpecVersion.V0_4, "columns: the default is a literal, NULL where there was none", _defaults),
    Fill(SpecVersion.V1_1, "schema versions: add those that inlined rows need", repairs.schema_versions),
    Fill(SpecVersion.V1_1, "nested fields: restore defaults that a rename lost", repairs.field_defaults),
    Fill(
        SpecVersion.V1_1,
        "statistics: forget bounds of columns whose type has changed",
        repairs.retyped_bounds,
    ),
)
