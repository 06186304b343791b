"""The operators' verbs in a session that is there already: rows, exactly-once, and the session as it was."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread

import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting import overwrite
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, TableNotFoundError
from airflow_provider_ducklake.lake.spark.jobs.here import options_given
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.storage.files.filesystem import VARIABLE
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import alone, by_duckdb

KILLS = {"ci": 2, "full": 20}
LATEST_KILL = 12.0  # seconds; a first write of a new session takes about as long


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("main.t", {"id": "int64", "name": "varchar"})
        yield lake


@pytest.fixture
def session(spark, lake) -> LakeSession:
    return LakeSession(spark, lake, author="notebook")


def rows(spark, *ids: int):
    return spark.createDataFrame([(one, f"n{one}") for one in ids], "id bigint, name string")


def seen_by_duckdb(catalog, query: str = "SELECT id, name FROM t ORDER BY id") -> list[tuple]:
    return by_duckdb(catalog, query)


def files_of(lake: Lake) -> list[Path]:
    return list(Path(lake.table_snapshot("main.t").root).rglob("*.parquet"))


def test_a_merge_takes_many_columns_of_text(session, spark, lake):
    names = [f"name{number}" for number in range(60)]
    given = spark.range(2).selectExpr("id", *(f"'{name}' AS {name}" for name in names))

    alone(lake).create_table("main.wide", {"id": "int64", **dict.fromkeys(names, "varchar")})
    session.merge("main.wide", given, ["id"], insert_all=True)

    assert lake.row_count("main.wide") == 2


def test_a_merge_takes_many_clauses(session, spark, lake):
    session.insert("main.t", rows(spark, 1, 59))
    clauses = [
        {"update": {"name": f"'{number}'"}, "condition": f"target.id = {number}"} for number in range(60)
    ]

    session.merge("main.t", rows(spark, 1, 59), ["id"], when_matched=clauses, insert_all=False)

    found = lake.read_arrow("main.t").to_pylist()
    assert sorted((row["id"], row["name"]) for row in found) == [(1, "1"), (59, "59")]


def test_each_verb_is_one_snapshot(session, spark, lake, sqlite_catalog):
    first = session.insert("main.t", rows(spark, 1, 2, 3, 4), message="four")
    session.delete("main.t", "id = 4")
    session.update("main.t", {"name": "upper(name)"}, "id = 3")
    session.merge("main.t", rows(spark, 1, 9), ["id"], update_all=True, insert_all=True)
    last = session.sql(
        "CREATE TABLE main.counts AS SELECT count(*) AS n FROM main.t JOIN more USING (id)",
        sources={"more": rows(spark, 1, 9)},
    )

    assert last.id == first.id + 4
    assert seen_by_duckdb(sqlite_catalog) == [(1, "n1"), (2, "n2"), (3, "N3"), (9, "n9")]
    assert seen_by_duckdb(sqlite_catalog, "FROM counts") == [(2,)]
    assert session.read("main.t", filter="id > 2").count() == 2
    kinds = session.changes("main.t", first.id + 1, last.id).groupBy("change_type").count().collect()
    assert {one["change_type"]: one["count"] for one in kinds} == {
        "delete": 1,
        "update_preimage": 2,
        "update_postimage": 2,
        "insert": 1,
    }
    recorded = lake.snapshots()[first.id]
    assert (recorded.author, recorded.message) == ("notebook", "four")
    assert lake.verify() == []
    assert lake.jobs.protected_prefixes() == frozenset()


def test_compaction_and_flush(session, spark, lake, sqlite_catalog):
    for ids in [(0, 4), (1,), (2,), (3,)]:
        session.insert("main.t", rows(spark, *ids).coalesce(1))
    session.delete("main.t", "id = 0")

    merged = session.merge_adjacent_files(
        "main.t", target_file_size="256MB", min_file_size="1", max_input_files="9", older_than=None
    )
    assert merged["files_added"] == 1
    assert session.rewrite_data_files("main.t", delete_threshold=0)["files_removed"] == 1
    by_duckdb(sqlite_catalog, "INSERT INTO t VALUES (5, 'n5')", data_inlining_row_limit=10)
    assert session.flush_inlined_data(min_rows="2", dry_run="True") == []
    assert [one.row_count for one in session.flush_inlined_data(min_rows="1", dry_run=True)] == [1]
    session.flush_inlined_data()

    assert [one for one, _ in seen_by_duckdb(sqlite_catalog)] == [1, 2, 3, 4, 5]
    assert lake.verify() == []


def test_a_write_without_rows_makes_no_snapshot(session, spark, lake):
    before = lake.current_snapshot().id

    assert session.insert("main.t", rows(spark, 1).where("false")) is None
    assert session.delete("main.t", "id = 77") is None

    assert lake.current_snapshot().id == before


def test_a_query_of_an_insert_that_reads_a_table_of_the_lake_says_what_does(session, lake):
    alone(lake).create_table("customers", {"id": "int64"})
    with pytest.raises(
        errors.QueryTableError, match=r"sql reads main.Customers, a table of the lake.*SQLOperator"
    ):
        session.insert("customers", sql="SELECT id FROM main.Customers")
    with pytest.raises(errors.QueryTableError, match=r"sql reads main.nobody, which is none of its sources"):
        session.insert("customers", sql="SELECT id FROM main.nobody")


def test_a_key_commits_once(session, spark, sqlite_catalog):
    first = session.insert("main.t", rows(spark, 1), commit_key="night")

    again = session.insert("main.t", rows(spark, 1), commit_key="night")

    assert (again.id, again.is_earlier) == (first.id, True)
    assert seen_by_duckdb(sqlite_catalog) == [(1, "n1")]


def test_a_key_consumes_once(session, spark, lake):
    session.sql("CREATE TABLE main.log AS SELECT 0 AS id, 'none' AS kind")
    copy = "INSERT INTO main.log SELECT CAST(id AS INT), change_type FROM main.t"
    session.insert("main.t", rows(spark, 1, 2))
    first = session.sql(copy, incremental=True, consumer="copy", commit_key="monday")
    session.insert("main.t", rows(spark, 3))

    again = session.sql(copy, incremental=True, consumer="copy", commit_key="monday")

    assert (again.id, again.is_earlier) == (first.id, True)
    assert lake.row_count("main.log") == 3
    session.sql(copy, incremental=True, consumer="copy", commit_key="tuesday")
    assert sorted(row.id for row in session.read("main.log").collect()) == [0, 1, 2, 3]


def test_changes_are_consumed_once(session, spark, lake):
    session.sql("CREATE TABLE main.log AS SELECT 0 AS id, 'none' AS kind")
    copy = "INSERT INTO main.log SELECT CAST(id AS INT), change_type FROM main.t"
    session.insert("main.t", rows(spark, 1, 2))
    session.sql(copy, incremental=True, consumer="copy")
    session.insert("main.t", rows(spark, 3))
    session.sql(copy, incremental=True, consumer="copy")

    assert session.sql(copy, incremental=True, consumer="copy") is None
    assert lake.row_count("main.log") == 4


def test_the_session_is_as_before(session, spark):
    mine = rows(spark, 5)
    mine.createOrReplaceTempView("orders")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "77")
    before = dict(spark.conf.getAll)
    views = {one.name for one in spark.catalog.listTables()}
    try:
        session.insert("main.t", rows(spark, 1))
        session.insert("main.t", sql="SELECT * FROM orders", sources={"orders": rows(spark, 2)})
        session.sql("INSERT INTO main.t SELECT * FROM orders", sources={"orders": rows(spark, 3)})
        session.update("main.t", {"name": "'x'"}, "true")

        assert {key: value for key, value in before.items() if spark.conf.get(key) != value} == {}
        assert {one.name for one in spark.catalog.listTables()} == views
        assert [one.id for one in spark.table("orders").collect()] == [5]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        spark.catalog.dropTempView("orders")


def test_a_query_means_what_it_means_in_the_session(session, spark, lake):
    """A write sets ANSI mode, by which Spark makes a number of a text that is united with one."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        session.insert("main.new", sql="SELECT '007' AS s UNION ALL SELECT 1", create_table=True)
        session.sql("CREATE TABLE main.other AS SELECT array('007', 1) AS s")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")

    assert sorted(lake.read_arrow("main.new")["s"].to_pylist()) == ["007", "1"]
    assert lake.read_arrow("main.other")["s"].to_pylist() == [["007", "1"]]


