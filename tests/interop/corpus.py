"""Lakes that the reference writes, and the features of the format that they have.

`SCENARIOS` are statements by name, `{given}` standing for a folder with Parquet files of others, and `build`
carries one out; a `History` draws statements. `tests.interop.comparison` compares what is read of them.
"""

# ruff: noqa: E501 - SQL

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb

from tests.interop.corpus_types import type_statements
from tests.interop.given_files import write_given
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection

FILES_ONLY = "CALL lake.set_option('data_inlining_row_limit', 0)"
INLINED = "CALL lake.set_option('data_inlining_row_limit', 1000)"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
REWRITE = "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)"
CHECKPOINT = "CHECKPOINT"
_TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket")
_ALTERED_COLUMN = (
    "SELECT count(*) FROM ducklake_column a JOIN ducklake_column b "
    "ON (a.table_id, a.column_id, a.end_snapshot) = (b.table_id, b.column_id, b.begin_snapshot) WHERE a.{0} <> b.{0}"
)

_ALTERED = [
    "CREATE TABLE t (i INT, s VARCHAR, st STRUCT(a INT, b STRUCT(c FLOAT, d VARCHAR)))",
    "INSERT INTO t SELECT x, 's' || x, {{'a': x, 'b': {{'c': x, 'd': 'd' || x}}}} FROM range(5) r(x)",
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
    "ALTER TABLE t RENAME COLUMN s TO renamed",
    "ALTER TABLE t ADD COLUMN st.e INT",
    "ALTER TABLE t ADD COLUMN st.b.f INT[]",
    "INSERT INTO t VALUES (9, 'x', {{'a': 1, 'b': {{'c': 1.1, 'd': 'y', 'f': [1]}}, 'e': 29}}, 8)",
    "ALTER TABLE t ALTER i SET DATA TYPE BIGINT",
    "ALTER TABLE t ALTER late SET DEFAULT 9",
    "ALTER TABLE t ALTER st SET DATA TYPE STRUCT(a INT, b STRUCT(c DOUBLE, d VARCHAR, f INT[]), e INT)",
    "ALTER TABLE t RENAME COLUMN st.b.d TO z",
    "UPDATE t SET renamed = 'updated' WHERE i = 2",
    "ALTER TABLE t DROP COLUMN st.a",
    "INSERT INTO t VALUES (5000000000, NULL, {{'b': {{'c': 0.1, 'z': 'y', 'f': NULL}}, 'e': NULL}}, NULL)",
    "INSERT INTO t VALUES (-1, NULL, {{'b': NULL, 'e': NULL}}, 1), (-2, NULL, NULL, 2)",
    "ALTER TABLE t DROP COLUMN late",
    "ALTER TABLE t ADD COLUMN late VARCHAR DEFAULT 'again'",
    "ALTER TABLE t ALTER late DROP DEFAULT",
    "ALTER TABLE t ALTER i SET NOT NULL",
    "DELETE FROM t WHERE i = 4",
    "ALTER TABLE t RENAME TO u",
    "INSERT INTO u (i) VALUES (77)",
]
_DEFAULTS = {
    "BOOLEAN": "'true'", "TINYINT": "-128", "UBIGINT": "18446744073709551615", "FLOAT": "1.1", "DOUBLE": "1e300",
    "DECIMAL(9,3)": "-1.5", "DECIMAL(38,10)": "1234567890123456789.5", "DATE": "'0044-03-15 (BC)'",
    "TIME": "'24:00:00'", "TIMESTAMP": "'1969-12-31 23:59:59.5'", "TIMESTAMP_S": "'2020-01-01'",
    "TIMESTAMP_MS": "'2020-01-01 00:00:00.5'", "TIMESTAMP_NS": "'2020-01-01 00:00:00.123456789'",
    "TIMESTAMPTZ": "'2020-01-01 00:00:00+02'", "VARCHAR": "'it''s ''NULL'' é'", "JSON": "'[1]'",
    "BLOB": r"'\x00\xFF'", "UUID": "'00000000-0000-0000-0000-0000000000ff'", "INTERVAL": "'1 year 2 days'",
    "TIMETZ": "'12:00:00+02'", "DATE ": "'infinity'", "DOUBLE ": "'nan'", "VARCHAR ": "''",
    "VARCHAR  ": "'NULL'",
}  # fmt: skip
_DELETES = [
    "CREATE TABLE t AS SELECT x AS i, 's' || x AS s FROM range({rows}) r(x)",
    "DELETE FROM t WHERE i % 10 = 3",
    "DELETE FROM t WHERE i % 10 = 4",
    "DELETE FROM t WHERE i % 10 = 4",  # no row
    "BEGIN; DELETE FROM t WHERE i = 1; DELETE FROM t WHERE i = 2; COMMIT",
    "BEGIN; INSERT INTO t VALUES (-1, 'x'), (-2, 'y'); DELETE FROM t WHERE i IN (-1, 5); COMMIT",
    "UPDATE t SET s = 'u' WHERE i BETWEEN 6 AND 8",
    "UPDATE t SET s = s || 'v', i = i + 1000 WHERE i BETWEEN 7 AND 11",
    "UPDATE t SET s = NULL",
    "DELETE FROM t WHERE i < 50",
    "TRUNCATE t",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    "DELETE FROM t",
    "INSERT INTO t VALUES (3, NULL)",
]
_MERGED_INTO = [
    "CREATE TABLE t AS SELECT x AS i, 's' || x AS s FROM range({rows}) r(x)",
    (
        "MERGE INTO t USING (SELECT x AS i, 'm' || x AS s FROM range(15, 25) r(x)) AS m ON t.i = m.i "
        "WHEN MATCHED THEN UPDATE SET s = m.s WHEN NOT MATCHED THEN INSERT VALUES (m.i, m.s)"
    ),
    "MERGE INTO t USING (SELECT 5 AS i) AS m ON t.i = m.i WHEN MATCHED THEN DELETE",
]
_MIXED = [
    "CREATE TABLE t (i INT, s VARCHAR)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "UPDATE t SET s = 'u' WHERE i = 1",
    "DELETE FROM t WHERE i = 2",
    "INSERT INTO t SELECT x, 'f' || x FROM range(100, 150) r(x)",
    "DELETE FROM t WHERE i IN (3, 101, 102)",
    "UPDATE t SET s = 'moved' WHERE i IN (1, 110)",
]
_SECOND_HALF = [
    "DELETE FROM t WHERE i = 103",
    "ALTER TABLE t ADD COLUMN k INT DEFAULT 5",
    "INSERT INTO t VALUES (200, 'x', 6), (201, 'y', NULL)",
    "DELETE FROM t WHERE i = 200",
    "INSERT INTO t SELECT x, 'g' || x, x FROM range(300, 330) r(x)",
]


