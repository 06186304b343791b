"""Columns, names, keys and comments come back with the rows; so do dropped tables, views and macros."""

import random

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import AlreadyExistsError, TransactionConflictError
from tests.interop.lakes import alone, by_duckdb
from tests.interop.restoring import Interrupted, assert_read_alike, forget_all_but_the_newest, newest
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions


@pytest.fixture
def lake(sqlite_catalog):
    with open_lake(sqlite_catalog):
        pass
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as found:
        yield found


def definition(lake, table, at=None):
    """Return all that a table is besides its rows."""
    found = lake.table_snapshot(table, at=at)
    sort_by = None if found.sort_spec is None else found.sort_spec.fields
    return found.table_id, found.table_uuid, found.name, found.schema, found.partition_spec, sort_by


COMMENTS = (
    "SELECT comment FROM duckdb_tables() WHERE database_name = 'lake' UNION ALL "
    "SELECT comment FROM duckdb_columns() WHERE database_name = 'lake' AND comment IS NOT NULL"
)
TABLE = (
    "CREATE TABLE t (i INT NOT NULL, k VARCHAR DEFAULT 'none', st STRUCT(a INT, b VARCHAR), gone INT)",
    "ALTER TABLE t SET PARTITIONED BY (k)",
    "ALTER TABLE t SET SORTED BY (i DESC)",
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
    "COMMENT ON TABLE t IS 'mine'",
    "COMMENT ON COLUMN t.i IS 'the id'",
    "INSERT INTO t (i, k, st, gone) SELECT i, 'k' || i % 2, {'a': i, 'b': 'b'}, i FROM range(40) r(i)",
    "INSERT INTO t BY NAME SELECT 100 AS i, 'k0' AS k, 9 AS gone, 8 AS late",
)
SINCE = {
    "rename": ["ALTER TABLE t RENAME TO u"],
    "rename columns": ["ALTER TABLE t RENAME gone TO x", "ALTER TABLE t RENAME late TO gone"],
    "drop columns": ["ALTER TABLE t DROP COLUMN gone", "ALTER TABLE t DROP COLUMN st.b"],
    "drop and add": ["ALTER TABLE t DROP COLUMN gone", "ALTER TABLE t ADD COLUMN gone VARCHAR DEFAULT 'new'"],
    "widen": ["ALTER TABLE t ALTER gone TYPE BIGINT", "INSERT INTO t (i, gone) VALUES (1, 5000000000)"],
    "defaults": ["ALTER TABLE t ALTER late SET DEFAULT 9", "ALTER TABLE t ALTER k DROP DEFAULT"],
    "nullability": ["ALTER TABLE t ALTER i DROP NOT NULL", "INSERT INTO t (gone) VALUES (1)"],
    "keys": ["ALTER TABLE t SET PARTITIONED BY (bucket(3, i))", "ALTER TABLE t SET SORTED BY (k)"],
    "no keys": ["ALTER TABLE t RESET PARTITIONED BY", "ALTER TABLE t RESET SORTED BY"],
    "comments": [
        "COMMENT ON TABLE t IS NULL",
        "COMMENT ON COLUMN t.k IS 'new'",
        "COMMENT ON COLUMN t.i IS 'x'",
    ],
    "replace": ["CREATE OR REPLACE TABLE t (z DATE)", "INSERT INTO t VALUES ('2024-01-01')"],
    "drop": ["DROP TABLE t"],
}
ROWS = "SELECT rowid, * FROM t"


KINDS_IN_CI = 2


def test_definitions_come_back(new_catalog, seed, size):
    kinds = sorted(SINCE)
    for kind in random.Random(f"definitions {seed}").sample(
        kinds, KINDS_IN_CI if size == "ci" else len(kinds)
    ):
        for rows_change in (True,) if size == "ci" else (True, False):
            catalog = new_catalog("sqlite")
            by_duckdb(catalog, *TABLE)
            try:
                with Lake.connect(catalog.sqlalchemy_url) as lake:
                    assert_definition_comes_back(lake, catalog, kind, rows_change=rows_change)
            except Exception as error:
                raise AssertionError(f"--seed {seed}: {kind}, {rows_change=}") from error


