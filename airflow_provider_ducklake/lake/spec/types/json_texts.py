"""Which strings are JSON: those that the reference surely takes for a ``json`` column.

DuckDB reads JSON by yyjson and refuses a whole file for one string that is none. *Source:* verdicts of 1.5.5
(``tests/differential/test_json_texts.py``). It takes more than we do: commas before a closing bracket, more
spellings of NaN and infinity, and any depth, which Python's stack does not allow.
"""

from __future__ import annotations

import json
import re

MOST_LEVELS = 500
# numbers are not looked at: Python limits the digits of integers
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F])[0-9a-fA-F]{2}|.)",
    re.DOTALL,
)


def is_json(text: str) -> bool:
    r"""Whether a string is JSON that is not too deep; ``NaN``, ``Infinity`` and ``-Infinity`` are numbers.

    >>> is_json('{"a": [1, "b"]}'), is_json("{'a': 1}"), is_json(""), is_json(r'"\ud800"')
    (True, False, False, False)
    """
    if is_too_deep(text):
        return False
    try:
        _DECODER.decode(text)
    except ValueError:
        return False
    return not _has_half_a_pair(text)


def is_too_deep(text: str) -> bool:
    """Whether arrays and objects are nested in more than ``MOST_LEVELS`` levels."""
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return False
    level = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if level > MOST_LEVELS:
            return True
    return False


def _has_half_a_pair(text: str) -> bool:
    r"""Whether an escape as ``\ud83d`` stands without the other half of its surrogate pair."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    return any(escape[1] for escape in _ESCAPE.finditer(text))
