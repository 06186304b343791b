"""A consumer's results, added up, are the table, whatever restores its table has gone through."""

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import ChangesExpiredError, ChangesUndoneError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, Consumer
from airflow_provider_ducklake.lake.writes.sql import PlannedSql, Sql
from airflow_provider_ducklake.lake.writes.verb import Commit, Results
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.concurrency import arrow_jobs
from tests.concurrency.verbs import operate

HISTORIES = {"ci": (2, 20), "full": (60, 50)}
SCHEMA = pa.schema([("i", pa.int64())])
STEPS = {"append": 5, "delete": 3, "consume": 8, "drop_schema": 2, "drop_table": 1, "restore": 3, "expire": 1}
SIGNED = "CAST(CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS BIGINT)"
COPY = f"INSERT INTO out SELECT i, {SIGNED} FROM s.t"


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with new_lake(sqlite_catalog) as lake:
        yield lake


def new_lake(catalog) -> Lake:
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path)
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", SCHEMA)
        tx.create_table("out", {"i": "int64", "sign": "int64"})
    return lake


def append(lake: Lake, *values: int) -> int:
    return int(lake.append_arrow("s.t", pa.table({"i": values}, SCHEMA)).id)


def delete(lake: Lake, *values: int) -> None:
    with lake.transaction() as tx:
        tx.delete_rows("s.t", f"i IN ({', '.join(map(str, values))})")


