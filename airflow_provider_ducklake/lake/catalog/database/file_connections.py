"""Catalog files: those beside them that drivers open by their names, and who may read new ones."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UntrustedValueError
from ...format.log_lines import logger
from ...storage.files.local import sync_directory

if TYPE_CHECKING:
    from ...format.limits import Limits

log = logger(__name__)


class PatientSqlite(sqlite3.Connection):
    """A connection that logs who holds a lock for which it waits, as those to servers do."""

    def __init__(self, path: str, *, limits: Limits, **named: Any) -> None:  # noqa: ANN401 - sqlite3's own
        super().__init__(path, timeout=limits.logged_after_seconds, **named)
        self._file, self._limits = Path(path), limits

    def patiently(self, call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - sqlite3's own
        """Call again while another process has the file locked, and log once which one."""
        started, is_logged = time.monotonic(), False
        while True:
            try:
                return call(*arguments)
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - started
                has_waited = self._limits.logged_after_seconds * 0.9 <= waited  # else no wait helps
                is_locked = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not (is_locked and has_waited) or waited >= self._limits.lock_timeout_seconds:
                    raise
                if not is_logged:
                    holder = processes_that_lock(self._file)
                    log.warning("Waiting for the lock of %s: it is held by %s", self._file, holder)
                is_logged = True

    def commit(self) -> None:
        """Commit, once no other process reads the file."""
        self.patiently(super().commit)

    def cursor(self, factory: Any = None) -> Any:  # noqa: ANN401 - sqlite3's own
        return super().cursor(factory or _PatientCursor)


class _PatientCursor(sqlite3.Cursor):
    connection: PatientSqlite

    def execute(self, *arguments: Any) -> Any:  # noqa: ANN401 - sqlite3's own
        return self.connection.patiently(super().execute, *arguments)


def processes_that_lock(file: Path) -> str:
    """Describe who has locks on a file, by what Linux shows: processes of this machine, and container."""
    try:
        inode = file.stat().st_ino
        rows = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        rows, inode = [], 0
    found = {int(row[4]) for row in rows if "->" not in row and row[5].endswith(f":{inode}")}
    found -= {os.getpid(), 0, -1}
    if not found:
        return "another process that has the file open"
    return " and ".join(f"the process {pid}" for pid in sorted(found))


_LOCKS = Path("/proc/locks")


# The files beside a catalog file that are opened by their names: anyone who may write the directory can make
# them.
#
# SQLite and DuckDB open their journals and logs as they find them, and so does this provider its lock file:
# a link there would make them write another file, and a pipe would make them wait for ever.


_JOURNAL = "-journal"
_OF_SQLITE = (_JOURNAL, "-wal", "-shm")
OF_DUCKDB = (".wal", ".wal.recovery", ".wal.checkpoint")
_SPILLED = ".tmp"  # DuckDB's directory for what does not fit into memory
# Ends a journal that names the journal of a commit to several files, which SQLite deletes once it has rolled
# back. Only a program that writes two attached SQLite files in one transaction makes such a one: neither this
# provider nor DuckDB, which has a connection of SQLite's for each file. *Source:*
# https://www.sqlite.org/fileformat2.html#the_rollback_journal
_END_OF_NAME = bytes.fromhex("d9d505f920a163d7")


def check_sqlite(catalog: str) -> None:
    """Check that a SQLite file, and the files that SQLite opens beside it or its target, are plain files."""
    for place in _places(catalog):
        for end in _OF_SQLITE:
            if check_plain(place + end) is not None and end == _JOURNAL:
                _check_journal(place + end)


def check_duckdb(catalog: str) -> None:
    """Check that a DuckDB file, and the files that DuckDB opens beside it or its target, are plain files."""
    for place in _places(catalog):
        for end in OF_DUCKDB:
            check_plain(place + end)
        _check_own_directory(place + _SPILLED)


def _places(catalog: str) -> Iterator[str]:
    """Yield the path of a catalog, which may be a link to a regular file, and that of the file."""
    yield catalog
    try:
        mode = os.stat(catalog).st_mode  # noqa: PTH116 - paths take time, at each transaction
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # drivers refuse directories
            raise _refusal(catalog, "is not a regular file")
    except FileNotFoundError:
        return
    if os.path.islink(catalog):  # noqa: PTH114
        yield os.path.realpath(catalog)


def check_plain(path: str) -> os.stat_result | None:
    """Check that there is a regular file of no other name, and return its state, or that there is none."""
    found = _state(path)
    if found is None:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(path, "is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(path, "is not a regular file")
    if found.st_nlink > 1:
        raise _refusal(path, "is a hard link to a file that has other names")
    return found


def _state(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _check_own_directory(path: str) -> None:
    """Check that a path is a directory of this user, or nothing: others may put links in theirs."""
    found = _state(path)
    if found is not None and not (stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()):
        raise _refusal(path, "is not a directory of the user who runs this")


def _check_journal(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # most of the time there is none; what we may not read, SQLite may not either
        return
    try:
        size = os.fstat(file).st_size
        end = os.pread(file, len(_END_OF_NAME), max(0, size - len(_END_OF_NAME)))
    finally:
        os.close(file)
    if end == _END_OF_NAME:
        raise _refusal(path, "names another file, which SQLite would delete")


def _refusal(path: str, problem: str) -> UntrustedValueError:
    way_out = "While no program works on the catalog, move it away"
    folder, name = os.path.split(path)
    return UntrustedValueError(f"The directory {folder}", name, f"{problem}. {way_out}")


# Files with a catalog in them: who may read a new one, and a copy.


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
