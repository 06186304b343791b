"""What a write through `LakeSession` leaves alone: the user's views, caches, settings, and other threads."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.catalog.drafting import overwrite
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, TableNotFoundError
from airflow_provider_ducklake.lake.spark.jobs.here import options_given
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.storage.files.filesystem import VARIABLE
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("main.t", {"id": "int64", "name": "varchar"})
        yield lake


def rows(spark, *ids: int):
    return spark.createDataFrame([(one, f"n{one}") for one in ids], "id bigint, name string")


def ids_of(frame) -> list[int]:
    return sorted(row.id for row in frame.collect())


NAMES = ("Orders", "t", "a.b", "a`b", "mine")


def test_views_of_the_user_stay_whatever_they_are_called_and_whatever_fails(own, lake, tmp_path, monkeypatch):
    session = LakeSession(own, lake)
    for name in NAMES:
        rows(own, 5).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
    path = str(tmp_path / "given.parquet")
    rows(own, 1).write.parquet(path)
    before = {one.name for one in own.catalog.listTables()}
    given = {name.lower(): path for name in NAMES}
    frames = {"orders": rows(own, 2), "a.b": rows(own, 3)}
    query = "SELECT * FROM `orders` UNION ALL SELECT * FROM `a.b`"
    failing = ("SELECT nothing FROM `orders`", "SELECT id / 0, name FROM `a.b`", "no query")
    monkeypatch.setattr(overwrite, "MOST_BYTES_READ", 0)  # the job looks for the rows to be replaced

    session.insert("main.t", sql=query, sources=given)
    session.insert("main.t", sql=query, sources=frames)
    session.insert("main.t", sql="SELECT * FROM ours", sources={"ours": path}, overwrite_where="id < 2")
    session.merge("main.t", on=["id"], sql=query, sources={**frames, "more": path}, insert_all=True)
    session.sql("INSERT INTO t SELECT o.* FROM t JOIN orders o USING (id)", sources={"orders": path})
    session.sql(
        "CREATE TEMPORARY VIEW mine AS SELECT * FROM t; INSERT INTO t SELECT * FROM mine WHERE id = 1"
    )
    for one in failing:
        with pytest.raises(DuckLakeError):
            session.insert("main.t", sql=one, sources=given)
        with pytest.raises(DuckLakeError):
            session.merge("main.t", on=["id"], sql=one, sources=frames, insert_all=True)
        with pytest.raises(DuckLakeError):
            session.sql(f"INSERT INTO t {one}", sources=given)

    assert {one.name for one in own.catalog.listTables()} == before
    assert [ids_of(own.table(f"`{name.replace('`', '``')}`")) for name in NAMES] == [[5]] * len(NAMES)


@pytest.mark.classic_only("a cached view that a source hides is no longer cached")
def test_what_a_user_cached_stays_cached(own, lake):
    session = LakeSession(own, lake)
    cached = rows(own, 1, 2).cache()
    cached.count()
    cached.createOrReplaceTempView("orders")
    rows(own, 3).createOrReplaceTempView("listed")
    own.catalog.cacheTable("listed")

    session.insert("main.t", cached)
    session.insert("main.t", sql="SELECT * FROM listed", sources={"listed": cached})
    session.sql("INSERT INTO t SELECT * FROM orders", sources={"orders": cached})

    assert cached.storageLevel.useMemory
    assert own.catalog.isCached("listed")
    assert ids_of(session.read("main.t")) == [1, 1, 1, 2, 2, 2]


SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.sources.useV1SourceList": "",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.adaptive.enabled": "false",
}
TIMES = (
    "SELECT id, name, TIMESTAMP_LTZ'1500-01-01 12:30:00Z' AS tz, TIMESTAMP_NTZ'1500-01-01 12:30:00' AS ts "
    "FROM given"
)


def written(spark, url: str, table: str) -> list[tuple]:
    """Return what each verb makes of a table in turn, as the catalog's own reader sees it."""
    with Lake.connect(url) as lake:
        session = LakeSession(spark, lake)
        given = {"given": rows(spark, *range(20))}
        with lake.transaction() as tx:
            columns = {"id": "int64", "name": "varchar", "tz": "timestamptz", "ts": "timestamp"}
            tx.create_table(table, columns)
        session.insert(table, sql=TIMES, sources=given)
        session.delete(table, "id % 5 = 0")
        session.update(table, {"name": "upper(name)"}, "tz < TIMESTAMP_LTZ'1600-01-01 00:00:00Z' AND id < 10")
        session.merge(
            table, rows(spark, 5, 6), ["id"], insert_all=False, when_matched=[{"update": {"name": "'seen'"}}]
        )
        session.sql(f"INSERT INTO {table} SELECT id + 100, name, tz, ts FROM {table} WHERE id > 15")
        session.merge_adjacent_files(table)
        return sorted(lake.read_arrow(table).to_pydict().items())


