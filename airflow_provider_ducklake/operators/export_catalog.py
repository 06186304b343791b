"""Export a snapshot as a frozen lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import commit_identity, no_retry_on_user_errors
from ..lake.writes.arguments import parse_at, parse_flag
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.format.tags import ExportResult


class DuckLakeExportCatalogOperator(DuckLakeOperator):
    """Export one snapshot as a frozen lake: its catalog in one file, which DuckDB attaches to read.

    For backups, and to share a lake over HTTPS or S3 without its database. The file appears when it is
    complete. A retry returns what an earlier try exported; a task that is cleared exports again, and replaces
    its own file. Needs the rights of a reader, and to write where the file goes.

    :param path: the file to write: an absolute path or a URI, such as
        ``"s3://backup/q3/{{ ds }}.ducklake"``. (templated)
    :param at: the snapshot: its id, an aware ``datetime``, an ISO time with an offset, or a tag such as
        ``"tag:q3-close"``; default: the newest one. (templated)
    :param format: ``"duckdb"`` or ``"sqlite"``; default: SQLite where the name ends in ``.sqlite``,
        ``.sqlite3`` or ``.db``, else DuckDB, for which the extra ``duckdb`` has to be installed. (templated)
    :param copy_files: also copy the data files, so that the frozen lake does not need those of the lake.
        (templated)
    :param files_path: the folder to copy them to; default: ``path`` with ``.files`` behind it. (templated)
    :param data_path: where readers find the data files, if they reach them by another address than this
        task, such as ``"https://data.example.org/q3/"``. (templated)
    :param overwrite: replace a file that is there; otherwise the task fails. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"path": "/backup/q3.ducklake", "format": "duckdb", "snapshot_id": 43, "data_path": "/data/",
        "attach": "ATTACH 'ducklake:/backup/q3.ducklake' AS frozen (READ_ONLY)", "tables": 2,
        "data_files": 7, "delete_files": 1, "inlined_rows": 3, "files_copied": 0, "bytes_copied": 0,
        "already_committed": False}``; of what an earlier try exported the counts are 0.
    """

    template_fields: Sequence[str] = (
        "path",
        "at",
        "format",
        "copy_files",
        "files_path",
        "data_path",
        "overwrite",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        path: str,
        at: int | datetime | str | None = None,
        format: str | None = None,  # noqa: A002 - what it is
        copy_files: bool | str = False,
        files_path: str | None = None,
        data_path: str | None = None,
        overwrite: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.at = at
        self.format = format
        self.copy_files = copy_files
        self.files_path = files_path
        self.data_path = data_path
        self.overwrite = overwrite

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Export, or return what an earlier try exported."""
        arguments: dict[str, Any] = {
            "at": parse_at(self.at),
            "format": self.format,
            "copy_files": parse_flag("copy_files", self.copy_files),
            "files_path": self.files_path,
            "data_path": self.data_path,
            "overwrite": parse_flag("overwrite", self.overwrite),
        }
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            with identity.made_once(hook.lake()) as once:
                result = hook.lake().export_catalog(
                    self.path, commit_key=once.key, starts_over=once.starts_over, **arguments
                )
        self._report(result)
        return _summary(result)

    def _report(self, result: ExportResult) -> None:
        if result.is_earlier:
            self.log.info(
                "An earlier try has exported snapshot %d to %s already", result.snapshot_id, result.path
            )
            return
        self.log.info(
            "Exported snapshot %d to %s: %d tables, %d data files, %d delete files, %d inlined rows; "
            "%d files (%d bytes) copied",
            result.snapshot_id,
            result.path,
            result.tables,
            result.data_files,
            result.delete_files,
            result.inlined_rows,
            result.copied_files,
            result.copied_bytes,
        )


def _summary(result: ExportResult) -> dict[str, Any]:
    return {
        "path": result.path,
        "format": result.format.value,
        "snapshot_id": int(result.snapshot_id),
        "data_path": result.data_path,
        "attach": result.attach,
        "tables": result.tables,
        "data_files": result.data_files,
        "delete_files": result.delete_files,
        "inlined_rows": result.inlined_rows,
        "files_copied": result.copied_files,
        "bytes_copied": result.copied_bytes,
        "already_committed": result.is_earlier,
    }
