"""Two tables from two jobs in one snapshot: staged in parallel, audited before anybody sees them, committed.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run loads a few orders and their lines into the schema ``main``.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator, DuckLakeDiscardStagedOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

DATA = {
    "orders": "id,customer\n1,Ada\n2,Grace\n3,Edith\n",
    "order_lines": "order_id,article,pieces\n1,pen,10\n1,ink,1\n2,paper,500\n3,pen,2\n",
}


@task
def write_files() -> str:
    """Write the files of the day; return their folder."""
    folder = Path(tempfile.mkdtemp(prefix="ducklake-orders-"))
    for name, text in DATA.items():
        (folder / f"{name}.csv").write_text(text)
    return str(folder)


def stage(table: str) -> DuckLakeSparkInsertOperator:
    """Write one table's rows and leave their commit to another task."""
    path = "{{ ti.xcom_pull(task_ids='write_files') }}/" + table + ".csv"
    return DuckLakeSparkInsertOperator(
        task_id=f"stage_{table}",
        table=table,
        source={"format": "csv", "path": path, "options": {"inferSchema": True}},
        create_table=True,
        stage_only=True,
    )


@task
def audit(staged: Any) -> dict[str, int]:  # noqa: ANN401 - what the staging tasks returned
    """Look at both tables as they would be: every line has to belong to an order."""
    hook = DuckLakeHook()
    orders = set(hook.read_arrow("orders", columns=["id"], staged=staged)["id"].to_pylist())
    lines = hook.read_arrow("order_lines", columns=["order_id"], staged=staged)["order_id"].to_pylist()
    hook.close()
    if strays := set(lines) - orders:
        raise AirflowFailException(f"Lines without an order: {sorted(strays)}")
    return {"orders": len(orders), "lines": len(lines)}


with DAG(
    "example_ducklake_staged_writes",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    tags=["ducklake"],
):
    create_lake = DuckLakeDDLOperator(task_id="create_lake", create_lake=True)
    setups = [stage("orders"), stage("order_lines")]
    staged = [one.output for one in setups]
    commit = DuckLakeCommitOperator(
        task_id="commit", staged=staged, message="orders and lines of {{ run_id }}"
    )
    discard = DuckLakeDiscardStagedOperator(task_id="discard", staged=staged)

    create_lake >> setups
    write_files() >> setups
    audit(staged) >> commit >> discard.as_teardown(setups=setups)
