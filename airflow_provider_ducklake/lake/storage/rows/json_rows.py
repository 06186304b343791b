"""Records of JSON files: objects, as many as there are, however they are laid out; or an error with the line.

Arrow's reader reads what has one shape in all records; Python's reads the rest, record by record, and says
what is wrong where Arrow refuses. Both are strict: text behind a record, a name given twice in an object and
a value that is not valid for its column are errors. *Source:* RFC 8259, and DuckDB 1.5.5's ``read_json``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from ...errors import InvalidInputError
from ...format.names.identifiers import fold
from ...format.types import ducklake_types as dl
from ...format.types.literals import Value, map_of
from ..arrow.arrow_types import array_of, arrow_field, arrow_type
from ..arrow.reshape import Reshaping, by_name, nulls, reshape
from .text_values import Formats, too_many_digits, value_as_formatted, values_of_texts

if TYPE_CHECKING:
    from ...format.schema import Column

_SHOWN = 200  # characters of a record, or of a value, in an error
_EXACT_IN_DOUBLE = 2**53
_LONG = 2**63
_MOST_DIGITS = 38


# --- what a file holds


@dataclass
class Shape:
    """The kinds of values at a place of all records, and what lies below.

    ``kinds`` are those of JSON, of which ``int``, ``long`` (beyond 64 bits) and ``float`` are numbers.
    """

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    def add(self, other: Shape) -> None:
        """Add what another file holds at the same place."""
        self.kinds |= other.kinds
        for name, shape in other.fields.items():
            self.fields.setdefault(name, Shape()).add(shape)
        if other.items is not None:
            self.items = self.items or Shape()
            self.items.add(other.items)

    def dump(self) -> dict[str, Any]:
        """Return the shape as plain values."""
        fields = {name: shape.dump() for name, shape in self.fields.items()}
        return {"kinds": sorted(self.kinds), "fields": fields, "items": self.items and self.items.dump()}

    @classmethod
    def load(cls, found: Mapping[str, Any]) -> Shape:
        """Return the shape of plain values."""
        fields = {name: cls.load(one) for name, one in found["fields"].items()}
        return cls(set(found["kinds"]), fields, found["items"] and cls.load(found["items"]))

    def by_name(self) -> dict[str, list[str]]:
        """Return the spellings of each field's name."""
        found: dict[str, list[str]] = {}
        for name in self.fields:
            found.setdefault(fold(name), []).append(name)
        return found

    def merged(self, spellings: Sequence[str]) -> Shape:
        """Return the shape of fields that differ by the case of their names."""
        shape = Shape()
        for one in spellings:
            shape.add(self.fields[one])
        return shape


_KINDS = ((pa.types.is_boolean, "boolean"), (pa.types.is_integer, "int"), (pa.types.is_floating, "float"))


def _shape_of_arrow(type_: pa.DataType) -> Shape:
    if pa.types.is_null(type_):
        return Shape()
    if pa.types.is_struct(type_):
        return Shape({"object"}, {one.name: _shape_of_arrow(one.type) for one in type_})
    if pa.types.is_list(type_):
        return Shape({"array"}, items=_shape_of_arrow(type_.value_type))
    return Shape({next((kind for is_one, kind in _KINDS if is_one(type_)), "string")})


def _shape_of(found: Any) -> Shape:  # noqa: ANN401 - whatever JSON has
    match found:
        case None:
            return Shape()
        case bool():
            return Shape({"boolean"})
        case _Number():
            is_whole = found.lstrip("-").isdigit()
            return Shape({("int" if abs(int(found)) < _LONG else "long") if is_whole else "float"})
        case str():
            return Shape({"string"})
        case dict():
            return Shape({"object"}, {name: _shape_of(one) for name, one in found.items()})
        case _:
            items = Shape()
            for one in found:
                items.add(_shape_of(one))
            return Shape({"array"}, items=items)


def check_levels(block: bytes) -> None:
    """Refuse records that are nested deeper than Arrow's streams and its reader's stack go."""
    if _levels(block) > _MOST_LEVELS and _levels(_STRING.sub(b"", block)) > _MOST_LEVELS:
        raise InvalidInputError(
            f": a record has more than {_MOST_LEVELS} levels of objects and arrays. Correct the file, or "
            "have what lies deep as text."
        )


