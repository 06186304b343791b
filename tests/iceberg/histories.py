"""Tables made as users make them, by jobs and by the library: deletes, updates, columns that change."""

import uuid
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.request import (
    Action,
    Clause,
    JobRequest,
    RowChangeSource,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import insert

FLAT = {
    "id": "int64",
    "number": "int32",
    "small": "float32",
    "ratio": "float64",
    "amount": "decimal(9,2)",
    "large": "decimal(38,6)",
    "region": "varchar",
    "day": "date",
    "moment": "timestamp",
    "seen": "timestamptz",
    "ok": "boolean",
    "raw": "blob",
}
_FLAT_ROWS = """
    SELECT r AS id, (r * 7919 % 1003)::INT AS number,
    CASE WHEN r % 11 = 0 THEN 'nan' WHEN r % 13 = 0 THEN NULL ELSE r / 4 END::FLOAT AS small,
    CASE WHEN r % 7 = 0 THEN 'nan' WHEN r % 17 = 0 THEN '-inf' ELSE r / 7 END::DOUBLE AS ratio,
    (r / 8)::DECIMAL(9, 2) AS amount, (r * 123456789012345678901.0 / 8)::DECIMAL(38, 6) AS large,
    [NULL, '', 'a/b=c ä', 'eu'][r % 4 + 1] AS region, DATE '1969-11-30' + (r % 9 * 61)::INT AS day,
    TIMESTAMP '1969-11-30 23:30:00.000001' + to_seconds(r * 100003) AS moment,
    (TIMESTAMP '1969-11-30 23:30:00' + to_hours(r % 5 * 1001))::TIMESTAMPTZ AS seen,
    CASE WHEN r % 3 > 0 THEN r % 3 = 1 END AS ok, encode('x' || r) AS raw FROM range({first}, {end}) rows(r)
"""
NESTED = {
    "id": "int64",
    "parts": "struct(a int32, tags varchar[], deeper struct(x float64, y decimal(18,4)))",
    "tags": "varchar[]",
    "pairs": "map(varchar, struct(n int64, at timestamp))",
    "lists": "int64[][]",
    "millis": "timestamp_ms",
    "seconds": "timestamp_s",
    "document": "json",
    "key": "uuid",
}
_NESTED_ROWS = """
    SELECT * EXCLUDE (deeper, pair) FROM (SELECT r AS id,
    {{'x': r / 3, 'y': (r / 8)::DECIMAL(18, 4)}} AS deeper, {{'n': r, 'at': moment}} AS pair,
    CASE WHEN r % 5 > 0 THEN {{'a': r::INT, 'tags': ['t' || r, NULL], 'deeper': deeper}} END AS parts,
    CASE r % 3 WHEN 0 THEN NULL WHEN 1 THEN [] ELSE ['a', NULL, 'b' || r] END AS tags,
    CASE WHEN r % 4 > 0 THEN MAP {{'k' || r: pair}} END AS pairs, [[r], [], NULL] AS lists,
    moment + to_milliseconds(500) AS millis, moment AS seconds, '{{"n": ' || r || '}}' AS document,
    md5(r::VARCHAR)::UUID::VARCHAR AS key
    FROM (SELECT r, TIMESTAMP '1969-12-31 23:59:00' + to_seconds(r) AS moment
    FROM range({first}, {end}) rows(r)))
"""
_ROWS = {"flat": _FLAT_ROWS, "nested": _NESTED_ROWS}


class History:
    """One table and those who write to it."""

    def __init__(self, spark: SparkSession, lake: Lake, folder: Path, table: str) -> None:
        self.spark = spark
        self.lake = lake
        self.folder = folder
        self.table = table

    def create(self, columns: dict[str, str], partition_by: tuple[str, ...] = ()) -> None:
        with self.lake.transaction() as tx:
            tx.create_table(self.table, columns, partition_by=partition_by)

    def insert(self, first: int, end: int, *changed: str) -> None:
        """Insert the rows of some ids by a job, columns as in `SELECT * changed`."""
        file = self.folder / f"{uuid.uuid4()}.parquet"
        rows = _ROWS[self.table].format(first=first, end=end)
        with open_lake(f"ducklake:{file}.ducklake") as duck:
            duck.sql(f"COPY (SELECT * {' '.join(changed)} FROM ({rows})) TO '{file}'")
        insert(self.lake, self.spark.read.parquet(str(file)), InsertChoice(), table=self.table)

    def repeat(self, where: str, new_id: int) -> None:
        """Append rows without Spark that are as others."""
        rows = self.lake.read_arrow(self.table, filter=where)
        ids = pa.array(range(new_id, new_id + rows.num_rows), pa.int64())
        self.lake.append_arrow(self.table, rows.set_column(0, "id", ids))

    def delete(self, where: str) -> None:
        with self.lake.transaction() as tx:
            tx.delete_rows(self.table, where)

    def delete_by_job(self, where: str) -> None:
        self._change("delete", Clause(Action.DELETE, where))

    def update(self, where: str, values: dict[str, str]) -> None:
        """Update rows by a job; they keep their row ids."""
        self._change("update", Clause(Action.UPDATE, where, values=values))

    def _change(self, verb: str, clause: Clause) -> None:
        scan, job_id = self.lake.scan(self.table, stats_of=["id"]), str(uuid.uuid4())
        directory = job_directory(scan.table.root, job_id)
        plans = tuple(plan_write(scan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
        source = RowChangeSource(scan, not_matched_by_source=(clause,))
        done = change_rows(self.spark, JobRequest(job_id, source, plans, verb=verb))
        self.lake.committer.commit_change_sets([self.lake.writes.row_changes(scan.table, done)], CommitInfo())

    def delete_files(self) -> list[bool]:
        """Return for each delete file in use whether it names the snapshot of each row."""
        files = self.lake.scan(self.table).files
        return [file.delete_file.partial_max is not None for file in files if file.delete_file is not None]


def flat(history: History, partition_by: tuple[str, ...]) -> None:
    history.create(FLAT, partition_by)
    history.insert(0, 300)
    history.repeat("id < 40", 1000)
    history.delete_by_job("id % 10 = 3")
    with history.lake.transaction() as tx:
        tx.rename_column(history.table, "number", "counted")
        tx.set_column_type(history.table, "counted", "int64")
        tx.set_column_type(history.table, "small", "float64")
        tx.set_column_type(history.table, "amount", "decimal(18,2)")
        tx.add_column(history.table, "number", "varchar")
        tx.drop_column(history.table, "large")
    history.insert(300, 400, "EXCLUDE (large)", "RENAME (number AS counted)", ", 'new' AS number")
    history.delete("id >= 100 AND id < 120 OR id = 305")
    _delete_first(history)
    history.update(
        "id % 50 = 1 AND id < 4000", {"number": "'updated'", "amount": "CAST(amount + 1 AS DECIMAL(18, 2))"}
    )


def nested(history: History, partition_by: tuple[str, ...]) -> None:
    history.create(NESTED, partition_by)
    history.insert(0, 300)
    history.repeat("id < 40", 1000)
    history.delete_by_job("id % 10 = 3")
    with history.lake.transaction() as tx:
        tx.rename_column(history.table, "parts.a", "b")
        tx.add_column(history.table, "parts.a", "varchar")
        tx.set_column_type(history.table, "parts.b", "int64")
    history.repeat("id >= 100 AND id < 150", 2000)
    history.delete("id >= 100 AND id < 120 OR id = 2005")
    _delete_first(history)
    history.update("id % 50 = 1 AND id < 4000", {"tags": "array('updated')"})


def _delete_first(history: History) -> None:
    """Have files that lost rows once only."""
    history.repeat("id > 200 AND id < 210", 4000)
    history.delete("id = 4000 OR id = 4002")
