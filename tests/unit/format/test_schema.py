"""Schemas and types: ids, names, spellings, promotions."""

import pytest

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidNameError, InvalidTypeError
from airflow_provider_ducklake.lake.format.schema import assemble, new_columns, resolve_path
from airflow_provider_ducklake.lake.format.types.ducklake_types import can_promote, check_storable, parse_type

SCHEMA = new_columns(
    {"id": "int64", "Address": "struct(zip varchar, tags varchar[])", "m": "map(varchar, struct(a int8))"},
    not_null=["ID"],
)


def test_ids_count_depth_first_with_parents_before_children():
    assert [(column.id, column.name) for column in SCHEMA.walk()] == [
        (1, "id"),
        (2, "Address"),
        (3, "zip"),
        (4, "tags"),
        (5, "element"),
        (6, "m"),
        (7, "key"),
        (8, "value"),
        (9, "a"),
    ]


def test_leaves_are_the_columns_with_values():
    assert {column_id: str(type_) for column_id, type_ in SCHEMA.leaf_types().items()} == {
        1: "int64",
        3: "varchar",
        5: "varchar",
        7: "varchar",
        9: "int8",
    }


def test_not_null_names_ignore_case():
    assert [column.nullable for column in SCHEMA.columns] == [False, True, True]


def test_a_schema_is_put_together_from_its_catalog_rows():
    rows = [
        (column, parent.id if parent else None, column.catalog_type)
        for column, parent in _with_parents(SCHEMA.columns, None)
    ]

    assert assemble(rows) == SCHEMA


def _with_parents(columns, parent):
    for column in columns:
        yield column, parent
        yield from _with_parents(column.children, column)


def test_columns_are_found_by_name_path_and_id():
    assert SCHEMA.find("ADDRESS").id == 2
    assert resolve_path(SCHEMA, "address.ZIP", "t").id == 3
    assert SCHEMA.by_id(9).name == "a"
    for missing in (
        lambda: SCHEMA.find("x"),
        lambda: resolve_path(SCHEMA, "address.x", "t"),
        lambda: SCHEMA.by_id(99),
    ):
        with pytest.raises(ColumnNotFoundError):
            missing()


@pytest.mark.parametrize("fields", [{}, {"": "int8"}, {"a\0": "int8"}, {"a": "int8", "A": "int8"}])
def test_unusable_column_names_are_refused(fields):
    with pytest.raises(InvalidNameError):
        new_columns(fields)


def test_a_type_that_cannot_be_stored_is_refused_with_its_column():
    with pytest.raises(InvalidTypeError, match=r"Column c\.element\.x has type time_ns"):
        new_columns({"c": parse_type("struct(x time_ns)[]")})


# --- types ---

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
