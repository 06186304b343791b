"""Changes of rows: what others commit before them and who wins, what they read, and how few are written."""

import random
import time
import uuid
from collections.abc import Iterator
from datetime import date
from threading import Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SparkJobError, TransactionConflictError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.overwrite import RowScope
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.request import (
    Action,
    Clause,
    JobRequest,
    RowChangeSource,
    SqlSource,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.lake.spark.writing import write_arrow
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.sql.spark.conditions import readable_filter
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.lake.sql.spark.statements import WriteMode
from airflow_provider_ducklake.lake.storage.rows.table_reader import matching
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet
from airflow_provider_ducklake.lake.writes.session import LakeSession
from airflow_provider_ducklake.lake.writes.sql_plan import Reads, find_target, rows_read
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import new_lake, rows_of

SOURCE = SqlSource("SELECT id, 10 AS n FROM range(50, 150)", {})
NEW_KEYS = SqlSource("SELECT id, 10 AS n FROM range(1000, 1003)", {})
RAISE = Clause(Action.UPDATE, None, {"n": "target.n + source.n"})
ADD = Clause(Action.INSERT, None, {"id": "id", "n": "n"})


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT i AS id, 0 AS n FROM range(100) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def merge(spark, lake: Lake, rows: SqlSource = SOURCE, matched: tuple[Clause, ...] = (RAISE,)) -> ChangeSet:
    """Plan a merge on the lake's snapshot and run its job; nothing is committed."""
    plan, job_id = lake.scan("t", stats_of=["id"]), str(uuid.uuid4())
    directory = job_directory(plan.table.root, job_id)
    plans = tuple(plan_write(plan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
    source = RowChangeSource(
        plan, source=rows, on="target.id = source.id", matched=matched, not_matched=(ADD,)
    )
    return lake.writes.row_changes(
        plan.table, change_rows(spark, JobRequest(job_id, source, plans, verb="merge"))
    )


def commit(lake: Lake, change_set: ChangeSet) -> None:
    lake.committer.commit_change_sets([change_set], CommitInfo("test", "merge"))


def test_of_two_merges_one_wins_and_the_other_then_sees_its_rows(spark, lake, sqlite_catalog):
    first, second = merge(spark, lake), merge(spark, lake)
    commit(lake, second)
    with pytest.raises(TransactionConflictError):
        commit(lake, first)
    commit(lake, merge(spark, lake))

    with open_lake(sqlite_catalog) as duck:
        counts = duck.sql("SELECT n, count(*), min(id), max(id) FROM t GROUP BY n ORDER BY n")
        assert counts == [(0, 50, 0, 49), (20, 100, 50, 149)]
        assert duck.sql("SELECT count(DISTINCT rowid) FROM t") == [(150,)]


@pytest.mark.parametrize("matched", [(), (RAISE,)], ids=["insert only", "update and insert"])
@pytest.mark.parametrize("theirs", ["our merge", "inlined insert", "insert"])
def test_keys_that_two_writers_insert_at_once_are_there_once(spark, lake, sqlite_catalog, matched, theirs):
    change_set = merge(spark, lake, NEW_KEYS, matched)
    if theirs == "our merge":
        commit(lake, merge(spark, lake, NEW_KEYS, matched))
    else:
        with open_lake(sqlite_catalog, data_inlining_row_limit=50 if "inlined" in theirs else 0) as reference:
            reference.sql("INSERT INTO t SELECT 1000 + i, 10 FROM range(3) r(i)")
    with pytest.raises(TransactionConflictError, match="added"):
        commit(lake, change_set)
    commit(lake, merge(spark, lake, NEW_KEYS, matched))

    with open_lake(sqlite_catalog) as duck:
        expected = [(one, 20 if matched else 10) for one in (1000, 1001, 1002)]
        assert duck.sql("FROM t WHERE id >= 1000 ORDER BY ALL") == expected


@pytest.mark.parametrize("limit", [0, 50])
def test_rows_that_others_append_meanwhile_are_merged_by_the_next_try(spark, lake, sqlite_catalog, limit):
    change_set = merge(spark, lake)
    with open_lake(sqlite_catalog, data_inlining_row_limit=limit) as reference:
        reference.sql("INSERT INTO t SELECT 130 + i, 7 FROM range(40) r(i)")
    with pytest.raises(TransactionConflictError, match="added"):
        commit(lake, change_set)
    commit(lake, merge(spark, lake))

    with open_lake(sqlite_catalog) as duck:
        counts = duck.sql("SELECT n, count(*), min(id), max(id) FROM t GROUP BY n ORDER BY n")
        assert counts == [(0, 50, 0, 49), (7, 20, 150, 169), (10, 80, 50, 129), (17, 20, 130, 149)]
        assert duck.sql("SELECT count(DISTINCT rowid) FROM t") == [(170,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE id = 3",
        "UPDATE t SET n = 1 WHERE id = 70",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    ],
)
def test_a_file_that_others_took_rows_from_is_a_conflict(spark, lake, sqlite_catalog, statement):
    by_duckdb(sqlite_catalog, "DELETE FROM t WHERE id = 5", data_inlining_row_limit=0)
    change_set = merge(spark, lake)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql(statement)
        rows = duck.sql("FROM t ORDER BY ALL")

    with pytest.raises(TransactionConflictError):
        commit(lake, change_set)
    assert by_duckdb(sqlite_catalog, "FROM t ORDER BY ALL") == rows


# --- rows outside of what a query is found to read do not change what Spark makes of it ---

JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"
DAYS = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3), None]
READ_ROWS = pa.table(
    {
        "id": pa.array([row if row % 7 else None for row in range(64)], pa.int64()),
        "day": pa.array([DAYS[row % 4] for row in range(64)], pa.date32()),
        "name": pa.array(["a", "b", None, "day", "4"] * 12 + ["a"] * 4),
    }
)

NARROWED = [
    "SELECT * FROM t WHERE day = DATE '2026-01-01' AND id < 40",
    "SELECT * FROM t WHERE day = '2026-01-01' OR day = DATE '2026-01-03'",
    "SELECT * FROM t WHERE name = 'a' AND length(name) = 1 AND id BETWEEN 3 AND 30",
    "SELECT * FROM t WHERE \"day\" = 'day' AND id < 40",
    'SELECT * FROM t WHERE name = "a" AND id < 40',
    "SELECT * FROM t WHERE `day` IS NULL AND NOT id > 20",
    "SELECT max(id), day, 'x' FROM t WHERE id IN (1, 2, 30) GROUP BY day",
    "SELECT count(*), max(day), 'x' FROM t AS q WHERE q.day <=> NULL AND q.id < 40",
    "SELECT s.* FROM s LEFT ANTI JOIN t ON s.id = t.id AND t.day = DATE '2026-01-02'",
    "SELECT s.* FROM s LEFT SEMI JOIN t ON s.id = t.id AND t.name = 'a'",
    "SELECT s.id, t.day, t.name FROM s LEFT JOIN t ON s.id = t.id AND t.id < 9 WHERE t.day IS NULL",
    "SELECT s.* FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = s.id AND t.day = DATE '2026-01-02')",
    "SELECT s.* FROM s WHERE s.id NOT IN (SELECT id FROM t WHERE id IS NOT NULL AND name = 'b')",
    "SELECT id, (SELECT max(day) FROM t WHERE t.id < s.id AND t.name = 'a'), name FROM s WHERE s.id = 5",
    "SELECT t.* FROM t LEFT JOIN s USING (id) WHERE id < 10 AND s.day IS NULL",
    "SELECT t.* FROM s, t WHERE t.id = s.id + 1 AND t.id > 50 AND s.id > 3",
    "WITH x AS (SELECT * FROM t WHERE id < 20) TABLE x UNION ALL SELECT * FROM t WHERE id = 60",
    "SELECT x.* FROM t x JOIN t y ON x.id = y.id + 1 AND y.id < 7 WHERE x.id > 50",
    "SELECT id, day, name FROM (SELECT *, max(id) OVER (ORDER BY id) n FROM t WHERE name = 'a') WHERE n = id",
]
WHOLE = [
    "SELECT s.* FROM s LEFT ANTI JOIN t ON s.id = t.id WHERE day = DATE '2026-01-02'",
    "SELECT t.* FROM t RIGHT JOIN s ON t.id = s.id AND t.day = DATE '2026-01-01' WHERE t.day IS NULL",
    "SELECT t.* FROM t FULL JOIN s ON t.id = s.id AND t.id < 5 WHERE t.day IS NULL AND t.id < 9",
    "SELECT t.* FROM s JOIN t USING (id) WHERE id < 10",
    "SELECT * FROM (SELECT * FROM t) WHERE id < 10",
]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("lake")
    with Lake.create(f"sqlite:///{folder}/lake.sqlite", f"{folder}/data/") as lake:
        with lake.transaction() as tx:
            for name in ("t", "s"):
                tx.create_table(name, {"id": "int64", "day": "date", "name": "varchar"})
            tx.append_arrow("t", READ_ROWS)
            tx.append_arrow("s", READ_ROWS.slice(20, 30))
        yield lake


@pytest.mark.parametrize("query", [*NARROWED, *WHOLE])
def test_rows_outside_of_the_scope_do_not_count(spark, days, query):
    head = days.current_snapshot()
    target = find_target(days, QualifiedName.of("t"), WriteMode.APPEND, head, JOB)
    reads = Reads(days, JOB, head, targets=frozenset({target.name.folded}))
    (statement,) = parse_spark_sql(f"INSERT INTO t {query}")
    text = reads.query(statement.query)
    (read,) = rows_read([target], reads, head.id)

    def answer(rows_of_t: pa.Table) -> list[str]:
        for name in ("t", "s"):
            view = reads.view_of(QualifiedName.of(name))
            rows = rows_of_t if name == "t" else days.read_arrow(name)
            spark.createDataFrame(
                rows.to_pylist(), "id bigint, day date, name string"
            ).createOrReplaceTempView(view)
        return sorted(map(str, spark.sql(text).collect()))

    scope = read.scope
    assert scope is None or isinstance(scope, RowScope)
    inside = READ_ROWS if scope is None else matching(READ_ROWS, scope.where, scope.table.schema)

    assert answer(inside) == answer(READ_ROWS)
    assert (inside.num_rows < READ_ROWS.num_rows) == (query in NARROWED)


def test_a_filter_of_floats_is_true_wherever_spark_finds_the_condition_true(spark):
    drawn = random.Random(56)
    schema = new_columns({"f": "float32"})
    numbers = ["0.1", "16777217", "0.5", "5"]
    numbers += [f"{drawn.uniform(0, 10 ** drawn.randint(-3, 9)):.{drawn.randint(0, 9)}f}" for _ in range(12)]
    near = [np.float32(float(one)) for one in numbers]
    values = [float(np.nextafter(one, way)) for one in near for way in (-np.inf, one, np.inf)]
    rows = pa.table({"f": pa.array(values, pa.float32())})
    spark.createDataFrame([(one,) for one in rows["f"].to_pylist()], "f float").createOrReplaceTempView("fs")
    conditions = [f"f {operator} {one}" for one in numbers for operator in ("=", "<>", "<", "<=", ">", ">=")]
    by_spark = spark.sql(f"SELECT f, {', '.join(conditions)} FROM fs").collect()
    filters = [readable_filter(one, schema, "t", alias="t") for one in conditions]
    for place, text in enumerate(filters, 1):
        if text is not None:
            found = matching(rows, read_predicate(text, schema, "t"), schema)["f"].to_pylist()
            assert {row[0] for row in by_spark if row[place]} <= set(found), text
    assert {text is not None for text in filters} == {True, False}


# --- rows that take few bytes are written without tasks, however many they are ---

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
