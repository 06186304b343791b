"""A Delta table at a version: the content of its log, or why it cannot be added.

*Source:* Delta's protocol. The protocol action lists what a reader must support: only features known here
are accepted. Those of writers alone (constraints, generated columns, identities, change data feeds) change no
row that is there, and the lake does not go on with them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import string
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
    UntrustedValueError,
)
from airflow_provider_ducklake.lake.planning.writing.source_table import (
    IDENTITY,
    SourceColumn,
    SourceFile,
    SourceTable,
    has_identity,
)
from airflow_provider_ducklake.lake.spec.defaults import literal_physical
from airflow_provider_ducklake.lake.spec.names.paths import is_absolute, is_local
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
)
from airflow_provider_ducklake.lake.spec.types.values import identity_text
from airflow_provider_ducklake.lake.storage.deletes.deletes import positions_of
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    MOST_READ_BYTES,
    arrow_s3_options,
    child,
    open_filesystem,
    read_whole,
    storage_errors,
)
from airflow_provider_ducklake.lake.storage.files.local import regular_file
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.foreign.files import Places, spelled
from airflow_provider_ducklake.lake.storage.parquet.opening import open_plain_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow_provider_ducklake.lake.planning.writing.source_table import PartitionKey
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Positions


# What a Delta table's log has its reader open, looked at before deltalake does.
#
# deltalake opens what a log names, wherever that is and whatever it is: the files of deletion vectors, and
# the parts of checkpoints. A log is looked at whole, from its newest checkpoint on, also what is no longer
# the table's. *Source:* Delta's protocol, "Deletion Vectors", "Checkpoints" and "Sidecar File Information".


_LOG, _SIDECARS = "_delta_log", "_sidecars"
_VERSION = r"([0-9]{20})"
_WHOLE_CHECKPOINT = re.compile(  # of its several forms those that every reader uses
    rf"{_VERSION}\.checkpoint\.(?:parquet|[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.(?:json|parquet))"
)
_FILE = re.compile(rf"{_VERSION}(?:\.[0-9A-Za-z.-]+)?\.(?:json|parquet)")
_ODD = re.compile(r"[\x00-\x1f\x7f\\?#]")  # in a URL something else than in a path
_COLUMNS = ("add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv", "sidecar.path")
_Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
_B85 = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85 = str.maketrans(_Z85, _B85)
_UUID_CHARACTERS = 20
_LEAST_INLINE = 20  # characters of a vector without rows


def check_log(folder: str, places: Places, version: int | None, locate: Callable[[str], Location]) -> None:
    """Look at the log of the table in ``folder`` up to a version; None: all of it."""
    log = child(locate(folder), _LOG)
    infos = log.filesystem.get_file_info(pafs.FileSelector(log.path, allow_not_found=True))
    for info in infos:
        _check_file(info, log)
    names = [info.base_name for info in infos if info.type == pafs.FileType.File]
    in_threads(partial(_check_named, places=places, log=log), _files(names, version))


def _check_file(info: pafs.FileInfo, log: Location) -> None:
    place = child(log, info.base_name)
    if log.is_local and info.type == pafs.FileType.Unknown:
        with regular_file(place.path):
            pass
    if info.type == pafs.FileType.File and not info.path.endswith(".parquet"):
        _check_size(place.uri, info.size or 0)


def _check_size(path: str, size: int) -> None:
    if size > MOST_READ_BYTES:
        raise StorageError(
            f"Cannot read {path}: it has {size} bytes, and such a file has {MOST_READ_BYTES} at most. Find "
            "out who wrote it."
        )


def _files(names: list[str], version: int | None) -> list[str]:
    """Return the files of a log that a reader of the version may read."""
    numbered = {name: int(match[1]) for name in names if (match := _FILE.fullmatch(name)) is not None}
    known = {name: one for name, one in numbered.items() if version is None or one <= version}
    start = max((one for name, one in known.items() if _WHOLE_CHECKPOINT.fullmatch(name)), default=0)
    return sorted(name for name, one in known.items() if one >= start)


def _check_named(name: str, places: Places, log: Location) -> None:
    for storage, text in _named(child(log, name)):
        if storage is not None:
            _check_vector(storage, text, places)
        if storage is not None or name.startswith(_SIDECARS):  # a part has no parts
            continue
        sidecar = _checked(text, f"{_LOG}/{_SIDECARS}/", places)
        folder, _, inner = sidecar.rpartition("/")
        if folder != f"{places.folders[0]}{_LOG}/{_SIDECARS}":
            raise UntrustedValueError(places.document, text, "is not in the folder for parts of checkpoints")
        _check_named(f"{_SIDECARS}/{inner}", places, log)


def _named(place: Location) -> Iterator[tuple[str | None, str]]:
    """Yield what a file of the log names: storage and text of a vector, None and the path of a sidecar."""
    if place.uri.endswith(".parquet"):
        with open_plain_parquet(place) as source:
            rows = pq.ParquetFile(source).read(columns=list(_COLUMNS)).flatten().flatten()
        if len(set(rows.column_names)) < len(rows.column_names):
            raise StorageError(f"{place.uri} has a column twice.")
        known = {name: rows[name].to_pylist() for name in _COLUMNS if name in rows.column_names}
        storages, texts, sidecars = (known.get(name, []) for name in _COLUMNS)
        yield from ((one, text) for one, text in zip(storages, texts, strict=True) if one is not None)
        yield from ((None, one) for one in sidecars if one is not None)
        return
    for line in read_whole(place).splitlines():
        if line.strip():
            action = json.loads(line.decode(), object_pairs_hook=_once)
            if (vector := (action.get("add") or {}).get("deletionVector")) is not None:
                yield str(vector["storageType"]), vector["pathOrInlineDv"]
            if (sidecar := action.get("sidecar")) is not None:
                yield None, sidecar["path"]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an action has a key twice")
    return found


def _check_vector(storage: str, text: str, places: Places) -> None:
    match storage:
        case "i" if len(text) >= _LEAST_INLINE:
            return
        case "u" if len(text) >= _UUID_CHARACTERS:
            prefix, name = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
            id_ = UUID(bytes=base64.b85decode(name.translate(_FROM_Z85)))
            _checked(f"{prefix}{'/' if prefix else ''}deletion_vector_{id_}.bin", "", places)
        case "p":
            _checked(text, "", places)
        case _:
            raise StorageError(
                f"{places.document} has a deletion vector that is none: {text!a:.40} of storage type "
                f"{storage!a:.10}. Restore the log from a backup, or insert the table's rows instead."
            )


def _checked(path: str, below: str, places: Places) -> str:
    """Return the place of a file that deltalake may open, if it is one; it need not be there any more."""
    plain = unquote(path)
    is_relative = not is_absolute(spelled(plain))
    if _ODD.search(plain) or (is_relative and ":" in plain):
        raise UntrustedValueError(places.document, path, "is another place as a URL than as a path")
    found = places.checked(f"{places.folders[0]}{below}{plain}" if is_relative else plain)
    if is_local(found):
        with suppress(FileNotFoundError), regular_file(found) as opened:
            _check_size(found, os.stat(opened).st_size)  # noqa: PTH116
    return found


# Delta's columns as DuckLake's.
#
# *Source:* Delta's protocol, "Schema Serialization Format" and "Column Mapping".


_TYPES = {
    "boolean": "boolean",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "varchar",
    "binary": "blob",
}
_DECIMAL = re.compile(r"decimal\((\d{1,3}),\s*(\d{1,3})\)")
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class DeltaTypes:
    """The columns of a schema; ``mode`` is the table's column mapping: none, name or id."""

    def __init__(self, where: str, mode: str) -> None:
        self._where = where
        self._mode = mode

    def columns(self, fields: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[SourceColumn, ...]:
        """Return the columns of fields of a schema's JSON."""
        return tuple(self._column(field, prefix) for field in fields)

    def _column(self, field: Mapping[str, Any], prefix: str) -> SourceColumn:
        name = field["name"]
        type_, children = self._type(field["type"], f"{prefix}{name}")
        return SourceColumn(self._key(field), name, type_, nullable=field["nullable"], children=children)

    def _key(self, field: Mapping[str, Any]) -> str | int:
        match self._mode:
            case "id":
                return int(field["metadata"][_ID])
            case "name":
                return str(field["metadata"][_PHYSICAL_NAME])
            case _:
                return str(field["name"])

    def _type(self, type_: Any, name: str) -> tuple[DuckLakeType, tuple[SourceColumn, ...]]:  # noqa: ANN401 - JSON
        if isinstance(type_, str):
            return self._scalar(type_, name), ()
        match type_["type"]:
            case "struct":
                children = self.columns(type_["fields"], f"{name}.")
                return StructType(tuple(Field(one.name, one.type) for one in children)), children
            case "array":
                element = self._inner(type_["elementType"], name, "element")
                return ListType(element.type), (element,)
            case "map":
                key = self._inner(type_["keyType"], name, "key")
                value = self._inner(type_["valueType"], name, "value")
                return MapType(key.type, value.type), (key, value)
            case other:
                raise self._refused(name, other)

    def _inner(self, type_: Any, name: str, word: str) -> SourceColumn:  # noqa: ANN401 - JSON
        found, children = self._type(type_, f"{name}.{word}")
        return SourceColumn(word, word, found, children=children)

    def _scalar(self, text: str, name: str) -> DuckLakeType:
        if (match := _DECIMAL.fullmatch(text)) is not None:
            return DecimalType(int(match[1]), int(match[2]))
        if text not in _TYPES:
            raise self._refused(name, text)
        return ScalarType(_TYPES[text])

    def _refused(self, name: str, type_: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{self._where}: column {name} is of Delta's type {type_}, which has no equal in DuckLake. "
            "Rewrite the table without the column, or insert its rows with the column converted."
        )


# Wider types: each file's own are looked at. Variants: the type of a column is refused, not the feature.
_KNOWN_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding-preview",
    }
)
_FEATURES_VERSION = 3  # of readers, from which on the protocol lists features


