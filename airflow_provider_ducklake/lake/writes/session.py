"""The operators' verbs in an existing SparkSession: in notebooks, scripts and ``@task.pyspark``."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from ..errors import InvalidInputError
from ..format.arguments import methods_take_arguments
from ..format.names.identifiers import DEFAULT_SCHEMA, TableName
from ..format.snapshots import CommitInfo, CommitKey, CommittedSnapshot, Consumer, OnClear
from ..spark.job.request import JobRequest, check_view_names
from .arguments import (
    SOURCE_ALIAS,
    TARGET_ALIAS,
    Clauses,
    GivenRows,
    InsertChoice,
    check_aliases,
    check_has_clause,
    check_partition_by,
    clauses_of,
    parse_flag,
    parse_min_rows,
)
from .compaction import Compact, compact
from .insert import Insert
from .row_changes import Delete, Merge, Update
from .run import run
from .sql import Sql
from .verb import Commit, Results, Summary, UserSource, Verb

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..planning.reading.scan import ScanPlan
    from ..planning.upkeep.compaction import FlushResult
    from ..spark.jobs.here import DataFrame, SparkSession
    from .job_life import Submitter

Given: TypeAlias = "DataFrame | str | Mapping[str, Any]"
Frames: TypeAlias = Mapping[str, "DataFrame"]

_PLANS_KEPT = 16  # of reads, for the errors of their DataFrames
_GIVEN = f"_ducklake_{uuid4().hex}_given"  # no view of a user has this name


@dataclass(frozen=True)
class SessionSubmitter:
    """Run jobs in this process, in an existing session: no second JVM, no zip, no files in between.

    ``frames`` are DataFrames of the session that a job's queries see as views.
    """

    spark: SparkSession
    frames: Frames = field(default_factory=dict)

    def ready(self) -> None:
        """Do nothing: the session runs; see ``Submitter``."""

    def resolve(self, source: UserSource) -> UserSource:
        """Refuse a source that names an Airflow connection; see ``Submitter``."""
        if isinstance(source, Mapping) and "conn_id" in source:
            raise InvalidInputError(
                f"conn_id={source['conn_id']!r}: connections belong to Airflow. Read the rows with "
                "spark.read, and give the DataFrame."
            )
        return source

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Do nothing: Spark itself says at once what is wrong; see ``Submitter``."""

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Run the job's own code; see ``Submitter``."""
        from ..spark.job.errors import typed
        from ..spark.jobs.here import run_here
        from ..spark.sessions.kind import kind_of

        try:
            with kind_of(self.spark).pinned(self.frames) as frames:
                return Results.of(run_here(self.spark, request, storage_options, frames))
        except Exception as error:  # of a DataFrame that Spark cannot analyse
            raise typed(error) from error

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Do nothing: there are no documents; see ``Submitter``."""


@methods_take_arguments
class LakeSession:
    """A lake in your SparkSession.

    The methods take the operators' arguments by the same names, and raise the same errors. Each write makes
    one snapshot and returns it, or None if there was nothing to write. With a ``commit_key``, a string of
    your choice, a write is made once however often it is run: later runs return the first one's snapshot.
    Writes run in a copy of the session: its settings, temporary views and caches stay as they are.
    """

    def __init__(self, spark: SparkSession, lake: Lake, *, author: str | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._author = author
        self._read: deque[ScanPlan] = deque(maxlen=_PLANS_KEPT)

    def read(
        self,
        table: TableName,
        *,
        at: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
    ) -> DataFrame:
        """Return a table's rows at a snapshot; see ``Lake.read_spark``."""
        from ..spark.read import read_table

        plan = self._lake.scan(table, at=at, columns=columns, filter=filter)
        self._read.append(plan)
        with self.translated():
            return read_table(self._spark, plan, storage_options=self._lake.opened.storage_options)

    def translated(self) -> AbstractContextManager[None]:
        """Raise this package's errors for those of Spark in the context, over what ``read`` returned.

        Raises:
            StorageError: a file of a table is missing or damaged; names file, table and snapshot.
            DuckLakeError: the error that a task of a read, a write or a source raised.
            SparkJobError: anything else that Spark raised.
        """
        from ..spark.read import reading

        return reading(self._read)

    def changes(self, table: TableName, start: int | datetime, end: int | datetime) -> DataFrame:
        """Return the changes of a table's rows between two snapshots; see ``Lake.changes``.

        Columns: ``snapshot_id``, ``rowid``, ``change_type``, then the table's columns at the end snapshot;
        rows are not ordered.
        """
        from ..spark.read import read_changes

        plan = self._lake.changes(table, start, end).plan
        with self.translated():
            return read_changes(self._spark, plan, storage_options=self._lake.opened.storage_options)

    def insert(  # noqa: PLR0913 - the operator's, by name
        self,
        table: TableName,
        source: Given | None = None,
        *,
        sql: str | None = None,
        sources: Mapping[str, Given] | None = None,
        create_table: bool = False,
        partition_by: str | Sequence[str] = (),
        mode: str = "append",
        overwrite_where: str | None = None,
        schema_evolution: str = "strict",
        zorder_by: str | Sequence[str] = (),
        if_empty: str = "replace",
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Insert the rows of a DataFrame, a path or a query; see ``DuckLakeSparkInsertOperator``."""
        check_partition_by(partition_by, create_table=create_table)
        choice = InsertChoice.of(mode, overwrite_where, schema_evolution, zorder_by, if_empty)
        rows, frames = self._given(source, sql, sources)
        verb = Insert(table, rows, choice, create_table, partition_by)
        return self._run(verb, message, commit_key, frames)

    def delete(
        self,
        table: TableName,
        where: str,
        *,
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Delete the rows for which a condition is true; see ``DuckLakeSparkDeleteOperator``."""
        return self._run(Delete(table, where), message, commit_key)

    def update(
        self,
        table: TableName,
        set: Mapping[str, str],  # noqa: A002 - SQL's own word
        where: str,
        *,
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Change columns of rows; see ``DuckLakeSparkUpdateOperator``."""
        return self._run(Update(table, set, where), message, commit_key)

    def merge(  # noqa: PLR0913 - the operator's, by name
        self,
        table: TableName,
        source: Given | None = None,
        on: str | Sequence[str] = (),
        *,
        sql: str | None = None,
        sources: Mapping[str, Given] | None = None,
        source_table: TableName | None = None,
        when_matched: Clauses = (),
        when_not_matched: Clauses = (),
        when_not_matched_by_source: Clauses = (),
        update_all: bool = False,
        insert_all: bool = False,
        target_alias: str = TARGET_ALIAS,
        source_alias: str = SOURCE_ALIAS,
        trust_views: bool = False,
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Update, delete and insert rows from a source; see ``DuckLakeSparkMergeOperator``."""
        matched = clauses_of(when_matched, "update", all_columns=update_all)
        not_matched = clauses_of(when_not_matched, "insert", all_columns=insert_all)
        check_has_clause(matched, not_matched, when_not_matched_by_source)
        check_aliases(target_alias, source_alias)
        rows, frames = self._given(source, sql, sources, source_table=source_table)
        verb = Merge(
            table,
            on,
            rows,
            source_table,
            matched,
            not_matched,
            when_not_matched_by_source,
            target_alias,
            source_alias,
            trust_views,
        )
        return self._run(verb, message, commit_key, frames)

    def sql(  # noqa: PLR0913 - the operator's, by name
        self,
        sql: str | Sequence[str],
        *,
        sources: Mapping[str, Given] | None = None,
        default_schema: str = DEFAULT_SCHEMA,
        at: int | datetime | str | None = None,
        incremental: bool | str | Sequence[str] = False,
        consumer: str | None = None,
        full_refresh: bool | str = False,
        trust_views: bool = False,
        if_empty: str = "replace",
        message: str | None = None,
        commit_key: str | CommitKey | None = None,
    ) -> CommittedSnapshot | None:
        """Run ``INSERT`` and ``CREATE TABLE … AS`` statements over the lake's tables, as one snapshot.

        See ``DuckLakeSparkSQLOperator``. ``incremental`` needs a ``consumer``.
        """
        if (incremental is not False) != (consumer is not None):
            raise InvalidInputError(
                "incremental and consumer are given together: say who consumes the changes."
            )
        if full_refresh is True and incremental is False:
            raise InvalidInputError("full_refresh is for incremental; give incremental, too.")
        frames, others = self._frames(sources)
        verb = Sql(
            sql=sql,
            sources=others,
            views=tuple(frames),
            default_schema=default_schema,
            at=at,
            incremental=incremental,
            consumer=None if consumer is None else Consumer(consumer),
            full_refresh=full_refresh,
            trust_views=trust_views,
            if_empty=if_empty,
        )
        key = commit_key or (None if consumer is None else CommitKey((str(uuid4()),)))
        return self._run(verb, message, key, frames)

    def merge_adjacent_files(  # noqa: PLR0913 - the operator's, by name
        self,
        table: TableName,
        *,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        target_file_size: int | str | None = None,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        max_input_files: int | str | None = None,
        max_output_files: int | str | None = None,
        older_than: datetime | str | None = None,
        commit_every: int | str | None = None,
        sort: bool = True,
        zorder_by: str | Sequence[str] = (),
        message: str | None = None,
    ) -> Summary:
        """Merge small files into large ones; see ``DuckLakeSparkMergeAdjacentFilesOperator``."""
        verb = Compact.merging(
            table,
            filter=filter,
            target_file_size=target_file_size,
            min_file_size=min_file_size,
            max_file_size=max_file_size,
            max_input_files=max_input_files,
            max_output_files=max_output_files,
            older_than=older_than,
            commit_every=commit_every,
            sort=sort,
            zorder_by=zorder_by,
        )
        return compact(verb, self._lake, self._submitter({}), self._info(message))

    def rewrite_data_files(  # noqa: PLR0913 - the operator's, by name
        self,
        table: TableName,
        *,
        delete_threshold: float | str | None = None,
        target_file_size: int | str | None = None,
        max_input_files: int | str | None = None,
        max_output_files: int | str | None = None,
        commit_every: int | str | None = None,
        sort: bool = True,
        zorder_by: str | Sequence[str] = (),
        message: str | None = None,
    ) -> Summary:
        """Rewrite files with many deleted rows; see ``DuckLakeSparkRewriteDataFilesOperator``."""
        verb = Compact.rewriting(
            table,
            delete_threshold=delete_threshold,
            target_file_size=target_file_size,
            max_input_files=max_input_files,
            max_output_files=max_output_files,
            commit_every=commit_every,
            sort=sort,
            zorder_by=zorder_by,
        )
        return compact(verb, self._lake, self._submitter({}), self._info(message))

    def flush_inlined_data(
        self,
        table: TableName | None = None,
        *,
        schema: str | None = None,
        min_rows: int | str = 0,
        dry_run: bool | str = False,
        message: str | None = None,
    ) -> list[FlushResult]:
        """Move inlined rows and deletes to Parquet files; see ``Lake.flush_inlined_data``."""
        info = self._info(message)
        return self._lake.flush_inlined_data(
            table,
            schema=schema,
            min_rows=parse_min_rows(min_rows),
            dry_run=parse_flag("dry_run", dry_run),
            message=info.message,
            author=info.author,
        )

    def _submitter(self, frames: Frames) -> Submitter:
        return SessionSubmitter(self._spark, frames)

    def _info(self, message: str | None) -> CommitInfo:
        """Build author and message of a snapshot; a lake that requires a message refuses before any work."""
        info = CommitInfo(self._author, message)
        info.check(self._lake.reads.effective_options())
        return info

    def _run(
        self,
        verb: Verb,
        message: str | None,
        commit_key: str | CommitKey | None,
        frames: Frames | None = None,
    ) -> CommittedSnapshot | None:
        key = CommitKey((commit_key,)) if isinstance(commit_key, str) else commit_key
        info = self._info(message)
        keyed = None if key is None else self._lake.writes.keyed_commit(key, OnClear.APPEND)
        return run(verb, self._lake, self._submitter(frames or {}), Commit(info, keyed)).committed

    def _given(
        self, source: Given | None, sql: str | None, sources: Mapping[str, Given] | None, **others: object
    ) -> tuple[GivenRows, Frames]:
        """Return the rows that are given, and the DataFrames among them by the views that stand for them."""
        GivenRows(source, sql, None, sources).check(**others)
        frames, datasets = self._frames(sources)
        if not _is_frame(source):
            return GivenRows(source, sql, None, datasets), frames
        if sources:
            raise InvalidInputError("sources is for sql; give a single DataFrame as source.")
        query = f"SELECT * FROM {_GIVEN}"  # noqa: S608 - a name of ours
        return GivenRows(None, query, None, datasets), {_GIVEN: self._own(source)}

    def _frames(self, sources: Mapping[str, Given] | None) -> tuple[Frames, Mapping[str, Any]]:
        """Return the DataFrames among sources, and the others."""
        given = sources or {}
        check_view_names(given)
        frames = {name: self._own(one) for name, one in given.items() if _is_frame(one)}
        return frames, {name: one for name, one in given.items() if name not in frames}

    def _own(self, df: Any) -> DataFrame:  # noqa: ANN401 - the type checker takes the result for one
        """Return the DataFrame.

        Raises:
            InvalidInputError: it belongs to another session.
        """
        from ..spark.sessions.kind import kind_of

        with self.translated():
            is_own = kind_of(self._spark).owns(df)
        if not is_own:
            raise InvalidInputError(
                "The DataFrame belongs to another SparkSession. Create it with this session's."
            )
        return df  # type: ignore[no-any-return]


def _is_frame(source: object) -> bool:
    return hasattr(source, "createOrReplaceTempView")
