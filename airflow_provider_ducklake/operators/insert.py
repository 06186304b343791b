"""Insert rows into a lake table with Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import (
    InvalidInputError,
    NotFoundError,
    TableNotFoundError,
    TransactionConflictError,
)
from airflow_provider_ducklake.hooks.jdbc_source import refuse_secrets
from airflow_provider_ducklake.operators.base import is_template
from airflow_provider_ducklake.operators.insert_modes import InsertChoice, parse_word
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.planning.writing.write import (
    InsertMode,
    NewTable,
    RowOrder,
    SchemaEvolution,
    append_to_existing,
    create_and_append,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.spark.job import job_io
from airflow_provider_ducklake.spark.job.request import (
    JobRequest,
    OverwriteSource,
    found_rows,
    job_directory,
    source_of,
)
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.planning.writing.row_changes import FoundRows
    from airflow_provider_ducklake.planning.writing.write import WritePlan, WriteResult
    from airflow_provider_ducklake.spark.job.request import GivenSource
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.ids import SnapshotId
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot
    from airflow_provider_ducklake.transaction.changes import Change


class DuckLakeSparkInsertOperator(DuckLakeSparkOperator):
    """Insert the rows of a source into a table, or create the table from them, as one snapshot.

    Exactly one of ``source``, ``sql`` and ``transform`` says where the rows come from. Columns are matched by
    name; what is missing, too many or of another type is listed in one error before anything is written. No
    rows: no file and no snapshot (a table to be created appears, empty; one to be overwritten gets empty).

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``. (templated)
    :param source: a path (its suffix says the format; Parquet without one), or
        ``{"format": "csv", "path": "…", "options": {…}}`` with format parquet, csv, json, orc or jdbc. A jdbc
        source names an Airflow connection as ``conn_id``. (templated)
    :param sql: a Spark SQL query that sees each of ``sources`` as a view of that name. (templated, also from
        a ``.sql`` file)
    :param transform: ``"module:function"``; called as ``f(spark, sources)`` with a ``dict`` of DataFrames, it
        returns the rows. Its module comes along in ``py_files``. (templated)
    :param sources: what ``sql`` or ``transform`` work on: ``{"name": path or {…}}``. (templated)
    :param create_table: create the table where it does not exist, with the rows' columns; both appear in one
        snapshot.
    :param partition_by: partitioning of a table to be created: ``["region", "year(day)", "bucket(16, id)"]``;
        one that exists keeps its own. (templated)
    :param mode: ``append``; ``overwrite``: in place of all rows; ``overwrite_partitions``: in place of the
        rows of those partitions that the new rows are in. Where somebody else changed its rows meanwhile,
        overwriting is a conflict, and the retry plans again. (templated)
    :param overwrite_where: in place of the rows for which a condition such as ``"day = '2026-01-31'"`` is
        true; the new rows have to satisfy it. (templated)
    :param schema_evolution: ``strict``; ``add_columns``: columns and fields that the table lacks are added,
        in the same snapshot, and those that the rows lack get their default; ``add_and_widen``: types become
        wider, too, where the rows' do not fit. (templated)
    :param zorder_by: up to eight columns by which rows that are near each other in all of them come into the
        same files, instead of by the table's sort keys; the job reads the source three times. (templated)
    :param engine: ``auto``, ``native`` (Spark's Parquet writer) or ``arrow`` (for lists, maps, uuids, …).
    :return: ``{"table": "sales.orders", "snapshot_id": 43, "rows_added": 3, "files_added": 1,
        "bytes_added": 700, "already_committed": False}``; ``snapshot_id`` is None where nothing was
        committed. Where an earlier try had committed it is that try's, with files and bytes None. With
        ``stage_only`` another dict, see ``DuckLakeSparkOperator``.
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
        *DuckLakeSparkOperator.template_fields,
    )
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
        mode: str = InsertMode.APPEND.value,
        overwrite_where: str | None = None,
        schema_evolution: str = SchemaEvolution.STRICT.value,
        zorder_by: str | Sequence[str] = (),
        engine: str = "auto",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        if sum(argument is not None for argument in (source, sql, transform)) != 1:
            raise InvalidInputError("Give exactly one of source, sql and transform.")
        if partition_by and not create_table:
            raise InvalidInputError(
                "partition_by is for a table to be created: give create_table=True with it."
            )
        refuse_secrets(source, sources)
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
        self.engine = engine
        if not any(is_template(word) for word in (mode, schema_evolution)):
            self._choice()
        self._target: TableSnapshot | NewTable | None = None
        self._finding: JobRequest | None = None
        self._found: FoundRows | None = None

    def _choice(self) -> InsertChoice:
        choice = InsertChoice(
            parse_word("mode", self.mode, InsertMode),
            self.overwrite_where,
            parse_word("schema_evolution", self.schema_evolution, SchemaEvolution),
            (self.zorder_by,) if isinstance(self.zorder_by, str) else tuple(self.zorder_by),
        )
        choice.check(stage_only=self.stage_only)
        return choice

    def begin(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> None:
        """Look at what the task has committed before; overwriting replaces rows by what they are."""
        if not self._choice().replaces:
            super().begin(lake, identity, keyed)

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest:
        """Look at the table and say where the job is to write."""
        from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

        job_id = str(uuid7())
        self._target = self._find(lake)
        directory = job_directory(self._target.root, job_id)
        if isinstance(self._target, NewTable):
            expressions = [self.partition_by] if isinstance(self.partition_by, str) else self.partition_by
            plan = plan_create(self._target, directory, expressions)
            plan = replace(plan, row_order=RowOrder(zorder_by=self._choice().zorder_by))
        else:
            plan = self._choice().plan(lake, self._target, directory)
            replaced = self._choice().to_be_found(lake, self._target)
            if replaced is not None:
                return self._overwrite(job_id, OverwriteSource(self._source(passwords), replaced), plan)
        return JobRequest(job_id, self._source(passwords), (plan,), engine=self.engine)

    def _overwrite(self, job_id: str, source: OverwriteSource, plan: WritePlan) -> JobRequest:
        """Have the job find the rows that are to be replaced, too."""
        target = source.replaced.target
        self.log.info(
            "The job looks for the rows of %s to be replaced in %d data files, %d bytes",
            *(plan.table, len(target.files), sum(file.file_size_bytes for file in target.files)),
        )
        plans = (plan_write(target.table, f"{plan.directory}updated/"), plan)
        self._finding = JobRequest(job_id, source, plans, verb="overwrite", engine=self.engine)
        return self._finding

    def _find(self, lake: Lake) -> TableSnapshot | NewTable:
        try:
            return lake.table_snapshot(self.table)
        except TableNotFoundError:
            if not self.create_table:
                raise
        return lake.new_table(QualifiedName.of(self.table))

    def _source(self, passwords: JdbcPasswords) -> GivenSource:
        source = None if self.source is None else passwords.resolve(self.source)
        sources = {name: passwords.resolve(item) for name, item in (self.sources or {}).items()}
        return source_of(source, self.sql, self.transform, sources)

    def target(self) -> TableSnapshot | NewTable:
        """Return the table as it was planned."""
        assert self._target is not None
        return self._target

    def commit(
        self, lake: Lake, results: Sequence[WriteResult], info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        """Commit the job's files, with the table itself where it is new, in place of rows to be replaced."""
        *_, result = results
        if self._finding is not None:
            self._found = found_rows(
                self._finding, job_io.read_row_changes(self._finding, lake.storage_options)
            )
        target = self.target()
        if isinstance(target, NewTable):
            return self._create(lake, target, result, info, keyed)
        if keyed.seen.replaced and not self._choice().replaces:
            target = _as_it_is_now(lake, target)
        return self._append(lake, target, result, info, keyed)

    def _create(
        self, lake: Lake, target: NewTable, result: WriteResult, info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        from airflow_provider_ducklake.catalog.committing.planned import Stage  # noqa: PLC0415 - heavy

        base = target.snapshot.id
        changes = [*_replaced(lake, keyed, base), *create_and_append(target, result)]
        try:
            return lake.commit_stages([Stage(base, changes)], info, keyed=keyed, job_ids=self.job_ids)
        except TransactionConflictError:
            if self._choice().replaces:
                raise
            try:
                existing = lake.table_snapshot(target.name)
            except TableNotFoundError:
                pass
            else:  # the table came to be meanwhile
                base = existing.snapshot.id
                changes = [*_replaced(lake, keyed, base), *append_to_existing(existing, result)]
                return lake.commit_stages([Stage(base, changes)], info, keyed=keyed, job_ids=self.job_ids)
            raise

    def _append(
        self, lake: Lake, target: TableSnapshot, result: WriteResult, info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        from airflow_provider_ducklake.catalog.committing.planned import Stage  # noqa: PLC0415 - heavy
        from airflow_provider_ducklake.catalog.drafting.row_changes import unused_files  # noqa: PLC0415 - heavy

        base = target.snapshot.id
        choice = self._choice()
        replaced = () if choice.replaces else _replaced(lake, keyed, base)
        changes = [*replaced, *choice.changes(lake, target, result, self._found)]
        unused = unused_files(changes, () if self._found is None else self._found.deletes)
        return lake.commit_stages([Stage(base, changes, unused)], info, keyed=keyed, job_ids=self.job_ids)

    def has_files(self, results: Sequence[WriteResult]) -> bool:
        """Whether the snapshot may name a file of the job: a delete file, too."""
        return super().has_files(results) or (self._found is not None and bool(self._found.deletes))

    def summary(self, results: Sequence[WriteResult], committed: CommittedSnapshot | None) -> dict[str, Any]:
        """Return the numbers of the insert."""
        *_, result = results
        name = self.target().name
        summary = {
            "table": str(name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "rows_added": result.rows_written,
            "files_added": len(result.data_files),
            "bytes_added": sum(file.file_size_bytes for file in result.data_files),
            "already_committed": False,
        }
        if committed is None:
            self.log.info("The source has no rows: %s is as before, no snapshot was made.", name)
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows, %d data files, %d bytes",
                *(
                    summary[key]
                    for key in ("snapshot_id", "table", "rows_added", "files_added", "bytes_added")
                ),
            )
        return summary

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:
        """Return the numbers that the catalog kept."""
        ids = {record.table_id for record in records}
        names = [str(row.qualified) for row in lake.table_rows() if row.id in ids]
        return {
            "table": names[0] if names else str(QualifiedName.of(self.table)),
            "snapshot_id": int(records[0].snapshot_id),
            "rows_added": sum(record.row_count for record in records),
            "files_added": None,
            "bytes_added": None,
            "already_committed": True,
        }


def _replaced(lake: Lake, keyed: KeyedCommit, base: SnapshotId) -> tuple[Change, ...]:
    return lake.replaced_rows(keyed.seen, base) if keyed.seen.replaced else ()


def _as_it_is_now(lake: Lake, table: TableSnapshot) -> TableSnapshot:
    """Read the table again: rows to be replaced may have moved to other files while the job ran.

    A table that is another one by now stays as it was planned with, and becomes a conflict.
    """
    try:
        newest = lake.table_snapshot(table.name)
    except NotFoundError:
        return table
    return newest if newest.table_id == table.table_id else table
