"""Texts of CSV and JSON files as values of a type: what DuckDB's cast reads without loss, or no value.

Arrow's casts read what they are strict about; a column in which they refuse a text is read value by value,
with the spellings that DuckDB takes beside them. *Source:* DuckDB 1.5.5, ``CAST(text AS type)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidOptionError
from ...format.types.ducklake_types import MAX_DECIMAL_PRECISION, DuckLakeType, ScalarKind, ScalarType
from ...format.types.literals import parse_scalar
from ...format.types.values import Physical, format_date, parse_physical
from ..arrow.arrow_types import arrow_type, from_physical

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = dict.fromkeys(("true", "t", "1", "yes", "y"), True) | dict.fromkeys(
    ("false", "f", "0", "no", "n"), False
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?([0-9]+))?")
_SPACES = " \t\n\v\f\r"
_MOMENT = re.compile(
    r"(?P<date>(?P<year>\d{4,})-(?P<month>\d\d?)-(?P<day>\d\d?)(?P<bc> \(BC\))?)"
    r"(?:[ T](?P<clock>(?:[01]?\d|2[0-3]):[0-5]?\d(?::[0-5]?\d(?:\.\d{1,6}0*)?)?)"
    r"(?P<zone>Z| UTC|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_HOUR = len("2024-01-31 12")  # which Arrow takes
_ZONE = r"(?:Z|UTC|[+-]\d\d(?::?\d\d)?)$"


@dataclass(frozen=True, slots=True)
class Formats:
    """How dates and times are spelled where a user says so, in Java's patterns; None: as DuckDB reads them.

    ``zone`` is that of times without one in columns of instants.
    """

    date: str | None = None
    timestamp: str | None = None
    local: str | None = None
    zone: str = "UTC"

    def of(self, type_: DuckLakeType) -> str | None:
        """Return the pattern of a type's texts."""
        facts = type_.facts
        if facts.kind is ScalarKind.DATE:
            return self.date
        if facts.kind is ScalarKind.TIMESTAMP:
            return self.timestamp if facts.zoned else self.local or self.timestamp
        return None


def values_of_texts(texts: pa.Array, type_: DuckLakeType, formats: Formats) -> pa.Array:
    """Return texts as values of a scalar type, in its Arrow type.

    Raises:
        ValueError: a text is not valid for the type.
    """
    pattern = formats.of(type_)
    if pattern is not None:
        texts = _in_iso(texts, pattern)
    if type_.facts.kind is ScalarKind.STRING:
        return texts
    try:
        return _cast(texts, type_, formats)
    except (pa.ArrowException, ValueError):
        return from_physical(
            type_, [None if one is None else value_of_text(one, type_, formats) for one in texts.to_pylist()]
        )


def too_many_digits(scale: int) -> str:
    """Return a pattern for the digits of decimals that pyarrow 26 may read as another number.

    With an exponent it may do so, too, or end the process.
    """
    return rf"[0-9.]{{{MAX_DECIMAL_PRECISION}}}|[0-9]{{{MAX_DECIMAL_PRECISION + 1 - scale}}}"


