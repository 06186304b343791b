"""What a query says of the rows that it reads of a table."""

import pytest

from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql

# A query, and for each table t in it, in the order in which they are read, what holds for its rows.
SAID: dict[str, list[str | None]] = {
    "SELECT * FROM t WHERE day = 1 AND x > 3 GROUP BY a": ["day = 1 AND x > 3"],
    "SELECT * FROM t AS q WHERE q.day = 1 ORDER BY a LIMIT 3": ["q.day = 1"],
    "SELECT a FROM t WHERE day = 1 CLUSTER BY a": ["day = 1"],
    "SELECT count(*) FROM t WHERE day = 1 HAVING count(*) > 2": ["day = 1"],
    "FROM t SELECT a WHERE day = 1": ["day = 1"],
    "SELECT * FROM s LEFT ANTI JOIN t ON s.a = t.a AND t.day = 1": ["s.a = t.a AND t.day = 1"],
    "SELECT * FROM s LEFT ANTI JOIN t ON s.a = t.a WHERE day = 1": ["s.a = t.a"],
    "SELECT * FROM s LEFT JOIN t ON s.a = t.a WHERE t.day IS NULL": ["s.a = t.a"],
    "SELECT * FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = s.a AND day = 1)": [
        "t.a = s.a AND day = 1"
    ],
    "SELECT * FROM t LEFT JOIN s USING (day) WHERE day = 1": ["day = 1"],
    "SELECT * FROM s JOIN t ON s.a = t.a WHERE t.day = 1": ["s.a = t.a", "t.day = 1"],
    "SELECT * FROM s, t WHERE t.day = 1": ["t.day = 1"],
    "WITH x AS (SELECT * FROM t WHERE day = 1) SELECT * FROM x WHERE day = 2": ["day = 1"],
    "SELECT * FROM t WHERE left(b, 1) = 'q' AND day = 1 OR c = 2": ["left(b, 1) = 'q' AND day = 1 OR c = 2"],
    # of these rows no condition is certain
    "SELECT * FROM t": [None],
    "TABLE t": [None],
    "SELECT * FROM (SELECT * FROM t) WHERE day = 1": [None],
    "SELECT * FROM s FULL JOIN t ON t.day = 1 WHERE t.day = 1": [None],
    "SELECT * FROM s RIGHT JOIN t ON t.day = 1 WHERE t.day = 1": [None],
    "SELECT * FROM t RIGHT JOIN s ON t.day = 1 WHERE t.day IS NULL": [None],
    "SELECT * FROM t LEFT JOIN s ON t.a = s.a FULL JOIN u ON u.a = t.a WHERE t.day = 1": [None],
    "SELECT * FROM s JOIN t USING (day) WHERE day = 1": [None],
    "SELECT * FROM s NATURAL JOIN t WHERE day = 1": [None],
    "SELECT * FROM t, s AS t WHERE day = 1": [None],
    "SELECT * FROM t AS q(day, a) WHERE day = 1": [None],
    "SELECT * FROM t TABLESAMPLE (10 ROWS) AS q WHERE day = 1": [None],
    "SELECT * FROM t LATERAL VIEW explode(x) z AS day WHERE day = 1": [None],
    "SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2)) WHERE day = 1": [None],
    "SELECT * FROM (t JOIN s ON t.a = s.a) WHERE t.day = 1": [None],
    # a condition that cannot be cut out of the text for certain
    "SELECT * FROM s LEFT JOIN t ON t.day = 1 AND left(t.b, 1) = 'q' OR t.c = 2": [None],
    "SELECT * FROM s JOIN t JOIN u ON t.a = u.a AND t.day = 3 ON s.a = t.a AND t.day = 5": [None],
}


@pytest.mark.parametrize("query", SAID)
def test_what_holds_for_the_rows_of_a_table(query):
    (statement,) = parse_spark_sql(f"INSERT INTO t {query}")

    found = [
        None if one.condition is None else " & ".join(text.strip() for text in one.condition.texts)
        for one in statement.query.references
        if one.name.name == "t"
    ]

    assert found == [" & ".join(one for one in SAID[query] if one) or None]


def test_each_reference_has_its_own():
    query = "SELECT * FROM t WHERE day = 1 UNION ALL SELECT * FROM t x, t y WHERE x.day = 2 AND y.day = 3"

    (statement,) = parse_spark_sql(f"WITH c AS (SELECT 1) INSERT INTO t {query}")

    found = [(one.condition.alias, sorted(one.condition.names)) for one in statement.query.references]
    assert sorted(found) == [("t", ["t"]), ("x", ["x", "y"]), ("y", ["x", "y"])]
