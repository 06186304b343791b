"""A migration that is killed at any statement leaves a lake that the next migration finishes.

The moments are found by a migration that is let through: before and after each statement that changes
something, and around COMMIT. In CI some of them are drawn.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import inlined_table
from tests.concurrency.faulty_writer import Job, Report
from tests.concurrency.test_fault_injection import FAULTS, FaultyWriter, kept, roll_back_what_was_killed
from tests.conftest import NewCatalog
from tests.interop.lakes import by_duckdb
from tests.interop.old_lakes import OldLake, copy_lake, forget_snapshots, old_lake, read_alike, writing
from tests.interop.restoring import Seen, feeds, seen_by_the_reference
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase, CatalogKind
from tests.reference.duckdb_lake import open_lake

VERSIONS = {"1.0": ["0.1", "0.2", "0.3"], "1.1": ["0.1", "0.2", "0.3", "1.0", "1.0", "1.0"]}
DRAWN = {"mariadb": 3}  # where each statement is a step of its own; elsewhere there is one COMMIT
LOOKED_AT = [("m", 17), ("m", 22), ("t", 4), ("t", 26)]
INLINED = "m"  # which gets a table for inlined rows, empty but registered
CHANGING = ("ALTER", "CREATE", "INSERT", "UPDATE", "DELETE", "COMMIT")


@pytest.fixture(scope="module")
def migration() -> Iterator[FaultyWriter]:
    with closing(FaultyWriter("tests.interop.faulty_migration")) as migration:
        yield migration


class Lakes:
    """Makes the same old lake as often as wanted, each in a database of its own."""

    def __init__(self, kind: CatalogKind, version: str, folder: Path, new_catalog: NewCatalog) -> None:
        self._kind, self._version, self._folder, self._new_catalog = kind, version, folder, new_catalog
        self._numbers = count()

    def make(self) -> OldLake:
        made_of = "0.4" if self._version == "1.0" else self._version
        lake = old_lake(made_of, self._folder / f"old_{next(self._numbers)}")
        if made_of in ("0.2", "0.3"):  # 0.1 has been made to forget them, and later ones have none
            forget_snapshots(lake)
        if self._version == "1.0":
            lake.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
            lake = replace(lake, version="1.0")
        lake = lake if self._kind == "sqlite" else copy_lake(lake, self._new_catalog(self._kind))
        if self._version == "1.0":
            register_inlined(lake)
        return lake


def register_inlined(lake: OldLake) -> None:
    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        table, version = ours.table_snapshot(INLINED), ours.current_snapshot().schema_version
        tables = ours.opened.catalog.tables
    rows = inlined_table(table.schema, table.table_id, version, tables)
    names = {"table_id": table.table_id, "table_name": rows.name, "schema_version": version}
    with writing(lake.catalog) as connection:
        connection.execute(CreateTable(rows))
        connection.execute(tables["inlined_data_tables"].insert(), [names])


def state(lake: OldLake) -> object:
    if lake.catalog.kind == "sqlite":
        roll_back_what_was_killed(lake.catalog.location)
    return dump_schema(lake.catalog), dump_catalog(lake.catalog)


def check_migrated(lake: OldLake, target: str) -> None:
    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        assert ours.version.value == target
        assert ours.verify() == []
        for table, at in LOOKED_AT:
            rows = ours.read_arrow(table, at=at).to_pylist()
            assert sorted(str(tuple(row.values())) for row in rows) == read_alike(lake.rows[str(at)][table])
    if target == "1.1":  # which the reference does not open
        return
    with open_lake(lake.catalog.attach_string, read_only=True) as reference:
        for table, at in LOOKED_AT:
            rows = reference.sql(f"FROM {table} AT (VERSION => {at})")
            assert sorted(map(str, rows)) == lake.rows[str(at)][table]


def points_of(migration: FaultyWriter, lake: OldLake, target: str) -> list[str]:
    report = migration.run(Job(lake.catalog.sqlalchemy_url, target))
    assert report.outcome.error == ""
    check_migrated(lake, target)
    return report.points


def chosen(points: list[str], kind: CatalogKind, draw: random.Random, size: str) -> list[int]:
    changing = [at for at, name in enumerate(points) if name.partition(" ")[2].startswith(CHANGING)]
    assert len(changing) > 20
    if size == "full":
        return changing
    return sorted({*draw.sample(changing[:-2], DRAWN.get(kind, 1)), changing[-1]})


@pytest.mark.kills
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", CATALOG_KINDS)
@pytest.mark.parametrize("target", VERSIONS)
def test_a_migration_that_is_killed_anywhere_is_finished_by_the_next(
    kind, target, migration, new_catalog, tmp_path, seed, size, capsys
):
    draw = random.Random(f"{seed} {kind} {target}")
    version = draw.choice(VERSIONS[target])
    lakes = Lakes(kind, version, tmp_path, new_catalog)
    points = points_of(migration, lakes.make(), target)
    found: Counter[str] = Counter()
    for point in chosen(points, kind, draw, size):
        try:
            found[what_a_kill_left(migration, lakes.make(), point, target)] += 1
        except AssertionError as error:
            error.add_note(f"killed at point {point}, {points[point]}")
            raise

    assert found["new"] >= 1
    assert found["half"] == 0 or kind == "mariadb"
    with capsys.disabled():
        print(f"\n{kind}, {version} to {target}, seed {seed}: {len(points)} points, left {dict(found)}")  # noqa: T201


def what_a_kill_left(migration: FaultyWriter, lake: OldLake, point: int, target: str) -> str:
    before = state(lake)
    assert migration.run(Job(lake.catalog.sqlalchemy_url, target, "killed", point)).outcome is None

    now = state(lake)
    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        left = "old" if now == before else "new" if ours.version.value == target else "half"
        ours.migrate(target)
    check_migrated(lake, target)
    return left


# A flush that is killed or loses its connection at any statement has happened, or has not; the next does it.
#
# The moments are found by a flush that is let through. In CI some of them are drawn.


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
def flush() -> Iterator[FaultyWriter]:
    with closing(FaultyWriter("tests.interop.faulty_flush")) as flush:
        yield flush


@pytest.mark.kills
@pytest.mark.both_versions
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_flush_that_fails_anywhere_is_finished_by_the_next(kind, flush, new_catalog, seed, size):
    catalog, draw = new_catalog(kind), random.Random(f"{seed} {kind} flush")
    by_duckdb(catalog, *HISTORY)
    rows = seen_by_the_reference(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        changes = feeds(lake)
    with kept(catalog) as copy:
        points = flush.run(Job(catalog.sqlalchemy_url, "flush")).points
        for fault in FAULTS[kind]:
            for point in chosen_of_flush(points, draw, size):
                copy.restore()
                again = fail(flush, catalog, Job(catalog.sqlalchemy_url, "flush", fault, point), rows)
                assert again.outcome.error == "", (fault, point, points[point])
                after = seen_by_the_reference(catalog)
                assert {place: after[place] for place in rows} == rows, (fault, point, points[point])
                with Lake.connect(catalog.sqlalchemy_url) as lake:
                    assert feeds(lake) == changes
                    assert lake.flush_inlined_data() == []
                    assert lake.verify() == []


def fail(flush: FaultyWriter, catalog: CatalogDatabase, job: Job, rows: Seen) -> Report:
    """Let a flush fail, look at what it left, and flush again."""
    flush.run(job)
    if catalog.kind == "sqlite":
        roll_back_what_was_killed(catalog.location)
    after = seen_by_the_reference(catalog)
    assert {place: after[place] for place in rows} == rows
    return flush.go_on() if job.fault == "cut" else flush.run(Job(job.url, job.scenario))


def chosen_of_flush(points: list[str], draw: random.Random, size: str) -> list[int]:
    if size == "full":
        return list(range(len(points)))
    last = max(at for at, name in enumerate(points) if name == "in COMMIT")
    return [draw.randrange(last), last]


@pytest.mark.kills
@pytest.mark.both_versions
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
