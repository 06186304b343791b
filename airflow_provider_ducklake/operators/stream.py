"""Append the rows of a stream to a lake table with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.events import declare
from ..hooks.jdbc_source import refuse_secrets
from ..lake.writes.arguments import GivenRows
from .spark import DuckLakeSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake


class DuckLakeSparkStreamOperator(DuckLakeSparkOperator):
    """Append what is new in a stream to a table, each micro-batch as one snapshot, exactly once.

    A task processes what is available when it starts, and ends; its next run continues from the checkpoint.
    So do a retry and a cleared task: they commit what an earlier try had staged, and process what is new
    since then.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``; it must exist. (templated)
    :param transform: ``"module:function"``; called as ``f(spark, sources)`` with a ``dict`` of DataFrames, it
        returns a streaming DataFrame with the table's columns. Its module is sent in ``py_files``.
        (templated)
    :param checkpoint: the directory or URI where Spark records how far it has read. It belongs to this stream
        alone, and the worker must be able to reach it, too. If it is lost, the stream starts again with all
        rows. (templated)
    :param sources: what ``transform`` joins the stream with: ``{"name": path or {…}}``, as
        ``DuckLakeSparkInsertOperator`` takes them. (templated)
    :return: ``{"table": "sales.events", "snapshot_id": 43, "snapshot_ids": [42, 43], "batches": 2,
        "rows_added": 3, "files_added": 2, "bytes_added": 1400}``: what this try committed. ``snapshot_id`` is
        the last one, or None if there was nothing new.
    """

    supports_staging = False
    template_fields: Sequence[str] = (
        "table",
        "transform",
        "checkpoint",
        "sources",
        *DuckLakeSparkOperator.template_fields,
    )
    template_fields_renderers = {"sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        transform: str,
        checkpoint: str,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        refuse_secrets(None, sources)
        self.table = table
        declare(self, table)
        self.transform = transform
        self.checkpoint = checkpoint
        self.sources = sources

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, named, reads_of

        return Flow(reads_of(self.sources or {}), writes=named(self.table))

    def changed_in(self, summary: Mapping[str, Any]) -> Sequence[int]:
        """Return the snapshots of the batches."""
        snapshot_ids: list[int] = summary["snapshot_ids"]
        return snapshot_ids

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Append what is new."""
        from ..lake.writes.stream import Stream, stream

        rows = GivenRows(transform=self.transform, sources=self.sources)
        verb = Stream(self.table, rows, self.checkpoint, identity.task)
        info, attempt = self.commit_info(identity), self.attempt(identity)
        return stream(verb, lake, self.submitter(context), info, attempt)
