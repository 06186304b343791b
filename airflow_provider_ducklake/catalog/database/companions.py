"""The files beside a catalog file that are opened by their names: whoever writes the directory can make them.

SQLite and DuckDB open their journals and logs as they find them, and so does this provider its lock file: a
link there would make them write another file, and a pipe would make them wait for ever.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from airflow_provider_ducklake.errors import UntrustedValueError

_JOURNAL = "-journal"
_OF_SQLITE = (_JOURNAL, "-wal", "-shm")
OF_DUCKDB = (".wal", ".wal.recovery", ".wal.checkpoint")
_SPILLED = ".tmp"  # DuckDB's directory for what does not fit into memory
# Ends a journal that names the journal of a commit to several files, which SQLite deletes once it has rolled
# back. Only a program that writes two attached SQLite files in one transaction makes such a one: neither this
# provider nor DuckDB, which has a connection of SQLite's for each file. *Source:*
# https://www.sqlite.org/fileformat2.html#the_rollback_journal
_END_OF_NAME = bytes.fromhex("d9d505f920a163d7")


def check_sqlite(catalog: Path) -> None:
    """Check that a SQLite file, and the files that SQLite opens beside it or its target, are plain files.

    Raises:
        UntrustedValueError: names one that is not, or a journal by which SQLite would delete another file.
    """
    _check_file(catalog)
    for place in {catalog, Path(os.path.realpath(catalog))}:
        for end in _OF_SQLITE:
            check_plain(place.with_name(place.name + end))
        _check_journal(place.with_name(place.name + _JOURNAL))


def check_duckdb(catalog: Path) -> None:
    """Check that a DuckDB file, and the files that DuckDB opens beside it, are plain files.

    Raises:
        UntrustedValueError: names one that is not.
    """
    _check_file(catalog)
    for end in OF_DUCKDB:
        check_plain(catalog.with_name(catalog.name + end))
    _check_own_directory(catalog.with_name(catalog.name + _SPILLED))


def _check_file(catalog: Path) -> None:
    if catalog.exists() and not catalog.is_file():
        raise _refusal(catalog, "is not a regular file")


def check_plain(path: Path) -> os.stat_result | None:
    """Check that there is a regular file of no other name, and return its state, or that there is none.

    Raises:
        UntrustedValueError: it is something else.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(path, "is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(path, "is not a regular file")
    if found.st_nlink > 1:
        raise _refusal(path, "is a hard link to a file that has other names")
    return found


def _check_own_directory(path: Path) -> None:
    """Check that a path is a directory of this user, or nothing: others may put links in theirs."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise _refusal(path, "is not a directory of the user who runs this")


def _check_journal(path: Path) -> None:
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


def _refusal(path: Path, problem: str) -> UntrustedValueError:
    way_out = "While no program works on the catalog, move it away"
    return UntrustedValueError(f"The directory {path.parent}", path.name, f"{problem}. {way_out}")
