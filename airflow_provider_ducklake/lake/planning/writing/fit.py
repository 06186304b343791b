"""Do given rows fit a table? Columns by name, nested ones too, and each type by the rules of its engine.

Nothing here looks at a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from ...format.names.identifiers import fold
from ...format.types.ducklake_types import ListType, MapType, StructType

if TYPE_CHECKING:
    from ...format.schema import Column

T = TypeVar("T")
Parts: TypeAlias = tuple[type[StructType | ListType | MapType], "Sequence[tuple[str, T]]"]


@dataclass(frozen=True, slots=True)
class Types(Generic[T]):
    """What differs between the types of Spark and of Arrow.

    ``parts`` returns the fields of a struct, the ``element`` of a list, ``key`` and ``value`` of a map; None
    of others. ``misfit`` takes a type, a column and its path; it returns None where values fit without loss,
    and else names the type. ``is_void`` is true for types whose values can only be NULL.
    """

    parts: Callable[[T], Parts[T] | None]
    misfit: Callable[[T, Column, str], str | None]
    is_void: Callable[[T], bool]


def differences(
    given: Iterable[tuple[str, T]],
    columns: Sequence[Column],
    types: Types[T],
    *,
    fills: bool = False,
    where: str = "",
) -> Iterator[str]:
    """Yield why rows with the given columns do not fit a table's: names first, then types.

    ``fills``: columns that are missing get their default, fields NULL; those of no type may be left over.
    ``where`` is the path of a struct whose fields these are, with a dot at its end.
    """
    wanted, found = {fold(column.name): column for column in columns}, dict[str, T]()
    for name, type_ in given:
        if fold(name) in found:
            shown = wanted[fold(name)].name if fold(name) in wanted else name
            yield f"column {where}{shown} appears twice"
        elif fold(name) not in wanted and not (fills and types.is_void(type_)):
            yield f"column {where}{name} is not in the table"
        found[fold(name)] = type_
    for folded, column in wanted.items():
        if folded not in found and not (fills and (column.nullable or column.has_default)):
            yield f"column {where}{column.name} is missing"
    for folded, column in wanted.items():
        if folded in found:
            yield from type_differences(found[folded], column, types, where + column.name, fills=fills)


def type_differences(
    given: T, column: Column, types: Types[T], where: str, *, fills: bool = False
) -> Iterator[str]:
    """Yield why values of a type cannot be stored in a column, each nested field by itself."""
    kind, parts = types.parts(given) or (None, ())
    if kind is None or not isinstance(column.type, kind):
        if (misfit := types.misfit(given, column, where)) is not None:
            yield f"column {where} is {column.type} in the table; {misfit}"
    elif kind is StructType:
        yield from differences(parts, column.children, types, fills=fills, where=f"{where}.")
    else:
        for child, (name, part) in zip(column.children, parts, strict=True):
            yield from type_differences(part, child, types, f"{where}.{name}", fills=fills)
