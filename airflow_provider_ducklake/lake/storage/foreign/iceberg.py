"""An Iceberg table at a snapshot: the content of its metadata, or why it cannot be added.

*Source:* Iceberg's specification, versions 1 to 3. What version 3 adds without changing a row is passed over:
row lineage, since the lake assigns its own row ids.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyiceberg.types as iceberg
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable, Table

from ...errors import InvalidInputError, SourceNotFoundError, StorageError, UnsupportedFeatureError
from ...format.defaults import default_of
from ...format.names.paths import is_absolute
from ...format.types import ducklake_types as dl
from ...planning.writing.source_table import (
    PartitionKey,
    SourceColumn,
    SourceFile,
    SourceTable,
    texts_of,
    transforms_of,
)
from ..deletes.deletes import positions_of
from ..deletes.vectors import referenced_vectors
from ..files.filesystem import Location, open_input, storage_errors
from ..files.parallel import in_threads
from ..parquet.modules import check_row_counts
from ..parquet.opening import open_plain_parquet
from .iceberg_catalog import find_in_catalog
from .source import Places, Source, spelled

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.name_mapping import MappedField, NameMapping
    from pyiceberg.table.snapshots import Snapshot

    from ...transaction.changes import Positions


Locate = Callable[[str], Location]


# Which rows of data files an Iceberg snapshot has deleted: position delete files, and deletion vectors.
#
# *Source:* Iceberg's specification, "Row-level deletes" and "Deletion vectors"; the Puffin specification. A
# container may still have vectors that were replaced: an entry is that of one data file's.


_PATH, _POSITION = "file_path", "pos"


@dataclass(frozen=True, slots=True)
class IcebergDeletes:
    """A file of deletes, by its path as the lake spells it, and the sequence number that it came with.

    ``data_files`` are those whose vectors count, None all.
    """

    path: str
    is_vectors: bool
    sequence_number: int
    data_files: frozenset[str] | None


def deleted_rows_of(
    deletes: Iterable[IcebergDeletes],
    sequence_numbers: Mapping[str, int],
    row_counts: Mapping[str, int],
    locate: Callable[[str], Location],
) -> dict[str, Positions]:
    """Return the deleted rows of data files, by the path that the metadata has for these.

    ``sequence_numbers`` are those of the data files: only deletes that came with them or later count.
    ``row_counts`` are how many rows they have, deleted ones included.
    """
    found: defaultdict[str, list[pa.Array]] = defaultdict(list)
    files = list(deletes)
    for one, rows in zip(files, in_threads(lambda one: _rows(one, row_counts, locate), files), strict=True):
        for path, positions in rows.items():
            if path in sequence_numbers and one.sequence_number >= sequence_numbers[path]:
                found[path].append(positions)
    return {path: positions_of(pc.unique(pa.concat_arrays(parts)).sort()) for path, parts in found.items()}


def _rows(
    one: IcebergDeletes, row_counts: Mapping[str, int], locate: Callable[[str], Location]
) -> Mapping[str, pa.Array]:
    place = locate(one.path)
    if not one.is_vectors:
        return _positions(place)
    taken = row_counts.keys() if one.data_files is None else row_counts.keys() & one.data_files
    return referenced_vectors(place, {path: row_counts[path] for path in taken})


def _positions(place: Location) -> dict[str, pa.Array]:
    with storage_errors(place.uri, "read"), open_plain_parquet(place) as source:
        file = pq.ParquetFile(source, read_dictionary=[_PATH])
        if not {_PATH, _POSITION} <= set(file.schema_arrow.names):
            raise StorageError(
                f"{place.uri} is not a position delete file: its columns are {file.schema_arrow.names}."
            )
        check_row_counts(file.metadata, place.uri)
        rows = file.read(columns=[_PATH, _POSITION])
        if rows[_PATH].null_count or rows[_POSITION].null_count:
            raise StorageError(f"{place.uri} is damaged: a deleted row has no file or no position.")
        places = rows[_POSITION].cast(pa.int64())
        paths = rows[_PATH].cast(pa.dictionary(pa.int32(), pa.string()))
        rows = pa.table({_PATH: paths, _POSITION: places}).unify_dictionaries()
    parts: defaultdict[str, list[pa.Array]] = defaultdict(list)
    for batch in rows.to_batches():
        for path, positions in _by_path(batch.column(_PATH), batch.column(_POSITION)):
            parts[path].append(positions)
    return {path: pa.concat_arrays(chunks) for path, chunks in parts.items()}


def _by_path(paths: pa.DictionaryArray, positions: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the positions of each path; one sort finds them all, however many paths there are."""
    order = pc.sort_indices(paths.indices)
    positions, start = positions.take(order), 0
    for code, count in zip(*pc.value_counts(paths.indices.take(order)).flatten(), strict=True):
        yield paths.dictionary[code.as_py()].as_py(), positions.slice(start, count.as_py())
        start += count.as_py()


