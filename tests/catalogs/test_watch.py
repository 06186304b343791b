"""Which of the reference's changes wake a watcher of a table."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.watch import wanted_words
from tests.reference.duckdb_lake import open_lake

INLINED_DELETE = "DELETE FROM t WHERE i = 1"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
# What happens before anybody watches, what happens then, and what the watcher is told.
CASES = {
    "insert": ([], ["INSERT INTO t FROM range(20)"], {"insert"}),
    "inlined insert": ([], ["INSERT INTO t VALUES (1)"], {"insert"}),
    "delete": ([], ["DELETE FROM t WHERE i < 20"], {"delete"}),
    "second delete, which replaces the file": (
        ["DELETE FROM t WHERE i < 20"],
        ["DELETE FROM t WHERE i < 35"],
        {"delete"},
    ),
    "delete of everything": ([], ["DELETE FROM t"], {"delete"}),
    "delete, cleaned away since": (
        [],
        [
            "DELETE FROM t",
            "INSERT INTO other VALUES (1)",
            "CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])",
        ],
        {"delete"},
    ),
    "inlined delete": ([], [INLINED_DELETE], {"delete"}),
    "inlined delete of inlined rows": (
        ["INSERT INTO t VALUES (100)"],
        ["DELETE FROM t WHERE i = 100"],
        {"delete"},
    ),
    "truncate": ([], ["TRUNCATE t"], {"delete"}),
    "update": ([], ["UPDATE t SET i = i + 100 WHERE i < 20"], {"insert", "delete"}),
    "inlined update": ([], ["UPDATE t SET i = 100 WHERE i = 1"], {"insert", "delete"}),
    "merge": (["INSERT INTO t FROM range(20)"], ["CALL ducklake_merge_adjacent_files('lake')"], set()),
    "rewrite": (
        ["DELETE FROM t WHERE i < 20"],
        ["CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"],
        set(),
    ),
    "flush of inserts": (["INSERT INTO t VALUES (1)"], [FLUSH], set()),
    "flush of deletes": ([INLINED_DELETE], [FLUSH], set()),
    "flush of deletes from a file with deletes": (
        ["DELETE FROM t WHERE i BETWEEN 20 AND 40", INLINED_DELETE],
        [FLUSH],
        set(),
    ),
    "flush of deletes and inserts": ([INLINED_DELETE, "INSERT INTO t VALUES (1)"], [FLUSH], set()),
    "flush of an ended inlined row": (
        ["INSERT INTO t VALUES (100), (101)", "DELETE FROM t WHERE i = 100"],
        [FLUSH],
        set(),
    ),
    "flush of a single delete, and a rewrite": (
        [INLINED_DELETE],
        [FLUSH, "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"],
        set(),
    ),
    "flush, then a delete": ([INLINED_DELETE], [FLUSH, "DELETE FROM t WHERE i < 20"], {"delete"}),
    "alter": ([], ["ALTER TABLE t ADD COLUMN j INTEGER"], {"schema"}),
    "comment": ([], ["COMMENT ON TABLE t IS 'x'"], {"schema"}),
    "drop and create": ([], ["DROP TABLE t", "CREATE TABLE t (i INTEGER)"], {"schema"}),
    "create with rows": ([], ["CREATE OR REPLACE TABLE t AS SELECT 1 AS i"], {"schema", "insert"}),
    "create as a change of name": ([], ["DROP TABLE t", "ALTER TABLE other RENAME TO t"], {"schema"}),
    "another table": ([], ["INSERT INTO other VALUES (1)", "DELETE FROM other"], set()),
    "drop": ([], ["DROP TABLE t"], set()),
    "nothing": ([], [], set()),
    "options": ([], ["CALL lake.set_option('parquet_compression', 'zstd')"], set()),
}


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES.keys())
def test_a_watcher_is_told_what_the_reference_did(catalog, before, after, expected):
    with open_lake(catalog) as reference, Lake.connect(catalog.sqlalchemy_url) as lake:
        for statement in (
            "CREATE TABLE other (i INTEGER)",
            "CREATE TABLE t (i INTEGER)",
            "INSERT INTO t FROM range(50)",
            *before,
        ):
            reference.sql(statement)
        since = lake.current_snapshot().id
        for statement in after:
            reference.sql(statement)

        found = lake.table_changes("main.T", since, ["data", "schema"])
        data_only = lake.table_changes("t", since, ["data"])

        assert set(found.changes if found else ()) == expected
        assert set(data_only.changes if data_only else ()) == expected - {"schema"}
        if found:
            bounds = (since, lake.current_snapshot().id)
            assert (found.table, found.from_snapshot, found.to_snapshot) == ("main.t", *bounds)


def test_a_table_that_does_not_exist_yet_is_silent_and_tells_of_its_creation_later(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.table_changes("t", 0, ["data", "schema"]) is None
        assert lake.table_changes("no_schema.t", 0, ["data"]) is None

        reference.sql("CREATE TABLE t (i INTEGER)")
        reference.sql("INSERT INTO t VALUES (1)")

        assert lake.table_changes("t", 0, ["data", "schema"]).changes == ("insert", "schema")


@pytest.mark.parametrize("words", [[], ["inserts"], ["insert", ""], "insert", ["INSERT"]])
def test_unknown_words_are_refused(words):
    with pytest.raises(InvalidInputError, match="insert, delete, data, schema"):
        wanted_words(words)
