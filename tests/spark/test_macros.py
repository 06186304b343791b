"""Macros of a lake in Spark SQL give what DuckDB gives, or an error that names the macro."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake

COLUMNS = {
    "i": "int32",
    "b": "int64",
    "p": "decimal(18,2)",
    "x": "float64",
    "s": "varchar",
    "c": "varchar",
    "d": "date",
    "f": "boolean",
}
TEXTS = (
    "",
    "a",
    "DE",
    " DE ",
    "\u00e9t\u00e9",
    "\U0001f986x",
    "e\u0301",
    "a%b",
    "A_b",
    "it's",
    "\\",
    "abcabc",
    "\u00df",
    "\u3000\u00a0 a\t\u2003",
)
NUMBERS = (0, 1, -1, 7, -7, 100, 2**20, -(2**20), None)
ROWS = pa.Table.from_pylist(
    [
        {
            "i": NUMBERS[n % len(NUMBERS)],
            "b": None if n % 11 == 10 else (n - 20) * 10**9 + n,
            "p": None if n % 7 == 6 else Decimal(n * 7919 - 150000) / 100,
            "x": None if n % 5 == 4 else (n - 13) * 0.37,
            "s": None if n % 14 == 13 else TEXTS[n % len(TEXTS)],
            "c": ("DE", "FR", "paid", None)[n % 4],
            "d": None if n % 9 == 8 else date(1 + n * 97, 1 + n % 12, 1 + n % 28),
            "f": (True, False, None)[n % 3],
        }
        for n in range(60)
    ],
    schema=pa.schema(
        [
            ("i", pa.int32()),
            ("b", pa.int64()),
            ("p", pa.decimal128(18, 2)),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("c", pa.string()),
            ("d", pa.date32()),
            ("f", pa.bool_()),
        ]
    ),
)
# (what follows CREATE MACRO's name, calls)
SCALARS = {
    "net": (
        "(price, rate := 0.19) AS round(price * (1 - rate), 2)",
        ["net(p)", "net(p, 0.07)", "net(p, rate => 0.5)"],
    ),
    "gross": ("(a) AS a + a * 0.19", ["gross(p)", "gross(x)"]),
    "sums": (
        "(a, b) AS (a + b) * 2 - -a",
        ["sums(i, b)", "sums(i, i)", "sums(x, i)", "sums(x, x)", "sums(p, i)"],
    ),
    "rest": ("(a) AS a % 7 + abs(a)", ["rest(i)", "rest(b)"]),
    "pick": ("(a) AS a, (a, b) AS coalesce(a, b), (a, b, c) AS coalesce(a, b, c)", ["pick(i)", "pick(s, c)"]),
    "names": ("(a, b := '-') AS concat(a, b) || '.' || coalesce(a, '?')", ["names(s)", "names(s, c)"]),
    "cut": ("(a) AS left(a, 2) || substring(a, 2, 3) || trim(a) || ltrim(a) || rtrim(a)", ["cut(s)"]),
    "trimmed": ("(a) AS trim(a) || ';' || ltrim(a) || ';' || rtrim(a)", ["trimmed(s)"]),
    "quoting": (
        r"(a) AS CASE WHEN a LIKE '%''%' THEN 'quote''s' ELSE concat(a, '\n', '\') END",
        ["quoting(s)"],
    ),
    "long": ("(a) AS length(a) + length(replace(a, 'a', 'xyz'))", ["long(s)", "long(c)"]),
    "tests": (
        "(a, b) AS starts_with(a, b) OR contains(a, b) OR ends_with(a, b) OR a LIKE 'a_%'",
        ["tests(s, c)", "tests(s, 'b')", "tests(s, '')"],
    ),
    "german": ("(a) AS CASE a WHEN 'DE' THEN 1 WHEN 'FR' THEN 2 ELSE 0 END", ["german(c)", "german(s)"]),
    "kind": ("(a) AS CASE WHEN a IN ('DE', 'FR') THEN 'eu' WHEN a IS NULL THEN NULL ELSE a END", ["kind(c)"]),
    "between": ("(a) AS a BETWEEN 0 AND 100 AND a NOT IN (1, 7) OR NOT a > -5", ["between(i)", "between(p)"]),
    "same": ("(a, b) AS a IS DISTINCT FROM b", ["same(i, b)", "same(d, d)", "same(f, f)", "same(p, 0)"]),
    "logic": ("(a, b) AS a AND b OR NOT a", ["logic(f, i > 0)", "logic(f, NULL IS NULL)"]),
    "day_of": ("(a) AS year(a) * 10000 + month(a) * 100 + day(a)", ["day_of(d)"]),
    "recent": ("(a) AS a >= DATE '2024-01-31'", ["recent(d)"]),
    "typed": ("(a) AS a::BIGINT + CAST(a AS DECIMAL(12, 2))", ["typed(i)"]),
    "shown": ("(a) AS a::VARCHAR || ':'", ["shown(i)", "shown(b)", "shown(f)", "shown(s)"]),
    "rounded": ("(a) AS CAST(a AS DECIMAL(18, 1))", ["rounded(p)", "rounded(i)"]),
    "unless": ("(a, b) AS nullif(a, b)", ["unless(i, 7)", "unless(b, i)", "unless(d, d)"]),
    "most": ("(a, b) AS greatest(a, b, 5) - least(a, b)", ["most(i, b)", "most(b, i)"]),
    "const": ("() AS 42", ["const()"]),
    "nested": ("(a) AS main.net(a) + sales.twice(a)", ["nested(p)"]),
    "twice_of": ("(a) AS main.rest(main.rest(a))", ["twice_of(i)"]),
}
IN_SALES = {"sales.twice": "(a) AS a * 2"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("macros")
    (folder / "data").mkdir()
    with Lake.create(f"sqlite:///{folder}/catalog.sqlite", data_path=f"{folder}/data/") as lake:
        with lake.transaction() as tx:
            tx.create_table("main.t", COLUMNS)
            tx.create_schema("sales")
            tx.append_arrow("main.t", ROWS)
            for name, definition in IN_SALES.items():
                tx.create_macro(name, definition)
            for name, (definition, _) in SCALARS.items():
                tx.create_macro(name, definition)
        yield lake


@pytest.fixture(scope="module")
def session(spark, lake) -> LakeSession:
    return LakeSession(spark, lake)


def theirs(lake: Lake, query: str) -> list[tuple[object, ...]]:
    path = lake.opened.catalog.dialect.engine.url.database
    with open_lake(f"ducklake:sqlite:{path}") as reference:
        return reference.sql(query)


def in_main(call: str) -> str:
    name, rest = call.split("(", 1)
    return f"main.{name}({rest}"


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_macros_give_what_duckdb_gives(session, lake, name):
    calls = [in_main(call) for call in SCALARS[name][1]]
    columns = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    session.sql(f"CREATE OR REPLACE TABLE results AS SELECT i, b, p, {columns} FROM t")

    calls = [call.replace("=>", ":=") for call in calls]
    wanted = theirs(lake, f"SELECT i, b, p, {', '.join(calls)} FROM t")
    rows = [tuple(row.values()) for row in lake.read_arrow("results").to_pylist()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


@pytest.mark.filterwarnings("ignore:The SQL config")  # is deprecated
@pytest.mark.parametrize(
    "setting", ["parser.escapedStringLiterals", "legacy.consecutiveStringLiterals.enabled"]
)
def test_strings_of_macros_mean_the_same_whatever_a_session_says(spark, session, lake, setting):
    spark.conf.set(f"spark.sql.{setting}", "true")
    try:
        test_scalar_macros_give_what_duckdb_gives(session, lake, "quoting")
    finally:
        spark.conf.unset(f"spark.sql.{setting}")


TABLES = {
    "few": ("(n) AS TABLE SELECT i, p * 2 AS twice FROM t WHERE i < n", "few(5)"),
    "alias": ("(n, k := 1) AS TABLE SELECT u.i AS j, n AS n2 FROM main.t AS u WHERE u.i = k", "alias('x')"),
    "named": ("(n, k := 1) AS TABLE SELECT i FROM t WHERE i <> n AND i > k", "named(7, k => 0)"),
    "pairs": (
        "(n) AS TABLE SELECT a.i AS i, b.b AS b FROM t a JOIN t AS b ON a.i = b.i AND a.i = n WHERE a.p > 0",
        "pairs(1)",
    ),
    "outer_ones": (
        "(n) AS TABLE SELECT a.i AS i, b.p AS p FROM t a LEFT JOIN t b ON a.b = b.b AND b.i > n",
        "outer_ones(0)",
    ),
    "everything": ("() AS TABLE SELECT * FROM t WHERE c = 'DE'", "everything()"),
    "crossed": ("(n) AS TABLE SELECT a.i AS i, n * b.i AS y FROM t a, t b WHERE b.i = 1", "crossed(3)"),
    "calls": ("(n) AS TABLE SELECT main.rest(i) AS r FROM t WHERE sales.twice(i) < n", "calls(10)"),
}


@pytest.fixture(scope="module")
def with_tables(lake) -> Lake:
    with lake.transaction() as tx:
        for name, (definition, _) in TABLES.items():
            tx.create_macro(name, definition)
    return lake


@pytest.mark.parametrize("name", TABLES)
def test_table_macros_give_what_duckdb_gives(session, with_tables, name):
    call = TABLES[name][1]
    session.sql(f"CREATE OR REPLACE TABLE results AS SELECT * FROM main.{call}")

    wanted = theirs(with_tables, f"FROM {call.replace('=>', ':=')}")
    rows = [tuple(row.values()) for row in with_tables.read_arrow("results").to_pylist()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    assert wanted


def test_calls_stand_wherever_expressions_do(session, with_tables):
    session.sql(
        "CREATE TEMPORARY VIEW v AS SELECT main.german(c) AS g, p FROM t WHERE main.rest(i) IS NOT NULL; "
        "CREATE OR REPLACE TABLE results AS "
        "SELECT main.sums(g, count(*)) AS n, main.net(sum(p)) AS s FROM v f GROUP BY g "
        "HAVING main.rest(g) >= 0"
    )

    wanted = theirs(
        with_tables,
        "SELECT sums(g, count(*)), net(sum(p)) FROM "
        "(SELECT german(c) AS g, p FROM t WHERE rest(i) IS NOT NULL) GROUP BY g HAVING rest(g) >= 0",
    )
    rows = [tuple(row.values()) for row in with_tables.read_arrow("results").to_pylist()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    assert len(rows) == 3


def test_columns_with_the_names_of_parameters_and_calls_in_arguments(session, lake):
    call = "main.pick(a, main.rest(price + rate))"
    query = "SELECT main.unless(b, {call}) AS y FROM (SELECT 1 AS b, 2 AS a, 3 AS price, 4 AS rate) q"
    session.sql("CREATE OR REPLACE TABLE results AS " + query.format(call=call))

    assert lake.read_arrow("results")["y"].to_pylist() == [1]
    assert theirs(
        lake, "SELECT unless(b, pick(a, rest(price + rate))) FROM (SELECT 1 b, 2 a, 3 price, 4 rate)"
    ) == [(1,)]


def test_arguments_that_are_expressions_stand_wherever_expressions_do(session, lake):
    query = (
        "SELECT {m}rest(i + 1) AS r, {m}sums(count(*), max(b) - 1) AS s, "
        "sum(CAST({m}pick(sum(i), 0) AS BIGINT)) OVER (ORDER BY {m}rest(i + 1) NULLS FIRST) AS w, "
        "{m}pick((SELECT max(i) FROM {m}t), 1) AS q "
        "FROM {m}t GROUP BY {m}rest(i + 1) ORDER BY r"
    )
    session.sql("CREATE OR REPLACE TABLE results AS " + query.format(m="main."))

    rows = [tuple(row.values()) for row in lake.read_arrow("results").to_pylist()]
    assert sorted(rows, key=repr) == sorted(theirs(lake, query.format(m="")), key=repr)
    assert len(rows) > 3


def test_columns_are_not_taken_for_what_binds_arguments(session, lake):
    session.sql(
        "CREATE OR REPLACE TABLE results AS SELECT main.pick(arguments_of_macro.a0, a0 + 1, -5) AS y FROM "
        "(SELECT named_struct('a0', CAST(NULL AS INT)) AS arguments_of_macro, 7 AS a0) q"
    )

    assert lake.read_arrow("results")["y"].to_pylist() == [8]


def test_tables_with_the_name_of_a_macro_are_tables(session, lake):
    with lake.transaction() as tx:
        tx.create_table("sales.twice", {"a": "int32", "b": "int32"})
    session.sql("INSERT INTO sales.twice (b, a) SELECT 1, sales.twice(1)")
    session.sql(
        "INSERT INTO TABLE sales.twice (a, b) SELECT a + 1, b FROM sales.twice WHERE sales.twice.b = 1"
    )

    assert sorted(lake.read_arrow("sales.twice")["a"].to_pylist()) == [2, 3]


def test_views_of_sparks_dialect_call_macros(session, lake):
    with lake.transaction() as tx:
        tx.create_view("sales.v", "SELECT main.rest(i) AS r FROM main.t", dialect="spark", or_replace=True)
    session.sql("CREATE OR REPLACE TABLE results AS SELECT * FROM sales.v")

    assert lake.read_arrow("results").num_rows == ROWS.num_rows


def test_macros_are_those_of_the_snapshot_that_is_read(session, lake):
    with lake.transaction() as tx:
        tx.create_macro("main.dated", "(a) AS a + 1")
    before = lake.current_snapshot().id
    with lake.transaction() as tx:
        tx.create_macro("main.dated", "(a) AS a + 2", or_replace=True)
    session.sql("CREATE OR REPLACE TABLE results AS SELECT main.dated(1) AS a", at=before)
    assert lake.read_arrow("results")["a"].to_pylist() == [2]


def test_a_name_without_a_schema_means_what_it_means_in_duckdb(session, lake):
    with lake.transaction() as tx:
        tx.create_macro("main.own", "(a) AS 'main'")
        tx.create_macro("sales.own", "(a) AS 'sales'")
        tx.create_macro("main.calls_own", "(a) AS own(a) || starts(a)")
        tx.create_macro("main.starts", "(a) AS 'x'")
        tx.create_macro("main.trim", "(a) AS 'mine'")
        tx.create_macro("main.trims", "(a) AS trim(a)")
    path = lake.opened.catalog.dialect.engine.url.database
    for schema in ("main", "sales"):
        session.sql(
            "CREATE OR REPLACE TABLE main.results AS SELECT main.calls_own(1) AS a, main.trims('y') AS b",
            default_schema=schema,
        )
        with open_lake(f"ducklake:sqlite:{path}") as reference:
            reference.sql(f"USE lake.{schema}")
            wanted = reference.sql("SELECT main.calls_own(1), main.trims('y')")
        assert [tuple(row.values()) for row in lake.read_arrow("main.results").to_pylist()] == wanted
    with lake.transaction() as tx:
        tx.drop_macro("main.trim")


REFUSED = {
    "divide": ("(a) AS a / 2", "divide(i)", "the operator / is not the same"),
    "low": ("(a) AS lower(a)", "low(s)", "the function lower is not the same"),
    "agg": ("(a) AS sum(a)", "agg(i)", "the function sum"),
    "sub": ("(a) AS (SELECT max(i) FROM t)", "sub(i)", "a query within an expression"),
    "dated_like": ("(a) AS a = '2024-01-01'", "dated_like(s)", "may read as a time or UUID"),
    "typed_one": ("(a INTEGER) AS a", "typed_one(i)", "parameter a has the type int32"),
    "two_fit": ("(a) AS a, (a, b := 1) AS b", "two_fit(i)", "several overloads fit 1 arguments"),
    "one_fits": ("(a) AS a", "one_fits(i, i)", "no overload fits 2 arguments"),
    "one_named": ("(a) AS a", "one_named(z => i)", "no overload fits 0 arguments and z"),
    "float_default": ("(a, b := 1e3) AS a", "float_default(i)", "a default of type float64"),
    "list_one": ("(a) AS [a]", "list_one(i)", "it has a list"),
    "struct_one": ("(a) AS a.b", "struct_one(i)", "is not a parameter alone"),
    "foreign_one": ("(a) AS nosuch(a)", "foreign_one(i)", "the function nosuch"),
    "rest_of": ("(a, b) AS a % b", "rest_of(i, i)", "% is the same in Spark only"),
    "text_number": ("(a) AS a::DOUBLE::VARCHAR", "text_number(i)", None),
    "bad_types": ("(a) AS a + 1", "bad_types(s)", None),
    "times": ("(a, b) AS a = b", "times(s, s)", None),
}
REFUSED_TABLES = {
    "grouped": ("() AS TABLE SELECT i FROM t GROUP BY i", "grouped()", "more than one SELECT"),
    "sorted_one": ("() AS TABLE SELECT i FROM t ORDER BY i", "sorted_one()", "more than one SELECT"),
    "ranged": ("(n) AS TABLE SELECT i FROM range(n) r(i)", "ranged(2)", "from a function or a query"),
    "unnamed": ("(n) AS TABLE SELECT i + n FROM t", "unnamed(2)", "without a name"),
    "gone": ("(n) AS TABLE SELECT i FROM gone", "gone(2)", "there is no table gone"),
    "same_name": ("(p2, i) AS TABLE SELECT b FROM t", "same_name(1, 2)", "is also a column"),
    "constants": ("(n) AS TABLE SELECT i FROM t WHERE i = n", "constants((SELECT 1))", "is not a constant"),
}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_TABLES])
def test_what_may_differ_is_an_error_that_names_the_macro(session, lake, name):
    definition, call, problem = {**REFUSED, **REFUSED_TABLES}[name]
    with lake.transaction() as tx:
        tx.create_macro(name, definition, or_replace=True)
    query = f"SELECT main.{call} AS y FROM t" if name in REFUSED else f"SELECT * FROM main.{call}"
    error = UnsupportedFeatureError if problem else DuckLakeError
    with pytest.raises(error, match=rf"(?s)acro main\.{name}: .*{problem or 'may differ for arguments'}"):
        session.sql(f"CREATE OR REPLACE TABLE results AS {query}")


def test_macros_that_call_themselves_are_refused(session, lake):
    with lake.transaction() as tx:
        tx.create_macro("main.ring", "(a) AS main.ring_of(a)")
        tx.create_macro("main.ring_of", "(a) AS main.ring(a)")
    with pytest.raises(UnsupportedFeatureError, match=r"Macro main\.ring: it calls itself"):
        session.sql("CREATE OR REPLACE TABLE results AS SELECT main.ring(1) AS y")


def test_a_redefined_operator_is_refused(session, lake):
    with lake.transaction() as tx:
        tx.create_macro('main."+"', "(a, b) AS 'plus'")
    try:
        with pytest.raises(UnsupportedFeatureError, match="redefines the operator"):
            session.sql("CREATE OR REPLACE TABLE results AS SELECT main.gross(p) AS y FROM t")
    finally:
        with lake.transaction() as tx:
            tx.drop_macro('main."+"')
