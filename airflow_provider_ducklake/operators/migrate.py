"""Migrate the catalog of a lake to DuckLake 1.0."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.task import no_retry_on_user_errors
from airflow_provider_ducklake.operators.base import DuckLakeOperator
from airflow_provider_ducklake.writes.arguments import parse_flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.migrations.migrate import MigrationResult


class DuckLakeMigrateOperator(DuckLakeOperator):
    """Migrate a catalog of DuckLake 0.1, 0.2, 0.3 or 0.4 to 1.0 in place; every snapshot reads as before.

    Stop all clients of the old version first. A catalog that already has version 1.0 is not changed. Run a
    task that was killed again: it finishes what is left to do.

    :param dry_run: only report the steps, and change nothing. (templated as ``is_dry_run``)
    :param backup: first copy a catalog file (SQLite, DuckDB) in its own directory. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param commit_message: accepted as by every operator, but unused: no snapshot is made. (templated)
    :return: ``{"from_version": "0.3", "to_version": "1.0", "steps": ["…"], "files": 2, "bytes": 4096,
        "backup": "/data/lake.sqlite.0.3.20261122T013000000000Z.backup", "dry_run": False}``: the number of
        merged files and chains of delete files that were rewritten, and the bytes read for that; no steps if
        there was nothing to do.
    """

    template_fields: Sequence[str] = ("is_dry_run", "backup", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        dry_run: bool | str = False,
        backup: bool | str = True,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator
        self.backup = backup

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Migrate, and return what was done."""
        arguments = {
            "dry_run": parse_flag("dry_run", self.is_dry_run),
            "backup": parse_flag("backup", self.backup),
        }
        with closing(DuckLakeHook(self.ducklake_conn_id)) as hook:
            result = hook.lake().migrate(**arguments)
        self._report(result)
        return {**asdict(result), "steps": list(result.steps)}

    def _report(self, result: MigrationResult) -> None:
        if not result.steps:
            self.log.info("The catalog already has version %s: nothing to do.", result.from_version)
            return
        for step in result.steps:
            self.log.info("%s: %s", "To do" if result.dry_run else "Done", step)
        self.log.info(
            "%s %s to %s; %d files rewritten, from %d bytes; backup: %s",
            "Dry run, from" if result.dry_run else "Migrated from",
            result.from_version,
            result.to_version,
            result.files,
            result.bytes,
            result.backup,
        )