def shape_of(block: bytes, lines: int, *, is_array: bool) -> Shape:
    """Return the shape of the records of a block.

    Raises:
        InvalidInputError: a record is no object of JSON; the text names the line.
    """
    try:
        table = _by_arrow(block, None, "infer", is_array=is_array)
    except pa.ArrowException:
        table = None
    if table is not None and not any(map(_is_inexact, table.columns)):
        shape = Shape({"object"}, {one.name: _shape_of_arrow(one.type) for one in table.schema})
    else:
        shape = Shape({"object"})
        for _, record in records(block, lines, is_array=is_array):
            shape.add(_shape_of(record))
    return shape


def _is_inexact(array: pa.ChunkedArray) -> bool:
    """Return True if a number may be an integer that a double does not hold."""
    if pa.types.is_floating(array.type):
        largest = pc.max(pc.abs(array)).as_py()
        return largest is not None and largest >= _EXACT_IN_DOUBLE
    if pa.types.is_list(array.type):
        return any(_is_inexact(pa.chunked_array([one.flatten()])) for one in array.chunks)
    if pa.types.is_struct(array.type):
        return any(map(_is_inexact, array.flatten()))
    return False


def _levels(block: bytes) -> int:
    """Return the largest number of brackets that are open at once, those in strings among them."""
    brackets = block.translate(None, _NO_BRACKETS)
    kinds = pa.Array.from_buffers(pa.uint8(), len(brackets), [None, pa.py_buffer(brackets)])
    steps = pc.if_else(pc.is_in(kinds, pa.array(b"[{", pa.uint8())), 1, -1)
    return pc.max(pc.cumulative_sum(steps)).as_py() or 0


def _has_odd_decimals(block: bytes, schema: pa.Schema) -> bool:
    """Return True if a decimal is spelled so that pyarrow may read another, see ``too_many_digits``.

    Only values of the columns' own keys are looked at, where these can be found by their letters.
    """
    found = list(_decimals(schema))
    if not found:
        return False
    if b"\\u00" in block and _ESCAPED_DIGIT.search(block):
        return True
    names = {name for name, _ in found}
    is_spelled = b"\\u" not in block and all(re.fullmatch(r'[^"\\]+', name) for name in names)
    before = rf'"(?:{"|".join(map(re.escape, names))})"\s*:' if is_spelled and "" not in names else r"[:,\[]"
    odd = rf'[0-9.]+[eE][-+]?[0-9]+\s*"?\s*[,}}\]]|{too_many_digits(max(scale for _, scale in found))}'
    pattern = rf'{before}\s*"?\s*[-+]?(?:{odd})'
    return bool(pc.match_substring_regex(pa.array([block], pa.binary()), pattern)[0].as_py())


def _decimals(fields: Iterable[pa.Field]) -> Iterator[tuple[str, int]]:
    """Yield the key and the scale of each decimal; an item of a list has none."""
    for one in fields:
        if isinstance(one.type, pa.Decimal128Type):
            yield one.name, one.type.scale
        elif isinstance(one.type, pa.StructType):
            yield from _decimals(one.type)
        elif isinstance(one.type, pa.ListType):
            yield from _decimals([one.type.value_field.with_name("")])


_ESCAPED_DIGIT = re.compile(rb"\\u00(?:2[BbDdEe]|3[0-9]|[46]5)")  # or a sign, a point, an e
_NULL_RECORD = r"\}\s*null"
_MOST_LEVELS = 60  # Arrow's streams have 64
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