# A scenario that has each feature, and how it is counted in its catalog: SQL on SQLite.
_CHANGED = "SELECT count(*) FROM ducklake_snapshot_changes WHERE changes_made LIKE"
_PARTITIONED = "SELECT count(*) FROM ducklake_partition_column WHERE transform LIKE"
FEATURES = {
    "types": ("types in files", "SELECT count(DISTINCT column_type) > 20 FROM ducklake_column"),
    "nested types": ("types inlined", "SELECT count(*) FROM ducklake_column WHERE parent_column IS NOT NULL"),
    "files": ("types in files", "SELECT count(*) FROM ducklake_data_file"),
    "inlined rows": ("types inlined", f"{_CHANGED} '%inlined_insert%'"),
    "flushed rows": ("types inlined, flushed", f"{_CHANGED} '%inline_flush%'"),
    "alterations": (
        "alterations of files",
        "SELECT count(*) FROM ducklake_column WHERE end_snapshot IS NOT NULL",
    ),
    "renamed tables": (
        "alterations of inlined rows",
        "SELECT count(*) - count(DISTINCT table_id) FROM ducklake_table",
    ),
    "renamed columns": ("alterations of files", _ALTERED_COLUMN.format("column_name")),
    "promotions": ("promotions in files", _ALTERED_COLUMN.format("column_type")),
    "defaults": (
        "defaults for files",
        "SELECT count(*) FROM ducklake_column WHERE initial_default IS NOT NULL",
    ),
    "delete files": ("delete files", "SELECT count(*) FROM ducklake_delete_file WHERE format = 'parquet'"),
    "delete files of several snapshots": (
        "delete files",
        "SELECT count(*) FROM ducklake_delete_file WHERE partial_max IS NOT NULL",
    ),
    "deletion vectors": (
        "deletion vectors",
        "SELECT count(*) FROM ducklake_delete_file WHERE format = 'puffin'",
    ),
    "inlined deletes": ("deletes in the catalog", f"{_CHANGED} '%inlined_delete%'"),
    "updates": ("merge into files", f"{_CHANGED} '%insert%delete%'"),
    "files that ended": (
        "delete files",
        "SELECT count(*) FROM ducklake_data_file WHERE end_snapshot IS NOT NULL",
    ),
    "merged files": ("compaction", f"{_CHANGED} '%merge_adjacent%'"),
    "files of several snapshots": (
        "compaction",
        "SELECT count(*) FROM ducklake_data_file WHERE partial_max IS NOT NULL",
    ),
    "rewritten files": ("compaction", f"{_CHANGED} '%rewrite_delete%'"),
    **{f"partitions by {kind}": ("partitions in files", f"{_PARTITIONED} '{kind}%'") for kind in _TRANSFORMS},
    "sort keys": ("sorted", "SELECT count(*) FROM ducklake_sort_expression"),
    "added files": ("added files", "SELECT count(*) FROM ducklake_data_file WHERE mapping_id IS NOT NULL"),
    "added files in folders": (
        "added files",
        "SELECT count(*) FROM ducklake_name_mapping WHERE is_partition",
    ),
    "files elsewhere": ("added files", "SELECT count(*) FROM ducklake_data_file WHERE NOT path_is_relative"),
    "odd names": ("names", "SELECT count(*) FROM ducklake_column WHERE column_name GLOB '*[^A-Za-z0-9_]*'"),
    "schemas": ("names in files", "SELECT count(*) - 1 FROM ducklake_schema"),
    "dropped tables": ("recreated", f"{_CHANGED} '%dropped_table%'"),
    "tables of one name": (
        "recreated in files",
        "SELECT count(DISTINCT table_id) - count(DISTINCT table_name) FROM ducklake_table",
    ),
    "tables without rows": (
        "recreated",
        (
            "SELECT count(*) FROM ducklake_table WHERE table_id NOT IN "
            "(SELECT table_id FROM ducklake_table_stats)"
        ),
    ),
    "files of many row groups": (
        "row groups",
        "SELECT count(*) FROM ducklake_data_file WHERE record_count > 2048",
    ),
    "transactions of several tables": (
        "transactions",
        (
            f"{_CHANGED} '%created_table%created_table%inserted%inserted%' OR changes_made "
            "LIKE '%inlined_insert%inlined_insert%'"
        ),
    ),
    "views": ("views", "SELECT count(*) FROM ducklake_view"),
    "expired snapshots": ("expired", "SELECT max(snapshot_id) + 1 - count(*) FROM ducklake_snapshot"),
}


