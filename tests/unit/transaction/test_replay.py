"""What the records of a key mean for its next commit; what comes of it stands in tests/concurrency."""

from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake.errors import ZombieCommitError
from airflow_provider_ducklake.spec.commit_key import EARLIER_RUN, CommitKey, CommitRecord, OnClear
from airflow_provider_ducklake.spec.ids import SnapshotId, TableId
from airflow_provider_ducklake.transaction.replay import Replay, replay_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(generation: int, table_id: int = 1) -> CommitRecord:
    return CommitRecord(generation, TableId(table_id), SnapshotId(generation + 10), 0, 3, NOW)


FIRST, SECOND, SECOND_TABLE, EARLIER = record(1), record(2), record(2, 5), record(EARLIER_RUN)


@pytest.mark.parametrize(
    ("found", "generation", "on_clear", "expected"),
    [
        ([], 1, OnClear.REPLACE, Replay()),
        ([], 1, OnClear.SKIP, Replay()),
        ([FIRST], 1, OnClear.REPLACE, Replay(done=(FIRST,))),
        ([FIRST], 1, OnClear.APPEND, Replay(done=(FIRST,))),
        ([FIRST], 2, OnClear.REPLACE, Replay(replaced=(FIRST,))),
        ([FIRST], 2, OnClear.APPEND, Replay()),
        ([FIRST], 2, OnClear.SKIP, Replay(done=(FIRST,))),
        ([FIRST, SECOND, SECOND_TABLE], 2, OnClear.REPLACE, Replay(done=(SECOND, SECOND_TABLE))),
        ([FIRST, SECOND, SECOND_TABLE], 5, OnClear.REPLACE, Replay(replaced=(SECOND, SECOND_TABLE))),
        ([EARLIER], 1, OnClear.REPLACE, Replay(replaced=(EARLIER,))),
        ([EARLIER, FIRST], 1, OnClear.REPLACE, Replay(done=(FIRST,))),
    ],
)
def test_the_newest_generation_decides(found, generation, on_clear, expected):
    assert replay_of(found, CommitKey(("k",), generation), on_clear) == expected


@pytest.mark.parametrize("on_clear", list(OnClear))
def test_a_newer_generation_forbids_the_commit(on_clear):
    with pytest.raises(ZombieCommitError, match="generation 2 has committed snapshot 12"):
        replay_of([FIRST, SECOND], CommitKey(("k",), 1), on_clear)


def test_names_that_look_alike_are_different_keys():
    digests = {CommitKey(names).digest for names in [("a", "b"), ("a,b",), ("a", 1), ("a", "1"), ('a","b',)]}

    assert len(digests) == 5
    assert all(len(digest) == 64 for digest in digests)
    assert CommitKey(("a",), 2).digest == CommitKey(("a",)).digest
