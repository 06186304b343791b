"""Drawn sequences of commits, clears and restores leave the rows that a small serial model says."""

import random
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, CommittedSnapshot, OnClear
from airflow_provider_ducklake.lake.planning.writing.write import append_to_existing, plan_write
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet
from tests.concurrency.arrow_jobs import write
from tests.reference.duckdb_lake import open_lake

HISTORIES = {"ci": (2, 20), "full": (100, 60)}
TABLES = ("t", "u")
TASKS = ("load", "add")
SCHEMA = pa.schema([("i", pa.int64())])
STEPS = {
    "clear": 8,
    "run_again": 2,
    "retry": 2,
    "append_of_others": 2,
    "delete_of_others": 2,
    "merge_files": 1,
    "drop_table": 1,
    "drop_schema": 1,
    "come_back_empty": 2,
    "restore": 7,
    "expire": 1,
}


@dataclass(frozen=True)
class Table:
    """Its rows, and which of them each task's last commit added."""

    rows: frozenset[int] = frozenset()
    last: dict[str, frozenset[int]] = field(default_factory=dict)


@dataclass
class Story:
    """A lake, what it should hold, and what it held at each snapshot: a table that is missing was dropped."""

    lake: Lake
    catalog: object
    draw: random.Random
    tables: dict[str, Table] = field(default_factory=lambda: dict.fromkeys(TABLES, Table()))
    past: dict[int, dict[str, Table]] = field(default_factory=dict)
    generations: Counter = field(default_factory=Counter)
    commits: dict[str, int] = field(default_factory=dict)
    next_row: int = 0
    told: list[str] = field(default_factory=list)

    def begin(self) -> None:
        with self.lake.transaction() as tx:
            tx.create_schema("s")
            for name in TABLES:
                tx.create_table(f"s.{name}", SCHEMA)
        self.remember()

    def remember(self) -> None:
        """Note what the newest snapshot holds, and compare it with the lake."""
        self.past.setdefault(self.lake.current_snapshot().id, dict(self.tables))
        found = {
            row.qualified.name: sorted(self.lake.read_arrow(row.qualified)["i"].to_pylist())
            for row in self.lake.reads.table_rows()
        }
        assert found == {name: sorted(table.rows) for name, table in self.tables.items()}, self.told

    def new_rows(self, count: int | None = None) -> frozenset[int]:
        first = self.next_row
        self.next_row += count or self.draw.randint(1, 4)
        return frozenset(range(first, self.next_row))

    # --- tasks ---

    def clear(self) -> None:
        task = self.draw.choice(TASKS)
        self.generations[task] += self.draw.randint(1, 2)
        self.commit(task)

    def run_again(self) -> None:
        task = self.draw.choice(TASKS)
        self.generations[task] = 1
        self.commit(task, starts_over=True)

    def commit(self, task: str, *, starts_over: bool = False) -> None:
        on_clear = OnClear.APPEND if self.draw.random() < 0.25 else OnClear.REPLACE
        wanted = self.draw.sample(TABLES, self.draw.choice([0, 1, 1, 1, 2]))
        new = {name: self.new_rows() for name in wanted if name in self.tables}
        landed = self.land(task, new, on_clear, starts_over=starts_over)
        self.told.append(f"{task} {self.generations[task]} {on_clear} {new} -> {landed and landed.id}")
        if landed is None:
            return
        assert not landed.is_earlier
        self.commits[task] = landed.id
        for name, table in self.tables.items():
            replaced = frozenset() if on_clear is OnClear.APPEND else table.last.get(task, frozenset())
            kept = table.rows - replaced
            added = new.get(name, frozenset())
            self.tables[name] = Table(kept | added, {**table.last, task: added})

    def land(
        self, task: str, new: dict[str, frozenset[int]], on_clear: OnClear, *, starts_over: bool = False
    ) -> CommittedSnapshot | None:
        """Do what an operator does."""
        key = CommitKey((task,), self.generations[task])
        keyed = self.lake.writes.keyed_commit(key, on_clear, starts_over=starts_over)
        if keyed.seen.done:
            return CommittedSnapshot.earlier(keyed.seen.done)
        base = self.lake.current_snapshot().id
        changes = [*self.lake.writes.replaced_rows(keyed.seen, base)]
        for name, rows in new.items():
            target = self.lake.table_snapshot(f"s.{name}", base)
            plan = plan_write(target, f"{target.root}ducklake-{uuid.uuid4()}/")
            result = write(plan, pa.table({"i": sorted(rows)}, SCHEMA))
            changes += append_to_existing(target, result)
        return self.lake.committer.commit_change_sets([ChangeSet(base, changes)], CommitInfo(), keyed=keyed)

    def retry(self) -> None:
        task = self.draw.choice(TASKS)
        if task in self.commits:
            found = self.land(task, {}, self.draw.choice([OnClear.SKIP, OnClear.REPLACE]))
            if found is not None and found.is_earlier:
                assert found.id == self.commits[task], self.told
                self.told.append(f"retry of {task}")
                return
            # its newest generation had nothing to commit before, and may have replaced rows now
            self.told.append(f"retry of {task} -> {found and found.id}")
            if found is not None:
                self.commits[task] = found.id
                for name, table in self.tables.items():
                    kept = table.rows - table.last.get(task, frozenset())
                    self.tables[name] = Table(kept, {**table.last, task: frozenset()})

    # --- others ---

    def append_of_others(self) -> None:
        for name in self.some_table():
            self.append(name)

    def append(self, name: str, count: int | None = None) -> None:
        rows = self.new_rows(count)
        self.lake.append_arrow(f"s.{name}", pa.table({"i": sorted(rows)}, SCHEMA))
        self.tables[name] = replace(self.tables[name], rows=self.tables[name].rows | rows)
        self.told.append(f"append {name} {sorted(rows)}")

    def delete_of_others(self) -> None:
        for name in self.some_table():
            rows = self.tables[name].rows
            gone = frozenset(self.draw.sample(sorted(rows), min(len(rows), self.draw.randint(1, 3))))
            if gone:
                with self.lake.transaction() as tx:
                    tx.delete_rows(f"s.{name}", f"i IN ({', '.join(map(str, gone))})")
                self.tables[name] = replace(self.tables[name], rows=rows - gone)
                self.told.append(f"delete {name} {sorted(gone)}")

    def merge_files(self) -> None:
        with open_lake(self.catalog, data_inlining_row_limit=0) as reference:
            reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        self.told.append("merge")

    def some_table(self) -> list[str]:
        return self.draw.sample(sorted(self.tables), min(1, len(self.tables)))

    def drop_table(self) -> None:
        for name in self.some_table():
            with self.lake.transaction() as tx:
                tx.drop_table(f"s.{name}")
            del self.tables[name]
            self.told.append(f"drop {name}")

    def drop_schema(self) -> None:
        with self.lake.transaction() as tx:
            tx.drop_schema("s", cascade=True, if_exists=True)
        self.tables.clear()
        self.told.append("drop schema")

    def come_back_empty(self) -> None:
        """Lose all rows before the schema is dropped, come back without them, get others, and see a Clear."""
        for name in self.some_table():
            if rows := self.tables[name].rows:
                with self.lake.transaction() as tx:
                    tx.delete_rows(f"s.{name}", f"i IN ({', '.join(map(str, rows))})")
                self.tables[name] = replace(self.tables[name], rows=frozenset())
                self.told.append(f"delete all of {name}")
                self.remember()
            emptied = self.lake.current_snapshot().id
            self.drop_schema()
            self.remember()
            self.restore_to(emptied, name)
            self.append(name, 40)  # as many as have had row ids before
            self.clear()

    def restore(self) -> None:
        there = [one.id for one in self.lake.snapshots() if one.id in self.past]
        at = self.draw.choice(there)
        then = self.past[at]
        scope = self.draw.choice(["t", "u", "schema", "lake"])
        if (scope in TABLES and scope not in then) or (scope == "schema" and not then):
            return
        self.restore_to(at, scope)

    def restore_to(self, at: int, scope: str) -> None:
        """Restore; tables that are what they were count as restored, but not to the newest snapshot."""
        then, newest = self.past[at], self.lake.current_snapshot().id
        arguments = {"schema": {"schema": "s"}, "lake": {}}.get(scope, {"table": f"s.{scope}"})
        result = self.lake.restore(**arguments, at=int(at))
        self.told.append(f"restore {scope} to {at} -> {result.committed and result.committed.id}")
        if at < newest:
            for name in (scope,) if scope in TABLES else TABLES:
                self.tables.pop(name, None)
                if name in then:
                    self.tables[name] = then[name]

    def expire(self) -> None:
        self.lake.expire_snapshots(keep_last=4)
        self.told.append("expire")