@dataclass(frozen=True)
class Scenario:
    """Statements that make a lake, and what they are there for."""

    name: str
    statements: tuple[str, ...]


def _scenario(name: str, *statements: str | Iterable[str], rows: int = 40) -> Scenario:
    flat = [one for part in statements for one in ([part] if isinstance(part, str) else part)]
    texts = tuple(one.replace("{rows}", str(rows)).replace("{{", "{").replace("}}", "}") for one in flat)
    return Scenario(name, texts)


def _partitions() -> Iterator[str]:
    columns = "i INT, k VARCHAR, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, f DOUBLE, n DECIMAL(5,2), b BOOLEAN"
    yield f"CREATE TABLE p ({columns})"
    values = (
        "SELECT x::INT, ['a', 'x/y=z %ä', '', NULL, 'NULL'][1 + x % 5], DATE '1969-12-30' + x::INT, "
        "TIMESTAMP '2020-02-29 22:00:00' + INTERVAL (x) HOUR, TIMESTAMPTZ '2020-12-31 22:00:00+00' + "
        "INTERVAL (x) HOUR, ['1.5', 'nan', '-0.0', '0', 'inf', NULL][1 + x % 6]::DOUBLE, x / 2, x % 2 = 0"
    )
    keys = (
        "k", "year(d)", "month(ts), day(ts)", "hour(tz)", "bucket(4, k)", "bucket(3, i), b", "f", "n, year(ts)",
        "tz", "day(d), d", "bucket(5, d), bucket(2, ts)",
    )  # fmt: skip
    for number, key in enumerate(keys):
        yield f"ALTER TABLE p SET PARTITIONED BY ({key})"
        yield f"INSERT INTO p {values} FROM range({10 * number}, {10 * number + 7}) r(x)"
        yield f"DELETE FROM p WHERE i % 10 = {number % 7}"
    yield "ALTER TABLE p RESET PARTITIONED BY"
    yield f"INSERT INTO p {values} FROM range(7) r(x)"
    yield "UPDATE p SET k = 'moved' WHERE i % 4 = 1"
    yield MERGE


_UNREADABLE_IN_STRUCTS = (
    "BOOLEAN",
    "FLOAT",
    "DATE",
    "TIMESTAMP_S",
    "TIMESTAMP",
)  # for the reference, inlined


