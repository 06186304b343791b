"""Rows that a job deletes, updates and merges: what DuckDB's own statements make of a twin of the lake."""

import uuid
from pathlib import Path
from typing import Any, Self

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.planning.row_changes import RowChanges
from airflow_provider_ducklake.planning.write import plan_write
from airflow_provider_ducklake.spark.job_json import decode_request, encode_request
from airflow_provider_ducklake.spark.job_request import (
    Action,
    Clause,
    JobRequest,
    RowChangeSource,
    SqlSource,
    job_directory,
)
from airflow_provider_ducklake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.spec.snapshots import CommitInfo
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake


class Twins:
    """Two lakes with one history: `theirs`, which DuckDB goes on with, and `ours`."""

    def __init__(self, folder: Path, inlining_limit: int) -> None:
        self.lakes: list[DuckLakeConnection] = []
        for name in ("theirs", "ours"):
            (folder / name).mkdir()
            catalog = file_catalog("sqlite", folder / name)
            self.lakes.append(open_lake(catalog, data_inlining_row_limit=inlining_limit))
        self.lake = Lake.connect(catalog.sqlalchemy_url)
        self.theirs, self.ours = self.lakes

    def sql(self, *statements: str) -> None:
        """Run statements on both."""
        for statement in statements:
            for lake in self.lakes:
                lake.sql(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.lake.close()
        for lake in self.lakes:
            lake.close()

    def change(self, spark, table: str = "t", **changes: Any) -> RowChanges:
        """Run a job on ours and commit what it did."""
        plan, job_id = self.lake.scan(table), str(uuid.uuid4())
        directory = job_directory(plan.table.root, job_id)
        plans = tuple(plan_write(plan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
        request = JobRequest(job_id, RowChangeSource(plan, **changes), plans, verb="merge")
        done = change_rows(spark, decode_request(encode_request(request)))
        self.lake.commit_stages([self.lake.row_changes(plan.table, done)], CommitInfo("test", "change"))
        return done

    def assert_same(self, first_new: int, table: str = "t") -> int:
        """Compare rows and the last snapshot's changes, new rows in any order; return how many rows."""
        head, counts = self.lake.current_snapshot().id, []
        for query in (
            f"SELECT if(rowid < {first_new}, rowid, NULL), * FROM {table}",
            (
                f"SELECT if(rowid < {first_new}, rowid, NULL) AS id, * EXCLUDE (rowid, snapshot_id) "
                f"FROM ducklake_table_changes('lake', 'main', '{table}', {head}, {head})"
            ),
        ):
            theirs, ours = (sorted(map(repr, lake.sql(query))) for lake in self.lakes)
            assert ours == theirs, query
            counts.append(len(ours))
        return counts[0]

    def next_row_id(self, table: str = "t") -> int:
        """Return the first row id that no row has."""
        return max(lake.sql(f"SELECT coalesce(max(rowid), -1) + 1 FROM {table}")[0][0] for lake in self.lakes)


def delete(where: str) -> dict[str, Any]:
    return {"not_matched_by_source": (Clause(Action.DELETE, where),)}


def update(where: str | None, **values: str) -> dict[str, Any]:
    return {"not_matched_by_source": (Clause(Action.UPDATE, where, values),)}


@pytest.fixture
def twins(tmp_path: Path):
    with Twins(tmp_path, 0) as twins:
        yield twins


TABLE = "CREATE TABLE t (id BIGINT, name VARCHAR, price DOUBLE, s STRUCT(a INT, b VARCHAR), l INT[])"
ROWS = (
    "INSERT INTO t SELECT range, 'n' || range % 7, if(range % 5 = 0, NULL, range / 3), "
    "{{'a': range, 'b': 'x'}}, [range, NULL] FROM range({0}, {1})"
)


def test_delete(twins, spark):
    twins.sql(TABLE, ROWS.format(0, 100), ROWS.format(100, 200), "DELETE FROM t WHERE id % 10 = 3")
    for statement in ("id % 4 = 1", "price > 30 OR name = 'n3'", "id >= 100"):
        first = twins.next_row_id()
        twins.theirs.sql(f"DELETE FROM t WHERE {statement}")
        twins.change(spark, **delete(statement))
        twins.assert_same(first)


def test_update(twins, spark):
    twins.sql(TABLE, ROWS.format(0, 100), ROWS.format(100, 200), "DELETE FROM t WHERE id % 10 = 3")
    first = twins.next_row_id()
    twins.theirs.sql("UPDATE t SET name = upper(name), price = id + price WHERE id % 4 = 1")
    twins.change(spark, **update("id % 4 = 1", name="upper(name)", price="id + price"))
    twins.assert_same(first)


def test_merge(twins, spark):
    twins.sql(TABLE, ROWS.format(0, 100), ROWS.format(100, 200), "DELETE FROM t WHERE id % 10 = 3")
    first = twins.next_row_id()
    twins.theirs.sql(
        "CREATE TEMP TABLE s AS SELECT range * 3 AS id, 'new' AS name FROM range(80); BEGIN;"
        "DELETE FROM t WHERE if(id IN (SELECT id FROM s), id % 2 = 0, id > 190);"
        "MERGE INTO t USING (FROM s WHERE id < 200 AND id % 2 = 1) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name);"
        "INSERT INTO t (id, name) FROM s WHERE id >= 200 OR (id % 10 = 3 AND id % 2 = 0); COMMIT"
    )
    twins.change(
        spark,
        source=SqlSource("SELECT id * 3 AS id, 'new' AS name FROM range(80)", {}),
        on="target.id = source.id",
        matched=(
            Clause(Action.DELETE, "target.id % 2 = 0"),
            Clause(Action.UPDATE, None, {"name": "source.name"}),
        ),
        not_matched=(Clause(Action.INSERT, None, {"id": "id", "name": "name"}),),
        not_matched_by_source=(Clause(Action.DELETE, "id > 190"),),
    )
    twins.assert_same(first)
