"""Tell Airflow's hook lineage which tables a task reads and writes through a hook.

For tasks of users: OpenLineage, say, shows what the collector was given. Operators report their own tables
(``hooks/lineage.py``), and their hooks tell nothing. No task may fail or wait for it: each table is told once
in each direction, no more than ``_MOST`` of them, and nothing where nobody reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.assets.ducklake import SCHEME
from airflow_provider_ducklake.lake.spec.log_lines import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.lake.spec.names.identifiers import FoldedName, QualifiedName

log = logger(__name__)

NAME = "ducklake_table"  # key of an asset's extra: the table as the catalog spells it, which a URI does not
_MOST = 100  # tables in each direction, which is as many as the collector takes unless configured otherwise


class HookLineage:
    """The ``LakeObserver`` of a hook's lake.

    The collector keeps the hook to the end of the process, so it is one that has opened no lake.
    """

    def __init__(self, hook: DuckLakeHook) -> None:
        self._hook = hook
        self._read: set[FoldedName] = set()
        self._written: set[FoldedName] = set()

    def has_read(self, table: QualifiedName) -> None:
        """Tell of a table that was read."""
        self._tell("add_input_asset", table, self._read)

    def has_written(self, tables: Sequence[QualifiedName]) -> None:
        """Tell of tables that a snapshot changed."""
        for table in tables:
            self._tell("add_output_asset", table, self._written)

    def _tell(self, how: str, table: QualifiedName, told: set[FoldedName]) -> None:
        if table.folded in told or len(told) >= _MOST:
            return
        told.add(table.folded)
        try:
            collector = _collector()
            if collector is not None:
                getattr(collector, how)(
                    context=self._hook,
                    scheme=SCHEME,
                    asset_kwargs={"table": table.parts, "ducklake_conn_id": self._hook.ducklake_conn_id},
                    asset_extra={NAME: str(table)},
                )
        except Exception as error:  # noqa: BLE001 - the rows are read, or there, whoever is told
            log.warning("No hook lineage of table %s: %s", table, error)


def _collector() -> Any | None:  # noqa: ANN401 - Airflow's
    from airflow_provider_ducklake.hooks.compat import hook_lineage_collector  # noqa: PLC0415 - not for DAG files

    return hook_lineage_collector()
