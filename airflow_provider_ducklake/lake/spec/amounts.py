"""Numbers as a person reads them in a log: ``912,004 rows``, ``1 file``, ``21.4 MiB``, ``12.6 s``."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE = 60.0


def counted(number: int, noun: str) -> str:
    """Return how many there are.

    >>> counted(1, "file"), counted(912_004, "row"), counted(0, "data file")
    ('1 file', '912,004 rows', '0 data files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
