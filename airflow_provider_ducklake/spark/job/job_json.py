"""JSON of job requests and results, version 2: explicit both ways, no class names, no pickles."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from airflow_provider_ducklake.errors import SparkJobError
from airflow_provider_ducklake.planning.writing.row_changes import NewDeletes
from airflow_provider_ducklake.planning.writing.staged import StagedWrite, Target
from airflow_provider_ducklake.planning.writing.write import (
    Evolution,
    NewTable,
    ParquetSettings,
    RowOrder,
    WritePlan,
    WriteResult,
)
from airflow_provider_ducklake.spark.job.kinds import integer, optional, several, text
from airflow_provider_ducklake.spark.job.request import (
    Action,
    Clause,
    CompactionSource,
    Dataset,
    DatasetSource,
    JobRequest,
    LakeSource,
    OverwriteSource,
    RowChangeSource,
    Source,
    SqlSource,
    Step,
    StreamSource,
    TransformSource,
)
from airflow_provider_ducklake.spark.job.schema_json import decode_schema, encode_schema
from airflow_provider_ducklake.spark.job.snapshot_json import decode_snapshot, encode_snapshot
from airflow_provider_ducklake.spec.ids import ColumnId, DataFileId, PartitionId, SchemaId, TableId
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.options import Options
from airflow_provider_ducklake.spec.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.spec.snapshots import TableSnapshot
from airflow_provider_ducklake.spec.sorting import SortField

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.planning.reading.change_feed import ChangeFeedPlan
    from airflow_provider_ducklake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.planning.upkeep.compaction import Compaction
    from airflow_provider_ducklake.spec.files import DataFile

FORMAT_VERSION = 2
Json: TypeAlias = dict[str, Any]


def dumps(document: Json) -> bytes:
    """Return the bytes of one document, with the format's version in it."""
    return json.dumps({"v": FORMAT_VERSION, **document}, separators=(",", ":")).encode()


