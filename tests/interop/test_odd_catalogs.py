"""Whatever a catalog has in place of a field's value, and rows twice or lost: an answer or a typed error.

SQLite keeps any value in any column, and every client may write what it likes into the others.
"""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.given_files import write_given
from tests.interop.odd import Original, Outcomes, Verb
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

DAMAGES = {"ci": 40, "full": 1500}
VERBS_A_DAMAGE = 6
SHARE_OF_ROWS = 0.2
ODD: tuple[Any, ...] = (
    *(None, "", "x", 0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63), 1.5, 1e308),
    *(b"\x00\xff", "a\x00b", "9" * 5000, "\u0663", "NaN", "inf", "true", "2020-01-01", "{}", "[1", "5_0"),
    *("varchar", "struct", "decimal(99,1)", "interval", "bucket(0)", "../../x", "s3://elsewhere/x", "'; --"),
)
HISTORY = (
    "CALL lake.set_option('data_inlining_row_limit', 0)",
    "CREATE TABLE t (id BIGINT, price DOUBLE, day DATE, tags VARCHAR[], s STRUCT(a INTEGER, b VARCHAR))",
    "INSERT INTO t SELECT x, x / 2, DATE '2026-01-01' + x::INT, [], {'a': x, 'b': 'y'} FROM range(40) r(x)",
    "DELETE FROM t WHERE id < 5",
    "INSERT INTO t SELECT x, x / 2, DATE '2026-02-01', ['b'], NULL FROM range(40, 60) r(x)",
    "CREATE TABLE p (k VARCHAR, n INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (k, bucket(4, n))",
    "ALTER TABLE p SET SORTED BY (n ASC NULLS FIRST)",
    "INSERT INTO p SELECT 'k' || x % 3, x FROM range(30) r(x)",
    "CREATE TABLE i (id INTEGER, text VARCHAR, made TIMESTAMP)",
    "CALL lake.set_option('data_inlining_row_limit', 100, table_name => 'i')",
    "INSERT INTO i SELECT x, 'x' || x, TIMESTAMP '2026-01-01 10:00:00' FROM range(8) r(x)",
    "DELETE FROM i WHERE id = 2",
    "CREATE VIEW v (a, b) AS SELECT id, price FROM t",
    "CREATE MACRO plus(a, b := 2) AS a + b",
    "COMMENT ON TABLE t IS 'a comment'",
    "COMMENT ON COLUMN t.id IS 'its key'",
    "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7",
    "CREATE TABLE given (i BIGINT, st STRUCT(a INTEGER, b VARCHAR))",
    "CALL ducklake_add_data_files('lake', 'given', '{given}', ignore_extra_columns => true)",
    "CREATE SCHEMA other",
    "CREATE TABLE other.gone (n INTEGER)",
    "INSERT INTO other.gone FROM range(3)",
    "DROP TABLE other.gone",
)
ONE = pa.table(
    {"id": pa.array([900], pa.int32()), "text": ["new"], "made": pa.array([None], pa.timestamp("us"))}
)


def in_transaction(change: Callable[[Any], object]) -> Verb:
    """Return what makes a transaction of one change."""

    def run(lake: Lake) -> None:
        with lake.transaction() as tx:
            change(tx)

    return run


VERBS: dict[str, Verb] = {
    "current": lambda lake: lake.current_snapshot(),
    "snapshots": lambda lake: lake.snapshots(),
    "at a time": lambda lake: lake.snapshot_at(datetime.now(UTC)),
    "tables": lambda lake: lake.tables(),
    "view": lambda lake: lake.reads.view("v"),
    "options": lambda lake: lake.reads.options("i"),
    "table": lambda lake: lake.table_snapshot("t", with_files=True),
    "new table": lambda lake: lake.read_arrow("p", at=lake.current_snapshot().id - 1),
    "read t": lambda lake: lake.read_arrow("t"),
    "read t, filtered": lambda lake: lake.read_arrow("t", filter="id > 30 AND day < DATE '2026-03-01'"),
    "read p": lambda lake: lake.read_arrow("p", filter="k = 'k1'"),
    "read i": lambda lake: lake.read_arrow("i"),
    "read given": lambda lake: lake.read_arrow("given", filter="i > 1"),
    "info": lambda lake: lake.table_info(),
    "files": lambda lake: lake.files("t"),
    "count": lambda lake: lake.row_count("t"),
    "bounds": lambda lake: lake.column_bounds("t", "id"),
    "feed of t": lambda lake: lake.changes("t", 2, lake.current_snapshot().id).read_arrow(),
    "feed of i": lambda lake: lake.insertions("i", 2, lake.current_snapshot().id),
    "watch": lambda lake: lake.table_changes("t", 1, ("insert", "delete")),
    "clients": lambda lake: lake.clients(),
    "health": lambda lake: lake.table_health(),
    "verify": lambda lake: lake.verify(),
    "option": lambda lake: lake.set_option("target_file_size", "10MB"),
    "append": lambda lake: lake.append_arrow("i", ONE),
    "delete from t": in_transaction(lambda tx: tx.delete_rows("t", "id < 12")),
    "delete from i": in_transaction(lambda tx: tx.delete_rows("i", "id < 5")),
    "add column": in_transaction(lambda tx: tx.add_column("t", "extra", "varchar", "x")),
    "drop": in_transaction(lambda tx: tx.drop_table("p")),
    "merge": lambda lake: lake.maintenance.plan_merge("t"),
    "rewrite": lambda lake: lake.maintenance.plan_rewrite("t"),
    "flush": lambda lake: lake.flush_inlined_data("i"),
    "restore": lambda lake: lake.restore("t", at=3),
    "expire": lambda lake: lake.expire_snapshots(keep_last=2),
    "clean up": lambda lake: lake.cleanup_old_files(older_than=timedelta(0)),
    "orphans": lambda lake: lake.delete_orphaned_files(),
    "repair": lambda lake: lake.repair(lake.verify(), dry_run=True),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Original:
    """A lake that DuckDB made."""
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("odd") / "area")
    original = Original(catalog)
    write_given(original.area / "given")
    with open_lake(catalog) as reference:
        for statement in HISTORY:
            reference.sql(statement.replace("{given}", str(original.area / "given" / "plain.parquet")))
    original.keep()
    return original


