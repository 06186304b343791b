"""What to say when a table is not loaded in time: the callback of a ``DeadlineAlert``.

The triggerer imports a callback by its name, from what is installed there or lies in the plugins folder: it
does not find a function of a DAG file.

*Source:* ``airflow/triggers/callback.py`` of Airflow 3.3.2, ``airflow/triggers/deadline.py`` of 3.1.1.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.ducklake import connection_of, open_catalog
from airflow_provider_ducklake.lake.errors import NotFoundError
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.triggers.threads import in_own_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from airflow_provider_ducklake.lake.catalog.lake import Lake

log = logger(__name__)

REPORT = f"{__name__}.report_freshness"  # what AsyncCallback takes


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest snapshot that changed a table's rows; if it has expired, the oldest that there is."""

    snapshot_id: int
    time: datetime
    is_expired: bool


async def report_freshness(
    table: str, ducklake_conn_id: str = "ducklake_default", *, context: Mapping[str, Any]
) -> str:
    """Log as a warning, and return, since when a table's rows are unchanged and what its run is doing.

    ``AsyncCallback(REPORT, {"table": "sales.orders"})`` has Airflow call it when the deadline is missed;
    ``context`` is what Airflow adds.

    Raises:
        DuckLakeError: the lake cannot be opened.
    """
    connection = await connection_of(ducklake_conn_id)
    text = described(table, await in_own_thread(_look, connection, table), context["dag_run"])
    log.warning("%s", text)
    return text


def _look(connection: Connection, table: str) -> LastChange | None:
    with closing(open_catalog(connection)) as lake:
        return last_change(lake, table)


def last_change(lake: Lake, table: str) -> LastChange | None:
    """Return when a table's rows last changed; None: there is no such table."""
    try:
        lake.table_snapshot(table)
    except NotFoundError:
        return None
    snapshots = lake.snapshots()
    number = bisect_left(snapshots, 1, key=lambda one: int(_is_unchanged(lake, table, one.id)))
    found = snapshots[number]
    is_expired = number == 0 and _is_unchanged(lake, table, found.id - 1)
    return LastChange(int(found.id), found.time, is_expired)


def _is_unchanged(lake: Lake, table: str, after: int) -> bool:
    return lake.table_changes(table, after, ("data",)) is None


def described(table: str, last: LastChange | None, dag_run: Mapping[str, Any]) -> str:
    """Return the report; ``dag_run`` is Airflow's, as its REST API shows it.

    >>> run = {"dag_run_id": "r1", "state": "running", "run_after": "2026-11-25T05:00:00Z"}
    >>> described("orders", LastChange(7, datetime(2026, 11, 24, 5, 9, tzinfo=UTC), False), run)
    'orders is not fresh: unchanged since snapshot 7 of 2026-11-24 05:09:00 UTC. The run r1, due at \
2026-11-25 05:00:00 UTC, is running.'
    """
    due = datetime.fromisoformat(dag_run["run_after"])
    run = f"The run {dag_run['dag_run_id']}, due at {_shown(due)}, is {dag_run['state']}."
    if last is None:
        return f"{table} is not fresh: it does not exist. {run}"
    changed = f"snapshot {last.snapshot_id} of {_shown(last.time)}"
    if last.is_expired:
        return f"{table} is not fresh: unchanged since before {changed}. {run}"
    if last.time < due:
        return f"{table} is not fresh: unchanged since {changed}. {run}"
    return f"{table} is fresh: changed last by {changed}. But it is late: {run[0].lower()}{run[1:]}"


def _shown(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
