"""The values of expressions over rows, as DuckDB computes them; see ``spec.expressions.computed``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.lake.spec.expressions.computed import Computed

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999; Arrow has no names for others
_MICROSECONDS = 86_400_000_000


class NotComputableError(Exception):
    """Some of the values are such that Arrow and DuckDB differ."""


def values_of(computed: Computed, rows: pa.Table) -> pa.ChunkedArray:
    """Return the value of each row.

    Raises:
        NotComputableError: some values are not computed as DuckDB does.
    """
    if computed.operation == "column":
        return _column(computed, rows)
    if computed.operation == "literal":
        type_ = pa.int64() if computed.kind is Kind.INTEGER else pa.string()
        return pa.chunked_array([pa.repeat(pa.scalar(computed.value, type_), rows.num_rows)])
    given = [values_of(one, rows) for one in computed.arguments]
    found = _applied(computed, given)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _column(computed: Computed, rows: pa.Table) -> pa.ChunkedArray:
    values = rows[computed.column]
    match computed.kind:
        case Kind.INTEGER:
            return values.cast(pa.int64())
        case Kind.STRING:
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
