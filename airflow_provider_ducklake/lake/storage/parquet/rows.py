"""Split an Arrow table into the partitions of its lake table."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.partitioning import PartitionField, partition_value
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import arrow_type, cast_leaf, physical_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.sorting import SortField
    from airflow_provider_ducklake.lake.spec.sql.computed import Computed
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType
    from airflow_provider_ducklake.lake.spec.types.values import Physical


def split_by_partition(
    rows: pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield the values and the rows of each partition, in order of first appearance; rows keep their order.

    Values are computed once for each distinct source value, not for each row.
    """
    if not fields:
        yield (), rows
        return
    keys = [_key_texts(rows, schema, field) for field in fields]
    names = [f"k{number}" for number in range(len(keys))]
    groups = pa.table([*keys, pa.array(range(rows.num_rows), pa.int64())], names=[*names, "row"])
    found = groups.group_by(names, use_threads=False).aggregate([("row", "list")]).to_pylist()
    for group in sorted(found, key=lambda group: group["row_list"][0]):  # Arrow's own order is undefined
        yield tuple(group[name] for name in names), rows.take(group["row_list"])


def partition_of_rows(
    rows: pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> list[tuple[str | None, ...]]:
    """Return the partition values of each row."""
    return list(zip(*(_key_texts(rows, schema, field).to_pylist() for field in fields), strict=True))


def _key_texts(rows: pa.Table, schema: TableSchema, field: PartitionField) -> pa.Array:
    column = schema.by_id(field.column_id)
    values = rows.column(column.name).combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    encoded = pc.dictionary_encode(values)
    texts = [
        partition_value(field.transform, column.type, physical(value, column.type))
        for value in encoded.dictionary
    ]
    return pc.take(pa.array(texts, pa.string()), encoded.indices)


def values_of_row(
    row: pa.RecordBatch | pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> tuple[str | None, ...]:
    """Return the partition values of the first row; its columns are the table's, in order."""
    return tuple(_value(row, schema, field) for field in fields)


def _value(row: pa.RecordBatch | pa.Table, schema: TableSchema, field: PartitionField) -> str | None:
    column = schema.by_id(field.column_id)
    value = row.column(schema.columns.index(column))[0]
    return partition_value(field.transform, column.type, physical(value, column.type))


def physical(scalar: pa.Scalar, type_: DuckLakeType) -> Physical | None:
    """Return the physical form (see ``spec.types.values``) of an Arrow scalar; null is None."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        scalar = scalar.value
    (value,) = physical_values(cast_leaf(pa.array([scalar]), arrow_type(type_)), type_)
    return cast("Physical", value)


# The values of expressions over rows, as DuckDB computes them; see ``spec.sql.computed``.


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999; Arrow has no names for others
_MICROSECONDS = 86_400_000_000


class NotComputableError(Exception):
    """Some of the values are such that Arrow and DuckDB differ."""


def values_of(computed: Computed, rows: pa.Table) -> pa.ChunkedArray:
    """Return the value of each row."""
    if computed.operation == "column":
        return _column(computed, rows)
    if computed.operation == "literal":
        type_ = pa.int64() if computed.kind is ScalarKind.INTEGER else pa.string()
        return pa.chunked_array([pa.repeat(pa.scalar(computed.value, type_), rows.num_rows)])
    given = [values_of(one, rows) for one in computed.arguments]
    found = _applied(computed, given)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _column(computed: Computed, rows: pa.Table) -> pa.ChunkedArray:
    values = rows[computed.column]
    match computed.kind:
        case ScalarKind.INTEGER:
            return values.cast(pa.int64())
        case ScalarKind.STRING:
            return values.cast(pa.string())
        case _:
            return values


def _applied(computed: Computed, given: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    operation = computed.operation
    if operation in _SIMPLE:
        return _SIMPLE[operation](*given)
    if operation == "substring":
        start, length = (int(one.value) for one in computed.arguments[1:])
        return pc.utf8_slice_codeunits(given[0], start - 1, start - 1 + length)
    if operation in ("lower", "upper"):
        return _cased(given[0], operation)
    return _of_time(computed, given[0])


def _remainder(values: pa.ChunkedArray, by: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))  # which cuts towards zero


_SIMPLE: dict[str, Callable[..., pa.ChunkedArray]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "%": _remainder,
    "negative": pc.negate,
    "abs": pc.abs,
    "||": lambda *parts: pc.binary_join_element_wise(*parts, ""),
    "IS NULL": pc.is_null,
    "IS NOT NULL": pc.is_valid,
    "coalesce": pc.coalesce,
    "length": lambda values: pc.utf8_length(values).cast(pa.int64()),
    "text": lambda values: values.cast(pa.string()),
}


def _cased(values: pa.ChunkedArray, case: str) -> pa.ChunkedArray:
    if not pc.all(pc.string_is_ascii(values)).as_py() and len(values) > values.null_count:
        raise NotComputableError
    return pc.ascii_lower(values) if case == "lower" else pc.ascii_upper(values)


def _of_time(computed: Computed, values: pa.ChunkedArray) -> pa.ChunkedArray:
    _check_years(values)
    match computed.operation:
        case "year":
            return pc.year(values)
        case "month":
            return pc.month(values)
        case "day":
            return pc.day(values)
        case _:
            assert computed.operation == "date_trunc"
            return pc.floor_temporal(values, unit=str(computed.value), week_starts_monday=True)


def _check_years(values: pa.ChunkedArray) -> None:
    is_date = pa.types.is_date32(values.type)
    numbers = values.cast(pa.int32()).cast(pa.int64()) if is_date else values.cast(pa.int64())
    a_day = 1 if is_date else _MICROSECONDS
    bounds = pc.min_max(numbers)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not (_FIRST_DAY * a_day <= least and most < (_LAST_DAY + 1) * a_day):
        raise NotComputableError


# Rows in the order of a table's sort keys, as DuckDB sorts them: NaN is the greatest number.
#
# Keys that are expressions are DuckDB's SQL: those that cannot be computed here end the keys that count,
# and the log says so, as it does where Spark sorts.


log = logger(__name__)


def sorted_rows(
    rows: pa.Table,
    keys: Sequence[SortField],
    schema: TableSchema,
    table: str,
    logged: set[str] | None = None,
) -> pa.Table:
    """Return the rows, which have at least the columns of ``schema``, sorted by the keys.

    Equal ones keep their order. ``table`` is for the log; ``logged`` are keys that were logged before.
    """
    logged = set() if logged is None else logged
    columns: dict[str, pa.ChunkedArray] = {}
    order: list[tuple[str, str]] = []
    for key in keys:
        found = _find(rows, key, schema)
        if found is None and key.expression not in logged:
            logged.add(key.expression)
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
