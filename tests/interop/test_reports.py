"""What is said of a range of snapshots without reading a file, against the rows of the change feed."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.reports.watch import count_changes, touched_partitions
from airflow_provider_ducklake.lake.errors import TableNotFoundError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet, DropTable, Truncate
from tests.interop.lakes import alone, by_duckdb
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


# A commit says how many rows it removed: as many as DuckDB counts less, however they lay.


WALKS, STEPS = 2, 14


def _commit(lake, *changes):
    committed = lake.committer.commit_change_sets(
        (ChangeSet(lake.current_snapshot().id, changes),), CommitInfo("test")
    )
    return None if committed is None else committed.removed


@pytest.mark.parametrize("number", range(WALKS))
def test_a_drawn_history_of_inserts_deletes_and_overwrites_is_counted_exactly(catalog, request, number):
    draw = random.Random(f"{request.config.getoption('--seed')} {number}")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        for _ in range(STEPS):
            _step(lake, catalog, draw)


def _step(lake, catalog, draw):
    if ("main", "t") not in {(str(one.schema), one.name) for one in lake.tables()}:
        alone(lake).create_table("t", {"i": "int64", "k": "int64"}, partition_by=draw.choice([(), ("k",)]))
    table = lake.table_snapshot("t")
    low, size = draw.randrange(100), draw.choice([1, 4, 60])
    match draw.choice(
        ["duck", "duck", "arrow", "arrow", "drop", "truncate", "where", "where", "rows", "rows"]
    ):
        case "duck":
            statement = draw.choice(
                [
                    f"INSERT INTO t SELECT i, i % 3 FROM range({low}, {low + size}) r(i)",
                    f"DELETE FROM t WHERE i BETWEEN {low} AND {low + size}",
                    f"UPDATE t SET k = k + 1 WHERE i = {low}",
                    "CALL ducklake_flush_inlined_data('lake')",
                ]
            )
            by_duckdb(catalog, statement)
        case "arrow":
            with lake.transaction() as tx:
                tx.append_arrow("t", pa.table({"i": range(low, low + size), "k": [draw.randrange(3)] * size}))
        case "truncate":
            _counted(lake, catalog, lambda: _commit(lake, Truncate(table.table_id, table.name)))
        case "drop":
            dropped = DropTable(table.table_id, table.name, is_replaced=True)
            _counted(lake, catalog, lambda: _commit(lake, dropped))
        case "where":
            where = f"i BETWEEN {low} AND {low + size}"
            _counted(lake, catalog, lambda: _commit(lake, *lake.writes.replacing_where(table, where)))
        case "rows":
            _counted(lake, catalog, lambda: _deleted(lake, f"i >= {low} AND i < {low + size}"))


def _deleted(lake, condition):
    with lake.transaction() as tx:
        tx.delete_rows("t", condition)
    return None if tx.committed is None else tx.committed.removed


def _counted(lake, catalog, remove):
    table_id, before = lake.table_snapshot("t").table_id, _count(catalog)
    removed = remove()
    assert (removed or {}).get(table_id, 0) == before - _count(catalog)


def _count(catalog):
    with open_lake(catalog) as duck:
        tables = {name for (name,) in duck.sql("SELECT table_name FROM ducklake_table_info('lake')")}
        return duck.sql("SELECT count(*) FROM t")[0][0] if "t" in tables else 0


# Who observes a lake is told of the tables that are read, and of those that the commit's report names.


ROWS = pa.table({"i": pa.array([1, 2], pa.int64())})


@dataclass
class Notes:
    """An observer that writes down what it is told."""

    read: list[str] = field(default_factory=list)
    written: list[list[str]] = field(default_factory=list)

    def has_read(self, table: QualifiedName) -> None:
        self.read.append(str(table))

    def has_written(self, tables: Sequence[QualifiedName]) -> None:
        self.written.append([str(one) for one in tables])


@pytest.fixture
def observed(catalog):
    """A lake with two rows in a file of Orders and two inlined ones in other, and its observer."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        for name, limit in (("Orders", 0), ("other", 10)):
            with lake.transaction() as tx:
                tx.create_table(name, {"i": "int64"})
                tx.set_option(name, "data_inlining_row_limit", limit)
                tx.append_arrow(name, ROWS)
        notes = Notes()
        lake.opened.observer = notes
        yield lake, notes


