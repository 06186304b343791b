"""What a consumer is to consume next, also where a restore created a table again; what a watcher stores."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import ChangesUndoneError, InvalidInputError
from airflow_provider_ducklake.lake.format.snapshots import (
    CommitKey,
    Consumption,
    RestoredTable,
    SnapshotId,
    TableId,
)
from airflow_provider_ducklake.lake.planning.reading.watch import (
    ChangeRange,
    ConsumptionHistory,
    RangeReport,
    Watermark,
    event_of,
)

KEY = CommitKey(("task",))
HEAD = SnapshotId(99)


def consumed(upto: int, table_id: int = 5, after: int | None = None, key: str = "other") -> Consumption:
    began = None if after is None else SnapshotId(after)
    return Consumption(TableId(table_id), began, SnapshotId(upto), key, 1)


def created(table_id: int, at: int, source: int, as_of: int) -> RestoredTable:
    return RestoredTable(TableId(table_id), SnapshotId(at), TableId(source), SnapshotId(as_of))


def next_of(table_id, entries, restores, changed=(), *, again=False):
    """Return the next stretch where tables were changed by the given (table, snapshot) pairs."""

    def is_unchanged(of: TableId, after: SnapshotId, upto: SnapshotId) -> bool:
        assert after <= upto
        return not any(one == of and after < snapshot <= upto for one, snapshot in changed)

    log = ConsumptionHistory(tuple(entries), KEY, tuple(restores))
    found = log.next(TableId(table_id), HEAD, is_unchanged, "s.t", again=again)
    assert isinstance(found, ChangeRange)
    return found.table_id, found.after, found.upto, found.marked_at


ONE = [created(9, 20, 5, 15)]
TWO = [*ONE, created(12, 30, 9, 25)]
BESIDE = [*ONE, created(12, 30, 5, 15)]


@pytest.mark.parametrize(
    ("table_id", "entries", "restores", "changed", "expected"),
    [
        pytest.param(5, [], [], (), (5, None, 99, 99), id="never"),
        pytest.param(5, [consumed(8), consumed(10)], [], (), (5, 10, 99, 99), id="newest mark"),
        pytest.param(5, [consumed(10, 6)], ONE, (), (5, None, 99, 99), id="another table's mark"),
        pytest.param(5, [consumed(10)], [created(5, 20, 5, 8)], [(5, 9)], (5, 10, 99, 99), id="under its id"),
        pytest.param(9, [], ONE, (), (9, None, 99, 99), id="new and never"),
        pytest.param(9, [consumed(15)], ONE, (), (9, 20, 99, 99), id="up to the very snapshot"),
        pytest.param(9, [consumed(12)], ONE, [(5, 12)], (9, 20, 99, 99), id="not changed since"),
        pytest.param(9, [consumed(12)], ONE, [(5, 13)], (5, 12, 15, 20), id="changed since"),
        pytest.param(9, [consumed(18)], ONE, [(5, 15)], (9, 20, 99, 99), id="behind it, not changed between"),
        pytest.param(9, [consumed(12), consumed(20, 9)], ONE, [(5, 13)], (9, 20, 99, 99), id="gone over"),
        pytest.param(9, [consumed(40, 9)], ONE, [(5, 13)], (9, 40, 99, 99), id="gone on"),
        pytest.param(12, [consumed(12)], TWO, (), (12, 30, 99, 99), id="twice"),
        pytest.param(12, [consumed(12)], TWO, [(5, 13), (9, 22)], (5, 12, 15, 20), id="twice, first step"),
        pytest.param(12, [consumed(20, 9)], TWO, [(5, 13), (9, 22)], (9, 20, 25, 30), id="second step"),
        pytest.param(12, [consumed(12)], TWO, [(9, 22)], (9, 20, 25, 30), id="second step at once"),
        pytest.param(12, [consumed(12)], BESIDE, (), (12, 30, 99, 99), id="past one beside"),
        pytest.param(5, [consumed(40, 9)], ONE, (), (5, 40, 99, 99), id="an older snapshot is read"),
    ],
)
def test_a_consumer_goes_on_from_its_mark(table_id, entries, restores, changed, expected):
    assert next_of(table_id, entries, restores, changed) == expected


@pytest.mark.parametrize(
    ("table_id", "entries", "restores", "changed"),
    [
        pytest.param(9, [consumed(18)], ONE, [(5, 16)], id="changes behind the restored snapshot"),
        pytest.param(12, [consumed(28, 9)], TWO, [(9, 26)], id="the same of the second restore"),
        pytest.param(12, [consumed(22, 9)], BESIDE, (), id="a table beside it was consumed"),
    ],
)
def test_changes_that_were_consumed_and_undone_are_refused(table_id, entries, restores, changed):
    with pytest.raises(ChangesUndoneError, match=r"s\.t as a new table.* full_refresh=True"):
        next_of(table_id, entries, restores, changed)


def test_a_cleared_task_consumes_the_same_of_the_older_table_again():
    mine = consumed(20, 9, after=12, key=KEY.digest)
    later = consumed(40, 9, after=20)

    assert next_of(9, [mine, later], ONE, [(5, 13)], again=False) == (9, 40, 99, 99)
    log = ConsumptionHistory((mine, later), CommitKey(KEY.names, 2), tuple(ONE))
    found = log.next(TableId(9), log.again(), lambda *_: False, "s.t", again=True)
    assert (found.table_id, found.after, found.upto, found.marked_at) == (5, 12, 15, 20)


# --- what a watcher stores ---

IDS = st.integers(0, 2**63 - 1)
REPORTS = st.builds(
    RangeReport,
    table=st.just("main.t"),
    table_id=IDS,
    from_snapshot=IDS,
    to_snapshot=IDS,
    changes=st.tuples(st.text()),
    rows_added=st.none() | IDS,
    rows_deleted=st.none() | IDS,
    partitions=st.none() | st.lists(st.text(), max_size=3).map(tuple),
    authors=st.lists(st.text(), max_size=3).map(tuple),
    is_complete=st.booleans(),
)
EVENT = event_of(RangeReport("main.t", 1, 3, 4, ("insert",), 5, 0, ("day=a",), ("me",)), None)
GOOD = {"snapshot": 4, "table_id": 1, "pending": [EVENT]}


@given(IDS, st.none() | IDS, st.lists(REPORTS, max_size=3))
def test_what_is_stored_comes_back(snapshot, table_id, reports):
    mark = Watermark(snapshot, table_id)
    for report in reports:
        mark, _ = mark.reporting(report)

    assert Watermark.of_json(json.loads(json.dumps(mark.as_json())), "it", "main.t") == mark


@pytest.mark.parametrize(
    "stored",
    [
        "garbage",
        7,
        [],
        {},
        {"snapshot": 4},
        GOOD | {"snapshot": -1},
        GOOD | {"snapshot": 2**63},
        GOOD | {"snapshot": 10**4000},
        GOOD | {"snapshot": "4"},
        GOOD | {"snapshot": 4.0},
        GOOD | {"snapshot": True},
        GOOD | {"snapshot": None},
        GOOD | {"table_id": -1},
        GOOD | {"table_id": "1"},
        GOOD | {"pending": None},
        GOOD | {"pending": {}},
        GOOD | {"pending": [None]},
        GOOD | {"pending": ["1:3-4"]},
        GOOD | {"pending": [{"range_id": "1:3-4"}]},
        GOOD | {"pending": [EVENT | {"range_id": 1}]},
        GOOD | {"pending": [EVENT | {"range_id": "1:3-5"}]},
        GOOD | {"pending": [EVENT | {"range_id": "x:3-4"}]},
        GOOD | {"pending": [EVENT | {"from_snapshot": "3"}]},
        GOOD | {"pending": [EVENT | {"to_snapshot": -4, "range_id": "1:3--4"}]},
        GOOD | {"pending": [EVENT | {"table": None}]},
        GOOD | {"pending": [EVENT | {"table": "finance.payments"}]},
        GOOD | {"pending": [EVENT | {"evil": {"any": ["thing"]}}]},
        GOOD | {"pending": [{name: EVENT[name] for name in EVENT if name != "authors"}]},
        GOOD | {"pending": [EVENT | {"snapshot_id": "'; DROP TABLE x --"}]},
        GOOD | {"pending": [EVENT | {"snapshot_id": 5}]},
        GOOD | {"pending": [EVENT | {"rows_added": "5"}]},
        GOOD | {"pending": [EVENT | {"rows_deleted": -1}]},
        GOOD | {"pending": [EVENT | {"changes": "insert"}]},
        GOOD | {"pending": [EVENT | {"authors": [{}]}]},
        GOOD | {"pending": [EVENT | {"partitions": ["day=a"] * 1001}]},
        GOOD | {"pending": [EVENT | {"is_complete": 1}]},
        GOOD | {"pending": [EVENT | {"recreated": None}]},
        GOOD | {"pending": [EVENT | {"range_id": "\u0663:3-4"}]},
        GOOD | {"pending": [EVENT, {}]},
        {"snapshot": "x" * 100_000},
    ],
)
def test_what_is_no_watermark_is_refused_with_what_to_do(stored):
    assert Watermark.of_json(GOOD, "it", "main.t") == Watermark(4, 1, (EVENT,))

    with pytest.raises(InvalidInputError) as raised:
        Watermark.of_json(stored, "The key 'x' in the store", "main.t")

    said = str(raised.value)
    assert said.startswith("The key 'x' in the store is not a watermark: ")
    assert "Delete it" in said
    assert len(said) < 600


def test_an_event_of_an_older_release_has_no_snapshot_id():
    older = {name: value for name, value in EVENT.items() if name != "snapshot_id"}

    assert Watermark.of_json(GOOD | {"pending": [older]}, "it", "main.T") == Watermark(4, 1, (older,))


def test_what_is_nested_too_deeply_to_be_shown_is_refused_all_the_same():
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]

    with pytest.raises(InvalidInputError, match="it is not a watermark: a list that is nested too deeply"):
        Watermark.of_json(deep, "it", "main.t")
