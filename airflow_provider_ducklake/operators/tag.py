"""Tag a snapshot, or remove a tag."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors
from ..lake.format.snapshots import OnClear
from ..lake.writes.arguments import is_template, parse_at, parse_flag, parse_word
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.committing.commit import KeyedCommit
    from ..lake.catalog.lake import Lake
    from ..lake.format.tags import TagResult


class TagAction(StrEnum):
    """What the task does with a tag."""

    TAG = "tag"
    UNTAG = "untag"


class DuckLakeTagOperator(DuckLakeOperator):
    """Tag a snapshot: give it a name to read it by, ``at="tag:q3-close"``, and keep it from expiring.

    A retry never moves the tag that an earlier try made; a task that is cleared tags again. Makes no
    snapshot.

    :param name: the name of the tag, of up to 255 characters; upper and lower case differ. (templated)
    :param action: ``"tag"``, or ``"untag"`` to remove the tag: the next expiry may remove the snapshot then.
        (templated)
    :param at: the snapshot to tag: its id, an aware ``datetime``, an ISO time with an offset, or another tag
        such as ``"tag:q3-draft"``; default: the newest one when the task first runs. (templated)
    :param replace: move a tag that names another snapshot; otherwise the task fails. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: what the tag is for, kept with it; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"tag": "q3-close", "action": "tag", "snapshot_id": 43, "moved_from": None,
        "already_committed": False}``: the snapshot that the tag names, or named before it was removed; the
        one that it named before it was moved; whether that had been done already, by an earlier try, say.
    """

    template_fields: Sequence[str] = ("name", "action", "at", "replace", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        name: str,
        action: str = "tag",
        at: int | datetime | str | None = None,
        replace: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.action = action
        self.at = at
        self.replace = replace
        if not is_template(action):
            parse_word("action", action, TagAction)

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Tag or untag, or return what an earlier try did."""
        action = parse_word("action", self.action, TagAction)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            with identity.made_once(hook.lake()) as once:
                keyed = once.keyed_commit(hook.lake(), OnClear.APPEND, makes_snapshot=False)
                result = (
                    self._tag(hook.lake(), once, keyed)
                    if action is TagAction.TAG
                    else hook.lake().untag(self.name, commit_key=keyed)
                )
        self._report(action, result)
        return {
            "tag": result.name,
            "action": action.value,
            "snapshot_id": int(result.snapshot_id),
            "moved_from": None if result.moved_from is None else int(result.moved_from),
            "already_committed": result.is_earlier,
        }

    def _tag(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> TagResult:
        return lake.tag(
            self.name,
            parse_at(self.at),
            replace=parse_flag("replace", self.replace),
            author="airflow",
            message=self.message or identity.message,
            commit_key=keyed,
        )

    def _report(self, action: TagAction, result: TagResult) -> None:
        done = "names" if action is TagAction.TAG else "is removed; it named"
        already = ", as before" if result.is_earlier else ""
        moved = f", moved from {result.moved_from}" if result.moved_from is not None else ""
        self.log.info("Tag %r %s snapshot %d%s%s", result.name, done, result.snapshot_id, moved, already)