def loads(data: bytes, what: str) -> Json:
    """Return the document, if it is one of ours and of a version we know.

    Raises:
        SparkJobError: it is not; names the file.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SparkJobError(f"{what} is no complete JSON document: {error}") from None
    version = document.get("v") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise SparkJobError(
            f"{what} has job format {version!r}, this release reads {FORMAT_VERSION}. "
            "Operator and job must run the same release of the provider."
        )
    assert isinstance(document, dict)
    return document


# --- plans


def encode_partition_fields(fields: tuple[PartitionField, ...]) -> list[Json]:
    """Return the keys of a partition spec in order."""
    return [{"column_id": field.column_id, "transform": str(field.transform)} for field in fields]


def decode_partition_fields(items: list[Json]) -> tuple[PartitionField, ...]:
    """Return the keys; the inverse of ``encode_partition_fields``."""
    return tuple(
        PartitionField(ColumnId(integer(item["column_id"])), Transform.parse(text(item["transform"])))
        for item in items
    )


def encode_plan(plan: WritePlan) -> Json:
    """Return a write plan as JSON."""
    settings = plan.settings
    return {
        "table": plan.table,
        "directory": plan.directory,
        "schema": None if plan.schema is None else encode_schema(plan.schema),
        "partition_fields": encode_partition_fields(plan.partition_fields),
        "partition_by": list(plan.partition_by),
        "settings": {name: getattr(settings, name) for name in ParquetSettings.__dataclass_fields__},
        "row_order": _encode_row_order(plan.row_order),
        "evolution": None if plan.evolution is None else _encode_evolution(plan.evolution),
        "where": None if plan.where is None else _encode_predicate(plan.where),
    }


def decode_plan(item: Json) -> WritePlan:
    """Return the write plan; the inverse of ``encode_plan``."""
    return WritePlan(
        table=item["table"],
        directory=item["directory"],
        schema=None if item["schema"] is None else decode_schema(item["schema"]),
        partition_fields=decode_partition_fields(item["partition_fields"]),
        partition_by=tuple(item["partition_by"]),
        settings=ParquetSettings(**item["settings"]),
        row_order=_decode_row_order(item["row_order"]),
        evolution=None if item["evolution"] is None else _decode_evolution(item["evolution"]),
        where=None if item["where"] is None else _decode_predicate(item["where"]),
    )


_SORT_FIELD = ("expression", "dialect", "direction", "null_order")


def _encode_row_order(order: RowOrder) -> Json:
    keys = [[getattr(key, name) for name in _SORT_FIELD] for key in order.sort_by]
    return {"sort_by": keys, "zorder_by": list(order.zorder_by)}


def _decode_row_order(item: Json) -> RowOrder:
    return RowOrder(tuple(SortField(*key) for key in item["sort_by"]), tuple(item["zorder_by"]))


def _encode_evolution(evolution: Evolution) -> Json:
    return {**{name: getattr(evolution, name) for name in _EVOLUTION}, "fixed": list(evolution.fixed)}


def _decode_evolution(item: Json) -> Evolution:
    return Evolution(
        **{name: item[name] for name in _EVOLUTION}, fixed=tuple(ColumnId(one) for one in item["fixed"])
    )


_EVOLUTION = ("next_column_id", "widens", "inlining")


def _encode_predicate(predicate: Predicate) -> Json:
    from airflow_provider_ducklake.spark.job import plan_json  # noqa: PLC0415 - no DAG file needs it

    return plan_json.encode_predicate(predicate)


def _decode_predicate(item: Json) -> Predicate:
    from airflow_provider_ducklake.spark.job import plan_json  # noqa: PLC0415 - no DAG file needs it

    return plan_json.decode_predicate(item)


# --- requests


def encode_request(request: JobRequest) -> Json:
    """Return a request as JSON."""
    return {
        "job_id": request.job_id,
        "verb": request.verb,
        "engine": request.engine,
        "source": _encode_source(request.source),
        "plans": [encode_plan(plan) for plan in request.plans],
    }


def decode_request(item: Json) -> JobRequest:
    """Return the request; the inverse of ``encode_request``."""
    return JobRequest(
        job_id=item["job_id"],
        verb=item["verb"],
        engine=item["engine"],
        source=_decode_source(item["source"]),
        plans=tuple(decode_plan(plan) for plan in item["plans"]),
    )


def _encode_source(source: Source) -> Json:
    match source:
        case DatasetSource(dataset):
            return {"kind": "dataset", "dataset": _encode_dataset(dataset)}
        case SqlSource(sql, datasets):
            return {"kind": "sql", "sql": sql, "datasets": _encode_datasets(datasets)}
        case TransformSource(function, datasets):
            return {"kind": "transform", "function": function, "datasets": _encode_datasets(datasets)}
        case LakeSource():
            return _encode_lake_source(source)
        case StreamSource(rows, checkpoint, staging_id):
            encoded = _encode_source(rows)
            return {"kind": "stream", "rows": encoded, "checkpoint": checkpoint, "staging_id": staging_id}
        case RowChangeSource():
            return _encode_row_changes(source)
        case OverwriteSource(rows, replaced):
            return {"kind": "overwrite", "rows": _encode_source(rows), "replaced": _encode_source(replaced)}
        case CompactionSource(compaction, staging_id, partition_id):
            more = {"staging_id": staging_id, "partition_id": partition_id}
            return {"kind": "compaction", **_encode_compaction(compaction), **more}
        case _:
            assert_never(source)


def _decode_source(item: Json) -> Source:
    match item["kind"]:
        case "dataset":
            return DatasetSource(_decode_dataset(item["dataset"]))
        case "sql":
            return SqlSource(item["sql"], _decode_datasets(item["datasets"]))
        case "transform":
            return TransformSource(item["function"], _decode_datasets(item["datasets"]))
        case "lake":
            return _decode_lake_source(item)
        case "stream":
            return _decode_stream(item)
        case "row changes":
            return _decode_row_changes(item)
        case "overwrite":
            return _decode_overwrite(item)
        case "compaction":
            return CompactionSource(_decode_compaction(item), item["staging_id"], item["partition_id"])
        case kind:
            raise SparkJobError(f"The request has a source of kind {kind!r}, unknown to this release.")


def _encode_lake_source(source: LakeSource) -> Json:
    return {
        "kind": "lake",
        "tables": {name: _encode_read(plan) for name, plan in source.tables.items()},
        "datasets": _encode_datasets(source.datasets),
        "steps": [[one.query, one.plan, one.view, one.columns] for one in source.steps],
        "function": source.function,
        "as_inserts": sorted(source.as_inserts),
    }


def _decode_lake_source(item: Json) -> LakeSource:
    return LakeSource(
        tables={name: _decode_read(plan) for name, plan in item["tables"].items()},
        datasets=_decode_datasets(item["datasets"]),
        steps=tuple(
            Step(query, plan, view, None if columns is None else tuple(columns))
            for query, plan, view, columns in item["steps"]
        ),
        function=item["function"],
        as_inserts=frozenset(item["as_inserts"]),
    )


def _decode_stream(item: Json) -> StreamSource:
    rows = _decode_source(item["rows"])
    assert isinstance(rows, TransformSource)
    return StreamSource(rows, item["checkpoint"], item["staging_id"])


def _decode_overwrite(item: Json) -> OverwriteSource:
    rows, replaced = _decode_source(item["rows"]), _decode_source(item["replaced"])
    assert isinstance(rows, DatasetSource | SqlSource | TransformSource)
    assert isinstance(replaced, RowChangeSource)
    return OverwriteSource(rows, replaced)


def _encode_row_changes(source: RowChangeSource) -> Json:
    return {
        "kind": "row changes",
        "target": _encode_read(source.target),
        "source": None if source.source is None else _encode_source(source.source),
        "on": source.on,
        **{name: [_encode_clause(one) for one in getattr(source, name)] for name in _CLAUSES},
        "target_alias": source.target_alias,
        "source_alias": source.source_alias,
    }


def _decode_row_changes(item: Json) -> RowChangeSource:
    from airflow_provider_ducklake.planning.reading.scan import ScanPlan  # noqa: PLC0415 - no DAG file needs it

    target = _decode_read(item["target"])
    source = None if item["source"] is None else _decode_source(item["source"])
    assert isinstance(target, ScanPlan)
    assert not isinstance(source, RowChangeSource | StreamSource | OverwriteSource | CompactionSource)
    return RowChangeSource(
        target,
        source,
        item["on"],
        **{name: tuple(_decode_clause(one) for one in item[name]) for name in _CLAUSES},
        target_alias=item["target_alias"],
        source_alias=item["source_alias"],
    )


_CLAUSES = ("matched", "not_matched", "not_matched_by_source")


def _encode_clause(clause: Clause) -> Json:
    values = None if clause.values is None else dict(clause.values)
    return {"action": clause.action.value, "condition": clause.condition, "values": values}


def _decode_clause(item: Json) -> Clause:
    return Clause(Action(item["action"]), item["condition"], item["values"])


def _encode_compaction(compaction: Compaction) -> Json:
    from airflow_provider_ducklake.spark.job import compaction_json  # noqa: PLC0415 - no DAG file needs it

    return compaction_json.encode_compaction(compaction)


def _decode_compaction(item: Json) -> Compaction:
    from airflow_provider_ducklake.spark.job import compaction_json  # noqa: PLC0415

    return compaction_json.decode_compaction(item)


def _encode_read(plan: ScanPlan | ChangeFeedPlan) -> Json:
    from airflow_provider_ducklake.planning.reading.scan import ScanPlan  # noqa: PLC0415 - no DAG file needs it
    from airflow_provider_ducklake.spark.job import plan_json  # noqa: PLC0415

    if isinstance(plan, ScanPlan):
        return {"kind": "scan", **plan_json.encode_scan(plan)}
    return {"kind": "changes", **plan_json.encode_changes(plan)}


def _decode_read(item: Json) -> ScanPlan | ChangeFeedPlan:
    from airflow_provider_ducklake.spark.job import plan_json  # noqa: PLC0415 - no DAG file needs it

    return plan_json.decode_scan(item) if item["kind"] == "scan" else plan_json.decode_changes(item)


def _encode_datasets(datasets: Mapping[str, Dataset]) -> Json:
    return {name: _encode_dataset(dataset) for name, dataset in datasets.items()}


def _decode_datasets(item: Json) -> dict[str, Dataset]:
    return {name: _decode_dataset(dataset) for name, dataset in item.items()}


def _encode_dataset(dataset: Dataset) -> Json:
    return {
        "format": dataset.format,
        "path": dataset.path,
        "options": dict(dataset.options),
        "password_env": dataset.password_env,
    }


def _decode_dataset(item: Json) -> Dataset:
    return Dataset(item["format"], item["path"], item["options"], item["password_env"])


# --- results


def encode_summary(result: WriteResult) -> Json:
    """Return everything of a result but its files, which lie in parts."""
    return {
        "schema": encode_schema(result.schema),
        "partition_fields": encode_partition_fields(result.partition_fields),
        "rows_written": result.rows_written,
        "engine": result.engine,
        "details": dict(result.details),
    }


def decode_result(summary: Json, data_files: tuple[DataFile, ...]) -> WriteResult:
    """Return the result for a summary and the files of its parts."""
    return WriteResult(
        schema=decode_schema(summary["schema"]),
        partition_fields=decode_partition_fields(summary["partition_fields"]),
        data_files=data_files,
        rows_written=integer(summary["rows_written"]),
        engine=text(summary["engine"]),
        details=summary["details"],
    )


# --- deleted rows


def encode_deletes(deletes: NewDeletes) -> list[Any]:
    """Return what a job deletes of one data file as JSON."""
    return [getattr(deletes, name) for name in NewDeletes.__dataclass_fields__]


def decode_deletes(item: list[Any]) -> NewDeletes:
    """Return it; the inverse of ``encode_deletes``."""
    data_file_id, path, count, size, footer_size = item
    return NewDeletes(
        DataFileId(integer(data_file_id)), text(path), integer(count), integer(size), integer(footer_size)
    )


# --- staged writes


def encode_staged(staged: StagedWrite) -> Json:
    """Return everything of a staged write but its result, which lies beside it."""
    return {
        "job_id": staged.job_id,
        "directory": staged.directory,
        "verb": staged.verb,
        "target": encode_target(staged.target),
    }


def decode_staged(item: Json, result: WriteResult) -> StagedWrite:
    """Return the staged write; the inverse of ``encode_staged`` with what that leaves out."""
    target = _decode_target(item["target"], result)
    return StagedWrite(text(item["job_id"]), text(item["directory"]), text(item["verb"]), target, result)


def encode_target(target: Target) -> Json:
    """Return the table of a staged write as JSON."""
    common = {
        "snapshot": encode_snapshot(target.snapshot),
        "name": [target.name.schema, target.name.name],
        "schema_id": target.schema_id,
        "root": target.root,
    }
    if isinstance(target, NewTable):
        return {"kind": "new", **common, "uuid": target.uuid, "options": dict(target.options.texts)}
    return {
        "kind": "existing",
        **common,
        "uuid": target.table_uuid,
        "table_id": target.table_id,
        "partition_id": target.partition_spec.id if target.partition_spec else None,
    }


def _decode_target(item: Json, result: WriteResult) -> Target:
    """Return the table as far as a commit needs it: sort keys and an existing table's options are left out.

    Its columns and partition keys are those of the result.
    """
    snapshot = decode_snapshot(item["snapshot"])
    schema_name, table_name = several(text, item["name"])
    name, schema_id = QualifiedName(schema_name, table_name), SchemaId(integer(item["schema_id"]))
    uuid, root = text(item["uuid"]), text(item["root"])
    if item["kind"] == "new":
        options = {text(key): text(value) for key, value in item["options"].items()}
        return NewTable(snapshot, schema_id, name, uuid, root, Options(options))
    spec_id = optional(integer, item["partition_id"])
    return TableSnapshot(
        snapshot=snapshot,
        table_id=TableId(integer(item["table_id"])),
        table_uuid=uuid,
        schema_id=schema_id,
        name=name,
        schema=result.schema,
        root=root,
        partition_spec=(
            PartitionSpec(result.partition_fields, PartitionId(spec_id)) if spec_id is not None else None
        ),
    )
