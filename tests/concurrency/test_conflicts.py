"""Our verdict on what was committed since our plan, against the reference's own on the same pair."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.catalog.transaction import LakeTransaction
from airflow_provider_ducklake.errors import TransactionConflictError
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

ROWS = pa.table({"i": pa.array(range(20), pa.int32())})


@dataclass(frozen=True)
class Ours:
    """A change of ours, and the statement by which the reference wants the same; `{n}` numbers the pair."""

    act: Callable[[LakeTransaction, int], None]
    statement: str


OURS = {
    "append": Ours(lambda tx, n: tx.append_arrow(f"s{n}.t", ROWS), "INSERT INTO s{n}.t FROM range(20)"),
    "drop table": Ours(lambda tx, n: tx.drop_table(f"s{n}.t"), "DROP TABLE s{n}.t"),
    "create table": Ours(
        lambda tx, n: tx.create_table(f"s{n}.new", {"i": "int32"}), "CREATE TABLE s{n}.new (i INTEGER)"
    ),
    "create table with rows": Ours(
        lambda tx, n: (tx.create_table(f"s{n}.new", {"i": "int32"}), tx.append_arrow(f"s{n}.new", ROWS)),
        "CREATE TABLE s{n}.new AS SELECT i::INTEGER AS i FROM range(20) r(i)",
    ),
    "create schema": Ours(lambda tx, n: tx.create_schema(f"new{n}"), "CREATE SCHEMA new{n}"),
    "drop empty schema": Ours(lambda tx, n: tx.drop_schema(f"e{n}"), "DROP SCHEMA e{n}"),
    "drop schema with its tables": Ours(
        lambda tx, n: tx.drop_schema(f"s{n}", cascade=True), "DROP SCHEMA s{n} CASCADE"
    ),
}

TABLE = {
    "insert": ["INSERT INTO s{n}.t FROM range(20)"],
    "inlined insert": ["INSERT INTO s{n}.t VALUES (1)"],
    "delete": ["DELETE FROM s{n}.t WHERE i < 20"],
    "inlined delete": ["DELETE FROM s{n}.t WHERE i = 1"],
    "inlined delete of an inlined row": ["DELETE FROM s{n}.t WHERE i = 100"],
    "delete everything": ["DELETE FROM s{n}.t"],
    "update": ["UPDATE s{n}.t SET i = 7 WHERE i < 30"],
    "inlined update": ["UPDATE s{n}.t SET i = 7 WHERE i = 1"],
    "add column": ["ALTER TABLE s{n}.t ADD COLUMN j INTEGER"],
    "rename column": ["ALTER TABLE s{n}.t RENAME i TO j"],
    "widen": ["ALTER TABLE s{n}.t ALTER i SET DATA TYPE BIGINT"],
    "partition": ["ALTER TABLE s{n}.t SET PARTITIONED BY (i)"],
    "sort": ["ALTER TABLE s{n}.t SET SORTED BY (i)"],
    "comment": ["COMMENT ON TABLE s{n}.t IS 'x'"],
    "rename table": ["ALTER TABLE s{n}.t RENAME TO other"],
    "drop table": ["DROP TABLE s{n}.t"],
    "replace table": ["CREATE OR REPLACE TABLE s{n}.t (i INTEGER)"],
    "merge": ["CALL ducklake_merge_adjacent_files('lake', 't', schema => 's{n}')"],
    "rewrite": [
        "BEFORE DELETE FROM s{n}.t WHERE i < 20",
        "CALL ducklake_rewrite_data_files('lake', 't', schema => 's{n}', delete_threshold => 0)",
    ],
    "flush of rows": ["CALL ducklake_flush_inlined_data('lake', schema_name => 's{n}', table_name => 't')"],
    "flush of deletes": [
        "BEFORE DELETE FROM s{n}.t WHERE i = 1",
        "CALL ducklake_flush_inlined_data('lake', schema_name => 's{n}', table_name => 't')",
    ],
    "another table": ["INSERT INTO s{n}.o FROM range(20)"],
}
NAME = {
    "create the same table": ["CREATE TABLE s{n}.NEW (i INTEGER)"],
    "create the same view": ["CREATE VIEW s{n}.new AS SELECT 1"],
    "create the same macro": ["CREATE MACRO s{n}.new(a) AS a"],
    "rename to that name": ["ALTER TABLE s{n}.o RENAME TO new"],
    "create another table": ["CREATE TABLE s{n}.other (i INTEGER)"],
    "create it elsewhere": ["CREATE TABLE e{n}.new (i INTEGER)"],
    "drop the schema": ["DROP SCHEMA s{n} CASCADE"],
    "drop another schema": ["DROP SCHEMA e{n}"],
}
SCHEMA = {
    "create the same schema": ["CREATE SCHEMA NEW{n}"],
    "create another schema": ["CREATE SCHEMA other{n}"],
    "drop the schema": ["DROP SCHEMA e{n}"],
    "drop and create the schema": ["DROP SCHEMA e{n}", "CREATE SCHEMA e{n}"],
    "create a table in it": ["CREATE TABLE e{n}.x (i INTEGER)"],
    "create a view in it": ["CREATE VIEW e{n}.x AS SELECT 1"],
}
CASCADE = {
    "insert": TABLE["insert"],
    "alter": TABLE["add column"],
    "rename table": TABLE["rename table"],
    "drop a table": TABLE["drop table"],
    "create a table": NAME["create another table"],
    "create a view": NAME["create the same view"],
    "drop the schema": NAME["drop the schema"],
}
PAIRS = [
    *(("append", name, TABLE[name]) for name in TABLE),
    *(("drop table", name, TABLE[name]) for name in TABLE),
    *(("create table", name, NAME[name]) for name in NAME),
    *(("create table with rows", name, NAME[name]) for name in ("create the same table", "drop the schema")),
    *(("create schema", name, SCHEMA[name]) for name in ("create the same schema", "create another schema")),
    *(("drop empty schema", name, SCHEMA[name]) for name in SCHEMA),
    *(("drop schema with its tables", name, CASCADE[name]) for name in CASCADE),
]


def prepare(other: DuckLakeConnection, number: int, statements: list[str]) -> list[str]:
    """Make the objects of a pair; return the statements that the other side is to commit."""
    for statement in (
        "CREATE SCHEMA s{n}",
        "CREATE SCHEMA e{n}",
        "CREATE TABLE s{n}.t (i INTEGER)",
        "CREATE TABLE s{n}.o (i INTEGER)",
        "INSERT INTO s{n}.t FROM range(50)",
        "INSERT INTO s{n}.t FROM range(50)",
        "INSERT INTO s{n}.t VALUES (100), (101)",
        *(one.removeprefix("BEFORE ") for one in statements if one.startswith("BEFORE ")),
    ):
        other.sql(statement.format(n=number))
    return [one.format(n=number) for one in statements if not one.startswith("BEFORE ")]


def verdict_of_the_reference(
    first: DuckLakeConnection, other: DuckLakeConnection, number: int, ours: Ours, theirs: list[str]
) -> str:
    statements = prepare(other, number, theirs)
    first.sql("BEGIN")
    first.sql(ours.statement.format(n=number))
    for statement in statements:
        other.sql(statement)
    try:
        first.sql("COMMIT")
    except duckdb.Error as error:
        return "conflict" if "onflict" in str(error) else str(error)
    return "committed"


def our_verdict(lake: Lake, other: DuckLakeConnection, number: int, ours: Ours, theirs: list[str]) -> str:
    statements = prepare(other, number, theirs)
    before = lake.current_snapshot().id
    tx = lake.transaction()
    ours.act(tx, number)
    for statement in statements:
        other.sql(statement)
    assert lake.current_snapshot().id > before, statements
    try:
        with tx:
            pass
    except TransactionConflictError as error:
        return "conflict" if str(number) in error.table else str(error)
    return "committed"


@pytest.fixture
def sides(postgres_catalog) -> Iterator[tuple[Lake, DuckLakeConnection, DuckLakeConnection]]:
    with (
        open_lake(postgres_catalog) as first,
        open_lake(postgres_catalog) as other,
        Lake.connect(postgres_catalog.sqlalchemy_url) as lake,
    ):
        yield lake, first, other


@pytest.mark.parametrize("kind", OURS)
def test_our_verdicts_are_the_references(sides, kind):
    lake, first, other = sides
    ours, theirs = {}, {}
    for number, (_, name, statements) in enumerate(pair for pair in PAIRS if pair[0] == kind):
        theirs[name] = verdict_of_the_reference(first, other, 2 * number, OURS[kind], statements)
        ours[name] = our_verdict(lake, other, 2 * number + 1, OURS[kind], statements)

    assert ours == theirs


def test_we_close_the_references_hole_between_a_dropped_schema_and_a_macro_made_in_it(sides):
    """The reference commits both, and then no client can load the lake."""
    lake, _, other = sides

    verdict = our_verdict(lake, other, 1, OURS["drop empty schema"], ["CREATE MACRO e{n}.x(a) AS a"])

    assert verdict == "conflict"
    assert other.sql("SELECT e1.x(7)") == [(7,)]