def test_errors_are_those_of_the_operators(session, spark, own, lake, tmp_path):
    before = lake.current_snapshot().id
    with pytest.raises(errors.SchemaMismatchError, match="extra"):
        session.insert("main.t", rows(spark, 1).selectExpr("*", "1 AS extra"))
    with pytest.raises(errors.SourceNotFoundError, match=r"nothing\.csv"):
        session.insert("main.t", str(tmp_path / "nothing.csv"))
    with pytest.raises(errors.InvalidInputError, match="Give exactly one of source, sql"):
        session.insert("main.t")
    with pytest.raises(errors.InvalidInputError, match="connections belong to Airflow"):
        session.insert("main.t", {"format": "jdbc", "conn_id": "erp"})
    with pytest.raises(errors.InvalidInputError, match="another SparkSession"):
        session.insert("main.t", own.range(3))
    with pytest.raises(errors.InvalidInputError, match="incremental and consumer are given together"):
        session.sql("INSERT INTO main.t SELECT * FROM main.t", incremental=True)
    for name in ("target_file_size", "max_file_size", "max_input_files", "commit_every"):
        with pytest.raises(errors.InvalidInputError, match=f"{name} is 'many'"):
            session.merge_adjacent_files("main.t", **{name: "many"})
    with pytest.raises(errors.InvalidInputError, match="delete_threshold is 'many'"):
        session.rewrite_data_files("main.t", delete_threshold="many")

    assert lake.current_snapshot().id == before
    assert lake.jobs.protected_prefixes() == frozenset()


