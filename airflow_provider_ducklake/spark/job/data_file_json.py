"""JSON of data files that a job wrote."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.job.kinds import flag, integer, optional, several, text
from airflow_provider_ducklake.spark.job.stats_json import decode_stats, encode_stats
from airflow_provider_ducklake.spec.files import DataFile

if TYPE_CHECKING:
    from airflow_provider_ducklake.spark.job.schema_json import Json


def encode_data_file(file: DataFile) -> Json:
    """Return a written file as JSON."""
    return {
        "path": file.path,
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "partition_values": list(file.partition_values),
        "column_stats": [encode_stats(stats) for stats in file.column_stats.values()],
        "has_row_ids": file.has_row_ids,
    }


def decode_data_file(item: Json) -> DataFile:
    """Return the written file; the inverse of ``encode_data_file``."""
    stats = [decode_stats(entry) for entry in item["column_stats"]]
    return DataFile(
        path=text(item["path"]),
        record_count=integer(item["record_count"]),
        file_size_bytes=integer(item["file_size_bytes"]),
        footer_size=optional(integer, item["footer_size"]),
        column_stats={entry.column_id: entry for entry in stats},
        partition_values=several(partial(optional, text), item["partition_values"]),
        has_row_ids=flag(item["has_row_ids"]),
    )
