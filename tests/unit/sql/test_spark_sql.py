"""What statements of Spark SQL say: texts are cut, names replaced, and nothing else is touched."""

import time

import pytest

from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    InvalidStatementError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.sql.spark.conditions import Spellings, column_lineage, unknown_column
from airflow_provider_ducklake.lake.sql.spark.parse import parse_query, parse_spark_sql
from airflow_provider_ducklake.lake.sql.spark.statements import ViewStatement, WriteMode, WriteStatement
from tests.unit.sql.conditions import ACCEPTED, COLUMNS, UNKNOWN


def the_one(text: str, **arguments) -> WriteStatement:
    (statement,) = parse_spark_sql(text, **arguments)
    assert isinstance(statement, WriteStatement)
    return statement


def with_views(text: str, **arguments) -> str:
    query = the_one(text, **arguments).query
    return query.with_views({key: f"v{number}" for number, key in enumerate(query.reads)})


MODES = {
    "INSERT INTO s.t SELECT 1 AS a": WriteMode.APPEND,
    "insert into table s.t select 1": WriteMode.APPEND,
    "INSERT OVERWRITE s.t SELECT 1": WriteMode.OVERWRITE,
    "INSERT OVERWRITE TABLE s.t VALUES (1)": WriteMode.OVERWRITE,
    "CREATE TABLE s.t AS SELECT 1 AS a": WriteMode.CREATE,
    "CREATE TABLE IF NOT EXISTS s.t AS SELECT 1 AS a": WriteMode.CREATE_IF_MISSING,
    "CREATE OR REPLACE TABLE s.t AS SELECT 1 AS a": WriteMode.REPLACE,
}


@pytest.mark.parametrize("text", MODES)
def test_what_becomes_of_the_rows(text):
    statement = the_one(text)

    assert (statement.table, statement.mode) == (QualifiedName.of(("s", "t")), MODES[text])
    assert statement.by_name is text.startswith("CREATE")


QUERIES = {
    "INSERT INTO t SELECT /*+ BROADCAST(o) */ o.a FROM s.o JOIN s.p": (
        "SELECT /*+ BROADCAST(o) */ o.a FROM v0 AS `o` JOIN v1 AS `p`"
    ),
    "INSERT INTO p.o SELECT s.o.a FROM s.o WHERE s.o.a IN (SELECT s.o.b FROM s.o)": (
        "SELECT o.a FROM v0 AS `o` WHERE o.a IN (SELECT o.b FROM v0 AS `o`)"
    ),
    "INSERT INTO t SELECT * FROM s.o": "SELECT * FROM v0 AS `o`",
    "INSERT INTO t SELECT x.* FROM s.o x": "SELECT x.* FROM v0 x",
    "INSERT INTO t SELECT o.a, s.o.b, S.O.c.d FROM s.o": "SELECT o.a, o.b, O.c.d FROM v0 AS `o`",
    "INSERT INTO t SELECT * FROM `odd name`.`a``b`": "SELECT * FROM v0 AS `a``b`",
    "INSERT INTO t WITH o AS (SELECT * FROM o) SELECT * FROM o": (
        "WITH o AS (SELECT * FROM v0 AS `o`) SELECT * FROM o"
    ),
    "WITH x AS (SELECT 1 FROM s.o) INSERT INTO t SELECT * FROM x, s.p": (
        "WITH x AS (SELECT 1 FROM v0 AS `o`) SELECT * FROM x, v1 AS `p`"
    ),
    "INSERT INTO t WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b JOIN s.a ON true": (
        "WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b JOIN v0 AS `a` ON true"
    ),
    "INSERT INTO t SELECT a FROM s.o WHERE a IN (SELECT b FROM s.p) AND EXISTS (SELECT 1 FROM s.O)": (
        "SELECT a FROM v0 AS `o` WHERE a IN (SELECT b FROM v1 AS `p`) AND EXISTS (SELECT 1 FROM v0 AS `O`)"
    ),
    "INSERT INTO t SELECT 's.o' AS `s.o` -- s.o ; s.o\nFROM s.o /* s.o */": (
        "SELECT 's.o' AS `s.o` -- s.o ; s.o\nFROM v0 AS `o` /* s.o */"
    ),
    "INSERT INTO t SELECT * FROM range(3), explode(x) e": "SELECT * FROM range(3), explode(x) e",
    "INSERT INTO t TABLE s.o": "TABLE v0",
    "INSERT INTO t (SELECT a FROM s.o)": "(SELECT a FROM v0 AS `o`)",
    "INSERT INTO t SELECT * FROM s.o TABLESAMPLE (5 ROWS) x": "SELECT * FROM v0 TABLESAMPLE (5 ROWS) x",
    "CREATE TABLE t AS (SELECT a AS b FROM s.o)": " (SELECT a AS b FROM v0 AS `o`)",
    "CREATE TABLE t PARTITIONED BY (a) AS SELECT * FROM s.o": " SELECT * FROM v0 AS `o`",
}


