"""A load that a person approves: stage, audit, ask, commit.

The rows of the day are staged, which nobody sees. The audit compares them with those of the day before, and
its numbers are in the form that asks for approval (*Required actions* in the UI). *Approve* commits the rows.
After *Reject* or a failed audit nothing is visible, and the staged files are removed.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Creates the lake if there is none.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator, DuckLakeDiscardStagedOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

TABLE = "audited_sales"
SALES = """
SELECT DATE '{{ ds }}' AS day, id AS shop, IF(id = 3, NULL, CAST(10.5 * id AS DOUBLE)) AS amount
FROM range(1, 5)
"""
FORM = """
{% set found = ti.xcom_pull(task_ids='audit') %}
| | {{ ds }} | the day before |
|---|---|---|
{% for name, of_day in found.day.items() -%}
| {{ name }} | {{ of_day }} | {{ found.day_before[name] }} |
{% endfor %}
"""


@task
def audit(staged: Any, day: str) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - what the staging task returned
    """Return numbers of the staged day and of the day before; fail where nobody needs to be asked."""
    day_before = date.fromisoformat(day) - timedelta(days=1)
    hook = DuckLakeHook()
    found = {"day": numbers(hook, day, staged), "day_before": numbers(hook, str(day_before))}
    hook.close()
    if not found["day"]["rows"]:
        raise AirflowFailException(f"No sales of {day} were staged.")
    return found


def numbers(hook: DuckLakeHook, day: str, staged: Any = ()) -> dict[str, Any]:  # noqa: ANN401
    """Count a day's rows, those that staged writes would add included."""
    import pyarrow.compute as pc  # noqa: PLC0415 - not needed to parse the DAG

    rows = hook.read_arrow(TABLE, columns=["amount"], filter=f"day = DATE '{day}'", staged=staged)
    bounds = pc.min_max(rows["amount"]).as_py()
    return {
        "rows": rows.num_rows,
        "without amount": rows["amount"].null_count,
        "smallest amount": bounds["min"],
        "largest amount": bounds["max"],
    }


with DAG(
    "example_ducklake_audited_load",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    doc_md=__doc__,
    tags=["ducklake"],
):
    create_table = DuckLakeDDLOperator(
        task_id="create_table",
        sql=f"CREATE TABLE IF NOT EXISTS {TABLE} (day DATE, shop BIGINT, amount DOUBLE)",
        create_lake=True,
    )
    stage = DuckLakeSparkInsertOperator(task_id="stage", table=TABLE, sql=SALES, stage_only=True)
    approve = ApprovalOperator(task_id="approve", subject=f"Publish {TABLE} of {{{{ ds }}}}?", body=FORM)
    commit = DuckLakeCommitOperator(task_id="commit", staged=[stage.output])
    discard = DuckLakeDiscardStagedOperator(task_id="discard", staged=[stage.output])

    create_table >> stage
    audit(stage.output, "{{ ds }}") >> approve >> commit >> discard.as_teardown(setups=stage)
