"""Wait for a change of a table."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_ducklake.errors import InvalidInputError, SnapshotNotFoundError
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.task import no_retry_on_user_errors
from airflow_provider_ducklake.planning.reading.watch import wanted_words
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.types.times import parse_time, require_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.reading.watch import TableChanges


class DuckLakeSnapshotSensor(BaseSensorOperator):
    """Wait until a snapshot changes a table.

    Compaction, flushing of inlined data and other maintenance never count. The sensor also waits for a table
    that does not exist yet.

    :param table: the table, as ``"schema.table"``. (templated)
    :param changes: which changes count: ``"insert"``, ``"delete"``, ``"data"`` (either of them) or
        ``"schema"``. (templated)
    :param since: only later snapshots count: a snapshot id, an aware ``datetime``, an ISO time with an
        offset, or None for the moment the DAG run started. A time before the oldest snapshot means from the
        beginning. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :return: ``{"table": "sales.orders", "from_snapshot": 3, "to_snapshot": 7, "changes": ["insert"]}``: what
        changed after ``from_snapshot``, up to and including ``to_snapshot``.
    """

    template_fields: Sequence[str] = ("table", "changes", "since", "ducklake_conn_id")

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        changes: Collection[str] = ("data",),
        since: int | datetime | str | None = None,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        if kwargs.pop("deferrable", False):
            raise InvalidInputError(
                "deferrable=True: this sensor cannot defer yet. Leave it out; mode='reschedule' frees the "
                "worker slot between two pokes."
            )
        super().__init__(**kwargs)
        self.table = table
        self.changes = changes
        self.since = since
        self.ducklake_conn_id = ducklake_conn_id

    @no_retry_on_user_errors()
    def poke(self, context: Context) -> PokeReturnValue:
        """Check once. Nothing is kept between two pokes: in reschedule mode each has a new operator."""
        table, words, since = (
            QualifiedName.of(self.table),
            wanted_words(self.changes),
            _since(self.since, context),
        )
        with closing(DuckLakeHook(self.ducklake_conn_id).lake()) as lake:
            start = since if isinstance(since, int) else _snapshot_before(lake, since)
            found = lake.table_changes(str(table), start, words)
            newest = found.to_snapshot if found else lake.current_snapshot().id
        self.log.info(
            "%s in %s after snapshot %d, newest: %d",
            f"Found {' and '.join(found.changes)}" if found else f"No {' or '.join(sorted(words))}",
            table,
            start,
            newest,
        )
        return PokeReturnValue(is_done=found is not None, xcom_value=_handed_on(found))


def _handed_on(found: TableChanges | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "table": found.table,
        "from_snapshot": int(found.from_snapshot),
        "to_snapshot": int(found.to_snapshot),
        "changes": list(found.changes),
    }


def _since(since: int | datetime | str | None, context: Context) -> int | datetime:
    """Return a snapshot id or an aware time."""
    match since:
        case None:
            return _start_of_run(context)
        case datetime():
            return require_offset(since)
        case str() if since.strip().isdecimal():
            return int(since)
        case str():
            return parse_time(since)
        case int() if not isinstance(since, bool) and since >= 0:
            return since
    raise InvalidInputError(
        f"since is {since!r}. Give a snapshot id, an aware datetime, an ISO time with an offset, or None."
    )


def _start_of_run(context: Context) -> datetime:
    """Return when the DAG run started; the same at every look, unless somebody clears the whole run."""
    run = context["dag_run"]
    return run.start_date or run.run_after


def _snapshot_before(lake: Lake, time: datetime) -> int:
    try:
        return lake.snapshot_at(timestamp=time).id
    except SnapshotNotFoundError as error:  # every snapshot there is came later
        return max(error.oldest - 1, 0)
