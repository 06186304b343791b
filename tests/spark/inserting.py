"""`LakeSession` with jobs that are told, and tell, by documents; inserts and small lakes for its tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommittedSnapshot
from airflow_provider_ducklake.lake.planning.writing.write import RowChanges, WriteResult
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import JobRequest
from airflow_provider_ducklake.lake.spark.jobs.here import run_here
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from airflow_provider_ducklake.lake.writes.session import LakeSession, SessionSubmitter
from airflow_provider_ducklake.lake.writes.verb import Results
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


@dataclass(frozen=True)
class _ByDocuments(SessionSubmitter):
    session: Any = None

    def run(self, request: JobRequest, storage_options: Any) -> Results:
        told = job_io.read_request(job_io.write_request(request), job_io.request_digest(request))
        done = run_here(self.spark, told, storage_options, self.frames)
        write = job_io.write_row_changes if isinstance(done, RowChanges) else job_io.write_results
        write(told, done)
        self.session.results = Results.of(job_io.read_outcome(request))
        self.session.meanwhile()
        return self.session.results

    def tidy_up(self, request: JobRequest, storage_options: Any) -> None:
        job_io.delete_job_files(request, storage_options)


class ToldSession(LakeSession):
    """Keeps what its last job did; ``meanwhile`` happens between a job and its commit."""

    def __init__(self, spark: SparkSession, lake: Lake, meanwhile: Callable[[], Any] = lambda: None) -> None:
        super().__init__(spark, lake)
        self.meanwhile = meanwhile
        self.results = Results()

    def _submitter(self, frames: Any) -> _ByDocuments:
        return _ByDocuments(self._spark, frames, self)


def insert(
    lake: Lake,
    df: DataFrame,
    choice: InsertChoice,
    *,
    table: str = "t",
    meanwhile: Callable[[], Any] = lambda: None,
) -> tuple[WriteResult, CommittedSnapshot | None]:
    """Insert the rows; ``meanwhile`` happens between the job and the commit."""
    session = ToldSession(df.sparkSession, lake, meanwhile)
    committed = session.insert(
        table,
        df,
        mode=choice.mode.value,
        overwrite_where=choice.where,
        schema_evolution=choice.evolution.value,
        zorder_by=choice.zorder_by,
    )
    return session.results.of_plans[-1], committed


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
