"""Queries over lake tables in Spark: the SQL job without Airflow."""

import uuid
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, SchemaMismatchError, StorageError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.request import (
    Dataset,
    JobRequest,
    LakeSource,
    Step,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.sql import run_sql
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.lake.sql.spark.statements import WriteMode
from airflow_provider_ducklake.lake.writes.sql_plan import Reads, find_target, steps_of
from tests.interop.lakes import alone

JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "day": [date(2026, 1, 1), date(2026, 1, 1), date(2026, 1, 2)],
        "name": ["a", None, "c"],
    }
)


@pytest.fixture
def lake(tmp_path: Path):
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/data/") as lake:
        with lake.transaction() as tx:
            tx.create_table("o", {"id": "int64", "day": "date", "name": "varchar"})
            tx.create_table("n", {"day": "date", "count": "int64"})
            tx.append_arrow("o", ROWS)
        yield lake


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(spark, lake: Lake) -> Run:
    """Run a job that writes n, `times` times, and return all rows that it wrote."""

    def run(source: LakeSource, times: int = 1) -> list[dict[str, Any]]:
        table, job_id = lake.table_snapshot("n"), str(uuid.uuid4())
        plans = tuple(
            plan_write(table, f"{job_directory(table.root, job_id)}{number}/") for number in range(times)
        )
        request = JobRequest(job_id, source, plans, verb="sql")
        request = decode(encode(request, JobRequest), JobRequest)  # as it travels
        results = run_sql(spark, request)
        paths = [file.path for result in results for file in result.data_files]
        assert sum(result.rows_written for result in results) == sum(map(rows_in, paths))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    return run


def rows_in(path: str) -> int:
    return pq.read_metadata(path).num_rows


COUNT = "SELECT day, count(*) FROM o GROUP BY day ORDER BY day"
COUNTED = [{"day": date(2026, 1, 1), "count": 2}, {"day": date(2026, 1, 2), "count": 1}]


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


def test_queries_see_tables_and_earlier_views(lake, run):
    steps = (
        Step(COUNT, view="counted"),
        Step("SELECT * FROM counted WHERE day < DATE '2026-01-02'", plan=1, columns=("day", "count")),
        Step("SELECT count(*) AS `count`, max(day) AS day FROM o", plan=0),
    )

    rows = run(LakeSource({"o": lake.scan("o")}, steps=steps), times=2)

    assert sorted_rows(rows) == sorted_rows([COUNTED[0], {"day": date(2026, 1, 2), "count": 3}])


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO n WITH _ducklake_0 AS (SELECT 99 AS id) SELECT o.day, o.id FROM o, _ducklake_0",
        "CREATE TEMPORARY VIEW _DuckLake_0 AS SELECT 9; INSERT INTO n SELECT o.day, id FROM o, `_DUCKLAKE_0`",
        "INSERT INTO n SELECT day, id FROM hides",
        "INSERT INTO n SELECT o.day, o.id FROM o, _DUCKLAKE_0",
    ],
)
def test_no_name_in_statements_views_or_sources_hides_a_table(lake, run, tmp_path, sql):
    with lake.transaction() as tx:
        hides = "WITH _ducklake_1 AS (SELECT 99 AS id) SELECT o.day, o.id FROM o, _ducklake_1"
        tx.create_view("hides", hides, "spark")
    pq.write_table(pa.table({"id": [99]}), tmp_path / "source.parquet")
    datasets = {"_ducklake_0": Dataset.of(str(tmp_path / "source.parquet"))}
    head, n = lake.current_snapshot(), QualifiedName.of(("main", "n"))
    targets = {n.folded: find_target(lake, n, WriteMode.APPEND, head, JOB)}
    reads = Reads(lake, JOB, head)
    steps, _ = steps_of(parse_spark_sql(sql, datasets), reads, targets, "job")

    rows = run(LakeSource(reads.tables, datasets, tuple(steps)))

    assert sorted(row["count"] for row in rows) == [1, 2, 3]


def test_changes_come_with_their_kind_and_place(lake, run):
    before = lake.current_snapshot().id
    alone(lake).truncate("o")
    lake.append_arrow("o", ROWS.slice(1, 1))
    sign = "CASE change_type WHEN 'insert' THEN 1 ELSE -1 END"
    query = f"SELECT day, CAST(sum({sign}) AS BIGINT) FROM o GROUP BY day"
    step = Step(query, plan=0, columns=("day", "count"))

    rows = run(LakeSource({"o": lake.changes_after("o", before).plan}, steps=(step,)))

    assert sorted_rows(rows) == [
        {"day": date(2026, 1, 1), "count": -1},
        {"day": date(2026, 1, 2), "count": -1},
    ]


