"""Local files: where links lead, what kind of file a name stands for, and what outlasts a power cut.

A file lasts when it is synced, and each new directory above it, too. *Source:* fsync(2): "Calling fsync()
does not necessarily ensure that the entry in the directory containing the file has also reached disk."
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from ...errors import StorageError
from ...format.names.paths import is_absolute, is_below, is_local, misleading, split_scheme, with_slash
from .parallel import in_threads

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def real_path(path: str) -> str:
    """Follow the symbolic links of a local path to its place; another path stays as it is."""
    with suppress(ValueError):  # no file has a NUL character in its path
        return os.path.realpath(split_scheme(path)[1]) if is_local(path) else path
    return path


def lies_below(path: str, folder: str) -> bool:
    """Return True if a file lies below a folder, which ends in ``/``: a local one where links lead to.

    A store has no links: there the letters of the two decide.
    """
    if not (is_local(path) and is_local(folder)):
        return is_below(path, folder)
    if not is_absolute(path) or misleading(path.removeprefix(folder)) is not None:
        return False
    return with_slash(real_path(path)).startswith(with_slash(real_path(folder)))


def unlink_below(path: str, folder: str) -> None:
    """Delete a local file in the directory where it really is, which must be below a folder.

    The directory stays open, so that no link can come between the look and the deletion. A link
    in the place of the file itself goes, and not what it leads to.
    """
    above, name = os.path.split(path)
    directory = os.open(above, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    try:
        opened = f"/proc/self/fd/{directory}"
        place = real_path(opened if os.path.lexists(opened) else above)
        if not lies_below(place, folder):
            raise StorageError(f"a link leads to {place}, outside of {folder}: remove the link")
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)


@contextmanager
def regular_file(path: str) -> Iterator[str]:
    """Yield another path of a local file, which opens the same file even if the name is given to another.

    Opening a FIFO waits for a writer, and reading a device may never reach its end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            found = _KINDS.get(kind, "a special file")
            raise StorageError(f"Cannot read {path}: it is {found}. Correct the path, or put the file there.")
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


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
