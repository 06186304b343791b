"""Tables of dropped schemas come back as new ones: rows, row ids, columns, keys, comments and options."""

import random
from functools import partial

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    AlreadyExistsError,
    TransactionConflictError,
    UnsupportedFeatureError,
)
from tests.interop.given_files import write_given
from tests.interop.lakes import alone, by_duckdb
from tests.interop.restoring import Interrupted, assert_read_alike, forget_all_but_the_newest, newest
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

TABLE = (
    "CREATE SCHEMA s",
    "CALL lake.set_option('parquet_compression', 'gzip', schema => 's')",
    "CREATE TABLE s.t (i INT NOT NULL, k VARCHAR DEFAULT 'none', st STRUCT(a INT, b VARCHAR), n INT, x INT)",
    "CALL lake.set_option('target_file_size', '1MB', schema => 's', table_name => 't')",
    "INSERT INTO s.t SELECT i, 'k' || i % 2, {'a': i, 'b': 'b'}, i, 77 FROM range(40) r(i)",
    "ALTER TABLE s.t SET PARTITIONED BY (bucket(3, i))",
    "INSERT INTO s.t SELECT i, 'k' || i % 2, {'a': i, 'b': 'b'}, i, 77 FROM range(40, 60) r(i)",
    "ALTER TABLE s.t DROP COLUMN x",
    "ALTER TABLE s.t ALTER n TYPE BIGINT",
    "ALTER TABLE s.t SET PARTITIONED BY (k)",
    "ALTER TABLE s.t SET SORTED BY (i DESC)",
    "ALTER TABLE s.t ADD COLUMN late INT DEFAULT 7",
    "COMMENT ON TABLE s.t IS 'mine'",
    "COMMENT ON COLUMN s.t.i IS 'the id'",
    "INSERT INTO s.t (i, k, n) SELECT i, 'k' || i % 3, 5000000000 FROM range(60, 90) r(i)",
    "INSERT INTO s.t (i, k) VALUES (100, 'k0'), (101, 'new'), (102, NULL), (103, 'k1')",
    "UPDATE s.t SET late = 8 WHERE i IN (3, 61, 101)",
    "DELETE FROM s.t WHERE i IN (4, 45, 70, 103)",
    "DELETE FROM s.t WHERE i BETWEEN 20 AND 33",
)
ROWS = "SELECT rowid, * FROM s.t ORDER BY rowid"
COMMENTS = (
    "SELECT comment FROM duckdb_tables() WHERE database_name = 'lake' UNION ALL "
    "SELECT comment FROM duckdb_columns() WHERE database_name = 'lake' AND comment IS NOT NULL"
)
OPTIONS = (
    "SELECT key, value, scope FROM __ducklake_metadata_lake.ducklake_metadata WHERE "
    "(scope = 'table' AND scope_id = (SELECT max(table_id) FROM __ducklake_metadata_lake.ducklake_table)) OR "
    "(scope = 'schema' AND scope_id = (SELECT max(schema_id) FROM __ducklake_metadata_lake.ducklake_schema)) "
    "ORDER BY 1"
)
SINCE = {
    "gone": ["DROP SCHEMA s CASCADE"],
    "created again": [
        "DROP SCHEMA s CASCADE",
        "CREATE SCHEMA s",
        "CREATE TABLE s.t AS SELECT 1 AS other",
        "CREATE TABLE s.born AS SELECT 2 AS i",
    ],
}

OF_TABLE = ("target_file_size", "1000000", "table")
INHERITED = {"gone": [("parquet_compression", "gzip", "schema"), OF_TABLE], "created again": [OF_TABLE]}


def definition(lake, table, at=None):
    """Return all that a table is besides its rows and its id."""
    found = lake.table_snapshot(table, at=at)
    keys = None if found.partition_spec is None else found.partition_spec.fields
    sort_by = None if found.sort_spec is None else found.sort_spec.fields
    return found.name, found.schema, keys, sort_by, found.options.get("target_file_size")


@pytest.fixture
def lake(sqlite_catalog):
    with open_lake(sqlite_catalog):
        pass
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as found:
        yield found


CASES = [(scope, since) for scope in ({"table": "s.t"}, {"schema": "s"}, {}) for since in SINCE]
CASES_IN_CI = 1


def test_tables_come_back_whole(new_catalog, seed, size):
    draw = random.Random(f"dropped schemas {seed}")
    for scope, since in draw.sample(CASES, CASES_IN_CI if size == "ci" else len(CASES)):
        catalog = new_catalog("sqlite")
        by_duckdb(catalog, *TABLE)
        try:
            with Lake.connect(catalog.sqlalchemy_url) as lake:
                assert_comes_back_whole(lake, catalog, scope, since)
        except Exception as error:
            raise AssertionError(f"--seed {seed}: {scope}, {since}") from error