def database_of(catalog: CatalogDatabase) -> str:
    return catalog.sqlalchemy_url.removeprefix("sqlite:///")


def columns_of(catalog: CatalogDatabase) -> list[tuple[str, str, int]]:
    """Return table, column and number of rows of all that hold rows."""
    with closing(sqlite3.connect(database_of(catalog))) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        found = []
        for (table,) in names:
            (rows,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            if rows:
                layout = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
                found += [(table, column[1], rows) for column in layout]
        return found


def spoil(catalog: CatalogDatabase, statement: str, *values: object) -> None:
    """Change a catalog behind everybody's back."""
    with closing(sqlite3.connect(database_of(catalog))) as connection, connection:
        connection.execute(statement, values)


def place(table: str, row: int) -> str:
    """Return the query for a row by its number."""
    return f'SELECT rowid FROM "{table}" ORDER BY rowid LIMIT 1 OFFSET {row}'


def put(catalog: CatalogDatabase, table: str, column: str, row: int, value: object) -> str:
    """Put a value into a field, and say so."""
    change = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ({place(table, row)})'
    spoil(catalog, change, value)
    return f"{table}.{column} of row {row} = {value!r:.40}"


def double(catalog: CatalogDatabase, table: str, row: int) -> str:
    """Have a row twice where no key forbids it, and say so."""
    spoil(
        catalog,
        f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ({place(table, row)})',
    )
    return f"{table}, row {row} twice"


def lose(catalog: CatalogDatabase, table: str, row: int) -> str:
    """Take a row away, and say so."""
    spoil(catalog, f'DELETE FROM "{table}" WHERE rowid = ({place(table, row)})')
    return f"{table} without row {row}"


def plant(catalog: CatalogDatabase, draw: random.Random) -> str:
    """Put an odd value into one drawn field, have a drawn row twice or not at all, and say what."""
    table, column, rows = draw.choice(columns_of(catalog))
    row = draw.randrange(rows)
    if (kind := draw.random()) < SHARE_OF_ROWS:
        return (double if kind < SHARE_OF_ROWS / 2 else lose)(catalog, table, row)
    return put(catalog, table, column, row, draw.choice(ODD))


def test_an_odd_value_in_a_catalog_is_an_answer_or_a_typed_error(made, seed, size):
    draw = random.Random(f"odd catalogs {seed}")
    outcomes = Outcomes()
    for _ in range(DAMAGES[size]):
        made.restore()
        what = plant(made.catalog, draw)
        for name in draw.sample(sorted(VERBS), VERBS_A_DAMAGE):
            outcomes.note(made.catalog, what, name, VERBS[name])
    outcomes.check()


def test_each_field_without_its_value_and_each_row_twice_or_lost(made, seed, size):
    made.restore()
    fields = columns_of(made.catalog)
    damages: list[Callable[[CatalogDatabase], str]] = [
        partial(put, table=table, column=column, row=row, value=None)
        for table, column, rows in fields
        for row in {0, rows - 1}
    ]
    damages += [
        partial(change, table=table, row=row)
        for table, rows in sorted({(table, rows) for table, _, rows in fields})
        for row in {0, rows - 1}
        for change in (double, lose)
    ]
    draw = random.Random(f"damages {seed}")
    outcomes = Outcomes()
    for damage in damages if size == "full" else draw.sample(damages, DAMAGES[size]):
        for name in VERBS if size == "full" else draw.sample(sorted(VERBS), VERBS_A_DAMAGE):
            made.restore()
            outcomes.note(made.catalog, damage(made.catalog), name, VERBS[name])
    outcomes.check()
