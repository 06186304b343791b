"""An Iceberg table at a snapshot: what its metadata says, or why it cannot be taken.

*Source:* Iceberg's specification, versions 1 to 3. What version 3 adds without changing a row is passed over:
row lineage, since the lake gives rows ids of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFileContent, FileFormat

from airflow_provider_ducklake.lake.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.writing.source_table import (
    SourceFile,
    SourceTable,
    texts_of,
    transforms_of,
)
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.foreign.iceberg_deletes import IcebergDeletes, deleted_rows_of
from airflow_provider_ducklake.lake.storage.foreign.iceberg_metadata import load_table
from airflow_provider_ducklake.lake.storage.foreign.iceberg_types import columns_of, ids_of_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_ducklake.lake.planning.writing.source_table import PartitionKey, SourceColumn
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.foreign.places import Places
    from airflow_provider_ducklake.lake.transaction.changes import Positions

    Locate = Callable[[str], Location]

_NEWEST_FORMAT = 3


def iceberg_table(
    source: str,
    locate: Locate,
    *,
    snapshot_id: int | None = None,
    catalog: Mapping[str, str] | None = None,
    allowed_paths: tuple[str, ...] = (),
) -> SourceTable:
    """Return what a lake is to have of an Iceberg table; None: at its current snapshot.

    Raises:
        UnsupportedFeatureError: something in it cannot be carried over; names it.
        InvalidInputError: there is no such snapshot, or it is not clear which metadata is the newest.
        SourceNotFoundError: there is no such table.
        UntrustedValueError: the metadata names files outside the table's folder.
        StorageError: the metadata cannot be read.
    """
    table, places = load_table(source, locate, catalog, allowed_paths)
    with naming_errors(f"the metadata of {source}", "read"):  # whatever pyiceberg says of odd metadata
        return _at_snapshot(table, places, snapshot_id, source, locate)


def _at_snapshot(
    table: Table, places: Places, snapshot_id: int | None, source: str, locate: Locate
) -> SourceTable:
    snapshot = _snapshot(table, snapshot_id, source)
    where = f"{source} at snapshot {snapshot.snapshot_id}" if snapshot else f"{source}, which has no snapshot"
    _check_format(table, where)
    schema = _schema(table, snapshot if snapshot_id is not None else None)
    columns = columns_of(schema.fields, where)
    entries = _entries(table, snapshot, where)
    by_id = {one.key: one for one in columns}
    return SourceTable(
        where,
        columns,
        tuple(_files(table, entries, by_id, places, locate)),
        tuple(_partition_by(table.spec(), by_id)),
        by_id=True,
        ids_by_name=ids_of_names(table.name_mapping()),
    )


def _snapshot(table: Table, snapshot_id: int | None, source: str) -> Snapshot | None:
    if snapshot_id is None:
        return table.current_snapshot()
    found = table.snapshot_by_id(snapshot_id)
    if found is None:
        known = ", ".join(str(one.snapshot_id) for one in table.snapshots()) or "none"
        raise InvalidInputError(f"{source} has no snapshot {snapshot_id}. It has: {known}.")
    return found


def _check_format(table: Table, where: str) -> None:
    if table.format_version > _NEWEST_FORMAT:
        raise UnsupportedFeatureError(
            f"{where} has Iceberg's format version {table.format_version}; those up to {_NEWEST_FORMAT} can "
            "be added."
        )
    if table.properties.get("encryption.key-id"):
        raise UnsupportedFeatureError(
            f"{where} is encrypted, and DuckLake cannot read files by Iceberg's keys. Insert its rows "
            "instead."
        )


def _schema(table: Table, snapshot: Snapshot | None) -> Schema:
    """Return the columns of a chosen snapshot; without one, of the table."""
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _entries(table: Table, snapshot: Snapshot | None, where: str) -> list[ManifestEntry]:
    if snapshot is None:
        return []
    manifests = snapshot.manifests(table.io)
    read = in_threads(lambda one: one.fetch_manifest_entry(table.io), manifests)
    for manifest, part in zip(manifests, read, strict=True):
        _check_count(manifest, len(part))
    entries = [entry for part in read for entry in part]
    for entry in entries:
        _check_file(entry.data_file, where)
    return entries


def _check_count(manifest: ManifestFile, found: int) -> None:
    """Refuse a manifest that does not have the files that its list says: rows would be lost silently."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    if None not in counts and sum(one or 0 for one in counts) != found:
        raise StorageError(
            f"{manifest.manifest_path} has {found} files, and {counts[0]} new and {counts[1]} older ones by "
            "the snapshot's list of manifests: it is damaged, or another file."
        )


