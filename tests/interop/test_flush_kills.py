"""A flush that is killed or loses its connection at any statement has happened, or has not; the next does it.

The moments are found by a flush that is let through. In CI some of them are drawn.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.concurrency.faulty_writer import Job, Report
from tests.concurrency.test_fault_injection import FAULTS, FaultyWriter, kept, roll_back_what_was_killed
from tests.interop.flushing import Seen, feeds, seen_by_the_reference
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase

pytestmark = [pytest.mark.kills, pytest.mark.both_versions]

HISTORY = (
    "CREATE TABLE t (i INT, s VARCHAR)",
    "INSERT INTO t SELECT x, 'f' FROM range(20) r(x)",
    "INSERT INTO t VALUES (100, 'a'), (101, 'b')",
    "UPDATE t SET s = 'u' WHERE i IN (3, 100)",
    "ALTER TABLE t ADD COLUMN k INT DEFAULT 7",
    "DELETE FROM t WHERE i IN (4, 101)",
    "CREATE TABLE other AS SELECT 1 AS i",
)


@pytest.fixture(scope="module")
def process() -> Iterator[FaultyWriter]:
    with closing(FaultyWriter("tests.interop.faulty_flush")) as process:
        yield process


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_flush_that_fails_anywhere_is_finished_by_the_next(kind, process, new_catalog, seed, size):
    catalog, draw = new_catalog(kind), random.Random(f"{seed} {kind} flush")
    by_duckdb(catalog, *HISTORY)
    rows = seen_by_the_reference(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        changes = feeds(lake)
    with kept(catalog) as copy:
        points = process.run(Job(catalog.sqlalchemy_url, "flush")).points
        for fault in FAULTS[kind]:
            for point in chosen(points, draw, size):
                copy.restore()
                again = fail(process, catalog, Job(catalog.sqlalchemy_url, "flush", fault, point), rows)
                assert again.outcome.error == "", (fault, point, points[point])
                after = seen_by_the_reference(catalog)
                assert {place: after[place] for place in rows} == rows, (fault, point, points[point])
                with Lake.connect(catalog.sqlalchemy_url) as lake:
                    assert feeds(lake) == changes
                    assert lake.flush_inlined_data() == []
                    assert lake.verify() == []


def fail(process: FaultyWriter, catalog: CatalogDatabase, job: Job, rows: Seen) -> Report:
    """Let a flush fail, look at what it left, and flush again."""
    process.run(job)
    if catalog.kind == "sqlite":
        roll_back_what_was_killed(catalog.location)
    after = seen_by_the_reference(catalog)
    assert {place: after[place] for place in rows} == rows
    return process.go_on() if job.fault == "cut" else process.run(Job(job.url, job.scenario))


def chosen(points: list[str], draw: random.Random, size: str) -> list[int]:
    if size == "full":
        return list(range(len(points)))
    last = max(at for at, name in enumerate(points) if name == "in COMMIT")
    return [draw.randrange(last), last]


def test_an_interruption_after_the_commit_leaves_the_files_that_the_lake_names(sqlite_catalog, monkeypatch):
    """A time-out of the task is raised by a signal, at any place."""
    by_duckdb(sqlite_catalog, *HISTORY)
    rows = seen_by_the_reference(sqlite_catalog)
    commit = Committer.commit_change_sets

    def interrupted(*arguments: Any, **named: Any) -> None:
        commit(*arguments, **named)
        raise KeyboardInterrupt

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        monkeypatch.setattr(Committer, "commit_change_sets", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lake.flush_inlined_data()
        monkeypatch.undo()
        assert lake.verify() == []
        assert lake.flush_inlined_data() == []

    after = seen_by_the_reference(sqlite_catalog)
    assert {place: after[place] for place in rows} == rows
