"""Read a table's inlined rows and deletes at one snapshot.

An inlined table has the columns of the schema version that it is named after. A name there means the column
that had it then. *Source:* observed behaviour of the reference (docs/sources.md, inlining).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Table, func, literal, select, true

from ...errors import CatalogError, DuckLakeError, UnsupportedFeatureError
from ...format.names.identifiers import fold
from ...format.snapshots import DataFileId, TableSnapshot
from ...planning.reading.scan import SYSTEM_CELLS, InlinedRows
from ..database.connect import Question, in_parts, streamed_parts
from . import read
from .inlined_tables import (
    bare_table,
    inlined_delete_name,
    inlined_delete_table,
    inlined_table,
    inlined_table_name,
    names_of,
)
from .read_layouts import ColumnVersions, RegisteredLayout, columns_query, layout_schema, layouts_query

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ..dialects.dialect import Catalog

Condition: TypeAlias = Callable[[Table], ColumnElement[bool]]
InlinedDeletes: TypeAlias = dict[DataFileId, dict[int, int]]  # positions with the snapshots that deleted them


@dataclass(frozen=True, slots=True)
class Inlined:
    """The catalog tables with rows and deletes of a table: the registered ones, each with its columns."""

    catalog: Catalog
    table: TableSnapshot
    layouts: Sequence[RegisteredLayout]
    found: Mapping[str, Sequence[str]]
    columns: ColumnVersions

    @classmethod
    def of(cls, catalog: Catalog, table: TableSnapshot, answers: Mapping[str, Any]) -> Self:
        """Build the reader of a table's inlined rows from the answers to ``inlined_query``."""
        return cls(catalog, table, _there(answers), answers["found"], answers["columns"])

    def rows_query(self, condition: Condition) -> dict[str, Question[InlinedRows]]:
        """Build the queries for the rows that satisfy a condition, oldest layout first.

        The answers raise a CatalogError if the columns that an inlined table was made with are lost, an
        UnsupportedFeatureError in a database whose inlined tables we cannot read.
        """
        return {one.name: self._layout_query(one, condition) for one in self.layouts}

    def _layout_query(self, layout: RegisteredLayout, condition: Condition) -> Question[InlinedRows]:
        schema = self.columns.at(layout.begin)
        catalog, version = self.catalog, layout.schema_version
        rows = inlined_table(schema, layout.table_id, version, catalog.tables)
        problem = _why_not_readable(catalog, self.table, rows, self.found[rows.name])
        if problem is None:
            query = catalog.dialect.inlined_cells(rows, schema).where(condition(rows))
            return Question(query.order_by(rows.c.row_id), partial(_inlined_rows, catalog, rows, schema))

        def refuse(counts: Sequence[Row[Any]]) -> InlinedRows:
            if counts[0][0]:
                raise problem
            return InlinedRows(rows.name, schema, ())

        return Question(select(func.count()).select_from(rows).where(condition(rows)), refuse)

    def deletes_query(self) -> dict[str, Question[InlinedDeletes]]:
        """Return the query for the inlined deletes at the snapshot, by the name of their catalog table."""
        deletes = inlined_delete_table(self.table.table_id, self.catalog.tables.metadata_schema)
        if deletes.name not in self.found:
            return {}
        return {deletes.name: _deletes_query(deletes, self.table.snapshot.id)}


def inlined_query(catalog: Catalog, table_id: int) -> dict[str, Question[Any]]:
    """Ask what ``Inlined.of`` needs."""
    schema = catalog.tables.metadata_schema
    like = (inlined_delete_name(table_id), inlined_table_name(table_id, "%"))
    return {
        "layouts": layouts_query(catalog.tables, table_id),
        "found": catalog.dialect.columns_query(like, schema),
        "columns": columns_query(catalog.tables, table_id),
    }


