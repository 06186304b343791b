"""Arrow data brought into a table's schema: fields found by name, id or position, at every nesting level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...format.names.identifiers import fold
from ...format.schema import Column
from ...format.types.ducklake_types import ListType, MapType, StructType
from ..parquet.modules import ModuleKind, Struct, read_items

FIELD_ID_KEY = b"PARQUET:field_id"


def field_id(field: pa.Field) -> int | None:
    """Return the Parquet field id of an Arrow field read from a file, or None."""
    metadata = field.metadata or {}
    return int(metadata[FIELD_ID_KEY]) if FIELD_ID_KEY in metadata else None


def is_list(type_: pa.DataType) -> bool:
    """Return True if an Arrow type is one of the list types."""
    return any(is_type(type_) for is_type in _LISTS)


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def ordinals(count: int) -> pa.Array:
    """Return the numbers from 0 to before ``count``, int64."""
    if hasattr(pa, "arange"):  # since pyarrow 21
        return pa.arange(0, count)
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


_FORMS: Mapping[int, Literal["I", "Q"]] = {4: "I", 8: "Q"}  # of numbers with so many bytes


def in_turn(arrays: Sequence[pa.Array]) -> pa.Buffer:
    """Return the numbers of arrays of one length and one width, 4 or 8 bytes, row by row."""
    count, length, width = len(arrays), len(arrays[0]), arrays[0].type.bit_width // 8
    if not length:
        return pa.py_buffer(b"")
    form = _FORMS[width]
    made = memoryview(bytearray(width * count * length)).cast(form)
    for place, array in enumerate(arrays):
        numbers = memoryview(array.buffers()[1]).cast(form)
        made[place::count] = numbers[array.offset : array.offset + length]
    return pa.py_buffer(made)


# (fields the data has, the columns wanted) → for each wanted column the index of its field, or None
Matcher: TypeAlias = Callable[[Sequence[pa.Field], Sequence[Column]], list[int | None]]


def by_name(fields: Sequence[pa.Field], columns: Sequence[Column]) -> list[int | None]:
    """Match struct fields by name, letter case aside."""
    places = {fold(field.name): index for index, field in enumerate(fields)}
    return [places.get(fold(column.name)) for column in columns]


def by_field_id(fields: Sequence[pa.Field], columns: Sequence[Column]) -> list[int | None]:
    """Match struct fields by their Parquet field id."""
    places = {field_id(field): index for index, field in enumerate(fields)}
    return [places.get(column.id) for column in columns]


def by_position(fields: Sequence[pa.Field], columns: Sequence[Column]) -> list[int | None]:  # noqa: ARG001
    """Match struct fields in order: for data that is already in the table's schema."""
    return list(range(len(columns)))


def nulls(column: Column, target: pa.DataType, length: int) -> pa.Array:  # noqa: ARG001
    """Fill a column that the data lacks with NULL."""
    return pa.nulls(length, target)


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Which field is which, what stands for a missing one, and how leaves are cast."""

    match: Matcher
    fill: Callable[[Column, pa.DataType, int], pa.Array]
    cast: Callable[[pa.Array, pa.DataType], pa.Array]


def reshape(values: pa.ChunkedArray, column: Column, target: pa.DataType, how: Reshaping) -> pa.ChunkedArray:
    """Return ``values`` as ``target``, the type of ``column``; nested fields are matched at every level."""
    if values.type.equals(target, check_metadata=True):
        return values
    chunks = [_reshape(chunk, column, target, how) for chunk in values.chunks]
    return pa.chunked_array(chunks, type=target)


def _reshape(array: pa.Array, column: Column, target: pa.DataType, how: Reshaping) -> pa.Array:
    if array.type.equals(target, check_metadata=True):
        return array
    array = _decoded(array)
    match column.type:
        case StructType() if pa.types.is_struct(array.type):
            return _reshape_struct(array, column, target, how)
        case ListType() if is_list(array.type):
            return _reshape_list(array, column, target, how)
        case MapType() if pa.types.is_map(array.type):
            return _reshape_map(array, column, target, how)
        case _:
            return how.cast(array, target)


def _decoded(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _decoded(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return _decoded(pc.run_end_decode(array))
    return array


def _reshape_struct(
    array: pa.StructArray, column: Column, target: pa.StructType, how: Reshaping
) -> pa.StructArray:
    fields = [array.type.field(index) for index in range(array.type.num_fields)]
    children = [
        how.fill(child, wanted.type, len(array))
        if place is None
        else _reshape(array.field(place), child, wanted.type, how)
        for child, wanted, place in zip(
            column.children, target, how.match(fields, column.children), strict=True
        )
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _reshape_list(array: pa.Array, column: Column, target: pa.ListType, how: Reshaping) -> pa.ListArray:
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        # Arrow's own cast leaves the last end out.
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0)).cast(pa.int32())
        ends = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        array = pa.ListArray.from_arrays(ends, pc.list_flatten(array), mask=array.is_null())
    elif not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    values = _reshape(array.values, column.children[0], target.value_type, how)
    return pa.ListArray.from_buffers(
        target, len(array), array.buffers()[:2], offset=array.offset, children=[values]
    )


def _reshape_map(array: pa.MapArray, column: Column, target: pa.MapType, how: Reshaping) -> pa.MapArray:
    key, value = column.children
    entries = pa.StructArray.from_arrays(
        [
            _reshape(array.keys, key, target.key_type, how),
            _reshape(array.items, value, target.item_type, how),
        ],
        fields=[target.key_field, target.item_field],
    )
    return pa.MapArray.from_buffers(
        target, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
    )


# The schema of a Parquet file as the tree that its footer has: what Arrow's types no longer say of it.
#
# *Source:* Apache Parquet, ``parquet.thrift``: ``SchemaElement``; ``LogicalTypes.md``, lists and maps.


# Fields of SchemaElement, by Parquet's own numbers.
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_KINDS = {
    **dict.fromkeys((_TYPE, _LENGTH, _REPETITION, _CHILDREN, _CONVERTED), ModuleKind.I32),
    _NAME: ModuleKind.BINARY,
    _LOGICAL: ModuleKind.STRUCT,
}
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_WITH_LEVELS = frozenset({_OPTIONAL, _REPEATED})
_CONVERTED_MAP, _CONVERTED_ENTRY, _CONVERTED_LIST = 1, 2, 3
_LOGICAL_MAP, _LOGICAL_LIST = 2, 3
_DEEPEST = 100  # pyarrow's limit

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
        """Return True if it has exactly one value."""
        return self.repetition == _REQUIRED

    @property
    def is_repeated(self) -> bool:
        """Return True if it has any number of values."""
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
    """Return the root of the schema whose list of elements begins at ``place``, and where that ends."""
    elements, place = read_items(data, place)
    if elements.kind is not ModuleKind.STRUCT:
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
        numbers = {key: field.value for key, field in one.items() if _KINDS.get(key) is ModuleKind.I32}
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