def assert_comes_back_whole(lake, catalog, scope, since):
    then = newest(lake)
    table, rows, comments = definition(lake, "s.t"), by_duckdb(catalog, ROWS), by_duckdb(catalog, COMMENTS)
    old_id = lake.table_snapshot("s.t").table_id
    by_duckdb(catalog, *SINCE[since])

    plan = lake.restore(at=then, dry_run=True, **scope)
    restored = lake.restore(at=then, **scope)

    assert restored.tables == plan.tables
    (done,) = [one for one in restored.tables if one.action == "recreated"]
    assert (done.name, done.rows_returned) == ("s.t", len(rows))
    assert done.definition[0] == "s.t comes back as a new table"
    assert definition(lake, "s.t") == table
    assert lake.table_snapshot("s.t").table_id != old_id
    assert by_duckdb(catalog, ROWS) == rows
    assert set(comments) <= set(by_duckdb(catalog, COMMENTS))
    assert by_duckdb(catalog, OPTIONS) == INHERITED[since]
    assert lake.verify() == []
    assert by_duckdb(catalog, f"SELECT rowid, * FROM s.t AT (VERSION => {then}) ORDER BY rowid") == rows
    assert lake.restore(at=then, **scope).committed is None
    assert_goes_on(lake, catalog, then, rows)


def assert_goes_on(lake, catalog, then, rows):
    """Let the reference work on the table and clean up after it."""
    by_duckdb(
        catalog,
        "INSERT INTO s.t (i) VALUES (500)",
        "INSERT INTO s.t (i, k) SELECT i, 'k4' FROM range(600, 630) r(i)",
        "UPDATE s.t SET late = 0 WHERE i IN (1, 61, 500, 601)",
        "DELETE FROM s.t WHERE i = 2",
        "ALTER TABLE s.t ADD COLUMN fresh INT",
        "INSERT INTO s.t (i, fresh) VALUES (501, 1)",
    )
    counts = by_duckdb(catalog, "SELECT count(*), sum(i), sum(fresh), count(DISTINCT rowid) FROM s.t")
    expected = sum(row[1] for row in rows) - 2 + 1001 + sum(range(600, 630))
    assert counts == [(len(rows) + 31, expected, 1, len(rows) + 31)]
    by_duckdb(
        catalog,
        f"CALL ducklake_expire_snapshots('lake', versions => {list(range(1, then + 3))})",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    )
    assert lake.verify() == []
    assert_read_alike(lake, catalog)
    left = by_duckdb(catalog, ROWS)
    by_duckdb(
        catalog, "CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')"
    )
    forget_all_but_the_newest(catalog)
    assert by_duckdb(catalog, ROWS) == left
    assert lake.verify() == []
    assert_read_alike(lake, catalog)


def test_added_files_keep_their_columns_by_a_mapping_of_the_new_table(lake, sqlite_catalog, tmp_path):
    given = tmp_path / "given"
    write_given(given)
    add = f"CALL ducklake_add_data_files('lake', 't', '{given}/%s', schema => 's', allow_missing => true%s)"
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (i BIGINT, s VARCHAR, region VARCHAR)",
        add % ("groups.parquet", ""),
        add % ("narrow.parquet", ""),
        add % ("hive/*/*.parquet", ", hive_partitioning => true"),
        "ALTER TABLE s.t RENAME i TO key",
        "DELETE FROM s.t WHERE key = 11",
    )
    then, rows = newest(lake), by_duckdb(sqlite_catalog, ROWS)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    (done,) = lake.restore(at=then).tables

    assert (done.files_copied, done.files_rewritten) == (3, 1)
    assert by_duckdb(sqlite_catalog, ROWS) == rows
    assert lake.verify() == []
    by_duckdb(sqlite_catalog, "INSERT INTO s.t VALUES (2000, 'x', 'y')", "DELETE FROM s.t WHERE key = 10")
    assert_read_alike(lake, sqlite_catalog)
    left = by_duckdb(sqlite_catalog, ROWS)
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, ROWS) == left
    assert lake.verify() == []
    assert_read_alike(lake, sqlite_catalog)


