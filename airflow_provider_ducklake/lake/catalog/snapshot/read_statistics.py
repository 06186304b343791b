"""Cumulative statistics of tables, which every append widens."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import CatalogError
from ...format.files import MappedColumn, NameMapping, TableColumnStats, TableStats
from ...format.options import SKIP_STATS_COLUMNS, Options
from ...format.partitioning import PartitionField, TransformKind, is_local
from ...format.snapshots import ColumnId, MappingId, TableId, TableSnapshot
from ...format.types.ducklake_types import DecimalType, DuckLakeType, ScalarKind, ScalarType
from ...format.types.literals import parse_scalar
from ...format.types.values import Physical, format_physical
from ...planning.reading.predicates import (
    AllOf,
    AnyOf,
    Comparison,
    Membership,
    Operator,
    Predicate,
    column_ids,
)
from ..database.connect import OF_TABLE, Question, one_of, values_of
from ..database.tables import CatalogTables, maybe

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ...planning.writing.overwrite import Partitions
    from ..dialects.dialect import Catalog, CatalogDialect


@dataclass(frozen=True, slots=True)
class Statistics:
    """The cumulative statistics of some tables: of those that have any, and of their columns."""

    tables: dict[TableId, TableStats]
    columns: dict[TableId, dict[ColumnId, TableColumnStats]]
    retyped: set[tuple[TableId, ColumnId]] = field(default_factory=set)  # whose bounds may be of another type


def statistics_query(tables: CatalogTables, table_ids: Collection[int]) -> Question[Statistics]:
    """Return the query for the cumulative statistics of tables."""
    return Question(_statistics_of(tables, len(table_ids)), _statistics, values_of(table_ids))


def _retyped(tables: CatalogTables, count: int) -> sa.Subquery:
    """Return the columns of ``count`` tables that had a type whose bounds do not fit today's type.

    DuckDB keeps the bounds when it changes a type, and then loses rows by them; ours go with the change.
    """
    before, now = tables["column"].alias(), tables["column"].alias()
    is_exact = sa.or_(now.c.column_type.like("%int%"), now.c.column_type.like("decimal%"))
    return (
        sa.select(now.c.table_id, now.c.column_id)
        .join(before, sa.and_(before.c.table_id == now.c.table_id, before.c.column_id == now.c.column_id))
        .where(
            one_of(now.c.table_id, count),
            now.c.end_snapshot.is_(None),
            before.c.end_snapshot.is_not(None),
            before.c.column_type != now.c.column_type,
            sa.or_(~is_exact, before.c.column_type == "boolean"),
        )
        .distinct()
        .subquery()
    )


@lru_cache
def _statistics_of(tables: CatalogTables, count: int) -> sa.Select[Any]:
    table, column = tables["table_stats"], tables["table_column_stats"]
    others = [maybe(one).label(one.name) for one in column.c if one.key != "table_id"]
    retyped = _retyped(tables, count)
    is_same = sa.and_(retyped.c.table_id == column.c.table_id, retyped.c.column_id == column.c.column_id)
    return (
        sa.select(table, *others, *_missing(column), maybe(retyped.c.column_id).label("retyped_id"))
        .outerjoin(column, column.c.table_id == table.c.table_id)
        .outerjoin(retyped, is_same)
        .where(one_of(table.c.table_id, count))
    )


def _missing(column: sa.Table) -> list[sa.ColumnElement[Any]]:
    """Return NULL for what the table's version does not have."""
    return [sa.null().label(name) for name in ("min_is_exact", "max_is_exact") if name not in column.c]


def _statistics(rows: Iterable[sa.Row[Any]]) -> Statistics:
    found = Statistics({}, {})
    for row in rows:
        table_id = TableId(row.table_id)
        found.tables[table_id] = TableStats(row.record_count, row.next_row_id, row.file_size_bytes or 0)
        columns = found.columns.setdefault(table_id, {})
        if row.column_id is not None:
            if row.retyped_id is not None:
                found.retyped.add((table_id, ColumnId(row.column_id)))
            columns[ColumnId(row.column_id)] = TableColumnStats(
                ColumnId(row.column_id),
                contains_null=row.contains_null is not False,
                contains_nan=row.contains_nan,
                min_value=row.min_value,
                max_value=row.max_value,
                extra_stats=row.extra_stats,
                min_is_exact=row.min_is_exact,
                max_is_exact=row.max_is_exact,
            )
    return found