def delta_table(
    source: str,
    locate: Callable[[str], Location] = open_filesystem,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    allowed_paths: tuple[str, ...] = (),
) -> SourceTable:
    """Read the metadata of a Delta table; ``version`` None: the newest one."""
    folder = spelled(source)
    if not is_absolute(folder):
        raise InvalidInputError(f"The source {source!r} is relative; give an absolute path or a URI.")
    places = Places.of(f"The log of {source}", folder, allowed_paths)
    with _reading(f"the log of {source}"):
        check_log(folder, places, version, locate)
        table = _opened(folder, version, storage_options or {})
        return _at_version(table, f"{source} at version {table.version()}", places)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn whatever deltalake says of an odd log into an error of ours, also when it breaks down at it."""
    try:
        with storage_errors(what, "read"):
            yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # which pyo3 does not export
            raise
        raise StorageError(
            f"Cannot read {what}: deltalake broke down at it ({error}). Restore the log from a backup, or "
            "insert the table's rows instead."
        ) from None


def _at_version(table: DeltaTable, where: str, places: Places) -> SourceTable:
    features = _check_features(table, where)
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    columns = DeltaTypes(where, mode).columns(json.loads(table.schema().to_json())["fields"])
    by_name = {one.name: one for one in columns}
    partition_by = [by_name[name] for name in table.metadata().partition_columns]
    deleted = dict(_deleted(table)) if "deletionVectors" in features else {}
    actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    files = tuple(_file(action, partition_by, places, deleted) for action in actions)
    if deleted:
        raise StorageError(f"{where} has deletion vectors of files that it does not have: {min(deleted)}.")
    return SourceTable(
        where,
        columns,
        files,
        tuple((one.key, IDENTITY) for one in partition_by if has_identity(one.type)),
        by_id=mode == "id",
        folders_win=True,
    )


def _opened(folder: str, version: int | None, storage_options: Mapping[str, str]) -> DeltaTable:
    try:
        return DeltaTable(folder, version=version, storage_options=dict(storage_options))
    except TableNotFoundError as error:
        raise SourceNotFoundError("the Delta table", folder) from error
    except (DeltaError, OSError, ValueError) as error:
        if version is not None and "version" in str(error).lower():
            raise InvalidInputError(f"{folder} has no version {version} that can be read: {error}") from error
        raise StorageError(f"Cannot read the log of {folder}: {error}") from error


def _check_features(table: DeltaTable, where: str) -> frozenset[str]:
    protocol = table.protocol()
    features = frozenset(protocol.reader_features or ())
    if protocol.min_reader_version > _FEATURES_VERSION:
        raise UnsupportedFeatureError(
            f"{where} needs a reader of version {protocol.min_reader_version}; tables up to version "
            f"{_FEATURES_VERSION} can be added."
        )
    if unknown := sorted(features - _KNOWN_FEATURES):
        raise UnsupportedFeatureError(
            f"{where} has the table features {', '.join(unknown)}, which DuckLake does not have. Drop them "
            "from the table, or insert its rows instead."
        )
    return features


def _file(
    action: Mapping[str, Any],
    partition_by: list[SourceColumn],
    places: Places,
    deleted: dict[str, Positions],
) -> SourceFile:
    path = unquote(action["path"])
    path = places.checked(path if is_absolute(spelled(path)) else f"{places.folders[0]}{path}")
    values = action.get("partition") or {}
    return SourceFile(
        path,
        action["num_records"],
        action["size_bytes"],
        dict(_partition(one, values[one.name]) for one in partition_by),
        deleted.pop(path, None),
    )


def _partition(column: SourceColumn, value: Any) -> tuple[PartitionKey, str | None]:  # noqa: ANN401 - of any type
    text = None if value is None else identity_text(column.type, literal_physical(column.type, value))
    return (column.key, IDENTITY), text


def _deleted(table: DeltaTable) -> Iterator[tuple[str, Positions]]:
    """Yield the deleted rows of files, by their paths; deltalake reads vectors as masks of rows to keep."""
    for batch in table.deletion_vectors():
        rows = pa.record_batch(batch)
        for path, kept in zip(rows.column("filepath"), rows.column("selection_vector"), strict=True):
            gone = pc.indices_nonzero(pc.invert(kept.values)).cast(pa.int64())
            yield unquote(spelled(path.as_py())), positions_of(gone)  # deltalake makes URIs of paths


def object_store_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the lake's own options for S3 under the names that deltalake has for them.

    >>> object_store_options({"key": "id", "endpoint_url": "http://minio:9000"})
    {'aws_access_key_id': 'id', 'aws_endpoint_url': 'http://minio:9000', 'aws_allow_http': 'true'}
    """
    known = arrow_s3_options(options)
    found = {name: str(known[ours]) for ours, name in _S3_NAMES.items() if ours in known}
    if known.get("anonymous"):
        found["aws_skip_signature"] = "true"
    if found.get("aws_endpoint_url", "").startswith("http://"):
        found["aws_allow_http"] = "true"
    return found


_S3_NAMES = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint_override": "aws_endpoint_url",
}