def _content(file: DataFile) -> DataFileContent:
    """Return what a file has; manifests of version 1 do not say it, since they have data only."""
    return DataFileContent(file.content or 0)


def _check_file(file: DataFile, where: str) -> None:
    content = _content(file)
    if content is DataFileContent.EQUALITY_DELETES:
        raise UnsupportedFeatureError(
            f"{where} has the equality delete file {file.file_path}, and DuckLake has deletes by position "
            "only. Rewrite the table's data files first (Iceberg's rewrite_data_files), or insert its rows "
            "instead."
        )
    allowed = {FileFormat.PARQUET}
    if content is DataFileContent.POSITION_DELETES:
        allowed = {FileFormat.PARQUET, FileFormat.PUFFIN}
    if file.file_format not in allowed:
        raise UnsupportedFeatureError(
            f"{where} has the file {file.file_path} in the format {file.file_format}, and DuckLake has "
            "Parquet files only. Rewrite it as Parquet, or insert the table's rows instead."
        )
    if file.key_metadata is not None:
        raise UnsupportedFeatureError(
            f"{where}: {file.file_path} is encrypted, and DuckLake cannot read it by Iceberg's keys. Insert "
            "the table's rows instead."
        )


def _files(
    table: Table,
    entries: Sequence[ManifestEntry],
    columns: Mapping[Any, SourceColumn],
    places: Places,
    locate: Locate,
) -> Iterator[SourceFile]:
    data = [one for one in entries if _content(one.data_file) is DataFileContent.DATA]
    deleted = _deleted(entries, data, places, locate)
    specs = table.specs()
    for entry in data:
        file = entry.data_file
        yield SourceFile(
            places.checked(file.file_path),
            file.record_count,
            file.file_size_in_bytes,
            dict(_partition(file, specs[file.spec_id], columns)),
            deleted.get(file.file_path),
        )


def _deleted(
    entries: Iterable[ManifestEntry], data: Collection[ManifestEntry], places: Places, locate: Locate
) -> dict[str, Positions]:
    of_data = {one.data_file.file_path: one.sequence_number or 0 for one in data}
    row_counts = {one.data_file.file_path: one.data_file.record_count for one in data}
    files = {
        IcebergDeletes(
            places.checked(one.data_file.file_path),
            one.data_file.file_format is FileFormat.PUFFIN,
            one.sequence_number or 0,
        )
        for one in entries
        if _content(one.data_file) is DataFileContent.POSITION_DELETES
    }
    return deleted_rows_of(files, of_data, row_counts, locate)


def _partition(
    file: DataFile, spec: PartitionSpec, columns: Mapping[Any, SourceColumn]
) -> Iterator[tuple[PartitionKey, str | None]]:
    for place, field in enumerate(spec.fields):
        column = columns.get(field.source_id)  # of a column that was dropped: of no use
        if column is None or column.children:
            continue
        for transform, text in texts_of(str(field.transform), column.type, file.partition[place]):
            yield (column.key, transform), text


def _partition_by(spec: PartitionSpec, columns: Mapping[Any, SourceColumn]) -> Iterator[PartitionKey]:
    for field in spec.fields:
        column = columns.get(field.source_id)
        if column is not None and not column.children:
            for transform in transforms_of(str(field.transform), column.type):
                yield column.key, transform
