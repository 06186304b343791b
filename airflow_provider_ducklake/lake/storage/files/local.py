"""Local files as they really are: where links lead, and what kind of file a name stands for.

A path is judged where it is used, as the kernel follows it. Nothing here needs Arrow.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...errors import StorageError
from ...format.names.paths import is_absolute, is_below, is_local, misleading, split_scheme, with_slash

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
