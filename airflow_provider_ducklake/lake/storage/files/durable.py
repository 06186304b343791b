"""Files and directories of this machine that outlast a power cut: what a catalog names has to be there.

A file lasts when it is synced, and each new directory above it, too. *Source:* fsync(2): "Calling fsync()
does not necessarily ensure that the entry in the directory containing the file has also reached disk."
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path

from ...errors import StorageError
from ...format.names.paths import is_local
from .parallel import in_threads

# A file system that syncs no directories; a directory that this process may write, and not read.
_NOT_SYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}


# Of directories above those that get files: inode and change, whose names last. A change in the same tick of
# the file system's clock would not show.
_SYNCED: dict[Path, tuple[int, int]] = {}
_MOST_SYNCED = 4096
_TICK_NS = 1_000_000_000


def make_parents(path: Path) -> None:
    """Make the directories above a path that are missing, to last."""
    missing = list(takewhile(lambda one: not one.exists(), path.parents))
    path.parent.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def sync_directory(path: Path) -> None:
    """Make the names of a directory's files durable."""
    try:
        _sync(path, os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def sync_added(paths: Iterable[str], data_path: str) -> None:
    """Make files that a commit is to name durable, with their directories in the data path.

    Files in object stores last already. What is missing, or not for this process, is left alone.
    """
    files = [_local(path) for path in paths if is_local(path)]
    top = _local(data_path) if files and is_local(data_path) else None
    own = dict.fromkeys(file.parent for file in files)
    above = {parent: None for directory in own for parent in _new_parents(directory, top)}
    in_threads(lambda file: _sync_if_there(file, _sync), files)
    for directory in own:
        _sync_if_there(directory, sync_directory)
    for directory in above:
        _sync_if_there(directory, _sync_changed)


def _sync_changed(directory: Path) -> None:
    """Make the names of a directory's entries durable, unless they are since an earlier commit."""
    found = directory.stat()
    state = found.st_ino, found.st_mtime_ns
    if _SYNCED.get(directory) == state:
        return
    sync_directory(directory)
    if len(_SYNCED) >= _MOST_SYNCED:
        _SYNCED.clear()
    if found.st_mtime_ns < time.time_ns() - _TICK_NS:
        _SYNCED[directory] = state


def _sync_if_there(path: Path, sync: Callable[[Path], None]) -> None:
    try:
        sync(path)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        raise StorageError(f"Cannot write {path} to the disk: {error.strerror}.") from error


def _new_parents(directory: Path, top: Path | None) -> list[Path]:
    """Return the directories whose names may be new above one with files; outside the data path none."""
    parents = [directory, *directory.parents]
    return parents[1 : parents.index(top) + 2] if top in parents else []


def _local(path: str) -> Path:
    from .filesystem import open_filesystem

    return Path(open_filesystem(path, {}).path)


def _sync(path: Path, kind: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
