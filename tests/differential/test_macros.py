"""Macros that we and the reference create leave equal catalogs, load in DuckDB, and give equal results."""

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError
from airflow_provider_ducklake.lake.format.tags import MacroDefinition, MacroOverload, MacroParameter
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.differential.scenarios import Scenario
from tests.differential.test_catalogs import compare
from tests.differential.test_ddl import run, transactions
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake


def _scenario(name: str, *texts: str, ignored: frozenset[str] = frozenset()) -> Scenario:
    return Scenario(name, lambda _lake, _reference: None, texts, ignored)


# Bodies are in DuckDB's own spelling: it stores that, and we what the author wrote.
SCENARIOS = (
    _scenario(
        "create, replace and drop macros",
        "CREATE SCHEMA s",
        "CREATE MACRO s.plus(a, b := 2) AS (a + b)",
        "CREATE MACRO IF NOT EXISTS s.PLUS(a) AS a",
        "CREATE OR REPLACE MACRO s.plus(a) AS (a * 2)",
        "CREATE FUNCTION noargs() AS 42",
        'CREATE MACRO s.many(n) AS TABLE SELECT i FROM "range"(n) AS r(i)',
        "CREATE OR REPLACE MACRO s.many(n) AS TABLE SELECT 1",
        "DROP MACRO s.plus",
        "DROP MACRO TABLE s.many",
        "DROP MACRO IF EXISTS s.plus",
        "DROP MACRO TABLE IF EXISTS s.many",
        "DROP FUNCTION noargs",
    ),
    _scenario(
        "scalar and table macros of one name",
        "CREATE MACRO two(a) AS a",
        "CREATE MACRO two(a) AS TABLE SELECT a",
        "CREATE TABLE two (i INTEGER)",
        "CREATE OR REPLACE MACRO two(a) AS TABLE SELECT 1",
        "DROP MACRO two",
        "DROP MACRO two",
        "DROP TABLE two",
    ),
    _scenario(
        "overloads",
        "CREATE MACRO o(a) AS (a + 1), (a, b) AS (a + b), (a INTEGER, b, c := 'x') AS concat(a, b, c)",
        "CREATE MACRO typed(a INTEGER) AS 'int', (a VARCHAR) AS 'str', () AS NULL",
    ),
    _scenario(
        "overloads of table macros",
        "CREATE MACRO t(a) AS TABLE (SELECT a), (a, b) AS TABLE (SELECT a, b)",
        ignored=frozenset({"ducklake_macro_impl.sql"}),  # the reference leaves the parentheses out
    ),
    _scenario(
        "types of parameters",
        "CREATE MACRO ty(a INTEGER, b VARCHAR, c DECIMAL(5, 2), d TIMESTAMPTZ, e DOUBLE, f BIGINT, "
        "g HUGEINT, h BOOLEAN, i DATE, j UUID, k BLOB, l TIME, m FLOAT, n UTINYINT, o JSON, p INTERVAL, "
        "q DECIMAL, r INT, s TEXT, t TIMESTAMP_NS) AS a",
    ),
    _scenario(
        "defaults",
        "CREATE MACRO d(a, b := 1.50, c := true, d := DATE '2024-01-02', e := -5, f := 'it''s', g := 1e3, "
        "h := 3000000000, i := '', j := 99999999999999999999, k := .5, l := -1.5, m := false, n := 'NULL', "
        "o := TIMESTAMP '2024-01-02 03:04:05', p := 1e-7, q := 1.5e300, r := -2147483648, s := 2147483647, "
        "t := 123456789012345678901234567890.123, u := 0.5, v := -9223372036854775808, w => 1.500) AS a",
        "CREATE MACRO e(a BIGINT := 5, b DOUBLE := 1, c DECIMAL(5, 2) := 1.5, d FLOAT := 1.5, "
        "e BOOLEAN := true, f DATE := DATE '2024-01-01', g TIMESTAMP := DATE '2024-01-01', h JSON := '{}', "
        "i VARCHAR := 'x') AS a",
    ),
    _scenario(
        "names that need quotes",
        'CREATE SCHEMA "a b"',
        'CREATE MACRO "a b"."Odd ""n"("A b", c) AS ("A b" || c)',
        'DROP MACRO "a b"."odd ""N"',
    ),
    _scenario(
        "macros with other objects in one transaction",
        "CREATE SCHEMA s",
        "BEGIN",
        "CREATE MACRO s.m(a) AS TABLE SELECT 1",
        "CREATE MACRO s.n(a) AS a",
        "CREATE TABLE s.t (i INTEGER)",
        "COMMIT",
        "BEGIN",
        "CREATE OR REPLACE MACRO s.n(a) AS (a + 2)",
        "CREATE OR REPLACE MACRO s.n(a) AS (a + 3)",
        "CREATE MACRO s.gone(a) AS a",
        "DROP MACRO s.gone",
        "COMMIT",
        "BEGIN",
        "DROP MACRO s.n",
        "CREATE MACRO s.n(a) AS (a + 4)",
        "COMMIT",
        "DROP SCHEMA s CASCADE",
    ),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_our_catalog_equals_the_references(catalog, reference_catalog, scenario: Scenario):
    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        for texts in transactions(scenario.reference):
            run(lake, reference, texts)

    compare(catalog, reference_catalog, replace(scenario, ours=ours), row_limit=0)


CALLS = {
    "(a, b := 2) AS a + b": ["m(1)", "m(1, 5)", "m(a := 1, b := 7)", "m(1, b := 3)"],
    "(a) AS a + 1, (a, b) AS a - b -- not a sum": ["m(1)", "m(1, 5)"],
    "(a) AS CASE WHEN a > 1 THEN 'many' WHEN a IS NULL THEN 'none' ELSE a::VARCHAR END": ["m(1)", "m(NULL)"],
    "(s) AS s.a": ["m({'a': 3})"],
    "(l) AS list_transform(l, x -> x + 1)": ["m([1, 2])"],
    "(d) AS d + INTERVAL 1 DAY": ["m(DATE '2024-02-28')"],
    "(d) AS extract(year FROM d) * 100 + date_part('month', d)": ["m(DATE '2024-02-28')"],
    "(a) AS a IN (1, 2) OR a BETWEEN 5 AND 7 OR NOT a IS DISTINCT FROM 9": ["m(1)", "m(3)", "m(6)", "m(9)"],
    "(s) AS s LIKE 'a%' AND s NOT ILIKE '%B'": ["m('ab')", "m('ac')"],
    "(a) AS (SELECT max(i + a) FROM t)": ["m(1)"],
    "(a) AS EXISTS (SELECT 1 FROM t WHERE i = a)": ["m(1)", "m(99)"],
    "(a) AS a IN (SELECT i FROM t)": ["m(1)", "m(99)"],
    "(a) AS [a, 2][1] + {'k': a}['k']": ["m(1)"],
    "(a) AS /* nothing */ coalesce(nullif(a, 1), 'x'::VARCHAR::INTEGER * 0, 3)": ["m(2)"],
    "(a) AS CAST(a AS DECIMAL(5, 2)) ** 2 // 3 % 5 - -a * +2": ["m(3)"],
    "(a, b := 'it''s') AS a || b || substring('abc', 2, 1) || trim(' x ')": ["m('q')"],
    "(a) AS sum(a)": ["m(1)"],
    "(a) AS count(*) FILTER (a > 1)": ["m(1)", "m(2)"],
    "(l) AS [x + 1 for x in l if x > 1]": ["m([1, 2])"],
    "(s) AS struct_extract_at(s, 1) + struct_pack(k := 1).k": ["m({'a': 3})"],
    "(a) AS row_number() OVER (PARTITION BY a ORDER BY a DESC NULLS LAST)": ["m(1)"],
}
TABLE_CALLS = {
    "(n) AS TABLE SELECT i FROM t WHERE i < n ORDER BY i DESC LIMIT 2": ["m(3)"],
    "(n) AS TABLE FROM t WHERE i < n": ["m(3)"],
    "(n) AS TABLE WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT x + 1 FROM r WHERE x < n) FROM r": ["m(3)"],
    "(n) AS TABLE (SELECT i, n FROM t) UNION ALL SELECT 1, n ORDER BY 1, 2": ["m(3)"],
    "(n) AS TABLE SELECT * REPLACE (i + n AS i) FROM t ORDER BY i": ["m(3)"],
    "(n) AS TABLE WITH q AS (SELECT n AS y) SELECT y, count(*) AS c FROM q, t GROUP BY ALL": ["m(3)"],
    "(n) AS TABLE (SELECT n), (a, b) AS TABLE (SELECT a, b)": ["m(3)", "m(3, 4)"],
    "(n) AS TABLE VALUES (n, 'a'), (2, 'b')": ["m(1)"],
    "(n) AS TABLE SELECT DISTINCT t.i, u.i AS j FROM t JOIN t AS u ON t.i = u.i WHERE t.i = n": ["m(1)"],
    "(n) AS TABLE SELECT * FROM t UNION ALL SELECT x FROM range(n) r(x) ORDER BY ALL": ["m(2)"],
    "() AS TABLE SELECT u.* FROM (SELECT i FROM t) u LEFT JOIN t USING (i) ORDER BY 1 OFFSET 1": ["m()"],
}


@pytest.fixture
def catalog_file(tmp_path) -> CatalogDatabase:
    return file_catalog("sqlite", tmp_path / "lake")


def _results(catalog: CatalogDatabase, calls: list[str]) -> list[object]:
    with open_lake(catalog) as reference:
        return [reference.sql(f"SELECT {call}") for call in calls]


@pytest.mark.parametrize(
    ("definition", "calls"),
    [*CALLS.items(), *((one, [f"* FROM {call}" for call in calls]) for one, calls in TABLE_CALLS.items())],
)
def test_a_macro_of_ours_gives_what_that_of_the_reference_gives(catalog_file, tmp_path, definition, calls):
    theirs = file_catalog("sqlite", tmp_path / "theirs")
    for catalog in (catalog_file, theirs):
        with open_lake(catalog) as reference:
            reference.sql("CREATE TABLE t (i INTEGER); INSERT INTO t FROM range(4)")
    with open_lake(theirs) as reference:
        reference.sql(f"CREATE MACRO m{definition}")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.create_macro("m", definition)

    assert _results(catalog_file, calls) == _results(theirs, calls)


REFUSED = (
    "(a, A) AS a",
    "(a := 5, b) AS a",
    "(a) AS a, (b) AS b",
    "(a) AS zz",
    "(a) AS a +",
    "(a) AS a, a",
    "(a) AS",
    "(a) AS DISTINCT a",
    "(a b c) AS a",
    "(a nosuchtype) AS a",
    "(a VARCHAR := 7) AS a",
    "(a TINYINT := 5) AS a",
    "(a BOOLEAN := 1) AS a",
    "(a DATE := '2024-01-01') AS a",
    "(a INTEGER := 1.5) AS a",
    "(a := NULL) AS a",
    "(a) AS a, (a, b) AS TABLE (SELECT 1)",
    "(a) AS TABLE SELECT",
    "(a) AS TABLE DROP TABLE t",
    "(a) AS ?",
    "(a) AS (SELECT max(i) FROM nosuchlake.main.t)",
    "(a) AS 'a\0b'",
)


@pytest.mark.parametrize("definition", REFUSED)
def test_what_the_reference_refuses_we_refuse_before_anything_is_written(catalog_file, definition):
    with open_lake(catalog_file) as reference, pytest.raises(duckdb.Error):
        reference.sql(f"CREATE MACRO m{definition}")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        with pytest.raises(DuckLakeError), lake.transaction() as tx:
            tx.create_macro("m", definition)
        assert lake.macros() == []


@pytest.mark.parametrize("definition", ["(a INTEGER[]) AS a", "(a := [1, 2]) AS a", "(a := 1 + 2) AS a"])
def test_what_1_0_cannot_hold_is_refused_and_1_1_keeps_it(tmp_path, definition):
    """DuckDB 1.5.5 refuses the whole lake after the second; DuckDB 2.0 refuses all at 1.0."""
    with (
        Lake.create(f"sqlite:///{tmp_path}/a.sqlite", data_path=str(tmp_path)) as lake,
        pytest.raises(DuckLakeError, match=r"DuckLake 1\.0 does not support .*macro"),
        lake.transaction() as tx,
    ):
        tx.create_macro("m", definition)
    with Lake.create(f"sqlite:///{tmp_path}/b.sqlite", data_path=str(tmp_path), version="1.1") as lake:
        with lake.transaction() as tx:
            tx.create_macro("m", definition)
        (macro,) = lake.macros()
        (parameter,) = macro.definition.overloads[0].parameters
        assert parameter.type == "INTEGER[]" or parameter.default.type == "expression"
    with (
        Lake.connect(f"sqlite:///{tmp_path}/a.sqlite") as lake,
        pytest.raises(DuckLakeError, match=r"Macro main\.m: DuckLake 1\.0 does not support"),
        lake.transaction() as tx,
    ):
        tx.create_macro("m", macro.definition)


def test_the_examples_of_the_page_run_here_and_in_the_reference(catalog_file, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "macros.md").read_text()
    (statements,) = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (library,) = (
        code
        for code in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        if "DAG(" not in code
    )
    theirs = file_catalog("sqlite", tmp_path / "theirs")
    for catalog in (catalog_file, theirs):
        with open_lake(catalog) as reference:
            reference.sql("CREATE TABLE orders (id INTEGER)")
    with open_lake(theirs) as reference:
        for statement in statements.split(";"):
            reference.sql(statement)
        names = reference.sql("SELECT function_name FROM duckdb_functions() WHERE database_name = 'lake'")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        with lake.transaction() as tx:
            apply_ddl(tx, parse_ddl(statements))
        assert {one.name.name for one in lake.macros()} == {name for (name,) in names}
        with lake.transaction() as tx:
            tx.drop_macro("net")
        exec(compile(library, "macros.md", "exec"), {"lake": lake})
        assert {one.name.name for one in lake.macros()} == {"net", "one", "first_of"}


def test_macros_are_listed_as_their_authors_wrote_them(catalog_file):
    with open_lake(catalog_file) as reference:
        reference.sql("CREATE SCHEMA s; CREATE MACRO s.plus(a, b := 2) AS a + b")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        before = lake.current_snapshot().id
        with lake.transaction() as tx:
            apply_ddl(tx, parse_ddl("CREATE MACRO many(n INTEGER) AS TABLE SELECT  n; DROP MACRO s.plus"))

        (many,) = lake.macros()
        (plus,) = lake.macros(at=before)

    assert str(many.name) == "main.many"
    assert many.definition.is_table
    (body,) = many.definition.overloads
    assert (body.sql, body.parameters[0].name, body.parameters[0].type) == ("SELECT  n", "n", "int32")
    (body,) = plus.definition.overloads
    assert (str(plus.name), body.sql, body.parameters[1].default.text) == ("s.plus", "(a + b)", "2")


@pytest.mark.parametrize(
    "definition",
    [
        MacroDefinition(()),
        MacroDefinition((MacroOverload("a +", (MacroParameter("a"),)),)),
        MacroDefinition((MacroOverload("DROP TABLE t"),), is_table=True),
        MacroDefinition((MacroOverload("a", (MacroParameter("a", "nosuchtype"),)),)),
        MacroDefinition((MacroOverload("1", dialect="spark"),)),
    ],
)
def test_a_definition_that_duckdb_might_not_read_is_refused(catalog_file, definition):
    with (
        Lake.create(catalog_file.sqlalchemy_url, catalog_file.data_path) as lake,
        pytest.raises(InvalidInputError, match=r"^Macro main\.m"),
        lake.transaction() as tx,
    ):
        tx.create_macro("m", definition)


def test_a_macro_that_is_listed_can_be_made_again(catalog_file):
    definitions = [one for one in (*CALLS, *TABLE_CALLS) if "ORDER BY ALL" not in one]  # becomes COLUMNS(*)
    with open_lake(catalog_file) as reference:
        reference.sql("CREATE TABLE t (i INTEGER)")
        for number, definition in enumerate(definitions):
            reference.sql(f"CREATE MACRO m{number}{definition}")
    with Lake.connect(catalog_file.sqlalchemy_url) as lake:
        made = lake.macros()
        with lake.transaction() as tx:
            for one in made:
                tx.create_macro(one.name, one.definition, or_replace=True)
        assert [one.definition for one in lake.macros()] == [one.definition for one in made]
    assert len(made) == len(definitions)
