"""What a filter says, and what is refused of it, with its place."""

import pytest

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidPredicateError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.reading import predicates as terms
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql

SCHEMA = new_columns(
    {
        "i": "int32",
        "s": "varchar",
        "d": "date",
        "tz": "timestamptz",
        "n": "decimal(9,2)",
        "b": "boolean",
        "st": "struct(a int64)",
        "l": "int64[]",
        "select": "int8",
        "g": "geometry",
        "geometry": "struct(g geometry)",
        "w": "decimal(38,11)",
    }
)
ID, S, D, TZ, N, B, ST, A, L = range(1, 10)
SELECT = 11
WIDE = 15


def read(text: str):
    return read_predicate(text, SCHEMA, "main.t")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("i = 1", terms.Comparison(ID, terms.Operator.EQUAL, 1)),
        ("1 < i", terms.Comparison(ID, terms.Operator.GREATER, 1)),
        ("NOT i <= 1", terms.Comparison(ID, terms.Operator.GREATER, 1)),
        ("i < 1.5", terms.Comparison(ID, terms.Operator.AT_MOST, 1)),
        ("i = 1.5", terms.NEVER),
        ("i <> 9999999999", terms.NullTest(ID, negated=True)),
        ("I IN (3, 1, NULL, 2.5)", terms.Membership(ID, (1, 3))),
        ("i NOT IN (1, NULL)", terms.NEVER),
        ("s LIKE 'a%' ", terms.Likeness(S, "a%")),
        ("s NOT LIKE 'a%'", terms.Likeness(S, "a%", negated=True)),
        ("NOT s NOT LIKE 'a%'", terms.Likeness(S, "a%")),
        ("d = TIMESTAMP '1970-01-02 00:00:00'", terms.Comparison(D, terms.Operator.EQUAL, 1)),
        ("d > TIMESTAMP '1970-01-02 00:00:01'", terms.Comparison(D, terms.Operator.GREATER, 1)),
        ("tz = '1970-01-01 01:00:00+01'", terms.Comparison(TZ, terms.Operator.EQUAL, 0)),
        ("n = 1.5 -- one and a half", terms.Comparison(N, terms.Operator.EQUAL, 150)),
        (
            "w = -12345678901234567890.12345678901",
            terms.Comparison(WIDE, terms.Operator.EQUAL, -1234567890123456789012345678901),
        ),
        ("b /*/* */ IS NOT TRUE -- */", terms.Comparison(B, terms.Operator.EQUAL, value=True)),
        ("NOT b /* /* */* */ IS NULL -- */", terms.NullTest(B, negated=True)),
        ("n > 1.505", terms.Comparison(N, terms.Operator.GREATER, 150)),
        ("NOT b", terms.Comparison(B, terms.Operator.EQUAL, value=False)),
        ("st.a IS NULL", terms.NullTest(A)),
        ("l IS NOT NULL", terms.NullTest(L, negated=True)),
        ('"select" = 1', terms.Comparison(SELECT, terms.Operator.EQUAL, 1)),
        ("NULL OR TRUE", terms.AnyOf((terms.NEVER, terms.ALWAYS))),
        (
            "i IS DISTINCT FROM 1",
            terms.AnyOf((terms.Comparison(ID, terms.Operator.UNEQUAL, 1), terms.NullTest(ID))),
        ),
        (
            "NOT (i = 1 OR s = 'x')",
            terms.AllOf(
                (
                    terms.Comparison(ID, terms.Operator.UNEQUAL, 1),
                    terms.Comparison(S, terms.Operator.UNEQUAL, b"x"),
                )
            ),
        ),
        (
            "i BETWEEN 1 AND 2",
            terms.AllOf(
                (
                    terms.Comparison(ID, terms.Operator.AT_LEAST, 1),
                    terms.Comparison(ID, terms.Operator.AT_MOST, 2),
                )
            ),
        ),
    ],
)
def test_a_filter_is_read_as_duckdb_reads_it(text, meaning):
    assert read(text) == meaning


