"""Statements that are read, with the values they become; the reference accepts each of them in this order."""

from decimal import Decimal

from airflow_provider_ducklake.lake.format.defaults import SqlExpression
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.format.tags import (
    MacroDefault,
    MacroDefinition,
    MacroOverload,
    MacroParameter,
)
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.sql.duckdb.cursor import call

T = QualifiedName.of(("main", "t"))
V = QualifiedName.of(("main", "v"))


def column(name, type_text, *, nullable=True, default=None):
    return name, parse_type(type_text), nullable, default


def table(name, *columns, partition_by=(), sort_by=(), if_not_exists=False, or_replace=False):
    return call(
        "create_table",
        QualifiedName.of(name),
        {column: type_ for column, type_, _, _ in columns},
        partition_by,
        [column for column, _, nullable, _ in columns if not nullable],
        sort_by=sort_by,
        defaults={column: default for column, _, _, default in columns if default is not None},
        or_replace=or_replace,
        if_not_exists=if_not_exists,
    )


def set_options(table, **options):
    return tuple(call("set_option", table, name, value) for name, value in options.items())


def reset_options(table, *names):
    return tuple(call("reset_option", table, name) for name in names)


ACCEPTED = [
    ("CREATE SCHEMA s", call("create_schema", SchemaPath(("s",)))),
    ("create schema if not exists s", call("create_schema", SchemaPath(("s",)), if_not_exists=True)),
    ('CREATE SCHEMA "odd ""name"', call("create_schema", SchemaPath(('odd "name',)))),
    ('DROP SCHEMA "odd ""name" RESTRICT', call("drop_schema", SchemaPath(('odd "name',)))),
    (
        "CREATE TABLE t (a INT, b STRUCT(x INT, y VARCHAR), d DATE, e DECIMAL(5, 2))",
        table(
            "t",
            column("a", "int32"),
            column("b", "struct(x int32, y varchar)"),
            column("d", "date"),
            column("e", "decimal(5,2)"),
        ),
    ),
    (
        'CREATE TABLE s.nested (l TEXT[], ll INTEGER[][], m MAP(VARCHAR, STRUCT("p q" INT)[]), r ROW(a INT))',
        table(
            "s.nested",
            column("l", "varchar[]"),
            column("ll", "int32[][]"),
            column("m", 'map(varchar, struct("p q" int32)[])'),
            column("r", "struct(a int32)"),
        ),
    ),
    (
        "CREATE TABLE defaults (a INT NOT NULL DEFAULT 7, b VARCHAR DEFAULT 'it''s' NOT NULL)",
        table(
            "defaults",
            column("a", "int32", nullable=False, default=7),
            column("b", "varchar", nullable=False, default="it's"),
        ),
    ),
    (
        "CREATE TABLE more (c DOUBLE DEFAULT -1.5, d TIMESTAMPTZ DEFAULT now(), e BOOL NULL DEFAULT 'true')",
        table(
            "more",
            column("c", "float64", default=Decimal("-1.5")),
            column("d", "timestamptz", default=SqlExpression("now()")),
            column("e", "boolean", default="true"),
        ),
    ),
    ("CREATE TABLE none (a BIGINT DEFAULT NULL)", table("none", column("a", "int64"))),
    (
        "CREATE TABLE tight(a INT DEFAULT 1not null,b DOUBLE DEFAULT-1e3)",
        table(
            "tight", column("a", "int32", nullable=False, default=1), column("b", "float64", default=-1000.0)
        ),
    ),
    ("CREATE TABLE begin (reset INT)", table("begin", column("reset", "int32"))),
    ("ALTER TABLE begin RENAME TO call", call("rename_table", QualifiedName.of(("main", "begin")), "call")),
    (
        "ALTER TABLE\u00a0call\u200bRENAME TO tüv",
        call("rename_table", QualifiedName.of(("main", "call")), "tüv"),
    ),
    ("CREATE TABLE IF NOT EXISTS t (a INT)", table("t", column("a", "int32"), if_not_exists=True)),
    ("CREATE OR REPLACE TABLE r (a INT)", table("r", column("a", "int32"), or_replace=True)),
    (
        'CREATE TABLE "Odd.Table" ("order" INT, "A b" INT, date DATE, type INT)',
        table(
            ("main", "Odd.Table"),
            column("order", "int32"),
            column("A b", "int32"),
            column("date", "date"),
            column("type", "int32"),
        ),
    ),
    ("DROP TABLE r", call("drop_table", QualifiedName.of(("main", "r")))),
    (
        "DROP TABLE IF EXISTS s.nosuch RESTRICT",
        call("drop_table", QualifiedName.of(("s", "nosuch")), if_exists=True),
    ),
    ("ALTER TABLE t RENAME TO t2", call("rename_table", T, "t2")),
    ('ALTER TABLE main.t2 RENAME TO "t"', call("rename_table", QualifiedName.of(("main", "t2")), "t")),
    ("ALTER TABLE t RENAME a TO c", call("rename_column", T, "a", "c")),
    ("ALTER TABLE t RENAME COLUMN c TO a", call("rename_column", T, "c", "a")),
    ('ALTER TABLE t RENAME COLUMN b.x TO "z z"', call("rename_column", T, "b.x", "z z")),
    ('ALTER TABLE t RENAME b."z z" TO x', call("rename_column", T, 'b."z z"', "x")),
    ("ALTER TABLE t ADD COLUMN f INT", call("add_column", T, "f", parse_type("int32"), None)),
    ("ALTER TABLE t ADD g VARCHAR DEFAULT 'x'", call("add_column", T, "g", parse_type("varchar"), "x")),
    (
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS g INT",
        call("add_column", T, "g", parse_type("int32"), None, if_not_exists=True),
    ),
    ("ALTER TABLE t ADD COLUMN b.z DOUBLE", call("add_column", T, "b.z", parse_type("float64"), None)),
    (
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS b.z INT",
        call("add_column", T, "b.z", parse_type("int32"), None, if_not_exists=True),
    ),
    ("ALTER TABLE t ADD COLUMN k INT NULL", call("add_column", T, "k", parse_type("int32"), None)),
    (
        "ALTER TABLE t ADD COLUMN n DECIMAL(9, 2) DEFAULT -7",
        call("add_column", T, "n", parse_type("decimal(9,2)"), -7),
    ),
    ("ALTER TABLE t DROP COLUMN k", call("drop_column", T, "k")),
    ("ALTER TABLE t DROP COLUMN IF EXISTS k", call("drop_column", T, "k", if_exists=True)),
    ("ALTER TABLE t DROP IF EXISTS k", call("drop_column", T, "k", if_exists=True)),
    ("ALTER TABLE t DROP b.z", call("drop_column", T, "b.z")),
    ("ALTER TABLE t DROP n RESTRICT", call("drop_column", T, "n")),
    ("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", call("set_column_type", T, "a", parse_type("int64"))),
    ("ALTER TABLE t ALTER f SET DATA TYPE BIGINT", call("set_column_type", T, "f", parse_type("int64"))),
    (
        "ALTER TABLE t ALTER e SET TYPE DECIMAL(9, 2)",
        call("set_column_type", T, "e", parse_type("decimal(9,2)")),
    ),
    ("ALTER TABLE t ALTER a SET DEFAULT 42", call("set_default", T, "a", 42)),
    (
        "ALTER TABLE t ALTER COLUMN d SET DEFAULT current_date",
        call("set_default", T, "d", SqlExpression("current_date")),
    ),
    ("ALTER TABLE t ALTER a SET DEFAULT NULL", call("drop_default", T, "a")),
    ("ALTER TABLE t ALTER d DROP DEFAULT", call("drop_default", T, "d")),
    (
        "ALTER TABLE defaults ALTER a DROP NOT NULL",
        call("drop_not_null", QualifiedName.of(("main", "defaults")), "a"),
    ),
    (
        "ALTER TABLE t SET PARTITIONED BY (year(d), bucket(16, a), g)",
        call("set_partitioned_by", T, ("year(d)", "bucket(16, a)", "g")),
    ),
    ("ALTER TABLE t RESET PARTITIONED BY", call("set_partitioned_by", T, ())),
    (
        "ALTER TABLE t SET SORTED BY (d, a DESC NULLS FIRST, g ASC)",
        call("set_sorted_by", T, ("d", "a DESC NULLS FIRST", "g ASC")),
    ),
    (
        'ALTER TABLE "Odd.Table" SET SORTED BY ("order", "A b" NULLS LAST)',
        call("set_sorted_by", QualifiedName.of(("main", "Odd.Table")), ('"order"', '"A b" NULLS LAST')),
    ),
    (
        "ALTER TABLE t SET SORTED BY (lower(b) DESC, a%10 NULLS FIRST, (a))",
        call("set_sorted_by", T, ("lower(b) DESC", "(a % 10) NULLS FIRST", "a")),
    ),
    ("ALTER TABLE t RESET SORTED BY", call("set_sorted_by", T, ())),
    ("COMMENT ON TABLE t IS 'it''s; a table'", call("comment_on_table", T, "it's; a table")),
    ("COMMENT ON TABLE t IS NULL", call("comment_on_table", T, None)),
    ("COMMENT ON COLUMN t.a IS $$x'y$$", call("comment_on_column", T, "a", "x'y")),
    ("COMMENT ON COLUMN main.t.a IS NULL", call("comment_on_column", T, "a", None)),
    (
        "CREATE VIEW v AS select  a  from main.t /* x */ where g <> ';'",
        call("create_view", V, "select  a  from main.t /* x */ where g <> ';'"),
    ),
    (
        'CREATE OR REPLACE VIEW v (p, "Q r") AS (SELECT a, d FROM main.t)',
        call("create_view", V, "(SELECT a, d FROM main.t)", column_aliases=("p", "Q r"), or_replace=True),
    ),
    ("CREATE VIEW IF NOT EXISTS v AS FROM main.t", call("create_view", V, "FROM main.t", if_not_exists=True)),
    ("COMMENT ON VIEW v IS 'x'", call("comment_on_view", V, "x")),
    ("ALTER VIEW v RENAME TO w", call("rename_view", V, "w")),
    ("DROP VIEW w", call("drop_view", QualifiedName.of(("main", "w")))),
    ("DROP VIEW IF EXISTS v", call("drop_view", V, if_exists=True)),
    ("TRUNCATE t", call("truncate", T)),
    ("TRUNCATE TABLE s.nested", call("truncate", QualifiedName.of(("s", "nested")))),
    (
        "DROP SCHEMA IF EXISTS s CASCADE",
        call("drop_schema", SchemaPath(("s",)), if_exists=True, cascade=True),
    ),
]
_P = (column("a", "int32"), column("d", "date"))
# DuckDB 2.0 reads them, and 1.5 does not.
DUCKDB_2_0 = [
    (
        "CREATE TABLE p (a INT, d DATE) PARTITIONED BY (day(d), a) SORTED BY (a)",
        table("p", *_P, partition_by=("day(d)", "a"), sort_by=("a",)),
    ),
    (
        (
            "CREATE TABLE IF NOT EXISTS p (a INT, d DATE,) SORTED BY (a, d,) "
            "PARTITIONED BY (bucket(4, a), year(d), month(d), hour(d), epoch_year(d), epoch_month(d), "
            "epoch_day(d), epoch_hour(d),)"
        ),
        table(
            "p",
            *_P,
            partition_by=(
                "bucket(4, a)",
                "year(d)",
                "month(d)",
                "hour(d)",
                "epoch_year(d)",
                "epoch_month(d)",
                "epoch_day(d)",
                "epoch_hour(d)",
            ),
            sort_by=("a", "d"),
            if_not_exists=True,
        ),
    ),
    (
        "CREATE OR REPLACE TABLE p (a INT, d DATE) SORTED BY (a)",
        table("p", *_P, sort_by=("a",), or_replace=True),
    ),
    (
        (
            "ALTER TABLE t SET (target_file_size = '64MB', Parquet_Compression = zstd, "
            "hive_file_pattern = false, sort_on_insert, data_inlining_row_limit = 1_000, "
            "rewrite_delete_threshold = 0.5)"
        ),
        set_options(
            T,
            target_file_size="64MB",
            parquet_compression="zstd",
            hive_file_pattern=False,
            sort_on_insert=True,
            data_inlining_row_limit="1000",
            rewrite_delete_threshold="0.5",
        ),
    ),
    (
        "ALTER TABLE s.t SET (\"skip_stats_columns\" = ['a', 'B c'], 'parquet_compression_level' = -1,)",
        set_options(
            QualifiedName.of(("s", "t")), skip_stats_columns=("a", "B c"), parquet_compression_level="-1"
        ),
    ),
    ("ALTER TABLE t SET (skip_stats_columns = [])", set_options(T, skip_stats_columns=())),
    ("ALTER TABLE t SET (parquet_version = NULL)", set_options(T, parquet_version=None)),
    ("ALTER TABLE t RESET (target_file_size)", reset_options(T, "target_file_size")),
    (
        "ALTER TABLE t RESET (\"Sort_On_Insert\", 'parquet_version',)",
        reset_options(T, "sort_on_insert", "parquet_version"),
    ),
]
ACCEPTED += [
    (
        "CREATE MACRO plus(a, b := 2) AS a  + b",
        call(
            "create_macro",
            QualifiedName.of("plus"),
            MacroDefinition(
                (
                    MacroOverload(
                        "a  + b", (MacroParameter("a"), MacroParameter("b", None, MacroDefault("2", "int32")))
                    ),
                )
            ),
        ),
    ),
    (
        "CREATE OR REPLACE FUNCTION few(n INT) AS TABLE SELECT n LIMIT n",
        call(
            "create_macro",
            QualifiedName.of("few"),
            MacroDefinition(
                (MacroOverload("SELECT n LIMIT n", (MacroParameter("n", "int32"),)),), is_table=True
            ),
            or_replace=True,
        ),
    ),
    (
        "CREATE MACRO IF NOT EXISTS few() AS 1, (a) AS a",
        call(
            "create_macro",
            QualifiedName.of("few"),
            MacroDefinition((MacroOverload("1"), MacroOverload("a", (MacroParameter("a"),)))),
            if_not_exists=True,
        ),
    ),
    ("DROP MACRO few", call("drop_macro", QualifiedName.of("few"))),
    ("DROP MACRO TABLE few", call("drop_macro", QualifiedName.of("few"), table=True)),
    ("DROP FUNCTION IF EXISTS plus", call("drop_macro", QualifiedName.of("plus"), if_exists=True)),
]
# Read, although the reference refuses them, or keeps another text of the value.
BEYOND_THE_REFERENCE = [
    (
        "ALTER TABLE t ADD COLUMN flag BOOLEAN DEFAULT false",
        call("add_column", T, "flag", parse_type("boolean"), False),  # noqa: FBT003 - a default
    ),
    *DUCKDB_2_0,
    # The reference wants statistics of rows.
    ("ALTER TABLE t ALTER a SET NOT NULL", call("set_not_null", T, "a")),
    ("ALTER TABLE t ALTER a SET DEFAULT .5", call("set_default", T, "a", Decimal("0.5"))),
    # DuckDB changes a field's type by naming the whole struct's.
    ("ALTER TABLE t ALTER COLUMN b.x TYPE BIGINT", call("set_column_type", T, "b.x", parse_type("int64"))),
]