def _promotions(*left_out: str) -> Iterator[str]:
    """Yield promotions of columns by themselves and in structs."""
    widths = {
        "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"), "UTINYINT": ("USMALLINT", "UINTEGER", "BIGINT"),
        "FLOAT": ("DOUBLE",), "INTEGER": ("BIGINT", "DOUBLE"), "UINTEGER": ("UBIGINT",), "BOOLEAN": ("INTEGER",),
        "DECIMAL(4,2)": ("DECIMAL(9,2)", "DECIMAL(20,4)"), "DATE": ("TIMESTAMP",), "TIMESTAMP_S": ("TIMESTAMP",),
        "TIMESTAMP": ("TIMESTAMPTZ",), "SMALLINT": ("DECIMAL(9,2)",),
    }  # fmt: skip
    values = {
        "FLOAT": ("1.1", "'nan'"), "BOOLEAN": ("true", "false"), "DECIMAL(4,2)": ("-1.25", "99.99"),
        "DATE": ("'1969-12-31'", "'2024-02-29'"), "TIMESTAMP_S": ("'1969-12-31 23:59:59'", "'2024-02-29'"),
        "TIMESTAMP": ("'1969-12-31 23:59:59.5'", "'2024-02-29'"),
    }  # fmt: skip
    for number, type_ in enumerate(sorted(widths.keys() - set(left_out))):
        targets = widths[type_]
        name = f"w{number}"
        yield f"CREATE TABLE {name} (c {type_}, st STRUCT(x {type_}, y STRUCT(z {type_})))"
        first, second = (f"{value}::{type_}" for value in values.get(type_, ("1", "2")))
        yield (
            f"INSERT INTO {name} VALUES ({first}, {{{{'x': {first}, 'y': {{{{'z': {second}}}}}}}}}), (NULL, NULL), "
            f"({second}, {{{{'x': NULL, 'y': NULL}}}})"
        )
        for target in targets:
            yield f"ALTER TABLE {name} ALTER c SET DATA TYPE {target}"
            yield f"ALTER TABLE {name} ALTER st SET DATA TYPE STRUCT(x {target}, y STRUCT(z {target}))"
            yield f"INSERT INTO {name} (c) VALUES ({first})"
        yield f"DROP TABLE {name}"


def _added_with_defaults() -> Iterator[str]:
    yield "CREATE TABLE t (i INT)"
    yield "INSERT INTO t VALUES (1), (2)"
    for number, (type_, default) in enumerate(_DEFAULTS.items()):
        yield f"ALTER TABLE t ADD COLUMN c{number} {type_} DEFAULT {default}"
    yield "INSERT INTO t (i) VALUES (3)"
    yield "ALTER TABLE t ALTER c1 SET DATA TYPE INTEGER"
    yield "ALTER TABLE t ALTER c3 SET DATA TYPE DOUBLE"
    yield "ALTER TABLE t RENAME c2 TO c_two"
    yield "UPDATE t SET i = 10 WHERE i = 1"


