r"""The text of nested values, as inlined tables keep them: ``[1, NULL]``, ``{'a': 1}``, ``{k=v}``.

Values are in the physical form of ``format.types.values``; nested, a list is a list, a struct a dict by field
name, a map a list of pairs, NULL is None. *Source:* DuckDB's casts between nested types and VARCHAR: the text
that the reference stores for lists and maps, and reads for all.

For a struct that is no member of a list or map the reference stores an SQL expression instead (``{'d':
CAST('2020-01-01' AS DATE), 's': 'it''s'}``), which it then cannot read, or reads as another value. We write
such structs so that it reads them right, and read both. A string with a quote or a backslash stands there in
double quotes, which no such expression has: that separates ``"a\\b"``, ours, from ``'a\\b'``, their two
backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from ..names.identifiers import fold
from . import ducklake_types as dl
from .values import Physical, identity_text, parse_physical

Value: TypeAlias = Any  # Physical, list[Value], dict[str, Value], list[tuple[Value, Value]], None
Leaf: TypeAlias = "Callable[[dl.DuckLakeType, str], Physical]"

_SPACES = " \t\n\v\f\r"
_SPECIAL = re.compile(r"[\[\]{}()=:,'\"]")
_QUOTED_BRACKET = re.compile(r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\"""", re.DOTALL)
_BRACKETS = frozenset("[]{}()")


def scalar_text(type_: dl.DuckLakeType, value: Physical) -> str:
    r"""Return DuckDB's text of a scalar value.

    >>> scalar_text(dl.ScalarType("blob"), b"\x00a"), scalar_text(dl.ScalarType("boolean"), True)
    ('\\x00a', 'true')
    """
    return identity_text(type_, value)


def parse_scalar(type_: dl.DuckLakeType, text: str) -> Physical:
    r"""Return the physical form of a scalar from DuckDB's text of it.

    >>> parse_scalar(dl.ScalarType("blob"), r"\xDE\xADab")
    b'\xde\xadab'
    """
    from .geometry import wkb_of_wkt
    from .variants import encode_variant

    if type_.facts.kind is dl.ScalarKind.VARIANT:  # the reference makes a string of any text
        return b"".join(encode_variant(text))
    if type_.facts.kind is dl.ScalarKind.GEOMETRY:
        return wkb_of_wkt(text)
    if type_.facts.kind is not dl.ScalarKind.BLOB:
        return parse_physical(type_, text)
    parts = re.split(r"\\x([0-9A-Fa-f]{2})", text)
    return b"".join(bytes.fromhex(part) if index % 2 else part.encode() for index, part in enumerate(parts))


def format_literal(type_: dl.DuckLakeType, value: Value) -> str:
    r"""Return the text of a nested value; the reference reads the same value back.

    >>> format_literal(dl.ListType(dl.ScalarType("varchar")), [b"a", None, b"it's", b""])
    "[a, NULL, 'it\\'s', '']"
    """
    return _format(type_, value, in_struct=True)


def _format(type_: dl.DuckLakeType, value: Value, *, in_struct: bool) -> str:
    """Return the text of a value; ``in_struct``: nothing but structs lie around it."""
    if value is None:
        return "NULL"
    match type_:
        case dl.ListType(element):
            return f"[{', '.join(_member(element, item, in_struct=False) for item in value)}]"
        case dl.MapType(key, item_type):
            pairs = (
                f"{_member(key, name, in_struct=False)}={_member(item_type, item, in_struct=False)}"
                for name, item in value
            )
            return f"{{{', '.join(pairs)}}}"
        case dl.StructType(fields):
            members = (
                f"{_quoted(field.name, in_struct=in_struct)}: "
                f"{_member(field.type, value[field.name], in_struct=in_struct)}"
                for field in fields
            )
            return f"{{{', '.join(members)}}}"
        case dl.ScalarType() | dl.DecimalType():
            return _format_scalar(type_, value, in_struct=in_struct)


def _member(type_: dl.DuckLakeType, value: Value, *, in_struct: bool) -> str:
    """Return the text of a value inside another one.

    DuckDB counts brackets without regard to quotes when it skips a nested value, so one with brackets in its
    strings goes into quotes as a whole.
    """
    text = _format(type_, value, in_struct=in_struct)
    nested = isinstance(value, list | dict)
    if nested and any(_BRACKETS & set(found[0]) for found in _QUOTED_BRACKET.finditer(text)):
        return _in_quotes(text, '"')
    return text


