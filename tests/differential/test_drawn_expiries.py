"""Drawn histories by the reference, expired in drawn steps: a copy of the catalog by us, the lake by it.

Whoever's result is drawn, the history goes on with it.
"""

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep import expiry
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

HISTORIES = {"ci": {"sqlite": 2, "postgres": 1}, "full": {"sqlite": 100, "postgres": 20}}
STATEMENTS, EXPIRIES = 14, 3


# types that columns may have besides the two of every table, and their values by i
VALUES = {
    "INTEGER": "i",
    "VARIANT": "{'a': i, 'l': [i]}::VARIANT",
    "GEOMETRY": "('POINT (' || i || ' 1)')::GEOMETRY",
}


class History:
    """Draws statements that can be run; ``tables`` are there, by name, with the types of added columns."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.tables: dict[str, list[str]] = {}
        self.count = 0

    def statement(self) -> str:
        if not self.tables:
            return self.create()
        rows = [self.insert, self.delete, self.delete_all, self.update]
        others = [self.alter, self.maintain, self.create, self.rename, self.drop, self.view]
        weights = [5, 3, 2, 1.5, 1, 1, 1, 0.7, 0.7, 0.4]
        act = self.draw.choices([*rows, *others], weights)[0]
        return act()

    def name(self) -> str:
        return self.draw.choice(sorted(self.tables))

    def create(self) -> str:
        """Make a table, now and then by a name that another one had."""
        name = f"t{self.draw.randint(1, 4)}"
        self.tables[name] = self.draw.choice([[], [], ["VARIANT"], ["GEOMETRY"]])
        more = "".join(f", c0 {type_}" for type_ in self.tables[name])
        keys = self.draw.choice(["", f"; ALTER TABLE {name} SET PARTITIONED BY (k)"])
        return f"CREATE OR REPLACE TABLE {name} (i INTEGER, k INTEGER{more}){keys}"

    def insert(self) -> str:
        """Add rows: a few are inlined."""
        name, number = self.name(), self.draw.choice([3, 12, 40])
        more = "".join(f", {VALUES[type_]}" for type_ in self.tables[name])
        self.count += number
        rows = f"range({self.count}, {self.count + number}) r(i)"
        return f"INSERT INTO {name} SELECT i, i % 2{more} FROM {rows}"

    def delete(self) -> str:
        return f"DELETE FROM {self.name()} WHERE i % {self.draw.choice([2, 3, 7])} = 1"

    def delete_all(self) -> str:
        return f"DELETE FROM {self.name()}"

    def update(self) -> str:
        return f"UPDATE {self.name()} SET k = k + 1 WHERE i % 5 = 2"

    def alter(self) -> str:
        name = self.name()
        column = f"c{len(self.tables[name])}"
        self.tables[name].append("INTEGER")
        return f"ALTER TABLE {name} ADD COLUMN {column} INTEGER; COMMENT ON TABLE {name} IS 'x'"

    def maintain(self) -> str:
        return self.draw.choice(
            [
                "CALL ducklake_merge_adjacent_files('lake')",
                f"CALL ducklake_flush_inlined_data('lake', table_name => '{self.name()}')",
            ]
        )

    def rename(self) -> str:
        name, free = self.name(), sorted({"t1", "t2", "t3", "t4", "t5"} - self.tables.keys())
        self.tables[free[0]] = self.tables.pop(name)
        return f"ALTER TABLE {name} RENAME TO {free[0]}"

    def drop(self) -> str:
        name = self.name()
        del self.tables[name]
        return f"DROP TABLE {name}"

    def view(self) -> str:
        return f"CREATE OR REPLACE VIEW v AS SELECT {self.draw.randint(1, 9)} AS x"


def copy(source: CatalogDatabase, target: CatalogDatabase) -> None:
    """Make one catalog a copy of the other; the files are those of both."""
    if source.kind == "sqlite":
        shutil.copy(source.location, target.location)
        return
    with psycopg.connect(source.location.replace(source.database, "postgres"), autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{target.database}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{target.database}" TEMPLATE "{source.database}"')


def drawn_versions(ids: list[int], draw: random.Random) -> list[int]:
    if draw.random() < 0.5:
        return ids[: draw.randint(1, len(ids))]  # as an age does
    return draw.sample(ids, draw.randint(1, len(ids)))


def expire_both(lake: CatalogDatabase, twin: CatalogDatabase, draw: random.Random) -> Counter[str]:
    """Expire in the copy what the reference expires in the lake; say how much that was."""
    copy(lake, twin)
    with Lake.connect(twin.sqlalchemy_url) as ours:
        versions = drawn_versions([one.id for one in ours.snapshots()], draw)
        result = ours.expire_snapshots(snapshots=versions)
    with open_lake(lake) as reference:
        expired = reference.sql(f"CALL ducklake_expire_snapshots('lake', versions => {versions})")
    assert sorted(row[0] for row in expired) == [one.id for one in result.snapshots]
    assert_catalogs_equal(dump_catalog(twin), dump_catalog(lake))
    files = result.data_files + result.delete_files
    return Counter(snapshots=len(expired), files=files, tables=result.tables)


def clean_up_both(lake: CatalogDatabase, twin: CatalogDatabase) -> int:
    """See that the same files go; and that none is left then that no row names."""
    copy(lake, twin)
    with Lake.connect(twin.sqlalchemy_url) as ours:
        done = ours.cleanup_old_files(older_than=timedelta(0))
        assert (done.missing, done.named, done.failures) == ((), (), ())
        assert ours.delete_orphaned_files(older_than=timedelta(0), dry_run=True).deleted == ()
    with open_lake(lake) as reference:
        removed = reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        assert reference.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)") == []
    assert sorted(path for (path,) in removed) == sorted(done.deleted)
    assert_catalogs_equal(dump_catalog(twin), dump_catalog(lake))
    return len(removed)


@pytest.mark.timeout(3600)
def test_drawn_expiries_leave_the_references_catalog(
    new_catalog, catalog_kind, seed, size, capsys, monkeypatch
):
    monkeypatch.setattr(expiry, "SNAPSHOTS_AT_ONCE", 5)  # in parts it comes to the same
    monkeypatch.setattr(expiry, "_HOLES_AT_ONCE", 2)
    counts: Counter[str] = Counter()
    for number in range(HISTORIES[size][catalog_kind]):
        draw = random.Random(f"{seed} {number}")
        history, log = History(draw), []
        is_encrypted = draw.random() < 1 / 3
        lake, twin = (replace(new_catalog(catalog_kind), is_encrypted=is_encrypted) for _ in range(2))
        try:
            for _ in range(EXPIRIES):
                with open_lake(lake) as reference:
                    for _ in range(STATEMENTS):
                        log.append(history.statement())
                        reference.sql(log[-1])
                counts += expire_both(lake, twin, draw)
                if draw.random() < 0.5:
                    copy(twin, lake)
            counts["files removed"] += clean_up_both(lake, twin)
        except Exception as error:
            error.add_note(f"seed {seed}, history {number}:\n" + ";\n".join(log))
            raise
    with capsys.disabled():
        print(f"\n{catalog_kind}, seed {seed}: expired {dict(counts)}")  # noqa: T201 - what was drawn
    assert counts["files removed"]
    assert counts["tables"] or size == "ci" or catalog_kind != "sqlite"
