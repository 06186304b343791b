"""Drawn histories leave the same lake at 1.0 and at 1.1, but for the columns that 1.1 has besides.

The lakes are ours; the reference is only asked for the rows that are added. ducklakepy, which has 1.1, reads
each snapshot of the newer one; what it cannot read is counted and named. A failure names the seed and the
shortest history that fails.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Self

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
from tests.differential.drawn_changes import KINDS, Change, Changes
from tests.differential.histories import HISTORY, play
from tests.differential.twin import OurLake
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import Dump, catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.reference.next.process import OracleError
from tests.reference.words_of_1_0 import in_words_of_1_0

HISTORIES = {"ci": {"sqlite": 1, "postgres": 1}, "full": {"sqlite": 60, "postgres": 4}}
LOOK = 15  # transactions between two looks at the rows
EACH_AT_LEAST = 30  # changes of each kind, at full size


class Versions:
    """A lake at 1.0 and one at 1.1, open."""

    def __init__(self, old: CatalogDatabase, new: CatalogDatabase, values: CatalogDatabase) -> None:
        with ExitStack() as stack:
            reference = stack.enter_context(open_lake(values))
            reference.sql("SET arrow_lossless_conversion = true")
            self.lakes = [OurLake(old, reference), OurLake(new, reference, version="1.1")]
            for one in self.lakes:
                stack.enter_context(one.lake)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def carry_out(self, changes: Sequence[Change]) -> None:
        for one in self.lakes:
            one.commit(changes)

    def differences(self) -> list[str]:
        """Return how the two catalogs differ, but for what 1.1 has besides."""
        old, new = (dump_catalog(one.ours) for one in self.lakes)
        return [*_flags_that_lie(new), *catalog_differences(old, in_words_of_1_0(new))]


def _flags_that_lie(dump: Dump) -> Iterator[str]:
    """Yield bounds that say nothing of themselves, and flags of bounds that are not there."""
    for table in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        for row in dump[table]:
            for end in ("min", "max"):
                if (row[f"{end}_value"] is None) != (row[f"{end}_is_exact"] is None):
                    yield f"{table}: {row}"


@pytest.mark.timeout(14_400)
def test_drawn_histories_leave_the_same_lake(new_catalog, catalog_kind, seed, size, capsys):
    counts: Counter[str] = Counter()
    looks: Counter[str] = Counter()

    def new_versions() -> Versions:
        return Versions(new_catalog(catalog_kind), new_catalog(catalog_kind), new_catalog("duckdb"))

    def look(versions: Versions) -> None:
        rows_agree(versions, looks)
        assert versions.lakes[1].lake.verify() == []

    number = HISTORIES[size][catalog_kind]
    for index in range(number):
        changes = Changes(random.Random(f"1.1 {seed} {index}"), counts)
        changes.values.without = frozenset(["variant"])  # which only 1.1 inlines
        drawn = (changes.transaction() for _ in range(HISTORY))
        play(new_versions, drawn, f"seed {seed}, history {index}", look, every=LOOK)

    with capsys.disabled():
        print(report(seed, number * HISTORY, counts, looks))  # noqa: T201 - what was drawn
    if size == "full" and catalog_kind == "sqlite":
        assert {name: counts[name] for name in KINDS if counts[name] < EACH_AT_LEAST} == {}


def rows_agree(versions: Versions, looks: Counter[str]) -> None:
    """Read every table at every snapshot of both, and of the newer one by ducklakepy as well."""
    old, new = (one.lake for one in versions.lakes)
    with ducklakepy_lake.open_lake(versions.lakes[1].ours) as theirs:
        for snapshot in new.snapshots():
            assert old.tables(snapshot.id) == new.tables(snapshot.id)
            for name in new.tables(snapshot.id):
                rows = [lake.read_arrow(name, at=snapshot.id) for lake in (old, new)]
                assert rows[0].equals(rows[1]), (snapshot.id, str(name))
                try:
                    count = theirs.count(name.parts, snapshot.id)
                except OracleError as error:
                    looks[_refused(error)] += 1
                    continue
                assert count == rows[1].num_rows, (snapshot.id, str(name))
                looks["read by ducklakepy"] += 1
        for row in new.reads.table_rows():
            feeds_agree(new, theirs, row, looks)


def feeds_agree(
    lake: Lake, theirs: ducklakepy_lake.DuckLakePyLake, row: TableRow, looks: Counter[str]
) -> None:
    """Compare what happened to each row id of a table, since the table is there."""
    newest = lake.current_snapshot().id
    ours = lake.changes(row.qualified, row.begin_snapshot, newest).read_arrow()
    try:
        other = theirs.changes(row.qualified.parts, row.begin_snapshot, newest)
    except OracleError as error:
        looks[_refused(error)] += 1
        return
    names = ("snapshot_id", "rowid", "change_type")
    found = [Counter(zip(*(feed[name].to_pylist() for name in names), strict=True)) for feed in (ours, other)]
    assert found[0] == found[1], str(row.qualified)
    looks["whose changes are ducklakepy's"] += 1


def _refused(error: OracleError) -> str:
    """Name what ducklakepy cannot read, or raise: in PostgreSQL it looks for names as they were given.

    DuckDB writes a bare name there, which PostgreSQL folds, and so do we.
    """
    if "was created with other columns" not in str(error):
        raise error
    return "refused by ducklakepy: inlined columns with capitals"


def report(seed: int, steps: int, counts: Counter[str], looks: Counter[str]) -> str:
    lines = [f"\n1.0 and 1.1, seed {seed}: {steps} transactions, {counts.total()} changes:"]
    lines += [f"{count:6} {name}" for name, count in sorted(counts.items())]
    lines += [f"{count:6} tables at a snapshot {name}" for name, count in sorted(looks.items())]
    return "\n".join(lines)
