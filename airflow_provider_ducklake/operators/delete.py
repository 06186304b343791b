"""Delete rows of a lake table with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare
from .base import check_on_clear
from .spark import DuckLakeSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.row_changes import Delete


class DuckLakeSparkDeleteOperator(DuckLakeSparkOperator):
    """Delete the rows of a table for which a condition is true, as one snapshot.

    Without such rows no snapshot is made. If the catalog's statistics already show that there are none, no
    Spark job runs either.

    Data files stay, and rows keep their row ids (merge-on-read). A cleared task runs again, on the current
    rows.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param where: a Spark SQL condition on the table's columns, which may also be written as
        ``target.column``. (templated, also from a ``.sql`` file)
    :param on_clear: see ``DuckLakeSparkOperator``. (templated)
    :return: ``{"table": "sales.orders", "snapshot_id": 43, "read_snapshot_id": 42, "rows_deleted": 3,
        "rows_updated": 0, "rows_added": 0, "files_added": 0, "bytes_added": 0, "delete_files_added": 1,
        "already_committed": False}``; ``snapshot_id`` is None if no row matched. If an earlier try had
        committed, it is that try's snapshot, and the numbers are None.
    """

    supports_staging = False
    template_fields: Sequence[str] = ("where", "table", "on_clear", *DuckLakeSparkOperator.template_fields)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"where": "sql"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        where: str,
        on_clear: str = "replace",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        self.where = where
        self.on_clear = on_clear

    def verb(self, identity: CommitIdentity) -> Delete:  # noqa: ARG002 - of no use here
        """Return the verb to run."""
        from ..lake.writes.row_changes import Delete

        return Delete(self.table, self.where)

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import flow_of_table

        return flow_of_table(self.table, self.done.read_at, {})

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Delete, exactly once."""
        return self.run_once(self.verb, lake, identity, context, self.on_clear)
