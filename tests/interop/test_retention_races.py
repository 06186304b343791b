"""Drawn interleavings of writers, readers, expiries and clean-ups, some of them killed: nobody misses a file.

One process plays all of them. Whenever an expiry or a clean-up gives its connection back, others take drawn
steps before it goes on, or it is killed there, or in the middle of a statement. After each deletion whatever
anybody may still read has to be there; at the end each kept snapshot is read by us, the newest by DuckDB.
"""

import fcntl
import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep import cleanup, expiry, orphans
from airflow_provider_ducklake.lake.errors import (
    FilesReleasedError,
    SnapshotNotFoundError,
    TransactionConflictError,
)
from airflow_provider_ducklake.lake.format.names.paths import CatalogPath
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.planning.writing.write import append_to_existing
from airflow_provider_ducklake.lake.storage.rows.table_reader import read_rows
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet
from tests.interop.jobs import rows_of, stage
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

INTERLEAVINGS = {"ci": {"sqlite": 8, "postgres": 2}, "full": {"sqlite": 1000, "postgres": 100}}
STEPS = 14
FILE_CLOCK = timedelta(milliseconds=20)  # so much may a file's time lie behind, even of one made just now
DEEPEST = 2  # clean-ups within clean-ups


class Killed(BaseException):
    """The end of a process, wherever it was."""


@dataclass
class Write:
    """Rows that are written and not committed; ``tx`` or ``staged`` will commit them."""

    ids: list[int]
    began: datetime
    tx: LakeTransaction | None = None
    staged: StagedWrite | None = None


@dataclass
class Scan:
    """A reader that has planned and not yet read."""

    plan: Any
    ids: list[int]
    began: datetime


