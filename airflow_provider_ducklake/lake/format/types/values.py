"""The catalog's text form of single values, from their physical (Parquet) form, and the order of those texts.

Physical forms: bool, int (integers; unscaled decimals; days since 1970 for date; micro-, milli- or
nanoseconds since midnight or 1970 for times, those of timetz in UTC), float, bytes (varchar as UTF-8, blob,
uuid as 16 bytes, big decimals big-endian, intervals as ``format.types.texts`` packs them). Working on
physical ints keeps years outside Python's datetime exact. *Source:* observed texts of the reference
(docs/sources.md, inserts).
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from .ducklake_types import TIMES, DecimalType, DuckLakeType, Scalar, ScalarKind, ScalarType
from .texts import format_interval, parse_interval

Physical: TypeAlias = bool | int | float | bytes

_DAY_SECONDS = 86_400


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of the proleptic Gregorian calendar for days since 1970-01-01.

    Year 0 is 1 BC. Works for any day, unlike ``datetime``. *Source:* the era arithmetic of Howard Hinnant's
    "chrono calendar" paper.
    """
    shifted = days + 719_468  # days since 0000-03-01
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9  # noqa: PLR2004 - March is 0
    return era * 400 + year_of_era + (month <= 2), month, day  # noqa: PLR2004 - January and February


def _date_parts(days: int) -> tuple[str, str]:
    """Return the date's digits and its suffix, ``" (BC)"`` before year 1."""
    year, month, day = civil_from_days(days)
    suffix = "" if year > 0 else " (BC)"
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}", suffix


def is_infinite(type_: DuckLakeType, value: int) -> bool:
    """Return True if a date or timestamp in physical form is DuckDB's ``infinity`` or ``-infinity``."""
    return abs(value) == type_.facts.infinity and type_.facts.kind is not ScalarKind.TIME


def is_readable(type_: DuckLakeType, value: object) -> bool:
    """Return False for a date or time in physical form that DuckDB does not read back from its text.

    *Source:* DuckDB 1.5.5, which refuses each query of a column that has such a bound.
    """
    if type_.facts.kind not in TIMES or not isinstance(value, int) or is_infinite(type_, value):
        return True
    first, last = readable_range(type_)
    return first <= value <= last


def readable_range(type_: DuckLakeType) -> tuple[int, int]:
    """Return the first and the last date or time, infinite ones apart, that DuckDB reads from its text."""
    row = type_.facts
    first, last = row.physical_range
    if row.kind is ScalarKind.DATE:
        first += 1
    elif row.kind is ScalarKind.TIMESTAMP:
        first = _FIRST_NANOSECOND
        if row.per_second <= _MICROS:
            first, last = (limit * row.per_second // _MICROS for limit in (_FIRST_MICROSECOND, row.infinity))
    return first, last


_MICROS = 10**6  # per second
_FIRST_MICROSECOND = -9_223_372_022_400_000_000  # 290309-12-22 (BC)
_FIRST_NANOSECOND = -9_223_286_400_000_000_000


def physical_range(type_: DuckLakeType) -> tuple[int, int]:
    """Return the least and the greatest physical form of a number or time; those of dates are infinite.

    >>> physical_range(ScalarType("uint8")), physical_range(DecimalType(3, 1))
    ((0, 255), (-999, 999))
    """
    if isinstance(type_, DecimalType):
        return 1 - 10**type_.precision, 10**type_.precision - 1
    return type_.facts.physical_range


def units_per_second(type_: DuckLakeType) -> Fraction:
    """Return the number of units of a date's or timestamp's physical form in a second."""
    row = type_.facts
    return Fraction(1, _DAY_SECONDS) if row.kind is ScalarKind.DATE else Fraction(row.per_second)


_DATE, _TIMESTAMP = ScalarType("date").facts, ScalarType("timestamp").facts


def format_date(days: int) -> str:
    """Return DuckDB's text of a date.

    >>> format_date(0), format_date(-719529), format_date(2**31 - 1)
    ('1970-01-01', '0002-12-31 (BC)', 'infinity')
    """
    if abs(days) == _DATE.infinity:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_date_parts(days))


