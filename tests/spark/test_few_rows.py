"""Rows that a merge changes are written without tasks if they take few bytes, however many they are."""

import time
from threading import Thread

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.spark.writing import write_arrow
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.spark.inserting import new_lake, rows_of

ROWS, CHANGED, NEW = 20_000, 12_000, 500
ROW_IDS = f"SELECT id, rowid FROM t WHERE id < {ROWS} ORDER BY id"
SHORT, LONG = "concat('new ', id)", "repeat(chr(65 + int(id % 26)), 4000)"  # of 12,500 rows, 50 MB


def merged(spark, catalog, monkeypatch, text: str, *statements: str) -> list[tuple[str, int]]:
    """Merge rows with such a text; return the new files, and beside it note each write by tasks."""
    made = (
        "CREATE TABLE t (id BIGINT, part INT, s VARCHAR)",
        *statements,
        f"INSERT INTO t SELECT range, range % 100, 'old' FROM range({ROWS})",
    )
    by_tasks, write = [], write_arrow.write
    monkeypatch.setattr(write_arrow, "write", lambda *given: by_tasks.append(given) or write(*given))
    with new_lake(catalog, *made, data_inlining_row_limit=0) as lake:
        row_ids = rows_of(catalog, ROW_IDS)
        before = {file.path for file in lake.scan("t").files}
        first = ROWS - CHANGED
        source = spark.range(first, ROWS + NEW, 1, 3).selectExpr(
            "id", "int(id % 100) AS part", f"{text} AS s"
        )
        source = source.repartition(3, "part")  # in no order
        LakeSession(spark, lake).merge("t", source, ["id"], update_all=True, insert_all=True)
        files = [file for file in lake.scan("t").files if file.path not in before]
        assert sum(file.record_count for file in files) == CHANGED + NEW
        assert lake.verify() == []
    assert rows_of(catalog, "SELECT count(*), count(DISTINCT id), count(DISTINCT rowid) FROM t") == [
        (ROWS + NEW,) * 3
    ]
    kept = f"SELECT count(*) FROM t WHERE s = 'old' AND id < {first} OR id >= {first} AND s <> 'old'"
    assert rows_of(catalog, kept) == [(ROWS + NEW,)]
    assert rows_of(catalog, ROW_IDS) == row_ids
    return [(file.path, len(by_tasks)) for file in files]


def test_thousands_of_short_rows_are_one_file_of_each_kind(spark, sqlite_catalog, monkeypatch):
    files = merged(spark, sqlite_catalog, monkeypatch, SHORT)

    assert [tasks for _, tasks in files] == [0, 0]


@pytest.mark.classic_only("cancels by the SparkContext")
def test_rows_whose_job_a_person_cancels_are_not_written(spark, sqlite_catalog):
    def cancel():
        deadline = time.monotonic() + 60
        while not spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.05)
        spark.sparkContext.cancelAllJobs()

    with new_lake(sqlite_catalog, "CREATE TABLE t (id BIGINT)", data_inlining_row_limit=0) as lake:
        canceller = Thread(target=cancel)
        canceller.start()
        with pytest.raises(SparkJobError):
            LakeSession(spark, lake).insert(
                "t", sql="SELECT max(id * 3 % 1000) AS id FROM range(50000000000)"
            )
        canceller.join()
        assert lake.row_count("t") == 0


def test_they_lie_by_the_keys_of_the_table(spark, sqlite_catalog, monkeypatch):
    files = merged(spark, sqlite_catalog, monkeypatch, SHORT, "ALTER TABLE t SET SORTED BY (id DESC)")

    assert [tasks for _, tasks in files] == [0, 0]
    for path, _ in files:
        ids = pq.read_table(path)["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)


@pytest.mark.parametrize(
    ("text", "key", "has_tasks"),
    [(SHORT, "bucket(4, id)", False), (SHORT, "part", True), (LONG, None, True)],
    ids=["few partitions", "many partitions", "many bytes"],
)
def test_tasks_write_many_bytes_and_many_partitions(spark, sqlite_catalog, monkeypatch, text, key, has_tasks):
    keys = [] if key is None else [f"ALTER TABLE t SET PARTITIONED BY ({key})"]

    files = merged(spark, sqlite_catalog, monkeypatch, text, *keys)

    assert (files[0][1] > 0) is has_tasks
    if key is not None:
        assert len(files) == (100 + 100 if has_tasks else 4 + 4)