@lru_cache
def _skip_rows(tables: CatalogTables, count: int) -> sa.Select[Any]:
    metadata = tables["metadata"]
    of_table = (metadata.c.scope == "table", one_of(metadata.c.scope_id, count))
    return sa.select(metadata.c.scope_id, metadata.c.value).where(
        metadata.c.key == SKIP_STATS_COLUMNS, *of_table
    )


def skipped_query(
    tables: CatalogTables, table_ids: Collection[int]
) -> Question[dict[TableId, frozenset[int]]]:
    """Return the query for the columns that tables' option names for statistics without bounds."""
    return Question(_skip_rows(tables, len(table_ids)), _skipped, values_of(table_ids))


def _skipped(rows: Iterable[sa.Row[Any]]) -> dict[TableId, frozenset[int]]:
    return {
        TableId(row.scope_id): Options({SKIP_STATS_COLUMNS: row.value or ""}).skipped_columns for row in rows
    }


def with_what_lies_in_them(
    connection: sa.Connection, tables: CatalogTables, columns: Mapping[TableId, frozenset[int]]
) -> dict[TableId, frozenset[ColumnId]]:
    """Return columns of tables and all that ever lay in them, at any depth."""
    column = tables["column"]
    found: dict[TableId, frozenset[ColumnId]] = {}
    for table_id, ids in ((one, ids) for one, ids in columns.items() if ids):
        query = sa.select(column.c.column_id, column.c.parent_column).where(column.c.table_id == table_id)
        children: dict[int, set[int]] = {}
        for child, parent in connection.execute(query.distinct()):
            children.setdefault(parent, set()).add(child)
        reached, new = set(ids), set(ids)
        while new := {child for one in new for child in children.get(one, ())} - reached:
            reached |= new
        found[table_id] = frozenset(map(ColumnId, reached))
    return found


def columns_with_unbounded_values(
    connection: sa.Connection, tables: CatalogTables, columns: Mapping[TableId, Iterable[ColumnId]]
) -> set[tuple[TableId, ColumnId]]:
    """Return the columns that not every data file says to be without values: there NULL means *unknown*."""
    file, stats = tables["data_file"], tables["file_column_stats"]
    found: set[tuple[TableId, ColumnId]] = set()
    for table_id, of_table in columns.items():
        files = sa.select(sa.func.count()).where(file.c.table_id == table_id)
        without_values = (
            sa.select(stats.c.column_id, sa.func.count().label("files"))
            .where(stats.c.table_id == table_id, stats.c.value_count == 0)
            .group_by(stats.c.column_id)
        )
        all_files = connection.execute(files).scalar_one()
        empty = {row.column_id: row.files for row in connection.execute(without_values)}
        found.update((table_id, one) for one in of_table if empty.get(one, 0) != all_files)
    return found


# Filters as conditions on the catalog's rows of data files, so that few of many files are fetched.
#
# Only what a database compares exactly becomes a condition: whole numbers by value, and texts whose order
# is that of their values, byte by byte. Bounds of any other shape exclude nothing;
# ``planning.reading.pruning`` looks again at the files that remain.


_MOST_CONDITIONS = 32  # each is a subquery
_MOST_VALUES = 256  # of a partition key
_COUNTS = ScalarType("int64")  # what buckets, years, months, days and hours are


def files_that_may_match(
    where: Predicate, table_id: TableId, schema: TableSchema, catalog: Catalog, first_id: int = 0
) -> sa.ColumnElement[bool] | None:
    """Build the SQL condition for data files that may have a row for which the filter is true.

    Of the files only those from ``first_id`` on are asked for. None: the database can exclude no file.
    """
    if len(column_ids(where)) > _MOST_CONDITIONS:
        return None
    types = {column.id: column.type for column in schema.walk()}
    condition = _Conditions(table_id, types, catalog.tables, catalog.dialect, first_id).of(where)
    if condition is None:
        return None
    file = catalog.tables["data_file"].c
    # the statistics of files of others do not cover what lies in the names of folders
    return sa.or_(file.mapping_id.is_not(None), condition)


