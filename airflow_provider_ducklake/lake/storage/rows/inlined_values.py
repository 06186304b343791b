"""Rows as the cells of an inlined table, the way back, and what they add to a table's statistics.

*Source:* what the reference stores for each type on SQLite and PostgreSQL, and reads back (docs/sources.md,
inlining). Row counts are small: everything here goes value by value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import CatalogError, UnsupportedFeatureError
from ...format.files import ColumnStats, InlinedForm, TableColumnStats, blob_bounds, fits
from ...format.schema import Column, TableSchema
from ...format.types import ducklake_types as dl
from ...format.types.literals import Value, format_literal, parse_literal, parse_scalar, scalar_text
from ...format.types.values import Physical, format_physical, is_readable
from ..arrow.arrow_types import array_of, arrow_field, arrow_schema, values_of
from ..arrow.scalars import ARROW_SCALARS
from ..parquet.reader import in_schema
from .text_values import plain_decimals

if TYPE_CHECKING:
    from ...format.snapshots import ColumnId
    from ...planning.reading.scan import InlinedRows


def _is_native(row: dl.Scalar, form: InlinedForm) -> bool:
    """Return True if a database has cells of the type's own values; the others are texts."""
    return row.kind in form.native or (row.kind is dl.ScalarKind.INTEGER and row.physical_range[1] < 2**63)


