"""SQL texts become statements, or an error that says where and what to do."""

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    InvalidStatementError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.sql.duckdb import create, ddl
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.unit.sql.accepted import ACCEPTED, BEYOND_THE_REFERENCE

ALL = [*ACCEPTED, *BEYOND_THE_REFERENCE]


@pytest.mark.parametrize(("text", "expected"), ALL)
def test_a_statement_becomes_its_value(text, expected):
    (parsed,) = parse_ddl(text)

    assert (parsed.number, parsed.text) == (1, text)
    calls = expected if isinstance(expected, tuple) else (expected,)
    assert str(parsed.calls) == str(calls)  # columns in their order, too


def test_every_kind_of_statement_is_tested():
    called = {one.method for text, _ in ALL for one in parse_ddl(text)[0].calls}
    written = {
        *re.findall(r'call\(\s*"(\w+)"', "".join(map(inspect.getsource, (create, ddl)))),
        "drop_table",
        "drop_view",
    }
    assert called == written
    assert all(hasattr(LakeTransaction, one) for one in called)


NO_QUERIES = [text for text, _ in ALL if not re.match("CREATE.* (VIEW|MACRO|FUNCTION)", text)]
MORE = ["extra words", ", x", "(x)", "IF EXISTS", "CASCADE CASCADE", "WITH (a = 1)", "'x'", "7", ")", "::"]


@pytest.mark.parametrize("text", NO_QUERIES)
@pytest.mark.parametrize("more", MORE)
def test_no_word_too_many_is_dropped(text, more):
    with pytest.raises(DuckLakeError):
        parse_ddl(f"{text} {more}")


@pytest.mark.parametrize("text", NO_QUERIES)
def test_a_word_left_out_changes_the_statement_or_is_an_error(text):
    whole = parse_ddl(text)[0].calls
    for space in re.finditer(r"\s\w+(?=\s|$)", text):
        word = space[0].strip().upper()
        try:
            (parsed,) = parse_ddl(text[: space.start()] + text[space.end() :])
        except DuckLakeError:
            continue
        assert parsed.calls != whole or word in {
            "COLUMN",
            "TABLE",
            "RESTRICT",
            "DATA",
            "SET",
            "NULL",
            "DEFAULT",
        }


@pytest.mark.parametrize("text", NO_QUERIES)
@pytest.mark.parametrize("change", [str.lower, lambda text: text.replace(" ", "\n /* ; ' /* */ */ -- ;\"\n")])
def test_case_spaces_and_comments_outside_names_and_strings_do_not_matter(text, change):
    pieces = re.split(r"""('(?:[^']|'')*'|\$\$.*?\$\$|"(?:[^"]|"")*")""", text)
    changed = "".join(piece if index % 2 else change(piece) for index, piece in enumerate(pieces))

    (parsed,) = parse_ddl(f"-- first\n{changed} /* last */ ;\n")

    assert repr(parsed.calls).lower() == repr(parse_ddl(text)[0].calls).lower()


def test_statements_are_numbered_over_all_texts():
    parsed = parse_ddl(
        ["CREATE SCHEMA a;; -- only ; here\nCREATE SCHEMA b;", "  ", 'DROP TABLE "x;y" ; DROP TABLE z']
    )

    assert [(one.number, one.text) for one in parsed] == [
        (1, "CREATE SCHEMA a"),
        (2, "CREATE SCHEMA b"),
        (3, 'DROP TABLE "x;y"'),
        (4, "DROP TABLE z"),
    ]
    methods = [one.calls[0].method for one in parsed]
    assert methods == ["create_schema", "create_schema", "drop_table", "drop_table"]
    assert parse_ddl("") == parse_ddl([]) == parse_ddl(" -- nothing\n;") == ()


def test_an_error_says_where():
    with pytest.raises(InvalidStatementError) as caught:
        parse_ddl(["CREATE SCHEMA a;\nCREATE SCHEMA b", "TRUNCATE t;\n  CREATE TABLE u (a INT,\n  b INTT);"])

    error = caught.value
    assert (error.number, error.line, error.column, error.near) == (4, 3, 5, "'INTT'")
    assert str(error).startswith("Statement 4, line 3, column 5, at 'INTT': DuckLake has no such type.")
    assert str(error).endswith("Nothing was run.")


