"""Files and directories of this machine that outlast a power cut: what a catalog names has to be there.

A file lasts when it is synced, and each new directory above it, too. *Source:* fsync(2): "Calling fsync()
does not necessarily ensure that the entry in the directory containing the file has also reached disk."
"""

from __future__ import annotations

import errno
import os
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.spec.names.paths import is_local
from airflow_provider_ducklake.storage.files.parallel import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A file system that syncs no directories; a directory that this process may write, and not read.
_NOT_SYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}


def make_parents(path: Path) -> None:
    """Make the directories above a path that are missing, to last."""
    missing = list(takewhile(lambda one: not one.exists(), path.parents))
    path.parent.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def sync_directory(path: Path) -> None:
    """Have the names of a directory's files last."""
    try:
        _sync(path, os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def sync_added(paths: Iterable[str], data_path: str) -> None:
    """Have files last that a commit is to name, whoever wrote them, with their directories in the data path.

    Files in object stores last already. What is missing, or not for this process, is left alone.

    Raises:
        StorageError: the disk does not take one.
    """
    files = [_local(path) for path in paths if is_local(path)]
    top = _local(data_path) if files and is_local(data_path) else None
    directories = {parent: None for file in files for parent in _new_parents(file, top)}
    in_threads(lambda file: _sync_if_there(file, _sync), files)
    for directory in directories:
        _sync_if_there(directory, sync_directory)


def _sync_if_there(path: Path, sync: Callable[[Path], None]) -> None:
    try:
        sync(path)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        raise StorageError(f"Cannot write {path} to the disk: {error.strerror}.") from error


def _new_parents(file: Path, top: Path | None) -> list[Path]:
    """Return the directories above a file that may be new; of one outside the data path its own."""
    if top is None or top not in file.parents:
        return [file.parent]
    return [one for one in file.parents if top in (one, *one.parents)] + [top.parent]


def _local(path: str) -> Path:
    from airflow_provider_ducklake.storage.files.filesystem import open_filesystem  # noqa: PLC0415 - heavy

    return Path(open_filesystem(path, {}).path)


def _sync(path: Path, kind: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
