"""Wait for a change of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import Watch, declare_read
from ..hooks.task import LogsInLines, ShownByName, no_retry_on_user_errors

if TYPE_CHECKING:
    from airflow.sdk import Context


class DuckLakeSnapshotSensor(ShownByName, LogsInLines, BaseSensorOperator):
    """Wait until a snapshot changes a table.

    Compaction, flushing of inlined data and other maintenance never count. The sensor also waits for a table
    that does not exist yet.

    :param table: the table, as ``"schema.table"``. (templated)
    :param changes: which changes count: ``"insert"``, ``"delete"``, ``"data"`` (either of them) or
        ``"schema"``. (templated)
    :param since: only later snapshots count: a snapshot id, an aware ``datetime``, an ISO time with an
        offset, a tag such as ``"tag:q3-close"``, or None for the moment the DAG run started. A time before
        the oldest snapshot means from the beginning. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param deferrable: look once, then wait in the triggerer, which polls the lake every ``poke_interval``
        seconds; ``mode`` does not matter then. By default what ``[operators] default_deferrable`` says.
    :return: ``{"table": "sales.orders", "from_snapshot": 3, "to_snapshot": 7, "changes": ["insert"],
        "is_complete": True}``: what changed after ``from_snapshot``, up to and including ``to_snapshot``; not
        complete if a snapshot of the range has expired.
    """

    template_fields: Sequence[str] = ("table", "changes", "since", "ducklake_conn_id")

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        changes: Collection[str] = ("data",),
        since: int | datetime | str | None = None,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.changes = changes
        self.since = since
        self.ducklake_conn_id = ducklake_conn_id
        declare_read(self, table)
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the base class's
        """Wait, in the triggerer where the sensor is deferrable."""
        if not self.deferrable:
            return super().execute(context)
        result = self._first_look(context)
        if not result:
            self._defer(context)
        return result.xcom_value

    def _defer(self, context: Context) -> NoReturn:
        from ..triggers.snapshot import DuckLakeSnapshotTrigger

        self.defer(
            trigger=DuckLakeSnapshotTrigger(
                **self._watch(context).as_arguments(),
                ducklake_conn_id=self.ducklake_conn_id,
                poll_interval=self.poke_interval,
                once=True,
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def _first_look(self, context: Context) -> PokeReturnValue:
        """Poke once, and treat errors as ``BaseSensorOperator.execute`` does."""
        try:
            return self.poke(context)
        except Exception as error:
            is_final = isinstance(error, AirflowFailException)
            if self.never_fail or (is_final and self.soft_fail):
                raise AirflowSkipException(f"Skipped, as asked, instead of failing: {error}") from error
            if is_final or not self.silent_fail:
                raise
            self.log.exception("The first look failed; the triggerer goes on looking")
            return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - Airflow's
        """Return the event of the triggerer.

        Raises:
            AirflowFailException: its error would recur in every try.
            AirflowException: a retry may succeed.
        """
        if event["status"] == "error":
            raise (AirflowFailException if event["is_incurable"] else AirflowException)(event["message"])
        found: dict[str, Any] = event["xcom"]
        return found

    @no_retry_on_user_errors()
    def poke(self, context: Context) -> PokeReturnValue:
        """Check once. Nothing is kept between two pokes: in reschedule mode each has a new operator."""
        watch = self._watch(context)
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            result = watch.poll(lake)
        self.log.info("%s", watch.log_line(result))
        return PokeReturnValue(is_done=result.found is not None, xcom_value=result.xcom)

    def _watch(self, context: Context) -> Watch:
        return Watch.of(self.table, self.changes, self.since, lambda: _start_of_run(context))


def _start_of_run(context: Context) -> datetime:
    """Return the start of the DAG run; the same at every poll, unless the whole run is cleared."""
    run = context["dag_run"]
    return run.start_date or run.run_after
