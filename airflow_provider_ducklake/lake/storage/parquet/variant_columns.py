"""What lies at a path in a shredded variant: the Parquet columns to read, and the values in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


def parts_at(field: pa.Field, paths: Collection[Sequence[str]]) -> list[str]:
    """Return the parts of a file's column to read, as pyarrow names them: all of it, without ``paths``.

    Variants that are put together of these parts have at the paths what they have there, and nothing else
    for sure.
    """
    if not paths or "." in field.name or any("." in name for path in paths for name in path):
        return [field.name]
    found = [part for path in paths for part in _parts(field.type, path, field.name)]
    return list(dict.fromkeys([f"{field.name}.metadata", *found]))


def _parts(group: pa.DataType, path: Sequence[str], prefix: str) -> Iterator[str]:
    if not pa.types.is_struct(group):
        yield prefix
        return
    fields = {field.name: field.type for field in group}
    if not path:
        yield from (f"{prefix}.{name}" for name in fields)
        return
    if "value" in fields:
        yield f"{prefix}.value"
    typed = fields.get("typed_value")
    if typed is not None and pa.types.is_struct(typed) and typed.get_field_index(path[0]) >= 0:
        below = typed.field(path[0]).type
        yield from _parts(below, path[1:], f"{prefix}.typed_value.{path[0]}")


def typed_at(group: pa.StructArray, path: Sequence[str]) -> pa.Array | None:
    """Return the values at a path of variants as a file shreds them, of the type that they have there.

    None: they have none in common, or lie in one piece with others.
    """
    values: pa.Array = group
    for place in range(len(path) + 1):
        typed = _typed_value(values)
        if typed is None or place == len(path):
            return None if typed is None or typed.type.num_fields else typed
        place_of_field = typed.type.get_field_index(path[place]) if pa.types.is_struct(typed.type) else -1
        if place_of_field < 0:
            return None
        values = typed.flatten()[place_of_field]
    return None


def _typed_value(group: pa.Array) -> pa.Array | None:
    """Return the shredded values of a group; None where some lie in one piece."""
    if not pa.types.is_struct(group.type):
        return None
    fields = dict(zip([field.name for field in group.type], group.flatten(), strict=True))
    rest = fields.get("value")
    if rest is not None and rest.null_count < len(rest):
        return None
    return fields.get("typed_value")
