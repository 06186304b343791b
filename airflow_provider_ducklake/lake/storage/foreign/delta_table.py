"""A Delta table at a version: what its log says, or why it cannot be taken.

*Source:* Delta's protocol. What a reader has to know stands in the protocol action: only features known here
are taken. Those of writers alone (constraints, generated columns, identities, change data feeds) change no
row that is there, and the lake does not go on with them.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.planning.writing.source_table import (
    IDENTITY,
    SourceFile,
    SourceTable,
    has_identity,
)
from airflow_provider_ducklake.lake.spec.defaults import literal_physical
from airflow_provider_ducklake.lake.spec.names.paths import is_absolute
from airflow_provider_ducklake.lake.spec.types.values import identity_text
from airflow_provider_ducklake.lake.storage.deletes.merged_deletes import positions_of
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    arrow_s3_options,
    naming_errors,
    open_filesystem,
)
from airflow_provider_ducklake.lake.storage.foreign.delta_log import check_log
from airflow_provider_ducklake.lake.storage.foreign.delta_types import DeltaTypes
from airflow_provider_ducklake.lake.storage.foreign.places import Places, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_ducklake.lake.planning.writing.source_table import PartitionKey, SourceColumn
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Positions

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
    """Return what a lake is to have of a Delta table; None: at its newest version.

    Raises:
        UnsupportedFeatureError: something in it cannot be carried over; names it.
        InvalidInputError: there is no such version.
        SourceNotFoundError: there is no such table.
        UntrustedValueError: the log names files outside the table's folder.
        StorageError: the log cannot be read, or something that it names is no file.
    """
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
        with naming_errors(what, "read"):
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