@pytest.mark.parametrize(
    ("text", "place", "near"),
    [
        ("i <=> 1", (1, 3), "<=>"),
        ("i = 1\n AND abs(i) = 2", (2, 6), "ABS(i)"),
        ("i = 1 AND i = s", (1, 15), "s"),
        ("i = 1 IS NULL", (1, 1), "i"),
        ("i < 5 = TRUE", (1, 1), "i < 5"),
        ("i = ?", (1, 5), "?"),
        ("i = $1", (1, 5), "$"),
        ("n = 1e4+2", (1, 5), "1e4+2"),
        ("n IN (1e4.5)", (1, 7), "1e4.5"),
        ("i + 1 = 2", (1, 1), "i + 1"),
        ("i = 1 + 1", (1, 5), "1 + 1"),
        ("i IN (SELECT 1)", (1, 1), "SELECT"),
        ("i IN ()", (1, 1), "()"),
        ("i = 1; DROP TABLE t", (1, 1), "DROP"),
        ("i = 1 garbage", (1, 7), "garbage"),
        ("i = 1 AND", (1, 7), "AND"),
        ("s = 'x' 'y'", (1, 5), "CONCAT"),
        ("s LIKE 'x' ESCAPE '!'", (1, 1), "ESCAPE"),
        ("s ILIKE 'x'", (1, 1), "ILIKE"),
        ("s SIMILAR TO 'x'", (1, 1), "s"),
        ("s COLLATE nocase = 'x'", (1, 1), "COLLATE"),
        ("i BETWEEN SYMMETRIC 2 AND 1", (1, 1), "BETWEEN"),
        ("CASE WHEN b THEN TRUE END", (1, 11), "CASE"),
        ("d > current_date", (1, 5), "CURRENT_DATE"),
        ("CAST(i AS VARCHAR) = '1'", (1, 6), "CAST"),
        ("i = CAST('x' AS INT)", (1, 10), "'x'"),
        ("i = 'x'", (1, 1), "i = 'x'"),
        ("i = TRUE", (1, 1), "i = TRUE"),
        ("s = 5", (1, 1), "s = 5"),
        ("d = '2024-02-30'", (1, 1), "2024-02-30"),
        ("tz = '2024-01-31 00:00:00'", (1, 1), "tz"),
        ("tz > DATE '2024-01-31'", (1, 1), "tz"),
        ("n = '1.505'", (1, 1), "1.505"),
        ("n = 1.5e0", (1, 1), "1.5e0"),
        ("l = 1", (1, 1), "l"),
        ("l.element = 1", (1, 1), "l.element"),
        ("st = 1", (1, 1), "st"),
        ("i LIKE '1'", (1, 1), "LIKE"),
        ("i", (1, 1), "i"),
        ("s = E'\\n'", (1, 5), "E'"),
        ("s = 'open", (1, 5), "'"),
        ("", (1, 1), "''"),
        ("-- nothing", (1, 1), "nothing"),
        ("(" * 2000 + "i = 1" + ")" * 2000, (1, 1), "((("),
    ],
)
def test_anything_else_is_refused_with_its_place(text, place, near):
    with pytest.raises(InvalidPredicateError) as caught:
        read(text)

    assert near in caught.value.near
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("g = 'POINT(1 2)'", "it can only be tested with IS NULL and IS NOT NULL"),
        ("ST_Intersects_Extent(g, 'POINT(1 2)')", "filters do not support this"),
        ("g &&", "this cannot be read"),
        ("g & 'POINT(1 2)'", "do not support this character"),
        ("g &&& 'POINT(1 2)'", "do not support this character"),
        ("g <&& 'POINT(1 2)'", "this cannot be read"),
        ("l && [1]", "do not support this character"),
    ],
)
def test_what_is_no_geometry_is_refused_with_the_reason(where, problem):
    with pytest.raises(InvalidPredicateError, match=problem):
        read(where)


@pytest.mark.parametrize("text", ["gone = 1", "st.gone = 1", "rowid = 1", "t.i = 1"])
def test_an_unknown_column_is_named(text):
    with pytest.raises(ColumnNotFoundError):
        read(text)


@pytest.mark.parametrize("text", ["i = " + "9" * 5000, "i IN (1, -" + "9" * 5000 + ")", "i = 1e999999"])
def test_a_number_of_any_length_is_refused_with_its_place(text):
    with pytest.raises(InvalidPredicateError, match="line 1"):
        read(text)


def test_zeros_before_a_number_count_for_nothing():
    assert read("i = " + "0" * 5000 + "7") == terms.Comparison(ID, terms.Operator.EQUAL, 7)
    assert read("i = 0e5") == read("i = 0.0")


# --- what a query says of the rows that it reads of a table ---

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
