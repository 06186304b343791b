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

import pytest
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import inlined_table
from tests.concurrency.faulty_writer import Job
from tests.concurrency.test_fault_injection import FaultyWriter, roll_back_what_was_killed
from tests.conftest import NewCatalog
from tests.interop.old_lakes import OldLake, copy_lake, forget_snapshots, old_lake, read_alike, writing
from tests.reference.catalog_dump import dump_catalog, dump_schema
from tests.reference.catalogs import CATALOG_KINDS, CatalogKind
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.kills

VERSIONS = {"1.0": ["0.1", "0.2", "0.3"], "1.1": ["0.1", "0.2", "0.3", "1.0", "1.0", "1.0"]}
DRAWN = {"mariadb": 3}  # where each statement is a step of its own; elsewhere there is one COMMIT
LOOKED_AT = [("m", 17), ("m", 22), ("t", 4), ("t", 26)]
INLINED = "m"  # which gets a table for inlined rows, empty but registered
CHANGING = ("ALTER", "CREATE", "INSERT", "UPDATE", "DELETE", "COMMIT")


@pytest.fixture(scope="module")
def process() -> Iterator[FaultyWriter]:
    with closing(FaultyWriter("tests.interop.faulty_migration")) as process:
        yield process


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


def points_of(process: FaultyWriter, lake: OldLake, target: str) -> list[str]:
    report = process.run(Job(lake.catalog.sqlalchemy_url, target))
    assert report.outcome.error == ""
    check_migrated(lake, target)
    return report.points


def chosen(points: list[str], kind: CatalogKind, draw: random.Random, size: str) -> list[int]:
    changing = [at for at, name in enumerate(points) if name.partition(" ")[2].startswith(CHANGING)]
    assert len(changing) > 20
    if size == "full":
        return changing
    return sorted({*draw.sample(changing[:-2], DRAWN.get(kind, 1)), changing[-1]})


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", CATALOG_KINDS)
@pytest.mark.parametrize("target", VERSIONS)
def test_a_migration_that_is_killed_anywhere_is_finished_by_the_next(
    kind, target, process, new_catalog, tmp_path, seed, size, capsys
):
    draw = random.Random(f"{seed} {kind} {target}")
    version = draw.choice(VERSIONS[target])
    lakes = Lakes(kind, version, tmp_path, new_catalog)
    points = points_of(process, lakes.make(), target)
    found: Counter[str] = Counter()
    for point in chosen(points, kind, draw, size):
        try:
            found[what_a_kill_left(process, lakes.make(), point, target)] += 1
        except AssertionError as error:
            error.add_note(f"killed at point {point}, {points[point]}")
            raise

    assert found["new"] >= 1
    assert found["half"] == 0 or kind == "mariadb"
    with capsys.disabled():
        print(f"\n{kind}, {version} to {target}, seed {seed}: {len(points)} points, left {dict(found)}")  # noqa: T201


def what_a_kill_left(process: FaultyWriter, lake: OldLake, point: int, target: str) -> str:
    before = state(lake)
    assert process.run(Job(lake.catalog.sqlalchemy_url, target, "killed", point)).outcome is None

    now = state(lake)
    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        left = "old" if now == before else "new" if ours.version.value == target else "half"
        ours.migrate(target)
    check_migrated(lake, target)
    return left
