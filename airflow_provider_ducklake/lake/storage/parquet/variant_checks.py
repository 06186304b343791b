"""Whether values that are to be written are variants, looked at by Arrow a column at a time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    DEEPEST,
    MICROSECONDS_OF_DAY,
    DamagedVariantError,
    Primitive,
    read_names,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import rows_of_items
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import VALUES
from airflow_provider_ducklake.lake.storage.parquet.variant_parts import (
    ARRAY,
    OBJECT,
    elements_of,
    kinds_of,
    objects_of,
    whole,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_scalars import scalars_of

_MOST_NAMES = 200  # of which each costs a look at all objects
_FEW_LOOKS, _BYTES_OF_A_LOOK = 256, 4096  # Python looks at as many bytes in the time of one of Arrow's looks
_WITH_LIMITS = frozenset(
    map(int, (Primitive.STRING, Primitive.TIME, Primitive.DECIMAL4, Primitive.DECIMAL8, Primitive.DECIMAL16))
)
_KNOWN = frozenset({*map(int, Primitive), OBJECT, ARRAY}) - {int(Primitive.FALSE)}


def are_sound(metadata: pa.Array, values: pa.Array) -> bool:
    """Whether all of the values, of which none is NULL, are variants and nothing follows them.

    False says nothing of any of them: ``check_variant`` does.
    """
    try:
        for one in pc.unique(metadata).to_pylist():
            read_names(one)
        is_whole = pc.equal(pc.binary_length(whole(values)), pc.binary_length(values).cast(pa.int32()))
        count = pc.sum(pc.binary_length(values)).as_py() or 0
        _look_at(metadata, values, DEEPEST, _Left(count, _FEW_LOOKS + count // _BYTES_OF_A_LOOK))
    except (ValueError, pa.ArrowInvalid):
        return False
    return bool(pc.all(is_whole, min_count=0).as_py())


@dataclass(slots=True)
class _Left:
    """How many bytes are left, of which each value has one unless they lie in each other; how many looks."""

    bytes: int
    looks: int

    def take(self, values: int) -> None:
        self.bytes -= values
        self.looks -= 1
        if self.bytes < 0:
            raise DamagedVariantError("its values lie in each other")
        if self.looks < 0:
            raise DamagedVariantError("its values lie at so many places that Python is faster")


def _look_at(metadata: pa.Array, values: pa.Array, levels: int, left: _Left) -> None:
    """Look at every value within values."""
    left.take(len(values))
    if not levels:
        raise DamagedVariantError("it has too many levels")
    values = whole(values).cast(VALUES)  # so that nothing in them lies behind their own end
    kinds = kinds_of(values)
    for kind in pc.unique(kinds).to_pylist():
        is_so = pc.equal(kinds, kind)
        names, found = metadata.filter(is_so), values.filter(is_so)
        if kind == OBJECT:
            objects = objects_of(names, found)
            known = {name for layout in objects.names for name in layout}
            if len(known) > _MOST_NAMES or any(len(set(one)) < len(one) for one in objects.names):
                raise DamagedVariantError("its objects have too many names, or one twice")
            for name in known:
                field = objects.field(name)
                there = field.is_valid()
                _look_at(names.filter(there), field.drop_null(), levels - 1, left)
        elif kind == ARRAY:
            counts, elements = elements_of(found)
            _look_at(names.take(rows_of_items(counts)), elements, levels - 1, left)
        elif kind in _WITH_LIMITS:
            _check_scalars(kind, found)
        elif kind not in _KNOWN:
            raise DamagedVariantError(f"it has a value of type {kind}, which is not known")


def _check_scalars(kind: int, values: pa.Array) -> None:
    """Look at values of a type that has limits."""
    for _, scalars in scalars_of(kind, values):  # which are those of strings and decimals
        if kind == Primitive.TIME:
            limits = pc.min_max(scalars.cast(pa.int64())).as_py()
            if limits["min"] < 0 or limits["max"] >= MICROSECONDS_OF_DAY:
                raise DamagedVariantError("it has a time that is none of a day")
