"""Add existing Parquet files to a table without moving them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce, declare
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors
from ..lake.errors import InvalidInputError
from ..lake.format.names.identifiers import QualifiedName
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..lake.catalog.lake import Lake
    from ..lake.format.files import DataFile
    from ..lake.format.snapshots import CommittedSnapshot


class DuckLakeAddFilesOperator(DuckLakeOperator):
    """Add Parquet files to a table as one snapshot, without copying or rewriting them.

    **The files belong to the lake from then on: compaction and clean-up delete them**, as they do with files
    that the lake wrote itself. Add a copy of what you want to keep.

    Only footers are read. Columns are matched by name, case-insensitively. One error lists everything in
    which a file does not fit the table. A file that is or was a data file of the lake is refused.

    :param table: the table. (templated)
    :param paths: absolute paths or URIs of files, or one of them; ``*`` matches any part of a name, ``**``
        any folders. (templated)
    :param hive_partitioning: folders named ``column=value`` give columns that the files lack.
    :param allow_missing: columns that a file lacks are NULL, or have the value that older rows got when the
        column was added.
    :param ignore_extra_columns: columns that the table lacks are ignored.
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"table": "main.orders", "snapshot_id": 7, "rows_added": 3, "files_added": 1,
        "bytes_added": 700, "already_committed": False}``; ``snapshot_id`` is None if no file has rows. If an
        earlier try of the task made the snapshot, ``already_committed`` is true, and ``files_added`` and
        ``bytes_added`` are None.
    """

    template_fields: Sequence[str] = ("table", "paths", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        table: str,
        paths: str | Sequence[str],
        hive_partitioning: bool = False,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        self.paths = paths
        self.hive_partitioning = hive_partitioning
        self.allow_missing = allow_missing
        self.ignore_extra_columns = ignore_extra_columns

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, named, reads_of

        reads = reads_of({str(number): path for number, path in enumerate(_paths(self.paths))})
        return Flow(reads, writes=named(self.table))

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Add the files, or return the commit of an earlier try."""
        paths = _paths(self.paths)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            lake = hook.lake()
            with identity.made_once(lake) as once:
                committed, files = self._add(lake, paths, once)
            announce(self, context, lake, () if committed is None else (int(committed.id),))
            if committed is not None and committed.is_earlier:
                return self._summary_of_records(lake, committed)
        return self._summary(committed, files)

    def _add(
        self, lake: Lake, paths: Sequence[str], identity: CommitIdentity
    ) -> tuple[CommittedSnapshot | None, Sequence[DataFile]]:
        identity.keyed_commit(lake)  # what a deleted run of this name left behind is not this task's
        message = self.message or identity.message
        files: Sequence[DataFile] = ()
        with lake.transaction("airflow", message, identity.extra, identity.key) as tx:
            if tx.committed is None:
                files = tx.add_data_files(
                    self.table,
                    paths,
                    hive_partitioning=self.hive_partitioning,
                    allow_missing=self.allow_missing,
                    ignore_extra_columns=self.ignore_extra_columns,
                )
        return tx.committed, files

    def _summary(self, committed: CommittedSnapshot | None, files: Sequence[DataFile]) -> dict[str, Any]:
        summary = {
            "table": str(QualifiedName.of(self.table)),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "rows_added": sum(file.record_count for file in files),
            "files_added": len(files),
            "bytes_added": sum(file.file_size_bytes for file in files),
            "already_committed": False,
        }
        if committed is None:
            self.log.info("The files have no rows: %s is unchanged, no snapshot was made.", self.table)
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows in %d files, which now belong to the lake",
                *(summary[key] for key in ("snapshot_id", "table", "rows_added", "files_added")),
            )
        return summary

    def _summary_of_records(self, lake: Lake, committed: CommittedSnapshot) -> dict[str, Any]:
        ids = {record.table_id for record in committed.records}
        names = [str(row.qualified) for row in lake.reads.table_rows() if row.id in ids]
        self.log.info(
            "This task has already committed snapshot %d, at %s: nothing was added.",
            committed.id,
            committed.time.isoformat(timespec="seconds"),
        )
        return {
            "table": names[0] if names else str(QualifiedName.of(self.table)),
            "snapshot_id": int(committed.id),
            "rows_added": sum(record.row_count for record in committed.records),
            "files_added": None,
            "bytes_added": None,
            "already_committed": True,
        }


def _paths(paths: object) -> Sequence[str]:
    given = [paths] if isinstance(paths, str) else paths
    if not isinstance(given, list | tuple) or not all(isinstance(path, str) for path in given) or not given:
        raise InvalidInputError(f"paths is {paths!r}. Give a path or a list of paths.")
    return given
