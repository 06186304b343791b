"""DuckLake's column types: parse, print, nested, promotions.

Scalars are spelled as in ``ducklake_column.column_type`` (``int64``, ``timestamptz``, …). Nested types are
spelled in users' texts as DuckDB does: ``varchar[]``, ``struct(a int64, b varchar)``, ``map(varchar,
int64)``; in the catalog they are the bare words ``list``, ``struct`` and ``map`` with child columns.
*Source:* DuckLake spec "Data Types"; the set is the one the reference accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import ClassVar, TypeAlias

from ...errors import InvalidTypeError
from ..limits import cached
from ..names.identifiers import fold, quote_if_needed
from ..versions import Feature

# The scalar types: one row each, with every fact that the format and the pure rules use.
#
# What Arrow, Spark and the catalog databases make of a type stands in one table each, with exactly the rows
# of this one: ``storage/arrow/scalars.py``, ``spark/types/spark_types.py`` and
# ``catalog/snapshot/inlined_tables.py``. CONTRIBUTING ("Add a scalar type") says what a type of another
# kind needs besides. *Source:* DuckLake spec "Data Types"; the set is the one the reference accepts.


class ScalarKind(Enum):
    """How values of a type are held, spelled and ordered; many types may be of one kind."""

    BOOLEAN = auto()
    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    STRING = auto()
    JSON = auto()
    BLOB = auto()
    UUID = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INTERVAL = auto()
    VARIANT = auto()
    GEOMETRY = auto()
    NULL = auto()  # every value is NULL
    OTHER = auto()  # types without rules here
    NESTED = auto()


NUMBERS = frozenset({ScalarKind.INTEGER, ScalarKind.DECIMAL, ScalarKind.FLOAT})
TEXTS = frozenset({ScalarKind.STRING, ScalarKind.JSON})
BYTES = TEXTS | {ScalarKind.BLOB}  # ordered, and hashed, by their own bytes
TIMES = frozenset({ScalarKind.DATE, ScalarKind.TIME, ScalarKind.TIMESTAMP})
STEPPED = TIMES | {ScalarKind.INTEGER, ScalarKind.DECIMAL}  # whole numbers of a unit


class Hashed(Enum):
    """What the ``bucket`` transform hashes."""

    LONG = auto()  # 8 bytes, little-endian
    DOUBLE = auto()
    BYTES = auto()
    TEXT = auto()  # of DuckDB's cast


class Exact(Enum):
    """When bounds in a file's statistics are values of the file."""

    ALWAYS = auto()
    OURS = auto()  # in files that DuckLake's writers made, of columns that never had another type
    NEVER = auto()


@dataclass(frozen=True)
class Scalar:
    """The facts of a scalar type.

    ``sql`` are DuckDB's spellings of it, ``aliases`` those that a catalog's text may have besides its name.
    Numbers have ``bits``. Times count ``per_second`` units a second, and each value is a multiple of
    ``step``, and are those of UTC where ``zoned``.
    """

    name: str
    kind: ScalarKind
    sql: str = ""
    aliases: str = ""
    bits: int = 0
    signed: bool = True
    per_second: int = 1
    step: int = 1
    zoned: bool = False
    has_days: bool = False  # can be partitioned by year, month and day
    has_hours: bool = False
    hashed: Hashed = Hashed.TEXT
    exact_bounds: Exact = Exact.ALWAYS
    has_stats: bool = True  # the reference keeps statistics of such columns
    counts_nulls: bool = True  # the reference's statistics say whether there are NULLs
    comparable: bool = True  # values have an order
    bounded: bool = True  # the reference's files have bounds of them, if they are comparable
    storable: bool = True  # values survive the reference, and us
    rewritable: bool = True  # values at least go from file to file as they are
    wider: str = ""  # the types to which a column may be promoted
    loses_bounds_as: str = ""  # the one of those in which bounds of this type are no bounds
    since: Feature | None = None  # what a lake's version must have

    @cached_property
    def infinity(self) -> int:
        """The physical form of DuckDB's ``infinity``; ``-infinity`` is its negative."""
        return 2**31 - 1 if self.kind is ScalarKind.DATE else 2**63 - 1

    @cached_property
    def is_double_in_files(self) -> bool:
        """Return True if files keep the integers of this type as DOUBLE: Parquet has none so long."""
        return self.kind is ScalarKind.INTEGER and self.bits > 64  # noqa: PLR2004 - the most that Parquet has

    @cached_property
    def is_local_microseconds(self) -> bool:
        """Return True if values are timestamps in microseconds without a zone, as Spark has them too."""
        return (
            self.kind is ScalarKind.TIMESTAMP
            and not self.zoned
            and (self.per_second, self.step) == (10**6, 1)
        )

    @cached_property
    def physical_range(self) -> tuple[int, int]:
        """The least and the greatest physical form; those of dates and timestamps are infinite."""
        match self.kind:
            case ScalarKind.TIME:
                return 0, 86_400 * self.per_second
            case ScalarKind.INTEGER if self.signed:
                return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
            case ScalarKind.INTEGER:
                return 0, 2**self.bits - 1
            case _:
                return -self.infinity, self.infinity