@pytest.mark.timeout(3_600)
def test_drawn_sequences_leave_what_a_serial_model_says(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    done = Counter()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        catalog = new_catalog("sqlite")
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            story = Story(lake, catalog, draw, told=[f"--seed {seed}, history {number}"])
            story.begin()
            for step in draw.choices(list(STEPS), list(STEPS.values()), k=steps):
                getattr(story, step)()
                story.remember()
                done[step] += 1

    assert size == "ci" or set(done) == set(STEPS), done


def test_rows_that_a_restore_brings_back_before_a_cleared_task_commits_are_a_conflict(new_catalog):
    catalog = new_catalog("sqlite")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        story = Story(lake, catalog, random.Random(0))
        story.begin()
        story.land("load", {"t": frozenset(range(20))}, OnClear.REPLACE)
        loaded = lake.current_snapshot().id
        with lake.transaction() as tx:
            tx.delete_rows("s.t", "i < 5")
        keyed = lake.writes.keyed_commit(CommitKey(("load",), 1))
        base = lake.current_snapshot().id
        changes = lake.writes.replaced_rows(keyed.seen, base)
        lake.restore("s.t", at=int(loaded))

        with pytest.raises(TransactionConflictError, match="restored it"):
            lake.committer.commit_change_sets([ChangeSet(base, changes)], CommitInfo(), keyed=keyed)

        assert lake.read_arrow("s.t").num_rows == 20
