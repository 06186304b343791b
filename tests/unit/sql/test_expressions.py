"""What the words of an expression tell before Spark is asked; tests/spark asks Spark about the same."""

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.sql.spark.conditions import check_expression, equal_columns, may_read
from tests.unit.sql.conditions import ACCEPTED

STARS = (
    "*",
    "hash(*)",
    "hash(target.*)",
    "size(array(*)) > 1",
    "struct(id, *)",
    "count(DISTINCT *) > 1",
    "hash( /* all */ * )",
    "2 + *",
)
PRODUCTS = (
    "2 * 3",
    "price*qty",
    "(a) * (b)",
    "a[0] * 2",
    "CASE WHEN a THEN 1 END * 2",
    "'*'",
    "`a*` = 1 -- *",
)
QUERIES = (
    "id IN (SELECT 1)",
    "EXISTS(select 1)",
    "id = ( -- one\n SELECT 1)",
    "id IN (VALUES (1), (2))",
    "id IN (TABLE t)",
    "id IN (FROM t SELECT id)",
    "id IN (WITH t AS (SELECT 1) SELECT * FROM t)",
    "id = ((SELECT 1))",
)
NO_QUERIES = (
    "(values)",
    "(table = 1)",
    "f(map, 1)",
    "trim(BOTH FROM s)",
    "map(1, 2)[1]",
    "(with.a)",
    "'(SELECT 1)'",
)


@pytest.mark.parametrize("text", STARS)
def test_a_star_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"where: .* uses \* for all columns"):
        check_expression(text, "where")


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_is_refused(text):
    with pytest.raises(InvalidInputError, match="contains a subquery"):
        check_expression(text, "on")


@pytest.mark.parametrize("text", [*PRODUCTS, *NO_QUERIES, *(one for one in ACCEPTED if "SELECT" not in one)])
def test_other_expressions_are_left_to_spark(text):
    check_expression(text, "where")


def test_boxes_of_geometries_are_left_to_duckdb():
    check_expression("name = 'a && b'", "where")
    with pytest.raises(
        UnsupportedFeatureError, match=r"where: .* has &&, which Spark SQL does not. Only DuckDB"
    ):
        check_expression("g && 'POINT(1 2)' AND id = 1", "where")


@pytest.mark.parametrize("text", ["'open", "`open", "a = 'b' AND 'c"])
def test_open_quotes_are_refused(text):
    with pytest.raises(InvalidInputError, match="not closed"):
        check_expression(text, "where")


EQUAL = {
    "target.id = source.id": [("target.id", "source.id")],
    "id == k": [("id", "k")],
    "((a.x = b.y) AND c = d) AND e IS NOT NULL": [("a.x", "b.y"), ("c", "d")],
    "date = source.date AND NOT flag": [("date", "source.date")],
    "`two words` = source.`a.b`": [("two words", "source.a.b")],
    "a = b AND (c BETWEEN 1 AND 2) AND (d = e OR f)": [("a", "b")],
    "x BETWEEN y AND a = b": [],
    "a = b OR c = d": [],
    "NOT a = b": [],
    "a <=> b": [],
    "a = b = c": [],
    "a = b + 1 AND c = lower(d) AND e = 'x' AND f = 1 AND g = r'x' AND h = NULL AND i = current_date": [],
    "CASE WHEN a = b THEN c END = d": [],
    "a = 'b": [],
}


@pytest.mark.parametrize(("condition", "expected"), EQUAL.items())
def test_columns_that_are_equal_for_certain(condition, expected):
    found = [tuple(".".join(name) for name in pair) for pair in equal_columns(condition)]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "looks"),
    {
        "source.price": False,
        "SOURCE.s.price + upper(`source`.`Price`)": False,
        "struct(source.price AS total)": False,
        "1": False,
        "price": True,
        "target.price": True,
        "source.price + Target.fee": True,
        "source.price + PRICE": True,
        "'price'": True,  # where double quotes are those of names
        "É": True,
        "'open": True,
    }.items(),
)
def test_whether_values_may_need_the_table(text, looks):
    assert may_read(text, ["price", "é"], alias="target", other="source") is looks


def test_a_column_called_as_the_other_table_is_the_tables():
    assert may_read("source.price", ["source"], alias="target", other="source")
