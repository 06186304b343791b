"""Copy the files of a frozen lake, and put its catalog in its place."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import UntrustedValueError
from airflow_provider_ducklake.lake.storage.files.copying import copy_file
from airflow_provider_ducklake.lake.storage.files.durable import make_parents, sync_directory
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    child,
    exists,
    file_sizes,
    naming_errors,
    open_filesystem,
    open_input,
)
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location, StorageOptions
    from airflow_provider_ducklake.lake.storage.moving.copied_file import CopiedFile

_PRIVATE = 0o600
_LEAST_BYTES = 12  # of a Parquet file: its words at both ends, and the length of its footer
_OF_LAKES = {(word, word) for word in (b"PAR1", b"PARE", b"PFA1")}  # Parquet, encrypted, Puffin


def copy_files(
    copies: Mapping[str, CopiedFile],
    folder: str,
    options: StorageOptions,
    locate: Callable[[str], Location],
) -> None:
    """Copy files, several at once; ``copies`` are those by the path below ``folder``.

    Those that are there already, by their size, were copied by a try before: files of a lake never change.

    Raises:
        StorageError: one is missing or cannot be copied; names it.
        UntrustedValueError: one is no file of a lake, or a link leads a copy elsewhere; names it.
    """
    there = file_sizes(folder, options)
    target = open_filesystem(folder, options)

    def copy(path: str) -> None:
        source, place = locate(copies[path].source), child(target, path)
        _check_is_of_a_lake(source, copies[path].size)
        if place.is_local and not _real(Path(place.path).parent).is_relative_to(_real(Path(target.path))):
            problem = "would lie elsewhere by a link in the folder"
            raise UntrustedValueError(f"The export to {folder}", path, problem)
        copy_file(source, place)

    in_threads(copy, [path for path, file in copies.items() if there.get(path, -1) != file.size])


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _check_is_of_a_lake(file: Location, size: int | None) -> None:
    """Refuse what is no Parquet or Puffin file of its size: a row of the catalog may name any file.

    Raises:
        UntrustedValueError: it is not; names it.
        StorageError: it cannot be read.
    """
    with naming_errors(file.uri, "read"), open_input(file) as stream:
        found = stream.size()
        ends = (stream.read(4), b"") if found < _LEAST_BYTES else (stream.read(4), _last(stream, found))
    if ends not in _OF_LAKES or (size is not None and size != found):
        problem = f"has {found} bytes and is not the file of {size} bytes that a lake would have there"
        raise UntrustedValueError("A row of the catalog", file.uri, problem)


def _last(stream: pa.NativeFile, size: int) -> bytes:
    stream.seek(size - 4)
    return bytes(stream.read(4))


def is_there(path: str, options: StorageOptions) -> bool:
    """Whether a file is there.

    Raises:
        StorageError: the store cannot be reached.
    """
    return exists(path, options)


def fetch(path: str, to: Path, options: StorageOptions) -> None:
    """Copy a file to a local one.

    Raises:
        StorageError: it cannot be read.
    """
    copy_file(open_filesystem(path, options), open_filesystem(str(to), {}))


def publish(made: Path, path: str, options: StorageOptions, *, mode: int, replaces: bool) -> bool:
    """Put a file where it is to be, whole at once, on a local disk with a mode; return whether it is there.

    False: another one came first, and ``replaces`` is not given. An object store keeps whichever comes last.

    Raises:
        StorageError: it cannot be written.
    """
    target = open_filesystem(path, options)
    if not target.is_local:
        copy_file(open_filesystem(str(made), {}), target)
        return True
    with naming_errors(path, "write"):
        return _publish_locally(made, Path(target.path), mode=mode, replaces=replaces)


def _linked(made: Path, target: Path) -> bool:
    """Give a file its name where nothing has it, and return whether that was so."""
    try:
        target.hardlink_to(made)  # unlike a rename it fails where something is
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if target.exists():
            return False
        made.replace(target)
    return True


def _publish_locally(made: Path, target: Path, *, mode: int, replaces: bool) -> bool:
    make_parents(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.touch(_PRIVATE, exist_ok=False)
        shutil.copyfile(made, temporary)
        temporary.chmod(mode)
        with temporary.open("rb") as copied:
            os.fsync(copied.fileno())
        if replaces:
            temporary.replace(target)
        elif not _linked(temporary, target):
            return False
        sync_directory(target.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)