def _format_clock(units: int, per_second: int) -> str:
    seconds, fraction = divmod(units, per_second)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if not fraction:
        return text
    digits = len(str(per_second)) - 1
    return f"{text}.{fraction:0{digits}d}".rstrip("0")


def format_timestamp(units: int, per_second: int, *, zone: str = "") -> str:
    """Return DuckDB's text of ``per_second`` units since 1970; ``zone`` is ``+00`` for timestamptz.

    >>> format_timestamp(-1, 10**6), format_timestamp(0, 10**6, zone="+00")
    ('1969-12-31 23:59:59.999999', '1970-01-01 00:00:00+00')
    """
    if abs(units) == _TIMESTAMP.infinity:
        return "infinity" if units > 0 else "-infinity"
    days, clock = divmod(units, _DAY_SECONDS * per_second)
    digits, suffix = _date_parts(days)
    return f"{digits}{suffix} {_format_clock(clock, per_second)}{zone}"


def format_float64(value: float) -> str:
    """Return the shortest text that reads back as the same double, in DuckDB's spelling.

    >>> format_float64(1e15), format_float64(1e16), format_float64(-0.0), format_float64(float("inf"))
    ('1000000000000000.0', '1e+16', '-0.0', 'inf')
    """
    return repr(value)


def format_float32(value: float) -> str:
    """Return the shortest text that reads back as the same single-precision float."""
    if not math.isfinite(value):
        return repr(value)
    bits = struct.pack("<f", value)
    for digits in range(1, 10):
        candidate = float(f"{value:.{digits}g}")
        if abs(candidate) < _FLOAT32_OVERFLOW and struct.pack("<f", candidate) == bits:
            return repr(candidate)
    return repr(value)


_FLOAT32_OVERFLOW = 3.4028235677973366e38  # half a step above the largest float32


def format_decimal(unscaled: int, precision: int, scale: int) -> str:
    """Return a decimal's text with its full scale; ``.5`` where no digit before the point is possible.

    >>> format_decimal(-700, 9, 2), format_decimal(5, 4, 3), format_decimal(5, 3, 3), format_decimal(12, 2, 0)
    ('-7.00', '0.005', '.005', '12')
    """
    whole_digits = 1 if precision > scale else 0
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled)).zfill(scale + whole_digits)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _bytes(value: Physical) -> bytes:
    assert isinstance(value, bytes)
    return value


def _zone(type_: DuckLakeType) -> str:
    return "+00" if type_.facts.zoned else ""


def format_physical(type_: DuckLakeType, value: Physical) -> str:
    """Return the statistics text of ``value``, which is in the physical form of ``type_``.

    >>> format_physical(DecimalType(9, 2), 150), format_physical(ScalarType("boolean"), True)
    ('1.50', '1')
    """
    return _CODECS[type_.facts.kind].format(type_, value)


def _format_integer(_: DuckLakeType, value: Physical) -> str:
    return str(int(value))


def _format_decimal(type_: DuckLakeType, value: Physical) -> str:
    assert isinstance(type_, DecimalType)
    unscaled = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
    return format_decimal(unscaled, type_.precision, type_.scale)


def _format_float(type_: DuckLakeType, value: Physical) -> str:
    return (format_float32 if type_.facts.bits == _SINGLE else format_float64)(float(value))


def _format_time(type_: DuckLakeType, value: Physical) -> str:
    return _format_clock(int(value), type_.facts.per_second) + _zone(type_)


def _format_timestamp(type_: DuckLakeType, value: Physical) -> str:
    return format_timestamp(int(value), type_.facts.per_second, zone=_zone(type_))


def parse_physical(type_: DuckLakeType, text: str) -> Physical:
    """Return the physical form of a value from its text; the inverse of ``format_physical``.

    Also reads ``true`` and ``false``, and timestamps with another offset than ``+00``, as defaults are
    stored.

    >>> parse_physical(DecimalType(9, 2), "1.50"), parse_physical(ScalarType("date"), "0002-12-31 (BC)")
    (150, -719529)

    Raises:
        ValueError, ArithmeticError: the text is not a value of the type, or it is out of the type's range.
    """
    value = _CODECS[type_.facts.kind].parse(type_, text)
    if isinstance(value, int):
        low, high = physical_range(type_)
        if not low <= value <= high:
            raise ValueError(f"{text!r:.80} is out of range for {type_}")
    return value