def test_settings_of_the_user_change_no_row_and_stay(spark, own, lake, sqlite_catalog):
    usual = written(spark, sqlite_catalog.sqlalchemy_url, "main.usual")
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    before = own.conf.getAll

    assert written(own, sqlite_catalog.sqlalchemy_url, "main.other") == usual
    with pytest.raises(InvalidInputError):
        LakeSession(own, lake).insert("main.t", sql="SELECT 1 / nothing")

    assert own.conf.getAll == before


def test_frames_mean_what_they_meant_where_they_were_made(own, lake):
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    made = own.sql(
        "SELECT 7L AS id, CAST(CAST('2024-01-01' AS TIMESTAMP) AS STRING) || (1 / 0 IS NULL) AS name"
    )
    own.conf.set("spark.sql.session.timeZone", "UTC")
    (shown,) = made.collect()

    LakeSession(own, lake).insert("main.t", made)

    assert [tuple(row) for row in LakeSession(own, lake).read("main.t").collect()] == [tuple(shown)]


def test_a_frame_has_rows_that_lie_in_its_own_session(own, lake):
    session, many = LakeSession(own, lake), 140_000
    numbers = pa.array(range(many), pa.int64())
    large = own.createDataFrame(pa.table({"id": numbers, "name": pa.nulls(many, "string")}))
    kept = kind_of(own).checkpointed(rows(own, -1))

    session.insert("main.t", large.union(kept))

    assert own.catalog.listTables() == []
    assert lake.read_arrow("main.t").num_rows == many + 1


def test_a_frame_that_is_cached_stays_cached(own, lake):
    cached = rows(own, 1, 2).selectExpr("id + 1 AS id", "name").cache()
    assert cached.count() == 2

    LakeSession(own, lake).insert("main.t", cached)

    assert cached.storageLevel.useMemory


def test_threads_share_a_session(own, lake):
    session, other = LakeSession(own, lake), LakeSession(own, lake)
    before, together = own.conf.getAll, Barrier(4)

    def work(number: int) -> None:
        one, table = (session, other)[number % 2], f"main.t{number}"
        mine = rows(own, *range(10 * number, 10 * number + 10))
        together.wait()
        one.insert(table, sql="SELECT * FROM orders", sources={"orders": mine}, create_table=True)
        one.update(table, {"name": f"'{number}'"}, "id % 10 = 0")
        one.insert("main.t", mine)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, number) for number in range(4)]:
            done.result()

    assert (own.conf.getAll, own.catalog.listTables()) == (before, [])
    assert ids_of(session.read("main.t")) == list(range(40))
    for number in range(4):
        found = {row.id: row.name for row in session.read(f"main.t{number}").collect()}
        first = 10 * number
        assert found == {one: f"n{one}" for one in range(first, first + 10)} | {first: str(number)}
    assert lake.verify() == []


def test_sources_hide_views_and_tables_of_the_session(own, lake):
    session = LakeSession(own, lake)
    rows(own, 5).createOrReplaceTempView("orders")
    own.sql("CREATE TABLE kept USING parquet AS SELECT 6L AS id, 'kept' AS name")
    try:
        session.insert("main.t", sql="SELECT * FROM orders", sources={"orders": rows(own, 1)})
        session.insert("main.t", sql="SELECT * FROM kept", sources={"kept": rows(own, 2)})
        session.insert("main.t", sql="SELECT * FROM orders UNION ALL SELECT * FROM kept")
        assert ids_of(session.read("main.t")) == [1, 2, 5, 6]
        for name in ("orders", "kept"):  # names in sql() are of sources and of the lake
            with pytest.raises(TableNotFoundError, match=name):
                session.sql(f"INSERT INTO t SELECT * FROM {name}")
        rows(own, 7).createOrReplaceTempView("t")
        session.sql("INSERT INTO t SELECT id + 10, name FROM t WHERE id < 3")
        assert ids_of(session.read("main.t")) == [1, 2, 5, 6, 11, 12]
        with pytest.raises(InvalidInputError, match="the same name in Spark SQL"):
            session.insert("main.t", sql="SELECT * FROM a", sources={"a": rows(own, 1), "A": rows(own, 2)})
        with pytest.raises(InvalidInputError, match="sources is for sql"):
            session.insert("main.t", rows(own, 1), sources={"orders": rows(own, 1)})
    finally:
        own.sql("DROP TABLE kept")


