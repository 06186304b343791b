"""The rows of an Arrow table for which a filter is true, compared as DuckDB compares.

Where a condition is NULL it is not true, so every mask here may say false for it.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.predicates import (
    ONLY,
    AllOf,
    AnyOf,
    Comparison,
    Likeness,
    Membership,
    NullTest,
    Operator,
    Overlap,
    PathComparison,
    PathNullTest,
    as_of_column,
    shown_path,
)
from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind, is_float
from airflow_provider_ducklake.lake.spec.types.variant_bytes import DamagedVariantError, Primitive
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import ducklake_type, from_physical
from airflow_provider_ducklake.lake.storage.parquet.geometries import meets
from airflow_provider_ducklake.lake.storage.parquet.shredding import read_variants
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import (
    ARRAY,
    OBJECT,
    VALUES,
    kinds_of,
    objects_of,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_scalars import scalars_of, typed_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from airflow_provider_ducklake.lake.planning.reading.predicates import Condition, PathCondition, Predicate
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType
    from airflow_provider_ducklake.lake.spec.types.values import Physical

    Mask: TypeAlias = Callable[[pa.Table, Predicate, TableSchema], pa.Array | pa.ChunkedArray]


# Conditions on what lies at a path in variants, looked at by Arrow, one type of values after the other.


_ROWS_AT_ONCE = 1 << 16


def met_at(condition: PathCondition, variants: pa.Array | pa.ChunkedArray, mask: Mask) -> pa.ChunkedArray:
    """Return for which variants a condition is true; ``mask`` is how filters on columns are looked at."""
    chunks = variants.chunks if isinstance(variants, pa.ChunkedArray) else [variants]
    try:
        found = [_met(condition, part, mask) for chunk in chunks for part in _parts(chunk)]
    except DamagedVariantError as error:
        raise pa.ArrowInvalid(f"a variant is damaged: {error}") from None
    return pa.chunked_array(found, pa.bool_())


def _parts(chunk: pa.StructArray) -> Iterator[pa.StructArray]:
    for start in range(0, len(chunk), _ROWS_AT_ONCE):
        yield chunk.slice(start, _ROWS_AT_ONCE)


def _met(condition: PathCondition, variants: pa.StructArray, mask: Mask) -> pa.Array:
    if variants.type.get_field_index("typed_value") >= 0:
        typed = typed_at(variants, condition.path)
        if typed is not None:
            return _met_by(condition, typed, mask)
        variants = read_variants(variants)
    values = values_at(variants, condition.path)
    if isinstance(condition, PathNullTest):
        return values.is_valid() if condition.negated else values.is_null()
    return _compared(condition, values, mask)


def _met_by(condition: PathCondition, typed: pa.Array, mask: Mask) -> pa.Array:
    """Return for each value of one type if it meets a condition; a NULL is a missing value."""
    if isinstance(condition, PathNullTest):
        return typed.is_valid() if condition.negated else typed.is_null()
    if typed.null_count == len(typed):  # of whichever type they would be
        return pa.repeat(pa.scalar(False), len(typed))  # noqa: FBT003 - a value
    return _compared_values(condition, typed, mask)


def values_at(variants: pa.StructArray, path: Sequence[str]) -> pa.Array:
    """Return the value at a path in each variant, as large binaries; NULL: missing or null."""
    parts = dict(zip([field.name for field in variants.type], variants.flatten(), strict=True))
    metadata, values = parts["metadata"], parts["value"].cast(VALUES)
    for name in path:
        is_object = pc.fill_null(pc.equal(kinds_of(values), OBJECT), False)  # noqa: FBT003 - a value
        found = objects_of(metadata.filter(is_object), values.filter(is_object)).field(name)
        values = pc.replace_with_mask(pa.nulls(len(values), VALUES), is_object, found)
    is_null = pc.equal(kinds_of(values), int(Primitive.NULL))
    return pc.if_else(pc.fill_null(is_null, True), pa.scalar(None, VALUES), values)  # noqa: FBT003


def _compared(condition: PathComparison, values: pa.Array, mask: Mask) -> pa.Array:
    kinds = kinds_of(values)
    met = pa.repeat(pa.scalar(False), len(values))  # noqa: FBT003 - a value
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        if kind in (OBJECT, ARRAY):
            shown = "an object" if kind == OBJECT else "an array"
            raise InvalidInputError(
                f"{shown_path(condition.path)} is {shown} in some rows, which compares with no value of a "
                "filter."
            )
        is_so = pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003
        met = pc.replace_with_mask(met, is_so, _compared_scalars(condition, kind, values.filter(is_so), mask))
    return met


def _compared_scalars(condition: PathComparison, kind: int, values: pa.Array, mask: Mask) -> pa.Array:
    met = pa.repeat(pa.scalar(False), len(values))  # noqa: FBT003 - a value
    for is_so, scalars in scalars_of(kind, values):
        found = _compared_values(condition, scalars, mask)
        met = found if is_so is None else pc.replace_with_mask(met, is_so, found)
    return met


def _compared_values(condition: PathComparison, scalars: pa.Array, mask: Mask) -> pa.Array:
    column = Column(ONLY, "value", ducklake_type(scalars.type, "value"))
    predicate = as_of_column(condition, column.type)
    found = mask(pa.table({column.name: scalars}), predicate, TableSchema((column,)))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def matching(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Table:
    """Return the rows for which a filter on columns of ``schema`` is true; they have the ones it needs.

    Conditions that AND connects are looked at in turn, in the rows that are left: where the first of them
    says what kind of rows are wanted, the next ones need not fit others.
    """
    if not isinstance(predicate, AllOf):
        return rows.filter(_mask(rows, predicate, schema))
    for part in predicate.parts:
        rows = matching(rows, part, schema)
    return rows


def _mask(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Array | pa.ChunkedArray:
    match predicate:
        case AllOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.and_, masks, pa.repeat(pa.scalar(True), rows.num_rows))  # noqa: FBT003 - a value
        case AnyOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.or_, masks, pa.repeat(pa.scalar(False), rows.num_rows))  # noqa: FBT003
        case _:
            path = path_to(schema, predicate.column_id)
            values = _values(rows, path)
            if isinstance(predicate, PathComparison | PathNullTest):
                return in_variants(predicate, path[-1].name, values)
            return pc.fill_null(_condition(predicate, values, path[-1].type), False)  # noqa: FBT003


def in_variants(
    condition: PathCondition, column: str, variants: pa.Array | pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return for which variants a condition on a path is true."""
    try:
        return met_at(condition, variants, _mask)
    except InvalidInputError as error:
        raise InvalidInputError(f"column {column}: {error}") from None