_ADD = "CALL ducklake_add_data_files('lake', 't', '{given}/"
_GIVEN = [
    "CREATE TABLE t (i BIGINT, s VARCHAR, st STRUCT(a INT, b VARCHAR), l INT[], m MAP(VARCHAR, INT), region VARCHAR)",
    f"{_ADD}plain.parquet', allow_missing => true)",
    f"{_ADD}with_ids.parquet', allow_missing => true)",
    f"{_ADD}wide.parquet', allow_missing => true, ignore_extra_columns => true)",
    f"{_ADD}narrow.parquet', allow_missing => true)",
    f"{_ADD}large.parquet', allow_missing => true)",
    f"{_ADD}hive/*/*.parquet', hive_partitioning => true, allow_missing => true)",
    f"{_ADD}groups.parquet', allow_missing => true)",
    f"{_ADD}empty.parquet', allow_missing => true)",
    "INSERT INTO t VALUES (1, 'own', {{'a': 1, 'b': NULL}}, [1], MAP {{'k': 1}}, 'here')",
    "DELETE FROM t WHERE i % 3 = 1",
    "ALTER TABLE t RENAME COLUMN i TO key",
    "ALTER TABLE t RENAME COLUMN st.a TO z",
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 3",
    "ALTER TABLE t DROP COLUMN s",
    "ALTER TABLE t ADD COLUMN s INT DEFAULT 4",
    "UPDATE t SET region = 'moved' WHERE key = 5",
    MERGE,
    "DELETE FROM t WHERE key = 6",
    REWRITE,
]
_GIVEN_TYPES = [
    (
        "CREATE TABLE t (u8 UTINYINT, u64 UBIGINT, f FLOAT, d DATE, t TIME, ms TIMESTAMP_MS, us TIMESTAMP, ns TIMESTAMP_NS,"
        " tz TIMESTAMPTZ, n DECIMAL(20,3), x BLOB, fx BLOB, dict VARCHAR, big VARCHAR, u UUID, b BOOLEAN)"
    ),
    f"{_ADD}types.parquet')",
    "UPDATE t SET b = NULL WHERE u8 = 1",
]
_NAMES = [
    'CREATE SCHEMA "S 2"',
    "CREATE SCHEMA ünï",
    'CREATE TABLE "S 2"."select ""from""" ("Where" INT, "a.b" VARCHAR, "%(x)s" INT, "ä:b" INT, "" VARCHAR)'.replace(
        ', "" VARCHAR', ""
    ),
    """INSERT INTO "S 2"."select ""from\""" VALUES (1, 'x', 2, 3), (4, NULL, NULL, 5)""",
    'CREATE TABLE ünï."tâble.x" ("Größe" INT, "größe2" INT, "日本" VARCHAR, "I" INT, "😀" STRUCT("Ä ä" INT, "q""q" INT))',
    """INSERT INTO ünï."tâble.x" VALUES (1, 2, '語', 4, ROW(5, 6)), (NULL, NULL, NULL, NULL, NULL)""",
    'ALTER TABLE ünï."tâble.x" RENAME COLUMN "Größe" TO "select"',
    """UPDATE ünï."tâble.x" SET "日本" = '本' WHERE "I" = 4""",
    'CREATE TABLE "order" ("group" INT, "end_snapshot_" INT, "file_row_number" INT, "filename" VARCHAR)',
    """INSERT INTO "order" VALUES (1, 2, 3, 'f')""",
    'DROP TABLE "order"',
    'CREATE TABLE "ORDER" (x INT)',
    'INSERT INTO "ORDER" VALUES (7)',
    'ALTER TABLE "ORDER" RENAME TO "Order"',
    'DROP SCHEMA "S 2" CASCADE',
    'CREATE SCHEMA "s 2"',
    'CREATE TABLE "s 2".t (i INT)',
    'INSERT INTO "s 2".t VALUES (1)',
]
_INFINITE = [
    "CREATE TABLE t (s TIMESTAMP_S, ms TIMESTAMP_MS, ns TIMESTAMP_NS, l TIMESTAMP_S[])",
    "INSERT INTO t VALUES ('infinity', '-infinity', 'infinity', ['-infinity'])",
    "INSERT INTO t VALUES ('-infinity', 'infinity', '-infinity', ['2020-01-01'])",
]
_RECREATED = [
    "CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1), (2)", "DROP TABLE t",
    "CREATE TABLE t (s VARCHAR, i INT)", "INSERT INTO t VALUES ('a', 1)",
    "CREATE OR REPLACE TABLE t (d DATE)", "INSERT INTO t VALUES ('2024-02-29')",
    "CREATE OR REPLACE TABLE t AS SELECT 1.5 AS n",
    "BEGIN; DROP TABLE t; CREATE TABLE t (z INT); INSERT INTO t VALUES (8); COMMIT",
    "ALTER TABLE t RENAME TO u", "CREATE TABLE t AS FROM u", "DROP TABLE u",
    "CREATE TABLE empty (i INT, s VARCHAR[])", "CREATE TABLE none AS SELECT 1 AS i WHERE false",
    "INSERT INTO empty SELECT 1, NULL WHERE false",
]  # fmt: skip
_TRANSACTIONS = [
    (
        "BEGIN; CREATE TABLE a (i INT); CREATE TABLE b (s VARCHAR); INSERT INTO a VALUES (1); INSERT INTO b VALUES ('x'); "
        "COMMIT"
    ),
    (
        "BEGIN; INSERT INTO a SELECT x FROM range(30) r(x); DELETE FROM a WHERE i < 5; UPDATE b SET s = 'y'; "
        "ALTER TABLE b ADD COLUMN n INT DEFAULT 3; INSERT INTO b VALUES ('z', 4); COMMIT"
    ),
    "BEGIN; DELETE FROM a; INSERT INTO a VALUES (99); ROLLBACK",
    "BEGIN; CREATE SCHEMA s; CREATE TABLE s.c AS FROM a; DROP TABLE b; CREATE TABLE b AS FROM s.c; COMMIT",
    "BEGIN; UPDATE a SET i = i + 1; UPDATE a SET i = i + 1; DELETE FROM a WHERE i % 2 = 0; COMMIT",
]
_COMPACTED = [
    FILES_ONLY,
    "CREATE TABLE t (i INT, s VARCHAR)",
    *(f"INSERT INTO t SELECT x, 's' || x FROM range({10 * n}, {10 * n + 10}) r(x)" for n in range(4)),
    MERGE,
    "DELETE FROM t WHERE i IN (1, 15)",
    "ALTER TABLE t ADD COLUMN k INT DEFAULT 3",
    "INSERT INTO t SELECT x, 's' || x, x FROM range(100, 110) r(x)",
    "UPDATE t SET s = 'm' WHERE i = 25",
    "INSERT INTO t SELECT x, 's' || x, x FROM range(200, 210) r(x)",
    MERGE,
    "DELETE FROM t WHERE i % 2 = 0",
    REWRITE,
    "DELETE FROM t WHERE i % 3 = 0",
    "UPDATE t SET k = 0 WHERE i > 100",
    REWRITE,
    MERGE,
]
SCENARIOS = (
    _scenario("types in files", FILES_ONLY, type_statements("files")),
    _scenario("types inlined", INLINED, type_statements("inlined")),
    _scenario("types inlined, flushed", INLINED,
              type_statements("flushed"), "DELETE FROM types WHERE number = 1", FLUSH),
    _scenario("alterations of files", FILES_ONLY, _ALTERED, MERGE),
    _scenario("alterations of inlined rows", INLINED, _ALTERED),
    _scenario("alterations, flushed", INLINED, _ALTERED, FLUSH),
    _scenario("promotions in files", FILES_ONLY, _promotions()),
    _scenario("promotions of inlined rows", INLINED, _promotions(*_UNREADABLE_IN_STRUCTS)),
    _scenario("defaults for files", FILES_ONLY, _added_with_defaults()),
    _scenario("defaults for inlined rows", INLINED, _added_with_defaults(), FLUSH),
    _scenario("delete files",               FILES_ONLY, _DELETES, rows=100),
    _scenario("deletes in the catalog", _DELETES, rows=100),
    _scenario("deletes of inlined rows", INLINED, _DELETES, FLUSH),
    _scenario("deletion vectors", FILES_ONLY,
              "CALL lake.set_option('write_deletion_vectors', true)", _DELETES[:-4], rows=100),
    _scenario("merge into files", FILES_ONLY, _MERGED_INTO, rows=20),
    _scenario("merge into inlined rows", INLINED, _MERGED_INTO, rows=20),
    _scenario("mixed", _MIXED, _SECOND_HALF),
    _scenario("mixed, flushed twice", _MIXED, FLUSH, _SECOND_HALF,
              FLUSH, MERGE, "DELETE FROM t WHERE i = 300"),
    _scenario("mixed, checkpoint", _MIXED, CHECKPOINT, _SECOND_HALF, CHECKPOINT),
    _scenario("compaction", _COMPACTED),
    _scenario("partitions in files", FILES_ONLY, _partitions()),
    _scenario("partitions, inlined", INLINED, _partitions(), FLUSH),
    _scenario("partitions without folders", FILES_ONLY,
              "CALL lake.set_option('hive_file_pattern', false)", list(_partitions())[:9]),
    _scenario("sorted", "CREATE TABLE t (i INT, s VARCHAR)", "ALTER TABLE t SET SORTED BY (s DESC, i)",
              "INSERT INTO t SELECT x, 's' || x % 7 FROM range(50) r(x)", "INSERT INTO t VALUES (1, NULL)", FLUSH,
              MERGE, "ALTER TABLE t RESET SORTED BY", "INSERT INTO t SELECT x, 'a' FROM range(20) r(x)"),
    _scenario("added files", FILES_ONLY, _GIVEN),
    _scenario("added files, inlined deletes", _GIVEN),
    _scenario("added files of many types", FILES_ONLY, _GIVEN_TYPES),
    _scenario("an added file beside one without rows", "CREATE TABLE t (i BIGINT, s VARCHAR)", f"{_ADD}empty.parquet')",
              f"{_ADD}groups.parquet')"),
    _scenario("names", _NAMES),
    _scenario("names in files", FILES_ONLY, _NAMES),
    _scenario("infinite times in the catalog", _INFINITE),
    _scenario("recreated", _RECREATED),
    _scenario("recreated in files", FILES_ONLY, _RECREATED),
    _scenario("transactions", _TRANSACTIONS),
    _scenario("transactions in files", FILES_ONLY, _TRANSACTIONS),
    _scenario("views", "CREATE TABLE t AS SELECT 1 AS i", "CREATE VIEW v AS SELECT i + 1 AS j FROM t",
              "INSERT INTO t VALUES (2)", "ALTER VIEW v RENAME TO w", "DROP VIEW w", "CREATE TABLE w (i INT)"),
    _scenario("row groups", FILES_ONLY,
              "CALL lake.set_option('parquet_row_group_size', 2048)",
              "CREATE TABLE t AS SELECT x AS i, 's' || x AS s FROM range(9000) r(x)", "DELETE FROM t WHERE i % 4000 = 1",
              "CALL lake.set_option('parquet_compression', 'zstd')", "CALL lake.set_option('parquet_version', 2)",
              "CALL lake.set_option('target_file_size', '10KB')", "INSERT INTO t SELECT i + 9000, s FROM t",
              "UPDATE t SET s = 'u' WHERE i BETWEEN 4090 AND 4100"),
    _scenario("expired", FILES_ONLY, _COMPACTED,
              "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3, 5, 8])",
              "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"),
    _scenario("expired, inlined", _MIXED, _SECOND_HALF,
              "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3, 5])", FLUSH),
)  # fmt: skip


