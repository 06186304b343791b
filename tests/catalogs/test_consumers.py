"""Marks of consumers move with the commit that they belong to, on every catalog."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.consumers import Consumed
from airflow_provider_ducklake.lake.errors import (
    ChangesExpiredError,
    SnapshotNotFoundError,
    TransactionConflictError,
)
from airflow_provider_ducklake.lake.format.snapshots import (
    CommitInfo,
    CommitKey,
    Consumer,
    Consumption,
    SnapshotId,
)
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet, Truncate

pytestmark = pytest.mark.every_catalog
US = Consumer("counts", "airflow")
KEY = CommitKey(("airflow", "dag", "run", "task"))


@pytest.fixture
def lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        yield lake


def next_range(lake: Lake, key: CommitKey = KEY) -> Consumed:
    """Return all that was not consumed yet."""
    known = lake.writes.consumptions(US)
    table = lake.table_snapshot("t")
    after = max((one.upto for one in known), default=None)
    upto = lake.current_snapshot().id
    return Consumed(US, (Consumption(table.table_id, after, upto, key.digest, key.generation),), known)


def add_snapshot(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.comment_on_table("t", str(lake.current_snapshot().id))


def test_marks_move_with_and_without_a_snapshot(lake):
    first = next_range(lake)
    assert lake.committer.commit_change_sets([], CommitInfo(), consumed=first) is None
    add_snapshot(lake)
    second = next_range(lake)
    table = lake.table_snapshot("t")
    change_set = ChangeSet(table.snapshot.id, (Truncate(table.table_id, table.name),))

    committed = lake.committer.commit_change_sets([change_set], CommitInfo(), consumed=second)

    assert committed is not None
    # the second has the key of the first, and takes its place
    assert lake.writes.consumptions(US) == second.ranges
    assert lake.writes.consumptions(Consumer("counts")) == ()


def test_what_was_consumed_meanwhile_is_a_conflict_and_nothing_lands(lake):
    ours, theirs = next_range(lake), next_range(lake, CommitKey(("other",)))
    lake.committer.commit_change_sets([], CommitInfo(), consumed=theirs)
    before, table = lake.current_snapshot(), lake.table_snapshot("t")
    change_set = ChangeSet(before.id, (Truncate(table.table_id, table.name),))

    for change_sets in ([change_set], []):
        with pytest.raises(TransactionConflictError, match="counts"):
            lake.committer.commit_change_sets(change_sets, CommitInfo(), consumed=ours)

    assert lake.current_snapshot() == before
    assert lake.writes.consumptions(US) == theirs.ranges


def test_a_commit_that_does_not_land_moves_no_mark(lake):
    planned, table = next_range(lake), lake.table_snapshot("t")
    with lake.transaction() as tx:
        tx.drop_table("t")

    change_set = ChangeSet(table.snapshot.id, (Truncate(table.table_id, table.name),))
    with pytest.raises(TransactionConflictError):
        lake.committer.commit_change_sets([change_set], CommitInfo(), consumed=planned)

    assert lake.writes.consumptions(US) == ()


def test_old_ranges_go_with_their_snapshots(lake):
    for number in range(4):
        add_snapshot(lake)
        lake.committer.commit_change_sets([], CommitInfo(), consumed=next_range(lake, CommitKey((number,))))
    assert len(lake.writes.consumptions(US)) == 4
    lake.expire_snapshots(keep_last=2)

    add_snapshot(lake)
    lake.committer.commit_change_sets([], CommitInfo(), consumed=next_range(lake, CommitKey(("last",))))

    oldest = min(one.id for one in lake.snapshots())
    left = lake.writes.consumptions(US)
    assert left[-1].upto == lake.current_snapshot().id
    assert all(one.upto >= oldest for one in left)
    assert len(left) == 3


def test_a_cut_down_task_leaves_the_marks_of_other_tables(lake):
    with lake.transaction() as tx:
        tx.create_table("u", {"i": "int64"})
    upto = lake.current_snapshot().id
    both = [lake.table_snapshot(name).table_id for name in ("t", "u")]
    ranges = tuple(Consumption(one, None, upto, KEY.digest, KEY.generation) for one in both)
    lake.committer.commit_change_sets(
        [], CommitInfo(), consumed=Consumed(US, ranges, lake.writes.consumptions(US))
    )
    add_snapshot(lake)
    later = lake.current_snapshot().id
    again = Consumption(both[0], upto, later, KEY.digest, KEY.generation + 1)

    lake.committer.commit_change_sets(
        [], CommitInfo(), consumed=Consumed(US, (again,), lake.writes.consumptions(US))
    )

    assert lake.writes.consumptions(US) == (ranges[1], again)


def test_changes_after_a_snapshot_that_is_followed_by_a_gap(lake):
    for _ in range(3):
        add_snapshot(lake)
    newest = lake.current_snapshot().id
    lake.expire_snapshots(snapshots=[newest - 1])

    with pytest.raises(ChangesExpiredError, match=rf"after snapshot {newest - 2} up to snapshot {newest}"):
        lake.changes_after("t", newest - 2)
    assert lake.changes_after("t", newest - 1).read_arrow().num_rows == 0
    assert lake.changes_after("t", SnapshotId(newest)).read_arrow().num_rows == 0
    with pytest.raises(
        SnapshotNotFoundError, match=f"no snapshot 500; the lake holds snapshots 0 to {newest}"
    ):
        lake.changes_after("t", 500)
