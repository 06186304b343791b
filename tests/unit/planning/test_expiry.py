"""Which snapshots expire, and what nobody sees then; how old things must be."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.names.paths import path_key
from airflow_provider_ducklake.lake.format.snapshots import Snapshot, SnapshotId
from airflow_provider_ducklake.lake.planning.upkeep.files import (
    ExpiryRule,
    cut_off,
    holes,
    is_reachable,
    plan_expiry,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def snapshots(*ages: int) -> list[Snapshot]:
    """Snapshots 0, 1, … of so many hours ago."""
    return [Snapshot(SnapshotId(number), 0, 0, 0, NOW - age * HOUR) for number, age in enumerate(ages)]


def expired(rule: ExpiryRule, *ages: int, pinned: tuple[int, ...] = ()) -> list[int]:
    return [one.id for one in plan_expiry(snapshots(*ages), rule, NOW, pinned)]


def test_the_newest_by_id_stays_whatever_the_clocks_said():
    assert expired(ExpiryRule(older_than=HOUR), 9, 0, 30) == [0]
    assert expired(ExpiryRule(keep_last=1), 9, 0, 30) == [0, 1]
    assert expired(ExpiryRule(snapshots=[0, 1, 2]), 9, 0, 30) == [0, 1]


def test_what_is_pinned_or_to_be_kept_stays():
    assert expired(ExpiryRule(keep_last=1, keep=[1]), 9, 8, 7, 6, pinned=(2,)) == [0]
    assert expired(ExpiryRule(snapshots=[0, 1, 2], keep=[1]), 9, 8, 7, 6, pinned=(2,)) == [0]


@pytest.mark.parametrize("ids", ["3", ["3"], [1.5], 5])
@pytest.mark.parametrize("name", ["keep", "snapshots"])
def test_ids_that_are_no_numbers_are_refused(name, ids):
    with pytest.raises(InvalidInputError, match=f"{name} is .*whole numbers"):
        ExpiryRule(**{"keep_last": 1, name: ids})


def test_the_floor_keeps_what_is_young():
    assert expired(ExpiryRule(keep_last=1, min_retention=8 * HOUR), 10, 9, 8, 7) == [0, 1]
    with pytest.raises(InvalidInputError, match=r"Snapshots \[2\] are younger"):
        expired(ExpiryRule(snapshots=[1, 2], min_retention=8 * HOUR), 10, 9, 7, 6)
    with pytest.raises(InvalidInputError, match="than min_retention"):
        expired(ExpiryRule(older_than=7 * HOUR, min_retention=8 * HOUR), 10, 9, 8, 7)


@pytest.mark.parametrize(
    ("older_than", "floor", "found"),
    [
        (HOUR, timedelta(0), NOW - HOUR),
        (HOUR, HOUR, NOW - HOUR),
        (NOW - HOUR, timedelta(0), NOW - HOUR),
        (NOW + timedelta(minutes=4), timedelta(0), NOW),  # two clocks
        (NOW - HOUR + timedelta(minutes=4), HOUR, NOW - HOUR),
    ],
)
def test_a_cut_off_is_never_later_than_the_floor(older_than, floor, found):
    assert cut_off(older_than, NOW, floor) == found


@pytest.mark.parametrize(
    ("older_than", "floor"),
    [(NOW + timedelta(minutes=6), timedelta(0)), (-HOUR, timedelta(0)), (HOUR, 2 * HOUR), (HOUR, -HOUR)],
)
def test_cut_offs_that_make_no_sense_are_refused(older_than, floor):
    with pytest.raises(InvalidInputError):
        cut_off(older_than, NOW, floor)


def test_what_began_and_ended_in_a_hole_is_what_nobody_sees():
    """Over all ways to keep some of six snapshots, the newest among them, and all lifetimes."""
    for size in range(6):
        for some in itertools.combinations(range(5), size):
            kept = [*some, 5]
            found = list(holes(kept, set(range(6)) - set(kept)))
            for begin, end in itertools.combinations(range(7), 2):
                is_seen = any(begin <= one < end for one in kept)
                in_hole = any((one.after is None or begin > one.after) and end <= one.before for one in found)
                assert is_reachable(begin, end, kept) == is_seen
                assert in_hole == (not is_seen and end <= 5)


def test_spellings_of_one_place_have_one_key():
    assert len({path_key(one) for one in ("/a/b", "//a//b", "/a/./x/../b", "file:///a/b", "/A/%62")}) == 1
    assert path_key("az://c/x") == path_key("abfss://c/x")
    assert path_key("s3://b/a") != path_key("gs://b/a")
