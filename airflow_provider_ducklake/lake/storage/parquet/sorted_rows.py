"""Rows in the order of a table's sort keys, as DuckDB sorts them: NaN is the greatest number.

Keys that are expressions are DuckDB's SQL: those that cannot be computed here end the keys that count, and
the log says so, as it does where Spark sorts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.storage.parquet.computed_values import NotComputableError, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.sorting import SortField

log = logger(__name__)


def sorted_rows(
    rows: pa.Table,
    keys: Sequence[SortField],
    schema: TableSchema,
    table: str,
    told: set[str] | None = None,
) -> pa.Table:
    """Return the rows, which have at least the columns of ``schema``, sorted by the keys.

    Equal ones keep their order. ``table`` is for the log; ``told`` are keys that it has heard of.
    """
    told = set() if told is None else told
    columns: dict[str, pa.ChunkedArray] = {}
    order: list[tuple[str, str]] = []
    for key in keys:
        found = _find(rows, key, schema)
        if found is None and key.expression not in told:
            told.add(key.expression)
            log.warning(
                "%s is sorted by %s, which cannot be computed here: rows are sorted by the keys before it "
                "only",
                *(table, key.expression),
            )
        if found is None:
            break
        for values, direction in _sort_columns(found, key):
            name = str(len(columns))
            columns[name] = values
            order.append((name, direction))
    if not order:
        return rows
    return rows.take(pc.sort_indices(pa.table(columns), order))  # which is stable


def _find(rows: pa.Table, key: SortField, schema: TableSchema) -> pa.ChunkedArray | None:
    """Return the values of a key, a column with an order or what we can compute; None for any other."""
    how = key.computed(schema)
    if how is not None:
        try:
            return values_of(how, rows)
        except NotComputableError:
            return None
    name = fold(key.column_name or "")
    found = next((column for column in rows.column_names if fold(column) == name), None)
    if found is None:
        return None
    values = rows[found]
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    return None if _is_without_order(values.type) else values


def _is_without_order(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_) or pa.types.is_interval(type_))


def _sort_columns(values: pa.ChunkedArray, key: SortField) -> Iterator[tuple[pa.ChunkedArray, str]]:
    """Yield what to sort by, in turn: whether it is NULL, whether it is NaN, and the value."""
    direction = "descending" if key.direction == "DESC" else "ascending"
    nulls = "descending" if key.null_order == "NULLS_FIRST" else "ascending"
    yield pc.is_null(values), nulls
    if pa.types.is_floating(values.type):
        yield pc.fill_null(pc.is_nan(values), False), direction  # noqa: FBT003 - the filling
    yield values, direction
