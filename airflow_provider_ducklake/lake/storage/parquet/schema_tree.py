"""The schema of a Parquet file as the tree that its footer has: what Arrow's types no longer say of it.

*Source:* Apache Parquet, ``parquet.thrift``: ``SchemaElement``; ``LogicalTypes.md``, lists and maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.storage.parquet.thrift import Kind, read_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.storage.parquet.thrift import Struct

# Fields of SchemaElement, by Parquet's own numbers.
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_KINDS = {
    **dict.fromkeys((_TYPE, _LENGTH, _REPETITION, _CHILDREN, _CONVERTED), Kind.I32),
    _NAME: Kind.BINARY,
    _LOGICAL: Kind.STRUCT,
}
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_WITH_LEVELS = frozenset({_OPTIONAL, _REPEATED})
_CONVERTED_MAP, _CONVERTED_ENTRY, _CONVERTED_LIST = 1, 2, 3
_LOGICAL_MAP, _LOGICAL_LIST = 2, 3
_DEEPEST = 100  # as pyarrow has it

PHYSICAL_TYPES = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of a value


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A field of the schema; ``leaf`` numbers its column, or is that of the first one below it."""

    name: str
    repetition: int
    children: tuple[SchemaNode, ...]
    leaf: int
    physical: int = -1
    width: int = 0  # bytes of a value; 0: they differ
    is_list: bool = False
    is_map: bool = False
    converted: int | None = None  # its ConvertedType
    logical: int | None = None  # its LogicalType, by the number of the union's field
    geoparquet: str | None = None  # the encoding of geometries by the key "geo"

    @property
    def is_required(self) -> bool:
        """Whether it has exactly one value."""
        return self.repetition == _REQUIRED

    @property
    def is_repeated(self) -> bool:
        """Whether it has any number of values."""
        return self.repetition == _REPEATED


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a file: its path, and how its values and levels are stored."""

    name: str
    physical: int
    width: int
    definition_levels: int
    repetition_levels: int


def read_tree(data: bytes, place: int) -> tuple[SchemaNode, int]:
    """Return the root of the schema whose list of elements begins at ``place``, and where that ends.

    Raises:
        ValueError, IndexError: it is damaged.
    """
    elements, place = read_items(data, place)
    if elements.kind is not Kind.STRUCT:
        raise ValueError("its schema has no elements")
    builder = _Builder(elements.values)
    root = builder.node(0)
    if builder.next != len(elements.values):
        raise ValueError("its schema has elements that belong to nothing")
    return root, place


class _Builder:
    """Makes a tree of elements in depth-first order."""

    def __init__(self, elements: list[Struct]) -> None:
        self._elements = elements
        self.next = self._leaves = 0

    def node(self, depth: int) -> SchemaNode:
        if depth > _DEEPEST:
            raise ValueError("its schema is nested too deeply")
        one = self._elements[self.next]
        self.next += 1
        if any(field.kind is not _KINDS.get(key, field.kind) for key, field in one.items()):
            raise ValueError("an element of its schema has values of other types")
        numbers = {key: field.value for key, field in one.items() if _KINDS.get(key) is Kind.I32}
        logical = one[_LOGICAL].value if _LOGICAL in one else {}
        name = one[_NAME].value.decode() if _NAME in one else ""
        first, count = self._leaves, numbers.get(_CHILDREN, 0)
        if not count and _TYPE in numbers:
            self._leaves += 1
        physical = numbers.get(_TYPE, -1) if not count else -1
        repetition, converted = numbers.get(_REPETITION, _REQUIRED), numbers.get(_CONVERTED)
        is_old_map = converted == _CONVERTED_ENTRY and repetition != _REPEATED
        return SchemaNode(
            name,
            repetition,
            tuple(self.node(depth + 1) for _ in range(count)),
            first,
            physical,
            numbers.get(_LENGTH, 0) if physical == _FIXED else _WIDTHS.get(physical, 0),
            is_list=converted == _CONVERTED_LIST or _LOGICAL_LIST in logical,
            is_map=converted == _CONVERTED_MAP or _LOGICAL_MAP in logical or is_old_map,
            converted=converted,
            logical=next(iter(logical), None),
        )


def leaves_of(root: SchemaNode) -> tuple[Leaf, ...]:
    """Return the columns of a schema, in order."""
    return tuple(leaf for child in root.children for leaf in _leaves(child, "", 0, 0))


def _leaves(node: SchemaNode, above: str, defined: int, repeated: int) -> Iterator[Leaf]:
    name = f"{above}{node.name}"
    defined, repeated = defined + (node.repetition in _WITH_LEVELS), repeated + node.is_repeated
    if node.physical >= 0:
        yield Leaf(name, node.physical, node.width, defined, repeated)
    for child in node.children:
        yield from _leaves(child, f"{name}.", defined, repeated)
