"""Delete many files: in few requests if the store takes several at once, continuing after failures."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.storage.files.filesystem import Location, fsspec_of, open_filesystem, reason_of
from airflow_provider_ducklake.storage.files.parallel import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_ducklake.storage.files.filesystem import StorageOptions

_PATTERN = frozenset("*?[")  # with one of these in a path, fsspec would delete what the path matches


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of one file: ``was_there`` None: the store did not say; ``error`` None: it is gone."""

    path: str
    was_there: bool | None = None
    error: str | None = None


def delete_files(paths: Iterable[str], storage_options: StorageOptions | None = None) -> list[Deletion]:
    """Delete files, and say of each what became of it, in their order; one that is not there is gone.

    A path that nothing here can open is one that could not be deleted: it does not keep the others.
    """
    given = list(paths)
    opened = {path: _open(path, storage_options) for path in given}
    done = {path: one for path, one in opened.items() if isinstance(one, Deletion)}
    done |= _delete([one for one in opened.values() if isinstance(one, Location)])
    return [done[path] for path in given]


def _open(path: str, storage_options: StorageOptions | None) -> Location | Deletion:
    try:
        return open_filesystem(path, storage_options)
    except StorageError as error:
        return Deletion(path, error=str(error))


def _delete(locations: Sequence[Location]) -> dict[str, Deletion]:
    remote = [one for one in locations if fsspec_of(one) is not None and not _PATTERN & set(one.path)]
    done = _delete_together(remote)
    rest = [one for one in locations if one.uri not in done]
    return done | {one.path: one for one in in_threads(_delete_one, rest)}


def _delete_together(locations: Sequence[Location]) -> dict[str, Deletion]:
    """Delete with one call of each file system; what the calls do not take, one by one will say why."""
    by_filesystem: dict[int, tuple[Any, list[Location]]] = {}
    for one in locations:
        filesystem = fsspec_of(one)
        by_filesystem.setdefault(id(filesystem), (filesystem, []))[1].append(one)
    done: dict[str, Deletion] = {}
    for filesystem, members in by_filesystem.values():
        with suppress(Exception):
            filesystem.rm([one.path for one in members])
            done |= {one.uri: Deletion(one.uri) for one in members}
    return done


def _delete_one(location: Location) -> Deletion:
    delete = _how_to_delete(location)
    try:
        delete(location.path)
    except FileNotFoundError:
        return Deletion(location.uri, was_there=False)
    except Exception as error:  # noqa: BLE001 - each store has its own; the caller names them all
        return Deletion(location.uri, error=reason_of(error))
    return Deletion(location.uri, was_there=True)


def _how_to_delete(location: Location) -> Callable[[str], object]:
    filesystem = fsspec_of(location)
    if filesystem is not None:
        return filesystem.rm_file  # type: ignore[no-any-return]
    if isinstance(location.filesystem, pafs.LocalFileSystem):
        return os.unlink
    return location.filesystem.delete_file  # type: ignore[no-any-return]
