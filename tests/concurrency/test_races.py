"""Several processes append at once: to one table, to many, ours alone and beside DuckDB's.

Nothing is lost, nothing is there twice, row ids and statistics are true, and no writer of ours fails.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from tests.concurrency.writer import Done, Task
from tests.reference.catalog_dump import Dump, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

ROWS = 15  # in each append: more than the reference inlines
INLINED_ROWS = 3
# How many of our processes race, and how many appends each makes.
CROWDS = {
    "ci": {"sqlite": (3, 8), "postgres": (3, 8), "mariadb": (3, 8), "duckdb": (3, 3)},
    "full": {"sqlite": (8, 50), "postgres": (16, 100), "mariadb": (16, 100), "duckdb": (3, 60)},
}
SERVERS_AND_SQLITE = ["sqlite", "postgres", "mariadb"]


def race(tasks: list[Task]) -> list[Done]:
    """Let a process for each task append, all at once."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.concurrency.writer"],
        input=json.dumps([asdict(task) for task in tasks]),
        capture_output=True,
        text=True,
        timeout=1500,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [Done(**one) for one in json.loads(ended.stdout)]


def make_tables(catalog: CatalogDatabase, count: int) -> None:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        for number in range(count):
            tx.create_table(f"t{number}", {"i": "int64"})


def assert_everything_landed_once(catalog: CatalogDatabase, tasks: list[Task]) -> None:
    """Check the rows of every table, the statistics, and that there is a snapshot for each append."""
    expected = defaultdict(list)
    for task in tasks:
        for table, values in task.numbers():
            expected[table].extend(values)
    with open_lake(catalog.attach_string, read_only=True) as reference:
        for table, values in expected.items():
            assert_rows(reference, table, sorted(values))
    dump = dump_catalog(catalog)
    assert_statistics(dump, expected)
    ids = [row["snapshot_id"] for row in dump["ducklake_snapshot"]]
    assert sorted(ids) == list(range(2 + sum(task.appends for task in tasks)))
    assert len({row["path"] for row in dump["ducklake_data_file"]}) == len(dump["ducklake_data_file"])


def assert_rows(reference: DuckLakeConnection, table: str, values: list[int]) -> None:
    def column(query: str) -> list[int]:
        return [value for (value,) in reference.sql(query)]

    assert column(f"SELECT i FROM {table} ORDER BY i") == values, table
    assert column(f"SELECT rowid FROM {table} ORDER BY rowid") == list(range(len(values))), table
    half = len(values) // 2  # files are skipped by their statistics
    assert column(f"SELECT i FROM {table} WHERE i >= {values[half]} ORDER BY i") == values[half:], table


def assert_statistics(dump: Dump, expected: dict[str, list[int]]) -> None:
    names = {row["table_id"]: row["table_name"] for row in dump["ducklake_table"]}
    counts = {
        names[row["table_id"]]: (row["record_count"], row["next_row_id"])
        for row in dump["ducklake_table_stats"]
    }
    bounds = {
        names[row["table_id"]]: (row["min_value"], row["max_value"], bool(row["contains_null"]))
        for row in dump["ducklake_table_column_stats"]
    }
    assert counts == {table: (len(values), len(values)) for table, values in expected.items()}
    assert bounds == {table: (str(min(one)), str(max(one)), False) for table, one in expected.items()}


def race_and_check(catalog: CatalogDatabase, tables: int, tasks: list[Task], capsys) -> list[Done]:
    make_tables(catalog, tables)
    done = race(tasks)
    with capsys.disabled():
        print("\n".join(figures(catalog, tables, tasks, done)))  # noqa: T201 - of the race
    assert_everything_landed_once(catalog, tasks)
    return done


def figures(catalog: CatalogDatabase, tables: int, tasks: list[Task], done: list[Done]) -> Iterator[str]:
    seconds = max(one.times[-1] for one in done) - min(one.times[0] for one in done)
    yield f"\n{catalog.kind}, {tables} tables: {seconds:.1f} s"
    for who in sorted({task.who for task in tasks}):
        theirs = [one for task, one in zip(tasks, done, strict=True) if task.who == who]
        attempts = [attempt for one in theirs for attempt in one.attempts]
        longest = max(one.longest for one in theirs)
        yield (
            f"  {who}: {len(theirs)} processes, {len(attempts)} appends in {sum(attempts)} attempts, "
            f"the longest {longest:.2f} s"
        )


def ours_alone(catalog: CatalogDatabase, size: str, capsys, *, many_tables: bool) -> None:
    processes, appends = CROWDS[size][catalog.kind]
    tables = processes if many_tables else 1
    tasks = [
        Task("ours", catalog.sqlalchemy_url, number, appends, ROWS, tables) for number in range(processes)
    ]

    done = race_and_check(catalog, tables, tasks, capsys)

    assert [one.attempts for one in done] == [[1] * appends] * processes


@pytest.mark.timeout(1800)
@pytest.mark.every_catalog
def test_our_processes_queue_and_never_lose_a_race_among_themselves(catalog, size, capsys):
    ours_alone(catalog, size, capsys, many_tables=False)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", SERVERS_AND_SQLITE)
def test_our_processes_append_to_many_tables_at_once(new_catalog, kind, size, capsys):
    ours_alone(new_catalog(kind), size, capsys, many_tables=True)


