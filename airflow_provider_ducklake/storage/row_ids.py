"""Row ids that a data file brings along: rows that were updated, merged or flushed keep theirs.

*Source:* DuckLake's reserved field id, which is Iceberg's ``_row_id`` (dossier §5.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.storage.filesystem import Location, naming_errors
from airflow_provider_ducklake.storage.reshape import field_id

if TYPE_CHECKING:
    import pyarrow as pa

ROW_ID_FIELD_ID = 2147483540
ROW_ID_COLUMN = "_ducklake_internal_row_id"


def count_row_ids(location: Location, first: int, end: int) -> int | None:
    """Return how many row ids from ``first`` to before ``end`` the file stores; None: it stores no ids.

    Raises:
        StorageError: it cannot be read.
    """
    with naming_errors(location.uri, "read"), location.filesystem.open_input_file(location.path) as source:
        file = pq.ParquetFile(source)
        index = _row_id_column(file.schema_arrow)
        if index is None:
            return None
        ids = file.read(columns=[file.schema_arrow.field(index).name]).column(0)
    return int(pc.sum(pc.and_(pc.greater_equal(ids, first), pc.less(ids, end))).as_py() or 0)


def _row_id_column(schema: pa.Schema) -> int | None:
    for index, field in enumerate(schema):
        if field_id(field) == ROW_ID_FIELD_ID or field.name == ROW_ID_COLUMN:
            return index
    return None
