import pytest

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidNameError, InvalidTypeError
from airflow_provider_ducklake.lake.format.schema import assemble, new_columns, resolve_path
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type

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
