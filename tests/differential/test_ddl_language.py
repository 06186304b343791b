"""Our DDL is DuckDB's: what we read the reference accepts, and both cut statements at the same places."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.format.defaults import SqlExpression
from airflow_provider_ducklake.lake.format.names.identifiers import RESERVED, quote, written
from airflow_provider_ducklake.lake.format.types.ducklake_types import NOT_STORABLE, SCALARS
from airflow_provider_ducklake.lake.sql.duckdb.cursor import split_statements
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.sql.duckdb.types import (
    BARE_FUNCTIONS,
    DECIMAL_SPELLINGS,
    FUNCTIONS,
    NOT_IN_THE_FORMAT,
    SCALAR_SPELLINGS,
    STRUCT_SPELLINGS,
)
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.unit.sql.accepted import ACCEPTED, DUCKDB_2_0


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> CatalogDatabase:
    return file_catalog("sqlite", tmp_path_factory.mktemp("ddl") / "lake")


@pytest.fixture(scope="module")
def lake(catalog: CatalogDatabase) -> Iterator[DuckLakeConnection]:
    with open_lake(catalog) as connection:
        yield connection


def test_the_reference_accepts_every_statement_that_we_read(lake):
    for text, _ in ACCEPTED:
        lake.sql(text)


def test_duckdb_2_0_parses_what_it_has_more_of():
    with open_core() as core:
        for text, _ in (*ACCEPTED, *DUCKDB_2_0):
            verdict = core.parse_error(text)
            assert verdict is None, (text, verdict)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT) SORTED BY (a DESC)",
        "CREATE TABLE t (a INT) PARTITIONED BY (a) PARTITIONED BY (a)",
        "CREATE TABLE t (a INT) PARTITIONED BY ()",
        "ALTER TABLE t SET ()",
        "ALTER TABLE t SET (a 1)",
        "ALTER TABLE t SET (a = 1 + 1)",
        "ALTER TABLE t SET (a = 1, A = 2)",
        "ALTER TABLE t RESET (a = 1)",
        "ALTER TABLE t SET a = 1",
    ],
)
def test_neither_duckdb_2_0_nor_we_read(text):
    with pytest.raises(DuckLakeError):
        parse_ddl(text)
    with open_core() as core:
        assert core.parse_error(text) is not None


def test_reserved_words_are_those_of_the_reference(lake):
    kinds = "('reserved', 'type_function')"

    rows = lake.sql(f"SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN {kinds}")

    assert {name for (name,) in rows} == RESERVED


def test_names_are_written_as_the_reference_writes_them(lake):
    keywords = {name for (name,) in lake.sql("SELECT keyword_name FROM duckdb_keywords()")}
    names = [*sorted(keywords), "Abc", "_a1", "1a", "a b", "a.b", 'a"b', "a$b", "ü"]
    lake.sql(f"CREATE TABLE names ({', '.join(f'{quote(name)} INT' for name in names)})")

    lake.sql(f"ALTER TABLE names SET SORTED BY ({', '.join(map(quote, names))})")

    rows = lake.sql(
        "SELECT expression FROM __ducklake_metadata_lake.ducklake_sort_expression JOIN "
        "__ducklake_metadata_lake.ducklake_table USING (table_id) "
        "WHERE table_name = 'names' ORDER BY sort_key_index"
    )
    assert [expression for (expression,) in rows] == [written(name) for name in names]


def test_spellings_of_types_are_those_of_the_reference(lake):
    rows = lake.sql("SELECT DISTINCT lower(type_name) FROM duckdb_types() WHERE type_name NOT LIKE '% %'")
    ours = {*SCALAR_SPELLINGS, *DECIMAL_SPELLINGS, *STRUCT_SPELLINGS, "map", *NOT_IN_THE_FORMAT}

    assert {name for (name,) in rows} <= ours


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        pair
        for pair in SCALAR_SPELLINGS.items()
        if pair[1] not in NOT_STORABLE and SCALARS[pair[1]].since is None
    ],
)
def test_a_spelling_means_the_reference_s_type(lake, spelling, name):
    lake.sql(f"CREATE OR REPLACE TABLE types (c {spelling})")

    (row,) = lake.sql(
        "SELECT column_type FROM __ducklake_metadata_lake.ducklake_column"
        " WHERE end_snapshot IS NULL ORDER BY table_id DESC LIMIT 1"
    )

    assert row == (name,)


@pytest.mark.parametrize("spelling", SCALAR_SPELLINGS)
def test_a_spelling_has_its_place_in_expressions_too(spelling):
    for text in (f"{spelling} 'x'", f"'x'::{spelling}", f"CAST('x' AS {spelling}[])"):
        statement = f"CREATE TABLE t (c VARCHAR DEFAULT {text})"
        assert len(parse_ddl(statement)) == len(duckdb.extract_statements(statement)) == 1


@pytest.mark.parametrize("call", sorted(BARE_FUNCTIONS))
def test_functions_without_parentheses_are_the_reference_s(lake, call):
    lake.sql(f"CREATE OR REPLACE TABLE functions (c VARCHAR DEFAULT {call})")


def test_functions_are_the_reference_s(lake):
    rows = lake.sql("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar'")

    assert {name for (name,) in rows} >= FUNCTIONS
    for name in FUNCTIONS:
        assert len(duckdb.extract_statements(f"SELECT {name}(), {name}(1, 'x', 2)")) == 1


_OPERANDS = st.sampled_from(
    [
        *(
            "7",
            "-7",
            "1.5",
            ".5",
            "1e3",
            "1_000",
            "'x'",
            "$$x$$",
            "TRUE",
            "NULL",
            "now()",
            "current_date",
            "-now()",
        ),
        *("DATE '2024-01-01'", "INTERVAL '1 day'", "CAST(7 AS BIGINT)", "'1'::INT", "concat('a', 1)"),
        "7::DECIMAL(9, 2)::VARCHAR[]",
    ]
)
_EXPRESSIONS = st.recursive(
    _OPERANDS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "||"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"upper({text}, 1)"),
        inner.map(lambda text: f"-({text})::INT"),
    ),
    max_leaves=5,
)
_SYMBOLS = st.sampled_from(["(", ")", "-", "+", "::", ",", "INT", "AS", "CAST", "%", "[", ".", "x", "NOT"])


@given(_EXPRESSIONS | st.lists(_OPERANDS | _SYMBOLS, max_size=7).map(" ".join))
@example("7 NULL")
@example("now() NOT NULL")
@settings(deadline=None)
def test_a_default_that_we_read_is_one_expression_for_the_reference(text):
    statement = f"CREATE TABLE t (c VARCHAR DEFAULT {text})"
    try:
        ((made,),) = [parsed.calls for parsed in parse_ddl(statement)]
    except DuckLakeError:
        reject()

    assert len(duckdb.extract_statements(statement)) == 1
    default = made.flags.get("defaults", {}).get("c")
    if isinstance(default, SqlExpression):
        assert len(duckdb.extract_statements(f"SELECT ({default.text})")) == 1


@pytest.mark.parametrize("default", ["7", "-7", "'x'", "NULL", "now()", "1 + 2", "upper('x')", "(7)::INT"])
@pytest.mark.parametrize("option", ["", "NULL", "NOT NULL"])
def test_an_option_behind_a_default_is_the_column_s(default, option):
    statement = f"CREATE TABLE t (c VARCHAR DEFAULT {default} {option})"

    ((made,),) = [parsed.calls for parsed in parse_ddl(statement)]

    with duckdb.connect() as connection:
        connection.execute(statement)
        ((theirs, nullable),) = connection.execute(
            "SELECT column_default, is_nullable FROM duckdb_columns() WHERE table_name = 't'"
        ).fetchall()
        assert ("c" not in made.arguments[3]) == nullable
        if default != "now()":
            found = made.flags.get("defaults", {}).get("c")
            ours = default if found is None else _as_sql(found)
            assert connection.execute(
                f"SELECT ({ours})::VARCHAR IS NOT DISTINCT FROM ({theirs})::VARCHAR"
            ).fetchone() == (True,)


def _as_sql(default: object) -> str:
    if isinstance(default, SqlExpression):
        return default.text
    return f"'{default}'" if isinstance(default, str) else str(default)


_ITEMS = st.sampled_from(
    [
        *("1", "5.", ".5", "1e5", "'a;''b'", '"a;""b"', "$$;'$$", "$a$ ; $$ $a$", "ü", "_a$1", "x::INT"),
        *("{'a': 1}", "N';'", "a::begin", "[.5]", "“", "'“;'"),
        *("1 /*/* ; */*/", "/* /* */* ; */ 1", "1 -- ;\r"),
        *("1 -- ; '\n", "/* ; /* ; */ ' */ 1", "(1 /*;*/)", "'\\'", "'--'", "\xa01", "$1"),
    ]
)
_QUERIES = st.tuples(
    st.sampled_from(["SELECT ", "BEGIN; SELECT ", "CALL f('a;b');SELECT "]),
    st.lists(_ITEMS, min_size=1, max_size=4).map(", ".join),
).map("".join)


@given(st.lists(_QUERIES | st.sampled_from(["", " -- ;\n", "/* ; */"]), max_size=4).map(";".join))
@settings(deadline=None)
def test_statements_are_cut_where_the_reference_cuts_them(text):
    theirs = [statement.query for statement in duckdb.extract_statements(text.replace("\xa0", " "))]

    ours = [text[tokens[0].start : tokens[-1].end] for tokens in split_statements(text)]

    assert len(ours) == len(theirs)
    assert all(one.replace("\xa0", " ") in query for one, query in zip(ours, theirs, strict=True))


@given(st.text(alphabet="aZ_ 9\"'.$;ü", min_size=1, max_size=6) | st.sampled_from(sorted(RESERVED)))
@settings(deadline=None)
def test_a_written_name_is_a_name_for_the_reference(name):
    with duckdb.connect() as connection:
        result = connection.execute(f"SELECT 1 AS {written(name)}")
        assert result.description[0][0] == name
        assert len(duckdb.extract_statements(f"SELECT {written(name)} FROM t")) == 1