def test_a_message_is_required_before_any_work(session, spark, lake):
    for ids in [(1,), (2,), (3,)]:
        session.insert("main.t", rows(spark, *ids).coalesce(1))
    session.delete("main.t", "id = 1")
    lake.set_option("require_commit_message", value=True)
    before, files = lake.current_snapshot().id, sorted(files_of(lake))

    for work in (
        lambda: session.insert("main.t", rows(spark, 1)),
        lambda: session.merge_adjacent_files("main.t"),
        lambda: session.rewrite_data_files("main.t", delete_threshold=0),
        session.flush_inlined_data,
    ):
        with pytest.raises(errors.InvalidInputError, match="message"):
            work()

    assert lake.current_snapshot().id == before
    assert sorted(files_of(lake)) == files
    assert session.merge_adjacent_files("main.t", message="merge")["files_added"] == 1


def _new_spark(master: str):
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - in the new process

    settings = {"spark.master": master, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _insert_twice_by_executors(url: str) -> None:
    spark = _new_spark("local-cluster[1,1,1024]")
    with Lake.connect(url) as lake:
        for ids in [(1,), (2,)]:
            LakeSession(spark, lake).insert("main.t", rows(spark, *ids))
    assert len(spark.sparkContext.listFiles) == 1


@pytest.mark.cluster
def test_executors_get_the_package_once(lake, sqlite_catalog):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_insert_twice_by_executors, args=(sqlite_catalog.sqlalchemy_url,))
    process.start()
    process.join(180)
    process.kill()

    assert process.exitcode == 0
    assert lake.row_count("main.t") == 2


def _insert_in_a_process(url: str, key: str) -> None:
    spark = _new_spark("local[1]")
    with Lake.connect(url) as lake:
        LakeSession(spark, lake).insert("main.t", rows(spark, 1, 2, 3), commit_key=key)


@pytest.mark.drawn(one_in=3)
@pytest.mark.kills
def test_processes_that_are_killed_insert_once(lake, sqlite_catalog, size, seed):
    choose, context = random.Random(f"{seed} session"), multiprocessing.get_context("spawn")
    for number in range(KILLS[size]):
        for is_killed in (True, True, False):
            process = context.Process(
                target=_insert_in_a_process, args=(sqlite_catalog.sqlalchemy_url, f"run {number}")
            )
            process.start()
            if is_killed:
                process.join(choose.uniform(2, LATEST_KILL))
                process.kill()
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
        assert process.exitcode == 0
        assert lake.row_count("main.t") == 3 * (number + 1)
    time.sleep(1)  # for JVMs that outlive their driver
    assert lake.verify() == []


def test_errors_of_a_read_are_the_operators(session, spark, lake):
    session.insert("main.t", rows(spark, *range(20)))
    read = session.read("main.t")
    file, *_ = files_of(lake)
    file.unlink()

    with (
        pytest.raises(errors.StorageError, match=rf"{file.name} of main\.t at snapshot 2"),
        session.translated(),
    ):
        read.collect()
    with pytest.raises(KeyError), session.translated():
        raise KeyError("of the user's own")


def _lose_the_jvm(url: str) -> None:
    spark = _new_spark("local[1]")
    with Lake.connect(url) as lake:
        session, frame = LakeSession(spark, lake), rows(spark, 1)
        read = session.read("main.t")
        spark.sparkContext._gateway.proc.kill()
        spark.sparkContext._gateway.proc.wait()
        for verb in (
            lambda: session.insert("main.t", frame),
            lambda: session.delete("main.t", "id = 1"),
            lambda: session.read("main.t"),
            lambda: session.changes("main.t", 1, lake.current_snapshot().id),
            session.translated()(read.collect),
        ):
            with pytest.raises(errors.SparkJobError, match=r"JVM has ended.*new SparkSession"):
                verb()


@pytest.mark.drawn(one_in=3)
@pytest.mark.kills
def test_a_session_whose_jvm_ended_says_so(lake, sqlite_catalog):
    lake.append_arrow("main.t", pa.table({"id": [1], "name": ["a"]}))
    process = multiprocessing.get_context("spawn").Process(
        target=_lose_the_jvm, args=(sqlite_catalog.sqlalchemy_url,)
    )
    process.start()
    process.join(120)
    process.kill()

    assert process.exitcode == 0
    assert lake.verify() == []


# --- what a write leaves alone: views, caches, settings, and other threads of the user ---


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

    found = by_duckdb(sqlite_catalog, "SELECT id, name FROM t ORDER BY id")
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
