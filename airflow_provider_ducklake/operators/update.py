"""Update rows of a lake table with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare
from .base import check_on_clear
from .spark import DuckLakeSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.row_changes import Update


class DuckLakeSparkUpdateOperator(DuckLakeSparkOperator):
    """Change columns of the rows for which a condition is true, as one snapshot; the rows keep their row ids.

    Expressions see the row before the update. Their values must fit their columns without loss, as in an
    insert; cast them if needed. If no row matches, no snapshot is made.

    Data files stay, and rows keep their row ids (merge-on-read). A cleared task runs again, on the current
    rows.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param set: ``{"price": "price * 2", "address.zip": "NULL"}``: expressions in Spark SQL by columns, or by
        paths of fields in structs. (templated)
    :param where: a condition in Spark SQL on the table's columns; ``"true"``: all rows. (templated, also
        from a ``.sql`` file)
    :param on_clear: see ``DuckLakeSparkOperator``. (templated)
    :return: as ``DuckLakeSparkDeleteOperator``.
    """

    supports_staging = False
    template_fields: Sequence[str] = (
        "set",
        "where",
        "table",
        "on_clear",
        *DuckLakeSparkOperator.template_fields,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"where": "sql", "set": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        set: Mapping[str, str],  # noqa: A002 - SQL's own word
        where: str,
        on_clear: str = "replace",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        self.set = set
        self.where = where
        self.on_clear = on_clear

    def verb(self, identity: CommitIdentity) -> Update:  # noqa: ARG002 - of no use here
        """Return the verb to run."""
        from ..lake.writes.row_changes import Update

        return Update(self.table, self.set, self.where)

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import flow_of_table

        return flow_of_table(self.table, self.done.read_at, {})

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Update, exactly once."""
        return self.run_once(self.verb, lake, identity, context, self.on_clear)
