"""Compact the files of a lake table with Spark."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.commit_identity import commit_identity
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.base import no_retry_on_user_errors, parse_at
from airflow_provider_ducklake.operators.spark_job import DuckLakeSparkJobOperator
from airflow_provider_ducklake.planning.upkeep.compaction import MergeRule, RewriteRule
from airflow_provider_ducklake.planning.writing.job_target import target_of_compaction
from airflow_provider_ducklake.spark.job.request import CompactionSource, JobRequest, job_directory
from airflow_provider_ducklake.spec.options import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.catalog.ledger.jobs import RegisteredJob
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.hooks.compaction import CommittedCompaction
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.planning.upkeep.compaction import Compaction
    from airflow_provider_ducklake.planning.writing.write import RowOrder
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, TableSnapshot


class DuckLakeSparkCompactionOperator(DuckLakeSparkJobOperator):
    """Make files of others, which stay what they are to whoever reads the table.

    What is complete is committed also where the job fails, or by the next try where the worker was killed.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param target_file_size: how large files are to become: bytes, or a text as ``"256MB"``; default: the
        option of the lake. (templated)
    :param max_input_files: take so many files at most, the oldest first. (templated)
    :param max_output_files: make so many files at most. (templated)
    :param commit_every: make a snapshot of so many files each; default: one of all. (templated)
    :param sort: sort the rows within each new file by the table's sort keys, as DuckDB does; ``False`` leaves
        them in their order, which is quicker. A table without sort keys is left so anyway.
    :param zorder_by: up to eight columns by which rows that are near each other in all of them come near each
        other within each new file, in place of the sort keys. (templated)
    """

    verb: ClassVar[str]
    template_fields: Sequence[str] = (
        "table",
        "target_file_size",
        "max_input_files",
        "max_output_files",
        "commit_every",
        "zorder_by",
        *DuckLakeSparkJobOperator.template_fields,
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

    @abstractmethod
    def plan(self, lake: Lake) -> Compaction:
        """Return which files of the table are to become which, as the newest snapshot has them."""

    def limits(self) -> dict[str, Any]:
        """Return what was given of the limits, read.

        Raises:
            InvalidInputError: one cannot be.
        """
        sizes = {name: _size(name, getattr(self, name, None)) for name in _SIZES}
        counts = {name: _count(name, getattr(self, name)) for name in _COUNTS}
        return {name: value for name, value in {**sizes, **counts}.items() if value is not None}

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the parent returns nothing
        """Commit what earlier tries left, compact what is left to compact, and commit that."""
        commit_every = _count("commit_every", self.commit_every)
        hook = DuckLakeHook(self.ducklake_conn_id)
        try:
            lake = hook.lake()
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            info = self._commit_info(context, identity)
            self._staging_id = _staging_id(identity, context["ti"].try_number)
            committed = [*self._left_behind(lake, identity, context, info, commit_every)]
            request, _ = self._plan(lake)
            if request is not None:
                committed += self._compact(context, lake, request, info, commit_every)
            return self._summary(committed)
        finally:
            hook.close()

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest | None:  # noqa: ARG002
        """Look for files to compact; None: there are none."""
        from airflow_provider_ducklake.planning.writing.write import plan_write  # noqa: PLC0415 - not needed to parse a DAG

        compaction = self.plan(lake)
        table = lake.table_snapshot(self.table)
        if not compaction.bins:
            self.log.info("No file of %s needs it", table.name)
            return None
        self.log.info(
            "%s: %d files of %s, %d bytes, become %d",
            self.verb,
            *(compaction.file_count, table.name, compaction.file_size_bytes, len(compaction.bins)),
        )
        job_id = _other_id()
        partition_id = None if table.partition_spec is None else table.partition_spec.id
        source = CompactionSource(compaction, self._staging_id, partition_id)
        plan = replace(plan_write(table, job_directory(table.root, job_id)), row_order=self._row_order(table))
        return JobRequest(job_id, source, (plan,), verb=self.verb)

    def _row_order(self, table: TableSnapshot) -> RowOrder:
        """Return how rows are to lie in each file.

        Raises:
            ColumnNotFoundError: ``zorder_by`` names no column.
        """
        from airflow_provider_ducklake.planning.writing.write import RowOrder  # noqa: PLC0415 - not needed to parse a DAG

        wanted = (self.zorder_by,) if isinstance(self.zorder_by, str) else self.zorder_by
        names = tuple(table.schema.find(name, str(table.name)).name for name in wanted)
        if names or not self.sort or table.sort_spec is None:
            return RowOrder(zorder_by=names)
        return RowOrder(table.sort_spec.fields)

    def _left_behind(
        self,
        lake: Lake,
        identity: CommitIdentity,
        context: Context,
        info: CommitInfo,
        commit_every: int | None,
    ) -> Iterator[CommittedCompaction]:
        """Commit what tries before made and did not commit, as they were killed."""
        ids = [_staging_id(identity, number) for number in range(1, context["ti"].try_number + 1)]
        known = lake.registered_jobs(ids)
        if self._staging_id in known:  # of a run of that name which was deleted
            self._staging_id = _other_id()
        for job in known.values():
            if job.released_at is None:
                self.log.info("An earlier try left files in %s", job.prefix)
                table = lake.table_snapshot(self.table)
                if _is_for(lake, job, table):
                    yield from self._commit(lake, table, job.id, info, commit_every)
                lake.release_job(job.id)

    def _compact(
        self, context: Context, lake: Lake, request: JobRequest, info: CommitInfo, commit_every: int | None
    ) -> list[CommittedCompaction]:
        """Run the job; where it fails, what is complete is committed nevertheless."""
        table = lake.table_snapshot(self.table)
        directory = job_directory(table.root, self._staging_id)
        lake.register_job(self._staging_id, directory, target_of_compaction(table))
        lake.close()  # no idle connection during the job; the next use opens one again
        try:
            self._run_job(context, request, _no_passwords(), lake.storage_options)
        except Exception:
            try:
                list(self._commit(lake, table, self._staging_id, info, commit_every))
                lake.release_job(self._staging_id)
            except Exception as error:  # noqa: BLE001 - why the job failed counts; the next try meets this
                self.log.warning("What the job had made cannot be committed: %s", error)
            raise
        committed = list(self._commit(lake, table, self._staging_id, info, commit_every))
        lake.release_job(self._staging_id)
        self._remove_files(request, lake.storage_options, has_files=False)
        return committed

    def _commit(
        self, lake: Lake, table: TableSnapshot, job_id: str, info: CommitInfo, commit_every: int | None
    ) -> Iterator[CommittedCompaction]:
        from airflow_provider_ducklake.hooks.compaction import commit_compacted  # noqa: PLC0415 - heavy

        directory = job_directory(table.root, job_id)
        for one in commit_compacted(lake, table, directory, info, commit_every, job_id=job_id):
            self.log.info(
                "Committed snapshot %d of %s: %d files in the place of %d",
                *(one.snapshot.id, table.name, len(one.files), sum(len(file.sources) for file in one.files)),
            )
            yield one

    def _summary(self, committed: Sequence[CommittedCompaction]) -> dict[str, Any]:
        from airflow_provider_ducklake.spec.names.identifiers import QualifiedName  # noqa: PLC0415

        compacted = [file for one in committed for file in one.files]
        files = [one.file for one in compacted if one.file is not None]
        return {
            "table": str(QualifiedName.of(self.table)),
            "snapshot_ids": [int(one.snapshot.id) for one in committed],
            "files_compacted": sum(len(one.sources) for one in compacted),
            "files_created": len(files),
            "bytes_created": sum(file.file_size_bytes for file in files),
        }


class DuckLakeSparkMergeAdjacentFilesOperator(DuckLakeSparkCompactionOperator):
    """Make large files of small ones; every snapshot, row id and change feed stays what it was.

    Files next to each other with the same columns and partition become one, up to the table's
    ``target_file_size``. A file of which rows were ever deleted is left to
    ``DuckLakeSparkRewriteDataFilesOperator``. Old files are scheduled for deletion, not deleted. Inserts,
    and deletes in other files, go on meanwhile; where rows of a file were deleted, the file that was made of
    it is given up. What is complete is committed also where the job fails, or by the next try.

    Takes what ``DuckLakeSparkCompactionOperator`` takes, and besides:

    :param where: only files that may hold rows for which this is true, as ``"day < DATE '2026-01-01'"``.
        (templated)
    :param min_file_size: leave smaller files as they are. (templated)
    :param max_file_size: leave files of this size and larger as they are; default: the target. (templated)
    :param older_than: only files of snapshots before this time: an aware ``datetime`` or an ISO time with
        an offset. (templated)
    :return: ``{"table": "sales.orders", "snapshot_ids": [43], "files_compacted": 90, "files_created": 2,
        "bytes_created": 900}``; no snapshots where there was nothing to do.
    """

    verb = "merge_adjacent"
    template_fields: Sequence[str] = (
        "where",
        "min_file_size",
        "max_file_size",
        "older_than",
        *DuckLakeSparkCompactionOperator.template_fields,
    )

    def __init__(
        self,
        *,
        where: str | None = None,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        older_than: datetime | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.older_than = older_than

    def plan(self, lake: Lake) -> Compaction:
        """Return which small files are to become one."""
        older_than = parse_at(self.older_than)
        if isinstance(older_than, int):
            raise InvalidInputError(f"older_than={older_than}: give an aware time.")
        rule = MergeRule(**self.limits())
        return lake.plan_merge(self.table, rule, where=self.where, older_than=older_than)


class DuckLakeSparkRewriteDataFilesOperator(DuckLakeSparkCompactionOperator):
    """Rewrite files that have lost many of their rows; older snapshots keep the old ones.

    Rows keep their ids, and the change feed does not show it. Files of one partition become one, up to the
    table's ``target_file_size``, with the columns of now. The old files go when the snapshots that have them
    have expired. A file of which rows were deleted while the job ran is given up.

    Takes what ``DuckLakeSparkCompactionOperator`` takes, and besides:

    :param delete_threshold: the share of deleted rows from which on a file is rewritten; 0 means any row.
        Default: the option ``rewrite_delete_threshold`` of the table, which is 0.95 unless it was set.
        (templated)
    :return: as ``DuckLakeSparkMergeAdjacentFilesOperator``.
    """

    verb = "rewrite"
    template_fields: Sequence[str] = ("delete_threshold", *DuckLakeSparkCompactionOperator.template_fields)

    def __init__(
        self,
        *,
        delete_threshold: float | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.delete_threshold = delete_threshold

    def plan(self, lake: Lake) -> Compaction:
        """Return which files are to be rewritten."""
        given = self.delete_threshold
        try:
            threshold = None if given in (None, "None") else float(given)
        except ValueError:
            raise InvalidInputError(
                f"delete_threshold is {self.delete_threshold!r}. Give a share from 0 to 1."
            ) from None
        return lake.plan_rewrite(self.table, RewriteRule(threshold, **self.limits()))


_SIZES = ("target_file_size", "min_file_size", "max_file_size")
_COUNTS = ("max_input_files", "max_output_files")


def _size(name: str, value: int | str | None) -> int | None:
    if value is None or value == "None":
        return None
    try:
        return parse_bytes(str(value))
    except ValueError:
        raise InvalidInputError(f"{name} is {value!r}. Give bytes, or a text as '256MB'.") from None


def _count(name: str, value: int | str | None) -> int | None:
    if value is None or value == "None":
        return None
    if not str(value).strip().isdecimal() or int(value) < 1:
        raise InvalidInputError(f"{name} is {value!r}. Give a whole number, 1 or more.")
    return int(value)


def _staging_id(identity: CommitIdentity, try_number: int) -> str:
    """Return the id under which a try of the task keeps its files: the tries after it know it."""
    import json  # noqa: PLC0415 - not needed to parse a DAG
    from uuid import NAMESPACE_URL, uuid5  # noqa: PLC0415

    return str(uuid5(NAMESPACE_URL, json.dumps([*identity.key.names, identity.key.generation, try_number])))


def _is_for(lake: Lake, job: RegisteredJob, table: TableSnapshot) -> bool:
    """Whether a try before compacted this table: the operator may be given another one since."""
    noted = lake.target_of_job(job.id)  # an older release noted the directory only
    return job.prefix == job_directory(table.root, job.id) and noted in (None, target_of_compaction(table))


def _other_id() -> str:
    from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

    return str(uuid7())


def _no_passwords() -> JdbcPasswords:
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords  # noqa: PLC0415

    return JdbcPasswords()
