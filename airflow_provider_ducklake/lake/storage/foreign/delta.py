"""A Delta table at a version: the content of its log, or why it cannot be added.

*Source:* Delta's protocol. The protocol action lists what a reader must support: only features known here
are accepted. Those of writers alone (constraints, generated columns, identities, change data feeds) change no
row that is there, and the lake does not go on with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ...errors import InvalidInputError, SourceNotFoundError, StorageError, UnsupportedFeatureError
from ...format.defaults import literal_physical
from ...format.names.paths import is_absolute
from ...format.types import ducklake_types as dl
from ...format.types.values import identity_text
from ...planning.writing.source_table import (
    IDENTITY,
    PartitionKey,
    SourceColumn,
    SourceFile,
    SourceTable,
    has_identity,
)
from ..deletes.deletes import positions_of
from ..files.filesystem import StorageOptions, arrow_s3_options, storage_errors
from .source import Places, Source, spelled

if TYPE_CHECKING:
    from ...transaction.changes import Positions


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

    def _type(self, type_: Any, name: str) -> tuple[dl.DuckLakeType, tuple[SourceColumn, ...]]:  # noqa: ANN401 - JSON
        if isinstance(type_, str):
            return self._scalar(type_, name), ()
        match type_["type"]:
            case "struct":
                children = self.columns(type_["fields"], f"{name}.")
                return dl.StructType(tuple(dl.Field(one.name, one.type) for one in children)), children
            case "array":
                element = self._inner(type_["elementType"], name, "element")
                return dl.ListType(element.type), (element,)
            case "map":
                key = self._inner(type_["keyType"], name, "key")
                value = self._inner(type_["valueType"], name, "value")
                return dl.MapType(key.type, value.type), (key, value)
            case other:
                raise self._refused(name, other)

    def _inner(self, type_: Any, name: str, word: str) -> SourceColumn:  # noqa: ANN401 - JSON
        found, children = self._type(type_, f"{name}.{word}")
        return SourceColumn(word, word, found, children=children)

    def _scalar(self, text: str, name: str) -> dl.DuckLakeType:
        if (match := _DECIMAL.fullmatch(text)) is not None:
            return dl.DecimalType(int(match[1]), int(match[2]))
        if text not in _TYPES:
            raise self._refused(name, text)
        return dl.ScalarType(_TYPES[text])

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


def delta_table(source: Source, storage_options: StorageOptions) -> SourceTable:
    """Read the metadata of a Delta table; its version None: the newest one.

    deltalake opens whatever the log names: files of deletion vectors, and parts of checkpoints.
    """
    folder = spelled(source.path)
    if not is_absolute(folder):
        raise InvalidInputError(f"The source {source.path!r} is relative; give an absolute path or a URI.")
    places = Places.of(f"The log of {source.path}", folder, source.allowed_paths)
    with _reading(f"the log of {source.path}"):
        options = {**object_store_options(storage_options), **source.storage_options}
        table = _opened(folder, source.version, options)
        return _at_version(table, f"{source.path} at version {table.version()}", places)


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


_OF_FILES = ("path", "size_bytes", "num_records", "partition")  # without the statistics of each column


def _at_version(table: DeltaTable, where: str, places: Places) -> SourceTable:
    features = _check_features(table, where)
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    columns = DeltaTypes(where, mode).columns(json.loads(table.schema().to_json())["fields"])
    by_name = {one.name: one for one in columns}
    partition_by = [by_name[name] for name in table.metadata().partition_columns]
    deleted = dict(_deleted(table)) if "deletionVectors" in features else {}
    actions = pa.table(table.get_add_actions(flatten=False))
    known = [one for one in _OF_FILES if one in actions.column_names]
    files = tuple(
        _file(action, partition_by, places, deleted) for action in actions.select(known).to_pylist()
    )
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
    action: Mapping[str, Any], partition_by: list[SourceColumn], places: Places, deleted: dict[str, Positions]
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
