"""Run Spark SQL over tables of a lake, and write its results to tables of the lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare, declare_read
from ..hooks.jdbc_source import refuse_secrets
from ..lake.errors import InvalidInputError
from ..lake.format.names.identifiers import DEFAULT_SCHEMA
from .base import check_on_clear
from .spark import DuckLakeSparkOperator, skipped_if_empty

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.sql import Sql


class DuckLakeSparkSQLOperator(DuckLakeSparkOperator):
    """Run Spark SQL over lake tables at one snapshot; all results become one snapshot, or none does.

    ``sql`` consists of ``INSERT INTO``, ``INSERT OVERWRITE``, ``CREATE TABLE … AS``, ``CREATE OR REPLACE
    TABLE … AS`` and, for queries that several of them share, ``CREATE TEMPORARY VIEW``. Tables are named
    ``schema.table``. As in Spark, rows go to columns by position, with ``BY NAME`` by name.

    With ``incremental`` the query sees, instead of the tables, only the changes since this consumer's last
    run: their rows with the columns ``snapshot_id``, ``rowid`` and ``change_type`` (``insert``, ``delete``,
    ``update_preimage``, ``update_postimage``) before their own. The first run sees all rows as inserts. The
    consumer's position is stored in the transaction that commits the results.

    :param sql: one or more statements, in one string or a list. (templated, also from a ``.sql`` file)
    :param transform: ``"module:function"`` instead of ``sql``; called as ``f(spark, lake_table)``, where
        ``lake_table("sales.orders")`` is the DataFrame of one of ``tables``. It returns a DataFrame, or
        ``{"schema.table": DataFrame}``. Its module is sent in ``py_files``. (templated)
    :param tables: the tables and Spark views that ``transform`` reads. (templated)
    :param targets: what ``transform`` writes and how: ``{"sales.daily": "append"}``, or ``overwrite``,
        ``create``, ``create_if_missing``, ``replace``. (templated)
    :param sources: what else is read, as ``{"name": path or {…}}``; see ``DuckLakeSparkInsertOperator``. A
        ``transform`` gets them as its argument ``sources``. (templated)
    :param default_schema: the schema of tables that are named without one. (templated)
    :param at: read this snapshot, by its id, an aware time or a tag; default: the newest at the start.
        (templated)
    :param incremental: True, or the names of the tables of which only the changes are read; True means all
        tables except those that are written. (templated)
    :param consumer: the name of the consumer; default: DAG and task. Tasks with the same name share its
        position. (templated)
    :param full_refresh: with ``incremental``: start again. The query sees all rows as inserts, and the tables
        that it writes as empty; its results replace their rows. (templated)
    :param trust_views: True runs views of the lake unchecked: then all who can write the catalog can run code
        in Spark. With Spark Connect no view is read without it.
    :param if_empty: if a table that is written gets no rows: ``replace`` goes on, so that an overwrite only
        removes rows; ``skip`` commits nothing, consumes nothing, and the task is skipped; ``fail`` fails it
        without a retry. (templated)
    :param on_clear: see ``DuckLakeSparkOperator``. (templated)
    :return: ``{"table": "sales.daily", "snapshot_id": 43, "read_snapshot_id": 42, "rows_added": 3,
        "files_added": 1, "bytes_added": 700, "rows_removed": 0, "tables": {"sales.daily": {"rows_added": 3,
        …}}, "consumed": {"sales.orders": [38, 42]}, "already_committed": False}``.
    """

    supports_staging = False
    template_fields: Sequence[str] = (
        "sql",
        "transform",
        "tables",
        "targets",
        "sources",
        "default_schema",
        "at",
        "incremental",
        "consumer",
        "full_refresh",
        "if_empty",
        "on_clear",
        *DuckLakeSparkOperator.template_fields,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        sql: str | Sequence[str] | None = None,
        transform: str | None = None,
        tables: Sequence[str] = (),
        targets: Mapping[str, str] | None = None,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        default_schema: str = DEFAULT_SCHEMA,
        at: int | datetime | str | None = None,
        incremental: bool | str | Sequence[str] = False,
        consumer: str | None = None,
        full_refresh: bool | str = False,
        trust_views: bool = False,
        if_empty: str = "replace",
        on_clear: str = "replace",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        if (sql is None) == (transform is None):
            raise InvalidInputError("Give exactly one of sql and transform.")
        if (transform is None) != (targets is None) or (sql is not None and tables):
            raise InvalidInputError("targets and tables are for transform; sql names its tables itself.")
        if incremental is False and (consumer is not None or full_refresh is True):
            raise InvalidInputError("consumer and full_refresh are for incremental; give incremental, too.")
        refuse_secrets(None, sources)
        super().__init__(**kwargs)
        self.sql = sql
        self.transform = transform
        self.tables = tables
        self.targets = targets
        if default_schema == DEFAULT_SCHEMA:  # as names without one are read while the DAG is parsed
            declare_read(self, *(tables if isinstance(tables, list | tuple) else ()))
            declare(self, *(targets if isinstance(targets, dict) else ()))
        self.sources = sources
        self.default_schema = default_schema
        self.at = at
        self.incremental = incremental
        self.consumer = consumer
        self.full_refresh = full_refresh
        self.trust_views = trust_views
        self.if_empty = if_empty
        self.on_clear = on_clear

    def verb(self, identity: CommitIdentity) -> Sql:
        """Return the verb to run."""
        from ..lake.writes.sql import Sql

        return Sql(
            sql=self.sql,
            transform=self.transform,
            tables=self.tables,
            targets=self.targets,
            sources=self.sources,
            default_schema=self.default_schema,
            at=self.at,
            incremental=self.incremental,
            consumer=identity.consumer(self.consumer),
            starts_over=identity.starts_over,
            full_refresh=self.full_refresh,
            trust_views=self.trust_views,
            if_empty=self.if_empty,
        )

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, LineageRead, flow_of_sql, named, reads_of

        sources = self.sources or {}
        if self.sql is None:
            tables = {
                f"lake_table_{number}": LineageRead(one) for number, one in enumerate(named(*self.tables))
            }
            writes = named(*(self.targets or ()))
            return Flow({**tables, **reads_of(sources)}, at=self.done.read_at, writes=writes)
        return flow_of_sql(self.sql, sources, self.default_schema, self.done.read_at)

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Run the queries, exactly once."""
        summary = self.run_once(self.verb, lake, identity, context, self.on_clear)
        return skipped_if_empty(summary, self.if_empty)
