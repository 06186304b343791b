"""Commit what several tasks staged as one snapshot, and discard what nobody commits."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import (
    DuckLakeError,
    FilesGivenUpError,
    InvalidInputError,
    TransactionConflictError,
)
from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity, commit_identity
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.base import (
    DuckLakeOperator,
    announce_earlier,
    announce_replaced,
    check_on_clear,
    no_retry_on_user_errors,
    parse_on_clear,
)
from airflow_provider_ducklake.spec.commit_key import OnClear
from airflow_provider_ducklake.spec.snapshots import CommitInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.staged import StagedWrite
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.snapshots import CommittedSnapshot


class DuckLakeCommitOperator(DuckLakeOperator):
    """Commit what other tasks staged, to however many tables, as one snapshot or not at all, exactly once.

    A retry of a task whose commit landed finds it. Where somebody committed what a staged write does not go
    together with, nothing lands and everything stays staged.

    :param staged: what tasks with ``stage_only=True`` returned, ``[orders.output, lines.output]``, or the
        URIs in their ``staged``; the list of a mapped task counts as its elements. (templated)
    :param on_clear: what becomes of the rows that the task committed before it was cleared, or before its run
        was deleted and created again: ``replace`` takes them out in the snapshot that adds the new ones,
        ``append`` keeps them, ``skip`` keeps them and adds nothing. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param commit_message: what the snapshot says of itself; default: the DAG's and the task's id. (templated)
    :return: ``{"tables": ["sales.orders", "sales.lines"], "snapshot_id": 43, "rows_added": 7,
        "files_added": 2, "bytes_added": 1400, "already_committed": False}``; ``snapshot_id`` is None where
        there were no rows. Where an earlier try had committed it is that try's, with files and bytes None.
    """

    template_fields: Sequence[str] = ("staged", "on_clear", *DuckLakeOperator.template_fields)
    template_fields_renderers = {"staged": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        staged: Any,  # noqa: ANN401 - results, URIs, lists of them, or what another task will return
        on_clear: str = OnClear.REPLACE.value,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        check_on_clear(on_clear)
        self.staged = staged
        self.on_clear = on_clear

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Commit, or find that an earlier try did."""
        from airflow_provider_ducklake.hooks.staged_writes import uris_of  # noqa: PLC0415 - heavy

        on_clear = parse_on_clear(self.on_clear)
        if not uris_of(self.staged):
            raise InvalidInputError(
                "Nothing is given to commit: staged is empty. Give what tasks with stage_only=True returned."
            )
        with closing(DuckLakeHook(self.ducklake_conn_id)) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            lake = hook.lake()
            with identity.made_once(lake) as once:
                keyed = once.keyed_commit(lake, on_clear)
                if keyed.seen.done:
                    return self._already_committed(lake, keyed.seen.done)
                announce_replaced(self.log, lake, keyed)
                return self._commit(lake, identity, keyed)

    def _already_committed(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:
        announce_earlier(self.log, records)
        self._tidy_up(lake)
        ids = {record.table_id for record in records}
        return {
            "tables": [str(row.qualified) for row in lake.table_rows() if row.id in ids],
            "snapshot_id": int(records[0].snapshot_id),
            "rows_added": sum(record.row_count for record in records),
            "files_added": None,
            "bytes_added": None,
            "already_committed": True,
        }

    def _commit(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> dict[str, Any]:
        from airflow_provider_ducklake.catalog.drafting.staged import commit_staged  # noqa: PLC0415 - heavy
        from airflow_provider_ducklake.hooks.staged_writes import read_staged  # noqa: PLC0415 - heavy

        staged = read_staged(lake, self.staged)
        info = CommitInfo("airflow", self.commit_message or identity.message, identity.extra)
        try:
            committed = commit_staged(lake, staged, info, keyed)
        except FilesGivenUpError as error:
            raise InvalidInputError(f"{error} That is the task that staged it: clear it.") from error
        except TransactionConflictError:
            self.log.error(  # noqa: TRY400 - the exception itself is logged by Airflow
                "Nothing was committed; everything is still staged. Clear the task that staged the table "
                "of the conflict: it plans again."
            )
            raise
        if committed is not None and committed.is_earlier:
            return self._already_committed(lake, committed.records)
        summary = self._summary(staged, committed)
        self._tidy_up(lake)
        return summary

    def _summary(self, staged: Sequence[StagedWrite], committed: CommittedSnapshot | None) -> dict[str, Any]:
        files = [file for one in staged for file in one.result.data_files]
        summary = {
            "tables": list(dict.fromkeys(str(one.target.name) for one in staged)),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "rows_added": sum(one.result.rows_written for one in staged),
            "files_added": len(files),
            "bytes_added": sum(file.file_size_bytes for file in files),
            "already_committed": False,
        }
        if committed is None:
            self.log.info("No rows were staged: the lake is as before, no snapshot was made.")
        else:
            self.log.info(
                "Committed snapshot %d: %d rows, %d data files, %d bytes to %s",
                *(summary[key] for key in ("snapshot_id", "rows_added", "files_added", "bytes_added")),
                ", ".join(dict.fromkeys(str(one.target.name) for one in staged)),
            )
        return summary

    def _tidy_up(self, lake: Lake) -> None:
        """Remove what only the commit needed. It has landed: no failure here may fail the task."""
        from airflow_provider_ducklake.hooks.staged_writes import tidy_up  # noqa: PLC0415 - heavy

        try:
            tidy_up(lake, self.staged)
        except DuckLakeError as error:
            self.log.warning("Cannot remove the files that only the commit needed: %s", error)


class DuckLakeDiscardStagedOperator(DuckLakeOperator):
    """Remove what tasks staged and nobody committed; made for ``as_teardown(setups=[…])``.

    What was committed stays, whatever became of the task that committed it, so it can always run.

    :param staged: what tasks with ``stage_only=True`` returned; tasks that failed or were skipped returned
        nothing, and are passed over. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param commit_message: accepted as by every operator, and unused: no snapshot is made. (templated)
    :return: ``{"discarded": ["…/stage.json"]}``: the staged writes that were removed.
    """

    template_fields: Sequence[str] = ("staged", *DuckLakeOperator.template_fields)
    template_fields_renderers = {"staged": "json"}  # noqa: RUF012 - Airflow's

    def __init__(self, *, staged: Any, **kwargs: Any) -> None:  # noqa: ANN401 - see DuckLakeCommitOperator
        super().__init__(**kwargs)
        self.staged = staged

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Discard, and say what was."""
        from airflow_provider_ducklake.hooks.staged_writes import discard, uris_of_ended  # noqa: PLC0415 - heavy

        uris = uris_of_ended(self.staged)
        with closing(DuckLakeHook(self.ducklake_conn_id)) as hook:
            discarded = discard(hook.lake(), uris) if uris else []
        for uri in discarded:
            self.log.info("Discarded %s", uri)
        if not discarded:
            self.log.info("Nothing is left to discard.")
        return {"discarded": discarded}