def test_what_was_made_anew_is_made_anew_again_once_it_has_changed(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", "CREATE TABLE s.t AS FROM range(30) r(i)")
    then, rows = newest(lake), by_duckdb(sqlite_catalog, ROWS)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    for statement in ("DELETE FROM s.t WHERE i < 3", "ALTER TABLE s.t RENAME TO u", "DROP TABLE s.t"):
        lake.restore("s.t", at=then)
        assert lake.restore("s.t", at=then).committed is None
        by_duckdb(sqlite_catalog, statement)

        assert lake.restore(schema="s", at=then).committed is not None
        assert lake.restore(at=then).committed is None

        assert by_duckdb(sqlite_catalog, ROWS) == rows
        assert [str(one) for one in lake.tables()] == ["s.t"]
    assert lake.verify() == []
    between = newest(lake)
    by_duckdb(sqlite_catalog, "DELETE FROM s.t")
    lake.restore("s.t", at=between)
    assert by_duckdb(sqlite_catalog, ROWS) == rows
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, ROWS) == rows
    assert lake.verify() == []


def test_an_empty_table_and_one_without_its_rows_come_back(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.never (i INT DEFAULT 4)",
        "CREATE TABLE s.t AS FROM range(30) r(i)",
        "DELETE FROM s.t",
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    lake.restore(at=then)

    shown = by_duckdb(
        sqlite_catalog,
        "INSERT INTO s.never DEFAULT VALUES",
        "INSERT INTO s.t VALUES (7)",
        "SELECT * FROM s.never, s.t",
    )
    assert shown == [(4, 7)]
    assert lake.verify() == []
    assert_read_alike(lake, sqlite_catalog)


def test_no_column_gets_the_id_of_one_that_was_dropped_before(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t AS SELECT i, 77 AS gone FROM range(30) r(i)",
        "ALTER TABLE s.t DROP COLUMN gone",
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    lake.restore("s.t", at=then)
    assert lake.verify() == []
    again = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    lake.restore("s.t", at=again)

    shown = by_duckdb(sqlite_catalog, "ALTER TABLE s.t ADD COLUMN fresh INT", "SELECT count(fresh) FROM s.t")

    assert shown == [(0,)]
    assert [one.id for one in lake.table_snapshot("s.t").schema.columns] == [1, 3]
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, "SELECT count(fresh), count(*) FROM s.t") == [(0, 30)]
    assert lake.verify() == []


def test_bounds_of_a_narrower_float_are_not_taken_for_those_of_the_wider(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t AS SELECT (i / 10)::FLOAT AS f, i::INT AS i FROM range(1, 30) r(i)",
        "ALTER TABLE s.t ALTER f TYPE DOUBLE",
        "ALTER TABLE s.t ALTER i TYPE BIGINT",
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    lake.restore("s.t", at=then)

    rounded = 2.9000000953674316  # the reference reads the file by 2.9 as a FLOAT, and does not find it
    assert lake.read_arrow("s.t", filter="f > 2.9")["f"].to_pylist() == [rounded]
    assert lake.column_bounds("s.t", "f") is None
    bounds = lake.column_bounds("s.t", "i")
    assert (bounds.min.as_py(), bounds.max.as_py()) == (1, 29)
    assert_read_alike(lake, sqlite_catalog)


def test_the_change_feed_of_a_new_table_begins_with_its_restore(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t AS FROM range(30) r(i)",
        "DELETE FROM s.t WHERE i < 10",
        "INSERT INTO s.t VALUES (50), (51)",
    )
    then, rows = newest(lake), by_duckdb(sqlite_catalog, ROWS)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")

    restored = lake.restore("s.t", at=then).committed.id

    expected = [(restored, row_id, "insert", i) for row_id, i in rows]
    ours = [tuple(row.values()) for row in lake.changes("s.t", restored, restored).read_arrow().to_pylist()]
    theirs = by_duckdb(
        sqlite_catalog,
        "SELECT snapshot_id, rowid, change_type, i FROM "
        f"ducklake_table_changes('lake', 's', 't', {restored}, {restored})",
    )
    assert sorted(ours) == expected
    assert sorted(theirs) == expected


def test_views_and_macros_of_a_dropped_schema_outlive_it(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t AS FROM range(30) r(i)",
        "CREATE VIEW s.v AS SELECT count(*) AS n FROM s.t",
        "COMMENT ON VIEW s.v IS 'a view'",
        "CREATE MACRO s.addone(a) AS a + 1",
        "CREATE MACRO s.many(n) AS TABLE SELECT i FROM range(n) r(i)",
    )
    then = newest(lake)
    shown = "SELECT (FROM s.v), s.addone(4), (SELECT count(*) FROM s.many(5)), comment FROM duckdb_views() "
    shown += "WHERE view_name = 'v'"
    for again in ([], ["CREATE SCHEMA s", "CREATE VIEW s.t AS SELECT 1 AS i"]):
        by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE", *again)

        lake.restore(at=then)

        assert by_duckdb(sqlite_catalog, shown) == [(30, 5, 5, "a view")]
        assert lake.restore(at=then).committed is None
        assert lake.verify() == []
    forget_all_but_the_newest(sqlite_catalog)
    assert by_duckdb(sqlite_catalog, shown) == [(30, 5, 5, "a view")]
    assert lake.verify() == []


def test_a_schema_gets_its_own_spelling_back(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, 'CREATE SCHEMA "S"', 'CREATE TABLE "S".t AS FROM range(30) r(i)')
    then = newest(lake)
    by_duckdb(sqlite_catalog, 'DROP SCHEMA "S" CASCADE', "CREATE SCHEMA s", "CREATE TABLE s.u (i INT)")

    lake.restore("S.t", at=then)
    assert [str(one) for one in lake.tables()] == ["s.t", "s.u"]
    assert lake.restore("S.t", at=then).committed is None

    lake.restore(at=then)
    assert [one.parts for one in lake.tables()] == [("S", "t")]
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM s.t") == [(30,)]
    assert lake.restore(at=then).committed is None
    assert lake.verify() == []


def test_a_name_that_a_view_has_by_now_is_not_taken(lake, sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", "CREATE TABLE s.t AS FROM range(3) r(i)")
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE", "CREATE SCHEMA s", "CREATE VIEW s.t AS SELECT 1 AS i")
    with pytest.raises(AlreadyExistsError, match=r"s\.t"):
        lake.restore("s.t", at=then)


MEANWHILE = ("CREATE SCHEMA s", "CREATE TABLE s.t (j INT)", "DROP SCHEMA s CASCADE")


def test_a_schema_or_table_of_that_name_meanwhile_is_a_conflict(lake, sqlite_catalog, tmp_path):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", "CREATE TABLE s.t AS FROM range(30) r(i)")
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    files = sorted(tmp_path.rglob("*.parquet"))
    with Interrupted.connect(sqlite_catalog.sqlalchemy_url) as interrupted:
        for statement in MEANWHILE:
            interrupted.meanwhile = partial(by_duckdb, sqlite_catalog, statement)
            with pytest.raises(TransactionConflictError, match="s"):
                interrupted.restore("s.t", at=then)
    assert sorted(tmp_path.rglob("*.parquet")) == files
    assert lake.restore("s.t", at=then).committed is not None


def test_types_that_are_not_written_are_refused(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (i TIME_NS)",
        "INSERT INTO s.t VALUES ('12:34:56.123456789')",
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    with pytest.raises(UnsupportedFeatureError, match="the inlined rows of a table whose schema"):
        lake.restore(at=then)
    assert newest(lake) == then + 1


def test_inlined_rows_by_a_key_of_which_duckdb_alone_makes_partitions_are_refused(lake, sqlite_catalog):
    by_duckdb(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (i INTEGER, x STRUCT(a INTEGER))",
        "ALTER TABLE s.t SET PARTITIONED BY (x)",
        "INSERT INTO s.t VALUES (1, {'a': 1})",
    )
    then = newest(lake)
    by_duckdb(sqlite_catalog, "DROP SCHEMA s CASCADE")
    with pytest.raises(UnsupportedFeatureError, match=rf"partition key x has type .* at snapshot {then}"):
        lake.restore(at=then)
    assert newest(lake) == then + 1


@pytest.mark.every_catalog
def test_a_dropped_schema_comes_back_on_every_catalog(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    with open_lake(catalog):
        pass
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
            tx.create_table("s.t", {"i": "int64", "k": "varchar"}, ["k"])
            tx.append_arrow("s.t", pa.table({"i": pa.array(range(40), pa.int64()), "k": ["a/b", "c"] * 20}))
        lake.append_arrow("s.t", pa.table({"i": pa.array([100], pa.int64()), "k": ["a/b"]}))
        lake.set_option("target_file_size", "1000000", table="s.t")
        then = newest(lake)
        alone(lake).drop_schema("s", cascade=True)

        (table,) = lake.restore(at=then).tables

        assert (table.action, table.rows_returned) == ("recreated", 41)
        assert lake.table_snapshot("s.t").options.get("target_file_size") == 1_000_000
        assert lake.restore(at=then).committed is None
        lake.expire_snapshots(keep_last=1)
        assert lake.verify() == []
        assert sorted(lake.read_arrow("s.t")["i"].to_pylist()) == [*range(40), 100]
    if not catalog.is_for_the_reference:
        return
    assert by_duckdb(catalog, "SELECT count(*), max(rowid), sum(i) FROM s.t WHERE k = 'a/b'") == [
        (21, 40, sum(range(0, 40, 2)) + 100)
    ]
