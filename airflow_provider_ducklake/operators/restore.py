"""Restore tables to an older snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce, declare
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors, verbs_logged_by
from ..lake.errors import InvalidInputError
from ..lake.writes.arguments import parse_at, parse_flag
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..lake.catalog.lake import Lake
    from ..lake.catalog.restoring.plan import RestoreResult


class DuckLakeRestoreOperator(DuckLakeOperator):
    """Restore a table, a schema or the whole lake to an older snapshot, as one new snapshot.

    Rows with their row ids, columns, names, partition and sort keys, defaults and comments are restored.
    Everything added since is missing from the new snapshot; all older snapshots stay as they are. Files that
    have ended since are copied, by the object store itself if it can. A table whose schema was dropped is
    restored as a new table. If a table is changed in the meantime, the task fails, and its retry plans again.

    :param table: the table, by its current name or its name at that snapshot. (templated)
    :param schema: instead of ``table``: all tables, views and macros of a schema; those created since are
        dropped, and dropped ones are restored. (templated)
    :param whole_lake: instead of both: all schemas. (templated)
    :param at: the snapshot: its id, an aware ``datetime``, an ISO time with an offset, or a tag such as
        ``"tag:q3-close"``. (templated)
    :param dry_run: only report what would be done, and change nothing. (templated as ``is_dry_run``)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"snapshot_id": 43, "as_of": 41, "tables": [{"name": "sales.orders", "action": "changed",
        "files_kept": 7, "files_ended": 1, "files_shortened": 0, "files_copied": 2, "bytes_copied": 4096,
        "files_rewritten": 0, "bytes_read": 0, "rows_returned": 900, "inlined_returned": 0,
        "inlined_ended": 3, "definition": ["column price comes back"]}], "objects": [], "dry_run": False,
        "already_committed": False}``; ``snapshot_id`` is None if there was nothing to restore.
    """

    template_fields: Sequence[str] = (
        "table",
        "schema",
        "whole_lake",
        "at",
        "is_dry_run",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        at: int | datetime | str,
        table: str | None = None,
        schema: str | None = None,
        whole_lake: bool | str = False,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        self.schema = schema
        self.whole_lake = whole_lake
        self.at = at
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, named

        return Flow(writes=named(self.table))

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Restore, or return the commit of an earlier try."""
        at = parse_at(self.at)
        if at is None:
            raise InvalidInputError("at is empty. Give a snapshot id, an aware datetime or a tag.")
        self._check_scope()
        scope: dict[str, Any] = {"table": self.table, "schema": self.schema, "at": at}
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            if parse_flag("dry_run", self.is_dry_run):
                planned = hook.lake().restore(**scope, dry_run=True)
                announce(self, context, hook.lake(), ())
                return _summary(planned)
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            with identity.made_once(hook.lake()) as once:
                result = self._restore(hook.lake(), scope, once)
            committed = result.committed
            announce(self, context, hook.lake(), () if committed is None else (int(committed.id),))
        if result.committed is not None and result.committed.is_earlier:
            from ..lake.writes.run import announce_earlier

            with verbs_logged_by(self.log):
                announce_earlier(result.committed.records)
        return _summary(result)

    def _check_scope(self) -> None:
        """Refuse to guess: an empty template must not be taken for the whole lake."""
        given = [self.table is not None, self.schema is not None, parse_flag("whole_lake", self.whole_lake)]
        if sum(given) != 1 or "" in (self.table, self.schema):
            raise InvalidInputError(
                f"table={self.table!r}, schema={self.schema!r}, whole_lake={self.whole_lake!r}: give a "
                "table, a schema, or whole_lake=True."
            )

    def _restore(self, lake: Lake, scope: dict[str, Any], identity: CommitIdentity) -> RestoreResult:
        from ..lake.format.snapshots import OnClear

        return lake.restore(
            **scope,
            message=self.message or identity.message,
            author="airflow",
            extra=identity.extra,
            commit_key=identity.keyed_commit(lake, OnClear.APPEND),
        )


def _summary(result: RestoreResult) -> dict[str, Any]:
    committed = result.committed
    tables = [
        {**asdict(one), "action": str(one.action), "definition": list(one.definition)}
        for one in result.tables
    ]
    return {
        "snapshot_id": None if committed is None else int(committed.id),
        "as_of": None if result.as_of is None else int(result.as_of),
        "tables": tables,
        "objects": list(result.objects),
        "dry_run": result.dry_run,
        "already_committed": committed is not None and committed.is_earlier,
    }
