"""Deletion vectors of several snapshots in one file, written as the Parquet delete file of 1.0."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from pyroaring import BitMap64

_MAGIC = b"PFA1"
_FOOTER_END = 12  # the payload's length, flags and the magic
_DELETES = pa.schema(
    [
        pa.field(name, data_type, nullable=False, metadata={"PARQUET:field_id": field_id})
        for name, data_type, field_id in [
            ("file_path", pa.string(), "2147483546"),
            ("pos", pa.int64(), "2147483545"),
            ("_ducklake_internal_snapshot_id", pa.int64(), "2147483539"),
        ]
    ]
)


def read_container(content: bytes) -> dict[int, int]:
    """Return the snapshot that deleted each position."""
    payload_end = len(content) - _FOOTER_END
    length = int.from_bytes(content[payload_end : payload_end + 4], "little")
    deleted: dict[int, int] = {}
    blobs = json.loads(content[payload_end - length : payload_end])["blobs"]
    for blob in sorted(blobs, key=lambda blob: int(blob["properties"]["ducklake-snapshot-id"])):
        vector = content[blob["offset"] + 8 : blob["offset"] + blob["length"] - 4]
        for position in BitMap64.deserialize(vector):
            deleted.setdefault(position, int(blob["properties"]["ducklake-snapshot-id"]))
    return deleted


def rewrite_containers(connection: sa.Connection, data_path: str, folder: Path) -> None:
    """Write each container that the catalog names as a Parquet file in `folder`, and name that instead."""
    table = sa.Table("ducklake_delete_file", sa.MetaData(), autoload_with=connection)
    for delete_file_id, data_file, content in list(_containers(connection, data_path)):
        file = folder / f"{delete_file_id}-delete.parquet"
        deleted = sorted(read_container(content).items())
        rows = [(data_file, position, snapshot_id) for position, snapshot_id in deleted]
        pq.write_table(pa.table(list(zip(*rows, strict=True)), schema=_DELETES), file)
        written: dict[str, Any] = {
            "path": str(file),
            "path_is_relative": False,
            "format": "parquet",
            "file_size_bytes": file.stat().st_size,
            "footer_size": int.from_bytes(file.read_bytes()[-8:-4], "little"),
        }
        connection.execute(sa.update(table).where(table.c.delete_file_id == delete_file_id).values(**written))


def _containers(connection: sa.Connection, data_path: str) -> Iterator[tuple[int, str, bytes]]:
    query = """
        SELECT DISTINCT d.delete_file_id, s.path, s.path_is_relative, t.path, t.path_is_relative,
            f.path, f.path_is_relative, d.path, d.path_is_relative
        FROM ducklake_delete_file d JOIN ducklake_data_file f USING (data_file_id)
        JOIN ducklake_table t ON t.table_id = d.table_id JOIN ducklake_schema s USING (schema_id)
        WHERE d.path LIKE '%.puffin'
    """
    for delete_file_id, *paths in connection.execute(sa.text(query)):
        schema, table, data_file, delete_file = zip(paths[::2], paths[1::2], strict=True)
        content = Path(_joined(data_path, schema, table, delete_file)).read_bytes()
        if content.startswith(_MAGIC):
            yield delete_file_id, _joined(data_path, schema, table, data_file), content


def _joined(path: str, *parts: tuple[str, bool]) -> str:
    for part, is_relative in parts:
        path = path + part if is_relative else part
    return path