def _integer(bits: int, sql: str, aliases: str, wider: str = "") -> Scalar:
    return Scalar(f"int{bits}", ScalarKind.INTEGER, sql, aliases, bits, wider=wider, hashed=Hashed.LONG)


def _unsigned(bits: int, sql: str, aliases: str, wider: str = "") -> Scalar:
    return Scalar(f"uint{bits}", ScalarKind.INTEGER, sql, aliases, bits, signed=False, wider=wider)


def _timestamp(name: str, sql: str, per_second: int, aliases: str = "", step: int = 1) -> Scalar:
    return Scalar(
        name, ScalarKind.TIMESTAMP, sql, aliases, per_second=per_second, step=step, has_days=True,
        has_hours=True, hashed=Hashed.LONG,
    )  # fmt: skip


_ROWS = (
    Scalar("boolean", ScalarKind.BOOLEAN, "boolean bool logical", "bool", hashed=Hashed.LONG),
    _integer(8, "tinyint int1", "tinyint", "int16 int32 int64"),
    _integer(16, "smallint int2 int16 short", "smallint", "int32 int64"),
    _integer(32, "integer int int4 int32 integral signed", "integer, int", "int64"),
    _integer(64, "bigint int8 int64 long oid", "bigint"),
    # in files DuckDB has them as DOUBLE, without bounds
    Scalar("int128", ScalarKind.INTEGER, "hugeint int128", "hugeint", 128, bounded=False,
           exact_bounds=Exact.NEVER),
    _unsigned(8, "utinyint uint8", "utinyint", "uint16 uint32 uint64 int16 int32 int64"),
    _unsigned(16, "usmallint uint16", "usmallint", "uint32 uint64 int32 int64"),
    _unsigned(32, "uinteger uint32", "uinteger", "uint64 int64"),
    _unsigned(64, "ubigint uint64", "ubigint"),
    Scalar("uint128", ScalarKind.INTEGER, "uhugeint uint128", "uhugeint", 128, signed=False, bounded=False,
           exact_bounds=Exact.NEVER),
    # whose shortest text is another number in float64: DuckDB skipped files by it (observed on 1.5.5)
    Scalar("float32", ScalarKind.FLOAT, "float float4 real", "float, real", 32, hashed=Hashed.DOUBLE,
           exact_bounds=Exact.OURS, wider="float64", loses_bounds_as="float64"),
    Scalar("float64", ScalarKind.FLOAT, "double float8", "double", 64, hashed=Hashed.DOUBLE,
           exact_bounds=Exact.OURS),
    Scalar("varchar", ScalarKind.STRING, "varchar bpchar char nvarchar string text", "text, string",
           hashed=Hashed.BYTES, exact_bounds=Exact.OURS),
    Scalar("json", ScalarKind.JSON, "json", hashed=Hashed.BYTES, exact_bounds=Exact.NEVER),
    Scalar("blob", ScalarKind.BLOB, "blob bytea binary varbinary", "bytea, binary, varbinary",
           hashed=Hashed.BYTES, exact_bounds=Exact.OURS),
    Scalar("uuid", ScalarKind.UUID, "uuid guid", exact_bounds=Exact.OURS),
    Scalar("date", ScalarKind.DATE, "date", has_days=True, hashed=Hashed.LONG, wider="timestamp",
           loses_bounds_as="timestamp"),  # whose texts are longer
    Scalar("time", ScalarKind.TIME, "time", per_second=10**6, has_hours=True, hashed=Hashed.LONG),
    # the reference counts neither values nor NULLs of it, and orders its values by their offset, too
    Scalar("timetz", ScalarKind.TIME, "timetz", "time with time zone", per_second=10**6, zoned=True,
           has_stats=False, counts_nulls=False, comparable=False, hashed=Hashed.LONG,
           exact_bounds=Exact.NEVER),
    Scalar("time_ns", ScalarKind.TIME, "time_ns", per_second=10**9, storable=False, rewritable=False,
           exact_bounds=Exact.NEVER),
    _timestamp("timestamp", "timestamp datetime timestamp_us", 10**6, "datetime, timestamp_us"),
    _timestamp("timestamp_s", "timestamp_s", 10**6, step=10**6),  # Parquet has no seconds
    _timestamp("timestamp_ms", "timestamp_ms", 10**3),
    _timestamp("timestamp_ns", "timestamp_ns", 10**9),
    Scalar("timestamptz", ScalarKind.TIMESTAMP, "timestamptz", "timestamp with time zone", per_second=10**6,
           zoned=True, has_days=True, has_hours=True, hashed=Hashed.LONG, exact_bounds=Exact.OURS),
    Scalar("timestamptz_ns", ScalarKind.TIMESTAMP, "timestamptz_ns", per_second=10**9, zoned=True,
           has_days=True, has_hours=True, hashed=Hashed.LONG, exact_bounds=Exact.OURS,
           since=Feature.TIMESTAMPTZ_NS),
    Scalar("interval", ScalarKind.INTERVAL, "interval", has_stats=False, counts_nulls=False, comparable=False,
           exact_bounds=Exact.NEVER),
    Scalar(
        "variant", ScalarKind.VARIANT, "variant", bounded=False, counts_nulls=False, comparable=False,
        exact_bounds=Exact.NEVER,
    ),
    Scalar("geometry", ScalarKind.GEOMETRY, "geometry", comparable=False, exact_bounds=Exact.NEVER),
    Scalar("null", ScalarKind.NULL, exact_bounds=Exact.NEVER, since=Feature.NULL_TYPE),
    Scalar("unknown", ScalarKind.OTHER, storable=False, rewritable=False, exact_bounds=Exact.NEVER),
)  # fmt: skip
SCALARS: Mapping[str, Scalar] = {row.name: row for row in _ROWS}
NOT_STORABLE = frozenset(row.name for row in _ROWS if not row.storable)
INTEGERS = frozenset(row.name for row in _ROWS if row.kind is ScalarKind.INTEGER)
DECIMAL = Scalar("decimal", ScalarKind.DECIMAL)  # what holds whatever its precision and scale
NESTED = Scalar("nested", ScalarKind.NESTED, exact_bounds=Exact.NEVER)