def features(catalog: CatalogDatabase) -> Counter[str]:
    """Return how often a lake on SQLite has each of the features."""
    with closing(sqlite3.connect(catalog.location)) as connection:
        return Counter(
            {name: connection.execute(probe).fetchone()[0] for name, (_, probe) in FEATURES.items()}
        )


def build(scenario: Scenario, catalog: CatalogDatabase, given: Path) -> None:
    """Let the reference carry a scenario out in an empty catalog; ``given`` is a folder that may be there."""
    if any("{given}" in statement for statement in scenario.statements) and not given.exists():
        write_given(given)
    by_duckdb(catalog, *(statement.replace("{given}", str(given)) for statement in scenario.statements))


def drawn_catalog(catalog: CatalogDatabase, draw: random.Random) -> CatalogDatabase:
    """Return a catalog in which the reference makes an encrypted lake, or not."""
    return replace(catalog, is_encrypted=draw.random() < 1 / 3)


@dataclass
class History:
    """Draws statements on a few tables; some fail in the reference, which then changes nothing.

    ``kinds`` None: of all kinds but ``schema``, each as often. That one is for tables in the schema ``s``.
    """

    random: random.Random
    carried_out: Counter[str]  # by their kinds
    statements: list[str] = field(default_factory=list)
    kinds: Sequence[str] | None = None
    tables: Sequence[str] = ("t0", "t1", "t2")

    def play(self, reference: DuckLakeConnection, steps: int) -> None:
        for table in self.tables:
            reference.sql(_creation(table))
        self.play_on(reference, steps)

    def play_on(self, reference: DuckLakeConnection, steps: int) -> None:
        """Carry out so many more statements."""
        for _ in range(steps):
            kind = self.random.choice(self.kinds or [one for one in _DRAWN if one != "schema"])
            table = self._table()
            count = self.random.choice([1, 1, 2, 2, 3]) if kind in _TOGETHER else 1
            parts = [_DRAWN[kind](self.random, table)]
            others = [self.random.choice(_TOGETHER) for _ in range(count - 1)]
            parts += [_DRAWN[other](self.random, self._table()) for other in others]
            text = "; ".join(["BEGIN", *parts, "COMMIT"]) if len(parts) > 1 else parts[0]
            try:
                reference.sql(text)
                self.carried_out[kind] += 1
                self.statements.append(text)
            except duckdb.Error:
                with suppress(duckdb.TransactionException):  # where COMMIT failed nothing is open any more
                    reference.sql("ROLLBACK")

    def _table(self) -> str:
        return self.tables[self.random.randrange(len(self.tables))]


