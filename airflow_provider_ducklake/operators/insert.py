"""Insert rows into a lake table with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare
from ..hooks.jdbc_source import refuse_secrets
from ..lake.writes.arguments import GivenRows, InsertChoice, InsertMode, check_partition_by, is_template
from .base import check_on_clear
from .spark import DuckLakeSparkOperator, skipped_if_empty

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.insert import Insert


class DuckLakeSparkInsertOperator(DuckLakeSparkOperator):
    """Insert the rows of a source into a table, or create the table from them, as one snapshot.

    Exactly one of ``source``, ``sql`` and ``transform`` says where the rows come from. Columns are matched by
    name; one error lists all missing and unexpected columns and differing types before anything is written.
    Without rows there is no file and no snapshot (but ``create_table`` creates an empty table, and
    ``mode="overwrite"`` empties the table).

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param source: a path (its suffix gives the format; Parquet without one), or ``{"format": "csv", "path":
        "…", "options": {…}}`` with format parquet, csv, json, orc or jdbc. A jdbc source names an Airflow
        connection as ``conn_id``. (templated)
    :param sql: a Spark SQL query that sees each of ``sources`` as a view of that name. (templated, also from
        a ``.sql`` file)
    :param transform: ``"module:function"``; called as ``f(spark, sources)`` with a ``dict`` of DataFrames, it
        returns the rows. Its module is sent in ``py_files``. (templated)
    :param sources: what ``sql`` or ``transform`` work on: ``{"name": path or {…}}``. (templated)
    :param create_table: create the table if it does not exist, with the rows' columns, and its schema, in the
        same snapshot as the rows.
    :param partition_by: partition keys of a table that is created: ``["region", "year(day)", "bucket(16,
        id)"]``; an existing table keeps its own. (templated)
    :param mode: ``append``; ``overwrite``: replace all rows; ``overwrite_partitions``: replace all rows of
        the partitions that the new rows belong to. If someone else changes the table's rows in the meantime,
        overwriting is a conflict, and the retry plans again. (templated)
    :param overwrite_where: replace the rows for which a condition such as ``"day = '2026-01-31'"`` is true;
        the new rows must satisfy it, too. (templated)
    :param schema_evolution: ``strict``; ``add_columns``: columns and fields that the table lacks are added,
        in the same snapshot, and those that the rows lack get their default; ``add_and_widen``: column types
        are also widened if the rows' types do not fit. (templated)
    :param zorder_by: up to eight columns; rows that are close to each other in all of them go into the same
        files, instead of sorting by the table's sort keys; the job reads the source three times. (templated)
    :param if_empty: if the source has no rows: ``replace`` goes on, so that an overwrite only removes rows;
        ``skip`` commits nothing, and the task is skipped; ``fail`` fails it without a retry. (templated)
    :param on_clear: see ``DuckLakeSparkOperator``. (templated)
    :param stage_only: leave the commit to a ``DuckLakeCommitOperator``; see ``DuckLakeSparkOperator``.
    :return: ``{"table": "sales.orders", "snapshot_id": 43, "rows_added": 3, "files_added": 1,
        "bytes_added": 700, "rows_removed": 0, "columns_added": {"channel": "varchar"}, "columns_widened":
        {"id": ["int32", "int64"]}, "already_committed": False}``; ``snapshot_id`` is None if nothing was
        committed. If an earlier try had committed, it is that try's snapshot, and all but its rows is None.
        With ``stage_only``, a different dict is returned; see ``DuckLakeSparkOperator``.
    """

    template_fields: Sequence[str] = (
        "table",
        "source",
        "sql",
        "transform",
        "sources",
        "partition_by",
        "mode",
        "overwrite_where",
        "schema_evolution",
        "zorder_by",
        "if_empty",
        "on_clear",
        *DuckLakeSparkOperator.template_fields,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "source": "json", "sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        source: str | Mapping[str, Any] | None = None,
        sql: str | None = None,
        transform: str | None = None,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        create_table: bool = False,
        partition_by: str | Sequence[str] = (),
        mode: str = "append",
        overwrite_where: str | None = None,
        schema_evolution: str = "strict",
        zorder_by: str | Sequence[str] = (),
        if_empty: str = "replace",
        on_clear: str = "replace",
        stage_only: bool = False,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        super().__init__(**kwargs)
        self.table = table
        self.source = source
        self.sql = sql
        self.transform = transform
        self.sources = sources
        self.create_table = create_table
        self.partition_by = partition_by
        self.mode = mode
        self.overwrite_where = overwrite_where
        self.schema_evolution = schema_evolution
        self.zorder_by = zorder_by
        self.if_empty = if_empty
        self.on_clear = on_clear
        self.stage_only = stage_only
        self._rows().check()
        check_partition_by(partition_by, create_table=create_table)
        refuse_secrets(source, sources)
        if not stage_only:
            declare(self, table)
        if not any(is_template(word) for word in (mode, schema_evolution, if_empty)):
            self._choice()

    def _rows(self) -> GivenRows:
        return GivenRows(self.source, self.sql, self.transform, self.sources)

    def _choice(self) -> InsertChoice:
        return InsertChoice.of(
            self.mode,
            self.overwrite_where,
            self.schema_evolution,
            self.zorder_by,
            self.if_empty,
            stage_only=self.stage_only,
        )

    def verb(self, identity: CommitIdentity) -> Insert:  # noqa: ARG002 - of no use here
        """Return the verb to run."""
        from ..lake.writes.insert import Insert

        return Insert(self.table, self._rows(), self._choice(), self.create_table, self.partition_by)

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, Query, named, reads_of

        sources = self.sources or ({} if self.source is None else {"source": self.source})
        tables = named(self.table)
        queries = () if self.sql is None else tuple(Query(one, self.sql) for one in tables)
        overwrites = self.mode != InsertMode.APPEND or self.overwrite_where is not None
        writes = () if self.stage_only else tables
        return Flow(reads_of(sources), queries, sql=self.sql, overwrites=overwrites, writes=writes)

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Insert exactly once, or stage."""
        if self.stage_only:
            from ..lake.writes.insert import stage

            summary = stage(self.verb(identity), lake, self.submitter(context), self.attempt(identity))
        else:
            summary = self.run_once(self.verb, lake, identity, context, self.on_clear)
        return skipped_if_empty(summary, self.if_empty)
