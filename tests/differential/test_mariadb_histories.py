"""Drawn histories leave the same lake in MariaDB as in SQLite, where the reference cannot follow.

So they also do what the reference gets wrong elsewhere: alter one table several times in one transaction.
Nothing is inlined, as in every lake in MariaDB. A failure names the seed and the shortest history that fails.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Self

import pyarrow as pa
import pytest

from tests.differential.drawn_changes import Change
from tests.differential.drawn_lake import ID, Table
from tests.differential.free_changes import FreeChanges
from tests.differential.histories import HISTORY, play
from tests.differential.twin import OurLake
from tests.reference.catalog_dump import catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.databases

HISTORIES = {"ci": 1, "full": 12}
LOOK = 12  # transactions between two looks at the rows
EACH_AT_LEAST = 10  # changes of each kind, at full size


class Pair:
    """Two lakes of ours, and one of the reference that is only asked for the rows that are added."""

    def __init__(self, ours: Sequence[CatalogDatabase], values: CatalogDatabase) -> None:
        with ExitStack() as stack:
            reference = stack.enter_context(open_lake(values))
            reference.sql("SET arrow_lossless_conversion = true")
            self.lakes = [OurLake(catalog, reference) for catalog in ours]
            for one in self.lakes:
                stack.enter_context(one.lake).set_option("data_inlining_row_limit", 0)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def carry_out(self, changes: Sequence[Change]) -> None:
        for one in self.lakes:
            one.commit(changes)

    def differences(self) -> list[str]:
        """Return how the two catalogs differ."""
        return list(catalog_differences(*(dump_catalog(one.ours) for one in self.lakes)))


@pytest.mark.timeout(3600)
def test_drawn_histories_leave_the_same_lake_in_mariadb_and_sqlite(new_catalog, seed, size, capsys):
    counts: Counter[str] = Counter()
    together: Counter[int] = Counter()
    looks: Counter[str] = Counter()

    def new_pair() -> Pair:
        return Pair([new_catalog("mariadb"), new_catalog("sqlite")], new_catalog("duckdb"))

    def look(pair: Pair) -> None:
        for table in changes.lake.tables:
            rows_agree(pair, table)
            looks[look_of(table)] += 1
            our_readers_agree(pair, table)

    for index in range(HISTORIES[size]):
        changes = FreeChanges(random.Random(f"{seed} {index}"), counts, together, inlining=False)
        play(new_pair, history(changes), f"seed {seed}, history {index}", look, every=LOOK)

    with capsys.disabled():
        print(report(seed, HISTORIES[size] * HISTORY, counts, together, looks))  # noqa: T201 - what was drawn
    assert together.total() >= 5 * HISTORIES[size]
    if size == "full":
        assert {name: counts[name] for name in changes.kinds if counts[name] < EACH_AT_LEAST} == {}


def history(changes: FreeChanges) -> Iterator[list[Change]]:
    """Yield transactions; before a look every table gets rows, and some lose a few."""
    for number in range(HISTORY):
        match LOOK - number % LOOK:
            case 2:
                yield changes.rows() or changes.transaction()
            case 1:
                yield changes.rows(deleted=True) or changes.transaction()
            case _:
                yield changes.transaction()


def look_of(table: Table) -> str:
    """Say what there is to see: files of which some rows are deleted, only whole ones, or nothing."""
    if any(batch is not None and batch.deletes for batch in table.live.values()):
        return "with delete files"
    return "with rows" if table.live else "empty"


def rows_agree(pair: Pair, table: Table) -> None:
    """Let the reference read a table in both: the same rows, and those that the history left."""
    shown = []
    for one in pair.lakes:
        with open_lake(one.ours.attach_string, read_only=True) as reference:
            described = reference.sql(f"DESCRIBE {table.sql}")
            shown.append((described, sorted(map(repr, reference.sql(f"FROM {table.sql}")))))
            ids = [row[0] for row in reference.sql(f"SELECT {ID} FROM {table.sql} ORDER BY {ID}")]
            assert ids == sorted(table.live), table.sql
    assert shown[0] == shown[1], table.sql


def our_readers_agree(pair: Pair, table: Table) -> None:
    """Read a table of both by our own reader: the same rows, and those that the history left."""
    mariadb, sqlite = (_rows(one, table) for one in pair.lakes)
    assert mariadb == sqlite, table.sql
    assert mariadb[ID].to_pylist() == sorted(table.live), table.sql


def _rows(lake: OurLake, table: Table) -> pa.Table:
    return lake.lake.read_arrow(table.qualified).sort_by(ID)


def report(seed: int, steps: int, counts: Counter[str], together: Counter[int], looks: Counter[str]) -> str:
    lines = [f"\nmariadb and sqlite, seed {seed}: {steps} transactions, {counts.total()} changes:"]
    lines += [f"{count:6} {name}" for name, count in sorted(counts.items())]
    lines += [
        f"{count:6} times {number} alterations of a table at once"
        for number, count in sorted(together.items())
    ]
    lines += [f"{count:6} tables looked at: {name}" for name, count in sorted(looks.items())]
    return "\n".join(lines)
