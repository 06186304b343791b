"""Copy the files of a frozen lake, and put its catalog in its place."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.storage.files.copying import copy_file
from airflow_provider_ducklake.storage.files.durable import make_parents, sync_directory
from airflow_provider_ducklake.storage.files.filesystem import (
    child,
    exists,
    file_sizes,
    naming_errors,
    open_filesystem,
)
from airflow_provider_ducklake.storage.files.parallel import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_ducklake.storage.files.filesystem import Location, StorageOptions
    from airflow_provider_ducklake.storage.moving.copied_file import CopiedFile

_PRIVATE = 0o600


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
    """
    there = file_sizes(folder, options)
    target = open_filesystem(folder, options)

    def copy(path: str) -> None:
        copy_file(locate(copies[path].source), child(target, path))

    in_threads(copy, [path for path, file in copies.items() if there.get(path, -1) != file.size])


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
