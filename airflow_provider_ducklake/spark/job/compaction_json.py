"""JSON of compaction: which files become which, and what became of a bin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.planning.upkeep.compaction import Bin, Compaction
from airflow_provider_ducklake.spark.job.data_file_json import decode_data_file, encode_data_file
from airflow_provider_ducklake.spark.job.kinds import integer, optional, several
from airflow_provider_ducklake.spark.job.plan_json import (
    decode_files,
    decode_table,
    encode_files,
    encode_table,
)
from airflow_provider_ducklake.spark.job.schema_json import Json, decode_schema, encode_schema
from airflow_provider_ducklake.spec.ids import DataFileId, DeleteFileId, PartitionId, SnapshotId
from airflow_provider_ducklake.transaction.changes import MergedFile, RewriteSource, RewrittenFile

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.schema import TableSchema


def encode_compaction(compaction: Compaction) -> Json:
    """Return the bins of a table as JSON, each of their schemas once."""
    schemas: list[TableSchema] = []
    for one in compaction.bins:
        if one.schema not in schemas:
            schemas.append(one.schema)
    return {
        "table": encode_table(compaction.table),
        "schemas": [encode_schema(schema) for schema in schemas],
        "is_rewrite": compaction.is_rewrite,
        "marks": [[file_id, list(places)] for file_id, places in compaction.marks.items()],
        "bins": [{**encode_bin(one), "schema": schemas.index(one.schema)} for one in compaction.bins],
    }


def decode_compaction(item: Json) -> Compaction:
    """Return the bins; the inverse of ``encode_compaction``."""
    schemas = [decode_schema(schema) for schema in item["schemas"]]
    bins = (decode_bin(one, schemas[one["schema"]]) for one in item["bins"])
    marks = {DataFileId(file_id): tuple(places) for file_id, places in item["marks"]}
    return Compaction(decode_table(item["table"]), tuple(bins), item["is_rewrite"], marks)


def encode_bin(files: Bin) -> Json:
    """Return a bin as JSON, without its schema."""
    return {
        "files": encode_files(files.files),
        "partition_id": files.partition_id,
        "partition_values": list(files.partition_values),
    }


def decode_bin(item: Json, schema: TableSchema) -> Bin:
    """Return the bin; the inverse of ``encode_bin``."""
    keys = {"partition_id": item["partition_id"], "partition_values": tuple(item["partition_values"])}
    return Bin(schema, tuple(replace(file, **keys) for file in decode_files(item["files"])))


def encode_compacted(compacted: MergedFile | RewrittenFile) -> Json:
    """Return a file that a bin became as JSON."""
    file = None if compacted.file is None else encode_data_file(compacted.file)
    more = {"file": file, "partition_id": compacted.partition_id}
    if isinstance(compacted, RewrittenFile):
        origins = [[one.file_id, one.delete_file_id, one.mark_count] for one in compacted.origins]
        return {"kind": "rewritten", "origins": origins, "read_at": compacted.read_at, **more}
    return {
        "kind": "merged",
        "sources": list(compacted.sources),
        "begin_snapshot": compacted.begin_snapshot,
        "partial_max": compacted.partial_max,
        "row_id_start": compacted.row_id_start,
        **more,
    }


def decode_compacted(item: Json) -> MergedFile | RewrittenFile:
    """Return the file; the inverse of ``encode_compacted``."""
    file = None if item["file"] is None else decode_data_file(item["file"])
    if item["kind"] == "rewritten":
        origins = several(_decode_origin, item["origins"])
        partition_id = optional(_partition_id, item["partition_id"])
        return RewrittenFile(file, origins, _snapshot_id(item["read_at"]), partition_id)
    assert file is not None
    return MergedFile(
        file,
        several(_data_file_id, item["sources"]),
        _snapshot_id(item["begin_snapshot"]),
        optional(_snapshot_id, item["partial_max"]),
        optional(integer, item["row_id_start"]),
        optional(_partition_id, item["partition_id"]),
    )


def _decode_origin(item: Any) -> RewriteSource:  # noqa: ANN401 - a list of JSON
    file_id, delete_file_id, mark_count = item
    deletes = None if delete_file_id is None else DeleteFileId(integer(delete_file_id))
    return RewriteSource(_data_file_id(file_id), deletes, integer(mark_count))


def _data_file_id(value: object) -> DataFileId:
    return DataFileId(integer(value))


def _snapshot_id(value: object) -> SnapshotId:
    return SnapshotId(integer(value))


def _partition_id(value: object) -> PartitionId:
    return PartitionId(integer(value))