def files_that_may_be_in(
    partitions: Partitions, table: TableSnapshot, catalog: Catalog, first_id: int = 0
) -> sa.ColumnElement[bool] | None:
    """Build the SQL condition for data files that may have rows of these partitions.

    Only files that were written by the keys are excluded, by values that the database compares exactly.
    ``first_id`` and None are as for ``files_that_may_match``.
    """
    assert table.partition_spec is not None
    conditions = _Conditions(table.table_id, partitions.types, catalog.tables, catalog.dialect)
    file, value = catalog.tables["data_file"].c, catalog.tables["file_partition_value"].c
    others = []
    for number, key in enumerate(partitions.fields):
        wanted = conditions.comparable_values(key, {values[number] for values in partitions.wanted})
        if wanted is not None:
            bound, values = wanted
            of_key = sa.and_(value.table_id == table.table_id, value.partition_key_index == number)
            is_other = sa.and_(value.data_file_id >= first_id, bound(value.partition_value).not_in(values))
            others.append(sa.select(value.data_file_id).where(of_key, is_other))
    if not others:
        return None
    is_excluded = sa.or_(*(file.data_file_id.in_(one) for one in others))
    return sa.or_(
        file.partition_id.is_(None), file.partition_id != table.partition_spec.id, sa.not_(is_excluded)
    )


