"""Files with a catalog in them: who may read a new one, and a copy."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.storage.files.durable import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYBODY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH  # may read
_OWNERS = stat.S_IRUSR | stat.S_IWUSR
_GROUPS = stat.S_IRWXG


def readers(file: Path) -> int:
    """Return the mode of a new read-only file that only the readers of this one may read."""
    found = file.stat()
    mode = stat.S_IRUSR | (stat.S_IMODE(found.st_mode) & EVERYBODY)
    is_of_our_group = found.st_gid == os.getegid()
    return mode if is_of_our_group or mode & stat.S_IROTH else mode & ~_GROUPS


@contextmanager
def made_private(target: Path, like: Path | None = None) -> Iterator[Path]:
    """Yield a path in a directory of this user alone; after the block the file made there is at ``target``.

    There it is for its owner alone, or for those who may open the file that it is ``like``. A file that is
    there already stays.
    """
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        made = Path(folder) / target.name
        yield made
        made.chmod(_OWNERS)
        if like is not None:
            _open_as(made, like.stat())
        _place(made, target)
        sync_directory(target.parent)


def _open_as(made: Path, like: os.stat_result) -> None:
    """Give a file the mode of another, but nothing to a group that the other one does not have."""
    mode = stat.S_IMODE(like.st_mode)
    try:
        os.chown(made, -1, like.st_gid)
    except PermissionError:
        mode &= ~_GROUPS
    made.chmod(mode)


def _place(made: Path, target: Path) -> None:
    try:
        target.hardlink_to(made)  # unlike a rename it fails where something is
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not target.exists():
            made.replace(target)
