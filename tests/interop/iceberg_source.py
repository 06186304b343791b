"""Iceberg tables to be added to a lake: written by pyiceberg, and what it cannot write, by its own parts."""

import json
import uuid
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from airflow_provider_ducklake.lake.storage.deletes.vectors import vector_of

BRANCH = "main"


class DeletesWriter(ManifestWriterV2):
    """A manifest of deletes with the fields of version 3, which pyiceberg reads and does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(3)
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


def new_catalog(folder: Path) -> SqlCatalog:
    """Return an Iceberg catalog in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        "source", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace("sales")
    return catalog


def new_table(
    folder: Path, columns: dict[str, Any], keys: Sequence[str] = (), name: str = "orders", **properties: str
) -> Table:
    """Return a new table; a column's name ends in ``!`` where it is required; a key is "day(at)"."""
    fields = [
        NestedField(place, column.rstrip("!"), type_, required=column.endswith("!"))
        for place, (column, type_) in enumerate(columns.items(), 1)
    ]
    ids = {field.name: field.field_id for field in fields}
    parts = []
    for place, key in enumerate(keys):
        word, _, column = key.rstrip(")").partition("(")  # "day(at)", "bucket[4](id)"
        transform = parse_transform(word if column else "identity")
        source = ids[column or key]
        parts.append(PartitionField(source, 1000 + place, transform, f"key_{place}"))
    spec = PartitionSpec(*parts) if parts else UNPARTITIONED_PARTITION_SPEC
    return new_catalog(folder).create_table(
        f"sales.{name}", Schema(*fields), partition_spec=spec, properties=properties
    )


def append(table: Table, **columns: Any) -> None:
    """Append rows in the types of the table."""
    table.append(pa.table(columns, schema=table.schema().as_arrow()))


def data_paths(table: Table) -> list[str]:
    """Return the paths of the current data files as the metadata has them, in order."""
    return sorted(task.file.file_path for task in table.scan().plan_files())


def local(uri: str) -> Path:
    """Return a local file of the metadata."""
    return Path(uri.removeprefix("file://"))


def position_deletes(table: Table, positions: dict[str, list[int]], **said: Any) -> DataFile:
    """Write a position delete file and return its entry."""
    rows = [(path, place) for path, places in sorted(positions.items()) for place in places]
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    names = [pa.field(*of, metadata={"PARQUET:field_id": number}) for *of, number in _DELETE_FIELDS]
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, schema=pa.schema(names)), local(path))
    return entry(path, len(rows), **said)


_DELETE_FIELDS = [("file_path", pa.string(), False, "2147483546"), ("pos", pa.int64(), False, "2147483545")]


def vectors(table: Table, positions: dict[str, list[int]], **said: Any) -> list[DataFile]:
    """Write a Puffin file with a deletion vector for each data file and return their entries."""
    path = f"{table.location()}/data/{uuid.uuid4()}.puffin"
    content, blobs = b"PFA1", []
    for data_file, places in positions.items():
        data = vector_of(pa.array(places, pa.int64()))
        properties = {"referenced-data-file": data_file, "cardinality": str(len(places))}
        place = {"fields": [2147483645], "snapshot-id": -1, "sequence-number": -1, "offset": len(content)}
        blobs.append({"type": "deletion-vector-v1", **place, "length": len(data), "properties": properties})
        content += data
    document = json.dumps({"blobs": blobs}).encode()
    content += b"PFA1" + document + len(document).to_bytes(4, "little") + bytes(4) + b"PFA1"
    local(path).write_bytes(content)
    said = {"file_format": FileFormat.PUFFIN, **said}
    return [
        entry(path, len(places), **{"referenced_data_file": data_file, **said})
        for data_file, places in positions.items()
    ]


def equality_deletes(table: Table) -> DataFile:
    """Return the entry of an equality delete file."""
    path = f"{table.location()}/data/equal.parquet"
    return entry(path, 1, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])


def entry(path: str, count: int, **said: Any) -> DataFile:
    """Return the entry of a file, of position deletes unless it says otherwise."""
    size = local(path).stat().st_size if local(path).exists() else 100
    defaults = {
        "content": DataFileContent.POSITION_DELETES,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "column_sizes": {},
        "value_counts": {},
        "null_value_counts": {},
        "nan_value_counts": {},
        "lower_bounds": {},
        "upper_bounds": {},
        "key_metadata": None,
    }
    made = DataFile.from_args(
        _table_format_version=3,
        file_path=path,
        record_count=count,
        file_size_in_bytes=size,
        **defaults | said,
    )
    made.spec_id = 0
    return made


def changed(table: Table, **replaced: Any) -> str:
    """Write the table's metadata with other values, and return the path of the metadata file."""
    document = json.loads(table.metadata.model_dump_json())
    document |= {name.replace("_", "-"): value for name, value in replaced.items()}
    path = f"{table.location()}/metadata/{99999:05d}-{uuid.uuid4()}.metadata.json"
    local(path).write_text(json.dumps(document))
    return path


def with_entries(
    table: Table, entries: Sequence[DataFile], *, sequence_number: int | None = None, as_data: bool = False
) -> str:
    """Commit entries as one more snapshot, and return the path of its metadata file."""
    io, metadata = PyArrowFileIO(), table.metadata
    snapshot, number = table.current_snapshot(), metadata.last_sequence_number + 1
    assert snapshot is not None
    snapshot_id = snapshot.snapshot_id + 1
    base = f"{table.location()}/metadata/{uuid.uuid4()}"
    writer = (ManifestWriterV2 if as_data else DeletesWriter)(
        table.spec(), table.schema(), io.new_output(f"{base}-m0.avro"), snapshot_id, "null"
    )
    with writer:
        for one in entries:
            made = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=one
            )
            if sequence_number is not None:
                made.sequence_number = sequence_number
            writer.add_entry(made)
    listed = write_manifest_list(
        2, io.new_output(f"{base}.avro"), snapshot_id, snapshot.snapshot_id, number, "null"
    )
    with listed:
        listed.add_manifests([*snapshot.manifests(table.io), writer.to_manifest_file()])
    document = json.loads(metadata.model_dump_json())
    made = {
        **document["snapshots"][-1],
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": snapshot.snapshot_id,
        "sequence-number": number,
        "manifest-list": f"{base}.avro",
        "timestamp-ms": document["last-updated-ms"] + 1,
    }
    return changed(
        table,
        snapshots=[*document["snapshots"], made],
        current_snapshot_id=snapshot_id,
        last_sequence_number=number,
        last_updated_ms=made["timestamp-ms"],
        refs={BRANCH: {"snapshot-id": snapshot_id, "type": "branch"}},
        snapshot_log=[],
    )


def read_by_pyiceberg(metadata_location: str, snapshot_id: int | None = None) -> pa.Table:
    """Return the rows as pyiceberg reads them."""
    return StaticTable.from_metadata(metadata_location).scan(snapshot_id=snapshot_id).to_arrow()


def plain(rows: pa.Table) -> list[str]:
    """Return rows as texts in an order of their own, whatever type of text or list a reader uses."""
    return sorted(repr(_plain(list(row.values()))) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case uuid.UUID():
            return str(value)
        case _:
            return value
