"""Where the columns of queries come from, against expectations written by hand."""

import time

import pytest

from airflow_provider_ducklake.lake.sql.spark.conditions import column_lineage

TABLES = {
    "orders": ["id", "customer_id", "price", "day", "tags"],
    "customers": ["id", "name", "country"],
    "Rates": ["day", "Rate"],
}
O_ID, O_CUSTOMER, O_PRICE, O_DAY, O_TAGS = (("orders", name) for name in TABLES["orders"])
C_ID, C_NAME, C_COUNTRY = (("customers", name) for name in TABLES["customers"])
R_DAY, R_RATE = (("Rates", name) for name in TABLES["Rates"])

QUERIES = [
    ("SELECT id, price FROM orders", {"id": {O_ID}, "price": {O_PRICE}}),
    ("SELECT * FROM customers", {"id": {C_ID}, "name": {C_NAME}, "country": {C_COUNTRY}}),
    ("SELECT o.price * 2 AS double FROM orders o", {"double": {O_PRICE}}),
    ("SELECT 1 AS one, current_date() AS today", {"one": set(), "today": set()}),
    (
        "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id",
        {"id": {O_ID}, "name": {C_NAME}},
    ),
    (
        "SELECT customer_id, sum(price) AS total, count(*) AS n FROM orders GROUP BY customer_id",
        {"customer_id": {O_CUSTOMER}, "total": {O_PRICE}, "n": set()},
    ),
    (
        "SELECT coalesce(o.price, r.rate) AS x FROM orders o LEFT JOIN rates r ON o.day = r.day",
        {"x": {O_PRICE, R_RATE}},
    ),
    (
        "WITH t AS (SELECT id AS k, price FROM orders) SELECT k, price FROM t",
        {"k": {O_ID}, "price": {O_PRICE}},
    ),
    (
        "WITH a AS (SELECT id FROM orders), b AS (SELECT id AS i FROM a) SELECT i + 1 AS j FROM b",
        {"j": {O_ID}},
    ),
    (
        "SELECT id FROM orders UNION ALL SELECT id FROM customers",
        {"id": {O_ID, C_ID}},
    ),
    (
        "SELECT price - lag(price) OVER (PARTITION BY customer_id ORDER BY day) AS change FROM orders",
        {"change": {O_PRICE, O_CUSTOMER, O_DAY}},
    ),
    ("SELECT CASE WHEN price > 0 THEN day END AS paid FROM orders", {"paid": {O_PRICE, O_DAY}}),
    ("SELECT x.id FROM (SELECT id FROM orders WHERE price > 1) x", {"id": {O_ID}}),
    ("SELECT CAST(price AS STRING) AS p, day AS d FROM orders", {"p": {O_PRICE}, "d": {O_DAY}}),
    (
        "SELECT o.*, c.country FROM orders o CROSS JOIN customers c",
        {
            "id": {O_ID},
            "customer_id": {O_CUSTOMER},
            "price": {O_PRICE},
            "day": {O_DAY},
            "tags": {O_TAGS},
            "country": {C_COUNTRY},
        },
    ),
    ("SELECT DISTINCT upper(name) AS `Big Name` FROM customers", {"Big Name": {C_NAME}}),
    ("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id", {"id": {O_ID}}),
    (
        "SELECT name, (SELECT max(price) FROM orders WHERE customer_id = c.id) AS top FROM customers c",
        {"name": {C_NAME}, "top": {O_PRICE}},
    ),
    ("SELECT Price AS p, ORDERS.Day AS d FROM Orders", {"p": {O_PRICE}, "d": {O_DAY}}),
    ("SELECT rate FROM Rates", {"rate": {R_RATE}}),
    ("SELECT size(tags) AS n, tags[0] AS first FROM orders", {"n": {O_TAGS}, "first": {O_TAGS}}),
    (
        """SELECT country, avg(price) FILTER (WHERE day > DATE '2026-01-01') AS a FROM orders o
        JOIN customers c ON c.id = o.customer_id GROUP BY country HAVING count(*) > 1 ORDER BY a LIMIT 3""",
        {"country": {C_COUNTRY}, "a": {O_PRICE, O_DAY}},
    ),
]


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[query for query, _ in QUERIES])
def test_where_columns_come_from(query, expected):
    found = column_lineage(query, TABLES)

    assert {name: set(origins) for name, origins in found.items()} == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize("query", ["SELECT", "not sql at all (", "SELECT * FROM unknown_relation", ""])
def test_what_cannot_be_followed_is_left_out(query):
    assert column_lineage(query, TABLES) == {}


def test_views_are_followed():
    views = {"big": "SELECT id AS i, price FROM orders WHERE price > 9", "bigger": "SELECT i, price FROM big"}

    found = column_lineage("SELECT i + 1 AS j, b.price FROM bigger b", TABLES, views)

    assert found == {"j": (O_ID,), "price": (O_PRICE,)}


def test_a_relation_of_unknown_columns_has_those_that_the_query_names():
    assert column_lineage("SELECT a, upper(b) AS c FROM raw", {"raw": []}) == {
        "a": (("raw", "a"),),
        "c": (("raw", "b"),),
    }


@pytest.mark.parametrize(("selects", "columns"), [(1, 1000), (30, 100)])
def test_wide_queries_take_seconds(selects, columns):
    names = [f"c{number}" for number in range(columns)]
    query = " UNION ALL ".join([f"SELECT {', '.join(names)} FROM a"] * selects)
    began = time.process_time()

    found = column_lineage(query, {"a": names})

    assert found == {name: (("a", name),) for name in names}
    assert time.process_time() - began < 15  # minutes, when each column had the whole query read again
