"""Commit what several tasks staged as one snapshot, and discard staged writes that are not committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors, verbs_logged_by
from ..lake.format.snapshots import CommitInfo, OnClear
from ..lake.writes.arguments import parse_word
from .base import DuckLakeOperator, check_on_clear

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..lake.catalog.lake import Lake


class DuckLakeCommitOperator(DuckLakeOperator):
    """Commit what other tasks staged, to however many tables, as one snapshot or not at all, exactly once.

    A retry of a task that has committed finds its commit. If another commit conflicts with a staged write,
    nothing is committed and everything stays staged.

    :param staged: the return values of tasks with ``stage_only=True``, such as ``[orders.output,
        lines.output]``, or the URIs in their ``staged``; the output of a mapped task counts as its elements.
        (templated)
    :param on_clear: what happens to the rows that the task committed before it was cleared, or before its run
        was deleted and created again: ``replace`` removes them in the snapshot that adds the new ones,
        ``append`` keeps them, ``skip`` keeps them and adds nothing. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"tables": ["sales.orders", "sales.lines"], "snapshot_id": 43, "rows_added": 7,
        "files_added": 2, "bytes_added": 1400, "rows_removed": 0, "already_committed": False}``;
        ``snapshot_id`` is None if there were no rows. If an earlier try had committed, it is that try's
        snapshot, and all but its rows is None.
    """

    template_fields: Sequence[str] = ("staged", "on_clear", *DuckLakeOperator.template_fields)
    template_fields_renderers = {"staged": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        staged: Any,  # noqa: ANN401 - results, URIs, lists of them, or what another task will return
        on_clear: str = "replace",
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        check_on_clear(on_clear)
        self.staged = staged
        self.on_clear = on_clear

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import flow_of_staged

        return flow_of_staged(self.staged)

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Commit, or return the commit of an earlier try."""
        from ..lake.writes.staged import check_given

        check_given(self.staged)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook, verbs_logged_by(self.log):
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            summary = self.run(hook.lake(), identity)
            snapshot_id = summary["snapshot_id"]
            announce(self, context, hook.lake(), () if snapshot_id is None else (snapshot_id,))
            return summary

    def run(self, lake: Lake, identity: CommitIdentity) -> dict[str, Any]:
        """Commit on an open lake."""
        from ..lake.writes.staged import commit_staged
        from ..lake.writes.verb import Commit

        on_clear = parse_word("on_clear", self.on_clear, OnClear)
        info = CommitInfo("airflow", self.message or identity.message, identity.extra)
        with identity.made_once(lake) as once:
            return commit_staged(lake, self.staged, Commit(info, once.keyed_commit(lake, on_clear)))


class DuckLakeDiscardStagedOperator(DuckLakeOperator):
    """Remove staged writes that were not committed; made for ``as_teardown(setups=[…])``.

    Committed writes stay, even if the task that committed them failed afterwards, so it can always run.

    :param staged: the return values of tasks with ``stage_only=True``; tasks that failed or were skipped
        returned nothing, and are ignored. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"discarded": ["…/stage.json"]}``: the staged writes that were removed.
    """

    template_fields: Sequence[str] = ("staged", *DuckLakeOperator.template_fields)
    template_fields_renderers = {"staged": "json"}  # noqa: RUF012 - Airflow's

    def __init__(self, *, staged: Any, **kwargs: Any) -> None:  # noqa: ANN401 - see DuckLakeCommitOperator
        super().__init__(**kwargs)
        self.staged = staged

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Discard the staged writes and return those that were removed."""
        from ..lake.writes.staged import discard, uris_of_ended

        uris = uris_of_ended(self.staged)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            discarded = discard(hook.lake(), uris) if uris else []
        for uri in discarded:
            self.log.info("Discarded %s", uri)
        if not discarded:
            self.log.info("There is nothing left to discard.")
        return {"discarded": discarded}
