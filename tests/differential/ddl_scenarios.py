"""Histories of DDL that we and the reference write into catalogs of their own."""

from collections.abc import Callable

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.defaults import SqlExpression
from tests.differential.scenarios import Scenario
from tests.reference.duckdb_lake import DuckLakeConnection

Step = Callable[[LakeTransaction, DuckLakeConnection], object]


def ddl(
    name: str, *steps: tuple[Step, str | tuple[str, ...]], ignored: frozenset[str] = frozenset()
) -> Scenario:
    """Make a scenario of steps: each is one transaction of ours, and the SQL that does the same."""

    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        for step, _ in steps:
            with lake.transaction() as tx:
                step(tx, reference)

    sql: list[str] = []
    for _, text in steps:
        sql += [text] if isinstance(text, str) else ["BEGIN", *text, "COMMIT"]
    return Scenario(name, ours, tuple(sql), ignored)


_CREATE: tuple[Step, str] = (
    lambda tx, _: tx.create_table(
        "t", {"a": "int32", "b": "varchar", "c": "float64", "d": "date", "odd name": "int64"}
    ),
    'CREATE TABLE t (a integer, b varchar, c double, d date, "odd name" bigint)',
)
_CREATENESTED: tuple[Step, str] = (
    lambda tx, _: tx.create_table(
        "n", {"i": "int32", "s": "struct(x int32, y struct(z int32))", "m": "map(int32, struct(q int32))"}
    ),
    "CREATE TABLE n (i integer, s struct(x integer, y struct(z integer)), m map(integer, struct(q integer)))",
)
_ROW = "SELECT 1::integer a, 'x' b, 1.5::double c, DATE '2024-01-02' d, 7::bigint \"odd name\""


def _insert(table: str, query: str) -> tuple[Step, str]:
    return (
        lambda tx, reference: tx.append_arrow(table, reference.arrow(query)),
        f"INSERT INTO {table} {query}",
    )


_FILL = _insert("t", _ROW)
_FILL_WITH_E = _insert("t", f"SELECT *, 9::integer e FROM ({_ROW})")
# After an ALTER of a nested field the reference writes nulls_allowed = 0 and an empty default_value_type.
NESTED = frozenset({"ducklake_column.nulls_allowed", "ducklake_column.default_value_type"})


def _one(method: str, *arguments: object, **options: object) -> Step:
    return lambda tx, _: getattr(tx, method)(*arguments, **options)


def _together(*steps: Step) -> Step:
    def run(tx: LakeTransaction, reference: DuckLakeConnection) -> None:
        for step in steps:
            step(tx, reference)

    return run