def path_to(schema: TableSchema, column_id: ColumnId) -> tuple[Column, ...]:
    """Return a top-level column and the struct fields below it that lead to an id."""

    def below(column: Column) -> Iterator[tuple[Column, ...]]:
        if column.id == column_id:
            yield (column,)
        for child in column.children:
            for path in below(child):
                yield (column, *path)

    return next(path for column in schema.columns for path in below(column))


def _values(rows: pa.Table, path: tuple[Column, ...]) -> pa.ChunkedArray:
    """Return the values of a column or struct field; NULL where a struct around it is."""
    top, *fields = path
    values = rows[top.name]
    for column, child in zip(path, fields, strict=False):
        values = pc.struct_field(values, [column.children.index(child)])
    return values


def _condition(
    condition: Condition,
    values: pa.ChunkedArray,
    type_: DuckLakeType,
) -> pa.ChunkedArray:
    match condition:
        case NullTest(_, negated):
            return pc.is_valid(values) if negated else pc.is_null(values)
        case Likeness(_, pattern, negated):
            found = pc.match_substring_regex(values, regex(pattern))
            return pc.invert(found) if negated else found
        case Overlap(_, box, negated):
            found = meets(_plain(values, type_), box)
            return pc.invert(found) if negated else found
        case Membership(_, wanted, negated):
            found = pc.is_in(_plain(values, type_), value_set=_array(type_, wanted))
            return pc.and_(pc.invert(found), pc.is_valid(values)) if negated else found
        case Comparison(_, operator, value) if is_float(type_):
            return _compare_floats(_plain(values, type_), operator, float(value))
        case Comparison(_, operator, value):
            return _COMPUTE[operator](_plain(values, type_), _array(type_, (value,))[0])


_COMPUTE = {
    Operator.EQUAL: pc.equal,
    Operator.UNEQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.AT_MOST: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
}


def _plain(values: pa.ChunkedArray, type_: DuckLakeType) -> pa.ChunkedArray:
    """Return values that Arrow compares as DuckDB does: uuids as bytes, floats with one zero and one NaN."""
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if is_float(type_):
        numbers = pc.add(values.cast(pa.float64()), 0.0)
        return pc.if_else(pc.is_nan(numbers), math.nan, numbers)
    return values


def _array(type_: DuckLakeType, values: tuple[Physical, ...]) -> pa.Array:
    if is_float(type_):  # a value for a float32 may be a double
        numbers = [math.nan if math.isnan(float(one)) else float(one) + 0.0 for one in values]
        return pa.array(numbers, pa.float64())  # of none, too
    if type_.facts.kind is ScalarKind.BOOLEAN:
        return pa.array(values, pa.bool_())
    made = from_physical(type_, values)
    return made.storage if isinstance(made.type, pa.BaseExtensionType) else made


def _compare_floats(values: pa.ChunkedArray, operator: Operator, value: float) -> pa.ChunkedArray:
    """Compare floats where NaN equals itself and is greater than any other."""
    is_nan = pc.is_nan(values)
    goes_up = operator in (Operator.GREATER, Operator.AT_LEAST)
    if not math.isnan(value):
        found = _COMPUTE[operator](values, value)
        return pc.or_(found, is_nan) if goes_up else found
    match operator:
        case Operator.EQUAL | Operator.AT_LEAST:
            return is_nan
        case Operator.UNEQUAL | Operator.LESS:
            return pc.invert(is_nan)
        case Operator.AT_MOST:
            return pc.is_valid(values)
        case Operator.GREATER:
            return pc.and_(is_nan, pc.invert(is_nan))


def regex(pattern: str) -> str:
    """Return the RE2 expression of a LIKE pattern."""
    return rf"(?s)\A{''.join(map(_piece, pattern))}\z"


def _piece(char: str) -> str:
    if char == "%":
        return ".*"
    if char == "_":
        return "."
    return char if char.isalnum() or not char.isascii() else rf"\x{ord(char):02x}"
