"""What the operators that delete, update and merge rows have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.operators import before_submit
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.planning.reading.named_columns import named_columns
from airflow_provider_ducklake.planning.writing.write import plan_write
from airflow_provider_ducklake.spark.job import job_io
from airflow_provider_ducklake.spark.job.request import (
    JobRequest,
    LakeSource,
    RowChangeSource,
    job_directory,
)
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName, split_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit, Stage
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.planning.writing.row_changes import RowChanges
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot
    from airflow_provider_ducklake.transaction.changes import AddDeletes

TARGET_ALIAS = "target"


class DuckLakeSparkRowChangeOperator(DuckLakeSparkOperator):
    """Change rows of one table in one snapshot, merge-on-read: data files stay, and rows keep their row ids.

    A task that was cleared simply runs again, on the rows that are there then.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param engine: which engine writes new data files, as ``DuckLakeSparkInsertOperator``.
    """

    verb: ClassVar[str]
    template_fields: Sequence[str] = ("table", *DuckLakeSparkOperator.template_fields)

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        engine: str = "auto",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        if self.stage_only:
            raise InvalidInputError("stage_only=True: this operator commits its changes itself.")
        self.table = table
        self.engine = engine
        self._request: JobRequest | None = None
        self._done: RowChanges | None = None
        self._stage: Stage | None = None

    def begin(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> None:
        """Do nothing: what a cleared task changed stays changed."""

    @abstractmethod
    def changes(self, lake: Lake, passwords: JdbcPasswords) -> RowChangeSource:
        """Return the rows that may change, as the newest snapshot has them, and how."""

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest | None:
        """Plan the change; None: the catalog tells that no row can be hit."""
        from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

        changes = self.changes(lake, passwords)
        before_submit.check_names(changes)
        plan = changes.target
        self._table = plan.table
        has_rows = bool(plan.files) or any(part.rows for part in plan.inlined_rows)
        if not has_rows and not changes.not_matched:
            return None
        self.log.info("Reading %s at snapshot %d", plan.table.name, plan.table.snapshot.id)
        job_id = str(uuid7())
        directory = job_directory(plan.table.root, job_id)
        plans = tuple(plan_write(plan.table, f"{directory}{name}/") for name in ("updated", "inserted"))
        self._request = JobRequest(job_id, changes, plans, verb=self.verb, engine=self.engine)
        return self._request

    def commit(
        self, lake: Lake, results: Sequence[WriteResult], info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        """Commit what the job found and wrote, if anything."""
        if not results:
            return None
        assert self._request is not None
        self._done = job_io.read_row_changes(self._request, lake.storage_options)
        self._stage = with_rows_read(lake.row_changes(self._table, self._done), self._request.source)
        return lake.commit_stages([self._stage], info, keyed=keyed, job_ids=self.job_ids)

    def has_files(self, results: Sequence[WriteResult]) -> bool:
        """Whether the snapshot may name a file of the job: a delete file, too."""
        return super().has_files(results) or bool(self._delete_files())

    def _delete_files(self) -> list[AddDeletes]:
        from airflow_provider_ducklake.transaction.changes import AddDeletes  # noqa: PLC0415 - heavy

        changes = () if self._stage is None else self._stage.changes
        return [change for change in changes if isinstance(change, AddDeletes)]

    def summary(self, results: Sequence[WriteResult], committed: CommittedSnapshot | None) -> dict[str, Any]:
        """Return the numbers of the change."""
        files = [file for result in results for file in result.data_files]
        done = self._done
        summary = {
            "table": str(self._table.name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "read_snapshot_id": int(self._table.snapshot.id),
            "rows_deleted": done.rows_deleted if done is not None else 0,
            "rows_updated": done.updated.rows_written if done is not None else 0,
            "rows_inserted": done.inserted.rows_written if done is not None else 0,
            "files_added": len(files),
            "bytes_added": sum(file.file_size_bytes for file in files),
            "delete_files_added": sum(len(change.files) for change in self._delete_files()),
            "already_committed": False,
        }
        if committed is None:
            self.log.info("No row is hit: %s is as before, no snapshot was made.", summary["table"])
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows deleted, %d updated, %d inserted; %d data files, "
                "%d delete files",
                *(summary[key] for key in ("snapshot_id", "table", *_ROWS)),
                *(summary[key] for key in ("files_added", "delete_files_added")),
            )
        return summary

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:  # noqa: ARG002
        """Return what is known of a commit that had been made before: its snapshot."""
        unknown = ("read_snapshot_id", *_ROWS, "files_added", "bytes_added", "delete_files_added")
        return {
            "table": str(QualifiedName.of(self.table)),
            "snapshot_id": int(records[0].snapshot_id),
            **dict.fromkeys(unknown),
            "already_committed": True,
        }


_ROWS = ("rows_deleted", "rows_updated", "rows_inserted")


def plan_target(
    lake: Lake,
    table: str | tuple[str, str],
    condition: str | None = None,
    *,
    alias: str = TARGET_ALIAS,
    others: Collection[str] = (),
    stats_of: str = "",
) -> ScanPlan:
    """Return all columns of the rows for which a condition may hold, as the newest snapshot has them.

    The files have the statistics of the columns that the text ``stats_of`` names.

    Raises:
        TableNotFoundError: there is no such table.
    """
    from airflow_provider_ducklake.sql.spark.filters import readable_filter  # noqa: PLC0415 - heavy

    found = lake.table_snapshot(table)
    where = None
    if condition is not None:
        where = readable_filter(condition, found.schema, str(found.name), alias=alias, others=others)
    names = named_columns([stats_of], [column.name for column in found.schema.columns if not column.children])
    return lake.scan(table, found.snapshot.id, where=where, stats_of=names)


def with_rows_read(stage: Stage, source: object) -> Stage:
    """Return a stage that conflicts with rows that came or went meanwhile, where the source read the target.

    Which rows are hit, and what becomes of them, depends on all rows of the target then.
    """
    if not isinstance(source, RowChangeSource) or not isinstance(source.source, LakeSource):
        return stage
    from airflow_provider_ducklake.transaction.changes import ReadRows  # noqa: PLC0415 - heavy

    target = source.target.table
    read = {one.table.table_id for one in source.source.tables.values()}
    if target.table_id not in read:
        return stage
    return replace(stage, changes=(ReadRows(target.table_id, target.name), *stage.changes))


def check_columns(plan: ScanPlan, paths: Iterable[str]) -> None:
    """Look for columns before a job does, which takes longer; of a field only its column is looked for.

    Raises:
        ColumnNotFoundError: the table has no such column.
    """
    for path in paths:
        plan.table.schema.find(split_parts(path)[0], str(plan.table.name))


def check_values(values: object, name: str) -> Mapping[str, str]:
    """Return expressions by the columns that they are for.

    Raises:
        InvalidInputError: something else.
    """
    is_mapping = hasattr(values, "items") and bool(values)
    if not is_mapping or not all(isinstance(one, str) for pair in values.items() for one in pair):  # type: ignore[attr-defined]  # asked for above
        raise InvalidInputError(
            f'{name} is {values!r}; give {{"column": "expression"}}, a text in Spark SQL for each column.'
        )
    return dict(values.items())  # type: ignore[attr-defined]