@pytest.mark.parametrize("text", QUERIES)
def test_names_of_tables_are_replaced(text):
    assert with_views(text) == QUERIES[text]


def test_names_without_a_schema_lie_in_the_default_one():
    statement = the_one("INSERT INTO t SELECT * FROM o", default_schema=SchemaPath(("sales",)))

    assert statement.table == QualifiedName.of(("sales", "t"))
    assert list(statement.query.reads.values()) == [QualifiedName.of(("sales", "o"))]


def test_given_views_and_temporary_views_are_no_tables():
    view, write = parse_spark_sql(
        "CREATE OR REPLACE TEMP VIEW mine AS SELECT * FROM s.o JOIN given; INSERT INTO t SELECT * FROM MINE",
        views=["Given"],
    )

    assert isinstance(view, ViewStatement)
    assert view.view == "mine"
    assert list(view.query.reads) == [("s", "o")]
    assert not write.query.reads


def test_columns_and_partition_keys():
    assert the_one("INSERT INTO t (b, `a b`) SELECT 1, 2").columns == ("b", "a b")
    assert the_one("INSERT INTO t BY NAME SELECT 1 AS b").by_name
    text = "CREATE TABLE t PARTITIONED BY (year(day), bucket(4, id), `a,b`) AS SELECT 1 AS id"
    assert the_one(text).partition_by == ("year(day)", "bucket(4, id)", "`a,b`")


def test_several_statements_are_numbered():
    found = parse_spark_sql(
        [";; INSERT INTO a SELECT ';' ; INSERT INTO b SELECT 1;", "INSERT INTO a SELECT 2"]
    )

    assert [(one.number, one.table.name, one.query.text) for one in found] == [
        (1, "a", "SELECT ';' "),
        (2, "b", "SELECT 1"),
        (3, "a", "SELECT 2"),
    ]


REFUSED = {
    "SELECT 1": "does not write a table",
    "DELETE FROM t": "use DuckLakeSparkDeleteOperator",
    "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE": "use DuckLakeSparkMergeOperator",
    "UPDATE t SET a = 1": "use DuckLakeSparkUpdateOperator",
    "DROP TABLE t": "use DuckLakeDDLOperator",
    "ALTER TABLE t ADD COLUMN a INT": "use DuckLakeDDLOperator",
    "TRUNCATE TABLE t": "use DuckLakeDDLOperator",
    "FROM s.o INSERT INTO t SELECT *": "does not write a table",
    "SET a = b": "does not write a table",
    "CREATE VIEW v AS SELECT 1": "TEMPORARY VIEW",
    "CREATE TEMPORARY VIEW s.v AS SELECT 1": "has no schema",
    "CREATE TABLE t (a INT)": "in the query",
    "CREATE TABLE t": "no query follows",
    "INSERT INTO t": "no query follows",
    "INSERT INTO c.s.t SELECT 1": "names a catalog",
    "INSERT INTO t SELECT * FROM c.s.o": "names a catalog",
    "INSERT INTO t SELECT * FROM": "cannot be read",
    "INSERT INTO t SELECT 'open": "cannot be read",
    "INSERT INTO a SELECT 1; INSERT INTO b SELECT * FROM A": "which statement 1 writes",
    "INSERT INTO a SELECT 1; INSERT OVERWRITE a SELECT 2": "UNION ALL",
    "CREATE TABLE a AS SELECT 1; INSERT INTO a SELECT 2": "UNION ALL",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text):
    with pytest.raises(InvalidStatementError, match=REFUSED[text]):
        parse_spark_sql(text)