@dataclass
class Play:
    """One lake, what each of its snapshots holds, and who is under way."""

    catalog: CatalogDatabase
    lake: Lake
    draw: random.Random
    counts: Counter[str]
    held: dict[int, list[int] | None] = field(default_factory=dict)  # rows of t by snapshot; None: no t
    writes: list[Write] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    next_id: int = 0
    depth: int = 0
    log: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.lake.set_option("data_inlining_row_limit", 0)
        self.note(None)
        self.create()
        for _ in range(3):
            self.append()
            self.empty()
        self.append()

    def note(self, ids: list[int] | None) -> None:
        self.held[self.lake.current_snapshot().id] = None if ids is None else sorted(ids)

    @property
    def now(self) -> list[int] | None:
        return self.held[max(self.held)]

    def new_ids(self) -> list[int]:
        first, self.next_id = self.next_id, self.next_id + self.draw.randint(1, 4)
        return list(range(first, self.next_id))

    def step(self) -> None:
        acts: list[tuple[Callable[[], object], float]] = [
            (self.append, 3),
            (self.delete, 2),
            (self.empty, 1),
            (self.begin_write, 2),
            (self.end_write, 3),
            (self.kill_write, 1),
            (self.begin_stage, 2),
            (self.open_scan, 3),
            (self.read_scan, 3),
            (self.drop, 0.7),
            (self.theirs, 0.3),
        ]
        if self.depth < DEEPEST:
            acts += [
                (self.tag, 1),
                (self.untag, 0.5),
                (self.expire, 3),
                (self.clean_up, 3),
                (self.delete_orphans, 3),
            ]
        act, _ = self.draw.choices(acts, [weight for _, weight in acts])[0]
        self.log.append(f"{'  ' * self.depth}{act.__name__}")
        act()

    def create(self) -> None:
        alone(self.lake).create_table("t", {"id": "int64"})
        self.note([])

    def drop(self) -> None:
        if self.now is None:
            self.create()
            return
        alone(self.lake).drop_table("t")
        self.note(None)

    def append(self) -> None:
        if self.now is None:
            return
        ids = self.new_ids()
        self.lake.append_arrow("t", rows_of(*ids))
        self.note([*self.now, *ids])

    def delete(self) -> None:
        if not self.now:
            return
        limit = self.draw.choice(self.now)
        alone(self.lake).delete_rows("t", f"id <= {limit}")
        self.note([one for one in self.now if one > limit])

    def empty(self) -> None:
        if not self.now:
            return
        alone(self.lake).truncate("t")
        self.note([])

    def theirs(self) -> None:
        if self.now is None:
            return
        ids = self.new_ids()
        with open_lake(self.catalog, data_inlining_row_limit=0) as reference:
            reference.sql(f"INSERT INTO t VALUES {', '.join(f'({one})' for one in ids)}")
        self.note([*self.now, *ids])

    def begin_write(self) -> None:
        if self.now is None:
            return
        began, ids, tx = datetime.now(UTC), self.new_ids(), self.lake.transaction()
        tx.append_arrow("t", rows_of(*ids))
        self.writes.append(Write(ids, began, tx))

    def begin_stage(self) -> None:
        if self.now is None:
            return
        ids = self.new_ids()
        self.writes.append(Write(ids, datetime.now(UTC), staged=stage(self.lake, "t", rows_of(*ids))))

    def end_write(self) -> None:
        if not self.writes:
            return
        write = self.writes.pop(self.draw.randrange(len(self.writes)))
        before = self.lake.current_snapshot().id
        try:
            if write.tx is not None:
                with write.tx:
                    pass
            else:
                assert write.staged is not None
                changes = append_to_existing(write.staged.target, write.staged.result)
                change_sets = [ChangeSet(write.staged.base, changes)]
                self.lake.committer.commit_change_sets(
                    change_sets, CommitInfo(), job_ids=[write.staged.job_id]
                )
        except (FilesReleasedError, TransactionConflictError):
            assert self.lake.current_snapshot().id == before  # t was dropped, or the job given up
            self.counts["writes refused"] += 1
        else:
            assert self.now is not None
            self.note([*self.now, *write.ids])

    def kill_write(self) -> None:
        """Leave the files where they are, and never come back."""
        if self.writes:
            self.writes.pop(self.draw.randrange(len(self.writes)))
            self.counts["writers killed"] += 1

    def open_scan(self) -> None:
        at = self.draw.choice([one for one in self.kept() if self.held[one] is not None] or [-1])
        if at >= 0:
            plan = self.lake.scan("t", at=at)
            self.scans.append(Scan(plan, self.held[at] or [], datetime.now(UTC)))

    def read_scan(self) -> None:
        if self.scans:
            scan = self.scans.pop(self.draw.randrange(len(self.scans)))
            assert sorted(read_rows(scan.plan, self.lake.locate)["id"].to_pylist()) == scan.ids

    def kept(self) -> list[int]:
        return [one.id for one in self.lake.snapshots()]

    def tag(self) -> None:
        """Tag any snapshot that ever was: it is there, or tagging it fails."""
        at, name = self.draw.choice(sorted(self.held)), f"tag {self.counts['tags']}"
        try:
            self.lake.tag(name, at)
            self.counts["tags"] += 1
        except SnapshotNotFoundError:
            assert at not in self.kept()

    def untag(self) -> None:
        if tags := self.lake.tags():
            self.lake.untag(self.draw.choice(tags).name)

    def expire(self) -> None:
        with self.doing() as lake:
            lake.expire_snapshots(keep_last=self.draw.randint(1, 4), keep=[self.draw.randint(0, 9)])

    def clean_up(self) -> None:
        """Go as far as readers allow: those who have begun still read."""
        began = [scan.began for scan in self.scans]
        with self.doing() as lake:
            lake.cleanup_old_files(older_than=min(began, default=datetime.now(UTC)))

    def delete_orphans(self) -> None:
        """Go as far as writers allow that nobody knows of; those of staged writes do not matter."""
        began = [write.began for write in self.writes if write.tx is not None]
        ttl = timedelta(0) if self.draw.random() < 0.15 else timedelta(days=1)
        with self.doing() as lake:
            moment = min(began, default=datetime.now(UTC)) - FILE_CLOCK
            lake.delete_orphaned_files(older_than=moment, stage_ttl=ttl, sole_owner=True)

    @contextmanager
    def doing(self) -> Iterator[Lake]:
        """Let something happen in between, in a process of its own that may be killed."""
        before = self.files()
        self.depth += 1
        try:
            with Lake.connect(self.catalog.sqlalchemy_url) as lake, self.interrupting(lake), suppress(Killed):
                yield lake
        finally:
            self.depth -= 1
        self.counts["files deleted"] += len(before - self.files())
        self.check()

    @contextmanager
    def interrupting(self, lake: Lake) -> Iterator[None]:
        engine = lake.opened.catalog.dialect.engine
        is_dead = False

        def kill() -> None:
            nonlocal is_dead
            is_dead = True
            self.counts["kills"] += 1
            self.log.append(f"{'  ' * self.depth}killed")
            raise Killed

        def before_statement(*_: object) -> None:
            if not is_dead and self.draw.random() < 0.01:
                kill()

        def after_reading(connection: Any, _: object) -> None:
            if is_dead or is_locked(self.catalog):
                return
            if self.draw.random() < 0.05:
                connection.close()  # as the end of a process does
                kill()
            while self.draw.random() < 0.35:
                self.counts["steps in between"] += 1
                self.step()

        with ExitStack() as listeners:
            for name, listener in (("before_cursor_execute", before_statement), ("checkin", after_reading)):
                event.listen(engine, name, listener)
                listeners.callback(event.remove, engine, name, listener)
            yield

    def files(self) -> set[str]:
        return {str(path) for path in Path(self.catalog.data_path).rglob("*.parquet")}

    def check(self) -> None:
        """Look whether everything is there that somebody may read."""
        named = set(named_files(self.catalog))
        planned = {file.path for scan in self.scans for file in scan.plan.files}
        known = self.lake.jobs.registered([one.staged.job_id for one in self.writes if one.staged])
        staged = {
            file.path
            for one in self.writes
            if one.staged and known[one.staged.job_id].released_at is None
            for file in one.staged.result.data_files
        }
        assert named | planned | staged <= self.files(), "\n".join(self.log)

    def end(self) -> None:
        while self.scans:
            self.read_scan()
        while self.writes:
            self.end_write()
        self.counts["files deleted at the end"] += self.delete_the_rest()
        for snapshot in self.kept():
            ids = self.held[snapshot]
            if ids is not None:
                assert sorted(self.lake.read_arrow("t", at=snapshot)["id"].to_pylist()) == ids
        assert self.lake.verify() == []
        for tag in self.lake.tags():
            ids = self.held[tag.snapshot_id]
            if ids is not None:
                assert sorted(self.lake.read_arrow("t", at=f"tag:{tag.name}")["id"].to_pylist()) == ids
        left = self.files() - set(named_files(self.catalog))
        assert left == set(), "\n".join([*self.log, *left])

    def delete_the_rest(self) -> int:
        before = self.files()
        self.lake.expire_snapshots(keep_last=2)
        self.lake.cleanup_old_files(older_than=timedelta(0))
        self.lake.delete_orphaned_files(older_than=datetime.now(UTC), stage_ttl=timedelta(0), sole_owner=True)
        return len(before - self.files())

    def read_by_reference(self) -> None:
        if self.now is not None:
            assert [one for (one,) in by_duckdb(self.catalog, "SELECT id FROM t ORDER BY id")] == self.now