DDL_SCENARIOS = [
    ddl(
        "rename a table, and fill it",
        _CREATE,
        (_one("rename_table", "t", "u"), "ALTER TABLE t RENAME TO u"),
        _insert("u", _ROW),
        (_one("rename_table", "u", 'o"dd'), 'ALTER TABLE u RENAME TO "o""dd"'),
    ),
    ddl(
        "add, rename and drop columns",
        _CREATE,
        _FILL,
        (_one("add_column", "t", "e", "int32"), "ALTER TABLE t ADD COLUMN e integer"),
        (_one("add_column", "t", "f", "int32", 7), "ALTER TABLE t ADD COLUMN f integer DEFAULT 7"),
        (_one("rename_column", "t", "e", "E2"), 'ALTER TABLE t RENAME COLUMN e TO "E2"'),
        (_one("drop_column", "t", "b"), "ALTER TABLE t DROP COLUMN b"),
        (
            _one("add_column", "t", "b", "varchar", "it's"),
            "ALTER TABLE t ADD COLUMN b varchar DEFAULT 'it''s'",
        ),
        _insert("t", f"SELECT a, c, d, \"odd name\", 5::integer E2, 6::integer f, 'q' b FROM ({_ROW})"),
    ),
    ddl(
        "several columns in one transaction",
        _CREATE,
        _FILL,
        (
            _together(
                _one("add_column", "t", "e", "int32"),
                _one("add_column", "t", "f", "int32"),
                _one("drop_column", "t", "e"),
                _one("rename_column", "t", "f", "g"),
                _one("set_default", "t", "a", 3),
            ),
            (
                "ALTER TABLE t ADD COLUMN e integer",
                "ALTER TABLE t ADD COLUMN f integer",
                "ALTER TABLE t DROP COLUMN e",
                "ALTER TABLE t RENAME COLUMN f TO g",
                "ALTER TABLE t ALTER COLUMN a SET DEFAULT 3",
            ),
        ),
    ),
    ddl(
        "widen types",
        _CREATE,
        _FILL,
        (_one("set_column_type", "t", "a", "int64"), "ALTER TABLE t ALTER COLUMN a TYPE bigint"),
        _insert("t", _ROW.replace("1::integer", "2::bigint")),
    ),
    ddl(
        "defaults and NOT NULL",
        _CREATE,
        (_one("set_default", "t", "a", 3), "ALTER TABLE t ALTER COLUMN a SET DEFAULT 3"),
        (
            _one("set_default", "t", "d", SqlExpression("now()")),
            "ALTER TABLE t ALTER COLUMN d SET DEFAULT now()",
        ),
        (_one("drop_default", "t", "a"), "ALTER TABLE t ALTER COLUMN a DROP DEFAULT"),
        _FILL,
        (_one("set_not_null", "t", "a"), "ALTER TABLE t ALTER COLUMN a SET NOT NULL"),
        (_one("drop_not_null", "t", "a"), "ALTER TABLE t ALTER COLUMN a DROP NOT NULL"),
    ),
    ddl(
        "nested fields",
        _CREATENESTED,
        (_one("add_column", "n", "s.w", "int32"), "ALTER TABLE n ADD COLUMN s.w integer"),
        (_one("add_column", "n", "s.y.k", "varchar"), "ALTER TABLE n ADD COLUMN s.y.k varchar"),
        (_one("drop_column", "n", "s.x"), "ALTER TABLE n DROP COLUMN s.x"),
        (_one("rename_column", "n", "s.y.z", "zz"), "ALTER TABLE n RENAME COLUMN s.y.z TO zz"),
        (_one("add_column", "n", "m.value.r", "int32"), "ALTER TABLE n ADD COLUMN m.value.r integer"),
        (_one("drop_column", "n", "m.value.q"), "ALTER TABLE n DROP COLUMN m.value.q"),
        (
            _together(
                _one("set_column_type", "n", "s.w", "int64"), _one("set_column_type", "n", "s.y.zz", "int64")
            ),
            "ALTER TABLE n ALTER COLUMN s TYPE struct(w bigint, y struct(zz bigint, k varchar))",
        ),
        (
            _one("add_column", "n", "l", "struct(p int32, q int32[])"),
            "ALTER TABLE n ADD COLUMN l struct(p integer, q integer[])",
        ),
        (_one("drop_column", "n", "s"), "ALTER TABLE n DROP COLUMN s"),
        ignored=NESTED,
    ),
    ddl(
        "partition keys",
        _CREATE,
        (_one("set_partitioned_by", "t", ["b", "year(d)"]), "ALTER TABLE t SET PARTITIONED BY (b, year(d))"),
        _FILL,
        (
            _one("set_partitioned_by", "t", ["bucket(4, a)"]),
            "ALTER TABLE t SET PARTITIONED BY (bucket(4, a))",
        ),
        _FILL,
        (_one("set_partitioned_by", "t", []), "ALTER TABLE t RESET PARTITIONED BY"),
        _FILL,
    ),
    ddl(
        "sort keys, and renaming one",
        _CREATE,
        (
            _one("set_sorted_by", "t", ['"odd name" DESC NULLS FIRST', "a"]),
            'ALTER TABLE t SET SORTED BY ("odd name" DESC NULLS FIRST, a)',
        ),
        (_one("rename_column", "t", "a", "aa"), "ALTER TABLE t RENAME COLUMN a TO aa"),
        (_one("set_sorted_by", "t", []), "ALTER TABLE t RESET SORTED BY"),
    ),
    ddl(
        "a new layout and rows for it in one transaction",
        _CREATE,
        _FILL,
        (
            _together(_one("set_partitioned_by", "t", ["b"]), _one("set_sorted_by", "t", ["a"]), _FILL[0]),
            ("ALTER TABLE t SET PARTITIONED BY (b)", "ALTER TABLE t SET SORTED BY (a)", _FILL[1]),
        ),
    ),
    ddl(
        "comments",
        _CREATE,
        (_one("comment_on_table", "t", "it's"), "COMMENT ON TABLE t IS 'it''s'"),
        (_one("comment_on_table", "t", "Ünï\n\t"), "COMMENT ON TABLE t IS 'Ünï\n\t'"),
        (_one("comment_on_column", "t", "odd name", "c"), "COMMENT ON COLUMN t.\"odd name\" IS 'c'"),
        (_one("comment_on_table", "t", None), "COMMENT ON TABLE t IS NULL"),
        (_one("rename_column", "t", "odd name", "even"), 'ALTER TABLE t RENAME COLUMN "odd name" TO even'),
        (_one("comment_on_column", "t", "even", ""), "COMMENT ON COLUMN t.even IS ''"),
        (_one("drop_column", "t", "even"), "ALTER TABLE t DROP COLUMN even"),
        (_one("drop_table", "t"), "DROP TABLE t"),
    ),
    ddl(
        "views",
        (_one("create_view", "v", "SELECT 1 AS a"), "CREATE VIEW v AS SELECT 1 AS a"),
        (_one("comment_on_view", "v", "cv"), "COMMENT ON VIEW v IS 'cv'"),
        (_one("rename_view", "v", "w"), "ALTER VIEW v RENAME TO w"),
        (
            _one("create_view", "w", "SELECT 2, 3", column_aliases=["p", "q r"], or_replace=True),
            'CREATE OR REPLACE VIEW w(p, "q r") AS SELECT 2, 3',
        ),
        (
            _together(_one("rename_view", "w", "w2"), _one("comment_on_view", "w2", "x")),
            ("ALTER VIEW w RENAME TO w2", "COMMENT ON VIEW w2 IS 'x'"),
        ),
        (_one("drop_view", "w2"), "DROP VIEW w2"),
    ),
    ddl(
        "drop a schema with all it holds",
        (_one("create_schema", "s"), "CREATE SCHEMA s"),
        (_one("create_table", "s.t", {"i": "int32"}), "CREATE TABLE s.t (i integer)"),
        (_one("create_view", "s.v", "SELECT 1"), "CREATE VIEW s.v AS SELECT 1"),
        (_one("drop_schema", "s", cascade=True), "DROP SCHEMA s CASCADE"),
    ),
    ddl(
        "create a table, alter and fill it in one transaction",
        (
            _together(
                _CREATE[0],
                _one("add_column", "t", "e", "int32", 4),
                _one("set_partitioned_by", "t", ["b"]),
                _one("set_sorted_by", "t", ["a"]),
                _one("comment_on_table", "t", "x"),
                _one("comment_on_column", "t", "a", "y"),
                _FILL_WITH_E[0],
            ),
            (
                _CREATE[1],
                "ALTER TABLE t ADD COLUMN e integer DEFAULT 4",
                "ALTER TABLE t SET PARTITIONED BY (b)",
                "ALTER TABLE t SET SORTED BY (a)",
                "COMMENT ON TABLE t IS 'x'",
                "COMMENT ON COLUMN t.a IS 'y'",
                _FILL_WITH_E[1],
            ),
        ),
    ),
    ddl(
        "create a table, drop and widen its columns in one transaction",
        (
            _together(
                _CREATENESTED[0],
                _one("drop_column", "n", "m"),
                _one("set_column_type", "n", "i", "int64"),
                _one("add_column", "n", "s.w", "int32"),
                _one("rename_column", "n", "s.x", "xx"),
            ),
            (
                _CREATENESTED[1],
                "ALTER TABLE n DROP COLUMN m",
                "ALTER TABLE n ALTER COLUMN i TYPE bigint",
                "ALTER TABLE n ADD COLUMN s.w integer",
                "ALTER TABLE n RENAME COLUMN s.x TO xx",
            ),
        ),
        ignored=NESTED,
    ),
    ddl(
        "drop new columns at once, and add others",
        (
            _together(
                _one("create_table", "t", {"i": "int32", "s": "struct(x int32, y int32)", "j": "int32"}),
                _one("drop_column", "t", "j"),
            ),
            ("CREATE TABLE t (i integer, s struct(x integer, y integer), j integer)", "ALTER TABLE t DROP j"),
        ),
        (_one("add_column", "t", "k", "int32"), "ALTER TABLE t ADD COLUMN k integer"),
        (
            _together(
                _one("add_column", "t", "l", "int32"),
                _one("add_column", "t", "m", "int32"),
                _one("drop_column", "t", "m"),
            ),
            (
                "ALTER TABLE t ADD COLUMN l integer",
                "ALTER TABLE t ADD COLUMN m integer",
                "ALTER TABLE t DROP m",
            ),
        ),
        (_one("add_column", "t", "n", "int32"), "ALTER TABLE t ADD COLUMN n integer"),
    ),
    ddl(
        "alter two tables, the newer one first",
        _CREATE,
        _CREATENESTED,
        (
            _together(_one("set_default", "n", "i", 3), _one("set_default", "t", "a", 3)),
            ("ALTER TABLE n ALTER COLUMN i SET DEFAULT 3", "ALTER TABLE t ALTER COLUMN a SET DEFAULT 3"),
        ),
    ),
    ddl(
        "fill a new table and an old one in one transaction",
        _CREATE,
        (
            _together(
                _one("create_table", "u", {"i": "int32"}),
                lambda tx, reference: tx.append_arrow(
                    "u", reference.arrow("SELECT i::integer i FROM range(20) r(i)")
                ),
                _FILL[0],
            ),
            ("CREATE TABLE u (i integer)", "INSERT INTO u SELECT i::integer i FROM range(20) r(i)", _FILL[1]),
        ),
    ),
    ddl(
        "rename a table and alter it in one transaction",
        _CREATE,
        (
            _together(_one("rename_table", "t", "u"), _one("add_column", "u", "g", "int32")),
            ("ALTER TABLE t RENAME TO u", "ALTER TABLE u ADD COLUMN g integer"),
        ),
    ),
    ddl(
        "create or replace a table that has rows",
        _CREATE,
        _FILL,
        (
            _together(_one("create_table", "t", {"x": "int32"}, or_replace=True)),
            "CREATE OR REPLACE TABLE t (x integer)",
        ),
    ),
    ddl("truncate, and fill again", _CREATE, _FILL, (_one("truncate", "t"), "TRUNCATE t"), _FILL),
    ddl(
        "steps that leave nothing behind",
        (_one("create_schema", "s"), "CREATE SCHEMA s"),
        (
            _together(_one("create_table", "gone", {"i": "int32"}), _one("drop_table", "gone")),
            ("CREATE TABLE gone (i integer)", "DROP TABLE gone"),
        ),
        (
            _together(
                _one("create_table", "gone", {"i": "int32"}),
                _one("drop_table", "gone"),
                _one("create_view", "gone", "SELECT 1 AS z"),
            ),
            ("CREATE TABLE gone (i integer)", "DROP TABLE gone", "CREATE VIEW gone AS SELECT 1 AS z"),
        ),
    ),
]