@pytest.mark.timeout(1800)
def test_our_processes_and_the_references_append_at_once(catalog, size, capsys):
    ours, theirs, appends = (1, 2, 8) if size == "ci" else (4, 4, 50)
    tasks = [Task("ours", catalog.sqlalchemy_url, number, appends, ROWS) for number in range(ours)]
    for number in range(theirs):
        rows = (ROWS, INLINED_ROWS)[number % 2]
        tasks.append(Task("reference", catalog.attach_string, ours + number, appends, rows))

    race_and_check(catalog, 1, tasks, capsys)


def test_our_append_that_loses_the_race_for_the_snapshot_id_takes_the_next(postgres_catalog):
    """A foreign transaction, open while we commit, has the id that we want."""
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        with psycopg.connect(postgres_catalog.location) as foreign, ThreadPoolExecutor() as pool:
            foreign.execute(
                "INSERT INTO ducklake_snapshot SELECT 2, now(), schema_version, next_catalog_id,"
                " next_file_id + 1 FROM ducklake_snapshot WHERE snapshot_id = 1"
            )
            foreign.execute("INSERT INTO ducklake_snapshot_changes VALUES (2, 'inlined_insert:1')")
            ours = pool.submit(append_one, lake)
            wait_until_somebody_waits_for_a_row(postgres_catalog)
            foreign.commit()
            attempts = ours.result(timeout=60)

        assert attempts == 2
        assert (lake.current_snapshot().id, lake.read_arrow("t").num_rows) == (3, 1)
        assert lake.table_snapshot("t", with_files=True).files[0].id == 1


def append_one(lake: Lake) -> int:
    with lake.transaction() as tx:
        tx.append_arrow("t", pa.table({"i": pa.array([1], pa.int64())}))
    return tx.committed.attempts


def wait_until_somebody_waits_for_a_row(catalog: CatalogDatabase) -> None:
    with psycopg.connect(catalog.location, autocommit=True) as watcher:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND wait_event = 'transactionid'"
        )
        for _ in range(500):
            if watcher.execute(waiting).fetchone()[0]:
                return
            watcher.execute("SELECT pg_sleep(0.02)")
    raise AssertionError


def test_our_append_that_loses_to_a_conflicting_commit_says_so_and_leaves_no_file(postgres_catalog):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        with psycopg.connect(postgres_catalog.location) as foreign, ThreadPoolExecutor() as pool:
            foreign.execute(
                "INSERT INTO ducklake_snapshot SELECT 2, now(), schema_version + 1, next_catalog_id,"
                " next_file_id FROM ducklake_snapshot WHERE snapshot_id = 1"
            )
            foreign.execute("INSERT INTO ducklake_snapshot_changes VALUES (2, 'altered_table:1')")
            ours = pool.submit(append_one, lake)
            wait_until_somebody_waits_for_a_row(postgres_catalog)
            foreign.commit()

            with pytest.raises(TransactionConflictError, match=r"main\.t: .* snapshot 2 altered it"):
                ours.result(timeout=60)

    assert list(Path(postgres_catalog.data_path).rglob("*.parquet")) == []


# A process that was forked from one with an open lake.


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_parent_and_child_go_on_with_connections_of_their_own(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        child = os.fork()
        if child == 0:
            for number in range(5):
                lake.append_arrow("t", pa.table({"i": [number]}))
            os._exit(0)
        for number in range(5):
            lake.append_arrow("t", pa.table({"i": [10 + number]}))

        assert os.waitpid(child, 0)[1] == 0
        rows = sorted(lake.read_arrow("t")["i"].to_pylist())
        assert rows == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(DISTINCT rowid) FROM t") == [(10,)]


# Several that delete rows of one file at once lose none of their deletes.


WRITERS, DELETES = 3, 3


def delete_each(url: str, rows: range) -> int:
    """Delete rows one by one, each until it is done; return how many tries were conflicts."""
    conflicts = 0
    with Lake.connect(url) as lake:
        for row in rows:
            while True:
                try:
                    with lake.transaction() as tx:
                        assert tx.delete_rows("t", f"i = {row}") == 1
                    break
                except TransactionConflictError:
                    conflicts += 1
    return conflicts


@pytest.mark.both_versions
def test_racing_deletes_of_one_file_are_all_there(catalog):
    count = WRITERS * DELETES
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": pa.array(range(count + 1), pa.int64())}))
    ranges = [range(first, count, WRITERS) for first in range(WRITERS)]

    with ThreadPoolExecutor(WRITERS) as threads:
        conflicts = sum(threads.map(lambda rows: delete_each(catalog.sqlalchemy_url, rows), ranges))

    print(f"{count} deletes of one file, {conflicts} conflicts")  # noqa: T201 - how much they raced
    (delete_file,) = dump_catalog(catalog)["ducklake_delete_file"]
    assert (delete_file["delete_count"], delete_file["partial_max"]) == (count, 2 + count)
    with open_lake(catalog) as duck:
        for gone in range(count + 1):
            query = f"SELECT count(i) FROM t AT (VERSION => {2 + gone})"
            assert duck.sql(query) == [(count + 1 - gone,)]
        deletions = "SELECT snapshot_id FROM ducklake_table_deletions('lake', 'main', 't', 3, {})"
        assert sorted(duck.sql(deletions.format(2 + count))) == [(3 + one,) for one in range(count)]
