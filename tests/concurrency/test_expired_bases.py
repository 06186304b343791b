"""A verb whose base snapshot expires at any moment commits correctly, or conflicts and plans again.

What expires takes with it rows of the catalog that only older snapshots showed: those of tables, files and
views that others dropped or replaced in the meantime.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import event

from airflow_provider_ducklake.hooks.task import CommitIdentity
from airflow_provider_ducklake.lake.catalog.database.connect import WRITES
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitKey
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.verb import Commit
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.concurrency.serial_model import Order, in_order, order, sql
from tests.concurrency.verbs import INFO, VERBS, Pair, PausingLake, Verb, write_given
from tests.reference.catalogs import CatalogDatabase

PAIRS = {"ci": 8, "full": 1_000}
COLUMNS = {"id": "int64", "n": "int32", "part": "varchar"}
OTHERS = {
    "delete rows": "what it deletes ends files",
    "append many": "",
    "append to o": "of another table",
    "merge files": "takes files out of snapshots that stay, too",
    "rewrite files": "",
    "flush": "",
    "our DROP TABLE t; CREATE TABLE t (id BIGINT)": "the name is another table's",
    "our ALTER TABLE t ADD COLUMN x INTEGER DEFAULT 7": "",
}


class Moments:
    """The moments at which a lake asks its catalog something, but under the commit lock; pauses at one."""

    def __init__(self, lake: PausingLake, chosen: int) -> None:
        self.count, self._lake, self._chosen = 0, lake, chosen

    @contextmanager
    def watching(self) -> Iterator[None]:
        engine = self._lake.opened.catalog.dialect.engine
        event.listen(engine, "begin", self._reach)
        try:
            yield
        finally:
            event.remove(engine, "begin", self._reach)

    def _reach(self, connection: Any) -> None:
        if not connection.get_execution_options().get(WRITES):
            self.count += 1
            if self.count - 1 == self._chosen:
                self._lake.pause()


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array(numbers, pa.int32()),
            "part": [chr(97 + one % 3) for one in numbers],
        }
    )


def new_tables(lake: Lake, schema: str, files: Path) -> Pair:
    """Make the tables that ``serial_model.BASE`` has; what a restore would go back to stays."""
    with lake.transaction() as tx:
        tx.create_schema(schema)
        tx.create_table(f"{schema}.t", COLUMNS, ["part"])
        tx.create_table(f"{schema}.o", {"id": "int64", "n": "int32"})
        tx.append_arrow(f"{schema}.t", rows(*range(60)))
        tx.append_arrow(f"{schema}.o", rows(*range(60, 66), 1000, 1001).select(["id", "n"]))
    then = lake.current_snapshot().id
    with lake.transaction() as tx:
        tx.delete_rows(f"{schema}.t", "id < 36 AND part = 'a'")
        tx.append_arrow(f"{schema}.t", rows(*range(60, 90)))
    with lake.transaction() as tx:
        tx.delete_rows(f"{schema}.t", "id IN (1, 4)")
        tx.append_arrow(f"{schema}.t", rows(102, 100, 101))
    return Pair(schema, int(then), files)


def read(lake: Lake, pair: Pair) -> dict[str, object]:
    names = [one.name for one in lake.tables() if str(one).startswith(f"{pair.schema}.")]
    tables = {name: lake.read_arrow(f"{pair.schema}.{name}") for name in names}
    return {name: in_order([tuple(row.values()) for row in one.to_pylist()]) for name, one in tables.items()}


def expected(one: Order) -> dict[str, object] | None:
    return None if one.state is None else {name: found for name, (_, found) in one.state.items()}


def check(lakes: "Lakes", first: Verb, other: Verb, moment: int) -> tuple[str, int]:
    """Let the base of the first expire at a moment; return what came of it, and how many moments it had."""
    pair = lakes.new_pair()

    def meanwhile() -> None:
        other.act(lakes.second, pair)
        lakes.second.expire_snapshots(keep_last=1, keep=[pair.then])

    lakes.first.meanwhile, moments = meanwhile, Moments(lakes.first, moment)
    behind, before = (
        order("", models) for models in ([other.model, first.model], [first.model, other.model])
    )
    orders, how = [behind, before], "committed"
    with moments.watching():
        try:
            first.act(lakes.first, pair)
        except TransactionConflictError:
            orders, how = [behind], "conflict"
            if behind.state is None:
                return "conflict", moments.count  # planned again it would be refused
            first.act(lakes.first, pair)
        except (DuckLakeError, duckdb.Error, pa.ArrowInvalid):
            if behind.state is not None:
                raise
            return "refused", moments.count
    lakes.first.pause()  # where there were fewer moments
    assert read(lakes.first, pair) in [expected(one) for one in orders], how
    return how, moments.count


class Lakes:
    """One lake, opened by the two who work on it."""

    def __init__(self, catalog: CatalogDatabase, files: Path) -> None:
        self._files, self._count = files, 0
        self.first = PausingLake.create(catalog.sqlalchemy_url, catalog.data_path)
        self.first.set_option("data_inlining_row_limit", 10)
        self.second = PausingLake.connect(catalog.sqlalchemy_url)

    def new_pair(self) -> Pair:
        self._count += 1
        return new_tables(self.second, f"s{self._count}", self._files)


@pytest.fixture
def lakes(sqlite_catalog, tmp_path) -> Iterator[Lakes]:
    files = tmp_path / "given"
    files.mkdir()
    write_given(files)
    lakes = Lakes(sqlite_catalog, files)
    with lakes.first, lakes.second:
        yield lakes


def others() -> list[Verb]:
    found = [one for one in VERBS if one.name in OTHERS]
    assert len(found) == len(OTHERS)
    return [Verb("nothing", lambda *_: None, sql("SELECT 1")), *found]


def insert_again(lake: PausingLake, pair: Pair, generation: int = 2) -> None:
    """Insert as a task does that was cleared after its commit: its first rows go."""
    key = CommitKey((pair.schema,), generation)
    identity = CommitIdentity(key, starts_over=False, extra={})
    operator = DuckLakeSparkInsertOperator(
        task_id="again", table=f"{pair.schema}.t", source=str(pair.files / "few.parquet")
    )
    run(operator.verb(identity), lake, ArrowSubmitter(), Commit(INFO, lake.writes.keyed_commit(key)))


# Without those that find no row to change here, and are done after one look.
PLANNERS = {
    one.name: one.act
    for one in VERBS
    if one.name
    in ("overwrite where", "merge of o", "query of its own table", "delete rows", "our DROP TABLE t")
} | {"insert of a cleared task": insert_again}


@pytest.mark.parametrize("act", PLANNERS.values(), ids=PLANNERS)
def test_what_expires_between_two_looks_of_a_plan_is_a_conflict(lakes, act):
    """The others drop the table and make it again, and its first life expires."""
    conflicts, moment, count = 0, 0, 1
    while moment < count:
        pair = lakes.new_pair()
        insert_again(lakes.second, pair, generation=1)
        lakes.first.meanwhile, moments = (
            partial(create_again, lakes.second, pair),
            Moments(lakes.first, moment),
        )
        with moments.watching():
            try:
                act(lakes.first, pair)
            except TransactionConflictError:
                conflicts += 1
        lakes.first.pause()
        moment, count = moment + 1, moments.count

    assert conflicts


def create_again(lake: Lake, pair: Pair) -> None:
    for _ in range(2):
        with lake.transaction() as tx:
            tx.drop_table(f"{pair.schema}.t")
            tx.create_table(f"{pair.schema}.t", COLUMNS, ["part"])
    lake.expire_snapshots(keep_last=1)


@pytest.mark.timeout(14_400)
def test_a_verb_whose_base_expires_leaves_what_one_order_leaves(lakes, seed, size, capsys):
    draw = random.Random(f"{seed} expired bases")
    counts: Counter[str] = Counter()
    moments: dict[str, int] = {}
    for number in range(PAIRS[size]):
        first, other = (
            VERBS[number % len(VERBS)] if size == "full" else draw.choice(VERBS),
            draw.choice(others()),
        )
        moment = draw.randrange(moments.get(first.name, 6))
        try:
            how, moments[first.name] = check(lakes, first, other, moment)
        except Exception as error:
            raise AssertionError(f"{first.name!r}, at moment {moment} {other.name!r} and expire") from error
        counts[how] += 1
    with capsys.disabled():
        print(f"\n{counts.total()} expired bases: {dict(counts)}")  # noqa: T201 - what was drawn
    assert lakes.first.verify() == []