REFUSED = [
    # keys and constraints
    ("CREATE TABLE t (a INT PRIMARY KEY)", "no primary keys"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (a))", "no primary keys"),
    ("CREATE TABLE t (a INT UNIQUE)", "no unique constraints"),
    ("CREATE TABLE t (a INT, UNIQUE (a))", "no unique constraints"),
    ("CREATE TABLE t (a INT CHECK (a > 1))", "no CHECK"),
    ("CREATE TABLE t (a INT, CHECK (a > 1))", "no CHECK"),
    ("CREATE TABLE t (a INT REFERENCES u (a))", "no foreign keys"),
    ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u (a))", "no foreign keys"),
    ("CREATE TABLE t (a INT CONSTRAINT c NOT NULL)", "no named constraints"),
    ("CREATE TABLE t (a INT, CONSTRAINT c PRIMARY KEY (a))", "no named constraints"),
    ("ALTER TABLE t ADD PRIMARY KEY (a)", "no primary keys"),
    ("ALTER TABLE t ADD CONSTRAINT c UNIQUE (a)", "no named constraints"),
    ("ALTER TABLE t DROP CONSTRAINT c", "no named constraints"),
    ("ALTER TABLE t ADD COLUMN a INT NOT NULL", "cannot be NOT NULL"),
    ("ALTER TABLE t ADD COLUMN a INT DEFAULT 7 NOT NULL", "cannot be NOT NULL"),
    ("ALTER TABLE t ADD COLUMN a INT UNIQUE", "no unique constraints"),
    # columns
    ("CREATE TABLE t (a INT GENERATED ALWAYS AS (1))", "no generated columns"),
    ("CREATE TABLE t (a AS (1))", "no generated columns"),
    ("CREATE TABLE t (a VARCHAR COLLATE nocase)", "no collations"),
    ("CREATE TABLE t (a INT USING COMPRESSION rle)", "compression"),
    ("CREATE TABLE t (a INT COMMENT 'x')", "COMMENT ON COLUMN"),
    ("CREATE TABLE t (a INT NOT NULL NULL)", "is given twice"),
    ("CREATE TABLE t (a INT DEFAULT 1 DEFAULT 2)", "is given twice"),
    ("CREATE TABLE t ()", "name of a column"),
    ("CREATE TABLE t (a INT, b INT, A VARCHAR)", "column 31, at 'A': two columns have this name"),
    ("CREATE TABLE t (a INT,,)", "name of a column"),
    ("CREATE TABLE t (a)", "expected a type"),
    ("CREATE TABLE t (select INT)", 'quote it: "select"'),
    ("CREATE TABLE t (a INT", r"at its end: expected NOT NULL, DEFAULT"),
    # types
    ("CREATE TABLE t (a INTEGER[3])", "fixed-length"),
    ("CREATE TABLE t (a INTEGER ARRAY)", "brackets"),
    ("CREATE TABLE t (a ENUM ('x'))", "no enum types"),
    ("CREATE TABLE t (a UNION (x INT))", "no union types"),
    ("CREATE TABLE t (a BIT)", "no bit strings"),
    ("CREATE TABLE t (a SERIAL)", "no sequences"),
    ("CREATE TABLE t (a MONEY)", "no such type"),
    ("CREATE TABLE t (a TIME_NS)", "use another type"),
    ("CREATE TABLE t (a STRUCT(b TIME_NS[]))", "a.b.element has type time_ns"),
    ("CREATE TABLE t (a DECIMAL(39, 0))", "precision of 1 to 38"),
    ("CREATE TABLE t (a DECIMAL(3, 4))", "precision of 1 to 38"),
    ("CREATE TABLE t (a DECIMAL(9, 2, 1))", "precision of 1 to 38"),
    ("CREATE TABLE t (a DECIMAL(9.5))", "whole number"),
    ("CREATE TABLE t (a TIMESTAMP(3))", "expected NOT NULL"),
    ("CREATE TABLE t (a MAP(INT))", "one for values"),
    ("CREATE TABLE t (a STRUCT(b INT, B INT))", "same name"),
    ("CREATE TABLE t (a STRUCT())", "name of a field"),
    ("CREATE TABLE t (a STRUCT(b INT NOT NULL))", "expected '\\)'"),
    ('CREATE TABLE t (a "int")', "expected a type"),
    ("ALTER TABLE t ALTER a TYPE BIGINT USING a + 1", "USING"),
    ("ALTER TABLE t ALTER a TYPE VARCHAR COLLATE nocase", "does not belong"),
    # defaults
    ("CREATE TABLE t (a INT DEFAULT b)", "cannot refer to columns"),
    ("CREATE TABLE t (a INT DEFAULT (SELECT 1))", "cannot refer to columns or tables"),
    ("CREATE TABLE t (a INT DEFAULT nextval('s'))", "these functions"),
    ("CREATE TABLE t (a INT DEFAULT count(*))", "these functions"),
    ("CREATE TABLE t (a INT DEFAULT)", "expected a literal"),
    ("CREATE TABLE t (a INT DEFAULT 1 +)", "expected a literal"),
    ("CREATE TABLE t (a INT DEFAULT (1)", "expected NOT NULL"),
    ("CREATE TABLE t (a INT DEFAULT $1)", "expected a literal"),
    ("CREATE TABLE t (a INT[] DEFAULT [1])", "expected a literal"),
    ("CREATE TABLE t (a VARCHAR DEFAULT 'x' 'y')", "expected NOT NULL"),
    ("CREATE TABLE t (a VARCHAR DEFAULT E'\\n')", "backslash"),
    ("CREATE TABLE t (a VARCHAR DEFAULT N'x')", "expected a literal"),
    ("CREATE TABLE t (a VARCHAR DEFAULT U&'x')", "these functions"),
    ("CREATE TABLE t (a BLOB DEFAULT x'00')", "these functions"),
    ("CREATE TABLE t (a INT DEFAULT 1enot null)", "expected a literal"),
    ("CREATE TABLE t (a INT DEFAULT 1__0)", "expected"),
    ("CREATE TABLE t (a INT DEFAULT 0x1F)", "expected"),
    ("ALTER TABLE t ALTER b.a SET DEFAULT 7", "nested field"),
    ("ALTER TABLE t ALTER b.a SET NOT NULL", "nested field"),
    # names
    ("CREATE TABLE lake.main.t (a INT)", "Leave the catalog out"),
    ("DROP TABLE a.b.c", "Leave the catalog out"),
    ("CREATE SCHEMA lake.s", "Leave the catalog out"),
    ("COMMENT ON COLUMN a IS 'x'", "name a column and its table"),
    ("COMMENT ON COLUMN lake.main.t.a IS 'x'", "name a column and its table"),
    ("ALTER TABLE t RENAME TO s.u", "alone: it stays"),
    ("ALTER TABLE t RENAME a TO b.c", "alone: it stays"),
    ("ALTER VIEW t RENAME TO s.u", "alone: it stays"),
    ("DROP TABLE 'x'", "expected the name"),
    ('DROP TABLE ""', "at least one character"),
    ("DROP TABLE “t”", "straight quotes"),
    ("COMMENT ON TABLE t IS \u2018x\u2019", "single quotes"),
    ("DROP TABLE `t`", "straight quotes"),
    ("DROP TABLE t.", "expected the name"),
    ('DROP TABLE "a\0b"', "NUL"),
    # keys of partitions and sorts
    ("ALTER TABLE t SET PARTITIONED BY ()", "name of a column"),
    ("ALTER TABLE t SET PARTITIONED BY (s.p)", "nested field"),
    ("ALTER TABLE t SET PARTITIONED BY (bucket(a, 4))", r"bucket\(16, id\)"),
    ("ALTER TABLE t SET PARTITIONED BY (week(a))", "not a partition transform"),
    ("ALTER TABLE t SET PARTITIONED BY (year(a) DESC)", "expected '\\)'"),
    ("ALTER TABLE t SET SORTED BY (t.a)", "without its table"),
    ("ALTER TABLE t SET SORTED BY (a DESC ASC)", "expected '\\)'"),
    ("ALTER TABLE t SET SORTED BY (nosuch(a))", "is not a function that sort keys can have"),
    ("ALTER TABLE t SET SORTED BY ((SELECT 1))", "cannot contain a query"),
    ("ALTER TABLE t SET SORTED BY (a +)", "expected an expression"),
    ("CREATE MACRO m(a) AS b", r'DuckDB refuses the macro \(Binder Error: .* "b" was not found'),
    ("CREATE MACRO m(a) AS a +; DROP TABLE t", "column 15, .*Parser Error: syntax error at end of input"),
    ("CREATE MACRO m AS 1", "expected '\\('"),
    ("CREATE OR REPLACE MACRO IF NOT EXISTS m() AS 1", "cannot be combined"),
    ("DROP MACRO m CASCADE", "nothing depends on a macro"),
    ("ALTER TABLE t SET SORTED BY (a NULLS)", "NULLS FIRST or"),
    ("CREATE TABLE t (a INT) SORTED BY (a DESC)", "without a direction"),
    ("CREATE TABLE t (a INT) PARTITIONED BY (a) PARTITIONED BY (a)", "does not belong"),
    ("ALTER TABLE t SET ()", "name of a table option"),
    ("ALTER TABLE t SET (a 1)", "expected '\\)'"),
    ("ALTER TABLE t SET (a = 1, A = 2)", "given twice"),
    ("ALTER TABLE t SET (a = 1 + 1)", "expected '\\)'"),
    ("ALTER TABLE t SET (a = [1])", "a list holds names"),
    ("ALTER TABLE t SET (a = -x)", "expected a number"),
    ("ALTER TABLE t RESET (a = 1)", "To give a value, use SET"),
    ("ALTER TABLE t RESET (a, a)", "given twice"),
    ("ALTER TABLE t SET a = 1", "options in parentheses"),
    ("CREATE TABLE t (a INT) WITH (x = 1)", "does not belong"),
    ("CREATE TABLE t (a INT) ON COMMIT DROP", "does not belong"),
    # what only sessions have
    ("CREATE TEMP TABLE t (a INT)", "session"),
    ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", "session"),
    ("SET SCHEMA s", "no session"),
    ("USE s", "no session"),
    ("BEGIN", "in one transaction"),
    # objects and actions that there are not
    ("CREATE INDEX i ON t (a)", "no indexes"),
    ("CREATE UNIQUE INDEX i ON t (a)", "no indexes"),
    ("DROP INDEX i", "no indexes"),
    ("CREATE SEQUENCE s", "no sequences"),
    ("CREATE TYPE mood AS ENUM ('x')", "no user-defined types"),
    ("CREATE RECURSIVE VIEW v (n) AS SELECT 1", "WITH RECURSIVE"),
    ("CREATE MATERIALIZED VIEW v AS SELECT 1", "materialized"),
    ("CREATE OR REPLACE SCHEMA s", "cannot be replaced"),
    ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", "cannot be combined"),
    ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "cannot be combined"),
    ("CREATE USER me", "CREATE of this"),
    ("ALTER SCHEMA s RENAME TO r", "cannot alter or rename a schema"),
    ("ALTER TABLE t SET SCHEMA s", "another schema"),
    ("ALTER TABLE t OWNER TO me", "expected RENAME"),
    ("ALTER TABLE t ADD a INT, ADD b INT", "does not belong"),
    ("ALTER TABLE t DROP a CASCADE", "CASCADE"),
    ("DROP TABLE t CASCADE", "CASCADE"),
    ("DROP TABLE a, b", "does not belong"),
    ("DROP SCHEMA s CASCADE RESTRICT", "does not belong"),
    ("TRUNCATE a, b", "does not belong"),
    ("TRUNCATE t CASCADE", "does not belong"),
    ("COMMENT ON SCHEMA s IS 'x'", "TABLE, VIEW and COLUMN"),
    ("COMMENT ON TABLE t 'x'", "expected IS"),
    ("COMMENT ON TABLE t IS 7", "single quotes"),
    # other statements
    ("INSERT INTO t VALUES (1)", "insert operator"),
    ("UPDATE t SET a = 1", "not rows"),
    ("DELETE FROM t", "not rows"),
    ("MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE", "not rows"),
    ("SELECT 1", "SQL operator"),
    ("WITH c AS (SELECT 1) SELECT * FROM c", "SQL operator"),
    ("CALL lake.set_option('a', 'b;c')", "not DDL"),
    ("EXPLAIN CREATE TABLE t (a INT)", "CREATE, ALTER and DROP"),
    ("(SELECT 1)", "CREATE, ALTER and DROP"),
    ("CREATE", "CREATE of this"),
    # views
    ("CREATE VIEW v", "expected AS"),
    ("CREATE VIEW v AS", "expected a query"),
    ("CREATE VIEW v AS INSERT INTO t VALUES (1)", "expected a query"),
    ("CREATE VIEW v AS SELECT a FROM t WHERE a = ?", "no parameters"),
    ("CREATE VIEW v AS SELECT $1", "no parameters"),
    ("CREATE VIEW v AS SELECT a FROM lake.main.t", "names a catalog"),
    ("CREATE VIEW v AS SELECT (SELECT a FROM lake.main.t)", "names a catalog"),
    ("CREATE VIEW v AS SELECT a INTO b FROM t", "can only read"),
    ("CREATE VIEW v AS WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "can only read"),
    ("CREATE VIEW v AS SELECT a FROM WHERE", "cannot read this query at 'WHERE'"),
    ("CREATE VIEW v AS SELECT a FROM t)", "cannot read this query"),
    ("CREATE VIEW v AS SELECT E'\\'; DROP TABLE x; \\''", "column 25, .* backslash"),
    ("CREATE VIEW v () AS SELECT 1", "name of a column"),
    ("CREATE VIEW v WITH (x) AS SELECT 1", "expected AS"),
    # texts that do not end
    ("COMMENT ON TABLE t IS 'x", "is not closed"),
    ('DROP TABLE "t', "is not closed"),
    ("DROP TABLE t /* /* */", "is not closed"),
    ("COMMENT ON TABLE t IS $a$ x $b$", "is not closed"),
    ("DROP TABLE t -- it's\n /* x */ 'y", r"line 2, column 10, at \"'\": .* is not closed"),
    # what sqlglot passes over and DuckDB does not
    ("DROP TABLE {# t; DROP TABLE #} u", r"at '\{': .* not one in DuckDB's SQL"),
    ("DROP TABLE /* x */ {# y #} u", r"column 20, at '\{'"),
    ("DROP TABLE\x85t", "not one in DuckDB's SQL"),
]
NOT_YET = [
    ("CREATE TABLE t AS SELECT 1", "insert operator"),
    ("CREATE OR REPLACE TABLE t AS FROM u", "insert operator"),
    ("ALTER TABLE IF EXISTS t RENAME TO u", "IF EXISTS"),
    ("ALTER VIEW IF EXISTS v RENAME TO u", "IF EXISTS"),
    ("ALTER TABLE t ADD COLUMN a TIMESTAMP DEFAULT now()", "must be a literal"),
    ("ALTER TABLE t ADD COLUMN a DATE DEFAULT DATE '2024-01-01'", "must be a literal"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_what_the_format_has_not_is_refused(text, problem):
    with pytest.raises(InvalidStatementError, match=problem):
        parse_ddl(text)


@pytest.mark.parametrize(("text", "problem"), NOT_YET)
def test_what_this_release_has_not_is_refused(text, problem):
    with pytest.raises(UnsupportedFeatureError, match=f"^Statement 1, line 1, .*{problem}"):
        parse_ddl(text)


def test_one_bad_statement_stops_all():
    with pytest.raises(InvalidStatementError, match=r"^Statement 2, "):
        parse_ddl("CREATE SCHEMA s; CREATE TABLE s.t (a INT PRIMARY KEY)")


WORDS = sorted({word for text, _ in ALL for word in re.findall(r"\w+|\S", text)})


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_read_or_refused_with_an_error_of_ours(text):
    try:
        parsed = parse_ddl(text)
    except DuckLakeError:
        return

    assert all(one.text in text for one in parsed)


def test_numbers_of_more_digits_than_python_reads_are_refused():
    digits = "9" * 5_000
    with pytest.raises(InvalidStatementError, match="expected a whole number"):
        parse_ddl(f"CREATE TABLE t (a DECIMAL({digits}, 2))")


# --- errors of statements that can be read and not be done ---


@pytest.fixture
def lake(tmp_path) -> Iterator[Lake]:
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/files/") as lake:
        run(lake, "CREATE TABLE t (a INT, b VARCHAR)")
        yield lake


def run(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(text))


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE t (a INT)", errors.AlreadyExistsError),
        ("CREATE TABLE nosuch.t (a INT)", errors.SchemaNotFoundError),
        ("DROP TABLE u", errors.TableNotFoundError),
        ("COMMENT ON VIEW t IS 'x'", errors.ViewNotFoundError),
        ("ALTER TABLE t ALTER nosuch SET NOT NULL", errors.ColumnNotFoundError),
        ("ALTER TABLE t ALTER a TYPE SMALLINT", errors.InvalidTypeError),
        ("ALTER TABLE t SET PARTITIONED BY (year(b))", errors.InvalidPartitionError),
        ("ALTER TABLE t ALTER a SET DEFAULT 'x'", errors.InvalidInputError),
        ("DROP SCHEMA made", errors.InvalidInputError),
    ],
)
def test_an_error_names_its_statement_and_nothing_lands(lake, statement, error):
    before = lake.current_snapshot()

    with pytest.raises(error) as raised:
        run(lake, f"CREATE SCHEMA made; CREATE TABLE made.t (a INT); {statement}; DROP TABLE t")

    assert type(raised.value) is error
    assert raised.value.__notes__ == [f"Statement 3 ({statement})"]
    assert pickle.loads(pickle.dumps(raised.value)).__notes__ == raised.value.__notes__
    assert lake.current_snapshot() == before


def test_a_long_statement_is_cut_where_an_error_names_it(lake):
    columns = ",\n  ".join(f"column_{number} INT" for number in range(100))

    with pytest.raises(errors.AlreadyExistsError) as raised:
        run(lake, f"CREATE TABLE t (\n  {columns})")

    (note,) = raised.value.__notes__
    assert note.startswith("Statement 1 (CREATE TABLE t ( column_0 INT, column_1 INT, ")
    assert note.endswith(" …)")
    assert len(note) < 220
