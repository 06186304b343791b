"""Look at what anybody changed, soon after it was committed: by Airflow, by DuckDB, by other clients.

A watcher polls the lake in the triggerer and makes an event of each range of snapshots that changed the
table. The DAG runs for it and reads exactly these changes. A restart of Airflow may repeat the last range,
with the same ``range_id``; none is left out.

Needs a connection ``ducklake_default`` (type ``ducklake``) and an existing lake. The table ``watched_orders``
may be created later.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, AssetWatcher, task

from airflow_provider_ducklake.assets.ducklake import create_asset
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger

TABLE = "main.watched_orders"

orders = create_asset(
    table=TABLE,
    watchers=[
        AssetWatcher(
            name="watched_orders_snapshots", trigger=DuckLakeSnapshotTrigger(table=TABLE, poll_interval=30)
        )
    ],
)


@task
def handle(triggering_asset_events: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401 - Airflow's
    """Return each range with how many rows were inserted, deleted and updated in it."""
    hook = DuckLakeHook()
    ranges = [event.extra["payload"] for event in triggering_asset_events[orders]]
    found = [{"range_id": one["range_id"], "changes": changes_in(hook, one)} for one in ranges]
    hook.close()
    return found


def changes_in(hook: DuckLakeHook, found: dict[str, Any]) -> dict[str, int] | None:
    """Count a range's changes by their kind; None: they cannot be read any more."""
    if not found["is_complete"]:  # snapshots have expired since, or a backup was restored: read the table
        print(f"Read all of {found['table']} at snapshot {found['to_snapshot']}.")  # noqa: T201 - an example
        return None
    feed = hook.lake().changes_after(found["table"], found["from_snapshot"], found["to_snapshot"])
    kinds = Counter(feed.read_arrow()["change_type"].to_pylist())
    after, upto = found["from_snapshot"], found["to_snapshot"]
    print(f"{found['table']} after snapshot {after} up to {upto}: {dict(kinds)}")  # noqa: T201
    return dict(kinds)


with DAG(
    "example_ducklake_on_change",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=[orders],
    catchup=False,
    doc_md=__doc__,
    tags=["ducklake"],
):
    handle()
