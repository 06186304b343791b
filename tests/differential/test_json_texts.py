"""No string that we take for JSON is refused by the reference, which would refuse the whole file."""

import json

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.types.texts import is_json, is_too_deep

HALF_PAIRS = [r'"\ud800"', r'"\udc00"', r'"\uD83D\n"', r'"\ud83d\ud83d\ude00"', r'["\\", "\udbff"]']
NEITHER_TAKES = [
    *(
        "",
        " ",
        "not json",
        "nul",
        "True",
        "'a'",
        "{a:1}",
        "{'a':1}",
        "{1:2}",
        '{"a"}',
        "[1 2]",
        "1 2",
        "{} {}",
    ),
    *("01", "-01", "+1", "1.", ".5", "-", "1e", "1.5e", "0x10", "1_000", "--1", "[,]", "[1,,2]", "[]]"),
    *('"a', '"\\"', r'"\x41"', r'"\a"', r'"\u12g4"', r'"\U0041"', '"\t"', '"\x01"', '"\n"', '"abc"def'),
    *("\ufeff1", "\x0b1", "\xa01", "\u20281", "1\x0c", "1\x00", '"\x00"', "/*c*/1", "1//c", "[-Nan]x"),
    *HALF_PAIRS,
]
BOTH_TAKE = [
    *(
        "1",
        "-0",
        "0e1",
        "1E+5",
        "1e999",
        "1" * 5000,
        "0." + "1" * 400,
        "null",
        "true",
        '""',
        " 1 ",
        "\n1\t\r",
    ),
    *("NaN", "Infinity", "[-Infinity]", '{"a":1,"a":2}', '{"":1}', '"\u2028"', '"\x7f"', '"😀"', '"\ud7ff"'),
    *(r'"\ud83d\ude00"', r'"\\ud800"', r'"\u0000"', r'"\/"', "[" * 500 + "]" * 500),
    *(
        "[" + ",".join(["[1]", '{"a":2}'] * 999) + "]",
        '"' + "[{" * 999 + '"',
        r'["\\"' + r',"[\""' * 999 + "]",
    ),
]
TOO_DEEP = ["[" * 501 + "]" * 501, '{"a":[' * 251 + "]}" * 251, "[" * 9999 + "]" * 9999]
ONLY_THE_REFERENCE_TAKES = ["[1,]", '{"a":1,}', "nan", "-NaN", "inf", "INFINITY", *TOO_DEEP]


@pytest.fixture(scope="module")
def verdict():
    with duckdb.connect() as connection:
        yield lambda text: connection.execute("SELECT json_valid(?)", [text]).fetchone() == (True,)


def test_known_verdicts(verdict):
    found = {
        text: (is_json(text), verdict(text))
        for text in (*NEITHER_TAKES, *BOTH_TAKE, *ONLY_THE_REFERENCE_TAKES)
    }

    assert {text for text in NEITHER_TAKES if found[text] != (False, False)} == set()
    assert {text for text in BOTH_TAKE if found[text] != (True, True)} == set()
    assert {text for text in ONLY_THE_REFERENCE_TAKES if found[text] != (False, True)} == set()


def test_only_deep_nesting_is_called_too_deep():
    assert [text for text in TOO_DEEP if not is_too_deep(text)] == []
    assert [text for text in (*NEITHER_TAKES, *BOTH_TAKE) if is_too_deep(text)] == []


def at_depth(frames: int) -> bool:
    """Return what is said of values at the limit where so much of the stack is in use."""
    return at_depth(frames - 1) if frames else is_json("[" * 500 + "]" * 500)


def test_the_limit_is_the_same_wherever_it_is_asked_for():
    assert at_depth(300)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)
PIECES = st.sampled_from(
    [
        *'{}[],:"\\/ \t\n\r\x0c\x0b\x00\x01\ufeff\u20280123456789+-.eEuU',
        *("\\u", "\\ud8", "dc00", "NaN", "null", "tr"),
    ]
)


@st.composite
def nearly_json(draw) -> str:
    """Draw JSON with a few pieces put in, or characters left out."""
    text = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(PIECES | st.just("")) + text[place + draw(st.integers(0, 2)) :]
    return text.encode(errors="replace").decode()


@given(text=nearly_json() | st.lists(PIECES, max_size=8).map("".join))
def test_what_we_take_the_reference_takes(verdict, text):
    if is_json(text):
        assert verdict(text)
