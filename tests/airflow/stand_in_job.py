"""What the stand-in for `spark-submit` runs, in a second: inserts of a file, SQL and row changes by DuckDB.

Other sources have no rows.

`STAND_IN_MEANWHILE` is Python that runs when the data files are written and the result is not: the moment
when something may happen to the lake, the job or the task. It sees `request`.
"""

import os
import sys

from airflow_provider_ducklake.lake.planning.writing.write import RowChanges, WriteResult
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import JobRequest, LakeSource, RowChangeSource
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from tests.concurrency import arrow_jobs


def main(uri: str, digest: str) -> None:
    request = job_io.read_request(uri, digest)
    done = _done(request)
    exec(os.environ.get("STAND_IN_MEANWHILE", ""), {"request": request})
    if isinstance(done, RowChanges):
        job_io.write_row_changes(request, done)
    else:
        job_io.write_results(request, done)


def _done(request: JobRequest) -> RowChanges | tuple[WriteResult, ...]:
    has_rows = getattr(getattr(request.source, "dataset", None), "path", None)
    if has_rows or isinstance(request.source, LakeSource | RowChangeSource):
        return arrow_jobs.done(request)
    return tuple(arrow_jobs.write(plan, arrow_schema(plan.target).empty_table()) for plan in request.plans)


if __name__ == "__main__":
    main(*sys.argv[-2:])
