"""Expire old snapshots of a lake."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.errors import InvalidInputError
from ..lake.format.limits import MIN_RETENTION, NO_FLOOR
from ..lake.format.log_lines import counted, counts, size
from ..lake.writes.arguments import parse_age, parse_flag, parse_span
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.upkeep.expiry import ExpireResult


class DuckLakeExpireSnapshotsOperator(DuckLakeOperator):
    """Expire snapshots of a lake, which can then no longer be read.

    Files that only expired snapshots used are scheduled for deletion, not deleted. The newest snapshot
    always stays, and so do tagged ones. ``older_than`` and ``snapshots`` cannot be combined; without them and
    ``keep_last``, the lake's option ``expire_older_than`` applies.

    :param older_than: expire snapshots older than this: a ``timedelta``, a string such as ``"7 days"``, an
        aware ``datetime``, or an ISO time with an offset. (templated)
    :param snapshots: expire exactly these snapshot ids; none of them may be tagged. (templated)
    :param keep_last: never expire the newest N snapshots; alone, expire all the others. (templated)
    :param keep: never expire these snapshot ids. (templated)
    :param keep_author: never expire snapshots whose author matches this pattern, such as ``"release-*"``.
        (templated)
    :param keep_message: never expire snapshots whose commit message matches this pattern. (templated)
    :param min_retention: an interval; younger snapshots are not expired, and asking for them is an error.
        Default: 24 hours if snapshots are chosen by age, otherwise none. (templated)
    :param dry_run: only report what would be expired, and change nothing. (templated as ``is_dry_run``)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"snapshot_ids": [1, 2], "data_files_scheduled": 3, "delete_files_scheduled": 0,
        "bytes_scheduled": 4096, "tables_removed": 0, "kept_by_tags": 1, "dry_run": False}``: the expired
        snapshots, the files scheduled for deletion and their size, the number of dropped tables that no
        snapshot contains any more, and of snapshots that would have expired if they had no tags.
    """

    template_fields: Sequence[str] = (
        "older_than",
        "snapshots",
        "keep_last",
        "keep",
        "keep_author",
        "keep_message",
        "min_retention",
        "is_dry_run",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        older_than: timedelta | datetime | str | None = None,
        snapshots: Collection[int] | str | None = None,
        keep_last: int | str | None = None,
        keep: Collection[int] | str | None = None,
        keep_author: str | None = None,
        keep_message: str | None = None,
        min_retention: timedelta | str | None = None,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.snapshots = snapshots
        self.keep_last = keep_last
        self.keep = keep
        self.keep_author = keep_author
        self.keep_message = keep_message
        self.min_retention = min_retention
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Expire, and say what was."""
        arguments: dict[str, Any] = {
            "older_than": parse_age("older_than", self.older_than),
            "snapshots": _integers("snapshots", self.snapshots),
            "keep_last": None if self.keep_last is None else _integer("keep_last", self.keep_last),
            "keep": _integers("keep", self.keep) or (),
            "keep_author": self.keep_author,
            "keep_message": self.keep_message,
            "min_retention": self._floor(),
            "dry_run": parse_flag("dry_run", self.is_dry_run),
        }
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            result = lake.expire_snapshots(**arguments)
        self._report(result)
        return _summary(result)

    def _floor(self) -> timedelta:
        """Return the minimum retention; its default applies only if snapshots are chosen by age."""
        if self.min_retention is not None:
            return parse_span("min_retention", self.min_retention)
        by_age = self.older_than is not None or (self.snapshots is None and self.keep_last is None)
        return MIN_RETENTION if by_age else NO_FLOOR

    def _report(self, result: ExpireResult) -> None:
        freed = counts(
            (result.data_files, "data file", " scheduled for deletion"),
            (result.delete_files, "delete file", " scheduled for deletion"),
            (result.tables, "dropped table", " forgotten"),
        )
        tagged = f"; {counted(result.kept_by_tags, 'snapshot')} kept by tags" if result.kept_by_tags else ""
        if not result.snapshots:
            self.log.info("expire: nothing to do – the age, ids or number given choose no snapshot%s", tagged)
            return
        self.log.info(
            "%s %s: %s (%s)%s",
            "Dry run, would expire" if result.dry_run else "Expired",
            counted(len(result.snapshots), "snapshot"),
            *(freed, size(result.bytes), tagged),
        )


def _summary(result: ExpireResult) -> dict[str, Any]:
    return {
        "snapshot_ids": [int(snapshot.id) for snapshot in result.snapshots],
        "data_files_scheduled": result.data_files,
        "delete_files_scheduled": result.delete_files,
        "bytes_scheduled": result.bytes,
        "tables_removed": result.tables,
        "kept_by_tags": result.kept_by_tags,
        "dry_run": result.dry_run,
    }


def _integers(name: str, value: Collection[int] | str | None) -> list[int] | None:
    """Read ids, also as a template leaves them: ``"[3, 4]"`` or ``"3"``."""
    if value is None:
        return None
    try:
        read = json.loads(value) if isinstance(value, str) else list(value)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(
            f"{name} is {value!r}. Give a list of snapshot ids, such as [3, 4]."
        ) from None
    return [_integer(name, entry) for entry in (read if isinstance(read, list) else [read])]


def _integer(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    raise InvalidInputError(f"{name} is {value!r}. Give a whole number.")