def assert_definition_comes_back(lake, catalog, kind, *, rows_change):
    then = newest(lake)
    table, rows, comments = definition(lake, "t"), by_duckdb(catalog, ROWS), by_duckdb(catalog, COMMENTS)
    if rows_change:
        insert = "INSERT INTO t (i, k) SELECT i, 'k3' FROM range(20) r(i)"
        by_duckdb(catalog, insert, "DELETE FROM t WHERE k = 'k0'")
    by_duckdb(catalog, *SINCE[kind])

    restored = lake.restore("t", at=then)

    assert restored.committed is not None
    assert definition(lake, "t") == table
    assert sorted(by_duckdb(catalog, ROWS)) == sorted(rows)
    assert sorted(by_duckdb(catalog, COMMENTS)) == sorted(comments)
    assert lake.verify() == []
    assert_read_alike(lake, catalog)
    if kind == "nullability":  # DuckDB 1.5.5 cannot flush such a table: docs/compatibility.md
        with pytest.raises(duckdb.ConstraintException, match="NOT NULL"):
            by_duckdb(catalog, "CALL ducklake_flush_inlined_data('lake')")
        lake.flush_inlined_data("t")
    counts = by_duckdb(
        catalog,
        "INSERT INTO t (i) VALUES (500)",
        "INSERT INTO t (i, k) SELECT i, 'k4' FROM range(600, 630) r(i)",
        "UPDATE t SET gone = 0 WHERE i IN (1, 500, 601)",
        "DELETE FROM t WHERE i = 2",
        "ALTER TABLE t ADD COLUMN fresh INT DEFAULT 1",
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "SELECT count(*), sum(i), sum(fresh), count(DISTINCT rowid) FROM t",
    )
    assert counts == [(71, 780 - 2 + 100 + 500 + sum(range(600, 630)), 71, 71)]
    assert lake.verify() == []
    shown = by_duckdb(catalog, ROWS)
    forget_all_but_the_newest(catalog)
    assert sorted(by_duckdb(catalog, ROWS)) == sorted(shown)
    assert lake.verify() == []


