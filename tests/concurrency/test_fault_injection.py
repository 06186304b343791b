"""A commit that is killed or loses its connection at any moment has landed, or has not; done again, it
is there once.

The moments are found by a commit that is let through: before and after each statement, and around COMMIT.
In CI some of them are drawn.
"""

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.concurrency.faulty_writer import SCENARIOS, Fault, Job, Outcome, Report, Rows, make_base
from tests.reference.catalog_dump import Dump, catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase, CatalogKind
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.kills

EXPECTED = {scenario.__name__: rows for scenario, rows in SCENARIOS.items()}
DRAWN = 2  # points of each scenario, database and fault, beside those that are always taken
TIMES = {"ci": 1, "full": 40}
OURS = "airflow_ducklake_commit"
FAULTS: dict[CatalogKind, list[Fault]] = {
    "sqlite": ["killed"],  # which has no connection to cut
    "postgres": ["killed", "cut"],
    "mariadb": ["killed", "cut"],
}


class FaultyWriter:
    """The process whose forks do what `module` serves, and fail."""

    def __init__(self, module: str = "tests.concurrency.faulty_writer") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, job: Job) -> Report:
        return self._ask(json.dumps(asdict(job)))

    def go_on(self) -> Report:
        return self._ask("go on")

    def _ask(self, line: str) -> Report:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return Report.of(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def writer() -> Iterator[FaultyWriter]:
    with closing(FaultyWriter()) as writer:
        yield writer


# --- the lake before, after, and before again ---


@contextmanager
def kept(catalog: CatalogDatabase) -> Iterator["Kept"]:
    """Keep the catalog as it is now, to bring it back as often as wanted."""
    if catalog.kind == "sqlite":
        yield KeptFile(catalog)
        return
    with closing(_connect(catalog)) as connection:
        copy = KeptTables(connection, catalog)
        try:
            yield copy
        finally:
            copy.drop()


def _connect(catalog: CatalogDatabase) -> Any:
    if catalog.kind == "postgres":
        return psycopg.connect(catalog.location)
    server = catalog.server
    return pymysql.connect(host=server["host"], port=int(server["port"]), user=server["user"])


class KeptFile:
    def __init__(self, catalog: CatalogDatabase) -> None:
        self._file = Path(catalog.location)
        self._copy = self._file.with_suffix(".kept")
        shutil.copy(self._file, self._copy)

    def restore(self) -> None:
        self._file.with_name(f"{self._file.name}-journal").unlink(missing_ok=True)
        shutil.copy(self._copy, self._file)


class KeptTables:
    """A second schema of the database, or in MariaDB a second database, with a copy of every table."""

    def __init__(self, connection: Any, catalog: CatalogDatabase) -> None:
        self._connection = connection
        is_postgres = catalog.kind == "postgres"
        self._like = "(LIKE {} INCLUDING ALL)" if is_postgres else "LIKE {}"
        self._drop = "DROP SCHEMA {} CASCADE" if is_postgres else "DROP DATABASE {}"
        self._schema = "public" if is_postgres else catalog.database
        self._copy = f"{self._schema}_kept"
        self._run(f"CREATE SCHEMA {self._copy}")
        self._tables = self._names()
        for name in self._tables:
            self._copy_table(name, self._schema, self._copy)
        connection.commit()

    def restore(self) -> None:
        present = self._names()
        for name in present - self._tables:
            self._run(f"DROP TABLE {self._schema}.{name}")
        for name in self._tables & present:
            self._run(f"DELETE FROM {self._schema}.{name}")
            self._run(f"INSERT INTO {self._schema}.{name} SELECT * FROM {self._copy}.{name}")
        for name in self._tables - present:
            self._copy_table(name, self._copy, self._schema)
        self._connection.commit()

    def drop(self) -> None:
        self._run(self._drop.format(self._copy))
        self._connection.commit()

    def _copy_table(self, name: str, source: str, target: str) -> None:
        self._run(f"CREATE TABLE {target}.{name} {self._like.format(f'{source}.{name}')}")
        self._run(f"INSERT INTO {target}.{name} SELECT * FROM {source}.{name}")

    def _names(self) -> set[str]:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        with self._connection.cursor() as cursor:
            cursor.execute(query, (self._schema,))
            return {name for (name,) in cursor.fetchall()}

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


Kept = KeptFile | KeptTables


def contents(dump: Dump) -> dict[str, list[str]]:
    """Return the rows of every table; ours is made before the commit, and counts when it has some."""
    return {table: sorted(map(repr, rows)) for table, rows in dump.items() if rows or table != OURS}


def records(dump: Dump) -> list[dict[str, Any]]:
    return [{**record, "committed_at": None} for record in dump[OURS]]


@dataclass
class Trial:
    """One scenario on one lake: what it makes of the lake, and the points at which it may fail."""

    catalog: CatalogDatabase
    copy: Kept
    writer: FaultyWriter
    scenario: str

    def __post_init__(self) -> None:
        self.before = dump_catalog(self.catalog)
        self.whole = self.run()
        self.after = dump_catalog(self.catalog)
        assert self.whole.outcome == Outcome(self.next_snapshot)
        assert len(self.after["ducklake_snapshot"]) == len(self.before["ducklake_snapshot"]) + 1
        self.check_rows()

    def run(self, fault: Fault = "none", **when: float) -> Report:
        return self.writer.run(Job(self.catalog.sqlalchemy_url, self.scenario, fault, **when))

    @property
    def next_snapshot(self) -> int:
        return 1 + max(row["snapshot_id"] for row in self.before["ducklake_snapshot"])

    @cached_property
    def always(self) -> list[int]:
        """The first moment, that before the first row written, and those around the last COMMIT."""
        names = self.whole.points
        first_write = next(
            at for at, name in enumerate(names) if "ducklake_snapshot" in name and " INSERT INTO " in name
        )
        around = [at for at in range(first_write, len(names)) if names[at].endswith(" COMMIT")]
        return sorted({names.index("begin"), first_write, *around})

    def fail_at(self, fault: Fault, point: int) -> bool:
        """Let the commit fail at a point; what goes wrong names it."""
        try:
            return self.fail(fault, point=point)
        except AssertionError as error:
            error.add_note(f"{fault} at point {point}, {self.whole.points[point]}")
            raise

    def has_landed(self) -> bool:
        """Whether the catalog is as after the commit; True and False are all it may be."""
        if self.catalog.kind == "sqlite":
            roll_back_what_was_killed(self.catalog.location)
        now = dump_catalog(self.catalog)
        if contents(now) == contents(self.before):
            return False
        assert list(catalog_differences(now, self.after)) == []
        assert records(now) == records(self.after)
        return True

    def check_rows(self) -> None:
        expected = EXPECTED[self.scenario]
        assert read_by_the_reference(self.catalog, expected) == {
            table: sorted(rows) for table, rows in expected.items()
        }

    def fail(self, fault: Fault, **when: float) -> bool:
        """Let the commit fail at a moment, then do it again; return whether it had landed already."""
        self.copy.restore()
        first = self.run(fault, **when).outcome
        try:
            landed = self.has_landed()
        finally:  # the writer waits for it, whatever is wrong
            again = self.writer.go_on() if fault == "cut" else self.run()
        if fault == "cut":
            assert_told_the_truth(first, self.next_snapshot, landed=landed)
        else:
            assert first is None
        assert again.outcome == Outcome(self.next_snapshot, is_earlier=landed)
        assert self.has_landed()
        self.check_rows()
        return landed


def roll_back_what_was_killed(file: str) -> None:
    """Do what whoever opens the file next does; only the dump, which may not write, could not read it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()


def assert_told_the_truth(outcome: Outcome, snapshot: int, *, landed: bool) -> None:
    """Check what a commit said that lost its connection; nothing is said of one whose answer was lost."""
    match outcome.error.partition(":")[0]:
        case "":
            assert (outcome.snapshot, outcome.is_earlier, landed) == (snapshot, False, True)
        case "CatalogUnavailableError":
            assert not landed
        case _:
            assert outcome.error.startswith("CommitStateUnknownError:"), outcome


def read_by_the_reference(catalog: CatalogDatabase, tables: Iterable[str]) -> Rows:
    with open_lake(catalog.attach_string, read_only=True) as reference:
        return {table: sorted(reference.sql(f"FROM {table}")) for table in tables}


# --- the tests ---


def drawn(trial: Trial, draw: random.Random, size: str) -> list[int]:
    every = range(len(trial.whole.points))
    if size == "full":
        return list(every)
    return sorted({*trial.always, *draw.sample(every, DRAWN)})


def moments(trial: Trial, draw: random.Random, size: str) -> list[float]:
    """Draw times from the start to a little after the end of the whole commit."""
    return [draw.uniform(0, 1.1 * trial.whole.seconds) for _ in range(TIMES[size])]


@pytest.mark.drawn(one_in=2)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", EXPECTED)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_commit_that_fails_anywhere_is_there_once_when_it_is_done_again(
    new_catalog, writer, kind, scenario, seed, size, capsys
):
    draw = random.Random(f"{seed} {kind} {scenario}")
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        make_base(lake)
    started = time.monotonic()
    with kept(catalog) as copy:
        trial = Trial(catalog, copy, writer, scenario)
        landed: dict[Fault, Counter[bool]] = {}
        for fault in FAULTS[kind]:
            points = drawn(trial, draw, size)
            landed[fault] = Counter(trial.fail_at(fault, point) for point in points)
            assert landed[fault].keys() == {False, True}
        times = moments(trial, draw, size)
        landed["killed at any time"] = Counter(trial.fail("killed at any time", seconds=one) for one in times)

    with capsys.disabled():
        print(report(trial, seed, landed, time.monotonic() - started))  # noqa: T201 - what was tried


def report(trial: Trial, seed: int, landed: dict[Fault, Counter[bool]], seconds: float) -> str:
    tried = "; ".join(
        f"{fault}: {counts.total()} ({counts[True]} landed)" for fault, counts in landed.items()
    )
    return (
        f"\n{trial.catalog.kind}, {trial.scenario}, seed {seed}: {len(trial.whole.points)} points found, "
        f"{tried}; {seconds:.1f} s"
    )
