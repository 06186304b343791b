"""Each quarter: audit against the last quarter's close, then tag this quarter's; keep three years of tags.

Needs one connection: ``ducklake_default`` (type ``ducklake``), and a table ``main.ledger`` in its lake.
Tagged snapshots never expire, so that what was closed is read as it was, whatever has been corrected since.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator

KEPT = 12  # quarters
PREFIX = "close-"

with DAG(
    "example_ducklake_tags",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="@quarterly",
    catchup=False,
    tags=["ducklake"],
):

    @task
    def audit() -> dict[str, int]:
        """Count the rows that were closed last time, and how many of them were removed since."""
        lake = DuckLakeHook().lake()
        closed = [one for one in lake.tags() if one.name.startswith(PREFIX)]
        if not closed:
            return {"closed": 0, "removed": 0}
        last = f"tag:{closed[-1].name}"
        removed = lake.changes_after("ledger", last).deletions()
        return {"closed": lake.row_count("ledger", at=last), "removed": removed.num_rows}

    @task
    def outdated() -> list[str]:
        """Return the tags that need not be kept any more."""
        closed = [one.name for one in DuckLakeHook().lake().tags() if one.name.startswith(PREFIX)]
        return closed[:-KEPT]

    close = DuckLakeTagOperator(task_id="close", name=PREFIX + "{{ run_id }}", message="The quarter's close")
    untag = DuckLakeTagOperator.partial(task_id="untag", action="untag").expand(name=outdated())
    expire = DuckLakeExpireSnapshotsOperator(
        task_id="expire", older_than="30 days", trigger_rule="none_failed"
    )

    audit() >> close >> untag >> expire
