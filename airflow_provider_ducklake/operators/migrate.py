"""Migrate the catalog of a lake to DuckLake 1.0 or 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.format.versions import DEFAULT
from ..lake.writes.arguments import parse_flag
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.migrations.migrate import MigrationResult


class DuckLakeMigrateOperator(DuckLakeOperator):
    """Migrate an older catalog to DuckLake 1.0 or 1.1 in place; every snapshot reads as before.

    Stop all clients of the old version first. A catalog that already has the version, or a newer one, is not
    changed. Run a task that was killed again: it finishes what is left to do.

    :param to_version: ``"1.0"``, or ``"1.1"``, which DuckDB 2.0 opens, and no DuckDB 1.x; there is no way
        back. (templated)
    :param dry_run: only report the steps, and change nothing. (templated as ``is_dry_run``)
    :param backup: first copy a catalog file (SQLite, DuckDB) in its own directory. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"from_version": "0.3", "to_version": "1.0", "steps": ["…"], "files_rewritten": 2,
        "bytes_read": 4096, "backup": "/data/lake.sqlite.0.3.20261122T013000000000Z.backup", "dry_run":
        False, "refusals": [], "opened_by": "DuckDB 1.5 and newer open it", "locked_out": []}``: the number of
        merged files and chains of delete files that were rewritten, and the bytes read for that; no steps if
        there was nothing to do; who opens the catalog then. With ``dry_run`` also why it cannot be migrated
        as it is, and which clients wrote its newest files and will not open it.
    """

    template_fields: Sequence[str] = ("to_version", "is_dry_run", "backup", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        to_version: str = DEFAULT.value,
        dry_run: bool | str = False,
        backup: bool | str = True,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.to_version = to_version
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator
        self.backup = backup

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Migrate, and return what was done."""
        dry_run, backup = parse_flag("dry_run", self.is_dry_run), parse_flag("backup", self.backup)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            result = hook.migrate(self.to_version, dry_run=dry_run, backup=backup)
        self._report(result)
        lists = {name: list(getattr(result, name)) for name in ("steps", "refusals", "locked_out")}
        summary = {**asdict(result), **lists, "files_rewritten": result.files, "bytes_read": result.bytes}
        return {name: value for name, value in summary.items() if name not in ("files", "bytes")}

    def _report(self, result: MigrationResult) -> None:
        if not result.steps:
            self.log.info("The catalog already has version %s: nothing to do.", result.from_version)
            return
        for step in result.steps:
            self.log.info("%s: %s", "To do" if result.dry_run else "Done", step)
        for refusal in result.refusals:
            self.log.warning("Not possible: %s", refusal)
        for client in result.locked_out:
            self.log.warning("Wrote files of this lake, and will not open it: %s", client)
        self.log.info(
            "%s %s to %s: %s; %d files rewritten, from %d bytes; backup: %s",
            "Dry run, from" if result.dry_run else "Migrated from",
            result.from_version,
            result.to_version,
            result.opened_by,
            result.files,
            result.bytes,
            result.backup,
        )
