"""Code of users runs before ours in one session, and may set it, or bring a session of its own."""

import uuid
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.request import (
    Action,
    Clause,
    JobRequest,
    LakeSource,
    RowChangeSource,
    TransformSource,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.insert import insert, write
from airflow_provider_ducklake.lake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.lake.spark.jobs.sql import run_sql
from airflow_provider_ducklake.lake.spark.read import read_table
from tests.interop.lakes import alone
from tests.spark.inserting import new_lake

QUOTED_REGEX = "spark.sql.parser.quotedRegexColumnNames"
# what a function sets before it returns its rows: each changes files or rows where it is not set back
SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parquet.compression.codec": "gzip",
    QUOTED_REGEX: "true",
    "spark.sql.sources.useV1SourceList": "",
    "parquet.statistics.truncate.length": "3",
    "parquet.compression": "GZIP",
    "parquet.block.size": "4096",
}
COLUMNS = {
    "id": "int64",
    "d": "date",
    "ts": "timestamp",
    "tz": "timestamptz",
    "price": "decimal(9,2)",
    "name": "varchar",
    "s": "struct(d date, tz timestamptz)",
}
ROW = (
    "7",
    "1500-01-01",
    "1500-01-01 12:30:00",
    "1500-01-01 12:30:00+00",
    "12.34",
    "abcdef",
    "{'d': 1500-01-01, 'tz': '1500-01-01 12:30:00+00'}",
)
QUERY = (
    "SELECT 7L AS id, DATE'1500-01-01' AS d, TIMESTAMP_NTZ'1500-01-01 12:30:00' AS ts,"
    " TIMESTAMP_LTZ'1500-01-01 12:30:00Z' AS tz, 12.34BD AS price, 'abcdef' AS name,"
    " named_struct('d', DATE'1500-01-01', 'tz', TIMESTAMP_LTZ'1500-01-01 12:30:00Z') AS s"
)


def facts_of(files) -> dict[str, object]:
    """Return what a reader sees of files with one row group: rows, types, ids, codecs and bounds."""
    paths = [file.path for file in files]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM read_parquet({paths})").fetchall()
    metadata = pq.read_metadata(paths[0])
    chunks = [metadata.row_group(0).column(place) for place in range(metadata.num_columns)]
    schema = metadata.schema
    return {
        "rows": rows,
        "types": [
            (chunk.path_in_schema, chunk.physical_type, str(schema.column(place).logical_type))
            for place, chunk in enumerate(chunks)
        ],
        "ids": [field.metadata[b"PARQUET:field_id"] for field in schema.to_arrow_schema()],
        "codecs": {chunk.compression for chunk in chunks},
        "bounds": [
            (one.column_id, one.null_count, one.min_value, one.max_value)
            for one in files[0].column_stats.values()
        ],
    }


def test_a_session_set_by_a_user_changes_neither_rows_nor_files(spark, new_plan, new_session):
    schema = new_columns(COLUMNS)
    usual = facts_of(write(spark.sql(QUERY), new_plan(schema)).data_files)
    assert usual["rows"] == [ROW]
    changed = {}
    for key, value in SETTINGS.items():
        session = new_session()
        df = session.sql(QUERY)
        session.conf.set(key, value)
        found = facts_of(write(df, new_plan(schema)).data_files)
        changed |= {(key, what): one for what, one in found.items() if one != usual[what]}
    assert changed == {}


def test_a_session_of_the_users_own_is_prepared(spark, new_plan, new_session):
    schema = new_columns(COLUMNS)
    usual = facts_of(write(spark.sql(QUERY), new_plan(schema)).data_files)

    assert facts_of(write(new_session().sql(QUERY), new_plan(schema)).data_files) == usual


FUNCTIONS = """
def legacy(spark, sources):
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    return spark.sql("SELECT DATE'1500-01-01' AS d")

def no_nanoseconds(spark, lake_table):
    rows = lake_table("t")
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "false")
    return rows

def pushed_down(spark, sources):
    spark.conf.set("spark.sql.parquet.filterPushdown", "true")
    return spark.sql("SELECT 1D AS x")
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch) -> str:
    (tmp_path / "setting_sessions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    return "setting_sessions"


def test_a_transform_that_sets_the_session_writes_the_dates_that_it_has(new_plan, functions, new_session):
    plan = new_plan(new_columns({"d": "date"}))
    job_id = plan.directory.rstrip("/").rpartition("ducklake-")[2]
    request = JobRequest(job_id, TransformSource(f"{functions}:legacy", {}), (plan,))

    (result,) = insert(new_session(), request)

    assert [pq.read_table(file.path).to_pylist() for file in result.data_files] == [[{"d": date(1500, 1, 1)}]]


def test_tables_of_the_lake_are_read_right_whatever_a_function_sets_after_it_got_them(
    sqlite_catalog, functions, new_session
):
    made = (
        "CREATE TABLE t (old TIMESTAMP_NS)",
        "INSERT INTO t SELECT make_timestamp_ns(range) FROM range(100)",
        "ALTER TABLE t RENAME old TO renamed",
        "CREATE TABLE u (renamed TIMESTAMP_NS)",
    )
    with new_lake(sqlite_catalog, *made) as lake:
        table, job_id = lake.table_snapshot("u"), str(uuid.uuid4())
        plan = plan_write(table, job_directory(table.root, job_id))
        source = LakeSource({"main.t": lake.scan("t")}, function=f"{functions}:no_nanoseconds")
        request = JobRequest(job_id, source, (plan,), verb="sql")

        (result,) = run_sql(new_session(), request)

    files = [pq.read_table(file.path)["renamed"].cast(pa.int64()) for file in result.data_files]
    assert sorted(value for file in files for value in file.to_pylist()) == [*range(100)]


def test_a_merge_finds_nan_whatever_its_source_sets(sqlite_catalog, functions, tmp_path, new_session):
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"v": [0.1, float("nan")]}), file)  # whose bounds leave NaN out
    with new_lake(sqlite_catalog, "CREATE TABLE t (v DOUBLE)") as lake:
        alone(lake).add_data_files("t", [str(file)])
        table, job_id = lake.table_snapshot("t"), str(uuid.uuid4())
        directory = job_directory(table.root, job_id)
        plans = tuple(plan_write(table, f"{directory}{part}/") for part in ("updated", "inserted"))
        changes = RowChangeSource(
            lake.scan("t"),
            matched=(Clause(Action.DELETE),),
            source=TransformSource(f"{functions}:pushed_down", {}),
            on="t.v > 1 AND source.x = 1",
            target_alias="t",
        )

        found = change_rows(new_session(), JobRequest(job_id, changes, plans, verb="merge"))

    assert found.rows_gone == 1


def test_rows_with_deletes_are_read_whatever_version_of_sources_the_user_wants(sqlite_catalog, new_session):
    made = (
        "CREATE TABLE t (i BIGINT)",
        "INSERT INTO t SELECT range FROM range(100)",
        "DELETE FROM t WHERE i < 90",
    )
    session = new_session()
    session.conf.set("spark.sql.sources.useV1SourceList", "")
    with new_lake(sqlite_catalog, *made) as lake:
        rows = read_table(session, lake.scan("t"), row_ids=True).collect()

    assert sorted(row.i for row in rows) == [*range(90, 100)]
