"""Delete files that a lake no longer needs: scheduled ones, and orphans that no row of the catalog names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.errors import FilesNotDeletedError
from ..lake.format.limits import MIN_RETENTION
from ..lake.format.log_lines import counts, size
from ..lake.writes.arguments import parse_age, parse_flag, parse_span
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_LISTED = 1_000  # paths in XCom


class DuckLakeCleanupOldFilesOperator(DuckLakeOperator):
    """Delete files that expiries and compactions have scheduled for deletion.

    A file that a row of the lake still names stays, and is logged. If files cannot be deleted, the others are
    deleted, and the task fails at the end and names them.

    :param older_than: delete what was scheduled before: a ``timedelta``, a text such as ``"2 days"``, an
        aware ``datetime``, or an ISO time with an offset. It must be longer than the longest read of the
        lake. Default: the lake's option ``delete_older_than``, which is 2 days unless it was set. (templated)
    :param min_retention: files scheduled within this interval stay, and a shorter ``older_than`` is an error.
        Default: 24 hours. (templated)
    :param dry_run: only report what would be deleted, and change nothing. (templated as ``is_dry_run``)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"files_deleted": 3, "files_missing": 0, "files_used": 0, "dry_run": False}``: how many files
        were deleted, were already gone, and stay because the lake uses them. A dry run adds ``paths``, at
        most 1,000.
    """

    template_fields: Sequence[str] = (
        "older_than",
        "min_retention",
        "is_dry_run",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        older_than: timedelta | datetime | str | None = None,
        min_retention: timedelta | str = MIN_RETENTION,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.min_retention = min_retention
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Delete, and say what was."""
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            result = lake.cleanup_old_files(
                older_than=parse_age("older_than", self.older_than),
                min_retention=parse_span("min_retention", self.min_retention),
                dry_run=parse_flag("dry_run", self.is_dry_run),
            )
        deleted, missing, named, failed = map(
            len, (result.deleted, result.missing, result.named, result.failures)
        )
        line = _line(
            "clean-up",
            "no file that was scheduled for deletion is old enough",
            (deleted, "file", " would be deleted" if result.dry_run else " deleted"),
            (missing, "file", " already gone"),
            (named, "file", " kept, which the lake uses"),
            (failed, "file", " not deleted: see the error"),
        )
        self.log.info("%s", line)
        _fail_for(len(result.deleted), result.failures)
        return {
            "files_deleted": len(result.deleted),
            "files_missing": len(result.missing),
            "files_used": len(result.named),
            "dry_run": result.dry_run,
            **_listed(result.deleted, is_dry_run=result.dry_run),
        }


class DuckLakeDeleteOrphanedFilesOperator(DuckLakeOperator):
    """Delete files below the data path that the catalog does not name, such as those left by failed writes.

    Only Parquet and Puffin files and files in directories of jobs are considered. Files of jobs that may
    still commit stay. If another lake seems to keep its files below the data path, nothing is deleted and the
    task fails. If files cannot be deleted, the others are deleted, and the task fails at the end and names
    them.

    :param older_than: delete what has not changed since: a ``timedelta``, a text such as ``"2 days"``, an
        aware ``datetime``, or an ISO time with an offset. It must be longer than the longest write of other
        clients. Default: the lake's option ``delete_older_than``, which is 2 days unless it was set.
        (templated)
    :param min_retention: files changed within this interval stay, and a shorter ``older_than`` is an error.
        Default: 24 hours. (templated)
    :param stage_ttl: how long files of a job are kept that has not committed them, a staged write's among
        them: an interval; they cannot be committed after that. (templated)
    :param sole_owner: assert that no other lake has files below the data path, and delete even if it looks
        so. (templated)
    :param dry_run: only report what would be deleted, and change nothing. (templated as ``is_dry_run``)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"files_deleted": 3, "bytes_deleted": 4096, "young": 0, "protected": 0, "uploads": 0,
        "dry_run": False}``: the number and size of the deleted files, the numbers of orphans that stay
        because of their age or for a job, and of unfinished uploads that were aborted. A
        dry run adds ``paths``, at most 1,000, and ``refused``: why a run without ``dry_run`` would be
        refused, or None.
    """

    template_fields: Sequence[str] = (
        "older_than",
        "min_retention",
        "stage_ttl",
        "sole_owner",
        "is_dry_run",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        older_than: timedelta | datetime | str | None = None,
        min_retention: timedelta | str = MIN_RETENTION,
        stage_ttl: timedelta | str = "7 days",
        sole_owner: bool | str = False,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.min_retention = min_retention
        self.stage_ttl = stage_ttl
        self.sole_owner = sole_owner
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Delete, and say what was."""
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            result = lake.delete_orphaned_files(
                older_than=parse_age("older_than", self.older_than),
                min_retention=parse_span("min_retention", self.min_retention),
                stage_ttl=parse_span("stage_ttl", self.stage_ttl),
                sole_owner=parse_flag("sole_owner", self.sole_owner),
                dry_run=parse_flag("dry_run", self.is_dry_run),
            )
        done = " would be deleted" if result.dry_run else " deleted"
        line = _line(
            "orphaned files",
            "no file below the data path is unknown to the catalog",
            (len(result.deleted), "orphaned file", f"{done} ({size(result.bytes)})"),
            (len(result.uploads), "unfinished upload", done),
            (result.young, "file", " too young"),
            (result.protected, "file", " kept for running jobs"),
            (len(result.failures), "file", " not deleted: see the error"),
        )
        self.log.info("%s", line)
        if result.evidence is not None:
            self.log.warning("A run without dry_run would be refused: %s", result.evidence)
        _fail_for(len(result.deleted), result.failures)
        return {
            "files_deleted": len(result.deleted),
            "bytes_deleted": result.bytes,
            "young": result.young,
            "protected": result.protected,
            "uploads": len(result.uploads),
            "dry_run": result.dry_run,
            **_listed(result.deleted, is_dry_run=result.dry_run),
            **({"refused": result.evidence} if result.dry_run else {}),
        }


def _line(step: str, why_nothing: str, *parts: tuple[int, str, str]) -> str:
    found = counts(*parts)
    return f"{step}: {found}" if found != counts() else f"{step}: nothing to do – {why_nothing}"


def _fail_for(deleted: int, failures: Sequence[tuple[str, str]]) -> None:
    if failures:
        raise FilesNotDeletedError(deleted, [f"{path}: {reason}" for path, reason in failures])


def _listed(paths: Iterable[str], *, is_dry_run: bool) -> dict[str, list[str]]:
    return {"paths": list(paths)[:_LISTED]} if is_dry_run else {}