MAX_DECIMAL_PRECISION = 38
# Of a bare ``list``, ``struct`` or ``map`` holds what holds of nested types.
_FACTS = {**SCALARS, **dict.fromkeys(("list", "struct", "map"), NESTED)}
LIST_ELEMENT, MAP_KEY, MAP_VALUE = "element", "key", "value"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type without parameters, named as in the catalog."""

    name: str
    facts: Scalar = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", _FACTS[self.name])  # looked at for each value

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """Decimal with ``precision`` digits in all, ``scale`` of them after the point."""

    precision: int
    scale: int
    facts: ClassVar[Scalar] = DECIMAL

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ListType:
    """A list of any length."""

    element: DuckLakeType
    facts: ClassVar[Scalar] = NESTED

    def __str__(self) -> str:
        return f"{self.element}[]"


@dataclass(frozen=True, slots=True)
class Field:
    """A named member of a struct."""

    name: str
    type: DuckLakeType

    def __str__(self) -> str:
        return f"{quote_if_needed(self.name)} {self.type}"


@dataclass(frozen=True, slots=True)
class StructType:
    """Named members in order."""

    fields: tuple[Field, ...]
    facts: ClassVar[Scalar] = NESTED

    def __str__(self) -> str:
        return f"struct({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True)
class MapType:
    """Pairs of key and value."""

    key: DuckLakeType
    value: DuckLakeType
    facts: ClassVar[Scalar] = NESTED

    def __str__(self) -> str:
        return f"map({self.key}, {self.value})"


DuckLakeType: TypeAlias = ScalarType | DecimalType | ListType | StructType | MapType

_ALIASES = {word: row.name for row in SCALARS.values() for word in row.aliases.split(", ") if word}
_DEFAULT_DECIMAL = (18, 3)
DEEPEST = 100  # levels of a type: whatever goes through it goes down as deep in Python's stack
_WORDS = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\s+with\s+time\s+zone)?)", re.IGNORECASE)
_QUOTED = re.compile(r'\s*"((?:[^"]|"")*)"')


class _Parser:
    """Recursive descent over one type text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = self.depth = 0

    def fail(self, why: str) -> InvalidTypeError:
        return InvalidTypeError(
            f"Cannot read {self.text!r} as a DuckLake type: {why}. Types look like int64, decimal(18,2), "
            "varchar[], struct(a int64, b varchar), map(varchar, int64)."
        )

    def too_deep(self) -> InvalidTypeError:
        return InvalidTypeError(f"The type {self.text[:80]!r}… has more than {DEEPEST} levels.")

    def accept(self, symbol: str) -> bool:
        rest = self.text[self.position :]
        stripped = rest.lstrip()
        if not stripped.startswith(symbol):
            return False
        self.position += len(rest) - len(stripped) + len(symbol)
        return True

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.fail(f"expected {symbol!r} at character {self.position}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found.group(1)

    def number(self) -> int:
        digits = self.match(re.compile(r"\s*([0-9]{1,9})"))
        if digits is None:
            raise self.fail(f"expected a number at character {self.position}")
        return int(digits)

    def type(self) -> DuckLakeType:
        above = self.depth
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.too_deep()
        word = self.match(_WORDS)
        if word is None:
            raise self.fail(f"expected a type name at character {self.position}")
        parsed = self.named(" ".join(word.lower().split()))
        while self.accept("["):
            self.expect("]")
            parsed = ListType(parsed)
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.too_deep()
        self.depth = above
        return parsed

    def named(self, word: str) -> DuckLakeType:
        if word in {"struct", "row"}:
            return self.struct()
        if word == "map":
            self.expect("(")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(")")
            return MapType(key, value)
        if word in ("decimal", "numeric"):
            return self.decimal()
        name = _ALIASES.get(word, word)
        if name not in SCALARS:
            raise self.fail(f"{word!r} is not a type of the format")
        if name == "varchar" and self.accept("("):  # a length is accepted and dropped, as the reference does
            self.number()
            self.expect(")")
        return ScalarType(name)

    def decimal(self) -> DecimalType:
        precision, scale = _DEFAULT_DECIMAL
        if self.accept("("):
            precision, scale = self.number(), 0
            if self.accept(","):
                scale = self.number()
            self.expect(")")
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
            raise self.fail(
                f"a decimal has a precision of 1 to {MAX_DECIMAL_PRECISION}, and its scale is at most its "
                "precision"
            )
        return DecimalType(precision, scale)

    def struct(self) -> StructType:
        self.expect("(")
        fields: list[Field] = []
        while True:
            quoted = self.match(_QUOTED)
            name = (
                quoted.replace('""', '"')
                if quoted is not None
                else self.match(re.compile(r"\s*([^\s\",()]+)\s"))
            )
            if not name:
                raise self.fail(f"expected a field name at character {self.position}")
            fields.append(Field(name, self.type()))
            if not self.accept(","):
                break
        self.expect(")")
        folded = [fold(field.name) for field in fields]
        if len(set(folded)) != len(folded):
            raise self.fail("two fields of a struct have the same name")
        return StructType(tuple(fields))


@cached
def parse_type(text: str) -> DuckLakeType:
    """Return the type that ``text`` spells; SQL's usual names (``bigint``, ``double``, …) are understood too.

    >>> str(parse_type("STRUCT(a BIGINT, tags varchar[])"))
    'struct(a int64, tags varchar[])'
    """
    parser = _Parser(text)
    parsed = parser.type()
    if text[parser.position :].strip():
        raise parser.fail(f"unexpected {text[parser.position :].strip()!r}")
    return parsed


def catalog_name(type_: DuckLakeType) -> str:
    """Return the text of ``ducklake_column.column_type``: nested types are one bare word."""
    match type_:
        case ListType():
            return "list"
        case StructType():
            return "struct"
        case MapType():
            return "map"
        case _:
            return str(type_)


def children_of(type_: DuckLakeType) -> tuple[Field, ...]:
    """Return the child columns that the catalog keeps for a nested type; none for a scalar."""
    match type_:
        case ListType(element):
            return (Field(LIST_ELEMENT, element),)
        case StructType(fields):
            return fields
        case MapType(key, value):
            return (Field(MAP_KEY, key), Field(MAP_VALUE, value))
        case _:
            return ()


def holds_variants(type_: DuckLakeType) -> bool:
    """Return True if values of a type are variants, or have some inside."""
    return type_.facts.kind is ScalarKind.VARIANT or any(
        holds_variants(one.type) for one in children_of(type_)
    )


_CHILDREN = {"list": 1, "map": 2}


def with_children(catalog_text: str, children: tuple[Field, ...]) -> DuckLakeType:
    """Return the type of a catalog column row and its children; the inverse of the two functions above."""
    if len(children) != _CHILDREN.get(catalog_text, len(children)):
        raise InvalidTypeError(
            f"A column of type {catalog_text} has {_CHILDREN[catalog_text]} columns below it in "
            f"ducklake_column; one here has {len(children)}. Correct the rows, or restore the catalog from a "
            "backup."
        )
    match catalog_text:
        case "list":
            return ListType(children[0].type)
        case "struct":
            return StructType(children)
        case "map":
            return MapType(children[0].type, children[1].type)
        case _:
            return parse_type(catalog_text)


def is_float(type_: DuckLakeType) -> bool:
    """Return True if values can be NaN."""
    return type_.facts.kind is ScalarKind.FLOAT


def check_depth(type_: DuckLakeType, where: str) -> None:
    """Refuse a type with so many levels that Python's stack may end in what goes through it."""
    level = [type_]
    for _ in range(DEEPEST):
        level = [child.type for one in level for child in children_of(one)]
        if not level:
            return
    raise InvalidTypeError(f"Column {where} has a type of more than {DEEPEST} levels.")


def check_storable(type_: DuckLakeType, where: str) -> None:
    """Refuse a type whose values do not survive."""
    if not type_.facts.storable:
        raise InvalidTypeError(
            f"Column {where} has type {type_}, whose values DuckLake clients cannot store without loss or "
            "error; use another type."
        )
    for child in children_of(type_):
        check_storable(child.type, f"{where}.{child.name}")


def can_promote(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Return True if a column may be widened from ``old`` to ``new`` without losing a value.

    The documented safe set of the format, a subset of what the reference's implicit casts allow
    (docs/sources.md, DDL).
    """
    if old == new:
        return True
    match old, new:
        case ScalarType(), ScalarType():
            return new.name in old.facts.wider.split()
        case DecimalType(), DecimalType():
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case ListType(a_element), ListType(b_element):
            return can_promote(a_element, b_element)
        case MapType(a_key, a_value), MapType(b_key, b_value):
            return can_promote(a_key, b_key) and can_promote(a_value, b_value)
        case _:
            return False


def keeps_partition_values(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Return True if partition values, buckets too, are the same for both types."""
    integers = old.facts.kind is new.facts.kind is ScalarKind.INTEGER
    return old == new or (integers and old.facts.signed == new.facts.signed)


def is_misread_by_filters(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Return True if DuckDB casts a filter's value to ``old``, the type of a file, and so finds other rows.

    It does so for a column that is ``new`` by now. Larger integers and longer decimals lose nothing.
    """
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale < new.scale
    is_shorter = old.facts.kind is ScalarKind.DATE or (is_float(old) and is_float(new))
    return old != new and is_shorter and can_promote(old, new)


def keeps_bounds(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Return True if bounds written for ``old`` hold for ``new``; DuckDB uses them in any case."""
    return str(new) != old.facts.loses_bounds_as