def plain_decimals(texts: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Return texts of decimals without exponents and needless digits, where pyarrow wants it.

    Raises:
        ValueError: a number has more digits than the type.
    """
    if not pc.any(pc.match_substring_regex(texts, f"[eE]|{too_many_digits(type_.scale)}")).as_py():
        return texts
    return pa.array([one if one is None else _plain(one, type_) for one in texts.to_pylist()], pa.string())


def _plain(text: str, type_: pa.Decimal128Type) -> str:
    found = _DECIMAL.fullmatch(text.strip(_SPACES))
    if found is None:
        return text
    if len((found[1] or "").lstrip("0")) > 2:  # noqa: PLR2004 - no decimal has 100 digits
        raise ValueError(text)
    whole, _, fraction = format(Decimal(found[0]), "f").partition(".")
    fraction = fraction.rstrip("0")
    if len(fraction) > type_.scale or len(whole.lstrip("+-0")) > type_.precision - type_.scale:
        raise ValueError(text)
    return f"{whole}.{fraction}" if fraction else whole


def _cast(texts: pa.Array, type_: DuckLakeType, formats: Formats) -> pa.Array:
    facts, target = type_.facts, arrow_type(type_)
    if facts.kind is ScalarKind.INTEGER and pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        raise pa.ArrowInvalid("hexadecimal digits, which Arrow reads as bits")
    if facts.kind is ScalarKind.DECIMAL:
        return plain_decimals(texts, target).cast(target)
    if facts.kind is ScalarKind.TIMESTAMP and pc.any(pc.equal(pc.binary_length(texts), _HOUR)).as_py():
        raise pa.ArrowInvalid("an hour without minutes")
    if facts.kind is ScalarKind.TIMESTAMP and facts.zoned:
        has_zone = pc.match_substring_regex(texts, _ZONE)
        if pc.any(has_zone).as_py():  # of all, or Arrow refuses the others
            return texts.cast(target)
        return pc.assume_timezone(texts.cast(pa.timestamp(target.unit)), formats.zone).cast(target)
    if facts.kind is ScalarKind.BLOB and pc.any(pc.match_substring_regex(texts, r"\\|[^\x00-\x7f]")).as_py():
        raise pa.ArrowInvalid("bytes in hexadecimal digits, or none at all")
    return texts.cast(target)


def value_as_formatted(text: str, type_: DuckLakeType, formats: Formats) -> Physical:
    """Return the physical form of one text, which a user's pattern spells if there is one for the type.

    Raises:
        ValueError: the text is not valid for the type.
    """
    if formats.of(type_) is None:
        return value_of_text(text, type_, formats)
    unit = pa.int32() if type_.facts.kind is ScalarKind.DATE else pa.int64()
    (value,) = values_of_texts(pa.array([text]), type_, formats).cast(unit)
    return int(value.as_py())


_NO_BYTE = re.compile(r"\\(?!x[0-9A-Fa-f]{2})")


def value_of_text(text: str, type_: DuckLakeType, formats: Formats) -> Physical:
    """Return the physical form of one text; a user's pattern is applied before.

    >>> value_of_text(" +7", ScalarType("int64"), Formats())
    7

    Raises:
        ValueError: the text is not valid for the type.
    """
    kind, stripped = type_.facts.kind, text.strip(_SPACES)
    try:
        match kind:
            case ScalarKind.STRING | ScalarKind.JSON:
                return text.encode()
            case ScalarKind.BLOB if text.isascii() and not _NO_BYTE.search(text):
                return parse_scalar(type_, text)
            case ScalarKind.BOOLEAN:
                return _BOOLEANS[text.lower()]
            case ScalarKind.INTEGER if not _NUMBER.fullmatch(stripped):
                raise ValueError(text)
            case ScalarKind.INTEGER | ScalarKind.DECIMAL | ScalarKind.FLOAT:
                plain = stripped[1:] if _NUMBER.fullmatch(stripped) and stripped[0] == "+" else stripped
                texts = pa.array([plain], pa.string())
                target = arrow_type(type_)
                texts = plain_decimals(texts, target) if kind is ScalarKind.DECIMAL else texts
                (value,) = texts.cast(target)
                return parse_physical(type_, _exact(value))
            case ScalarKind.DATE | ScalarKind.TIMESTAMP:
                return _moment(stripped, type_, formats)
            case _:
                raise ValueError(text)
    except (LookupError, pa.ArrowException, UnicodeEncodeError):
        raise ValueError(text) from None


def _exact(value: pa.Scalar) -> str:
    found = value.as_py()
    return format(found, "f") if pa.types.is_decimal(value.type) else repr(found)


def _moment(text: str, type_: DuckLakeType, formats: Formats) -> Physical:
    facts = type_.facts
    if text in ("infinity", "-infinity"):
        return parse_physical(type_, text)
    found = _MOMENT.fullmatch(text)
    if found is None or (facts.kind is ScalarKind.DATE and found["clock"] is not None):
        raise ValueError(text)  # a time would be cut off
    date = f"{found['year']}-{found['month']:0>2}-{found['day']:0>2}{found['bc'] or ''}"
    days = parse_physical(ScalarType("date"), date)
    if format_date(int(days)) != date:
        raise ValueError(text)  # no day of that month
    if facts.kind is ScalarKind.DATE:
        return days
    if (found["zone"] is not None) and not facts.zoned:
        raise ValueError(text)
    clock = ":".join(f"{part:0>2}" for part in (found["clock"] or "0").split(":"))
    clock += ":00" * (2 - clock.count(":"))
    if found["zone"] is None and facts.zoned and formats.zone != "UTC":
        (value,) = _cast(pa.array([f"{date} {clock}"]), type_, formats).cast(pa.int64())
        return int(value.as_py())
    zone = "" if found["zone"] in (None, "Z", " UTC") else found["zone"]
    return parse_physical(type_, f"{date} {clock}{zone}")


# --- a user's patterns, which are Java's

_LETTERS = {
    "yyyy": r"(?P<y>\d{4})",
    "MM": r"(?P<M>\d\d)",
    "M": r"(?P<M>\d\d?)",
    "dd": r"(?P<d>\d\d)",
    "d": r"(?P<d>\d\d?)",
    "HH": r"(?P<H>\d\d)",
    "H": r"(?P<H>\d\d?)",
    "mm": r"(?P<m>\d\d)",
    "m": r"(?P<m>\d\d?)",
    "ss": r"(?P<s>\d\d)",
    "s": r"(?P<s>\d\d?)",
    **dict.fromkeys(("X", "XX", "XXX", "Z", "xxx", "xx"), r"(?P<z>Z|[+-]\d\d(?::?\d\d)?)"),
}
_PIECE = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", re.DOTALL)


def _in_iso(texts: pa.Array, pattern: str) -> pa.Array:
    """Return texts of a pattern as ISO 8601 spells them; a text of another pattern is not valid."""
    regex = regex_of(pattern)
    if not pc.all(pc.match_substring_regex(texts, regex), min_count=0).as_py():
        wrong = pc.filter(texts, pc.invert(pc.match_substring_regex(texts, regex)))
        raise ValueError(wrong[0].as_py())
    parts = pc.extract_regex(texts, regex)
    names = {field.name for field in parts.type}

    def part(name: str, default: str) -> pa.Array | pa.Scalar:
        if name not in names:
            return pa.scalar(default)
        found = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(found, ""), default, pc.utf8_lpad(found, len(default), "0"))

    date = pc.binary_join_element_wise(part("y", "1970"), part("M", "01"), part("d", "01"), "-")
    if not names & set("HmsSz"):
        return date
    clock = pc.binary_join_element_wise(part("H", "00"), part("m", "00"), part("s", "00"), ":")
    pieces = [date, pa.scalar(" "), clock]
    if "S" in names:
        fraction = pc.struct_field(parts, "S")
        pieces += [pc.if_else(pc.equal(fraction, ""), "", "."), fraction]
    if "z" in names:
        pieces.append(pc.struct_field(parts, "z"))
    return pc.binary_join_element_wise(*pieces, "")


def regex_of(pattern: str) -> str:
    r"""Return the regular expression, with a named group for each part, of a pattern of Java's.

    >>> regex_of("dd.MM.yyyy")
    '^(?P<d>\\d\\d)\\.(?P<M>\\d\\d)\\.(?P<y>\\d{4})$'

    Raises:
        InvalidOptionError: it has a letter that is not read here.
    """
    made = []
    for found in _PIECE.finditer(pattern):
        letters, other = found["letters"], found["other"]
        if letters is None:
            made.append({"[": "(?:", "]": ")?"}.get(other or "", re.escape(found["quoted"] or other or "'")))
        elif set(letters) == {"S"}:
            made.append(rf"(?P<S>\d{{1,{len(letters)}}})")
        elif letters in _LETTERS:
            made.append(_LETTERS[letters])
        else:
            raise InvalidOptionError(
                f"The pattern {pattern!r} has {letters!r}; those that are read are {', '.join(_LETTERS)} and "
                "S. Give the column as string in the option schema, and convert it by sql (to_timestamp)."
            )
    return f"^{''.join(made)}$"
