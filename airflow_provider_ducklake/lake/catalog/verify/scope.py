"""What a check is, and what all checks look at: one state of a catalog, all of its tables or some."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, select, true

from ...errors import DuckLakeError, InvalidTypeError
from ...format.names.identifiers import QualifiedName, SchemaPath
from ...format.options import SKIP_STATS_COLUMNS, Options
from ...format.snapshots import ColumnId, Snapshot, TableId
from ...format.tags import FROZEN
from ...format.types.ducklake_types import DuckLakeType, parse_type
from ...planning.reading.pruning import TextBounds, has_bounds
from ...planning.upkeep.findings import NOTES, Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..database.connect import streamed
from ..snapshot import read, read_snapshots
from ..snapshot.read_layouts import schema_of
from ..snapshot.read_statistics import with_what_lies_in_them

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog


MOST_OF_A_KIND = 1000  # findings per check: if there are more, they have one cause
_LATER = 2**62  # than any snapshot


@dataclass(frozen=True)
class VerificationScope:
    """An open connection, the newest snapshot, and the ids of the tables to look at (None: all).

    ``names`` are the names of all tables of the lake, by id. What several checks need is read once, when the
    first of them asks; this must not be while it streams rows, which no other statement may interrupt.
    """

    connection: Connection
    catalog: Catalog
    head: Snapshot
    only: frozenset[int] | None
    names: Mapping[int, str]
    is_frozen: bool = False

    @property
    def newest_id(self) -> int:
        """The newest snapshot that rows may have come or gone with.

        Files of a frozen lake may have some of later ones, which are left out.
        """
        return _LATER if self.is_frozen else self.head.id

    @property
    def tables(self) -> CatalogTables:
        """The catalog's tables."""
        return self.catalog.tables

    @property
    def is_whole(self) -> bool:
        """Return True if the check covers the whole lake, not some tables."""
        return self.only is None

    @cached_property
    def columns(self) -> Columns:
        """The columns that the tables have had."""
        return Columns(self)

    @cached_property
    def statistics(self) -> CheckedStatistics:
        """The statistics of the tables' columns."""
        return CheckedStatistics(self)

    @cached_property
    def existing(self) -> set[str]:
        """The names of the tables in the catalog's database, those of inlined rows and deletes among them."""
        return self.catalog.dialect.table_names(self.connection, self.tables.metadata_schema)

    @cached_property
    def registered(self) -> Sequence[Row[Any]]:
        """The tables for inlined rows that are registered, as table_id, schema_version and name."""
        registry = self.tables["inlined_data_tables"]
        which = registry.c.table_id, registry.c.schema_version
        query: Select[Any] = select(*which, registry.c.table_name.label("name"))
        return self.connection.execute(query.where(self.chosen(which[0])).order_by(*which)).all()

    def chosen(self, table_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Return the condition that a row belongs to a table that is looked at."""
        return true() if self.only is None else table_id.in_(self.only)

    def limited(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows of a query that only asks for what is wrong, and not all if they are many."""
        return self.connection.execute(query.limit(MOST_OF_A_KIND)).all()

    def all(self, query: Select[Any]) -> Iterator[Row[Any]]:
        """Yield the rows of a query one after the other, without holding them all."""
        yield from streamed(self.connection, query)

    def table(self, table_id: int | None) -> str:
        """Name a table for a sentence."""
        return self.names.get(table_id if table_id is not None else -1, f"table {table_id}")


def scope_of(connection: Connection, catalog: Catalog, only: Collection[int] | None) -> VerificationScope:
    """Return the newest state of a catalog."""
    head = read_snapshots.head(connection, catalog.tables)
    ids = None if only is None else frozenset(only)
    is_frozen = any(one.key == FROZEN for one in read.option_rows(connection, catalog.tables))
    return VerificationScope(connection, catalog, head, ids, _names(connection, catalog.tables), is_frozen)


def _names(connection: Connection, tables: CatalogTables) -> dict[int, str]:
    table = tables["table"]
    paths = read.all_schema_paths(connection, tables)
    rows = connection.execute(
        select(table.c.table_id, table.c.table_name, table.c.schema_id).order_by(table.c.begin_snapshot)
    )
    return {
        row.table_id: str(QualifiedName(paths.get(row.schema_id, SchemaPath(("",))), row.table_name))
        for row in rows
    }


# Checks are values, in tables: ``CHECKS`` of each module, which ``verification`` runs in order.


Fields: TypeAlias = Mapping[str, Any]
Found: TypeAlias = Select[Any] | Iterable[Row[Any]] | Iterable[Fields]


@dataclass(frozen=True, slots=True)
class Check:
    """Look for one thing that may be wrong: each row of ``query`` is a finding.

    The query is a select, of which few rows are asked for, or the rows if Python has a say in it. A finding
    gets the row's columns ``objects``, and the ``sentence`` formatted with all columns and the name of their
    ``{table}``. Rows ``of_lake`` belong to no table.
    """

    code: Code
    query: Callable[[VerificationScope], Found]
    objects: tuple[str, ...]
    sentence: str
    of_lake: bool = False

    @property
    def codes(self) -> tuple[Code, ...]:
        """The codes of its findings."""
        return (self.code,)

    def find(self, scope: VerificationScope) -> Iterator[Finding]:
        """Yield what is wrong."""
        rows = self.query(scope)
        for row in scope.limited(rows) if isinstance(rows, Select) else rows:
            fields = row._asdict() if isinstance(row, Row) else row
            sentence = self.sentence.format(**fields, table=scope.table(fields.get("table_id")))
            yield Finding(self.code, sentence, {name: fields[name] for name in self.objects})


@dataclass(frozen=True, slots=True)
class Search:
    """Look for several things in the same rows, which a ``Check`` for each would ask for again."""

    find: Callable[[VerificationScope], Iterator[Finding]]
    codes: tuple[Code, ...]
    of_lake: bool = False


def run(checks: Iterable[Check | Search], scope: VerificationScope, *, with_notes: bool) -> Iterator[Finding]:
    """Yield what the checks find, one after the other; those of the lake only if all of it is looked at."""
    for check in checks:
        if (scope.is_whole or not check.of_lake) and (with_notes or not NOTES.issuperset(check.codes)):
            yield from (one for one in check.find(scope) if with_notes or one.code not in NOTES)


def lacking(key: Column[Any], on: ColumnElement[bool], *columns: ColumnElement[Any]) -> Select[Any]:
    """Select the rows of the columns' table that have none of the key's table.

    One pass over each, whatever the database: for ``NOT EXISTS`` SQLite reads the other for every row, for a
    ``NOT IN`` of many rows PostgreSQL does.
    """
    return select(*columns).outerjoin(key.table, on).where(key.is_(None))


# The columns that tables have had at each snapshot, and their statistics, read at once.


class Columns:
    """Every row of ``ducklake_column`` of the tables looked at."""

    def __init__(self, scope: VerificationScope) -> None:
        self._rows: dict[int, list[Row[Any]]] = {}
        self._layouts: dict[tuple[int, int], TableSchema | None] = {}
        self._turns: dict[int, list[int]] = {}
        column = scope.tables["column"]
        query = select(column).where(scope.chosen(column.c.table_id))
        for row in scope.all(query.order_by(column.c.column_order, column.c.column_id)):
            self._rows.setdefault(row.table_id, []).append(row)

    def types(self, table_id: int) -> dict[ColumnId, tuple[DuckLakeType, ...]]:
        """Return the types that each column without fields has had, those we know, the newest last."""
        found: dict[ColumnId, dict[DuckLakeType, None]] = {}
        for row in sorted(self._rows.get(table_id, ()), key=lambda one: one.begin_snapshot):
            with suppress(InvalidTypeError):  # also of nested ones: their fields have rows of their own
                found.setdefault(ColumnId(row.column_id), {})[parse_type(row.column_type)] = None
        return {column_id: tuple(types) for column_id, types in found.items()}

    def live(self, table_id: int) -> list[Row[Any]]:
        """Return the rows of the columns that a table has now."""
        return [row for row in self._rows.get(table_id, ()) if row.end_snapshot is None]

    def at(self, table_id: int, snapshot: int) -> TableSchema | None:
        """Return the columns that a table had at a snapshot; None where they make no schema."""
        rows = self._rows.get(table_id, ())
        if table_id not in self._turns:
            ends = {row.end_snapshot for row in rows if row.end_snapshot is not None}
            self._turns[table_id] = sorted({row.begin_snapshot for row in rows} | ends)
        place = bisect_right(self._turns[table_id], snapshot)
        if (table_id, place) not in self._layouts:
            self._layouts[table_id, place] = _schema(rows, snapshot)
        return self._layouts[table_id, place]


def _schema(rows: Sequence[Row[Any]], at: int) -> TableSchema | None:
    visible = [
        row
        for row in rows
        if row.begin_snapshot <= at and (row.end_snapshot is None or at < row.end_snapshot)
    ]
    try:
        return schema_of(visible)
    except (DuckLakeError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class TableBounds:
    """What ``ducklake_table_column_stats`` says of a column.

    ``is_skipped``: it has no bounds because an option of the table says so.
    """

    bounds: TextBounds
    contains_null: bool | None
    contains_nan: bool | None
    is_skipped: bool = False


class CheckedStatistics:
    """The statistics of the tables' columns, and the types that these have had."""

    def __init__(self, scope: VerificationScope) -> None:
        stats = scope.tables["table_column_stats"]
        skipped = _skipped(scope)
        self._columns, self._head = scope.columns, scope.head.id
        self._live: dict[int, Mapping[ColumnId, DuckLakeType]] = {}
        self._types: dict[int, dict[ColumnId, tuple[DuckLakeType, ...]]] = {}
        self.of_columns = {
            (row.table_id, row.column_id): TableBounds(
                TextBounds(row.min_value, row.max_value),
                row.contains_null,
                row.contains_nan,
                (row.table_id, row.column_id) in skipped and row.min_value is None and row.max_value is None,
            )
            for row in scope.connection.execute(select(stats).where(scope.chosen(stats.c.table_id)))
        }

    def types(self, table_id: int, column_id: int) -> tuple[DuckLakeType, ...]:
        """Return the types that a column has had, none where it is no column of the table with bounds."""
        if table_id not in self._types:
            types = self._columns.types(table_id)
            self._types[table_id] = {
                column: tuple(one for one in had if has_bounds(one)) for column, had in types.items()
            }
        return self._types[table_id].get(ColumnId(column_id), ())

    def of_live(self, table_id: int, column_id: int) -> TableBounds | None:
        """Look up the statistics of a current column, as far as they are reliable; None if it has none."""
        if table_id not in self._live:
            schema = self._columns.at(table_id, self._head)
            self._live[table_id] = schema.leaf_types() if schema is not None else {}
        type_ = self._live[table_id].get(ColumnId(column_id))
        stats = self.of_columns.get((table_id, column_id)) if type_ is not None else None
        if type_ is None or stats is None or type_.facts.counts_nulls:
            return stats
        return replace(stats, contains_null=None)


def _skipped(scope: VerificationScope) -> frozenset[tuple[int, int]]:
    """Return the columns (table, column) that statistics leave out, with the fields below them."""
    rows = (row for row in read.option_rows(scope.connection, scope.tables) if row.key == SKIP_STATS_COLUMNS)
    named = {
        TableId(row.scope_id): Options({row.key: row.value or ""}).skipped_columns
        for row in rows
        if row.scope == "table" and row.scope_id is not None
    }
    found = with_what_lies_in_them(scope.connection, scope.tables, named)
    return frozenset((table_id, column) for table_id, columns in found.items() for column in columns)