def _there(answers: Mapping[str, Any]) -> list[RegisteredLayout]:
    """Return the registered tables that exist: a client that dropped one may have left it registered."""
    return [one for one in answers["layouts"] if one.name in answers["found"]]


def live_layouts(connection: Connection, catalog: Catalog, table_id: int) -> list[RegisteredLayout]:
    """Return the registered tables of a table's inlined rows that exist, oldest first."""
    return _there(catalog.dialect.ask(connection, inlined_query(catalog, table_id)))


def inlined_of(connection: Connection, catalog: Catalog, table: TableSnapshot) -> Inlined:
    """Find the catalog tables that hold rows and deletes of a table."""
    return Inlined.of(catalog, table, catalog.dialect.ask(connection, inlined_query(catalog, table.table_id)))


def read_inlined(connection: Connection, catalog: Catalog, table: TableSnapshot) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot shows of every inlined table that has any, oldest layout first."""
    return _rows(connection, catalog, table, lambda rows: read.visible(rows, table.snapshot.id))


def inlined_history(
    connection: Connection, catalog: Catalog, table: TableSnapshot
) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot or one before it shows, each with its ``end_snapshot``."""
    end = table.snapshot.id
    return _rows(connection, catalog, table, lambda rows: rows.c.begin_snapshot <= end)


def inlined_ended_since(
    connection: Connection, catalog: Catalog, table: TableSnapshot
) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot shows and a later one does not."""
    at = table.snapshot.id
    return _rows(
        connection, catalog, table, lambda rows: (rows.c.begin_snapshot <= at) & (rows.c.end_snapshot > at)
    )


def _rows(
    connection: Connection, catalog: Catalog, table: TableSnapshot, condition: Condition
) -> tuple[InlinedRows, ...]:
    asked = inlined_of(connection, catalog, table).rows_query(condition)
    return filled(catalog.dialect.ask(connection, asked).values())


def filled(parts: Iterable[InlinedRows]) -> tuple[InlinedRows, ...]:
    """Return those that have rows."""
    return tuple(part for part in parts if part.rows)


def has_inlined_data(connection: Connection, catalog: Catalog, table: TableSnapshot) -> bool:
    """Return True if dynamic catalog tables hold rows or deletes that the snapshot shows."""
    at, inlined = table.snapshot.id, inlined_of(connection, catalog, table)
    deletes = inlined_delete_table(table.table_id, catalog.tables.metadata_schema)
    asked = {
        one.name: _any_rows_query(rows, read.visible(rows, at))
        for one in inlined.layouts
        for rows in [bare_table(one.name, catalog.tables)]
    }
    if deletes.name in inlined.found:
        asked[deletes.name] = _any_rows_query(deletes, deletes.c.begin_snapshot <= at)
    return any(catalog.dialect.ask(connection, asked).values())


def has_inlined_rows(connection: Connection, catalog: Catalog, table_id: int) -> bool:
    """Return True if dynamic catalog tables hold rows of the table, of whatever snapshot."""
    layouts = live_layouts(connection, catalog, table_id)
    rows = (bare_table(one.name, catalog.tables) for one in layouts)
    asked = {one.name: _any_rows_query(one, true()) for one in rows}
    return any(catalog.dialect.ask(connection, asked).values())


def _any_rows_query(rows: FromClause, condition: ColumnElement[bool]) -> Question[bool]:
    return Question(select(literal(1)).select_from(rows).where(condition).limit(1), bool)


def inlined_batches(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    version: int,
    condition: Callable[[Table], ColumnElement[bool]],
) -> Iterator[InlinedRows]:
    """Yield rows of one inlined table, some of them at a time, by row id and first snapshot."""
    schema = layout_schema(connection, catalog.tables, table.table_id, version)
    inlined = inlined_table(schema, table.table_id, version, catalog.tables)
    names = catalog.dialect.column_names(connection, inlined.name, inlined.schema)
    if (problem := _why_not_readable(catalog, table, inlined, names)) is not None:
        raise problem
    query = catalog.dialect.inlined_cells(inlined, schema).where(condition(inlined))
    ordered = query.order_by(inlined.c.row_id, inlined.c.begin_snapshot)
    for part in streamed_parts(connection, ordered, _ROWS_AT_ONCE):
        yield _inlined_rows(catalog, inlined, schema, part)


_ROWS_AT_ONCE = 20_000


def _inlined_rows(
    catalog: Catalog, inlined: Table, schema: TableSchema, found: Iterable[Row[Any]]
) -> InlinedRows:
    names = (*SYSTEM_CELLS, *schema.names)
    rows = (catalog.dialect.with_literals(dict(zip(names, row, strict=True)), schema) for row in found)
    return InlinedRows(inlined.name, schema, tuple(rows))


def missing_row_ids(
    connection: Connection, catalog: Catalog, table: TableSnapshot, row_ids: Collection[int]
) -> list[int]:
    """Return those of the ids, ascending, that no row in the catalog has at the table's snapshot."""
    missing = set(row_ids)
    for layout in inlined_of(connection, catalog, table).layouts if missing else ():
        rows = bare_table(layout.name, catalog.tables)
        for ids in in_parts(row_ids):
            query = select(rows.c.row_id).where(read.visible(rows, table.snapshot.id), rows.c.row_id.in_(ids))
            missing.difference_update(connection.execute(query).scalars())
    return sorted(missing)