def _creation(table: str) -> str:
    schema, _ = _places(table)
    made = f"CREATE SCHEMA IF NOT EXISTS {schema}; " if schema else ""
    return f"{made}CREATE TABLE IF NOT EXISTS {table} {_columns(table)}"


def _columns(table: str) -> str:
    own = _OWN_COLUMNS.get(table[-1], ())
    more = "".join(f", {name} {type_}" for name, (type_, _) in zip(_OWN_NAMES, own, strict=False))
    return f"(i INT, s VARCHAR, n DECIMAL(9,2), st STRUCT(a INT, b VARCHAR){more})"


_OWN_NAMES = "opq"
_STRUCT = "{'a': x, 'b': 'b' || x % 3, 'c': {'d': x / 4}}::VARIANT"
_OWN_COLUMNS = {  # of tables whose names end so: their types, and what makes values
    "0": (
        ("INTERVAL", "CASE WHEN x % 5 <> 0 THEN INTERVAL (x) DAY + INTERVAL (x % 7) MINUTE END"),
        ("HUGEINT", "CASE WHEN x % 5 <> 0 THEN x::HUGEINT * 4611686018427387904 END"),
        ("TIMETZ", "CASE WHEN x % 5 <> 0 THEN ('01:02:' || (x % 60) || '.5+0' || x % 9)::TIMETZ END"),
    ),
    "1": (("GEOMETRY", "CASE WHEN x % 5 <> 0 THEN ('POINT (' || x || ' ' || x % 7 || ')')::GEOMETRY END"),),
    "2": (
        (
            "VARIANT",
            f"CASE x % 5 WHEN 0 THEN NULL WHEN 1 THEN ('s' || x)::VARIANT WHEN 2 THEN [x]::VARIANT ELSE {_STRUCT} END",
        ),
    ),
}


def _places(table: str) -> tuple[str, str]:
    """Return the schema, empty for the usual one, and the name of a table."""
    schema, _, name = table.rpartition(".")
    return schema, name


def _schema(draw: random.Random, table: str) -> str:
    drop = "DROP SCHEMA IF EXISTS s CASCADE"
    again = _creation(table if _places(table)[0] else f"s.{table}")
    return draw.choice([drop, again, f"BEGIN; {drop}; {again}; COMMIT"])


