"""What the records of a key mean for its next commit; what comes of it stands in tests/concurrency."""

from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake.lake.errors import ZombieCommitError
from airflow_provider_ducklake.lake.format import snapshots as ids
from airflow_provider_ducklake.lake.transaction.changes_made import Replay, replay_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(generation: int, table_id: int = 1) -> ids.CommitRecord:
    return ids.CommitRecord(generation, ids.TableId(table_id), ids.SnapshotId(generation + 10), 0, 3, NOW)


FIRST, SECOND, SECOND_TABLE, EARLIER = record(1), record(2), record(2, 5), record(-1)


@pytest.mark.parametrize(
    ("found", "generation", "on_clear", "expected"),
    [
        ([], 1, ids.OnClear.REPLACE, Replay()),
        ([], 1, ids.OnClear.SKIP, Replay()),
        ([FIRST], 1, ids.OnClear.REPLACE, Replay(done=(FIRST,))),
        ([FIRST], 1, ids.OnClear.APPEND, Replay(done=(FIRST,))),
        ([FIRST], 2, ids.OnClear.REPLACE, Replay(replaced=(FIRST,))),
        ([FIRST], 2, ids.OnClear.APPEND, Replay()),
        ([FIRST], 2, ids.OnClear.SKIP, Replay(done=(FIRST,))),
        ([FIRST, SECOND, SECOND_TABLE], 2, ids.OnClear.REPLACE, Replay(done=(SECOND, SECOND_TABLE))),
        ([FIRST, SECOND, SECOND_TABLE], 5, ids.OnClear.REPLACE, Replay(replaced=(SECOND, SECOND_TABLE))),
        ([EARLIER], 1, ids.OnClear.REPLACE, Replay(replaced=(EARLIER,))),
        ([EARLIER, FIRST], 1, ids.OnClear.REPLACE, Replay(done=(FIRST,))),
        ([EARLIER, FIRST], 2, ids.OnClear.REPLACE, Replay(replaced=(FIRST,))),
    ],
)
def test_the_newest_generation_decides(found, generation, on_clear, expected):
    assert replay_of(found, ids.CommitKey(("k",), generation), on_clear) == expected


def nothing(generation: int) -> ids.CommitRecord:
    return ids.CommitRecord(generation, None, ids.SnapshotId(generation + 10), 0, 0, NOW)


def restored(at: int, as_of: int, table_id: int = 1, source: int | None = None) -> ids.RestoredTable:
    source = table_id if source is None else source
    return ids.RestoredTable(
        ids.TableId(table_id), ids.SnapshotId(at), ids.TableId(source), ids.SnapshotId(as_of)
    )


THIRD = record(3)  # a generation commits ten snapshots after its number


@pytest.mark.parametrize(
    ("found", "restores", "expected"),
    [
        ([FIRST, SECOND], [restored(13, 11)], [(1, 1)]),
        ([FIRST, SECOND], [restored(13, 10)], []),
        ([FIRST, SECOND], [restored(13, 12)], [(2, 1)]),
        ([FIRST, SECOND], [restored(13, 11), restored(14, 12)], [(2, 1)]),
        ([FIRST, SECOND], [restored(13, 11), restored(14, 13)], [(1, 1)]),
        ([FIRST, SECOND], [restored(14, 11), restored(16, 15), restored(18, 13)], [(2, 1)]),
        ([FIRST, SECOND, record(5)], [restored(13, 11), restored(16, 14)], [(1, 1)]),
        ([FIRST, SECOND], [restored(13, 11, table_id=7)], [(2, 1)]),
        ([FIRST, SECOND, SECOND_TABLE], [restored(13, 11)], [(1, 1), (2, 5)]),
        ([record(1, 5), SECOND], [restored(13, 11, table_id=5)], [(2, 1), (1, 5)]),
        ([record(1, 5), SECOND], [], [(2, 1)]),
        ([FIRST, nothing(2)], [], []),
        ([FIRST, nothing(2)], [restored(13, 11)], [(1, 1)]),
        ([FIRST, SECOND], [restored(14, 11, 9, source=1)], [(1, 9)]),
        ([FIRST, SECOND], [restored(14, 12, 9, source=1)], [(2, 9)]),
        ([FIRST, SECOND, record(5, 9)], [restored(14, 12, 9, source=1)], [(5, 9)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(16, 14, 9)], [(1, 9)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(17, 16, 12, source=9)], [(5, 12)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(17, 14, 12, source=9)], [(1, 12)]),
        ([record(-2), EARLIER], [restored(13, 8)], [(-2, 1)]),
        ([record(-2), EARLIER, THIRD], [restored(14, 9)], [(-1, 1)]),
    ],
)
def test_what_a_restore_brought_back_is_replaced_and_what_it_undid_is_not(found, restores, expected):
    replaced = replay_of(found, ids.CommitKey(("k",), 99), ids.OnClear.REPLACE, restores).replaced

    assert [(one.generation, one.table_id) for one in replaced] == expected


def test_a_commit_that_a_restore_undid_is_not_made_again_by_a_retry():
    restores = [restored(13, 10)]

    assert replay_of([SECOND], ids.CommitKey(("k",), 2), ids.OnClear.REPLACE, restores) == Replay(
        done=(SECOND,)
    )
    assert replay_of([SECOND], ids.CommitKey(("k",), 3), ids.OnClear.SKIP, restores) == Replay(done=(SECOND,))


@pytest.mark.parametrize("on_clear", list(ids.OnClear))
def test_a_newer_generation_forbids_the_commit(on_clear):
    with pytest.raises(ZombieCommitError, match=r"snapshot 12 since \(generation 2\)"):
        replay_of([FIRST, SECOND], ids.CommitKey(("k",), 1), on_clear)


def test_names_that_look_alike_are_different_keys():
    digests = {
        ids.CommitKey(names).digest for names in [("a", "b"), ("a,b",), ("a", 1), ("a", "1"), ('a","b',)]
    }

    assert len(digests) == 5
    assert all(len(digest) == 64 for digest in digests)
    assert ids.CommitKey(("a",), 2).digest == ids.CommitKey(("a",)).digest
