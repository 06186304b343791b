"""The query of a view is kept as the user wrote it: the reference reads it as it reads its own text."""

import sqlite3
from contextlib import closing

import pytest

from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

QUERIES = [
    "select  a  from main.t",
    "FROM main.t -- all of it",
    "VALUES (1, 'x;y'), (2, NULL)",
    "TABLE main.t",
    "(SELECT a FROM main.t)",
    "(FROM main.t) UNION ALL (FROM main.t)",
    "WITH c AS (FROM main.t) SELECT a + 1 AS a FROM c",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
    "SELECT * EXCLUDE (b) FROM main.t QUALIFY row_number() OVER (ORDER BY a) = 1",
    "SELECT b, count(*) FILTER (a > 1) FROM main.t GROUP BY ALL ORDER BY ALL",
    "SELECT t.a::VARCHAR || '/* no comment */' FROM main.t /* a /* nested */ comment */ t",
    "SELECT list_transform([1, 2], lambda x: x + 1), {'a': 1}.a",
    "SELECT * FROM s.t",
    "SELECT a FROM t",
]


def _store(location: str, sql: str) -> None:
    """Put our text in the place of the reference's own rendering."""
    with closing(sqlite3.connect(location)) as database:
        database.execute("UPDATE ducklake_view SET sql = ? WHERE end_snapshot IS NULL", (sql,))
        database.commit()


def _tables(lake: DuckLakeConnection) -> None:
    lake.sql("CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    lake.sql("CREATE SCHEMA s; CREATE TABLE s.t (a INT); INSERT INTO s.t VALUES (7)")


@pytest.mark.parametrize("query", QUERIES)
def test_the_reference_reads_our_text_as_its_own(sqlite_catalog, query):
    text = f"CREATE VIEW s.v AS {query};"
    (parsed,) = parse_ddl(text)
    with open_lake(sqlite_catalog) as lake:
        _tables(lake)
        lake.sql(text)
        theirs = lake.sql("SELECT * FROM s.v")

    _store(sqlite_catalog.location, parsed.calls[0].arguments[1])

    with open_lake(sqlite_catalog) as lake:
        assert lake.sql("SELECT * FROM s.v") == theirs
        lake.sql("USE memory")
        assert lake.sql("SELECT * FROM lake.s.v") == theirs


def test_an_unqualified_table_is_looked_up_in_the_view_s_schema_first_and_then_in_the_session_s(
    sqlite_catalog,
):
    with open_lake(sqlite_catalog) as lake:
        _tables(lake)
        lake.sql("CREATE TABLE only_main AS SELECT 3 AS a")
        lake.sql("CREATE VIEW s.v AS SELECT 1")

    _store(sqlite_catalog.location, "SELECT a FROM t")
    with open_lake(sqlite_catalog) as lake:
        assert lake.sql("SELECT * FROM s.v") == [(7,)]

    _store(sqlite_catalog.location, "SELECT a FROM only_main")
    with open_lake(sqlite_catalog) as lake:
        assert lake.sql("SELECT * FROM s.v") == [(3,)]
        lake.sql("USE memory")
        with pytest.raises(Exception, match="only_main does not exist"):
            lake.sql("SELECT * FROM lake.s.v")
