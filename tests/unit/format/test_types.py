import pytest

from airflow_provider_ducklake.lake.errors import InvalidTypeError
from airflow_provider_ducklake.lake.format.types.ducklake_types import can_promote, check_storable, parse_type

SPELLINGS = [
    ("BIGINT", "int64"),
    ("double", "float64"),
    ("varchar(10)", "varchar"),
    ("numeric", "decimal(18,3)"),
    ("decimal(5)", "decimal(5,0)"),
    ("decimal( 5 , 2 )", "decimal(5,2)"),
    ("timestamp  with time  zone", "timestamptz"),
    ("timestamp_us", "timestamp"),
    ("text[][]", "varchar[][]"),
    ('row(a int, "b c" real)', 'struct(a int32, "b c" float32)'),
    ('struct("a""b" int)', 'struct("a""b" int32)'),
    ("MAP( varchar , struct(x int)[] )", "map(varchar, struct(x int32)[])"),
]
WRONG = [
    "",
    "money",
    "int64 x",
    "decimal(0,0)",
    "decimal(39,1)",
    "decimal(3,4)",
    "decimal(a)",
    "map(varchar)",
    "struct()",
    "struct(a)",
    "struct(a int, A int)",
    "int64[",
    "int64[3]",
    "varchar(",
]


@pytest.mark.parametrize(("text", "normal"), SPELLINGS)
def test_usual_spellings_are_understood(text, normal):
    assert str(parse_type(text)) == normal


@pytest.mark.parametrize("text", WRONG)
def test_wrong_types_are_refused_with_their_text(text):
    with pytest.raises(InvalidTypeError) as caught:
        parse_type(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["time_ns", "struct(a time_ns)", "unknown[]", "map(varchar, time_ns)"])
def test_types_whose_values_do_not_survive_are_refused_by_column(text):
    with pytest.raises(InvalidTypeError, match="Column c"):
        check_storable(parse_type(text), "c")


def test_promotion_keeps_every_digit():
    assert can_promote(parse_type("decimal(9,2)"), parse_type("decimal(11,4)"))
    assert not can_promote(parse_type("decimal(9,2)"), parse_type("decimal(10,4)"))
    assert can_promote(parse_type("int8[]"), parse_type("int64[]"))
    assert not can_promote(parse_type("int64"), parse_type("float64"))
