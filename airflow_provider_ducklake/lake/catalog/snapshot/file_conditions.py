"""Filters as conditions on the catalog's rows of data files, so that few of many files are fetched.

Only what a database compares exactly becomes a condition: whole numbers by value, and texts whose order is
that of their values, byte by byte. Bounds of any other shape exclude nothing; ``planning.pruning`` looks
again at the files that remain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Numeric,
    String,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    not_,
    or_,
    select,
)

from airflow_provider_ducklake.lake.planning.reading.predicates import (
    AllOf,
    AnyOf,
    Comparison,
    Membership,
    Operator,
    Predicate,
    column_ids,
)
from airflow_provider_ducklake.lake.spec.partitioning import TransformKind, is_local
from airflow_provider_ducklake.lake.spec.types.ducklake_types import DecimalType, Kind, ScalarType
from airflow_provider_ducklake.lake.spec.types.literals import parse_scalar
from airflow_provider_ducklake.lake.spec.types.values import format_physical

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableId, TableSnapshot
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType
    from airflow_provider_ducklake.lake.spec.types.values import Physical

_MOST_CONDITIONS = 32  # each is a subquery
_MOST_VALUES = 256  # of a partition key
_COUNTS = ScalarType("int64")  # what buckets, years, months, days and hours are


def may_match(
    where: Predicate, table_id: TableId, schema: TableSchema, catalog: Catalog, first_id: int = 0
) -> ColumnElement[bool] | None:
    """Return what holds for the rows of data files that may have a row for which the filter is true.

    Of the files only those from ``first_id`` on are asked for. None: nothing that the database can judge.
    """
    if len(column_ids(where)) > _MOST_CONDITIONS:
        return None
    types = {column.id: column.type for column in schema.walk()}
    condition = _Conditions(table_id, types, catalog.tables, catalog.dialect, first_id).of(where)
    if condition is None:
        return None
    file = catalog.tables["data_file"].c
    if "mapping_id" not in file:  # 0.1 knows no files of others
        return condition
    # the statistics of files of others do not cover what lies in the names of folders
    return or_(file.mapping_id.is_not(None), condition)


def may_be_in(
    partitions: Partitions, table: TableSnapshot, catalog: Catalog, first_id: int = 0
) -> ColumnElement[bool] | None:
    """Return what holds for the rows of data files that may have rows of partitions of the table's keys.

    Only files that were written by the keys are excluded, by values that the database compares exactly.
    ``first_id`` and None are as for ``may_match``.
    """
    assert table.partition_spec is not None
    conditions = _Conditions(table.table_id, partitions.types, catalog.tables, catalog.dialect)
    file, value = catalog.tables["data_file"].c, catalog.tables["file_partition_value"].c
    others = []
    for number, field in enumerate(partitions.fields):
        wanted = conditions.comparable_values(field, {values[number] for values in partitions.wanted})
        if wanted is not None:
            bound, values = wanted
            of_key = and_(value.table_id == table.table_id, value.partition_key_index == number)
            is_other = and_(value.data_file_id >= first_id, bound(value.partition_value).not_in(values))
            others.append(select(value.data_file_id).where(of_key, is_other))
    if not others:
        return None
    is_excluded = or_(*(file.data_file_id.in_(one) for one in others))
    return or_(file.partition_id.is_(None), file.partition_id != table.partition_spec.id, not_(is_excluded))


@dataclass(frozen=True, slots=True)
class _Conditions:
    table_id: TableId
    types: Mapping[ColumnId, DuckLakeType]
    tables: CatalogTables
    dialect: CatalogDialect
    first_id: int = 0

    def of(self, where: Predicate) -> ColumnElement[bool] | None:
        match where:
            case AllOf(parts):
                known = [one for one in map(self.of, parts) if one is not None]
                return and_(*known) if known else None
            case AnyOf(()):
                return false()
            case AnyOf(parts):
                known = [one for one in map(self.of, parts) if one is not None]
                return or_(*known) if len(known) == len(parts) else None
            case Membership(_, (), False):
                return false()
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
    ) -> ColumnElement[bool] | None:
        stats = self.tables["file_column_stats"].c
        wanted = self.comparable_value(self.types[column_id], value)
        if wanted is None or operator is Operator.UNEQUAL:
            return None
        low = self.comparable_bound(self.types[column_id], stats.min_value)
        high = self.comparable_bound(self.types[column_id], stats.max_value)
        excluded = {
            Operator.EQUAL: or_(high < wanted, low > wanted),
            Operator.LESS: low >= wanted,
            Operator.AT_MOST: low > wanted,
            Operator.GREATER: high <= wanted,
            Operator.AT_LEAST: high < wanted,
        }[operator]
        return self.tables["data_file"].c.data_file_id.not_in(
            select(stats.data_file_id).where(
                stats.data_file_id >= self.first_id,
                stats.table_id == self.table_id,
                stats.column_id == column_id,
                excluded,
            )
        )

    def comparable_value(self, type_: DuckLakeType, value: Physical) -> ColumnElement[Any] | None:
        """Return a filter's value as the database compares it; None: it cannot, or not exactly."""
        if type_.facts.kind is Kind.INTEGER:
            return literal(value, BigInteger) if abs(int(value)) < _WHOLE_NUMBERS_END else None
        if self.is_exact_decimal(type_):
            return cast(literal(format_physical(type_, value), String), Numeric)
        shape = _shape(type_)
        if shape is None:
            return None
        text = format_physical(type_, value)
        fits = re.fullmatch(shape.replace("_", ".").replace("%", ".*"), text, re.DOTALL)
        return self.dialect.bytewise(literal(text, String)) if fits and "\0" not in text else None

    def comparable_values(
        self, field: PartitionField, texts: Collection[str | None]
    ) -> tuple[Callable[[ColumnElement[Any]], ColumnElement[Any]], list[ColumnElement[Any]]] | None:
        """Return how the database compares a key's values, and the wanted ones; None: it cannot.

        No value is comparable as NULL: files without a value of the key are not excluded.
        """
        type_ = self.types[field.column_id]
        if is_local(field.transform, type_) or len(texts) > _MOST_VALUES or None in texts:
            return None
        if field.transform.kind is not TransformKind.IDENTITY:
            type_ = _COUNTS
        try:
            wanted = [self.comparable_value(type_, parse_scalar(type_, text or "")) for text in texts]
        except (ValueError, ArithmeticError):
            return None
        known = [one for one in wanted if one is not None]
        return (partial(self.comparable_bound, type_), known) if len(known) == len(wanted) else None

    def comparable_bound(self, type_: DuckLakeType, bound: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return a bound as the database compares it; NULL where it has another shape."""
        shape = _shape(type_)
        if self.is_exact_decimal(type_):
            return case((bound.regexp_match(r"^-?[0-9]*\.?[0-9]+$"), cast(bound, Numeric)), else_=None)
        if shape is None:
            return case((bound.regexp_match("^-?[0-9]{1,18}$"), cast(bound, BigInteger)), else_=None)
        has_shape = and_(bound.like(shape), func.length(bound) < _LONG_TEXT)
        return case((has_shape, self.dialect.bytewise(bound)), else_=None)

    def is_exact_decimal(self, type_: DuckLakeType) -> bool:
        """Whether the database compares all of a decimal's digits."""
        return isinstance(type_, DecimalType) and self.dialect.compares_decimals


_WHOLE_NUMBERS_END = 10**18
_LONG_TEXT = 64  # longer ones may have been cut
# LIKE patterns; years before 1 and after 9999, and bounds written for another type, look otherwise
_SHAPES = {
    Kind.DATE: "____-__-__",
    Kind.TIME: "__:__:__%",
    Kind.TIMESTAMP: "____-__-__ __:__:__%",
    Kind.UUID: "________-____-____-____-____________",
    Kind.STRING: "%",
}


def _shape(type_: DuckLakeType) -> str | None:
    shape = _SHAPES.get(type_.facts.kind)
    return f"{shape}+00" if shape is not None and type_.facts.zoned else shape
