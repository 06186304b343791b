"""Several processes append to one table at once."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.errors import TransactionConflictError
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

ROWS = 15  # in each append: more than the reference inlines
INLINED_ROWS = 3


def race(catalog: CatalogDatabase, writers: list[tuple[str, int, int]]) -> list[list[int]]:
    """Start writers (who, appends, rows) together; return the attempts of each."""
    running = []
    for number, (who, appends, rows) in enumerate(writers):
        target = catalog.sqlalchemy_url if who == "ours" else catalog.attach_string
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.concurrency.writer", who, target]
                + [str(one) for one in (number * 10_000, appends, rows)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        )
    for one in running:
        assert one.stdout.readline() == "ready\n", one.stderr.read()
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    ended = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0] * len(running), [err for _, err in ended]
    return [json.loads(out) for out, _ in ended]


def expected_rows(writers: list[tuple[str, int, int]]) -> list[int]:
    return [
        number * 10_000 + row
        for number, (_, appends, rows) in enumerate(writers)
        for row in range(appends * rows)
    ]


def assert_everything_landed_once(catalog: CatalogDatabase, writers: list[tuple[str, int, int]]) -> None:
    rows = expected_rows(writers)
    with open_lake(catalog) as reference:
        assert [row for (row,) in reference.sql("SELECT i FROM t ORDER BY i")] == rows
        assert reference.sql("SELECT count(DISTINCT rowid) FROM t") == [(len(rows),)]
        assert reference.sql(f"SELECT count(*) FROM t WHERE i >= {rows[-1]}") == [(1,)]
    dump = dump_catalog(catalog)
    (stats,) = dump["ducklake_table_stats"]
    (column,) = dump["ducklake_table_column_stats"]
    assert (stats["record_count"], stats["next_row_id"]) == (len(rows), len(rows))
    assert (column["min_value"], column["max_value"]) == (str(rows[0]), str(rows[-1]))
    ids = [row["snapshot_id"] for row in dump["ducklake_snapshot"]]
    assert sorted(ids) == list(range(2 + sum(appends for _, appends, _ in writers)))
    assert len({row["path"] for row in dump["ducklake_data_file"]}) == len(dump["ducklake_data_file"])


@pytest.fixture
def with_table(catalog: CatalogDatabase) -> CatalogDatabase:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
    return catalog


@pytest.mark.every_catalog
def test_our_processes_queue_and_never_lose_a_race_among_themselves(with_table, size):
    appends = {"ci": 3 if with_table.kind == "duckdb" else 8, "full": 60}[size]
    writers = [("ours", appends, ROWS)] * 3

    attempts = race(with_table, writers)

    assert attempts == [[1] * appends] * 3
    assert_everything_landed_once(with_table, writers)


def test_our_process_and_the_references_append_at_once(with_table, size):
    appends = 8 if size == "ci" else 60
    writers = [("ours", appends, ROWS), ("reference", appends, ROWS), ("reference", appends, INLINED_ROWS)]

    race(with_table, writers)

    assert_everything_landed_once(with_table, writers)


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