UNSUPPORTED = {
    "INSERT INTO t SELECT * FROM a.o WHERE EXISTS (SELECT 1 FROM b.o WHERE b.o.i = a.o.i)": "another o",
    "INSERT INTO t SELECT * FROM a.o WHERE i IN (SELECT o.i FROM b.p AS o WHERE o.i = a.o.i)": "another o",
    "INSERT OVERWRITE t PARTITION (day) SELECT 1": "whole tables",
    "INSERT INTO t REPLACE WHERE a > 1 SELECT 2": "whole tables",
    "INSERT INTO t SELECT * FROM o VERSION AS OF 3": "at=",
    "INSERT INTO t SELECT * FROM o TIMESTAMP AS OF '2026-01-01'": "at=",
    "INSERT INTO t SELECT * FROM s.o TABLESAMPLE (5 ROWS)": "alias",
    "CREATE TABLE t USING parquet AS SELECT 1": "USING",
    "CREATE TABLE t COMMENT 'x' AS SELECT 1": "COMMENT",
    "CREATE TABLE t LOCATION '/x' AS SELECT 1": "LOCATION",
    "CREATE TABLE t TBLPROPERTIES ('a' = 'b') AS SELECT 1": "tables of a lake do not have it",
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_is_not_supported(text):
    with pytest.raises(UnsupportedFeatureError, match=UNSUPPORTED[text]):
        parse_spark_sql(text)


def test_an_error_says_where():
    with pytest.raises(InvalidStatementError) as caught:
        parse_spark_sql("INSERT INTO a SELECT 1;\n  DROP TABLE b")

    assert (caught.value.number, caught.value.line, caught.value.column) == (2, 2, 3)


def test_a_views_query():
    query = parse_query("SELECT * FROM o", SchemaPath(("sales",)))

    assert list(query.reads.values()) == [QualifiedName.of(("sales", "o"))]
    with pytest.raises(InvalidStatementError):
        parse_query("INSERT INTO t SELECT 1")


def test_columns_in_a_with_clause_before_an_insert_lose_their_schema_in_their_own_place():
    text = "WITH x AS (SELECT a.b.c FROM a.b) INSERT INTO t SELECT a.b.d, x.c FROM a.b, x"

    written = "WITH x AS (SELECT b.c FROM v0 AS `b`) SELECT b.d, x.c FROM v0 AS `b`, x"
    assert " ".join(with_views(text).split()) == written


def test_a_recursive_expression_names_itself_and_earlier_ones():
    text = "WITH RECURSIVE a AS (SELECT * FROM a, b), b AS (SELECT * FROM a) SELECT * FROM b"

    assert [str(one) for one in parse_query(text).reads.values()] == ["main.b"]


# --- columns that do not exist ---


@pytest.mark.parametrize("condition", ACCEPTED)
def test_nothing_is_said_of_what_spark_can_run(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) is None


@pytest.mark.parametrize(("condition", "name"), UNKNOWN.items())
def test_a_name_that_no_column_has_is_told(condition, name):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) == name


@pytest.mark.parametrize("condition", ["nosuch = 1", "source.nosuch = id", "a.b.c = 1"])
def test_beside_another_table_only_names_behind_the_alias_are_looked_at(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=False) is None
    behind = f"target.nosuch = source.id AND {condition}"
    assert unknown_column(behind, COLUMNS, alias="target", is_alone=False) == "nosuch"


@pytest.mark.parametrize("condition", ["", "id +", "id = (", "(" * 5_000, "a 'b", "id = ? AND :x"])
def test_what_cannot_be_read_is_left_to_spark(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) is None


TEXTS = new_columns(
    {
        "u": "uuid",
        "k": "time",
        "z": "timetz",
        "ns": "timestamp_ns",
        "zns": "timestamptz_ns",
        "s": "struct(u uuid)",
        "later": "time",
        "v": "varchar",
        "ts": "timestamp",
    }
)
UUID = "0190f3c1-0000-7000-8000-00000000000a"


def spellings(on: str = "") -> Spellings:
    return Spellings.of(TEXTS, "target", "source", on)


