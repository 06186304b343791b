"""Who observes a lake is told of the tables that are read, and of those that the commit's report names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TableNotFoundError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from tests.interop.lakes import alone, by_duckdb

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
