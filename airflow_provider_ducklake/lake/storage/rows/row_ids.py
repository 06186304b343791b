"""Which rows of a data file have given row ids: rows that were updated, merged or flushed keep theirs.

*Source:* DuckLake's reserved field id, which is Iceberg's ``_row_id`` (docs/sources.md, deletes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors
from airflow_provider_ducklake.lake.storage.parquet.opening import open_parquet
from airflow_provider_ducklake.lake.storage.parquet.reshape import field_id, ordinals

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

ROW_ID_FIELD_ID = 2147483540
ROW_ID_COLUMN = "_ducklake_internal_row_id"


def stored_positions(location: Location, first: int, end: int) -> pa.Array | None:
    """Return where a file has the row ids from ``first`` to before ``end`` (int64); None: it stores no ids.

    Raises:
        StorageError: it cannot be read.
    """
    with naming_errors(location.uri, "read"), open_parquet(location) as source:
        file = pq.ParquetFile(source)
        name = row_id_column(file.schema_arrow)
        if name is None:
            return None
        ids = file.read(columns=[name]).column(0).combine_chunks()
    is_wanted = pc.and_(pc.greater_equal(ids, first), pc.less(ids, end))
    return ordinals(len(ids)).filter(is_wanted)


def numbered_positions(file: LiveDataFile, first: int, end: int) -> pa.Array:
    """Return the same of a file that stores no ids: its rows are numbered from its first one's."""
    start = file.row_id_start
    if start is None:
        return pa.array([], pa.int64())
    begin, stop = max(first, start), min(end, start + file.record_count)
    return pc.add(ordinals(max(0, stop - begin)), begin - start)


def row_id_column(schema: pa.Schema) -> str | None:
    """Return the name of the column with stored row ids, None where a file has none."""
    for field in schema:
        if field_id(field) == ROW_ID_FIELD_ID or field.name == ROW_ID_COLUMN:
            return str(field.name)
    return None