def _why_not_readable(
    catalog: Catalog, table: TableSnapshot, inlined: Table, names: Sequence[str]
) -> DuckLakeError | None:
    """Explain why we cannot read an inlined table with columns of those names; None if we can.

    The meaning of columns is never guessed; SQLite takes an unknown quoted name for a string.
    """
    if not catalog.dialect.reads_inlined:
        return UnsupportedFeatureError(
            f"{table.name} at snapshot {table.snapshot.id} has rows or deletes inlined in the catalog, "
            f"which this release cannot read from {catalog.dialect.name}. Flush them with DuckDB, or read "
            "the table with DuckDB."
        )
    expected = names_of(inlined)
    if list(names) != expected and [*map(fold, names)] != [*map(fold, expected)]:
        return CatalogError(
            f"{inlined.name} has the columns {', '.join(names)}, but its schema version in the catalog has "
            f"{', '.join(expected)}. Flush the table's inlined data with DuckDB, then read again."
        )
    return None


def inlined_delete_marks(
    connection: Connection, catalog: Catalog, table_id: int, snapshot_id: int
) -> dict[DataFileId, list[int]]:
    """Return the positions in data files that inlined deletes leave out at a snapshot, ascending."""
    return positions(inlined_delete_snapshots(connection, catalog, table_id, snapshot_id))


def positions(deletes: InlinedDeletes) -> dict[DataFileId, list[int]]:
    """Return the deleted positions of each data file, ascending."""
    return {file_id: sorted(deleted) for file_id, deleted in deletes.items()}


def inlined_delete_snapshots(
    connection: Connection, catalog: Catalog, table_id: int, snapshot_id: int
) -> InlinedDeletes:
    """Return those positions with the ids of the snapshots that deleted them."""
    deletes = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, deletes.name, deletes.schema):
        return {}
    return _deletes_query(deletes, snapshot_id).ask(connection)


def _deletes_query(deletes: Table, at: int) -> Question[InlinedDeletes]:
    def read(rows: Sequence[Row[Any]]) -> InlinedDeletes:
        found: InlinedDeletes = {}
        for row in rows:
            found.setdefault(DataFileId(row.file_id), {})[row.row_id] = row.begin_snapshot
        return found

    begin = func.min(deletes.c.begin_snapshot).label("begin_snapshot")
    query = select(deletes.c.file_id, deletes.c.row_id, begin).where(deletes.c.begin_snapshot <= at)
    return Question(query.group_by(deletes.c.file_id, deletes.c.row_id), read)
