"""Documents between processes: frozen dataclasses as JSON, by their annotations.

A dataclass is an object with all of its fields, and a ``kind`` where it is one of a union; ``forms`` says
what is written otherwise. Documents may lie where others can write, so nothing of one becomes a value of ours
unchecked: SQLite stores whatever it is given, and a string in a column of numbers keeps DuckDB from opening
the lake.
"""

from __future__ import annotations

import json
import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from operator import attrgetter, methodcaller
from types import ModuleType, NoneType, UnionType
from typing import Any, NewType, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints, overload
from uuid import UUID

from ...errors import DuckLakeError, SparkJobError
from ...format import files, options, partitioning, schema, snapshots, sorting
from ...format.names import identifiers
from ...format.types import geometry
from ...format.types.ducklake_types import DuckLakeType, Field, catalog_name, with_children
from ...format.types.values import Physical
from ...planning.reading import predicates, scan
from ...planning.upkeep import compaction
from ...planning.writing import write
from ...transaction import changes
from . import request, results

# What ``codec`` has to know of the types that travel: which of them are written in another form, and how.


_MODULES: tuple[ModuleType, ...] = (
    *(predicates, scan, compaction, write, request, results),
    *(files, options, partitioning, schema, snapshots, sorting, identifiers, changes, geometry),
)
# what annotations name; many modules import it for type checkers only
NAMES = {name: one for module in _MODULES for name, one in vars(module).items()}
NAMES |= {"Mapping": Mapping, "Sequence": Sequence, "datetime": datetime, "Any": Any}

AS_LIST = {
    *(snapshots.Snapshot, schema.Default, sorting.SortField),
    *(files.MappedColumn, files.ColumnStats, write.NewDeletes, changes.RewriteSource),
}
TAGS = {
    write.NewTable: "new",
    write.NewTableAndSchema: "new with its schema",
    results.ExistingTable: "existing",
    changes.MergedFile: "merged",
    changes.RewrittenFile: "rewritten",
}
# a job gives its files no mapping, and a plan names its files itself
LEFT_OUT = {(files.DataFile, "mapping"), (files.DataFile, "deletes"), (snapshots.TableSnapshot, "files")} | {
    (files.DataFile, "narrower")
}
SHARED = {(files.LiveDataFile, "mapping"), (compaction.Bin, "schema")}
SHARES = {scan.ScanPlan, scan.ChangeFeedPlan, compaction.Compaction}


def _column(**fields: Any) -> schema.Column:  # noqa: ANN401
    """Build a column from the type's name in the catalog; the children of a nested one are its fields."""
    below = tuple(Field(child.name, child.type) for child in fields["children"])
    return schema.Column(**fields | {"type": with_children(fields["type"], below)})


MADE_BY = {schema.Column: _column}


