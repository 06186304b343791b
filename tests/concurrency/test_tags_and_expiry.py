"""Tagging beside an expiry: the snapshot is tagged and stays, or it has expired and tagging it fails."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest
from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SnapshotNotFoundError, SnapshotTaggedError, TagExistsError
from airflow_provider_ducklake.lake.format.snapshots import CommitKey

SNAPSHOTS = 40


@pytest.fixture
def lake(catalog) -> Iterator[Lake]:
    """Snapshots 2 to 40: snapshot n has so many rows less one."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        for number in range(2, SNAPSHOTS + 1):
            lake.append_arrow("t", pa.table({"i": [number]}))
        yield lake


def tag_all(url: str, start: int, step: int, barrier) -> tuple[list[int], list[int]]:
    """Tag every so many snapshots; return those that were, and those that had expired."""
    tagged: list[int] = []
    gone: list[int] = []
    with Lake.connect(url) as lake:
        barrier.wait()
        for snapshot in range(start, SNAPSHOTS, step):
            try:
                lake.tag(f"tag {snapshot}", snapshot)
                tagged.append(snapshot)
            except SnapshotNotFoundError:
                gone.append(snapshot)
    return tagged, gone


def expire_all(url: str, barrier) -> list[int]:
    """Expire all snapshots one after the other by the ids, newest first; return those that have tags."""
    refused = []
    with Lake.connect(url) as lake:
        barrier.wait()
        for snapshot in range(SNAPSHOTS - 1, -1, -1):
            try:
                lake.expire_snapshots(snapshots=[snapshot])
            except SnapshotTaggedError:
                refused.append(snapshot)
    return refused


def test_what_two_processes_tag_while_a_third_expires_it_stays_or_was_never_tagged(lake, catalog):
    url = catalog.sqlalchemy_url
    lake.close()
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(3, spawn) as executor:
        barrier = manager.Barrier(3)
        taggers = [executor.submit(tag_all, url, start, 2, barrier) for start in (0, 1)]
        expirer = executor.submit(expire_all, url, barrier)
        results, refused = [one.result(240) for one in taggers], expirer.result(240)

    tagged = sorted(snapshot for some, _ in results for snapshot in some)
    gone = sorted(snapshot for _, some in results for snapshot in some)
    assert sorted([*tagged, *gone]) == list(range(SNAPSHOTS))
    assert tagged, "the taggers begin where the expirer ends"
    lake.cleanup_old_files(older_than=timedelta(0))
    assert [one.id for one in lake.snapshots()] == [*tagged, SNAPSHOTS]
    assert refused == sorted(tagged, reverse=True)
    assert [one.name for one in lake.tags() if one.is_lost] == []
    for snapshot in (one for one in tagged if one > 0):
        assert lake.read_arrow("t", at=f"tag:tag {snapshot}").num_rows == snapshot - 1
    assert lake.verify() == []


@contextmanager
def after_its_plan(lake: Lake, act) -> Iterator[None]:
    """Have something done when the lake has planned, and before it takes the lock."""
    engine = lake.opened.catalog.dialect.engine
    waiting = [act]

    def on_return(*_: object) -> None:
        if waiting:
            waiting.pop()()

    event.listen(engine, "checkin", on_return)
    yield
    event.remove(engine, "checkin", on_return)
    assert not waiting


def test_a_snapshot_that_is_tagged_between_plan_and_lock_stays(lake, catalog):
    with Lake.connect(catalog.sqlalchemy_url) as other:
        other.tags()
        with after_its_plan(lake, lambda: other.tag("late", 7)):
            result = lake.expire_snapshots(older_than=timedelta(0))

    assert result.kept_by_tags == 1
    assert [one.id for one in lake.snapshots()] == [7, SNAPSHOTS]
    assert lake.read_arrow("t", at="tag:late").num_rows == 6


def test_a_snapshot_that_is_tagged_before_it_expires_by_its_id_is_refused_under_the_lock(lake, catalog):
    with (
        Lake.connect(catalog.sqlalchemy_url) as other,
        after_its_plan(lake, lambda: other.tag("late", 7)),
        pytest.raises(SnapshotTaggedError, match=r"7 \('late'\)"),
    ):
        lake.expire_snapshots(snapshots=[6, 7])

    assert len(lake.snapshots()) == SNAPSHOTS + 1


def tag_once(url: str, number: int, barrier) -> str:
    with Lake.connect(url) as lake:
        barrier.wait()
        try:
            return "earlier" if lake.tag("one", number).is_earlier else "made"
        except TagExistsError:
            return "refused"


@pytest.mark.parametrize(("snapshots", "expected"), [((5, 5, 5), "earlier"), ((5, 6, 7), "refused")])
def test_of_several_that_make_one_tag_at_once_one_does(lake, catalog, snapshots, expected):
    lake.close()
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(3, spawn) as executor:
        barrier = manager.Barrier(3)
        made = [executor.submit(tag_once, catalog.sqlalchemy_url, one, barrier) for one in snapshots]
        outcomes = sorted(one.result(120) for one in made)

    assert outcomes == sorted(["made", expected, expected])
    assert len(lake.tags()) == 1


def test_a_commit_with_the_key_of_a_tag_is_not_made_again(lake):
    keyed = lake.writes.keyed_commit(CommitKey(("nightly",)))

    first = lake.tag("nightly", commit_key=keyed)
    lake.append_arrow("t", pa.table({"i": [0]}))
    again = lake.tag("nightly", commit_key=keyed)

    assert (first.snapshot_id, first.is_earlier) == (SNAPSHOTS, False)
    assert (again.snapshot_id, again.is_earlier) == (SNAPSHOTS, True)