def test_no_column_gets_the_id_of_one_that_came_and_went(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1)")
    then = newest(lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t ADD COLUMN x INT", "INSERT INTO t VALUES (2, 3)")
    between = newest(lake)
    lake.restore("t", at=then)
    by_duckdb(sqlite_catalog, "ALTER TABLE t ADD COLUMN y INT DEFAULT 5", "INSERT INTO t VALUES (4, 6)")

    assert [one.id for one in lake.table_snapshot("t").schema.columns] == [1, 3]
    assert by_duckdb(sqlite_catalog, "FROM t ORDER BY i") == [(1, 5), (4, 6)]

    lake.restore("t", at=between)
    assert by_duckdb(sqlite_catalog, "FROM t ORDER BY i") == [(1, None), (2, 3)]
    assert [one.id for one in lake.table_snapshot("t").schema.columns] == [1, 2]
    assert lake.verify() == []


def test_a_renamed_table_is_found_by_either_name(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t RENAME TO u", "DELETE FROM u")

    assert lake.restore("u", at=then).tables[0].name == "main.t"
    assert by_duckdb(sqlite_catalog, "FROM t") == [(1,)]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_name_that_somebody_else_has_is_not_taken(lake, sqlite_catalog, kind):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(lake)
    by_duckdb(sqlite_catalog, "ALTER TABLE t RENAME TO u", f"CREATE {kind} t AS SELECT 2 AS j")

    with pytest.raises(AlreadyExistsError, match=r"main\.t"):
        lake.restore("t", at=then)


def test_a_dropped_schema_without_tables_comes_back(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 5 AS i")
    then, uuid = newest(lake), lake.reads.schema("s")
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    assert lake.restore(at=then).objects == ("schema s comes back", "view s.v comes back")
    assert by_duckdb(sqlite_catalog, "FROM s.v") == [(5,)]
    assert lake.reads.schema("s").path == uuid.path
    assert lake.verify() == []


@pytest.mark.parametrize("drop", ["DROP MACRO s.m", "DROP SCHEMA s CASCADE"])
def test_a_macro_whose_snapshot_expires_meanwhile_is_a_conflict(lake, sqlite_catalog, drop):
    by_duckdb(
        sqlite_catalog, "CREATE SCHEMA s", "CREATE MACRO s.m(a) AS a + 1", "CREATE TABLE t AS SELECT 1 AS i"
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, drop)

    with Interrupted.connect(sqlite_catalog.sqlalchemy_url) as interrupted:
        interrupted.meanwhile = lambda: lake.expire_snapshots(keep_last=1)
        with pytest.raises(TransactionConflictError, match=f"expired snapshot {then}"):
            interrupted.restore(schema="s", at=then)

    assert by_duckdb(sqlite_catalog, "FROM t") == [(1,)]  # a macro without its text shuts the lake to DuckDB


SCHEMA = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.kept AS SELECT i FROM range(20) r(i)",
    "CREATE TABLE s.dropped AS SELECT i FROM range(30) r(i)",
    "CREATE TABLE s.a AS SELECT 1 AS i",
    "CREATE TABLE s.b AS SELECT 2 AS i",
    "CREATE VIEW s.v AS SELECT count(*) AS n FROM s.kept",
    "CREATE VIEW s.w AS SELECT 1 AS x",
    "COMMENT ON VIEW s.v IS 'a view'",
    "CREATE MACRO s.addone(a) AS a + 1",
    "CREATE MACRO s.many(n) AS TABLE SELECT i FROM range(n) r(i)",
    "CREATE TABLE outside AS SELECT 1 AS i",
)
SHOWN = (
    "SELECT (SELECT sum(i) FROM s.kept), (SELECT sum(i) FROM s.dropped), (FROM s.a), (FROM s.b), (FROM s.v), "
    "(FROM s.w), s.addone(4), (SELECT count(*) FROM s.many(5))"
)
NAMED = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 's' AND table_catalog = 'lake' "
    "UNION ALL SELECT comment FROM duckdb_views() WHERE comment IS NOT NULL ORDER BY 1"
)
OF_SCHEMA = (
    "DROP TABLE s.dropped",
    "DELETE FROM s.kept WHERE i > 3",
    "ALTER TABLE s.a RENAME TO c",
    "ALTER TABLE s.b RENAME TO a",
    "ALTER TABLE s.c RENAME TO b",
    "CREATE TABLE s.born AS SELECT 5 AS i",
    "DROP VIEW s.v",
    "ALTER VIEW s.w RENAME TO v",
    "CREATE VIEW s.new AS SELECT 1 AS i",
    "DROP MACRO s.addone",
    "CREATE MACRO s.addtwo(a) AS a + 2",
    "DROP MACRO TABLE s.many",
    "CREATE TABLE born_outside AS SELECT 1 AS i",
)


def test_what_a_schema_held_comes_back(lake, sqlite_catalog):
    for scope in ({"schema": "S"}, {}):
        assert_comes_back(lake, sqlite_catalog, scope)
        by_duckdb(
            sqlite_catalog, "DROP SCHEMA s CASCADE", "DROP TABLE outside", "DROP TABLE IF EXISTS born_outside"
        )


def assert_comes_back(lake, sqlite_catalog, scope):
    by_duckdb(sqlite_catalog, *SCHEMA)
    then = newest(lake)
    shown, named = by_duckdb(sqlite_catalog, SHOWN), by_duckdb(sqlite_catalog, NAMED)
    by_duckdb(sqlite_catalog, *OF_SCHEMA)

    result = lake.restore(at=then, **scope)

    assert by_duckdb(sqlite_catalog, SHOWN) == shown
    assert by_duckdb(sqlite_catalog, NAMED) == named
    assert ("born_outside" in [one.name for one in lake.tables()]) == bool(scope)
    assert "main.outside" not in [one.name for one in result.tables]
    assert lake.restore(at=then, **scope).committed is None
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, SHOWN) == shown
    by_duckdb(sqlite_catalog, "INSERT INTO s.kept SELECT i FROM range(100) r(i)")
    assert lake.verify() == []


def test_schemas_made_since_go_with_all_they_hold(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i")
    then = newest(lake)
    by_duckdb(sqlite_catalog, *SCHEMA)

    result = lake.restore(at=then)

    assert "schema s goes" in result.objects
    assert by_duckdb(
        sqlite_catalog, "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'"
    ) == [("main",)]
    assert [str(one) for one in lake.tables()] == ["main.t"]
    assert lake.verify() == []


def test_the_next_row_gets_an_id_of_its_own(lake, sqlite_catalog):
    with lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
        tx.append_arrow("t", pa.table({"i": pa.array(range(50), pa.int64())}))
    then = newest(lake)
    lake.append_arrow("t", pa.table({"i": pa.array(range(50, 80), pa.int64())}))
    alone(lake).drop_table("t")
    lake.restore("t", at=then)
    lake.append_arrow("t", pa.table({"i": pa.array([7], pa.int64())}))

    assert by_duckdb(sqlite_catalog, "SELECT max(rowid), count(DISTINCT rowid), count(*) FROM t") == [
        (80, 51, 51)
    ]
