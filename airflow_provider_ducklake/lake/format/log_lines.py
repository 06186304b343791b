"""Loggers whose records no name, path or value of a catalog can break into several lines."""

from __future__ import annotations

import logging

from ..errors import DuckLakeError, short_line


def logger(name: str) -> logging.Logger:
    """Return a module's logger: values in its records end no line and have no control characters."""
    found = logging.getLogger(name)
    found.addFilter(_in_lines)  # once, however often: it is the same function
    return found


def in_line(value: object) -> object:
    r"""Return a value as a record shows it; an error of ours has no line that begins like a record.

    >>> in_line("a/x\nERROR"), in_line(3)
    ('a/x\\nERROR', 3)
    """
    if value is None or isinstance(value, (int, float, DuckLakeError)):
        return value
    text = str(value)
    line = short_line(text)
    return value if line == text else line


def _in_lines(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(in_line, record.args))
    return True


# Numbers as a person reads them in a log: ``912,004 rows``, ``1 file``, ``21.4 MiB``, ``12.6 s``.


_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE = 60.0


def counted(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> counted(1, "file"), counted(912_004, "row"), counted(0, "data file")
    ('1 file', '912,004 rows', '0 data files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts(*parts: tuple[int, str] | tuple[int, str, str]) -> str:
    """Format the numbers that are not zero with their nouns, and with what became of them.

    >>> counts((2, "data file"), (0, "delete file"), (1, "row", " deleted")), counts((0, "file"))
    ('2 data files, 1 row deleted', 'nothing')
    """
    found = (counted(number, noun) + "".join(did) for number, noun, *did in parts if number)
    return ", ".join(found) or "nothing"


def size(number: int) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> size(700), size(2291), size(21_400 * 2**10), size(2**60)
    ('700 bytes', '2.2 KiB', '20.9 MiB', '1,048,576.0 TiB')
    """
    if number < _STEP:
        return counted(number, "byte")
    value, unit = float(number), 0
    while value >= _STEP and unit + 1 < len(_UNITS):
        value, unit = value / _STEP, unit + 1
    return f"{value:,.1f} {_UNITS[unit]}"


def lasting(seconds: float) -> str:
    """Return a duration.

    >>> lasting(0.04), lasting(12.62), lasting(134.7)
    ('0.0 s', '12.6 s', '2 min 15 s')
    """
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
