"""What a Spark job of ours is asked for, done in this process by DuckDB and Arrow: many jobs in little time.

Conditions and values are SQL that both dialects read alike.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.format.files import DataFile
from airflow_provider_ducklake.lake.format.partitioning import parse_partition_by
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import can_promote
from airflow_provider_ducklake.lake.planning.reading import predicates as terms
from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan, ScanPlan
from airflow_provider_ducklake.lake.planning.writing.evolution import evolved
from airflow_provider_ducklake.lake.planning.writing.write import (
    NewDeletes,
    RowChanges,
    WritePlan,
    WriteResult,
)
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import (
    Action,
    Clause,
    DatasetSource,
    JobRequest,
    LakeSource,
    RowChangeSource,
)
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import (
    arrow_type,
    check_and_cast,
    fields_of_arrow,
)
from airflow_provider_ducklake.lake.storage.arrow.rows import split_by_partition
from airflow_provider_ducklake.lake.storage.deletes.deletes import write_delete_file
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.table_reader import (
    ROW_ID,
    read_changes,
    read_rows,
    visible_rows,
)
from airflow_provider_ducklake.lake.writes.verb import Results


class ArrowSubmitter:
    """Runs jobs in this process."""

    def ready(self) -> None:
        pass

    def resolve(self, source: Any) -> Any:
        return source

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        pass

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:  # noqa: ARG002
        return Results.of(done(request))

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        pass


class DocumentingSubmitter(ArrowSubmitter):
    """Leaves the documents of a job as well, which another task may need."""

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        results = super().run(request, storage_options)
        job_io.write_results(request, results.of_plans)
        return results


def done(request: JobRequest) -> RowChanges | tuple[WriteResult, ...]:
    """Write the files that a job would write, and return what it would say of them."""
    match request.source:
        case RowChangeSource() as source:
            return _RowChangeJob(request, source).changes()
        case LakeSource() as source:
            rows = rows_of_sql(source, len(request.plans))
        case DatasetSource(dataset):
            rows = [pq.read_table(dataset.path)]
        case other:
            raise AssertionError(other)
    return tuple(write(plan, one) for plan, one in zip(request.plans, rows, strict=True))


def rows_of_sql(source: LakeSource, count: int) -> list[pa.Table]:
    """Return the rows for each plan of a SQL job."""
    connection = duckdb.connect()
    for name, plan in source.tables.items():
        if isinstance(plan, ChangeFeedPlan):
            table = read_changes(plan, open_filesystem)
        else:
            table = read_rows(plan, open_filesystem)
        if name in source.as_inserts:
            extra = {"snapshot_id": plan.table.snapshot.id, "rowid": -1, "change_type": "insert"}
            for column, value in reversed(extra.items()):
                table = table.add_column(0, column, pa.array([value] * table.num_rows))
        connection.register(name, table)
    rows: list[pa.Table] = [pa.table({})] * count
    for step in source.steps:
        found = connection.sql(step.query.replace("`", '"')).to_arrow_table()
        if step.view is not None:
            connection.register(step.view, found)
        if step.plan is not None:
            rows[step.plan] = found if step.columns is None else found.rename_columns(list(step.columns))
    return rows


def write(plan: WritePlan, rows: pa.Table, *, row_ids: bool = False) -> WriteResult:
    """Write rows as data files, a partition's apart from the others'."""
    if plan.evolution is not None:
        incoming = fields_of_arrow(rows.schema)
        schema = evolved(plan, incoming, lambda given, column: given == column or can_promote(given, column))
        rows = _filled(rows, schema)
    else:
        schema = plan.schema or new_columns(fields_of_arrow(rows.schema))
    fields = plan.partition_fields or parse_partition_by(plan.partition_by, schema, plan.table)
    written = TableSchema((*schema.columns, ROW_ID)) if row_ids else schema
    files: list[DataFile] = []
    for values, part in split_by_partition(check_and_cast(rows, written, plan.table), written, fields):
        with RollingWriter(
            written, lambda: f"{plan.directory}{uuid.uuid4().hex}.parquet", plan.settings
        ) as writer:
            writer.write(part)
        files += [replace(_without_row_ids(one), partition_values=values) for one in writer.files]
    return WriteResult(schema, fields, tuple(files), rows.num_rows, {})


def _without_row_ids(file: DataFile) -> DataFile:
    stats = {one: stats for one, stats in file.column_stats.items() if one != ROW_ID.id}
    return replace(file, column_stats=stats)


def _filled(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows with the columns that they lack: their default, or NULL."""
    for column in schema.columns:
        if column.name not in rows.column_names:
            value = None if column.default.value in (None, "NULL") else int(column.default.value)
            rows = rows.append_column(column.name, pa.array([value] * rows.num_rows, arrow_type(column.type)))
    return rows