def _by_arrow(block: bytes, schema: pa.Schema | None, others: str, *, is_array: bool) -> pa.Table:
    if not block.strip():
        return pa.table({}) if schema is None else schema.empty_table()
    if not block.isascii():
        pa.array([block], pa.binary()).cast(pa.string())  # the reader takes bytes that are not UTF-8
    if block.lstrip()[:1] not in (b"{", b"[") or pc.match_substring_regex(block, _NULL_RECORD).as_py():
        raise pa.ArrowInvalid("NULL as a record, which ends the process if it is the first one")
    if schema is not None and _has_odd_decimals(block, schema):
        raise pa.ArrowInvalid("a number that Arrow may read as another decimal")
    if is_array:
        block = b'{"r":' + block + b"}"
        schema = schema and pa.schema([pa.field("r", pa.list_(pa.struct(list(schema))))])
    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(schema, newlines_in_values=True, unexpected_field_behavior=others),
    )
    if not is_array:
        return table
    if table.column_names != ["r"]:
        raise pa.ArrowInvalid("a text behind the array")
    (rows,) = table.column("r").chunks
    rows = rows.flatten()
    if not pa.types.is_struct(rows.type) or rows.null_count:
        raise pa.ArrowInvalid("an array of something else than objects")
    return pa.Table.from_arrays(rows.flatten(), names=[one.name for one in rows.type])


def column_type(shape: Shape) -> dl.DuckLakeType:
    """Return the type of a new column: that of its values; JSON where they are of several."""
    kinds = frozenset(shape.kinds)
    if kinds == {"object"} and shape.fields:
        spellings = shape.by_name().values()
        return dl.StructType(tuple(dl.Field(one[0], column_type(shape.merged(one))) for one in spellings))
    if kinds == {"array"}:
        return dl.ListType(column_type(shape.items or Shape()))
    if kinds and kinds <= {"int", "long", "float"}:
        return _OF_NUMBERS.get(kinds, dl.ScalarType("float64"))
    return _OF_KINDS.get(kinds, dl.ScalarType("json"))


_OF_NUMBERS: dict[frozenset[str], dl.DuckLakeType] = {
    frozenset({"int"}): dl.ScalarType("int64"),
    **dict.fromkeys((frozenset({"long"}), frozenset({"int", "long"})), dl.DecimalType(_MOST_DIGITS, 0)),
}
_OF_KINDS: dict[frozenset[str], dl.DuckLakeType] = {
    frozenset(): dl.ScalarType("varchar"),
    frozenset({"string"}): dl.ScalarType("varchar"),
    frozenset({"boolean"}): dl.ScalarType("boolean"),
}


def arrow_of(shape: Shape, type_: dl.DuckLakeType) -> pa.DataType | None:
    """Return the type by which Arrow's reader reads values of a shape for a type; None: only Python does."""
    kinds = shape.kinds
    if not kinds:
        return pa.null()
    match type_:
        case dl.StructType(fields) if kinds == {"object"}:
            wanted = {fold(one.name): one.type for one in fields}
            spellings = shape.by_name()
            if any(len(one) > 1 for one in spellings.values()):
                return None
            read = {name: one for name, one in shape.fields.items() if fold(name) in wanted}
            below = [(name, arrow_of(one, wanted[fold(name)])) for name, one in read.items()]
            return None if any(one is None for _, one in below) else pa.struct(below)
        case dl.ListType(element) if kinds == {"array"}:
            item = arrow_of(shape.items or Shape(), element)
            return item and pa.list_(item)
        case dl.DecimalType() if kinds <= {"int", "long", "float", "string"}:
            return arrow_type(type_)
        case dl.ScalarType():
            return _arrow_of_scalar(kinds, type_)
        case _:
            return None


def _arrow_of_scalar(kinds: set[str], type_: dl.ScalarType) -> pa.DataType | None:
    kind = type_.facts.kind
    if kinds == {"string"} and kind is not dl.ScalarKind.JSON:
        return pa.string()
    if kinds == {"boolean"} and kind is dl.ScalarKind.BOOLEAN:
        return pa.bool_()
    is_number = (kind is dl.ScalarKind.INTEGER and kinds == {"int"} and type_.facts.bits <= 64) or (  # noqa: PLR2004
        kind is dl.ScalarKind.FLOAT and kinds <= {"int", "float"}
    )
    return arrow_type(type_) if is_number else None


# --- records


class _Number(str):
    """A number as the file has it."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _RefusedError(f"has {twice!r} twice in one object")
    return found


class _RefusedError(ValueError):
    """What a record has is not read; the text ends a sentence."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_Number, parse_int=_Number, parse_constant=_Number
)
_WORD = re.compile(r"[^ \t\r\n]")


