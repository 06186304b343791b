"""Delete many files: in few requests if the store takes several at once, continuing after failures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    Location,
    bucket_and_key,
    file_sizes,
    fsspec_of,
    naming_errors,
    open_filesystem,
    remover_of,
)
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.files.refusals import reason_of, reason_of_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_ducklake.lake.storage.files.filesystem import StorageOptions

_AT_ONCE = 1000  # objects in one request to S3


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


def delete_by_name(path: str, prefix: str, storage_options: StorageOptions | None = None) -> None:
    """Delete all files below a directory whose names begin with ``prefix``; it is listed for that.

    Raises:
        StorageError: one could not be deleted.
    """
    names = (name for name in file_sizes(path, storage_options) if name.rpartition("/")[2].startswith(prefix))
    _check_gone(delete_files([path + name for name in names], storage_options))


def delete_tree(path: str, storage_options: StorageOptions | None = None) -> None:
    """Delete a directory or prefix with all that it holds; nothing there is fine.

    Raises:
        StorageError: something could not be deleted.
    """
    location = open_filesystem(path, storage_options)
    directory = location.path.rstrip("/")
    if "/" not in directory.strip("/"):
        raise StorageError(f"Refusing to delete {path}: it is a whole bucket or a top-level directory.")
    if _is_s3(location):
        root = path.rstrip("/") + "/"
        names = file_sizes(root, storage_options)
        _check_gone(delete_files([root + name for name in names], storage_options))
        return
    with naming_errors(path, "delete"):
        if location.filesystem.get_file_info(directory).type == pafs.FileType.Directory:
            location.filesystem.delete_dir(directory)


def _check_gone(deletions: Iterable[Deletion]) -> None:
    failed = next((one for one in deletions if one.error is not None), None)
    if failed is not None:
        raise StorageError(f"Cannot delete {failed.path}: {failed.error}.")


def _delete(locations: Sequence[Location]) -> dict[str, Deletion]:
    done: dict[str, Deletion] = {}
    for members in _by_bucket(locations):
        for start in range(0, len(members), _AT_ONCE):
            with suppress(Exception):  # one by one will say why
                done |= _delete_together(members[start : start + _AT_ONCE])
    rest = [one for one in locations if one.uri not in done]
    return done | {one.path: one for one in in_threads(_delete_one, rest)}


def _is_s3(location: Location) -> bool:
    """Whether it is s3fs that reaches a place; it alone is silent about what it could not delete."""
    return hasattr(fsspec_of(location), "call_s3")


def _by_bucket(locations: Iterable[Location]) -> Iterable[list[Location]]:
    """Return those in buckets of S3, together where they are in one."""
    found: dict[tuple[int, str], list[Location]] = {}
    for one in locations:
        if _is_s3(one):
            filesystem = fsspec_of(one)
            bucket, _ = bucket_and_key(filesystem, one.path)
            found.setdefault((id(filesystem), bucket), []).append(one)
    return found.values()


def _delete_together(members: Sequence[Location]) -> dict[str, Deletion]:
    """Delete files of one bucket by one request. Its answer names those that stay, which s3fs leaves out."""
    filesystem = fsspec_of(members[0])
    bucket, _ = bucket_and_key(filesystem, members[0].path)
    uris = {one.path.lstrip("/")[len(bucket) + 1 :]: one.uri for one in members}
    objects = {"Objects": [{"Key": key} for key in uris], "Quiet": True}
    answer = filesystem.call_s3("delete_objects", Bucket=bucket, Delete=objects)
    done = {uri: Deletion(uri) for uri in uris.values()}
    for one in answer.get("Errors", ()):
        uri = uris[one["Key"]]
        reason = reason_of_code(one.get("Code", ""), one.get("Message", ""), "DeleteObjects")
        done[uri] = Deletion(uri, error=reason)
    return done


def _delete_one(location: Location) -> Deletion:
    try:
        remover_of(location)(location.path)
    except FileNotFoundError:
        return Deletion(location.uri, was_there=False)
    except Exception as error:  # noqa: BLE001 - each store has its own; the caller names them all
        return Deletion(location.uri, error=reason_of(error))
    return Deletion(location.uri, was_there=True)
