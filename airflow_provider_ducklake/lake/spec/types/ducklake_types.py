"""DuckLake's column types: parse, print, nested, promotions.

Scalars are spelled as in ``ducklake_column.column_type`` (``int64``, ``timestamptz``, …). Nested types are
spelled in users' texts as DuckDB does: ``varchar[]``, ``struct(a int64, b varchar)``, ``map(varchar,
int64)``; in the catalog they are the bare words ``list``, ``struct`` and ``map`` with child columns.
*Source:* DuckLake spec "Data Types"; the set is the one the reference accepts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from airflow_provider_ducklake.lake.errors import InvalidTypeError
from airflow_provider_ducklake.lake.spec.caches import cached
from airflow_provider_ducklake.lake.spec.names.identifiers import fold, quote_if_needed
from airflow_provider_ducklake.lake.spec.types.scalars import DECIMAL, NESTED, SCALARS, Kind, Scalar

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

    Raises:
        InvalidTypeError: unknown name, bad parameters, or text behind the type.
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
    """Whether values of a type are variants, or have some inside."""
    return type_.facts.kind is Kind.VARIANT or any(holds_variants(one.type) for one in children_of(type_))


_CHILDREN = {"list": 1, "map": 2}


def with_children(catalog_text: str, children: tuple[Field, ...]) -> DuckLakeType:
    """Return the type of a catalog column row and its children; the inverse of the two functions above.

    Raises:
        InvalidTypeError: it has not as many children as that type has.
    """
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
    """Whether values can be NaN."""
    return type_.facts.kind is Kind.FLOAT


def check_depth(type_: DuckLakeType, where: str) -> None:
    """Refuse a type with so many levels that Python's stack may end in what goes through it.

    Raises:
        InvalidTypeError: names ``where``.
    """
    level = [type_]
    for _ in range(DEEPEST):
        level = [child.type for one in level for child in children_of(one)]
        if not level:
            return
    raise InvalidTypeError(f"Column {where} has a type of more than {DEEPEST} levels.")


def check_storable(type_: DuckLakeType, where: str) -> None:
    """Refuse a type whose values do not survive.

    Raises:
        InvalidTypeError: names the column and the type.
    """
    if not type_.facts.storable:
        raise InvalidTypeError(
            f"Column {where} has type {type_}, whose values DuckLake clients cannot store without loss or "
            "error; use another type."
        )
    for child in children_of(type_):
        check_storable(child.type, f"{where}.{child.name}")


def can_promote(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Whether a column may be widened from ``old`` to ``new`` without losing a value.

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


def keeps_bounds(old: DuckLakeType, new: DuckLakeType) -> bool:
    """Whether bounds written for ``old`` are bounds for ``new``; DuckDB skips files by them nonetheless."""
    return str(new) != old.facts.loses_bounds_as
