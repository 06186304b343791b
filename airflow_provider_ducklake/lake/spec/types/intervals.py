"""The text of intervals: months, days and microseconds, none of which is counted in another.

*Source:* DuckDB's text of an interval and PostgreSQL's, and the cast that the reference writes for members of
structs.
"""

from __future__ import annotations

import re
import struct

INTERVAL = struct.Struct("<iiq")  # months, days, microseconds: the physical form
_MONTHS_PER_YEAR = 12
_COUNT = re.compile(r"(?P<count>[+-]?\d+) (?P<unit>year|mon|day|microsecond)(?:th)?s?(?: |$)")
_CLOCK = re.compile(
    r"(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d{1,6}))?"
)


def parse_interval(text: str) -> bytes:
    """Return the physical form of an interval, which ``INTERVAL`` unpacks.

    >>> INTERVAL.unpack(parse_interval("1 year -3 days 05:00:00.5"))
    (12, -3, 18000500000)

    Raises:
        ValueError: the text is no interval.
    """
    counts = dict.fromkeys(("year", "mon", "day", "microsecond"), 0)
    place = 0
    while found := _COUNT.match(text, place):
        counts[found["unit"]] += int(found["count"])
        place = found.end()
    if text[place:] or not text:
        counts["microsecond"] += _clock(text[place:])
    months = _MONTHS_PER_YEAR * counts["year"] + counts["mon"]
    try:
        return INTERVAL.pack(months, counts["day"], counts["microsecond"])
    except struct.error:
        raise ValueError(f"{text!r} is an interval out of range") from None


def format_interval(value: bytes) -> str:
    """Return DuckDB's text.

    >>> format_interval(INTERVAL.pack(14, -3, 18_000_500_000)), format_interval(INTERVAL.pack(0, 0, 0))
    ('1 year 2 months -3 days 05:00:00.5', '00:00:00')
    """
    months, days, microseconds = INTERVAL.unpack(value)
    sign = -1 if months < 0 else 1
    years, months = divmod(abs(months), _MONTHS_PER_YEAR)
    counts = ((sign * years, "year"), (sign * months, "month"), (days, "day"))
    parts = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in counts if count]
    if microseconds or not parts:
        parts.append(_clock_text(microseconds))
    return " ".join(parts)


def _clock_text(microseconds: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 10**6)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if fraction:
        text += f".{fraction:06d}".rstrip("0")
    return f"-{text}" if microseconds < 0 else text


def _clock(text: str) -> int:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a valid interval")
    seconds = (int(found["hours"]) * 60 + int(found["minutes"])) * 60 + int(found["seconds"])
    microseconds = seconds * 10**6 + int((found["fraction"] or "").ljust(6, "0"))
    return -microseconds if found["sign"] == "-" else microseconds
