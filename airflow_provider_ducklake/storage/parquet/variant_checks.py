"""Whether values that are to be written are variants, looked at by Arrow a column at a time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.spec.types.variant_bytes import (
    DEEPEST,
    DamagedVariantError,
    Primitive,
    read_names,
)
from airflow_provider_ducklake.storage.parquet.variant_parts import (
    ARRAY,
    OBJECT,
    elements_of,
    kinds_of,
    listed,
    objects_of,
    whole,
)
from airflow_provider_ducklake.storage.parquet.variant_scalars import texts_of

_MOST_NAMES = 200  # of which each costs a look at all objects
_KNOWN = frozenset({*map(int, Primitive), OBJECT, ARRAY}) - {int(Primitive.FALSE)}


def are_sound(metadata: pa.Array, values: pa.Array) -> bool:
    """Whether all of the values, of which none is NULL, are variants and nothing follows them.

    False says nothing of any of them: ``check_variant`` does.
    """
    try:
        for one in pc.unique(metadata).to_pylist():
            read_names(one)
        is_whole = pc.equal(pc.binary_length(whole(values)), pc.binary_length(values).cast(pa.int32()))
        _look_at(metadata, values, DEEPEST, _Bytes(pc.sum(pc.binary_length(values)).as_py() or 0))
    except (ValueError, pa.ArrowInvalid):
        return False
    return bool(pc.all(is_whole, min_count=0).as_py())


@dataclass(slots=True)
class _Bytes:
    """How many bytes there are; each value has one at least, unless values lie in each other."""

    left: int

    def take(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise DamagedVariantError("its values lie in each other")


def _look_at(metadata: pa.Array, values: pa.Array, levels: int, bytes_: _Bytes) -> None:
    """Look at every value within values."""
    bytes_.take(len(values))
    if not levels:
        raise DamagedVariantError("it has too many levels")
    whole(values)
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
                _look_at(names.filter(there), field.drop_null(), levels - 1, bytes_)
        elif kind == ARRAY:
            counts, elements = elements_of(found)
            _look_at(names.take(pc.list_parent_indices(listed(counts))), elements, levels - 1, bytes_)
        elif kind == Primitive.STRING:
            texts_of(found)
        elif kind not in _KNOWN:
            raise DamagedVariantError(f"it has a value of type {kind}, which is not known")
