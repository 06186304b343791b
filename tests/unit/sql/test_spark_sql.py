"""What statements of Spark SQL say: texts are cut, names replaced, and nothing else is touched."""

import pytest

from airflow_provider_ducklake.lake.errors import InvalidStatementError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.sql.spark.parse import parse_query, parse_spark_sql
from airflow_provider_ducklake.lake.sql.spark.statements import ViewStatement, WriteMode, WriteStatement


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
