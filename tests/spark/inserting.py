"""Inserts as the operator makes them, without Airflow: plan, Spark job, commit."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.operators.insert_modes import InsertChoice
from airflow_provider_ducklake.planning.write import WriteResult
from airflow_provider_ducklake.spark.job_json import decode_plan, encode_plan
from airflow_provider_ducklake.spark.job_request import job_directory
from airflow_provider_ducklake.spark.jobs.insert import write
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


def insert(
    lake: Lake,
    df: DataFrame,
    choice: InsertChoice,
    *,
    table: str = "t",
    engine: str = "auto",
    meanwhile: Callable[[], Any] = lambda: None,
) -> tuple[WriteResult, CommittedSnapshot | None]:
    """Insert the rows; ``meanwhile`` happens between the job and the commit."""
    target = lake.table_snapshot(table)
    plan = choice.plan(lake, target, job_directory(target.root, str(uuid.uuid4())))
    result = write(df, decode_plan(encode_plan(plan)), engine)
    meanwhile()
    committed = lake.commit(target.snapshot.id, choice.changes(lake, target, result), CommitInfo())
    return result, committed


@contextmanager
def new_lake(catalog: CatalogDatabase, *statements: str, **options: Any) -> Iterator[Lake]:
    """Open a lake that the reference made by statements."""
    with open_lake(catalog, **options) as reference:
        for statement in statements:
            reference.sql(statement)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake


def rows_of(catalog: CatalogDatabase, query: str = "FROM t ORDER BY ALL") -> list[tuple[Any, ...]]:
    """Read as the reference does."""
    with open_lake(catalog) as reference:
        return reference.sql(query)