def drop_schema(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.drop_schema("s", cascade=True)


def consume(lake: Lake, *, full_refresh: bool = False) -> dict[str, list[int | None]]:
    operator = DuckLakeSparkSQLOperator(
        task_id="copy", sql=COPY, incremental=["s.t"], consumer="c", full_refresh=full_refresh
    )
    return operate(operator, lake)["consumed"]


def results(lake: Lake) -> list[int]:
    counts: Counter[int] = Counter()
    for row in lake.read_arrow("out").to_pylist():
        counts[row["i"]] += row["sign"]
    assert set(counts.values()) <= {0, 1}, counts
    return sorted(value for value, count in counts.items() if count)


def rows(lake: Lake) -> list[int]:
    return sorted(lake.read_arrow("s.t")["i"].to_pylist())


# --- a dropped schema ---


def test_a_table_that_was_created_again_is_consumed_from_the_mark(lake):
    append(lake, 1, 2)
    consume(lake)
    then = lake.current_snapshot().id
    drop_schema(lake)
    restored = lake.restore("s.t", at=int(then)).committed.id
    append(lake, 3)

    assert consume(lake) == {"s.t": [restored, restored + 1]}
    assert lake.read_arrow("out").num_rows == 3
    assert results(lake) == rows(lake) == [1, 2, 3]


def test_changes_from_before_the_drop_are_consumed_first(lake):
    append(lake, 1, 2)
    consume(lake)
    mark = lake.current_snapshot().id - 1
    append(lake, 3)
    delete(lake, 1)
    then = lake.current_snapshot().id
    drop_schema(lake)
    restored = lake.restore(schema="s", at=int(then)).committed.id
    append(lake, 4)

    assert consume(lake) == {"s.t": [mark, restored]}
    assert results(lake) == [2, 3]
    head = lake.current_snapshot().id
    assert consume(lake) == {"s.t": [restored, head]}
    assert results(lake) == rows(lake) == [2, 3, 4]


def test_the_rows_of_before_are_seen_to_go_also_where_none_came_back(lake):
    append(lake, 1)
    consume(lake)
    delete(lake, 1)
    then = lake.current_snapshot().id
    drop_schema(lake)
    lake.restore("s.t", at=int(then))

    consume(lake)

    assert results(lake) == rows(lake) == []


def test_changes_that_were_consumed_and_did_not_come_back_are_refused(lake):
    then = append(lake, 1)
    append(lake, 2)
    consume(lake)
    drop_schema(lake)
    lake.restore("s.t", at=then)

    with pytest.raises(ChangesUndoneError, match="full_refresh=True"):
        consume(lake)

    assert results(lake) == [1, 2]
    consume(lake, full_refresh=True)
    append(lake, 3)
    consume(lake)
    assert results(lake) == rows(lake) == [1, 3]


def test_changes_from_before_the_drop_that_have_expired_are_refused(lake):
    append(lake, 1)
    consume(lake)
    append(lake, 2)
    then = lake.current_snapshot().id
    drop_schema(lake)
    lake.restore("s.t", at=int(then))
    lake.expire_snapshots(keep_last=1)

    with pytest.raises(ChangesExpiredError, match=r"s\.t .*full_refresh=True"):
        consume(lake)


# --- a run that was made again ---


def begun(lake: Lake, *, starts_over: bool) -> tuple[PlannedSql, Commit]:
    """Begin a try as a task does, under the name that every run of this test has."""
    key = CommitKey(("copy",))
    verb = Sql(sql=COPY, incremental=["s.t"], consumer=Consumer("c"), starts_over=starts_over)
    commit = Commit(CommitInfo("test", "again"), lake.writes.keyed_commit(key, starts_over=starts_over))
    return verb.plan(lake, commit, lambda source: source), commit


def end(lake: Lake, planned: PlannedSql, commit: Commit) -> None:
    done = Results.of(arrow_jobs.done(planned.request))
    write = planned.write(lake, done, commit.seen)
    lake.committer.commit_change_sets(
        write.change_sets, commit.info, keyed=commit.keyed, consumed=write.consumed
    )


@pytest.mark.parametrize("tries", [1, 2])
def test_a_run_that_was_made_again_consumes_the_same_also_in_its_retry(lake, tries):
    append(lake, 1, 2)
    end(lake, *begun(lake, starts_over=True))
    append(lake, 3)
    one_try = begun(lake, starts_over=True)
    for _ in range(tries - 1):
        one_try = begun(lake, starts_over=False)

    end(lake, *one_try)

    assert results(lake) == [1, 2]
    consume(lake)
    assert results(lake) == rows(lake) == [1, 2, 3]


# --- drawn ---


class Story:
    """A lake, and a model: what the table holds, None where it is dropped."""

    def __init__(self, lake: Lake, draw: random.Random) -> None:
        self.lake, self.draw, self.next_value = lake, draw, 0
        self.told: list[str] = []
        self.there = [int(lake.current_snapshot().id)]

    def append(self) -> None:
        count = self.draw.randint(1, 12)
        append(self.lake, *range(self.next_value, self.next_value + count))
        self.next_value += count

    def delete(self) -> None:
        known = rows(self.lake)
        if known:
            delete(self.lake, *self.draw.sample(known, min(len(known), 3)))

    def consume(self) -> None:
        """Consume all there is: changes of an older table come in a run of their own."""
        try:
            while consume(self.lake)["s.t"][1] < (head := self.head()) - 1:
                self.told.append(f"{head} more to consume")
        except (ChangesUndoneError, ChangesExpiredError) as error:
            self.told.append(str(error))
            consume(self.lake, full_refresh=True)
        assert results(self.lake) == rows(self.lake), self.told

    def head(self) -> int:
        return int(self.lake.current_snapshot().id)

    def drop_schema(self) -> None:
        drop_schema(self.lake)
        self.told.append("dropped")
        self.restore()

    def drop_table(self) -> None:
        with self.lake.transaction() as tx:
            tx.drop_table("s.t")
        self.restore()

    def restore(self) -> None:
        at = self.draw.choice([one for one in self.lake.snapshots() if one.id in self.there]).id
        scope = self.draw.choice([{"table": "s.t"}, {"schema": "s"}])
        self.lake.restore(**scope, at=int(at))
        self.told.append(f"restored {at}")

    def expire(self) -> None:
        if self.draw.random() < 0.5:
            self.lake.expire_snapshots(keep_last=6)

    def step(self, name: str) -> None:
        self.told.append(f"{self.head()} {name}")
        getattr(self, name)()
        if any(str(one) == "s.t" for one in self.lake.tables()):
            self.there.append(self.head())


@pytest.mark.timeout(3_600)
def test_what_was_consumed_adds_up_to_the_table_whatever_was_restored(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    told: list[str] = []
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        with new_lake(new_catalog("sqlite")) as lake:
            story = Story(lake, draw)
            story.told.append(f"--seed {seed}, history {number}")
            for name in draw.choices(list(STEPS), list(STEPS.values()), k=steps):
                story.step(name)
            story.consume()
            told += [
                word for one in story.told for word in ("full_refresh", "more to consume") if word in one
            ]

    assert size == "ci" or len(set(told)) == 2, told
