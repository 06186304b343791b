"""Flush inlined data of a lake to Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce
from ..hooks.task import commit_identity, no_retry_on_user_errors, verbs_logged_by
from ..lake.format.log_lines import counts
from ..lake.writes.arguments import parse_flag, parse_min_rows
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.planning.upkeep.compaction import FlushResult


class DuckLakeFlushInlinedDataOperator(DuckLakeOperator):
    """Move inlined rows and inlined deletes from the catalog to Parquet files, as one snapshot.

    Readers see no difference at any snapshot, and the change feed does not show it. Rows that others insert
    in the meantime stay in the catalog. A retry flushes what is left.

    It needs no Spark: the rows come from the catalog's database, which only the worker reaches, so the worker
    writes the files, in little memory.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``; default: all tables with
        inlined rows or deletes, except those whose option ``auto_compact`` is off. (templated)
    :param schema: all such tables of this schema. (templated)
    :param min_rows: skip tables with fewer inlined rows and deletes. (templated)
    :param dry_run: only report what would be flushed, and change nothing. (templated as ``is_dry_run``)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"snapshot_id": 43, "rows_flushed": 90, "rows_ended": 4, "deletes_flushed": 2,
        "files_added": 1, "delete_files_added": 2, "bytes_added": 900, "tables": {"sales.orders": {…}},
        "dry_run": False}``: in total, and by the same names for each table. ``rows_ended`` counts the flushed
        rows that only older snapshots have, and ``deletes_flushed`` deletes of rows in data files.
        ``snapshot_id`` is None if there was nothing to do.
    """

    template_fields: Sequence[str] = (
        "table",
        "schema",
        "min_rows",
        "is_dry_run",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        table: str | tuple[str, str] | None = None,
        schema: str | None = None,
        min_rows: int | str = 0,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.schema = schema
        self.min_rows = min_rows
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Flush, and return what was flushed."""
        min_rows = parse_min_rows(self.min_rows)
        dry_run = parse_flag("dry_run", self.is_dry_run)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook, verbs_logged_by(self.log):
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            lake = hook.lake()
            found = lake.flush_inlined_data(
                self.table or None,
                schema=self.schema or None,
                min_rows=min_rows,
                message=self.message or identity.message,
                author="airflow",
                extra=identity.extra,
                dry_run=dry_run,
            )
            summary = _summary(found, dry_run=dry_run)
            announce(self, context, lake, () if summary["snapshot_id"] is None else (summary["snapshot_id"],))
        self._report(found, dry_run=dry_run)
        return summary

    def _report(self, found: Sequence[FlushResult], *, dry_run: bool) -> None:
        if not found:
            self.log.info("flush: nothing to do – no rows or deletes are in the catalog")
        for one in found:
            deleted = f" ({one.ended_count:,} of them deleted)" if one.ended_count else ""
            self.log.info(
                "%s: %s %s from the catalog to %s",
                one.table,
                "would move" if dry_run else f"snapshot {one.snapshot_id} moved",
                counts((one.row_count, "row", deleted), (one.delete_count, "delete")),
                counts((one.data_files, "data file"), (one.delete_files, "delete file")),
            )


_COUNTS = {
    "rows_flushed": "row_count",
    "rows_ended": "ended_count",
    "deletes_flushed": "delete_count",
    "files_added": "data_files",
    "delete_files_added": "delete_files",
    "bytes_added": "bytes",
}


def _summary(found: Sequence[FlushResult], *, dry_run: bool) -> dict[str, Any]:
    of_each = {str(one.table): {name: getattr(one, own) for name, own in _COUNTS.items()} for one in found}
    committed = next((one.snapshot_id for one in found), None)
    return {
        "snapshot_id": None if committed is None else int(committed),
        **{name: sum(one[name] for one in of_each.values()) for name in _COUNTS},
        "tables": of_each,
        "dry_run": dry_run,
    }