# pyiceberg's files, read through the lake's own file systems: with its storage options, where it may.


class LakeInput(InputFile):
    """A file that pyiceberg reads."""

    def __init__(self, location: str, place: Location) -> None:
        super().__init__(location)
        self._place = place

    def __len__(self) -> int:
        with self.open() as stream, storage_errors(self.location, "read"):
            stream.seek(0, 2)
            return stream.tell()

    def exists(self) -> bool:
        with storage_errors(self.location, "look at"):
            info = self._place.filesystem.get_file_info(self._place.path)
        return bool(info.type == pafs.FileType.File)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        opened: InputStream = open_input(self._place)
        return opened


class LakeFileIO(FileIO):
    """Files below given folders, by the lake's storage options; it writes and deletes none."""

    def __init__(self, places: Places, locate: Callable[[str], Location]) -> None:
        super().__init__()
        self._places = places
        self._locate = locate

    def new_input(self, location: str) -> LakeInput:
        return LakeInput(location, self._locate(self._places.checked(location)))

    def new_output(self, location: str) -> OutputFile:
        raise UnsupportedFeatureError(f"{location}: the table is only read.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise UnsupportedFeatureError(f"{location}: the table is only read.")


# Find an Iceberg table's newest metadata file, and read it.
#
# *Source:* Iceberg's specification, "Metastore tables" and "File system tables".


_ENDING = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "version-hint.text"


def load_table(source: Source, locate: Locate) -> tuple[Table, Places]:
    """Return a table by its metadata file, its folder or its name in a catalog, and where files may lie."""
    if source.catalog:
        location = spelled(find_in_catalog(source.path, source.catalog))
    else:
        location = _in_folder(source.path, locate)
    places = Places.of(f"The metadata of {source.path}", _folder_of(location), source.allowed_paths)
    io = LakeFileIO(places, locate)
    with storage_errors(location, "read Iceberg's metadata in"):
        metadata = FromInputFile.table_metadata(io.new_input(location))
    return StaticTable(("table",), metadata, location, io, NoopCatalog("none")), places


def _in_folder(source: str, locate: Locate) -> str:
    path = spelled(source)
    if not is_absolute(path):
        raise InvalidInputError(f"The source {source!r} is relative; give an absolute path or a URI.")
    if path.endswith((_ENDING, f"{_ENDING}.gz")):
        return path
    return _newest(path.rstrip("/"), locate)


def _folder_of(metadata_file: str) -> str:
    """Return the table's folder; what the file itself says would be a folder of its writer's choice."""
    return metadata_file.rpartition("/")[0].removesuffix("/metadata")


def _newest(folder: str, locate: Locate) -> str:
    """Return the newest metadata file: that of the hint or a later one, else that of the greatest number."""
    metadata = f"{folder}/metadata"
    names = _names(metadata, locate)
    numbers: dict[int, list[str]] = {}
    for name in names:
        if (match := _VERSION.fullmatch(name)) is not None:
            numbers.setdefault(int(match[1]), []).append(name)
    if not numbers:
        raise SourceNotFoundError("the Iceberg table", f"{metadata}/*{_ENDING}")
    newest = max(numbers)
    if _HINT in names:
        newest = _after_hint(_hint(f"{metadata}/{_HINT}", locate), numbers)
    if len(numbers[newest]) > 1:
        raise InvalidInputError(
            f"{folder} has several metadata files of version {newest}: {', '.join(sorted(numbers[newest]))}. "
            "Give the one that the table's catalog names."
        )
    return f"{metadata}/{numbers[newest][0]}"


def _after_hint(hint: int, numbers: Mapping[int, list[str]]) -> int:
    """Return the version that readers of a hint take: writers may have died before they changed it."""
    if hint not in numbers:
        raise StorageError(
            f"The hint names version {hint}, which has no metadata file. Give the metadata file."
        )
    while hint + 1 in numbers:
        hint += 1
    return hint


def _names(folder: str, locate: Locate) -> list[str]:
    place = locate(folder)
    with storage_errors(folder, "list"):
        infos = place.filesystem.get_file_info(pafs.FileSelector(place.path, allow_not_found=True))
    return [info.base_name for info in infos if info.type == pafs.FileType.File]


def _hint(path: str, locate: Locate) -> int:
    with storage_errors(path, "read"), open_input(locate(path)) as source:
        text = source.read(100).decode("utf-8", "replace").strip()
    if not (text.isdecimal() and text.isascii()):
        raise StorageError(f"{path} does not hold a version but {text!a:.40}. Give the metadata file.")
    return int(text)


# Iceberg's columns as DuckLake's: types that are the same, defaults, and the ids of files without ids.


_TYPES: dict[type[Any], str] = {
    iceberg.BooleanType: "boolean",
    iceberg.IntegerType: "int32",
    iceberg.LongType: "int64",
    iceberg.FloatType: "float32",
    iceberg.DoubleType: "float64",
    iceberg.DateType: "date",
    iceberg.TimeType: "time",
    iceberg.TimestampType: "timestamp",
    iceberg.TimestamptzType: "timestamptz",
    iceberg.TimestampNanoType: "timestamp_ns",
    iceberg.StringType: "varchar",
    iceberg.UUIDType: "uuid",
    iceberg.BinaryType: "blob",
    iceberg.FixedType: "blob",
}


def columns_of(fields: Iterable[iceberg.NestedField], where: str) -> tuple[SourceColumn, ...]:
    """Return the columns of a schema."""
    return tuple(_column(field, where, "", is_top=True) for field in fields)


def _column(field: iceberg.NestedField, where: str, prefix: str, *, is_top: bool = False) -> SourceColumn:
    name = f"{prefix}{field.name}"
    type_, children = _type(field.field_type, where, name)
    made = SourceColumn(field.field_id, field.name, type_, nullable=not field.required, children=children)
    if field.initial_default is None and field.write_default is None:
        return made
    if not is_top or children:
        raise UnsupportedFeatureError(
            f"{where}: the field {name} has a default, and DuckLake has defaults of top-level columns that "
            "are not nested only. Rewrite the table without it, or insert its rows instead."
        )
    _, initial = default_of(field.initial_default, type_)
    default, _ = default_of(field.write_default, type_)
    return SourceColumn(
        made.key, made.name, type_, nullable=made.nullable, initial_default=initial, default=default
    )


def _type(
    type_: iceberg.IcebergType, where: str, name: str
) -> tuple[dl.DuckLakeType, tuple[SourceColumn, ...]]:
    match type_:
        case iceberg.StructType():
            children = tuple(_column(one, where, f"{name}.") for one in type_.fields)
            return dl.StructType(tuple(dl.Field(one.name, one.type) for one in children)), children
        case iceberg.ListType():
            element = _column(type_.element_field, where, f"{name}.")
            return dl.ListType(element.type), (element,)
        case iceberg.MapType():
            key, value = (_column(one, where, f"{name}.") for one in (type_.key_field, type_.value_field))
            return dl.MapType(key.type, value.type), (key, value)
        case iceberg.DecimalType():
            return dl.DecimalType(type_.precision, type_.scale), ()
        case _:
            return _scalar(type_, where, name), ()


def _scalar(type_: iceberg.IcebergType, where: str, name: str) -> dl.DuckLakeType:
    found = _TYPES.get(type(type_))
    if found is None:
        raise UnsupportedFeatureError(
            f"{where}: column {name} is of Iceberg's type {type_}, which has no equal in DuckLake. Rewrite "
            "the table without the column, or insert its rows with the column converted."
        )
    return dl.ScalarType(found)


def ids_of_names(mapping: NameMapping | None) -> dict[tuple[int | None, str], int]:
    """Return the ids that fields of files without ids have: by the id of the enclosing field and a name."""
    return dict(_ids(mapping.root, None)) if mapping is not None else {}


def _ids(fields: Iterable[MappedField], parent: int | None) -> Iterator[tuple[tuple[int | None, str], int]]:
    for one in fields:
        if one.field_id is None:
            continue
        for name in one.names:
            yield (parent, name), one.field_id
        yield from _ids(one.fields, one.field_id)


_NEWEST_FORMAT = 3


def iceberg_table(source: Source, locate: Locate) -> SourceTable:
    """Read the metadata of an Iceberg table; its snapshot None: the current one."""
    table, places = load_table(source, locate)
    with storage_errors(f"the metadata of {source.path}", "read"):  # whatever pyiceberg says of odd metadata
        return _at_snapshot(table, places, source.snapshot_id, source.path, locate)


def _at_snapshot(
    table: Table, places: Places, snapshot_id: int | None, source: str, locate: Locate
) -> SourceTable:
    snapshot = _snapshot(table, snapshot_id, source)
    where = f"{source} at snapshot {snapshot.snapshot_id}" if snapshot else f"{source}, which has no snapshot"
    _check_format(table, where)
    schema = _schema(table, snapshot if snapshot_id is not None else None)
    columns = columns_of(schema.fields, where)
    manifests = snapshot.manifests(table.io) if snapshot else []
    entries = _entries(table, manifests, where)
    by_id = {one.key: one for one in columns}
    deleted = _deleted(entries, _data_files_of_deletes(table, manifests), places, locate)
    return SourceTable(
        where,
        columns,
        tuple(_files(table, entries, by_id, places, deleted)),
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


def _entries(table: Table, manifests: Sequence[ManifestFile], where: str) -> list[ManifestEntry]:
    read = in_threads(lambda one: one.fetch_manifest_entry(table.io), manifests)
    for manifest, part in zip(manifests, read, strict=True):
        _check_count(manifest, len(part))
    entries = [entry for part in read for entry in part]
    for entry in entries:
        _check_file(entry.data_file, where)
    return entries


_DATA_FILE = iceberg.NestedField(143, "referenced_data_file", iceberg.StringType())
_ENTRY = Schema(
    iceberg.NestedField(0, "status", iceberg.IntegerType()),
    iceberg.NestedField(2, "data_file", iceberg.StructType(*DATA_FILE_TYPE[2].fields, _DATA_FILE)),
)


def _data_files_of_deletes(
    table: Table, manifests: Sequence[ManifestFile]
) -> Mapping[str, frozenset[str] | None]:
    """Return the data files that a file of deletes counts for, None for all; pyiceberg leaves them out."""
    of_deletes = [one for one in manifests if one.content is ManifestContent.DELETES]
    found: defaultdict[str, set[str | None]] = defaultdict(set)
    for part in in_threads(lambda one: _listed(table.io.new_input(one.manifest_path)), of_deletes):
        for status, (_, path, *_, data_file) in part:
            if status != ManifestEntryStatus.DELETED:
                found[path].add(data_file)
    return {path: None if None in names else frozenset(filter(None, names)) for path, names in found.items()}


def _listed(source: InputFile) -> list[Any]:
    entries: AvroFile[Any] = AvroFile(source, _ENTRY)
    with entries:
        return list(entries)


def _check_count(manifest: ManifestFile, found: int) -> None:
    """Refuse a manifest that does not have the files that its list says: rows would be lost silently."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    if None not in counts and sum(one or 0 for one in counts) != found:
        raise StorageError(
            f"{manifest.manifest_path} has {found} files, and {counts[0]} new and {counts[1]} older ones by "
            "the snapshot's list of manifests: it is damaged, or another file."
        )


def _content(file: DataFile) -> DataFileContent:
    """Return the content of a file; manifests of version 1 lack it, since they have data files only."""
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
    deleted: Mapping[str, Positions],
) -> Iterator[SourceFile]:
    specs = table.specs()
    for entry in entries:
        file = entry.data_file
        if _content(file) is not DataFileContent.DATA:
            continue
        yield SourceFile(
            places.checked(file.file_path),
            file.record_count,
            file.file_size_in_bytes,
            dict(_partition(file, specs[file.spec_id], columns)),
            deleted.get(file.file_path),
        )


def _deleted(
    entries: Sequence[ManifestEntry],
    referenced: Mapping[str, frozenset[str] | None],
    places: Places,
    locate: Locate,
) -> dict[str, Positions]:
    data = [one for one in entries if _content(one.data_file) is DataFileContent.DATA]
    of_data = {one.data_file.file_path: one.sequence_number or 0 for one in data}
    row_counts = {one.data_file.file_path: one.data_file.record_count for one in data}
    files = {
        IcebergDeletes(
            places.checked(one.data_file.file_path),
            one.data_file.file_format is FileFormat.PUFFIN,
            one.sequence_number or 0,
            referenced[one.data_file.file_path],
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
