"""The public calls of a lake, as people and operators make them, each on the table that every model has."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, Consumer
from airflow_provider_ducklake.lake.writes.arguments import GivenRows
from airflow_provider_ducklake.lake.writes.row_changes import Delete, Merge, Update
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.scale.models import FIRST_ROW_AT, TABLE, Model

FOUND = "id = -1"  # only the newest data file can hold the row


@dataclass(frozen=True, slots=True)
class Target:
    """An open lake of a model, and what a call is made with the first, second, … time."""

    lake: Lake
    model: Model
    middle: int  # a snapshot half-way, at which the table exists
    before: int  # the snapshot before the newest
    turn: int = 0
    many: int = 100  # files of one append

    @classmethod
    def of(cls, lake: Lake, model: Model) -> Self:
        """Return the target of a model as it was made."""
        head = lake.current_snapshot().id
        return cls(lake, model, middle=max(head // 2, FIRST_ROW_AT), before=head - 1)

    @property
    def head(self) -> int:
        return self.lake.current_snapshot().id

    @property
    def row(self) -> pa.Table:
        return self.model.rows(-1000 - self.turn)


@dataclass(frozen=True, slots=True)
class Call:
    """A call, by the name that the documentation shows."""

    name: str
    run: Callable[[Target], object]


def _append(at: Target, **options: object) -> None:
    at.lake.append_arrow(TABLE, at.row, **options)


def _append_keyed(at: Target) -> None:
    _append(at, commit_key=CommitKey(("scale", str(at.turn), str(at.head))))


def _append_many(at: Target) -> None:
    with at.lake.transaction() as tx:
        for _ in range(at.many):
            tx.append_arrow(TABLE, at.row)


def _delete(at: Target) -> None:
    with at.lake.transaction() as tx:
        assert tx.delete_rows(TABLE, f"id = {-1 - at.turn}") == 1


def _add_column(at: Target) -> None:
    with at.lake.transaction() as tx:
        tx.add_column(TABLE, f"added_{at.head}", "int64")


def _comment(at: Target) -> None:
    with at.lake.transaction() as tx:
        tx.comment_on_table(TABLE, f"at {at.head}")


def _create_table(at: Target) -> None:
    with at.lake.transaction() as tx:
        tx.create_table(f"created_{at.head}", {"id": "int64"})


def _drop_table(at: Target) -> None:
    with at.lake.transaction() as tx:
        tx.drop_table(at.lake.tables()[0])


def _plan(verb: Delete | Update | Merge) -> Callable[[Target], object]:
    def plan(at: Target) -> object:
        return verb.plan(at.lake, Commit(CommitInfo()), lambda source: source)

    return plan


def _poll(at: Target) -> None:
    """What `DuckLakeSnapshotSensor.poke` asks."""
    start = at.lake.snapshot_at(datetime.now(UTC)).id
    at.lake.table_changes(TABLE, start, {"data"})
    assert at.head


def _consume(at: Target) -> None:
    """What an incremental `DuckLakeSparkSQLOperator` asks when one snapshot is new."""
    at.lake.writes.consumptions(Consumer("scale"))
    at.lake.reads.restored_tables()
    table = at.lake.table_snapshot(TABLE)
    assert at.lake.reads.is_unchanged(table.table_id, at.head, at.head)
    at.lake.changes_after(TABLE, at.head - 1).read_arrow()


def _files_named(at: Target) -> None:
    at.lake.reads.registered_files([f"{at.lake.data_path}main/t/{number}.parquet" for number in range(100)])


READS = (
    Call("current_snapshot()", lambda at: at.lake.current_snapshot()),
    Call("snapshots()", lambda at: at.lake.snapshots()),
    Call("snapshot_at(…)", lambda at: at.lake.snapshot_at(datetime.now(UTC))),
    Call("tables()", lambda at: at.lake.tables()),
    Call("schema(name)", lambda at: at.lake.reads.schema("s1")),
    Call("options(table)", lambda at: at.lake.reads.options(TABLE)),
    Call("table_snapshot(table)", lambda at: at.lake.table_snapshot(TABLE)),
    Call("files(table)", lambda at: at.lake.files(TABLE)),
    Call("scan(table)", lambda at: at.lake.scan(TABLE)),
    Call("scan(table, filter=…)", lambda at: at.lake.scan(TABLE, filter=FOUND)),
    Call("scan(table, at=…, filter=…)", lambda at: at.lake.scan(TABLE, at=at.middle, filter=FOUND)),
    Call("read_arrow(table, filter=…)", lambda at: at.lake.read_arrow(TABLE, filter=FOUND)),
    Call("row_count(table)", lambda at: at.lake.row_count(TABLE)),
    Call("column_bounds(table, column)", lambda at: at.lake.column_bounds(TABLE, "id")),
    Call("table_info(table)", lambda at: at.lake.table_info(TABLE)),
    Call("table_info()", lambda at: at.lake.table_info()),
    Call("changes(table, newest, newest)", lambda at: at.lake.changes(TABLE, at.head, at.head).read_arrow()),
    Call("table_changes(table, newest - 1)", lambda at: at.lake.table_changes(TABLE, at.head - 1, {"data"})),
    Call("table_changes(table, 0)", lambda at: at.lake.table_changes(TABLE, 0, {"data"})),
    Call("sensor's poke", _poll),
    Call("a consumer's next changes", _consume),
    Call("registered_files(100 paths)", _files_named),
    Call("clients()", lambda at: at.lake.clients()),
    Call("table_health([table])", lambda at: at.lake.table_health([TABLE])),
    Call("table_health()", lambda at: at.lake.table_health()),
)
WRITES = (
    Call("append_arrow(table, 1 row)", _append),
    Call("append_arrow(…, commit_key=…)", _append_keyed),
    Call("append of 100 files", _append_many),
    Call("delete_rows(table, where)", _delete),
    Call("plan of Spark's delete", _plan(Delete(TABLE, FOUND))),
    Call("plan of Spark's update", _plan(Update(TABLE, {"name": "'b'"}, FOUND))),
    Call(
        "plan of Spark's merge on id",
        _plan(Merge(TABLE, ["id"], GivenRows({"path": "/rows"}), when_matched=[{"update": {"name": "'b'"}}])),
    ),
    Call("add_column(table, …)", _add_column),
    Call("comment_on_table(table, …)", _comment),
    Call("create_table(…)", _create_table),
    Call("set_option(table=…)", lambda at: at.lake.set_option("target_file_size", "1GB", table=TABLE)),
)
UPKEEP = (
    Call(
        "expire_snapshots(keep_last=1, dry_run)",
        lambda at: at.lake.expire_snapshots(keep_last=1, dry_run=True),
    ),
    Call(
        "expire_snapshots(snapshots=[2], dry_run)",
        lambda at: at.lake.expire_snapshots(snapshots=[2], dry_run=True),
    ),
    Call(
        "cleanup_old_files(dry_run)",
        lambda at: at.lake.cleanup_old_files(older_than=timedelta(hours=1), dry_run=True),
    ),
    Call(
        "delete_orphaned_files(dry_run)",
        lambda at: at.lake.delete_orphaned_files(older_than=timedelta(hours=1), dry_run=True),
    ),
    Call("plan_merge(table)", lambda at: at.lake.maintenance.plan_merge(TABLE)),
    Call("plan_rewrite(table)", lambda at: at.lake.maintenance.plan_rewrite(TABLE)),
    Call("flush_inlined_data(dry_run)", lambda at: at.lake.flush_inlined_data(dry_run=True)),
    Call("restore(table, at=…, dry_run)", lambda at: at.lake.restore(TABLE, at=at.before, dry_run=True)),
    Call("restore(at=…, dry_run)", lambda at: at.lake.restore(at=at.before, dry_run=True)),
    Call("verify([table], sample=0)", lambda at: at.lake.verify([TABLE], sample=0)),
    Call("verify(sample=0)", lambda at: at.lake.verify(sample=0)),
)
CALLS = (*READS, *UPKEEP, *WRITES)