def test_a_table_takes_rows_of_itself(own, lake, sqlite_catalog):
    session = LakeSession(own, lake)
    session.insert("main.t", rows(own, 1, 2))
    itself = session.read("main.t")
    itself.createOrReplaceTempView("itself")

    session.insert("main.t", itself.selectExpr("id + 10 AS id", "name"))
    session.insert("main.t", own.table("itself").where("id < 10"))
    session.insert("main.t", session.read("main.t").distinct(), mode="overwrite")
    session.merge(
        "main.t", session.read("main.t").selectExpr("id + 1 AS id", "name"), ["id"], update_all=True
    )

    with open_lake(sqlite_catalog) as reference:
        found = reference.sql("SELECT id, name FROM t ORDER BY id")
    assert found == [(1, "n1"), (2, "n1"), (11, "n1"), (12, "n1")]
    assert ids_of(itself) == [1, 2]


@pytest.mark.classic_only("metrics go to the session that the job runs in")
def test_what_a_user_observes_is_told(own, lake):
    seen, told = Observation("seen"), []
    df = rows(own, 1, 2, 3).observe(seen, f.count(f.lit(1)).alias("count"))

    LakeSession(own, lake).insert("main.t", df)

    waiting = Thread(target=lambda: told.append(seen.get), daemon=True)
    waiting.start()
    waiting.join(20)
    assert told == [{"count": 3}]


def test_the_server_that_pyspark_runs_for_a_local_session_stays(own, lake, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")  # as SparkSession.builder.remote("local") sets it
    before = dict(os.environ)

    LakeSession(own, lake).insert("main.t", rows(own, 1))

    assert dict(os.environ) == before
    assert own.range(3).count() == 3


@pytest.mark.classic_only("RDDs")
def test_the_session_is_still_the_one_that_pyspark_takes(own, lake):
    LakeSession(own, lake).insert("main.t", rows(own, 1))
    LakeSession(own, lake).delete("main.t", "id = 1")

    assert SparkSession.getActiveSession() is own
    assert own.sparkContext.parallelize([(1,)]).toDF(["id"]).sparkSession is own


@pytest.mark.classic_only("sessions of a JVM")
def test_a_frame_of_the_same_session_by_another_object_is_taken(own, lake):
    same = SparkSession(own.sparkContext, own._jsparkSession)

    LakeSession(own, lake).insert("main.t", rows(same, 1))

    assert lake.row_count("main.t") == 1


@pytest.mark.classic_only("the environment of a JVM's tasks")
def test_storage_options_of_the_user_come_back(spark, monkeypatch):
    of_tasks = spark.sparkContext.environment
    monkeypatch.setitem(os.environ, VARIABLE, "the process's")
    monkeypatch.setitem(of_tasks, VARIABLE, "the tasks'")

    with options_given(spark, {"key": "id"}):
        assert os.environ[VARIABLE] == of_tasks[VARIABLE] == '{"key": "id"}'

    assert (os.environ[VARIABLE], of_tasks[VARIABLE]) == ("the process's", "the tasks'")


@pytest.mark.classic_only("the environment of a JVM's tasks")
def test_storage_options_of_jobs_at_once_do_not_mix(spark):
    of_tasks, together = spark.sparkContext.environment, Barrier(2)

    def work(key: str | None) -> list[str | None]:
        together.wait()
        with options_given(spark, {} if key is None else {"key": key}):
            time.sleep(0.01)
            return [os.environ.get(VARIABLE), of_tasks.get(VARIABLE)]

    keys = ["a", "b", None, "a", None, None] * 8
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(work, keys))

    assert found == [[key and f'{{"key": "{key}"}}'] * 2 for key in keys]
    assert VARIABLE not in os.environ
    assert VARIABLE not in of_tasks