@dataclass(frozen=True, slots=True)
class _Conditions:
    table_id: TableId
    types: Mapping[ColumnId, DuckLakeType]
    tables: CatalogTables
    dialect: CatalogDialect
    first_id: int = 0

    def of(self, where: Predicate) -> sa.ColumnElement[bool] | None:
        match where:
            case AllOf(parts):
                known = [one for one in map(self.of, parts) if one is not None]
                return sa.and_(*known) if known else None
            case AnyOf(()):
                return sa.false()
            case AnyOf(parts):
                known = [one for one in map(self.of, parts) if one is not None]
                return sa.or_(*known) if len(known) == len(parts) else None
            case Membership(_, (), False):
                return sa.false()
            case Membership(column_id, (first, *_, last) | (first as last,), False):
                ends = (
                    Comparison(column_id, Operator.AT_LEAST, first),
                    Comparison(column_id, Operator.AT_MOST, last),
                )
                return self.of(AllOf(ends))
            case Comparison(column_id, operator, value):
                return self.comparison(column_id, operator, value)
            case _:
                return None

    def comparison(
        self, column_id: ColumnId, operator: Operator, value: Physical
    ) -> sa.ColumnElement[bool] | None:
        stats = self.tables["file_column_stats"].c
        wanted = self.comparable_value(self.types[column_id], value)
        if wanted is None or operator is Operator.UNEQUAL:
            return None
        low = self.comparable_bound(self.types[column_id], stats.min_value)
        high = self.comparable_bound(self.types[column_id], stats.max_value)
        excluded = {
            Operator.EQUAL: sa.or_(high < wanted, low > wanted),
            Operator.LESS: low >= wanted,
            Operator.AT_MOST: low > wanted,
            Operator.GREATER: high <= wanted,
            Operator.AT_LEAST: high < wanted,
        }[operator]
        return self.tables["data_file"].c.data_file_id.not_in(
            sa.select(stats.data_file_id).where(
                stats.data_file_id >= self.first_id,
                stats.table_id == self.table_id,
                stats.column_id == column_id,
                excluded,
            )
        )

    def comparable_value(self, type_: DuckLakeType, value: Physical) -> sa.ColumnElement[Any] | None:
        """Return a filter's value as the database compares it; None: it cannot, or not exactly."""
        if type_.facts.kind is ScalarKind.INTEGER:
            return sa.literal(value, sa.BigInteger) if abs(int(value)) < _WHOLE_NUMBERS_END else None
        if self.is_exact_decimal(type_):
            return sa.cast(sa.literal(format_physical(type_, value), sa.String), sa.Numeric)
        shape = _shape(type_)
        if shape is None:
            return None
        text = format_physical(type_, value)
        fits = re.fullmatch(shape.replace("_", ".").replace("%", ".*"), text, re.DOTALL)
        return self.dialect.bytewise(sa.literal(text, sa.String)) if fits and "\0" not in text else None

    def comparable_values(
        self, key: PartitionField, texts: Collection[str | None]
    ) -> tuple[Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]], list[sa.ColumnElement[Any]]] | None:
        """Return the SQL comparison of a key's values, and the wanted values; None: the database lacks one.

        No value is comparable as NULL: files without a value of the key are not excluded.
        """
        type_ = self.types[key.column_id]
        if is_local(key.transform, type_) or len(texts) > _MOST_VALUES or None in texts:
            return None
        if key.transform.kind is not TransformKind.IDENTITY:
            type_ = _COUNTS
        try:
            wanted = [self.comparable_value(type_, parse_scalar(type_, text or "")) for text in texts]
        except (ValueError, ArithmeticError):
            return None
        known = [one for one in wanted if one is not None]
        return (partial(self.comparable_bound, type_), known) if len(known) == len(wanted) else None

    def comparable_bound(self, type_: DuckLakeType, bound: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return a bound as the database compares it; NULL where it has another shape."""
        shape, is_short = _shape(type_), sa.func.length(bound) < _LONG_TEXT
        if self.is_exact_decimal(type_):
            is_number = bound.regexp_match(r"^-?[0-9]*\.?[0-9]+$")
            return sa.case((sa.and_(is_short, is_number), sa.cast(bound, sa.Numeric)), else_=None)
        if shape is None:
            return sa.case((bound.regexp_match("^-?[0-9]{1,18}$"), sa.cast(bound, sa.BigInteger)), else_=None)
        return sa.case((sa.and_(bound.like(shape), is_short), self.dialect.bytewise(bound)), else_=None)

    def is_exact_decimal(self, type_: DuckLakeType) -> bool:
        """Return True if the database compares all of a decimal's digits."""
        return isinstance(type_, DecimalType) and self.dialect.compares_decimals


_WHOLE_NUMBERS_END = 10**18
_LONG_TEXT = 64  # longer ones may have been cut
# LIKE patterns; years before 1 and after 9999, and bounds written for another type, look otherwise
_SHAPES = {
    ScalarKind.DATE: "____-__-__",
    ScalarKind.TIME: "__:__:__%",
    ScalarKind.TIMESTAMP: "____-__-__ __:__:__%",
    ScalarKind.UUID: "________-____-____-____-____________",
    ScalarKind.STRING: "%",
}


def _shape(type_: DuckLakeType) -> str | None:
    shape = _SHAPES.get(type_.facts.kind)
    return f"{shape}+00" if shape is not None and type_.facts.zoned else shape


# Name mappings: which columns of added files are which columns of a table.


def name_mappings(
    connection: sa.Connection, tables: CatalogTables, table_id: int
) -> dict[MappingId, NameMapping]:
    """Return the mappings by name of a table, by id, ascending."""
    return mappings_query(tables, table_id).ask(connection)


def mappings_query(tables: CatalogTables, table_id: int) -> Question[dict[MappingId, NameMapping]]:
    """Return the query for the mappings by name of a table."""
    return Question(_mappings(tables), _by_id, {"table": table_id})


@lru_cache
def _mappings(tables: CatalogTables) -> sa.Select[Any]:
    mapping, name = tables["column_mapping"], tables["name_mapping"]
    return (
        sa.select(name)
        .join(mapping, mapping.c.mapping_id == name.c.mapping_id)
        .where(mapping.c.table_id == OF_TABLE, mapping.c.type == "map_by_name")
        .order_by(name.c.mapping_id, name.c.column_id)
    )


def _by_id(rows: Sequence[sa.Row[Any]]) -> dict[MappingId, NameMapping]:
    groups = groupby(rows, key=lambda row: MappingId(row.mapping_id))
    return {mapping_id: _mapping(list(found)) for mapping_id, found in groups}


def _mapping(rows: list[sa.Row[Any]]) -> NameMapping:
    places = {row.column_id: place for place, row in enumerate(rows)}
    return tuple(
        MappedColumn(
            row.source_name,
            ColumnId(row.target_field_id),
            None if row.parent_column is None else _place(row, places),
            bool(getattr(row, "is_partition", False)),
        )
        for row in rows
    )


def _place(row: sa.Row[Any], places: Mapping[int, int]) -> int:
    """Return the place of the column that a nested one lies in."""
    if row.parent_column not in places:
        raise CatalogError(
            f"ducklake_name_mapping has {row.source_name} (column {row.column_id} of mapping "
            f"{row.mapping_id}) in column {row.parent_column}, which it does not have. Add the files "
            "again, or restore the catalog from a backup."
        )
    return places[row.parent_column]