class _RowChangeJob:
    """Finds rows by DuckDB; the clauses of a row are tried in their order, as in SQL's ``MERGE``."""

    def __init__(self, request: JobRequest, source: RowChangeSource) -> None:
        self.request, self.source = request, source
        self.on = None if source.on is None else source.on.replace("`", '"')
        self.connection = duckdb.connect()
        self.connection.register(source.target_alias, _numbered(source.target))
        if source.source is not None:
            self.connection.register(source.source_alias, self._given())

    def _given(self) -> pa.Table:
        match self.source.source:
            case LakeSource() as source:
                return rows_of_sql(source, 1)[0]
            case DatasetSource(dataset):
                return pq.read_table(dataset.path)
            case other:
                raise AssertionError(other)

    def changes(self) -> RowChanges:
        """Write what the change of the rows found takes."""
        gone = pa.concat_tables(
            self._rows(_PLACE, kind, (Action.UPDATE, Action.DELETE)) for kind in ("matched", "by_source")
        )
        updated = pa.concat_tables(
            [self._new_rows(kind, clause) for kind, clause in self._numbered_clauses(Action.UPDATE)]
            or [self._schema(row_ids=True).empty_table()]
        )
        inserted = pa.concat_tables(
            [self._new_rows(kind, clause) for kind, clause in self._numbered_clauses(Action.INSERT)]
            or [self._schema().empty_table()]
        )
        plans = self.request.plans
        return RowChanges(
            tuple(self._delete_files(gone)),
            tuple(sorted(row for file, row in _pairs(gone, "row_id") if file is None)),
            write(plans[0], updated, row_ids=True),
            write(plans[1], inserted),
            self._matching(),
        )

    def _matching(self) -> terms.Predicate:
        """Return the bounds of the source's ids, by which merges match."""
        if self.source.source is None:
            return terms.ALWAYS
        ends = self.connection.sql(f"SELECT min(id), max(id) FROM {self.source.source_alias}").fetchone()
        assert ends is not None
        column = self.source.target.table.schema.find("id").id
        low, high = (
            terms.Comparison(column, terms.Operator.AT_LEAST, ends[0]),
            terms.Comparison(column, terms.Operator.AT_MOST, ends[1]),
        )
        return terms.NEVER if None in ends else terms.AllOf((low, high))

    def _schema(self, *, row_ids: bool = False) -> pa.Schema:
        columns = self.source.target.table.schema.columns
        return pa.schema(
            [(one.name, arrow_type(one.type)) for one in (*columns, *([ROW_ID] if row_ids else []))]
        )

    def _numbered_clauses(self, action: Action) -> Iterator[tuple[str, int]]:
        for kind, clauses in self._clauses().items():
            yield from ((kind, place) for place, one in enumerate(clauses) if one.action is action)

    def _clauses(self) -> dict[str, tuple[Clause, ...]]:
        source = self.source
        return {
            "matched": source.matched,
            "not_matched": source.not_matched,
            "by_source": source.not_matched_by_source,
        }

    def _from(self, kind: str) -> str:
        target, source = self.source.target_alias, self.source.source_alias
        if self.source.source is None:
            return (
                f"FROM {target}" if kind == "by_source" else f"FROM {target}, (SELECT 1) {source} WHERE false"
            )
        if kind == "matched":
            return f"FROM {target} JOIN {source} ON {self.on}"
        this, other = (source, target) if kind == "not_matched" else (target, source)
        return f"FROM {this} WHERE NOT EXISTS (SELECT 1 FROM {other} WHERE {self.on})"

    def _rows(
        self, columns: str, kind: str, actions: tuple[Action, ...], clause: int | None = None
    ) -> pa.Table:
        clauses = self._clauses()[kind]
        wanted = [
            str(place)
            for place, one in enumerate(clauses)
            if one.action in actions and clause in (None, place)
        ]
        first = " ".join(f"WHEN {one.condition or 'true'} THEN {place}" for place, one in enumerate(clauses))
        chosen = f"CASE {first} END" if first else "NULL"
        return self.connection.sql(
            f"SELECT * EXCLUDE clause FROM (SELECT {columns}, {chosen} AS clause {self._from(kind)}) "
            f"WHERE clause IN ({', '.join(wanted) or 'NULL'})"
        ).to_arrow_table()

    def _new_rows(self, kind: str, clause: int) -> pa.Table:
        one, source = self._clauses()[kind][clause], self.source
        is_insert = one.action is Action.INSERT
        values = []
        for column in source.target.table.schema.columns:
            kept = "NULL" if is_insert else f'{source.target_alias}."{column.name}"'
            if is_insert and column.default.value not in (None, "NULL"):
                kept = str(column.default.value)
            value = kept if one.values is not None else f'{source.source_alias}."{column.name}"'
            values.append(f'{(one.values or {}).get(column.name, value)} AS "{column.name}"')
        self._check_names(one)
        if not is_insert:
            values.append(f'{source.target_alias}._row_id AS "{ROW_ID.name}"')
        rows = self._rows(", ".join(values), kind, (one.action,), clause)
        return rows.cast(self._schema(row_ids=not is_insert))

    def _check_names(self, clause: Clause) -> None:
        for name in clause.values or {}:
            self.source.target.table.schema.find(name, str(self.source.target.table.name))

    def _delete_files(self, gone: pa.Table) -> Iterator[NewDeletes]:
        found: dict[int, list[int]] = {}
        for file_id, position in _pairs(gone, "pos"):
            if file_id is not None:
                found.setdefault(file_id, []).append(position)
        for file in self.source.target.files:
            if file.id in found:
                places = pa.table({"pos": pa.array(sorted(found[file.id]), pa.int64())})
                path = f"{self.request.directory}deletes/{file.id}-delete.parquet"
                written = write_delete_file(open_filesystem(path), file.path, places)
                yield NewDeletes(
                    file.id,
                    path,
                    places.num_rows,
                    written.file_size_bytes,
                    written.footer_size,
                    written.encryption_key,
                )


_PLACE = "_file AS file, _pos AS pos, _row_id AS row_id"


def _pairs(rows: pa.Table, column: str) -> list[tuple[int | None, int]]:
    return list(zip(rows["file"].to_pylist(), rows[column].to_pylist(), strict=True))


def _numbered(plan: ScanPlan) -> pa.Table:
    """Return the live rows of a plan's files and of the catalog, with the places where they lie."""
    parts = []
    for file in plan.files:
        rows = visible_rows(plan, file, open_filesystem, numbered=True)
        rows = rows.rename_columns([*rows.column_names[:-2], "_row_id", "_pos"])
        parts.append(rows.append_column("_file", pa.array([int(file.id)] * rows.num_rows, pa.int64())))
    inlined = inlined_in_schema(plan.inlined_rows, plan.table.schema)
    row_ids = [row_id for part in plan.inlined_rows for row_id in part.row_ids]
    inlined = inlined.append_column("_row_id", pa.array(row_ids, pa.int64()))
    for name in ("_pos", "_file"):
        inlined = inlined.append_column(name, pa.nulls(len(row_ids), pa.int64()))
    return pa.concat_tables([*parts, inlined])