def test_a_whole_table_seen_as_changes(lake, run):
    snapshot = lake.current_snapshot().id
    query = f"""SELECT day, rowid FROM o WHERE change_type = 'insert' AND snapshot_id = {snapshot}"""
    step = Step(query, plan=0, columns=("day", "count"))

    rows = run(LakeSource({"o": lake.scan("o")}, steps=(step,), as_inserts=frozenset({"o"})))

    assert [row["count"] for row in sorted_rows(rows)] == [0, 1, 2]


def test_a_function_gets_tables_by_name(lake, run, tmp_path, monkeypatch):
    pq.write_table(pa.table({"factor": pa.array([10], pa.int64())}), tmp_path / "factor.parquet")
    (tmp_path / "counting.py").write_text(
        "from pyspark.sql import functions as f\n"
        "def count(spark, lake_table, sources):\n"
        "    counted = lake_table('O').groupBy('day').agg(f.count('*').alias('n'))\n"
        "    joined = counted.crossJoin(sources['factor'])\n"
        "    return joined.select('day', (f.col('n') * f.col('factor')).alias('count'))\n"
        "def by_name(spark, lake_table):\n"
        "    return {'n': lake_table('main.o').groupBy('day').count()}\n"
        "def view(spark, lake_table):\n"
        "    return lake_table('o').join(lake_table('second'), 'id').groupBy('day').count()\n"
        "def unknown(spark, lake_table):\n"
        "    return lake_table('p')\n"
        "def nothing(spark, lake_table):\n"
        "    return None\n"
        "def other(spark, lake_table):\n"
        "    return {'p': lake_table('o')}\n"
        "def number(spark, lake_table):\n"
        "    return {'main.n': 1}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def source(function: str, **datasets: Dataset) -> LakeSource:
        return LakeSource({"main.o": lake.scan("o")}, datasets, function=f"counting:{function}")

    factor = Dataset.of(str(tmp_path / "factor.parquet"))
    assert sorted_rows(run(source("count", factor=factor))) == [
        {"day": date(2026, 1, 1), "count": 20},
        {"day": date(2026, 1, 2), "count": 10},
    ]
    assert sorted_rows(run(source("by_name"))) == COUNTED
    alone(lake).create_view("second", "SELECT id FROM o WHERE id = 2", "spark")
    for names in (["o", "second"], ["second", "o"]):  # a view may come before the table that it reads
        wanted = {QualifiedName.of(name).folded: f"main.{name}" for name in names}
        reads = Reads(lake, JOB, lake.current_snapshot(), wanted=wanted)
        for name in names:
            reads.view_of(QualifiedName.of(name))
        read = LakeSource(reads.tables, steps=tuple(reads.steps), function="counting:view")
        assert run(read) == [{"day": date(2026, 1, 1), "count": 1}]
    for function, message in {
        "unknown": r"lake_table\('p'\)",
        "nothing": "returned NoneType",
        "other": "rows for p; the task writes main.n",
        "number": "returned int for main.n",
        "missing": "cannot be imported",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            run(source(function))


def test_a_missing_file_is_named_with_its_table(lake, run):
    with lake.transaction() as tx:
        tx.create_table("big", {"id": "int64"})
        tx.append_arrow("big", pa.table({"id": pa.array(range(100), pa.int64())}))
    plan = lake.scan("big")
    Path(plan.files[0].path).unlink()
    step = Step("SELECT DATE '2026-01-01', id FROM big", plan=0, columns=("day", "count"))

    with pytest.raises(StorageError, match=r"main\.big"):
        run(LakeSource({"big": plan}, steps=(step,)))


def test_columns_that_do_not_fit(lake, run):
    tables = {"o": lake.scan("o")}
    two = ("day", "count")

    with pytest.raises(SchemaMismatchError, match="the query has 1 columns"):
        run(LakeSource(tables, steps=(Step("SELECT day FROM o", plan=0, columns=two),)))
    with pytest.raises(SchemaMismatchError, match="count"):
        run(LakeSource(tables, steps=(Step("SELECT day, name FROM o", plan=0, columns=two),)))
    with pytest.raises(InvalidInputError, match="nowhere"):
        run(LakeSource(tables, steps=(Step("SELECT nowhere FROM o", plan=0),)))
