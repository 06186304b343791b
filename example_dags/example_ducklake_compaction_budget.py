"""Compaction within a budget, night by night: the tables with the most small files first.

The parameter ``max_files`` says how many small files a night may merge; as each has less than 16 MiB, that
bounds the bytes, too (1,000 files: 16 GiB). ``max_minutes`` says until when a table may be begun. What is
left over has the most small files the next night, and comes first then.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``), and an existing lake.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, Param, task

from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

SMALL = "16MiB"
SMALL_BANDS = ("under_1_mib", "under_16_mib")  # as the health operator counts files, each once
AT_LEAST = 3  # small files of a table; fewer are not worth a Spark job


@task
def share_out(health: Any, params: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401 - health's result; Airflow's
    """Return what to merge: the neediest tables, as many files of each as the budget still has."""
    small = {one["name"]: sum(one["files_by_size"][band] for band in SMALL_BANDS) for one in health["tables"]}
    left, shares = params["max_files"], []
    for table in sorted(small, key=lambda name: -small[name]):
        share = min(small[table], left)
        if share < AT_LEAST:
            break
        shares.append({"table": table, "max_input_files": share})
        left -= share
    return shares


def skip_if_late(context: Context) -> None:
    """Begin no table once the run's time is used up."""
    minutes = context["params"]["max_minutes"]
    started: Any = context["dag_run"].start_date
    if datetime.now(UTC) - started >= timedelta(minutes=minutes):
        raise AirflowSkipException(f"The {minutes} minutes of this night are used up.")


with DAG(
    "example_ducklake_compaction_budget",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="0 1 * * *",
    catchup=False,
    max_active_runs=1,
    params={
        "max_files": Param(1_000, type="integer", minimum=0),
        "max_minutes": Param(120, type="number", minimum=0),
    },
    doc_md=__doc__,
    tags=["ducklake"],
):
    health = DuckLakeTableHealthOperator(task_id="health")
    DuckLakeSparkMergeAdjacentFilesOperator.partial(
        task_id="merge",
        max_file_size=SMALL,
        commit_every=20,
        pre_execute=skip_if_late,
        max_active_tis_per_dagrun=1,  # one after the other, in the order of the shares
        map_index_template="{{ task.table }}",
    ).expand_kwargs(share_out(health.output))
