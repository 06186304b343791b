"""Insert rows into a lake table with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError, TableNotFoundError, TransactionConflictError
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.planning.write import (
    NewTable,
    append_to_existing,
    create_and_append,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.spark.job_request import JobRequest, job_directory, source_of
from airflow_provider_ducklake.spec.identifiers import QualifiedName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.planning.write import WriteResult
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot


class DuckLakeSparkInsertOperator(DuckLakeSparkOperator):
    """Append the rows of a source to a table, or create the table from them, as one snapshot.

    Exactly one of ``source``, ``sql`` and ``transform`` says where the rows come from. Columns are matched by
    name; what is missing, too many or of another type is listed in one error before anything is written. No
    rows: no file and no snapshot (a table to be created appears, empty).

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
    :param engine: ``auto``, ``native`` (Spark's Parquet writer) or ``arrow`` (for lists, maps, uuids, …).
    :return: ``{"table": "sales.orders", "snapshot_id": 43, "rows_added": 3, "files_added": 1,
        "bytes_added": 700}``; ``snapshot_id`` is None where nothing was committed.
    """

    template_fields: Sequence[str] = (
        *DuckLakeSparkOperator.template_fields,
        "table",
        "source",
        "sql",
        "transform",
        "sources",
        "partition_by",
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
        self.table = table
        self.source = source
        self.sql = sql
        self.transform = transform
        self.sources = sources
        self.create_table = create_table
        self.partition_by = partition_by
        self.engine = engine
        self._target: TableSnapshot | NewTable | None = None

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest:
        """Look at the table and say where the job is to write."""
        from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

        job_id = str(uuid7())
        self._target = self._find(lake)
        directory = job_directory(self._target.root, job_id)
        if isinstance(self._target, NewTable):
            expressions = [self.partition_by] if isinstance(self.partition_by, str) else self.partition_by
            plan = plan_create(self._target, directory, expressions)
        else:
            plan = plan_write(self._target, directory)
        return JobRequest(job_id, self._source(passwords), plan, engine=self.engine)

    def _find(self, lake: Lake) -> TableSnapshot | NewTable:
        try:
            return lake.table_snapshot(self.table)
        except TableNotFoundError:
            if not self.create_table:
                raise
        return lake.new_table(QualifiedName.of(self.table))

    def _source(self, passwords: JdbcPasswords) -> Any:  # noqa: ANN401
        source = None if self.source is None else passwords.resolve(self.source)
        sources = {name: passwords.resolve(item) for name, item in (self.sources or {}).items()}
        return source_of(source, self.sql, self.transform, sources)

    def commit(self, lake: Lake, result: WriteResult, info: CommitInfo) -> dict[str, Any]:
        """Commit the job's files, with the table itself where it is new."""
        assert self._target is not None
        committed = self._land(lake, self._target, result, info)
        summary = {
            "table": str(self._target.name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "rows_added": result.rows_written,
            "files_added": len(result.data_files),
            "bytes_added": sum(file.file_size_bytes for file in result.data_files),
        }
        if committed is None:
            self.log.info("The source has no rows: %s is as before, no snapshot was made.", self._target.name)
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows, %d data files, %d bytes",
                *(
                    summary[key]
                    for key in ("snapshot_id", "table", "rows_added", "files_added", "bytes_added")
                ),
            )
        return summary

    def _land(
        self, lake: Lake, target: TableSnapshot | NewTable, result: WriteResult, info: CommitInfo
    ) -> CommittedSnapshot | None:
        if not isinstance(target, NewTable):
            return lake.commit(target.snapshot.id, append_to_existing(target, result), info)
        try:
            return lake.commit(target.snapshot.id, create_and_append(target, result), info)
        except TransactionConflictError:
            try:
                existing = lake.table_snapshot(target.name)
            except TableNotFoundError:
                pass
            else:  # the table came to be meanwhile
                return lake.commit(existing.snapshot.id, append_to_existing(existing, result), info)
            raise