def _parse_decimal(type_: DuckLakeType, text: str) -> int:
    assert isinstance(type_, DecimalType)
    return int(_number(text).scaleb(type_.scale, _ENOUGH_DIGITS))


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if not is_short(number):  # also NaN and Infinity, which integers and decimals never are
        raise ValueError(f"{text!r:.80} is not a number that a column has")
    return number


def is_short(number: Decimal) -> bool:
    """Return True if a number is finite and its digits are so few that arithmetic on it is fast.

    >>> is_short(Decimal("9" * 39)), is_short(Decimal("1e999999"))
    (True, False)
    """
    return number.is_finite() and abs(number.adjusted()) <= _MOST_DIGITS


_MOST_DIGITS = 400  # before or behind the point; more than any type holds


_ENOUGH_DIGITS = Context(prec=80)
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def _parse_boolean(_: DuckLakeType, text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError(f"{text!r} is not a boolean")
    return _BOOLEANS[text]


def as_float32(value: float) -> float:
    """Return the nearest single-precision float."""
    if math.isfinite(value) and abs(value) >= _FLOAT32_OVERFLOW:
        return math.copysign(math.inf, value)
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _parse_float(type_: DuckLakeType, text: str) -> float:
    """Return the float of a text; one of single precision may have too few digits to name it as a double."""
    return as_float32(float(text)) if type_.facts.bits == _SINGLE else float(text)


_SINGLE = 32  # bits
_MOMENT = re.compile(
    r"(?:(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)(?P<bc> \(BC\))?)?"
    r"(?:[ T]?(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?:(?P<sign>[+-])(?P<zone_hour>\d\d)(?::?(?P<zone_minute>\d\d)(?::(?P<zone_second>\d\d))?)?)?"
)


def _parse_moment(type_: DuckLakeType, text: str) -> int:
    row = type_.facts
    if text in ("infinity", "-infinity"):
        return row.infinity if text == "infinity" else -row.infinity
    match = _MOMENT.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is no {type_}")
    days = _parsed_days(match)
    if row.kind is ScalarKind.DATE:
        return days
    units = _parsed_units(match, days, row)
    return units % (_DAY_SECONDS * row.per_second) if row.kind is ScalarKind.TIME and row.zoned else units


def _parsed_days(match: re.Match[str]) -> int:
    if match["year"] is None:
        return 0
    year = 1 - int(match["year"]) if match["bc"] else int(match["year"])
    return days_from_civil(year, int(match["month"]), int(match["day"]))


def _parsed_units(match: re.Match[str], days: int, row: Scalar) -> int:
    parts = ("hour", "minute", "second", "zone_hour", "zone_minute", "zone_second")
    hour, minute, second, zone_hour, zone_minute, zone_second = (int(match[part] or 0) for part in parts)
    offset = (zone_hour * 3600 + zone_minute * 60 + zone_second) * (-1 if match["sign"] == "-" else 1)
    seconds = days * _DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    units, finer = divmod(int((match["fraction"] or "").ljust(9, "0")) * row.per_second, 10**9)
    if finer or units % row.step:  # a bound of a file of finer times, which are rounded when they are read
        raise ValueError(f"{match[0]!r} is finer than the type")
    return seconds * row.per_second + units


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date of the proleptic Gregorian calendar; year 0 is 1 BC."""
    from_march = year - (month <= 2)  # noqa: PLR2004 - January and February
    era, year_of_era = divmod(from_march, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


OrderKey: TypeAlias = Any  # comparable among keys of one type


def order_key(type_: DuckLakeType, text: str) -> OrderKey:
    """Return a value that orders two statistics texts of one type as the reference does.

    Numbers and times by value, strings and blobs by bytes. A float32's text is read as the float32 that it
    means: ``34061770.0`` is 34061768.
    """
    return _CODECS[type_.facts.kind].order_key(type_, text)


def _number_key(_: DuckLakeType, text: str) -> OrderKey:
    return _number(text)


def _boolean_key(_: DuckLakeType, text: str) -> OrderKey:
    return int(text in ("1", "true"))


def _bytes_key(_: DuckLakeType, text: str) -> OrderKey:
    return text.encode("utf-8", "surrogatepass")


def _moment_key(_type: DuckLakeType, text: str) -> tuple[int, ...]:
    """Return comparable digits: (±infinity, year, month, day, hour, minute, second, nanosecond)."""
    if text in ("infinity", "-infinity"):
        return (1 if text == "infinity" else -1,)
    before_christ = " (BC)" in text
    text = text.replace(" (BC)", "").removesuffix("+00")
    date_text, _, clock = text.partition(" ") if "-" in text else ("1970-01-01", "", text)
    year, month, day = (int(part) for part in date_text.split("-"))
    seconds, _, fraction = (clock or "00:00:00").partition(".")
    return (
        0,
        1 - year if before_christ else year,
        month,
        day,
        *(int(part) for part in seconds.split(":")),
        int(fraction.ljust(9, "0") or "0"),
    )


def identity_text(type_: DuckLakeType, value: Physical) -> str:
    """Return DuckDB's cast of a value to text, which identity partitions store."""
    match type_.facts.kind:
        case ScalarKind.BOOLEAN:
            return "true" if value else "false"
        case ScalarKind.BLOB:
            return "".join(chr(byte) if _shown(byte) else f"\\x{byte:02X}" for byte in _bytes(value))
        case _:
            return format_physical(type_, value)


def _shown(byte: int) -> bool:
    return 32 <= byte <= 126 and chr(byte) not in "\"'\\"  # noqa: PLR2004 - printable ASCII


@dataclass(frozen=True, slots=True)
class _Codec:
    format: Callable[[DuckLakeType, Physical], str]
    parse: Callable[[DuckLakeType, str], Physical]
    order_key: Callable[[DuckLakeType, str], OrderKey]


def _no_text(type_: DuckLakeType, _: object) -> Any:  # noqa: ANN401 - it never returns
    raise ValueError(f"values of type {type_} cannot be written as text")


_STRING = _Codec(lambda _, value: _bytes(value).decode(), lambda _, text: text.encode(), _bytes_key)
_CODECS = {
    ScalarKind.BOOLEAN: _Codec(_format_integer, _parse_boolean, _boolean_key),
    ScalarKind.INTEGER: _Codec(_format_integer, lambda _, text: int(text), _number_key),
    ScalarKind.DECIMAL: _Codec(_format_decimal, _parse_decimal, _number_key),
    ScalarKind.FLOAT: _Codec(_format_float, _parse_float, _parse_float),
    ScalarKind.STRING: _STRING,
    ScalarKind.JSON: _STRING,
    ScalarKind.BLOB: _Codec(
        lambda _, value: _bytes(value).hex().upper(), lambda _, text: bytes.fromhex(text), _bytes_key
    ),
    ScalarKind.UUID: _Codec(
        lambda _, value: str(uuid.UUID(bytes=_bytes(value))),
        lambda _, text: uuid.UUID(text).bytes,
        _bytes_key,
    ),
    ScalarKind.DATE: _Codec(lambda _, value: format_date(int(value)), _parse_moment, _moment_key),
    ScalarKind.TIME: _Codec(_format_time, _parse_moment, _moment_key),
    ScalarKind.TIMESTAMP: _Codec(_format_timestamp, _parse_moment, _moment_key),
    ScalarKind.INTERVAL: _Codec(
        lambda _, value: format_interval(_bytes(value)), lambda _, text: parse_interval(text), _number_key
    ),
    ScalarKind.VARIANT: _Codec(_no_text, _no_text, _number_key),
    ScalarKind.GEOMETRY: _Codec(_no_text, _no_text, _number_key),
    ScalarKind.NULL: _Codec(_no_text, _no_text, _number_key),
    ScalarKind.OTHER: _Codec(_no_text, _no_text, _number_key),
    ScalarKind.NESTED: _Codec(_no_text, _no_text, _number_key),
}
