"""Commits by DuckDB start DAGs of a real Airflow, whose processes are killed at drawn moments."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.airflow.conftest import connection_fields
from tests.airflow.services import SERVICES, Airflow
from tests.airflow.test_snapshot_sensor import commit_to
from tests.airflow.watched import PATIENCE, events_in, heard, newest, watched
from tests.reference.catalogs import CatalogDatabase

pytestmark = pytest.mark.services

ROUNDS = {"ci": 1, "full": 20}
INTERVAL = 2.0  # seconds between two polls
SETUP = "CREATE TABLE orders (id INT); CREATE TABLE others (id INT); INSERT INTO orders VALUES (0)"


@pytest.fixture
def watching(tmp_path, postgres_catalog) -> Iterator[tuple[Airflow, CatalogDatabase, Path, int]]:
    """An Airflow with a DAG that consumes the changes of a table; of two equal watchers one is idle."""
    since = commit_to(postgres_catalog, SETUP)
    with watched(tmp_path, connection_fields(postgres_catalog), since, INTERVAL, watchers=2) as (
        one,
        consumed,
    ):
        yield one, postgres_catalog, consumed, since


@pytest.mark.timeout(3600)
def test_commits_start_runs_and_none_is_lost_whatever_is_killed(watching, seed, size, capsys):
    one, catalog, consumed, since = watching
    started = time.monotonic()
    first = commit_to(catalog, "INSERT INTO orders VALUES (-1)")
    one.wait(lambda: newest(consumed) >= first, PATIENCE, "no run of the first commit")

    begin = time.monotonic()
    second = commit_to(catalog, "INSERT INTO orders VALUES (-2)")
    one.wait(lambda: newest(consumed) >= second, PATIENCE, "no run of the second commit")
    delay = time.monotonic() - begin

    before = one.query("SELECT count(*) FROM asset_event")[0][0]
    last = commit_to(catalog, "; ".join(f"INSERT INTO orders VALUES ({number})" for number in range(500)))
    commit = partial(commit_to, catalog, "INSERT INTO orders VALUES (-3)")
    more = heard(one, consumed, last, commit)
    burst = one.query("SELECT count(*) FROM asset_event")[0][0] - before - more

    draw = random.Random(seed)
    killed: Counter[str] = Counter()
    for number in range(ROUNDS[size]):
        last = play(one, catalog, draw, number, killed)
    more += heard(one, consumed, last, commit)

    events = events_in(consumed)
    repeats = check(catalog, events, since)
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn and seen
            f"\nwatched asset, seed {seed}, {ROUNDS[size]} rounds in {time.monotonic() - started:.0f} s: "
            f"first run after {delay:.1f} s, {burst} events of 500 commits, {dict(killed)} killed, "
            f"{last - since} snapshots in {len(events)} events, none lost, {repeats} repeated, "
            f"{more} commits more until Airflow started a run of the last event"
        )
    assert "Another watcher of this asset" in (one.home / "triggerer.log").read_text()
    assert burst <= 500 / 20
    assert repeats <= sum(killed.values())
    assert more <= 1 + ROUNDS[size] / 4


def play(
    one: Airflow, catalog: CatalogDatabase, draw: random.Random, number: int, killed: Counter[str]
) -> int:
    """Commit, kill at a drawn moment, commit, start again, commit; return the newest snapshot."""
    victims = draw.choice([("triggerer",), ("scheduler",), SERVICES])
    last = commit_to(catalog, f"INSERT INTO orders VALUES ({number}); INSERT INTO others VALUES ({number})")
    time.sleep(draw.uniform(0, 2 * INTERVAL))
    one.kill(*victims)
    killed[" and ".join(victims)] += 1
    if draw.random() < 0.7:
        last = commit_to(catalog, f"DELETE FROM orders WHERE id = {number}; INSERT INTO orders VALUES (7)")
    one.start(*victims)
    time.sleep(draw.uniform(0, 10 * INTERVAL))
    return last


def check(catalog: CatalogDatabase, events: list[dict[str, Any]], since: int) -> int:
    """Compare what was consumed with the change feed; return how many ranges came again."""
    ranges = {event["range_id"]: event for event in events}
    assert all(event == ranges[event["range_id"]] for event in events)
    covered = Counter(
        snapshot
        for event in ranges.values()
        for snapshot in range(event["from_snapshot"] + 1, event["to_snapshot"] + 1)
    )
    assert set(covered.values()) == {1}
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        feed = lake.changes("orders", since + 1, lake.current_snapshot().id).read_arrow()
    assert set(feed["snapshot_id"].to_pylist()) <= set(covered)
    inserts = sum(kind == "insert" for kind in feed["change_type"].to_pylist())
    assert sum(event["rows_added"] for event in ranges.values()) == inserts
    return len(events) - len(ranges)