def ends_in_a_line(start: bytes) -> bool:
    """Return True if the first record of a file ends in its first line, as those behind it may."""
    try:
        _DECODER.raw_decode(start.split(b"\n", 1)[0].decode())
    except (ValueError, RecursionError):
        return False
    return True


def records(block: bytes, lines: int, *, is_array: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each record of a block with the line on which it begins.

    Raises:
        InvalidInputError: it is no object of JSON; the text names the line.
    """
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = lines + block.count(b"\n", 0, error.start) + 1
        raise InvalidInputError(f", line {line}: it is not UTF-8. Name the file's own in encoding.") from None
    end, counted, line = 0, 0, lines + 1
    while (begin := _WORD.search(text, end)) is not None:
        place = begin.start()
        line, counted = line + text.count("\n", counted, place), place
        try:
            found, end = _DECODER.raw_decode(text, place)
        except _RefusedError as error:
            raise _no_record(line, text[place:], f"{error}. Correct it") from None
        except (json.JSONDecodeError, RecursionError):
            raise _no_record(line, text[place:], "is no record of JSON. Correct it") from None
        if is_array and isinstance(found, list):
            yield from ((line, _checked(one, line)) for one in found)
        else:
            yield line, _checked(found, line)


def _checked(found: Any, line: int) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON has
    if not isinstance(found, dict):
        raise _no_record(line, _dumped(found), "is no object, of which each is a row. Correct it")
    return found


def _no_record(line: int, text: str, what: str) -> InvalidInputError:
    return InvalidInputError(f", line {line}: {text.split(chr(10), 1)[0][:_SHOWN]!r} {what}.")


@dataclass(slots=True)
class Reading:
    """In which columns records arrive, and how.

    ``selects``: the user named the columns, and other keys are left out. ``schema`` is that of Arrow's reader
    for the ``shape`` of what was read so far; None where only Python's reads it.
    """

    columns: Sequence[Column]
    formats: Formats
    selects: bool
    shape: Shape = field(default_factory=Shape)
    schema: pa.Schema | None = None

    @property
    def type(self) -> dl.StructType:
        """The type of a record."""
        return dl.StructType(tuple(dl.Field(one.name, one.type) for one in self.columns))

    def learn(self, shape: Shape) -> None:
        """Add the shape of more records."""
        self.shape.add(shape)
        read = arrow_of(self.shape, self.type)
        self.schema = None if read is None else pa.schema(list(read))


def table_of(block: bytes, lines: int, how: Reading, *, is_array: bool) -> pa.Table:
    """Return the records of a block in the Arrow types of their columns.

    Raises:
        InvalidInputError: a value is none of its column's; the text names the line, the column and the value.
    """
    columns, formats = how.columns, how.formats
    fields = [arrow_field(column, field_ids=False) for column in columns]
    for others in ("infer", "ignore") if how.selects else ("error", "error"):
        # By the shape of the records before, where a key of another case would be a name given twice; then by
        # that of these.
        try:
            if how.schema is not None:
                found = _by_arrow(block, how.schema, others, is_array=is_array)
                _check_learnt(pa.struct(list(found.schema)), pa.struct(list(how.schema)), how.type)
                return _in_columns(found, columns, fields, formats)
        except (pa.ArrowException, ValueError):
            pass
        if how.shape.kinds and how.schema is None:
            break
        how.learn(shape_of(block, lines, is_array=is_array))
    # Python's reader says what is wrong, or reads it
    rows = [(line, _folded(record, line)) for line, record in records(block, lines, is_array=is_array)]
    arrays = []
    for column, wanted in zip(columns, fields, strict=True):
        name = fold(column.name)
        values = [_value_at(line, record.get(name), column, formats) for line, record in rows]
        arrays.append(array_of(column, values, wanted.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _check_learnt(found: pa.DataType, learnt: pa.DataType, type_: dl.DuckLakeType) -> None:
    """Refuse keys of columns that the schema of the read lacks: Arrow guesses the types of their values."""
    match type_:
        case dl.StructType(fields) if pa.types.is_struct(found):
            wanted = {fold(one.name): one.type for one in fields}
            for one in found:
                if fold(one.name) in wanted:
                    place = learnt.get_field_index(one.name)
                    if place < 0:
                        raise ValueError(one.name)
                    _check_learnt(one.type, learnt.field(place).type, wanted[fold(one.name)])
        case dl.ListType(element) if pa.types.is_list(found):
            _check_learnt(found.value_type, learnt.value_type, element)


def _in_columns(
    found: pa.Table, columns: Sequence[Column], fields: Sequence[pa.Field], formats: Formats
) -> pa.Table:
    arrays = []
    for column, wanted, place in zip(columns, fields, by_name(list(found.schema), columns), strict=True):
        if place is None:
            arrays.append(pa.nulls(found.num_rows, wanted.type))
            continue
        cast = _caster(column, formats)
        arrays.append(reshape(found.column(place), column, wanted.type, Reshaping(by_name, nulls, cast)))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _caster(column: Column, formats: Formats) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    types = {arrow_type(one.type): one.type for one in column.walk() if not one.children}

    def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
        if pa.types.is_string(array.type):
            return values_of_texts(array, types[target], formats)
        if pa.types.is_floating(target) and pc.any(pc.is_inf(array)).as_py():
            raise ValueError("a number beyond the type's, or an infinity")
        return array.cast(target)

    return cast


def _folded(found: Mapping[str, Any], line: int) -> dict[str, Any]:
    """Return an object's values by the folded names of its keys."""
    values = {fold(name): one for name, one in found.items()}
    if len(values) < len(found):
        names = sorted(found, key=fold)
        twice = next(pair for pair in pairwise(names) if fold(pair[0]) == fold(pair[1]))
        raise InvalidInputError(
            f", line {line}: the keys {' and '.join(map(repr, twice))} of one object are one column, as "
            "letter case does not count. Correct the record."
        )
    return values


def _value_at(line: int, found: Any, column: Column, formats: Formats) -> Value:  # noqa: ANN401
    try:
        return _value(line, found, column, formats)
    except ValueError as error:
        raise InvalidInputError(
            f", line {line}: column {column.name} has {str(error)[:_SHOWN]!r}, which is not a valid "
            f"{column.type}. Correct the record, or give the column as string in the option schema and "
            "convert it by sql."
        ) from None


def _value(line: int, found: Any, column: Column, formats: Formats) -> Value:  # noqa: ANN401 - what JSON has
    if found is None:
        return None
    match column.type:
        case dl.StructType():
            if not isinstance(found, dict):
                raise _invalid(found)
            members = _folded(found, line)
            return {
                child.name: _value(line, members.get(fold(child.name)), child, formats)
                for child in column.children
            }
        case dl.ListType():
            if not isinstance(found, list):
                raise _invalid(found)
            return [_value(line, one, column.children[0], formats) for one in found]
        case dl.MapType():
            if not isinstance(found, dict):
                raise _invalid(found)
            key, item = column.children
            return map_of(
                [
                    (_value(line, name, key, formats), _value(line, one, item, formats))
                    for name, one in found.items()
                ]
            )
        case _:
            return _scalar(found, column.type, formats)


def _invalid(found: Any) -> ValueError:  # noqa: ANN401 - whatever JSON has
    return ValueError(_dumped(found))


def _scalar(found: Any, type_: dl.DuckLakeType, formats: Formats) -> Value:  # noqa: ANN401 - whatever JSON has
    kind = type_.facts.kind
    if kind is dl.ScalarKind.JSON:
        return _dumped(found).encode()
    if isinstance(found, bool) and kind is dl.ScalarKind.BOOLEAN:
        return found
    text = found if isinstance(found, str) else _dumped(found)
    if kind is dl.ScalarKind.STRING:
        return text.encode()
    if not isinstance(found, str) or (isinstance(found, _Number) and kind is dl.ScalarKind.BOOLEAN):
        raise ValueError(text)
    return value_as_formatted(text, type_, formats)


def _dumped(found: Any) -> str:  # noqa: ANN401 - whatever JSON has
    """Return a value as JSON without spaces; numbers are as the file has them."""
    match found:
        case _Number():
            return str(found)
        case dict():
            members = (
                f"{json.dumps(name, ensure_ascii=False)}:{_dumped(one)}" for name, one in found.items()
            )
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(_dumped, found))}]"
        case _:
            return json.dumps(found, ensure_ascii=False)