def is_locked(catalog: CatalogDatabase) -> bool:
    """Whether this very process holds the lock file, under which nobody else can act."""
    if catalog.kind != "sqlite":
        return False  # PostgreSQL's ends with the transaction
    with Path(f"{catalog.location}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def named_files(catalog: CatalogDatabase) -> Iterator[str]:
    """Yield the files that snapshots name, by the catalog's own rows."""
    dump = dump_catalog(catalog)
    schemas = {row["schema_id"]: row["path"] for row in dump["ducklake_schema"]}
    roots = {row["table_id"]: schemas[row["schema_id"]] + row["path"] for row in dump["ducklake_table"]}
    for kind in ("data_file", "delete_file"):
        for row in dump[f"ducklake_{kind}"]:
            path = CatalogPath(row["path"], bool(row["path_is_relative"]))
            yield path.below(catalog.data_path + roots[row["table_id"]])


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be many moments at which others can act."""
    monkeypatch.setattr(expiry, "SNAPSHOTS_AT_ONCE", 2)
    monkeypatch.setattr(cleanup, "FILES_AT_ONCE", 1)
    monkeypatch.setattr(orphans, "FILES_AT_ONCE", 1)


# One that is killed while the driver hands it a cursor cannot close that; a real kill ends its process.
@pytest.mark.filterwarnings("ignore:.*Cursor.* was deleted while still open:ResourceWarning")
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("in_small_parts")
def test_nobody_misses_a_file(new_catalog, catalog_kind, seed, size, capsys):
    counts: Counter[str] = Counter()
    for number in range(INTERLEAVINGS[size][catalog_kind]):
        catalog = new_catalog(catalog_kind)
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
            play = Play(catalog, lake, random.Random(f"{seed} {number}"), counts)
            before, steps = counts["files deleted"], 0
            try:
                play.begin()
                while steps < STEPS or counts["files deleted"] == before:
                    play.step()
                    steps += 1
                play.end()
                if number % 10 == 0:
                    play.read_by_reference()
            except Exception as error:
                error.add_note(f"seed {seed}, interleaving {number}:\n" + "\n".join(play.log))
                raise
    with capsys.disabled():
        shown = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(f"\n{catalog_kind}, seed {seed}: {INTERLEAVINGS[size][catalog_kind]} interleavings: {shown}")  # noqa: T201
    gc.collect()
    assert counts["kills"]
    assert counts["steps in between"]