READS: dict[str, Callable[[Lake], object]] = {
    "read_arrow": lambda lake: lake.read_arrow("orders"),
    "read_arrow of an old snapshot": lambda lake: lake.read_arrow("ORDERS", at=1, filter="i > 1"),
    "scan": lambda lake: lake.scan("orders", columns=["i"]),
    "row_count": lambda lake: lake.row_count("orders"),
    "column_bounds": lambda lake: lake.column_bounds("orders", "i"),
    "changes": lambda lake: lake.changes("orders", 1, 2),
    "changes_after": lambda lake: lake.changes_after("orders", 1),
    "insertions": lambda lake: lake.insertions("orders", 1, 2),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_read_is_told_as_the_catalog_spells_the_table(observed, read):
    lake, notes = observed

    read(lake)

    assert (notes.read, notes.written) == (["main.Orders"], [])


def test_what_looks_at_the_catalog_alone_reads_no_table(observed):
    lake, notes = observed

    lake.tables()
    lake.table_info("orders")
    lake.files("orders")
    lake.table_snapshot("orders")
    lake.table_health()
    lake.reads.range_report("orders", 0, ["data"])
    lake.reads.commit_reports(1)
    with pytest.raises(TableNotFoundError):
        lake.read_arrow("absent")

    assert notes == Notes()


def _delete(tx: LakeTransaction) -> None:
    assert tx.delete_rows("orders", "i = 1") == 1


def _created_and_filled(tx: LakeTransaction) -> None:
    tx.create_schema("s")
    tx.create_table("s.t", {"i": "int64"})
    tx.append_arrow("s.t", ROWS)


def _several(tx: LakeTransaction) -> None:
    tx.append_arrow("orders", ROWS)
    tx.append_arrow("other", ROWS)
    tx.add_column("other", "x", "varchar")


def _dropped(tx: LakeTransaction) -> None:
    tx.drop_table("other")
    tx.append_arrow("orders", ROWS)


def _replaced(tx: LakeTransaction) -> None:
    tx.create_table("other", {"j": "int64"}, or_replace=True)


WRITES: dict[str, Callable[[LakeTransaction], object]] = {
    "append": lambda tx: tx.append_arrow("orders", ROWS),
    "append inlined rows": lambda tx: tx.append_arrow("other", ROWS),
    "delete": _delete,
    "truncate": lambda tx: tx.truncate("orders"),
    "create": _created_and_filled,
    "create empty": lambda tx: tx.create_table("t", {"i": "int64"}),
    "rename": lambda tx: tx.rename_table("orders", "bills"),
    "alter": lambda tx: tx.rename_column("orders", "i", "j"),
    "partition": lambda tx: tx.set_partitioned_by("orders", ["i"]),
    "comment": lambda tx: tx.comment_on_table("orders", "mine"),
    "several": _several,
    "drop": _dropped,
    "replace": _replaced,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_commit_is_told_as_its_report_names_the_tables(observed, write):
    lake, notes = observed

    with lake.transaction() as tx:
        write(tx)
        assert notes.written == []
    committed = tx.committed

    assert committed is not None
    (told,) = notes.written
    assert sorted(told) == sorted(one.table for one in lake.reads.commit_reports(committed.id))


def test_what_changes_no_table_is_not_told(observed, catalog):
    lake, notes = observed

    lake.set_option("data_inlining_row_limit", 5)
    alone(lake).create_schema("empty")
    alone(lake).drop_table("orders")
    alone(lake).set_option("other", "auto_compact", value=False)
    with pytest.raises(TableNotFoundError), lake.transaction() as tx:
        tx.append_arrow("absent", ROWS)
    assert [one.row_count for one in lake.flush_inlined_data("other")] == [2]

    assert notes == Notes()
    assert by_duckdb(catalog, "SELECT count(*) FROM other") == [(2,)]


def test_a_flush_of_deletes_changes_no_table(sqlite_catalog):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS FROM range(100) r(i)", "DELETE FROM t WHERE i < 3")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        deleted = lake.current_snapshot()
        (flushed,) = lake.flush_inlined_data()

        assert flushed.delete_count == 3
        (report,) = lake.reads.commit_reports(deleted.id)
        assert (report.changes, report.rows_deleted) == (("delete",), 3)
        assert flushed.snapshot_id is not None
        assert list(lake.reads.commit_reports(flushed.snapshot_id)) == []


def test_a_commit_that_was_made_before_is_told_again(observed):
    lake, notes = observed

    snapshots = [lake.append_arrow("orders", ROWS, commit_key="today") for _ in range(2)]

    assert snapshots[0] is not None
    assert [one and (one.id, one.is_earlier) for one in snapshots] == [
        (snapshots[0].id, False),
        (snapshots[0].id, True),
    ]
    assert notes.written == [["main.Orders"], ["main.Orders"]]
    assert lake.row_count("orders") == 4


def test_a_restore_is_told_as_its_report_names_the_tables(observed):
    lake, notes = observed
    lake.append_arrow("orders", ROWS)
    lake.append_arrow("other", ROWS)
    notes.written.clear()

    result = lake.restore(at=2, table="orders")

    assert result.committed is not None
    assert notes.written == [["main.Orders"]]
    assert lake.row_count("orders") == 2
