"""What a watcher remembers comes back as it was; what somebody else wrote in its place is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.watch import RangeReport, Watermark, event_of

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
