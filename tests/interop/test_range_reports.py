"""What is said of a range of snapshots without reading a file, against the rows of the change feed."""

import itertools

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.reports.watch import count_changes, touched_partitions
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake

MANY = "INSERT INTO t SELECT i, DATE '2026-01-01' + CAST(i % 90 AS INT), i FROM range({}, {}) r(i)"
HISTORY = [
    "CREATE TABLE t (id BIGINT, day DATE, amount BIGINT)",
    MANY.format(0, 40),
    "INSERT INTO t VALUES (1000, DATE '2026-02-01', 1), (1001, NULL, 1)",
    "DELETE FROM t WHERE id = 3",
    "DELETE FROM t WHERE id < 25",
    "UPDATE t SET amount = 0 WHERE id IN (30, 1000)",
    "ALTER TABLE t SET PARTITIONED BY (year(day), month(day))",
    MANY.format(100, 140),
    "INSERT INTO t VALUES (2000, DATE '2026-02-03', 1), (2001, NULL, 1)",
    "DELETE FROM t WHERE id IN (101, 2000)",
    MANY.format(200, 240),
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    "DELETE FROM t WHERE id BETWEEN 105 AND 135",
    "DELETE FROM t WHERE id BETWEEN 136 AND 139",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "UPDATE t SET amount = amount + 1 WHERE day < DATE '2026-02-01'",
    "INSERT INTO t VALUES (3000, DATE '2027-02-03', 1)",
    "DELETE FROM t",
    MANY.format(300, 302),
]


def partition_of(day) -> str:
    """Return the partition of a day."""
    return f"month={'__HIVE_DEFAULT_PARTITION__' if day is None else f'{day:%Y-%m}'}"


def test_counts_and_partitions_are_those_of_the_change_feed(sqlite_catalog):
    """Of every range, also of those whose files were merged since: what is said is right."""
    by_duckdb(sqlite_catalog, *HISTORY)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        check_all_ranges(lake)


def check_all_ranges(lake: Lake) -> None:
    newest, ranges, said_rows, said_partitions = lake.current_snapshot().id, 0, 0, 0
    for start, end in itertools.combinations_with_replacement(range(2, newest + 1), 2):
        feed = lake.changes("t", start, end)
        counts, rows = count_changes(feed.plan), feed.read_arrow()
        kinds = rows["change_type"].to_pylist()
        deleted = sum(kind in ("delete", "update_preimage") for kind in kinds)
        ranges += 1
        for said, right in ((counts.added, len(kinds) - deleted), (counts.deleted, deleted)):
            assert said in (None, right), (start, end)
            said_rows += said is not None
        with lake.opened.reading() as connection:
            partitions = touched_partitions(connection, lake.opened.catalog, feed.plan)
        if partitions is not None:
            said_partitions += 1
            assert set(partitions) >= {partition_of(day) for day in rows["day"].to_pylist()}, (start, end)
    assert ranges > 150
    assert said_rows > ranges / 2
    assert said_partitions > ranges / 4


def test_a_watcher_that_polls_after_each_commit_is_told_everything(sqlite_catalog):
    """Each range is counted, but for deletes of a file whose deletes were flushed; upkeep is not reported."""
    quiet, uncounted, before = [], [], 1
    for sql in HISTORY:
        by_duckdb(sqlite_catalog, sql)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            report, head = lake.reads.range_report("t", before, ("data",)), lake.current_snapshot().id
            if report is None:
                quiet.append(sql.split()[0])
            else:
                rows = lake.changes("t", before + 1, head).read_arrow()
                kinds = rows["change_type"].to_pylist()
                deleted = sum(kind in ("delete", "update_preimage") for kind in kinds)
                assert (report.from_snapshot, report.to_snapshot, report.is_complete) == (before, head, True)
                assert report.rows_added == len(kinds) - deleted, sql
                if report.rows_deleted is None:
                    uncounted.append(sql)
                else:
                    assert report.rows_deleted == deleted, sql
                is_partitioned = "ALTER" in {one.split()[0] for one in HISTORY[: HISTORY.index(sql)]}
                assert (report.partitions or sql) if is_partitioned else report.partitions == (), sql
        before = head
    assert quiet == ["CREATE", "ALTER", "CALL", "CALL", "CALL"]
    assert uncounted == ["DELETE FROM t WHERE id BETWEEN 105 AND 135"]


def test_rows_of_the_catalog_by_a_key_of_which_duckdb_alone_makes_partitions_are_counted(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id INTEGER, x STRUCT(a INTEGER))")
        reference.sql("ALTER TABLE t SET PARTITIONED BY (x)")
        reference.sql("INSERT INTO t VALUES (1, {'a': 1})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.files("t") == []
        report = lake.reads.range_report("t", 0, ("data",))
        assert (report.rows_added, report.partitions) == (1, None)
