"""Statements that are read, with the values they become; the reference accepts each of them in this order."""

from dataclasses import replace
from decimal import Decimal

from airflow_provider_ducklake.lake.spec.defaults import SqlExpression
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.spec.tags import (
    MacroDefault,
    MacroDefinition,
    MacroOverload,
    MacroParameter,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.sql.duckdb.statements import (
    AddColumn,
    ColumnDefinition,
    CommentOnColumn,
    CommentOnTable,
    CommentOnView,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    DropColumn,
    DropDefault,
    DropMacro,
    DropNotNull,
    DropSchema,
    DropTable,
    DropView,
    RenameColumn,
    RenameTable,
    RenameView,
    ResetOptions,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOptions,
    SetPartitionedBy,
    SetSortedBy,
    Truncate,
)

T = QualifiedName.of(("main", "t"))
V = QualifiedName.of(("main", "v"))


def column(name, type_text, *, nullable=True, default=None):
    return ColumnDefinition(name, parse_type(type_text), nullable, default)


def table(name, *columns, **options):
    return CreateTable(QualifiedName.of(name), columns, **options)


ACCEPTED = [
    ("CREATE SCHEMA s", CreateSchema(SchemaPath(("s",)))),
    ("create schema if not exists s", CreateSchema(SchemaPath(("s",)), if_not_exists=True)),
    ('CREATE SCHEMA "odd ""name"', CreateSchema(SchemaPath(('odd "name',)))),
    ('DROP SCHEMA "odd ""name" RESTRICT', DropSchema(SchemaPath(('odd "name',)))),
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
            "tight",
            column("a", "int32", nullable=False, default=1),
            column("b", "float64", default=-1000.0),
        ),
    ),
    ("CREATE TABLE begin (reset INT)", table("begin", column("reset", "int32"))),
    ("ALTER TABLE begin RENAME TO call", RenameTable(QualifiedName.of(("main", "begin")), "call")),
    ("ALTER TABLE\u00a0call\u200bRENAME TO tüv", RenameTable(QualifiedName.of(("main", "call")), "tüv")),
    ("CREATE TABLE IF NOT EXISTS t (a INT)", table("t", column("a", "int32"), if_not_exists=True)),
    ("CREATE OR REPLACE TABLE r (a INT)", table("r", column("a", "int32"), or_replace=True)),
    (
        'CREATE TABLE "Odd.Table" ("order" INT, "A b" INT, date DATE, type INT)',
        CreateTable(
            QualifiedName.of(("main", "Odd.Table")),
            (
                column("order", "int32"),
                column("A b", "int32"),
                column("date", "date"),
                column("type", "int32"),
            ),
        ),
    ),
    ("DROP TABLE r", DropTable(QualifiedName.of(("main", "r")))),
    ("DROP TABLE IF EXISTS s.nosuch RESTRICT", DropTable(QualifiedName.of(("s", "nosuch")), if_exists=True)),
    ("ALTER TABLE t RENAME TO t2", RenameTable(T, "t2")),
    ('ALTER TABLE main.t2 RENAME TO "t"', RenameTable(QualifiedName.of(("main", "t2")), "t")),
    ("ALTER TABLE t RENAME a TO c", RenameColumn(T, "a", "c")),
    ("ALTER TABLE t RENAME COLUMN c TO a", RenameColumn(T, "c", "a")),
    ('ALTER TABLE t RENAME COLUMN b.x TO "z z"', RenameColumn(T, "b.x", "z z")),
    ('ALTER TABLE t RENAME b."z z" TO x', RenameColumn(T, 'b."z z"', "x")),
    ("ALTER TABLE t ADD COLUMN f INT", AddColumn(T, "f", parse_type("int32"))),
    ("ALTER TABLE t ADD g VARCHAR DEFAULT 'x'", AddColumn(T, "g", parse_type("varchar"), "x")),
    (
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS g INT",
        AddColumn(T, "g", parse_type("int32"), if_not_exists=True),
    ),
    ("ALTER TABLE t ADD COLUMN b.z DOUBLE", AddColumn(T, "b.z", parse_type("float64"))),
    (
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS b.z INT",
        AddColumn(T, "b.z", parse_type("int32"), if_not_exists=True),
    ),
    ("ALTER TABLE t ADD COLUMN k INT NULL", AddColumn(T, "k", parse_type("int32"))),
    (
        "ALTER TABLE t ADD COLUMN n DECIMAL(9, 2) DEFAULT -7",
        AddColumn(T, "n", parse_type("decimal(9,2)"), -7),
    ),
    ("ALTER TABLE t DROP COLUMN k", DropColumn(T, "k")),
    ("ALTER TABLE t DROP COLUMN IF EXISTS k", DropColumn(T, "k", if_exists=True)),
    ("ALTER TABLE t DROP IF EXISTS k", DropColumn(T, "k", if_exists=True)),
    ("ALTER TABLE t DROP b.z", DropColumn(T, "b.z")),
    ("ALTER TABLE t DROP n RESTRICT", DropColumn(T, "n")),
    ("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", SetColumnType(T, "a", parse_type("int64"))),
    ("ALTER TABLE t ALTER f SET DATA TYPE BIGINT", SetColumnType(T, "f", parse_type("int64"))),
    ("ALTER TABLE t ALTER e SET TYPE DECIMAL(9, 2)", SetColumnType(T, "e", parse_type("decimal(9,2)"))),
    ("ALTER TABLE t ALTER a SET DEFAULT 42", SetDefault(T, "a", 42)),
    (
        "ALTER TABLE t ALTER COLUMN d SET DEFAULT current_date",
        SetDefault(T, "d", SqlExpression("current_date")),
    ),
    ("ALTER TABLE t ALTER a SET DEFAULT NULL", SetDefault(T, "a", None)),
    ("ALTER TABLE t ALTER d DROP DEFAULT", DropDefault(T, "d")),
    ("ALTER TABLE defaults ALTER a DROP NOT NULL", DropNotNull(QualifiedName.of(("main", "defaults")), "a")),
    (
        "ALTER TABLE t SET PARTITIONED BY (year(d), bucket(16, a), g)",
        SetPartitionedBy(T, ("year(d)", "bucket(16, a)", "g")),
    ),
    ("ALTER TABLE t RESET PARTITIONED BY", SetPartitionedBy(T, ())),
    (
        "ALTER TABLE t SET SORTED BY (d, a DESC NULLS FIRST, g ASC)",
        SetSortedBy(T, ("d", "a DESC NULLS FIRST", "g ASC")),
    ),
    (
        'ALTER TABLE "Odd.Table" SET SORTED BY ("order", "A b" NULLS LAST)',
        SetSortedBy(QualifiedName.of(("main", "Odd.Table")), ('"order"', '"A b" NULLS LAST')),
    ),
    (
        "ALTER TABLE t SET SORTED BY (lower(b) DESC, a%10 NULLS FIRST, (a))",
        SetSortedBy(T, ("lower(b) DESC", "(a % 10) NULLS FIRST", "a")),
    ),
    ("ALTER TABLE t RESET SORTED BY", SetSortedBy(T, ())),
    ("COMMENT ON TABLE t IS 'it''s; a table'", CommentOnTable(T, "it's; a table")),
    ("COMMENT ON TABLE t IS NULL", CommentOnTable(T, None)),
    ("COMMENT ON COLUMN t.a IS $$x'y$$", CommentOnColumn(T, "a", "x'y")),
    ("COMMENT ON COLUMN main.t.a IS NULL", CommentOnColumn(T, "a", None)),
    (
        "CREATE VIEW v AS select  a  from main.t /* x */ where g <> ';'",
        CreateView(V, "select  a  from main.t /* x */ where g <> ';'"),
    ),
    (
        'CREATE OR REPLACE VIEW v (p, "Q r") AS (SELECT a, d FROM main.t)',
        CreateView(V, "(SELECT a, d FROM main.t)", ("p", "Q r"), or_replace=True),
    ),
    ("CREATE VIEW IF NOT EXISTS v AS FROM main.t", CreateView(V, "FROM main.t", if_not_exists=True)),
    ("COMMENT ON VIEW v IS 'x'", CommentOnView(V, "x")),
    ("ALTER VIEW v RENAME TO w", RenameView(V, "w")),
    ("DROP VIEW w", DropView(QualifiedName.of(("main", "w")))),
    ("DROP VIEW IF EXISTS v", DropView(V, if_exists=True)),
    ("TRUNCATE t", Truncate(T)),
    ("TRUNCATE TABLE s.nested", Truncate(QualifiedName.of(("s", "nested")))),
    ("DROP SCHEMA IF EXISTS s CASCADE", DropSchema(SchemaPath(("s",)), if_exists=True, cascade=True)),
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
        replace(
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
            ),
            if_not_exists=True,
        ),
    ),
    (
        "CREATE OR REPLACE TABLE p (a INT, d DATE) SORTED BY (a)",
        replace(table("p", *_P, sort_by=("a",)), or_replace=True),
    ),
    (
        (
            "ALTER TABLE t SET (target_file_size = '64MB', Parquet_Compression = zstd, "
            "hive_file_pattern = false, sort_on_insert, data_inlining_row_limit = 1_000, "
            "rewrite_delete_threshold = 0.5)"
        ),
        SetOptions(
            T,
            (
                ("target_file_size", "64MB"),
                ("parquet_compression", "zstd"),
                ("hive_file_pattern", False),
                ("sort_on_insert", True),
                ("data_inlining_row_limit", "1000"),
                ("rewrite_delete_threshold", "0.5"),
            ),
        ),
    ),
    (
        "ALTER TABLE s.t SET (\"skip_stats_columns\" = ['a', 'B c'], 'parquet_compression_level' = -1,)",
        SetOptions(
            QualifiedName.of(("s", "t")),
            (("skip_stats_columns", ("a", "B c")), ("parquet_compression_level", "-1")),
        ),
    ),
    ("ALTER TABLE t SET (skip_stats_columns = [])", SetOptions(T, (("skip_stats_columns", ()),))),
    ("ALTER TABLE t SET (parquet_version = NULL)", SetOptions(T, (("parquet_version", None),))),
    ("ALTER TABLE t RESET (target_file_size)", ResetOptions(T, ("target_file_size",))),
    (
        "ALTER TABLE t RESET (\"Sort_On_Insert\", 'parquet_version',)",
        ResetOptions(T, ("sort_on_insert", "parquet_version")),
    ),
]
ACCEPTED += [
    (
        "CREATE MACRO plus(a, b := 2) AS a  + b",
        CreateMacro(
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
        CreateMacro(
            QualifiedName.of("few"),
            MacroDefinition(
                (MacroOverload("SELECT n LIMIT n", (MacroParameter("n", "int32"),)),), is_table=True
            ),
            or_replace=True,
        ),
    ),
    (
        "CREATE MACRO IF NOT EXISTS few() AS 1, (a) AS a",
        CreateMacro(
            QualifiedName.of("few"),
            MacroDefinition((MacroOverload("1"), MacroOverload("a", (MacroParameter("a"),)))),
            if_not_exists=True,
        ),
    ),
    ("DROP MACRO few", DropMacro(QualifiedName.of("few"))),
    ("DROP MACRO TABLE few", DropMacro(QualifiedName.of("few"), table=True)),
    ("DROP FUNCTION IF EXISTS plus", DropMacro(QualifiedName.of("plus"), if_exists=True)),
]
# Read, although the reference refuses them, or keeps another text of the value.
BEYOND_THE_REFERENCE = [
    (
        "ALTER TABLE t ADD COLUMN flag BOOLEAN DEFAULT false",
        AddColumn(T, "flag", parse_type("boolean"), default=False),
    ),
    *DUCKDB_2_0,
    # The reference wants statistics of rows.
    ("ALTER TABLE t ALTER a SET NOT NULL", SetNotNull(T, "a")),
    ("ALTER TABLE t ALTER a SET DEFAULT .5", SetDefault(T, "a", Decimal("0.5"))),
    # DuckDB changes a field's type by naming the whole struct's.
    ("ALTER TABLE t ALTER COLUMN b.x TYPE BIGINT", SetColumnType(T, "b.x", parse_type("int64"))),
]
