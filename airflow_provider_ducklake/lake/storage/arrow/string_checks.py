"""Values that no reader could read again: strings that are not UTF-8, not JSON, bytes that are no variant.

Neither Arrow nor Spark looks at them, and DuckDB refuses all rows of a file with one. So rows are looked at
before they are written. Integers of 128 bits are ``DOUBLE`` in files: one that this does not hold is refused,
too. DuckDB writes the nearest, and cannot read it again if that is too large (observed on 1.5.5). So are an
interval that files do not hold, a time beyond those that DuckDB has, and a map with a key twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidValueError
from ...format.types import ducklake_types as dl
from ...format.types.texts import MOST_LEVELS, is_json, is_too_deep
from ...format.types.values import is_infinite, readable_range
from ..parquet.writer import values_of_leaves
from .arrow_types import arrow_type
from .scalars import unstorable

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema

UTF8, JSON, SHALLOW_JSON = "UTF-8", "JSON", f"JSON of at most {MOST_LEVELS} levels"
VARIANT = "Parquet variants"
DOUBLE = "integers that a file's DOUBLE holds exactly"
INTERVAL = "intervals of whole milliseconds, none negative, as files hold them"
TIME = "dates and times that DuckDB reads"
MAP = "maps, each of whose keys is another"
SHOWN_BYTES = 40
_WAYS_OUT = {
    UTF8: "Read the source in its own encoding: use the option encoding for csv and json files, and "
    "decode(…, 'ISO-8859-1') for binary values.",
    JSON: "Convert them to JSON (for example with to_json) or NULL first, or make the column varchar.",
    VARIANT: "Write what Spark's parse_json or encode_variant (format.types.variants) returns.",
    DOUBLE: "Make the column decimal(38,0) or varchar for integers beyond 2**53.",
    INTERVAL: "Keep others as bigint, in microseconds, or as a struct of their parts.",
    TIME: "Write NULL or infinity for times before 290309 BC or after 294247 (nanoseconds: 1677 and 2262), "
    "and none of a day before 00:00 or after 24:00.",
    MAP: "Keep one value of each key, or a list of structs.",
    SHALLOW_JSON: "Keep JSON with more levels in a varchar column.",
}


@dataclass(frozen=True, slots=True)
class BadStrings:
    """Values of one column that break a rule; ``example`` is one of them, cut and escaped.

    ``place`` is its row within the batch, from 0, if that is known.
    """

    column: str
    rule: str
    count: int
    example: str
    place: int | None = None

    def __str__(self) -> str:
        values = "1 value is" if self.count == 1 else f"{self.count} values are"
        where = "" if self.place is None else f" in row {self.place + 1} of those written together"
        return f"column {self.column}: {values} not valid {self.rule}, such as {self.example}{where}"


def refuse_bad_strings(rows: pa.Table, schema: TableSchema, table: str) -> None:
    """Refuse rows, whose columns are those of ``schema`` in order, with strings that could not be read."""
    if found := bad_strings(rows, schema):
        raise error_of(found, table)


def error_of(found: Sequence[BadStrings], table: str) -> InvalidValueError:
    """Return the error that names what was found, and what helps."""
    ways_out = [_WAYS_OUT[rule] for rule in dict.fromkeys(one.rule for one in found)]
    return InvalidValueError(table, [str(one) for one in found], ways_out)


def bad_strings(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> list[BadStrings]:
    """Check strings of any nesting."""
    return [
        one
        for column, values in zip(schema.columns, rows.columns, strict=True)
        for one in (*_bad_in_column(column, values), *_bad_in_maps(column, values))
    ]


def together(parts: Iterable[BadStrings]) -> list[BadStrings]:
    """Sum up the findings in parts of the rows."""
    found: dict[tuple[str, str], BadStrings] = {}
    for one in parts:
        key = (one.column, one.rule)
        found[key] = replace(found[key], count=found[key].count + one.count) if key in found else one
    return list(found.values())


def _paths(
    column: Column, is_wanted: Callable[[dl.DuckLakeType], bool], above: tuple[Column, ...] = ()
) -> Iterator[tuple[Column, ...]]:
    if is_wanted(column.type):
        yield (*above, column)
    for child in column.children:
        yield from _paths(child, is_wanted, (*above, column))


def _is_checked(type_: dl.DuckLakeType) -> bool:
    return (type_.facts.kind in dl.TEXTS) or type_.facts.kind in _BY_VALUE or type_.facts.is_double_in_files


_BY_VALUE = (dl.ScalarKind.VARIANT, dl.ScalarKind.INTERVAL, *dl.TIMES)


def shown(value: bytes) -> str:
    r"""Return a value that is not UTF-8 for an error.

    >>> shown("café".encode("latin-1"))
    "b'caf\\xe9'"
    """
    return repr(value[:SHOWN_BYTES]) + (" …" if len(value) > SHOWN_BYTES else "")


_NO_BOUND_IS_CUT_BELOW = 64  # bytes: the shortest default cut of any Parquet writer


def bad_bound(bound: bytes, type_: dl.DuckLakeType, where: str) -> BadStrings | None:
    """Check a string that a Parquet footer gives as a bound; None if it may be cut."""
    if type_.facts.kind not in dl.TEXTS or len(bound) >= _NO_BOUND_IS_CUT_BELOW:
        return None
    values = pa.chunked_array([pa.array([bound], pa.binary()).view(pa.string())])
    return next(_bad_in_leaf(where, type_, values), None)


def _bad_in_column(column: Column, values: pa.Array | pa.ChunkedArray) -> Iterator[BadStrings]:
    if not any(_is_checked(leaf.type) for leaf in column.leaves()):
        return
    whole = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    paths = {path[-1].id: ".".join(one.name for one in path) for path in _paths(column, _is_checked)}
    for leaf, found in values_of_leaves(column, whole):
        for one in _bad_in_leaf(paths[leaf.id], leaf.type, found) if leaf.id in paths else ():
            yield one if leaf is column else replace(one, place=None)


def _bad_in_maps(column: Column, values: pa.Array | pa.ChunkedArray, above: str = "") -> Iterator[BadStrings]:
    """Yield the maps with a key twice at any level; DuckDB reads no row of a file that has one."""
    if not any(isinstance(one.type, dl.MapType) for one in column.walk()):
        return
    path = f"{above}{column.name}"
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        children = chunk.flatten() if isinstance(column.type, dl.StructType) else [chunk]
        if isinstance(column.type, dl.ListType):
            children = [chunk.flatten()]
        if isinstance(column.type, dl.MapType):
            keys, items = (pa.ListArray.from_arrays(chunk.offsets, one) for one in (chunk.keys, chunk.items))
            if twice := _twice(keys):
                yield BadStrings(path, MAP, len(twice), repr(twice[0])[:SHOWN_BYTES])
            children = [keys.flatten(), items.flatten()]
        for child, below in zip(column.children, children, strict=True):
            yield from _bad_in_maps(child, below, f"{path}.")


def _twice(keys: pa.ListArray) -> list[Any]:
    """Return the keys that a map has more than once."""
    found = keys.flatten()
    if pa.types.is_floating(found.type):
        found = pc.add(found, pa.scalar(0, found.type))  # -0.0 is 0.0
    try:
        counts = pa.table({"map": pc.list_parent_indices(keys), "key": found}).group_by(["map", "key"])
        counted = counts.aggregate([([], "count_all")])
    except pa.ArrowNotImplementedError:  # a key of several values
        rows = (Counter(map(repr, some)) for some in keys.to_pylist())
        return [key for row in rows for key, count in row.items() if count > 1]
    twice: list[Any] = counted.filter(pc.greater(counted["count_all"], 1))["key"].to_pylist()
    return twice


def _bad_in_leaf(path: str, type_: dl.DuckLakeType, values: pa.ChunkedArray) -> Iterator[BadStrings]:
    if type_.facts.kind is dl.ScalarKind.VARIANT:
        yield from _bad_in_variants(path, values)
        return
    if type_.facts.kind is dl.ScalarKind.INTERVAL:
        yield from _bad_in_intervals(path, values)
        return
    if type_.facts.kind in dl.TIMES:
        yield from _bad_in_times(path, type_, values)
        return
    if type_.facts.is_double_in_files:
        yield from _bad_in_long_integers(path, type_, values)
        return
    wrong = _not_utf8(values)
    if wrong:
        yield BadStrings(path, UTF8, len(wrong), shown(wrong[0]))
    elif type_.facts.kind is dl.ScalarKind.JSON:
        refused = [one for one in values.to_pylist() if one is not None and not is_json(one)]
        yield from _bad_in_texts(path, JSON, [one for one in refused if not is_too_deep(one)])
        yield from _bad_in_texts(path, SHALLOW_JSON, [one for one in refused if is_too_deep(one)])


def _bad_in_variants(path: str, values: pa.ChunkedArray) -> Iterator[BadStrings]:
    """Yield what is wrong with variants."""
    wrong = [pair for chunk in values.chunks for pair in _wrong_variants(chunk.drop_null())]
    if wrong:
        yield BadStrings(path, VARIANT, len(wrong), shown(b"".join(wrong[0])))


def _wrong_variants(variants: pa.StructArray) -> list[tuple[bytes, bytes]]:
    """Return those of the variants that are none; all of a column are looked at together first."""
    from ..nested_values.variant_checks import are_sound

    parts = dict(zip([field.name for field in variants.type], variants.flatten(), strict=True))
    there = pc.and_(parts["metadata"].is_valid(), parts["value"].is_valid())
    metadata, value = (parts[name].filter(there).cast(pa.large_binary()) for name in ("metadata", "value"))
    for start in range(0, len(value), _VARIANTS_AT_ONCE):
        if not are_sound(metadata.slice(start, _VARIANTS_AT_ONCE), value.slice(start, _VARIANTS_AT_ONCE)):
            break
    else:
        return []
    pairs = zip(metadata.to_pylist(), value.to_pylist(), strict=True)
    return [pair for pair in pairs if not _is_variant(*pair)]


_VARIANTS_AT_ONCE = 1 << 14


def _bad_in_intervals(path: str, values: pa.ChunkedArray) -> Iterator[BadStrings]:
    wrong: list[tuple[int, str]] = []
    before = 0
    for chunk in values.chunks:
        wrong += [(before + place, text) for place, text in unstorable(chunk)]
        before += len(chunk)
    if wrong:
        yield BadStrings(path, INTERVAL, len(wrong), wrong[0][1], wrong[0][0])


def _bad_in_times(path: str, type_: dl.DuckLakeType, values: pa.ChunkedArray) -> Iterator[BadStrings]:
    days = values.type == pa.date32()
    numbers = values.cast(pa.int32()).cast(pa.int64()) if days else values.cast(pa.int64())
    step = type_.facts.step if values.type == arrow_type(type_) else 1
    first, last = readable_range(type_)
    found = pc.min_max(numbers).as_py()
    low, high = -(-first // step), last // step
    if found["min"] is None or (low <= found["min"] and found["max"] <= high):
        return
    ends = [one for one in (-type_.facts.infinity, type_.facts.infinity) if is_infinite(type_, one)]
    is_read = pc.or_(
        pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)),
        pc.is_in(numbers, value_set=pa.array(ends, pa.int64())),
    )
    wrong = numbers.filter(pc.invert(is_read))
    if len(wrong):
        yield BadStrings(
            path, TIME, len(wrong), f"{wrong[0]} {'days' if days else getattr(values.type, 'unit', 'units')}"
        )


def _bad_in_long_integers(path: str, type_: dl.DuckLakeType, values: pa.ChunkedArray) -> Iterator[BadStrings]:
    doubles = values.cast(pa.float64())
    low, high = type_.facts.physical_range  # the lowest of int128 DuckDB does not read, either
    is_held = pc.and_(
        pc.equal(doubles.cast(_ALL_DIGITS), values.cast(_ALL_DIGITS)),
        pc.and_(pc.greater(doubles, float(low) if low else -1.0), pc.less(doubles, float(high + 1))),
    )
    wrong = values.filter(pc.invert(is_held))  # NULL is neither
    if len(wrong):
        yield BadStrings(path, DOUBLE, len(wrong), str(wrong[0]))


_ALL_DIGITS = pa.decimal256(40, 0)  # of 2**128, and a sign


def _is_variant(metadata: bytes, value: bytes) -> bool:
    from ...format.types.variant_bytes import check_variant

    try:
        check_variant(metadata, value)
    except ValueError:
        return False
    return True


def _bad_in_texts(path: str, rule: str, refused: Sequence[str]) -> Iterator[BadStrings]:
    if refused:
        cut = refused[0][:SHOWN_BYTES]
        yield BadStrings(path, rule, len(refused), repr(cut) + (" …" if cut != refused[0] else ""))


def _not_utf8(values: pa.ChunkedArray) -> list[bytes]:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return [one for one in values.cast(pa.binary()).to_pylist() if one is not None and not _is_utf8(one)]
    return []


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