@pytest.mark.parametrize(
    "text",
    [
        f"u = '{UUID}'",
        f"(target.U) IN ('{UUID}', NULL)",
        "k BETWEEN '12:30:00.000000' AND '13:00:00.000000'",
        "k IS NULL OR k > later",
        "z = '12:30:00.000000+00'",
        "ns >= '2026-01-31 00:00:00.000000000' AND ns < 'infinity'",
        "zns = '2026-01-31 00:00:00.000000000+00'",
        f"s.u <> '{UUID}'",
        "CASE k WHEN '12:30:00.000000' THEN 1 ELSE 2 END = 1",
        "CASE WHEN v = 'a' THEN k ELSE '12:30' END IS NOT NULL",
        "lower(u) LIKE '0190%' AND CAST(ns AS TIMESTAMP_NTZ) > ts",
        "v = '12:30' AND ts > '2026-01-31'",
        "target.u = source.u AND target.k <=> source.k AND source.ns > target.ns",
        "source.x = '12:30'",
    ],
)
def test_comparisons_in_sparks_own_spelling_are_taken(text):
    spellings().check(text, "where")


@pytest.mark.parametrize(
    "text",
    [
        f"u = '{UUID.upper()}'",
        f"u IN ('{UUID}', '{UUID.replace('-', '')}')",
        "k > '12:30:00'",
        'NOT (target.`k` <= ("12:30"))',
        "k BETWEEN '12:30' AND '13:00:00.000000'",
        "'12:30:00' < k",
        "z = '14:30:00+02'",
        "ns > '2026-01-31'",
        "ns < TIMESTAMP_NTZ '2026-01-31 00:00:00'",
        "ns = ts",
        "zns = '2026-01-31 00:00:00.000000000'",
        "s.u = concat('a', v)",
        "CASE k WHEN '12:30' THEN 1 END = 1",
        "if(k = v, 1, 2) = 1",
        "target.u = source.x",
        "target.s.u = source.u",
    ],
)
def test_comparisons_of_other_spellings_are_refused(text):
    with pytest.raises(InvalidInputError, match=r"Spark has a \w+ as text and compares spellings"):
        spellings().check(text, "where")


def test_what_a_merge_says_is_equal_is_spelled_alike():
    same = spellings("target.u = source.x AND (source.`the time` = k)")

    same.check("source.x = target.u AND target.k = source.`the time`", "condition")
    with pytest.raises(InvalidInputError, match=r"compares k with source\.x"):
        same.check("target.k = source.x", "condition")
    with pytest.raises(InvalidInputError, match=r"set\['v'\]"):
        Spellings.of(TEXTS, "target").check("if(source.u = target.u, 1, 2)", "set['v']")


def test_a_column_may_have_the_name_of_the_source_or_of_the_table():
    named = Spellings.of(new_columns({"source": "time", "target": "uuid"}), "target", "source", "")

    named.check("source.source = target.source", "on")
    for text in ("source > '12:30'", "target.source > '12:30'", "target = 'X'"):
        with pytest.raises(InvalidInputError, match=r"compares (source|target) with"):
            named.check(text, "where")


def test_a_text_that_cannot_be_read_is_refused_only_where_it_names_such_a_column():
    spellings().check("v = (", "where")
    with pytest.raises(InvalidInputError, match="how it compares k cannot be checked"):
        spellings().check("k = (", "where")


# --- where columns come from ---

TABLES = {
    "orders": ["id", "customer_id", "price", "day", "tags"],
    "customers": ["id", "name", "country"],
    "Rates": ["day", "Rate"],
}
O_ID, O_CUSTOMER, O_PRICE, O_DAY, O_TAGS = (("orders", name) for name in TABLES["orders"])
C_ID, C_NAME, C_COUNTRY = (("customers", name) for name in TABLES["customers"])
R_DAY, R_RATE = (("Rates", name) for name in TABLES["Rates"])

LINEAGES = [
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
    ("SELECT id FROM orders UNION ALL SELECT id FROM customers", {"id": {O_ID, C_ID}}),
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


@pytest.mark.parametrize(("query", "expected"), LINEAGES, ids=[query for query, _ in LINEAGES])
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