def cells(rows: pa.Table, schema: TableSchema, form: InlinedForm) -> list[dict[str, object]]:
    """Return the parameters to bind for each row, by column name; ``rows`` have the types of ``schema``."""
    for column in schema.walk():
        if not column.type.facts.storable:
            raise _refused(column, f"type {column.type}")
    columns = {
        column.name: _cells(column, values_of(chunked, column.type), form)
        for column, chunked in zip(schema.columns, rows.columns, strict=True)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def cells_again(
    rows: Sequence[Mapping[str, Any]], schema: TableSchema, had: InlinedForm | None, form: InlinedForm
) -> list[dict[str, object]]:
    """Return cells read from an inlined table as another database has them; ``had`` is the first's form."""
    if had == form:
        return [{name: row[name] for name in schema.names} for row in rows]
    columns = {
        column.name: _again(column, [row[column.name] for row in rows], form) for column in schema.columns
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# texts that are the same everywhere, and would lose the offset of a time, or all of an unknown type
_AS_THEY_ARE = (dl.ScalarKind.TIME, dl.ScalarKind.OTHER)


def _again(column: Column, found: list[Any], form: InlinedForm) -> list[object]:
    if column.children or column.type.facts.kind in _AS_THEY_ARE:
        return [cell.decode() if isinstance(cell, bytes) else cell for cell in found]
    try:
        values = [_parsed(column.type, cell) for cell in found]
    except (ValueError, ArithmeticError) as error:
        raise _misfit(column, error) from error
    return list(values) if column.type.facts.kind is dl.ScalarKind.VARIANT else _cells(column, values, form)


def rows_of(rows: Iterable[Mapping[str, Any]], schema: TableSchema) -> pa.Table:
    """Convert the cells of an inlined table, by any client, to a table with the types of ``schema``."""
    rows = list(rows)
    arrays = [_array(column, [row[column.name] for row in rows]) for column in schema.columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def _array(column: Column, cells: list[Any]) -> pa.Array:
    """Return the values of a column's cells: by Arrow where it takes them as they are, else one by one."""
    target = arrow_field(column).type
    if _is_taken_by_arrow(column.type):
        try:
            return _taken(cells, target)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    try:
        return array_of(column, [_parsed(column.type, cell) for cell in cells], target)
    except (ValueError, ArithmeticError) as error:
        raise _misfit(column, error) from error


def _misfit(column: Column, error: Exception) -> CatalogError:
    return CatalogError(
        f"An inlined row has a value that does not fit column {column.name} ({column.type}): {error}. "
        "Leave the column out, or correct the row in the catalog."
    )


def _is_taken_by_arrow(type_: dl.DuckLakeType) -> bool:
    if isinstance(type_, dl.ScalarType):
        return ARROW_SCALARS[type_.name].reads_texts
    return isinstance(type_, dl.DecimalType)


def _taken(cells: list[Any], target: pa.DataType) -> pa.Array:
    """Convert the cells to an array of ``target``; raises if Arrow cannot."""
    if pa.types.is_integer(target):
        return pa.array(cells, target)
    if pa.types.is_binary(target):
        return pa.array(cells, pa.binary())
    if pa.types.is_string(target):
        return pa.array(cells, pa.binary()).cast(target)
    is_text = any(isinstance(cell, str) for cell in cells)
    if is_text and pa.types.is_decimal(target):
        return plain_decimals(pa.array(cells, pa.string()), target).cast(target)
    return pa.array(cells, pa.string()).cast(target) if is_text else pa.array(cells, target)


def inlined_in_schema(parts: Iterable[InlinedRows], schema: TableSchema) -> pa.Table:
    """Return rows of inlined tables of whatever layout with the columns of today, in the order given."""
    wanted = {column.id for column in schema.columns}
    tables = [rows_of([], schema)]
    for part in parts:
        had = TableSchema(tuple(column for column in part.schema.columns if column.id in wanted))
        if part.rows:
            rows = rows_of(part.rows, had) if had.columns else pa.table({"any": part.row_ids})
            tables.append(in_schema(rows, schema.columns, part.table_name))
    return pa.concat_tables(tables)


def _cells(column: Column, values: list[Any], form: InlinedForm) -> list[object]:
    row = column.type.facts
    if _is_native(row, form):
        return values
    to_cell: Callable[[Any], object]
    if column.children:
        to_cell = partial(_nested_cell, column, form)
    elif row.kind in dl.TIMES:
        to_cell = partial(_time_cell, column)
    elif row.kind is dl.ScalarKind.BOOLEAN:
        to_cell = int
    elif row.kind is dl.ScalarKind.VARIANT:
        to_cell = partial(_variant_cell, column)
    else:
        to_cell = partial(scalar_text, column.type)
    cells: list[Any] = [None if value is None else to_cell(value) for value in values]
    if row.kind is dl.ScalarKind.DECIMAL and form.has_decimals:
        return [None if cell is None else Decimal(cell) for cell in cells]
    return cells


def _nested_cell(column: Column, form: InlinedForm, value: Value) -> str:
    _check_nested(column, value, form)
    return format_literal(column.type, value)


def _time_cell(column: Column, value: Physical) -> str:
    _check_range(column, value)
    return scalar_text(column.type, value)


def _variant_cell(column: Column, value: bytes) -> bytes:
    from ...format.types.variant_bytes import Primitive, primitives_of
    from ...format.types.variants import split_variant

    if Primitive.TIMESTAMPTZ_NS in primitives_of(split_variant(value)[1]):
        raise _refused(column, "a timestamp in nanoseconds with a zone, which DuckDB cannot flush")
    return value


def _check_range(column: Column, value: Physical) -> None:
    if not is_readable(column.type, value):
        raise _refused(column, "a time outside the range that DuckDB can read from a string")


def _check_nested(column: Column, value: Value, form: InlinedForm) -> None:
    for inner in column.walk():
        if isinstance(inner.type, dl.ListType) and inner.type.element.facts.kind is dl.ScalarKind.JSON:
            raise _refused(column, "a list of JSON, which DuckDB cannot read from a string")
    for leaf, found in _leaf_values(column, value):
        if found is None:
            continue
        _check_range(leaf, found)
        if not form.nested_nul and leaf.type.facts.kind in dl.TEXTS and b"\0" in _bytes(found):
            raise _refused(column, "a NUL character in a nested string, which the database cannot hold")


def _refused(column: Column, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"Column {column.name} has {what}: its rows cannot be inlined.")


def _bytes(value: Physical) -> bytes:
    assert isinstance(value, bytes)
    return value


def _parsed(type_: dl.DuckLakeType, cell: Any) -> Value:  # noqa: ANN401 - whatever the driver gives
    """Return the value of a cell; its Python type says how it was stored."""
    if cell is None:
        return None
    if isinstance(cell, memoryview):
        cell = bytes(cell)
    if isinstance(type_, dl.ListType | dl.StructType | dl.MapType):
        if dl.holds_variants(type_):
            raise UnsupportedFeatureError(
                f"Variants inside {type_}, inlined in a DuckDB file, cannot be read: leave their column out, "
                "or flush the table with DuckDB."
            )
        return parse_literal(type_, cell.decode() if isinstance(cell, bytes) else str(cell))
    kind = type_.facts.kind
    if kind is dl.ScalarKind.VARIANT:
        return _variant(cell)
    if kind in dl.BYTES:
        return cell if isinstance(cell, bytes) else str(cell).encode()
    if kind is dl.ScalarKind.BOOLEAN and isinstance(cell, int):
        return bool(cell)
    if kind is dl.ScalarKind.FLOAT and isinstance(cell, float | int):
        return float(cell)
    return parse_scalar(type_, str(cell))


def _variant(cell: object) -> bytes:
    """Return the bytes that 1.1 stores: metadata, then value, which DuckDB files hand over apart."""
    if isinstance(cell, dict):
        return bytes(cell["metadata"]) + bytes(cell["value"])
    if not isinstance(cell, bytes):
        raise UnsupportedFeatureError(
            f"{cell!r:.80} is not how a catalog keeps variants: leave their column out, or flush the table "
            "with DuckDB."
        )
    return cell


def inlined_stats(rows: pa.Table, schema: TableSchema) -> dict[ColumnId, TableColumnStats | None]:
    """Compute statistics of inlined rows for each leaf column; None if no bounds can cover the values.

    Bounds of floats leave NaN out, which the reference takes for a bound. Booleans are ``true`` and
    ``false`` as the reference has them; blobs are hexadecimal as in the statistics of files, since the text
    that the reference has for inlined ones is in no order.
    """
    found: dict[ColumnId, list[Physical | None]] = {leaf.id: [] for leaf in schema.leaves()}
    for column, chunked in zip(schema.columns, rows.columns, strict=True):
        values = values_of(chunked, column.type)
        if not column.children:
            found[column.id] = values
            continue
        for leaf, one in (pair for value in values for pair in _leaf_values(column, value)):
            found[leaf.id].append(one)
    return {
        leaf.id: TableColumnStats.of_file(_stats(leaf, found[leaf.id]), leaf.type) for leaf in schema.leaves()
    }


def _leaf_values(column: Column, value: Any) -> Iterator[tuple[Column, Physical | None]]:  # noqa: ANN401
    """Yield the leaf values of one value: none for a list that is NULL, NULLs for a struct that is."""
    match column.type:
        case dl.ListType():
            for item in value or ():
                yield from _leaf_values(column.children[0], item)
        case dl.MapType():
            for pair in value or ():
                for child, one in zip(column.children, pair, strict=True):
                    yield from _leaf_values(child, one)
        case dl.StructType():
            for child in column.children:
                yield from _leaf_values(child, None if value is None else value[child.name])
        case _:
            yield column, value


def _stats(leaf: Column, values: list[Any]) -> ColumnStats:
    if leaf.type.facts.kind is dl.ScalarKind.VARIANT:
        return ColumnStats(leaf.id, None, values.count(None), None, None)
    if not leaf.type.facts.has_stats:
        return ColumnStats(leaf.id, None, None, None, None)
    known = [value for value in values if value is not None]
    numbers = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
    least, greatest = min(numbers, default=None), max(numbers, default=None)
    low, high = (None, None) if least is None or greatest is None else _bounds(leaf.type, least, greatest)
    is_blob = leaf.type.facts.kind is dl.ScalarKind.BLOB  # texts of rows in the catalog are never cut
    return ColumnStats(
        leaf.id,
        value_count=len(known),
        null_count=len(values) - len(known),
        min_value=low,
        max_value=high,
        contains_nan=len(numbers) < len(known) if dl.is_float(leaf.type) else None,
        only_nan=bool(known) and not numbers,
    ).with_exactness(leaf.type, low=not is_blob or fits(least), high=not is_blob or fits(greatest))


def _bounds(type_: dl.DuckLakeType, low: Physical, high: Physical) -> tuple[str | None, str | None]:
    kind = type_.facts.kind
    if kind in dl.TEXTS:
        return _text_bound(_bytes(low)), _text_bound(_bytes(high))
    if kind is dl.ScalarKind.BLOB:
        return blob_bounds(_bytes(low), _bytes(high))
    if kind is dl.ScalarKind.BOOLEAN:
        return scalar_text(type_, low), scalar_text(type_, high)
    return format_physical(type_, low), format_physical(type_, high)


def _text_bound(value: bytes) -> str | None:
    """Return the whole text, unlike in the statistics of files; the catalog holds none with a NUL."""
    return None if b"\0" in value else value.decode()
