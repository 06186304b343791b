"""Compact the files of a lake table with Spark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .spark import DuckLakeSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.task import CommitIdentity
    from ..lake.catalog.lake import Lake
    from ..lake.writes.compaction import Compact


class DuckLakeSparkCompactionOperator(DuckLakeSparkOperator):
    """Combine a table's files into fewer ones. Readers see the same rows at every snapshot.

    Finished files are committed even if the job fails, or by the next try if the worker was killed.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param target_file_size: the size of new files: bytes, or a string such as ``"256MB"``; default: the
        option of the lake. (templated)
    :param max_input_files: compact at most this many files, the oldest first. (templated)
    :param max_output_files: create at most this many files. (templated)
    :param commit_every: commit a snapshot after this many new files; default: one snapshot for all.
        (templated)
    :param sort: sort the rows within each new file by the table's sort keys, as DuckDB does; ``False`` keeps
        their order, which is faster. It has no effect on a table without sort keys.
    :param zorder_by: up to eight columns; rows that are close to each other in all of them are placed close
        to each other within each new file, instead of sorting by the sort keys. (templated)
    """

    template_fields: Sequence[str] = (
        "table",
        "target_file_size",
        "max_input_files",
        "max_output_files",
        "commit_every",
        "zorder_by",
        *DuckLakeSparkOperator.template_fields,
    )

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        target_file_size: int | str | None = None,
        max_input_files: int | str | None = None,
        max_output_files: int | str | None = None,
        commit_every: int | str | None = None,
        sort: bool = True,
        zorder_by: str | Sequence[str] = (),
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.target_file_size = target_file_size
        self.max_input_files = max_input_files
        self.max_output_files = max_output_files
        self.commit_every = commit_every
        self.sort = sort
        self.zorder_by = zorder_by

    @classmethod
    @abstractmethod
    def compaction_of(cls, arguments: Mapping[str, Any]) -> Compact:
        """Make the verb of the operator's arguments, by their names; others are ignored.

        Raises:
            InvalidInputError: an argument cannot be read.
        """

    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Commit what earlier tries left, compact what is left to compact, and commit that."""
        from ..lake.writes.compaction import compact

        attempts = [identity.attempt_id(number) for number in range(1, context["ti"].try_number + 1)]
        return compact(
            self.compaction_of(vars(self)),
            lake,
            self.submitter(context),
            self.commit_info(identity),
            attempts,
            attempt=self.attempt(identity),
        )


class DuckLakeSparkMergeAdjacentFilesOperator(DuckLakeSparkCompactionOperator):
    """Merge small files into large ones; every snapshot, row id and change feed stays the same.

    Adjacent files with the same columns and partition become one, up to the table's ``target_file_size``. A
    file with deleted rows is left to ``DuckLakeSparkRewriteDataFilesOperator``. Old files are scheduled for
    deletion, not deleted. Others can insert, and delete from other files, in the meantime; if rows of a file
    are deleted, the file merged from it is discarded. Finished files are committed even if the job fails, or
    by the next try.

    Takes what ``DuckLakeSparkCompactionOperator`` takes, and besides:

    :param filter: only files that may hold rows for which this is true, ``"day < DATE '2026-01-01'"``.
        (templated)
    :param min_file_size: leave smaller files as they are. (templated)
    :param max_file_size: leave files of this size and larger as they are; default: the target. (templated)
    :param older_than: only files of snapshots before this time: an aware ``datetime`` or an ISO time with
        an offset. (templated)
    :return: ``{"table": "sales.orders", "snapshot_ids": [43], "files_removed": 90, "files_added": 2,
        "bytes_added": 900}``; no snapshots if there was nothing to do.
    """

    template_fields: Sequence[str] = (
        "filter",
        "min_file_size",
        "max_file_size",
        "older_than",
        *DuckLakeSparkCompactionOperator.template_fields,
    )

    def __init__(
        self,
        *,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        older_than: datetime | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.filter = filter
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.older_than = older_than

    @classmethod
    def compaction_of(cls, arguments: Mapping[str, Any]) -> Compact:
        """Merge small files; see ``DuckLakeSparkCompactionOperator``."""
        from ..lake.writes.compaction import Compact

        own = ("filter", "min_file_size", "max_file_size", "older_than")
        return Compact.merging(**_named(arguments, own))


class DuckLakeSparkRewriteDataFilesOperator(DuckLakeSparkCompactionOperator):
    """Rewrite files that have lost many of their rows; older snapshots keep the old ones.

    Rows keep their ids, and the change feed does not show it. Files of one partition become one, up to the
    table's ``target_file_size``, with the current columns. The old files are removed once the snapshots that
    need them have expired. If rows of a file are deleted while the job runs, its new file is discarded.

    Takes what ``DuckLakeSparkCompactionOperator`` takes, and besides:

    :param delete_threshold: the fraction of deleted rows from which a file is rewritten; 0 means any deleted
        row. Default: the option ``rewrite_delete_threshold`` of the table, which is 0.95 unless it was set.
        (templated)
    :return: as ``DuckLakeSparkMergeAdjacentFilesOperator``.
    """

    template_fields: Sequence[str] = ("delete_threshold", *DuckLakeSparkCompactionOperator.template_fields)

    def __init__(
        self,
        *,
        delete_threshold: float | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.delete_threshold = delete_threshold

    @classmethod
    def compaction_of(cls, arguments: Mapping[str, Any]) -> Compact:
        """Rewrite files that lost rows; see ``DuckLakeSparkCompactionOperator``."""
        from ..lake.writes.compaction import Compact

        return Compact.rewriting(**_named(arguments, ("delete_threshold",)))


def _named(arguments: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
    return {name: arguments[name] for name in (*_SHARED, *own) if name in arguments}


_SHARED = (
    "table",
    "target_file_size",
    "max_input_files",
    "max_output_files",
    "commit_every",
    "sort",
    "zorder_by",
)
