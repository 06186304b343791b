"""Merge rows of a source into a lake table with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare, declare_read
from ..hooks.jdbc_source import refuse_secrets
from ..lake.writes.arguments import (
    SOURCE_ALIAS,
    TARGET_ALIAS,
    GivenRows,
    check_aliases,
    check_has_clause,
    clauses_of,
)
from .base import check_on_clear
from .spark import DuckLakeSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.row_changes import Merge


class DuckLakeSparkMergeOperator(DuckLakeSparkOperator):
    """Merge a source into a table: update, delete and insert rows as one snapshot.

    This is SQL's ``MERGE``: the first clause for a row whose condition is true applies. If several rows of
    the source would change the same row of the table, the task fails with an error that names some of them.
    NULL matches nothing. The source is read once. Changed rows keep their row ids.

    Exactly one of ``source``, ``sql``, ``transform`` and ``source_table`` says where the rows come from; the
    first three, and ``sources``, work as in ``DuckLakeSparkInsertOperator``.

    Data files stay, and rows keep their row ids (merge-on-read). A cleared task runs again, on the current
    rows.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param on: the match condition in Spark SQL, such as ``"target.id = source.id"``, or a list of columns
        that both have and that must be equal. (templated)
    :param source: a path or ``{"format": …, "path": …, "options": {…}}``. (templated)
    :param sql: a Spark SQL query over ``sources``. (templated, also from a ``.sql`` file)
    :param transform: ``"module:function"``, called as ``f(spark, sources)``. (templated)
    :param sources: what ``sql`` or ``transform`` work on: ``{"name": path or {…}}``. (templated)
    :param source_table: a table of the lake or a view in Spark's dialect, read at the same snapshot as the
        target. (templated)
    :param when_matched: clauses for rows that match: ``{"condition": "…", "update": {"column":
        "expression"}}``, ``"update": "*"`` for all columns from those of the source with their names, or
        ``"delete": True``. A clause without a condition applies to all remaining rows. (templated)
    :param when_not_matched: clauses for rows of the source that match no row: ``{"insert": {"column":
        "expression"}}`` or ``"insert": "*"``. Columns that are not named get their defaults. (templated)
    :param when_not_matched_by_source: clauses for rows of the table that no row of the source matches, as in
        ``when_matched``. With such a clause, the whole table is read. (templated)
    :param update_all: short for ``when_matched=[{"update": "*"}]``.
    :param insert_all: short for ``when_not_matched=[{"insert": "*"}]``.
    :param trust_views: True runs views of the lake unchecked: then all who can write the catalog can run code
        in Spark. With Spark Connect no view is read without it.
    :param target_alias: the name of the table in expressions.
    :param source_alias: the name of the source in expressions.
    :param on_clear: see ``DuckLakeSparkOperator``. (templated)
    :return: as ``DuckLakeSparkDeleteOperator``.
    """

    supports_staging = False
    template_fields: Sequence[str] = (
        "on",
        "source",
        "sql",
        "transform",
        "sources",
        "source_table",
        "when_matched",
        "when_not_matched",
        "when_not_matched_by_source",
        "table",
        "on_clear",
        *DuckLakeSparkOperator.template_fields,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "source": "json", "sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        on: str | Sequence[str],
        source: str | Mapping[str, Any] | None = None,
        sql: str | None = None,
        transform: str | None = None,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        source_table: str | tuple[str, str] | None = None,
        when_matched: Sequence[Mapping[str, Any]] = (),
        when_not_matched: Sequence[Mapping[str, Any]] = (),
        when_not_matched_by_source: Sequence[Mapping[str, Any]] = (),
        update_all: bool = False,
        insert_all: bool = False,
        target_alias: str = TARGET_ALIAS,
        source_alias: str = SOURCE_ALIAS,
        trust_views: bool = False,
        on_clear: str = "replace",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        declare_read(self, source_table)
        self.on = on
        self.source = source
        self.sql = sql
        self.transform = transform
        self.sources = sources
        self.source_table = source_table
        self.when_matched = clauses_of(when_matched, "update", all_columns=update_all)
        self.when_not_matched = clauses_of(when_not_matched, "insert", all_columns=insert_all)
        self.when_not_matched_by_source = when_not_matched_by_source
        self.target_alias = target_alias
        self.source_alias = source_alias
        self.trust_views = trust_views
        self.on_clear = on_clear
        self._rows().check(source_table=source_table)
        check_has_clause(self.when_matched, self.when_not_matched, when_not_matched_by_source)
        check_aliases(target_alias, source_alias)
        refuse_secrets(source, sources)

    def _rows(self) -> GivenRows:
        return GivenRows(self.source, self.sql, self.transform, self.sources)

    def verb(self, identity: CommitIdentity) -> Merge:  # noqa: ARG002 - of no use here
        """Return the verb to run."""
        from ..lake.writes.row_changes import Merge

        return Merge(
            self.table,
            self.on,
            self._rows(),
            self.source_table,
            self.when_matched,
            self.when_not_matched,
            self.when_not_matched_by_source,
            self.target_alias,
            self.source_alias,
            self.trust_views,
        )

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import flow_of_table

        sources = self.sources or ({} if self.source is None else {"source": self.source})
        return flow_of_table(self.table, self.done.read_at, sources, self.sql, self.source_table)

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Merge, exactly once."""
        return self.run_once(self.verb, lake, identity, context, self.on_clear)
