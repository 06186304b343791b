"""What the stand-in for `spark-submit` runs: an insert of a Parquet file by pyarrow, in a second.

Other sources have no rows, and partitions are not split.

`STAND_IN_MEANWHILE` is Python that runs when the data files are written and the result is not: the moment
when something may happen to the lake, the job or the task. It sees `request`.
"""

import os
import sys
import uuid

import pyarrow.parquet as pq

from airflow_provider_ducklake.planning.write import WriteResult
from airflow_provider_ducklake.spark import job_io
from airflow_provider_ducklake.spec.partitioning import parse_partition_by
from airflow_provider_ducklake.spec.schema import new_columns
from airflow_provider_ducklake.storage.arrow_types import arrow_schema, fields_of_arrow
from airflow_provider_ducklake.storage.parquet_writer import RollingWriter


def main(uri: str) -> None:
    request = job_io.read_request(uri)
    (plan,) = request.plans
    path = getattr(getattr(request.source, "dataset", None), "path", None)
    rows = pq.read_table(path) if path else arrow_schema(plan.target).empty_table()
    schema = plan.schema or new_columns(fields_of_arrow(rows.schema))
    fields = parse_partition_by(plan.partition_by, schema, plan.table)
    with RollingWriter(
        schema, lambda: f"{plan.directory}{uuid.uuid4().hex}.parquet", plan.settings
    ) as writer:
        writer.write(rows)
    exec(os.environ.get("STAND_IN_MEANWHILE", ""), {"request": request})
    job_io.write_results(
        request, [WriteResult(schema, fields, tuple(writer.files), rows.num_rows, "arrow", {})]
    )


main(sys.argv[-1])