def _in_utc(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without its zone")
    return found


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError("no finite number")
    return found


def _qualified_name(parts: tuple[str, ...]) -> identifiers.QualifiedName:
    if len(parts) < 2:  # noqa: PLR2004 - schema and name
        raise ValueError("a name without a schema")
    return identifiers.QualifiedName.of(parts)


def _by_column(found: tuple[files.ColumnStats, ...]) -> dict[snapshots.ColumnId, files.ColumnStats]:
    keyed = {one.column_id: one for one in found}
    if len(keyed) != len(found):
        raise ValueError("a column has statistics twice")
    return keyed


# --- rows of the catalog, and values of filters

# JSON has strings, whole numbers, truth values and null; all else says what it is: {"type": string}
Cell: TypeAlias = str | int | bool | dict[str, str] | None
_MICROSECOND = timedelta(microseconds=1)
_TAGGED: tuple[tuple[Any, str, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (float, "float", repr, float),
    ((bytes, memoryview, bytearray), "bytes", lambda value: b64encode(value).decode(), b64decode),
    (Decimal, "decimal", str, Decimal),
    (datetime, "datetime", datetime.isoformat, datetime.fromisoformat),  # before date, which it is too
    (date, "date", date.isoformat, date.fromisoformat),
    (time, "time", time.isoformat, time.fromisoformat),
    (timedelta, "micros", lambda value: str(value // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    (UUID, "uuid", str, UUID),
)
_PARSERS = {tag: parse for _, tag, _, parse in _TAGGED}


def encode_cell(value: object) -> Cell:
    """Return a value that a database driver gave, or one of a filter, as JSON.

    >>> encode_cell(1), encode_cell("1"), encode_cell(1.5), encode_cell(b"x")
    (1, '1', {'float': '1.5'}, {'bytes': 'eA=='})
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    for types, tag, text, _ in _TAGGED:
        if isinstance(value, types):
            return {tag: text(value)}
    raise TypeError(type(value))


def decode_cell(item: object) -> Any:  # noqa: ANN401 - whatever it was
    """Return the value; the inverse of ``encode_cell``."""
    if item is None or isinstance(item, str | bool | int):
        return item
    if not isinstance(item, dict):
        raise ValueError(f"a {type(item).__name__}")  # noqa: TRY004 - of a document
    ((tag, text),) = item.items()
    value = _PARSERS[tag](text)
    if encode_cell(value) != item:
        raise ValueError(f"{tag} is written in another way")
    return value


Row: TypeAlias = Mapping[str, Any]
_Rows: TypeAlias = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def _with_names_once(rows: Sequence[Row]) -> _Rows:
    return tuple(rows[0]) if rows else (), tuple(tuple(row.values()) for row in rows)


def _rows(found: _Rows) -> tuple[Row, ...]:
    names, rows = found
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


WRITTEN_AS: dict[Any, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    Any: (object, encode_cell, decode_cell),
    Physical: (object, encode_cell, decode_cell),
    tuple[Row, ...]: (_Rows, _with_names_once, _rows),
    DuckLakeType: (str, catalog_name, str),
    datetime: (str, datetime.isoformat, _in_utc),
    float: (str, repr, _finite),
    identifiers.QualifiedName: (tuple[str, ...], attrgetter("parts"), _qualified_name),
    files.FileKey: (str, attrgetter("text"), files.FileKey),
    options.Options: (Mapping[str, str], lambda value: value.texts, options.Options),
    partitioning.Transform: (str, str, partitioning.Transform.parse),
    schema.TableSchema: (tuple[schema.Column, ...], lambda value: value.columns, schema.TableSchema),
    Mapping[snapshots.ColumnId, files.ColumnStats]: (
        *(tuple[files.ColumnStats, ...], lambda value: value.values(), _by_column),
    ),
}


FORMAT_VERSION = 5  # of what may outlive a release: results, staged writes, records of batches and bins
_BITS = 63
LARGEST = 2**_BITS - 1  # of a catalog's numbers
Json: TypeAlias = dict[str, Any]
_T = TypeVar("_T")


class DocumentError(ValueError):
    """A value of a document is not what belongs there; the text names its place."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.place = ""

    def below(self, place: str) -> DocumentError:
        """Return the error as seen from one level above."""
        self.place = place + self.place
        return self

    def __str__(self) -> str:
        return f"{self.place.lstrip('.')}: {self.args[0]}" if self.place else str(self.args[0])


def _not(value: object, wanted: str) -> DocumentError:
    return DocumentError(f"{value!a:.40} is not {wanted}")


def dumps(document: Json, version: int = FORMAT_VERSION) -> bytes:
    """Return the bytes of one document, with the format's version in it."""
    return json.dumps({"v": version, **document}, separators=(",", ":"), check_circular=False).encode()


def loads(data: bytes, what: str, version: int = FORMAT_VERSION) -> Json:
    """Parse a document and drop its version; refuse one that is not ours, or of another version."""
    try:
        document = json.loads(data, object_pairs_hook=_object_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SparkJobError(f"{what} is not a complete JSON document: {error}") from None
    found = document.pop("v", None) if isinstance(document, dict) else None
    if type(found) is not int or found != version:
        raise SparkJobError(
            f"{what} has job format {found!r}, but this release reads {version}. The operator and the job "
            "must run the same release of the provider."
        )
    assert isinstance(document, dict)
    return document


def _object_once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def encode(value: object, type_: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value of that type as JSON: a dataclass, or a union of them."""
    return coder(type_).encode(value, None)


@overload
def decode(item: object, type_: type[_T]) -> _T: ...
@overload
def decode(item: object, type_: Any) -> Any: ...  # noqa: ANN401 - a union
def decode(item: object, type_: Any) -> Any:
    """Return the value of that type; the inverse of ``encode``."""
    try:
        return coder(type_).decode(item, None)
    except RecursionError:
        raise DocumentError("it is nested too deeply") from None


# --- a coder for each type


@dataclass(slots=True)
class Shared:
    """Values that a document stores once, even if it contains them often; others refer to their place."""

    items: list[Any] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # by id() of what is encoded
    values: dict[int, Any] = field(default_factory=dict)  # that are decoded already


@dataclass(frozen=True, slots=True)
class Coder:
    """How values of one type are written and read."""

    encode: Callable[[Any, Shared | None], Any]
    decode: Callable[[Any, Shared | None], Any]
    kind: type | None = None  # int, str or bool, where it is nothing else
    may_be_null: bool = False


def _same(value: Any, _: Shared | None) -> Any:  # noqa: ANN401
    return value


def _integer(value: object, _: Shared | None) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _not(value, f"a whole number from 0 to {LARGEST}")
    return value


def _string(value: object, _: Shared | None) -> str:
    if not isinstance(value, str):
        raise _not(value, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _not(value, "a string of characters") from None
    return value


def _flag(value: object, _: Shared | None) -> bool:
    if type(value) is not bool:
        raise _not(value, "true or false")
    return value


_PLAIN = {int: _integer, str: _string, bool: _flag, object: _same}


@cache
def coder(type_: Any) -> Coder:  # noqa: ANN401
    """Return the functions that write and read values of the type."""
    if type_ in _PLAIN:
        return Coder(_same, _PLAIN[type_], None if type_ is object else type_)
    if type_ in WRITTEN_AS:
        return _other_form(*WRITTEN_AS[type_])
    if isinstance(type_, NewType):
        return coder(type_.__supertype__)
    if is_dataclass(type_):
        return _row_of_class(type_) if type_ in AS_LIST else _object(type_)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _other_form(str, attrgetter("value"), type_)
    return _generic_coder(get_origin(type_), get_args(type_))


def _generic_coder(origin: Any, of: tuple[Any, ...]) -> Coder:  # noqa: ANN401
    if origin in (Union, UnionType):
        return _union(of)
    if origin is frozenset:
        return _several(coder(of[0]), sorted, frozenset)
    if origin is Sequence or (origin is tuple and of[-1] is ...):
        return _several(coder(of[0]), iter, tuple)
    if origin is tuple:
        return _row(tuple, tuple(map(coder, of)), _together)
    if origin is Mapping and of[0] is str:
        return _mapping(coder(of[1]))
    if origin is Mapping:
        return _several(_row(tuple, tuple(map(coder, of)), _together), methodcaller("items"), _keyed)
    raise TypeError(f"{origin} of {of} has no form in JSON")


@cache
def _members(class_: Any) -> dict[str, Coder]:  # noqa: ANN401
    """Return the fields of a dataclass that are written, with their coders."""
    hints = get_type_hints(class_, {**NAMES, **vars(sys.modules[class_.__module__])})
    names = [one.name for one in fields(class_) if (class_, one.name) not in LEFT_OUT]
    found = {name: coder(hints[name]) for name in names}
    return {name: _once(one) if (class_, name) in SHARED else one for name, one in found.items()}


def _object(class_: Any, tag: str | None = None) -> Coder:  # noqa: ANN401
    """Return the coder of an object with the fields as keys, and ``shared`` where the class has such."""
    shares, make = class_ in SHARES, MADE_BY.get(class_, class_)
    own = {key for key, is_there in (("kind", tag is not None), ("shared", shares)) if is_there}

    def encode(value: Any, shared: Shared | None) -> Json:  # noqa: ANN401
        if shares:
            shared = Shared()
        found = {name: one.encode(getattr(value, name), shared) for name, one in _members(class_).items()}
        if shares:
            assert shared is not None
            found["shared"] = shared.items
        return found if tag is None else {"kind": tag, **found}

    def decode(item: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        members = _members(class_)
        if type(item) is not dict or len(item) != len(members) + len(own):
            raise _other_keys(item, {*members, *own})
        if shares:
            shared = Shared(_list(item.get("shared")))
        values = {}
        for name, one in members.items():
            if name not in item:
                raise DocumentError(f"{name} is missing")
            try:
                values[name] = one.decode(item[name], shared)
            except DocumentError as error:
                raise error.below(f".{name}") from None
        return _made(make, item, **values)

    return Coder(encode, decode)


def _made(make: Callable[..., Any], item: object, /, *values: Any, **fields: Any) -> Any:  # noqa: ANN401
    """Construct a value; wrap errors of its own validation."""
    try:
        return make(*values, **fields)
    except DuckLakeError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise _not(item, f"read: {error}") from None


def _other_keys(item: object, wanted: set[str]) -> DocumentError:
    if not isinstance(item, dict):
        return _not(item, "an object")
    missing, unknown = sorted(wanted - item.keys()), sorted(item.keys() - wanted)
    return DocumentError(f"{missing[0]} is missing" if missing else f"{unknown[0]!a:.40} is unknown")


def _list(item: object) -> list[Any]:
    if type(item) is not list:
        raise _not(item, "a list")
    return item


def _row_of_class(class_: Any) -> Coder:  # noqa: ANN401
    members = _members(class_)
    return _row(attrgetter(*members), tuple(members.values()), class_)


def _row(
    read: Callable[[Any], tuple[Any, ...]], coders: tuple[Coder, ...], make: Callable[..., Any]
) -> Coder:
    """Return the coder of a list with a value for each place."""
    encoders = None if all(one.encode is _same for one in coders) else [one.encode for one in coders]
    kinds, nullable = [one.kind for one in coders], [one.may_be_null for one in coders]
    may_fit, length = None not in kinds, len(coders)

    def encode(value: Any, shared: Shared | None) -> list[Any]:  # noqa: ANN401
        values = read(value)
        if encoders is None:
            return list(values)
        return [one(item, shared) for one, item in zip(encoders, values, strict=True)]

    def decode(item: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        if type(item) is not list or len(item) != length:
            raise _not(item, f"a list of {length}")
        if may_fit and _fit(item, kinds, nullable):
            return make(*item)
        values: list[Any] = []
        try:
            for one, value in zip(coders, item, strict=True):
                values.append(one.decode(value, shared))
        except DocumentError as error:
            raise error.below(f"[{len(values)}]") from None
        return make(*values)

    return Coder(encode, decode)


def _fit(values: list[Any], kinds: list[type | None], nullable: list[bool]) -> bool:
    """Return True if decoders would certainly pass values on: a shortcut for many statistics."""
    for value, kind, may_be_null in zip(values, kinds, nullable):  # noqa: B905 - as many as each other
        found = type(value)
        if found is not kind:
            if value is not None or not may_be_null:
                return False
        elif found is int:
            if value >> _BITS:  # also where it is negative
                return False
        elif found is str and not value.isascii():
            return False
    return True


def _keyed(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DocumentError("a key is there twice")
    return found


def _together(*values: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return values


def _several(one: Coder, read: Callable[[Any], Any], make: Callable[[list[Any]], Any]) -> Coder:
    """Return the coder of a list of values of one type."""
    encode_one, decode_one = one.encode, one.decode

    def decode(item: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        items, values = _list(item), []
        try:
            for value in items:
                values.append(decode_one(value, shared))  # noqa: PERF401 - its length is the place of an error
        except DocumentError as error:
            raise error.below(f"[{len(values)}]") from None
        return make(values)

    return Coder(lambda value, shared: [encode_one(item, shared) for item in read(value)], decode)


def _mapping(one: Coder) -> Coder:
    """Return the coder of an object with any keys."""

    def decode(item: Any, shared: Shared | None) -> Json:  # noqa: ANN401
        if type(item) is not dict:
            raise _not(item, "an object")
        found: Json = {}
        for name, value in item.items():
            try:
                found[_string(name, None)] = one.decode(value, shared)
            except DocumentError as error:
                raise error.below(f"[{name!a:.40}]") from None
        return found

    return Coder(
        lambda value, shared: {name: one.encode(item, shared) for name, item in value.items()}, decode
    )


def _union(types: tuple[Any, ...]) -> Coder:
    """Return the coder of a value that is one of several: plain ones, or dataclasses with a ``kind``."""
    some = [one for one in types if one is not NoneType]
    if all(one in (str, int, float, bool) for one in some) and len(some) > 1:
        return Coder(_same, _any_of(set(types)))
    one = coder(some[0]) if len(some) == 1 else _tagged(some)
    return one if len(some) == len(types) else _optional(one)


def _any_of(types: set[type]) -> Callable[[Any, Shared | None], Any]:
    def decode(value: Any, _: Shared | None) -> Any:  # noqa: ANN401
        if type(value) not in types:
            raise _not(value, f"one of {', '.join(sorted(one.__name__ for one in types))}")
        return _string(value, None) if type(value) is str else value

    return decode


def _optional(one: Coder) -> Coder:
    def or_null(of_value: Callable[[Any, Shared | None], Any]) -> Callable[[Any, Shared | None], Any]:
        if of_value is _same:
            return _same
        return lambda value, shared: None if value is None else of_value(value, shared)

    return Coder(or_null(one.encode), or_null(one.decode), one.kind, may_be_null=True)


def _tagged(classes: list[type]) -> Coder:
    tags = {one: TAGS.get(one, one.__name__) for one in classes}
    coders = {tag: _object(one, tag) for one, tag in tags.items()}

    def decode(item: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        tag = item.get("kind") if type(item) is dict else None
        if type(tag) is not str or tag not in coders:
            raise _not(item if tag is None else tag, f"one of {', '.join(coders)}")
        return coders[tag].decode(item, shared)

    return Coder(lambda value, shared: coders[tags[type(value)]].encode(value, shared), decode)


def _other_form(form: Any, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Coder:  # noqa: ANN401
    """Return the coder of a value that is written as one of another type."""
    one = coder(form)
    return Coder(
        lambda value, shared: one.encode(write(value), shared),
        lambda item, shared: _made(read, item, one.decode(item, shared)),
    )


def _once(one: Coder) -> Coder:
    """Return the coder of a value that many have: as its place among what is shared, where anything is."""

    def encode(value: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        if shared is None or value is None:
            return one.encode(value, shared)
        place = shared.places.setdefault(id(value), len(shared.items))
        if place == len(shared.items):
            shared.items.append(one.encode(value, None))
        return place

    def decode(item: Any, shared: Shared | None) -> Any:  # noqa: ANN401
        if shared is None or item is None:
            return one.decode(item, shared)
        place = _integer(item, None)
        if place >= len(shared.items):
            raise _not(item, "the place of a shared value")
        if place not in shared.values:
            shared.values[place] = one.decode(shared.items[place], None)
        return shared.values[place]

    return Coder(encode, decode)
