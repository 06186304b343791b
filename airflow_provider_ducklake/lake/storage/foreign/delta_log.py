"""What a Delta table's log has its reader open, looked at before deltalake does.

deltalake opens what a log names, wherever that is and whatever it is: the files of deletion vectors, and the
parts of checkpoints. A log is looked at whole, from its newest checkpoint on, also what is no longer the
table's. *Source:* Delta's protocol, "Deletion Vectors", "Checkpoints" and "Sidecar File Information".
"""

from __future__ import annotations

import base64
import json
import os
import re
import string
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import StorageError, UntrustedValueError
from airflow_provider_ducklake.lake.spec.names.paths import is_absolute, is_local
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    MOST_READ_BYTES,
    child,
    read_whole,
    regular_file,
)
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.foreign.places import Places, spelled
from airflow_provider_ducklake.lake.storage.parquet.opening import open_plain_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_LOG, _SIDECARS = "_delta_log", "_sidecars"
_VERSION = r"([0-9]{20})"
_WHOLE_CHECKPOINT = re.compile(  # of its several forms those that nobody passes over
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
    """Look at the log of the table in ``folder`` up to a version; None: all of it.

    Raises:
        UntrustedValueError: it names a file outside the places, or in two ways.
        StorageError: it cannot be read, or a file of it is no file.
    """
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
        if storage is not None or name.startswith(_SIDECARS):  # nobody looks for parts in a part
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
    """Return the place of a file that deltalake may open, if it is one; it need not be there any more.

    Raises:
        UntrustedValueError: it lies elsewhere, or is read in two ways.
        StorageError: it is no file.
    """
    plain = unquote(path)
    is_relative = not is_absolute(spelled(plain))
    if _ODD.search(plain) or (is_relative and ":" in plain):
        raise UntrustedValueError(places.document, path, "is another place as a URL than as a path")
    found = places.checked(f"{places.folders[0]}{below}{plain}" if is_relative else plain)
    if is_local(found):
        with suppress(FileNotFoundError), regular_file(found) as opened:
            _check_size(found, os.stat(opened).st_size)  # noqa: PTH116
    return found