def _format_scalar(type_: dl.DuckLakeType, value: Physical, *, in_struct: bool) -> str:
    text = scalar_text(type_, value)
    if (in_struct and type_.facts.kind in dl.TEXTS) or _needs_quotes(text):
        return _quoted(text, in_struct=in_struct)
    return text


def _needs_quotes(text: str) -> bool:
    if not text or text[0] in _SPACES or text[-1] in _SPACES + "\\" or text.upper() == "NULL":
        return True
    return _SPECIAL.search(text) is not None


def _quoted(text: str, *, in_struct: bool) -> str:
    return _in_quotes(text, '"' if in_struct and ("'" in text or "\\" in text) else "'")


def _in_quotes(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def parse_literal(type_: dl.DuckLakeType, text: str) -> Value:
    r"""Return the nested value of a text that we wrote, or the reference.

    >>> parse_literal(dl.ListType(dl.ScalarType("varchar")), "[a, NULL, 'it\\'s', '']")
    [b'a', None, b"it's", b'']
    """
    try:
        return _LiteralReader(text, expressions=True).whole(type_)
    except ValueError:
        return _LiteralReader(text, expressions=False).whole(type_)  # a struct as DuckDB's cast writes it


def parse_cast(type_: dl.DuckLakeType, text: str) -> Value:
    r"""Return the nested value of a text that DuckDB's cast to VARCHAR made.

    >>> parse_cast(dl.StructType((dl.Field("a", dl.ScalarType("varchar")),)), r"{'a': 'it\'s'}")
    {'a': b"it's"}
    """
    return _LiteralReader(text, expressions=False).whole(type_)


def parse_written(type_: dl.DuckLakeType, text: str, leaf: Leaf) -> Value:
    r"""Return the nested value of a text that a user wrote; ``leaf`` reads its scalars.

    Raises:
        ValueError: the text is not valid for the type, or DuckDB may read another value.
    """
    return _StrictReader(text, expressions=False, leaf=leaf).whole(type_)


def map_of(pairs: list[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
    """Return the pairs of a map.

    Raises:
        ValueError: a key is NULL, which ends a process in Arrow, or two are equal. DuckDB has no such map.
    """
    keys = {repr(key) for key, _ in pairs}
    if len(keys) < len(pairs) or any(key is None for key, _ in pairs):
        raise ValueError(f"a map with the keys {', '.join(repr(key) for key, _ in pairs)}")
    return pairs


class _LiteralReader:
    """Recursive descent over one text, led by the type.

    ``expressions``: structs around which there are only structs have the members of an SQL expression.
    """

    def __init__(self, text: str, *, expressions: bool, leaf: Leaf = parse_scalar) -> None:
        self.text = text
        self.position = 0
        self.expressions = expressions
        self.leaf = leaf

    def fail(self) -> ValueError:
        return ValueError(f"cannot read {self.text!r} from character {self.position}")

    def whole(self, type_: dl.DuckLakeType) -> Value:
        value = self.value(type_, "", in_struct=self.expressions)
        self.skip_spaces()
        if self.position != len(self.text):
            raise self.fail()
        return value

    def skip_spaces(self) -> None:
        while self.position < len(self.text) and self.text[self.position] in _SPACES:
            self.position += 1

    def accept(self, symbol: str) -> bool:
        self.skip_spaces()
        if not self.text.startswith(symbol, self.position):
            return False
        self.position += len(symbol)
        return True

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.fail()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip_spaces()
        found = pattern.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def value(self, type_: dl.DuckLakeType, ends: str, *, in_struct: bool) -> Value:
        """Read a value up to one of the symbols ``ends``."""
        self.skip_spaces()
        if isinstance(type_, dl.ScalarType | dl.DecimalType):
            return self.scalar(type_, ends, in_struct=in_struct)
        if self.match(_NULL):
            return None
        if self.text[self.position : self.position + 1] in _QUOTES:
            inner = type(self)(self.string(in_struct=False), expressions=False, leaf=self.leaf)
            return inner.whole(type_)
        match type_:
            case dl.ListType(element):
                return self.list(element)
            case dl.MapType(key, item):
                return self.map(key, item)
            case dl.StructType(fields):
                return self.struct(fields, in_struct=in_struct)

    def members(self, opening: str, closing: str, read: Callable[[], None]) -> None:
        self.expect(opening)
        if self.accept(closing):
            return
        while True:
            read()
            if self.accept(closing):
                return
            self.expect(",")

    def list(self, element: dl.DuckLakeType) -> Value:
        found: list[Value] = []
        self.members("[", "]", lambda: found.append(self.value(element, ",]", in_struct=False)))
        return found

    def map(self, key: dl.DuckLakeType, item: dl.DuckLakeType) -> Value:
        found: list[tuple[Value, Value]] = []

        def pair() -> None:
            name = self.value(key, "=", in_struct=False)
            self.expect("=")
            found.append((name, self.value(item, ",}", in_struct=False)))

        self.match(_MAP)
        self.members("{", "}", pair)
        return map_of(found)

    def struct(self, fields: tuple[dl.Field, ...], *, in_struct: bool) -> Value:
        types = {fold(field.name): field for field in fields}
        found: dict[str, Value] = {}

        def member() -> None:
            name = self.name(in_struct=in_struct)
            self.expect(":")
            field = types.get(fold(name))
            if field is None or field.name in found:
                raise self.fail()
            found[field.name] = self.value(field.type, ",}", in_struct=in_struct)

        self.members("{", "}", member)
        return {field.name: found.get(field.name) for field in fields}

    def name(self, *, in_struct: bool) -> str:
        self.skip_spaces()
        if self.text[self.position : self.position + 1] in _QUOTES:
            return self.string(in_struct=in_struct)
        return self.bare(":")

    def bare(self, ends: str) -> str:
        """Return unquoted text up to one of the symbols."""
        start = self.position
        while self.position < len(self.text) and self.text[self.position] not in ends:
            self.position += 1
        return self.text[start : self.position].rstrip(_SPACES)

    def string(self, *, in_struct: bool) -> str:
        """Read a quoted string; single quotes ``in_struct`` are SQL's, all others have backslashes."""
        pattern = _SQL_STRING if in_struct and self.text[self.position] == "'" else _ESCAPED_STRING
        found = self.match(pattern)
        if found is None:
            raise self.fail()
        inner = found[0][1:-1]
        if pattern is _SQL_STRING:
            return inner.replace("''", "'")
        return re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL)

    def scalar(self, type_: dl.DuckLakeType, ends: str, *, in_struct: bool) -> Value:
        if in_struct and (text := self.expression()) is not None:
            return self.leaf(type_, text)
        if self.text[self.position : self.position + 1] in _QUOTES:
            return self.leaf(type_, self.string(in_struct=in_struct))
        text = self.bare(ends)
        return None if text.upper() == "NULL" else self.leaf(type_, text)

    def expression(self) -> str | None:
        """Read a cast, or a string put together around NULs, as the reference's struct members have them."""
        if found := self.match(_CAST):
            return found["text"] or found["old"] or ""
        if not self.match(_CONCAT):
            return None
        parts: list[str] = []
        while True:
            parts.append("\0" if self.match(_NUL) else self.string(in_struct=True))
            if self.accept(")"):
                return "".join(parts)
            self.expect(",")


class _StrictReader(_LiteralReader):
    """Reads no quotes, brackets and backslashes in texts without quotes: DuckDB gives them meanings."""

    def bare(self, ends: str) -> str:
        text = super().bare(ends)
        if _ODD.search(text):
            raise self.fail()
        return text


_ODD = re.compile(r"""['"()\[\]{}\\]""")
_QUOTES = ("'", '"')
_NULL = re.compile(r"NULL\b", re.IGNORECASE)
_MAP = re.compile(r"MAP\s*(?=\{)", re.IGNORECASE)
_SQL_STRING = re.compile(r"'(?:[^']++|'')*+'")
_ESCAPED_STRING = re.compile(r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\"""", re.DOTALL)
_CAST = re.compile(r"CAST\('(?P<text>[^']*)' AS [A-Za-z_ ]+(?:\([0-9, ]+\))?\)|'(?P<old>[^']*)'::[A-Za-z_ ]+")
_CONCAT = re.compile(r"CONCAT\((?=')")
_NUL = re.compile(r"chr\(0\)")
