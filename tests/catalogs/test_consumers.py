"""Marks of consumers move with the commit that they belong to, and counters give out no number twice."""

import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.consumers import Consumed
from airflow_provider_ducklake.lake.errors import (
    ChangesExpiredError,
    CounterBehindError,
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
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet, Truncate
from tests.interop.jobs import merge_adjacent
from tests.interop.lakes import alone

pytestmark = pytest.mark.every_catalog

US = Consumer("counts", "airflow")
KEY = CommitKey(("airflow", "dag", "run", "task"))


@pytest.fixture
def lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        yield lake


def next_range(lake: Lake, key: CommitKey = KEY) -> Consumed:
    """Return all that was not consumed yet."""
    known = lake.writes.consumptions(US)
    table = lake.table_snapshot("t")
    after = max((one.upto for one in known), default=None)
    upto = lake.current_snapshot().id
    return Consumed(US, (Consumption(table.table_id, after, upto, key.digest, key.generation),), known)


def add_snapshot(lake: Lake) -> None:
    alone(lake).comment_on_table("t", str(lake.current_snapshot().id))


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
    alone(lake).drop_table("t")

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
    alone(lake).create_table("u", {"i": "int64"})
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


# --- counters that are behind what the catalog holds give out no number twice ---

HISTORY = {FindingCode.COUNTER_FELL, FindingCode.SCHEMA_VERSION_STOOD}  # of the snapshot that we spoilt
ROWS = pa.table({"i": pa.array(range(50), pa.int64())})


@pytest.fixture
def altered(catalog):
    """A lake with a table of two files, and one that was altered."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
            tx.create_table("s.t", {"i": "int64"})
            tx.create_table("s.altered", {"i": "int64"})
        for _ in range(2):
            lake.append_arrow("s.t", ROWS)
        alter(lake)
        yield lake


def create(lake: Lake) -> None:
    alone(lake).create_table("s.u", {"j": "int64"})


def create_schema(lake: Lake) -> None:
    alone(lake).create_schema("another")


def append(lake: Lake) -> None:
    lake.append_arrow("s.t", ROWS)


def delete(lake: Lake) -> None:
    alone(lake).delete_rows("s.t", "i = 7")


def compact(lake: Lake) -> None:
    merge_adjacent(lake, "s.t")


def alter(lake: Lake) -> None:
    alone(lake).add_column("s.altered", f"c{lake.current_snapshot().id}", "int64")


VERBS = {
    "next_catalog_id": [create, create_schema],
    "next_file_id": [append, delete, compact, create],
    "schema_version": [create, alter, create_schema],
}


def set_back(lake: Lake, url: str, counter: str, by: int) -> None:
    lake.close()
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        newest = "(SELECT * FROM (SELECT max(snapshot_id) FROM ducklake_snapshot) AS newest)"
        least = f"CASE WHEN {counter} > {by} THEN {counter} - {by} ELSE 0 END"
        connection.execute(
            text(f"UPDATE ducklake_snapshot SET {counter} = {least} WHERE snapshot_id = {newest}")
        )
    engine.dispose()


@pytest.mark.parametrize(("counter", "verb"), [(name, verb) for name in VERBS for verb in VERBS[name]])
@pytest.mark.parametrize("by", [1, 1000])
def test_nothing_is_committed_on_a_counter_that_is_behind(
    catalog, altered, counter, verb: Callable[[Lake], None], by
):
    set_back(altered, catalog.sqlalchemy_url, counter, by)

    with Lake.connect(catalog.sqlalchemy_url) as again:
        before, started = again.current_snapshot(), time.monotonic()
        with pytest.raises(CounterBehindError, match=f"has {counter} .*Verify the lake"):
            verb(again)
        assert time.monotonic() - started < 60
        assert again.current_snapshot() == before
        found = [one for one in again.verify() if one.code is FindingCode.COUNTER_BEHIND]
        again.repair(found)
        verb(again)
        assert {one.code for one in again.verify()} <= HISTORY