def _insert(draw: random.Random, table: str) -> str:
    start, count = draw.randrange(200), draw.choice([1, 2, 5, 15, 40])
    cells = "x::INT AS i, 's' || x % 5 AS s, (x / 4)::DECIMAL(9,2) AS n, {'a': x::INT, 'b': 'b' || x} AS st"
    for name, (_, value) in zip(_OWN_NAMES, _OWN_COLUMNS.get(table[-1], ()), strict=False):
        cells += f", {value} AS {name}"
    return f"INSERT INTO {table} BY NAME SELECT {cells} FROM range({start}, {start + count}) r(x)"


def _rows(draw: random.Random) -> str:
    first = draw.randrange(200)
    return draw.choice(
        [f"i % 7 = {first % 7}", f"i = {first}", f"i BETWEEN {first} AND {first + 30}", f"i < {first}"]
    )


def _set_option(draw: random.Random, table: str) -> str:
    schema, name = _places(table)
    scope = f"table_name => '{name}'" + (f", schema => '{schema}'" if schema else "")
    return draw.choice(
        [
            f"CALL lake.set_option('data_inlining_row_limit', {draw.choice([0, 3, 10])}, {scope})",
            f"CALL lake.set_option('sort_on_insert', {draw.choice(['true', 'false'])}, {scope})",
        ]
    )


def _rewrite(_draw: random.Random, table: str) -> str:
    schema, name = _places(table)
    named = f"'{name}'" + (f", schema => '{schema}'" if schema else "")
    return f"CALL ducklake_rewrite_data_files('lake', {named}, delete_threshold => 0.1)"


def _recreate(draw: random.Random, table: str) -> str:
    schema, name = _places(table)
    spare = f"{schema}.spare" if schema else "spare"
    if draw.random() < 0.3:
        return f"CREATE OR REPLACE TABLE {table} {_columns(table)}"
    return f"ALTER TABLE {table} RENAME TO spare; ALTER TABLE {spare} RENAME TO {name}"


_TOGETHER = ("insert", "delete", "update", "add column", "rename column")
_DRAWN: dict[str, Callable[[random.Random, str], str]] = {
    "insert": _insert,
    "insert again": _insert,
    "delete": lambda draw, table: f"DELETE FROM {table} WHERE {_rows(draw)}",
    "update": lambda draw, table: f"UPDATE {table} SET s = 'u{draw.randrange(9)}' WHERE {_rows(draw)}",
    "update key": lambda draw, table: f"UPDATE {table} SET i = i + 1 WHERE {_rows(draw)}",
    "merge into": lambda draw, table: (
        f"MERGE INTO {table} t USING (SELECT x::INT AS i FROM range({draw.randrange(200)}, 200) r(x)) m ON t.i = m.i "
        "WHEN MATCHED AND t.i % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm'"
    ),
    "truncate": lambda draw, table: f"TRUNCATE {table}" if draw.random() < 0.3 else f"DELETE FROM {table}",
    "add column": lambda draw, table: (
        f"ALTER TABLE {table} ADD COLUMN c{draw.randrange(4)} INT DEFAULT {draw.randrange(9)}"
    ),
    "drop column": lambda draw, table: f"ALTER TABLE {table} DROP COLUMN c{draw.randrange(4)}",
    "rename column": lambda draw, table: (
        f"ALTER TABLE {table} RENAME c{draw.randrange(4)} TO c{draw.randrange(4)}"
    ),
    "add field": lambda draw, table: f"ALTER TABLE {table} ADD COLUMN st.f{draw.randrange(3)} INT",
    "drop field": lambda draw, table: f"ALTER TABLE {table} DROP COLUMN st.f{draw.randrange(3)}",
    "widen": lambda draw, table: f"ALTER TABLE {table} ALTER c{draw.randrange(4)} SET DATA TYPE BIGINT",
    "partition": lambda draw, table: (
        f"ALTER TABLE {table} SET PARTITIONED BY ({draw.choice(['s', 'bucket(3, i)', 's, bucket(2, n)'])})"
    ),
    "unpartition": lambda _draw, table: f"ALTER TABLE {table} RESET PARTITIONED BY",
    "sort": lambda draw, table: f"ALTER TABLE {table} SET SORTED BY ({draw.choice(['i DESC', 's, i'])})",
    "option": _set_option,
    "flush": lambda *_: FLUSH,
    "merge files": lambda *_: MERGE,
    "rewrite": _rewrite,
    "recreate": _recreate,
    "schema": _schema,
}


def statement(kind: str, draw: random.Random, table: str) -> str:
    """Return one statement of a kind that ``History`` draws."""
    return _DRAWN[kind](draw, table)
