"""JSON of compaction: which files become which, and what became of a bin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.planning.compaction import Bin, Compaction
from airflow_provider_ducklake.spark.job_json import decode_data_file, encode_data_file
from airflow_provider_ducklake.spark.plan_json import decode_files, decode_table, encode_files, encode_table
from airflow_provider_ducklake.spark.schema_json import Json, decode_schema, encode_schema
from airflow_provider_ducklake.spec.ids import DataFileId, SnapshotId
from airflow_provider_ducklake.transaction.changes import MergedFile

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
        "bins": [{**encode_bin(one), "schema": schemas.index(one.schema)} for one in compaction.bins],
    }


def decode_compaction(item: Json) -> Compaction:
    """Return the bins; the inverse of ``encode_compaction``."""
    schemas = [decode_schema(schema) for schema in item["schemas"]]
    bins = (decode_bin(one, schemas[one["schema"]]) for one in item["bins"])
    return Compaction(decode_table(item["table"]), tuple(bins))


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


def encode_merged(merged: MergedFile) -> Json:
    """Return a file that a bin became as JSON."""
    return {
        "file": encode_data_file(merged.file),
        "sources": list(merged.sources),
        "begin_snapshot": merged.begin_snapshot,
        "partial_max": merged.partial_max,
        "row_id_start": merged.row_id_start,
        "partition_id": merged.partition_id,
    }


def decode_merged(item: Json) -> MergedFile:
    """Return the file; the inverse of ``encode_merged``."""
    return MergedFile(
        decode_data_file(item["file"]),
        tuple(DataFileId(one) for one in item["sources"]),
        SnapshotId(item["begin_snapshot"]),
        item["partial_max"],
        item["row_id_start"],
        item["partition_id"],
    )
