"""List the files below a directory with their ages, by the store's own clock."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from ...errors import InvalidInputError, StorageError
from ...format.log_lines import logger
from ...format.names.paths import is_absolute, split_scheme
from .filesystem import (
    Location,
    StorageOptions,
    bucket_and_key,
    file_sizes,
    fsspec_of,
    open_filesystem,
    reason_of,
    reason_of_code,
    remover_of,
    storage_errors,
)
from .local import unlink_below
from .parallel import in_threads

log = logger(__name__)

_SAID_EVERY = 100_000  # files
# How drivers of fsspec call the time of the last change.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file by its path below the directory; ``changed_at`` is an aware time; None: the store says none."""

    name: str
    size: int
    changed_at: datetime | None


@dataclass(slots=True)
class Listing:
    """The files below a directory, each when it is asked for.

    ``unreadable`` are the directories that could not be listed so far, with the reasons, and
    ``link_targets`` the places that symbolic links found so far lead to.
    """

    files: Iterator[FoundFile]
    unreadable: dict[str, str] = field(default_factory=dict)
    link_targets: set[str] = field(default_factory=set)
    root: str = ""

    def is_linked(self, name: str) -> bool:
        """Return True if a link leads to the file, or to a directory above it: it then has two names."""
        if not self.link_targets:
            return False
        path = Path(os.path.realpath(os.path.join(self.root, name)))  # noqa: PTH118 - as it is below
        return not self.link_targets.isdisjoint(map(str, (path, *path.parents)))


def list_files(path: str, storage_options: StorageOptions | None = None) -> Listing:
    """Return all files below a directory, which ends in ``/``; none where it is missing.

    They are listed while they are asked for: a store may have millions. Symbolic links are not followed, and
    are no files; where they lead to is noted, since a file there has another name as well.
    """
    location = open_filesystem(path, storage_options)
    listing = Listing(iter(()), root=location.path)
    listing.files = _named(path, _files(location, listing))
    return listing


def changed_at(path: str, storage_options: StorageOptions | None = None) -> datetime | None:
    """Return when a file last changed, by the store's clock; None: the store does not say."""
    location = open_filesystem(path, storage_options)
    with storage_errors(path, "look at"):
        if location.is_local:
            return _local_time(os.lstat(location.path))
        filesystem = fsspec_of(location)
        if filesystem is None:
            info: datetime | None = location.filesystem.get_file_info(location.path).mtime
            return info
        found: Mapping[str, Any] = filesystem.info(location.path)
        return _changed_at(found)


def _named(path: str, files: Iterator[FoundFile]) -> Iterator[FoundFile]:
    """Yield files, and say how many from time to time."""
    with storage_errors(path, "list"):
        for count, file in enumerate(files, 1):
            yield file
            if count % _SAID_EVERY == 0:
                log.info("Listed %d files below %s so far", count, path)


def _files(location: Location, listing: Listing) -> Iterator[FoundFile]:
    if location.is_local:
        return _local(location.path, listing)
    filesystem = fsspec_of(location)
    if filesystem is None:
        return _arrow(location)
    if hasattr(filesystem, "call_s3"):
        return _s3(filesystem, location.path)
    return _fsspec(filesystem, location.path)


def _local(root: str, listing: Listing) -> Iterator[FoundFile]:
    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # deleted in the meantime, or never there
            listing.unreadable[str(error.filename)] = reason_of(error)

    for folder, folders, names in os.walk(root, onerror=note):
        for name in (*folders, *names):
            path = os.path.join(folder, name)  # noqa: PTH118 - a million of them
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(found.st_mode):
                listing.link_targets.add(os.path.realpath(path))
            elif stat.S_ISREG(found.st_mode):
                yield FoundFile(os.path.relpath(path, root), found.st_size, _local_time(found))


def _local_time(found: os.stat_result) -> datetime:
    """Return when a file changed: one that was moved here keeps its mtime, and its ctime says when."""
    return datetime.fromtimestamp(max(found.st_mtime, found.st_ctime), UTC)


def _s3(filesystem: Any, root: str) -> Iterator[FoundFile]:  # noqa: ANN401 - s3fs
    """Yield the objects of each page when it comes: s3fs itself would keep them all, and their folders."""
    bucket, prefix = bucket_and_key(filesystem, f"{root.strip('/')}/")
    position: dict[str, str] = {}
    while True:
        page = filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **position)
        for one in page.get("Contents", ()):
            if not one["Key"].endswith("/"):  # what stands for a folder
                yield FoundFile(one["Key"].removeprefix(prefix), one["Size"], _changed_at(one))
        if not page.get("IsTruncated"):
            return
        position = {"ContinuationToken": page["NextContinuationToken"]}


def _fsspec(filesystem: Any, root: str) -> Iterator[FoundFile]:  # noqa: ANN401 - fsspec has no types
    prefix = root.strip("/") + "/"
    for path, info in filesystem.find(root, detail=True).items():
        if info["type"] == "file":
            name = path.lstrip("/").removeprefix(prefix)
            yield FoundFile(name, int(info["size"] or 0), _changed_at(info))


def _changed_at(info: Mapping[str, Any]) -> datetime | None:
    value = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _arrow(location: Location) -> Iterator[FoundFile]:
    root = location.path.rstrip("/")
    selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
    for info in location.filesystem.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield FoundFile(info.path.removeprefix(f"{root}/"), int(info.size or 0), info.mtime)


# Find the files that match a path with ``*``.


def expand(paths: Iterable[str], locate: Callable[[str], Location]) -> list[str]:
    """Return the files that paths and patterns mean, patterns expanded in sorted order.

    ``*`` stands for any part of a name, ``**`` for any folders. Local paths lose ``file://``, doubled slashes
    and dots, so that one file has one path.
    """
    return [found for path in paths for found in _expanded(_normal(path), locate)]


def _normal(path: str) -> str:
    if not is_absolute(path):
        raise InvalidInputError(f"The path {path!r} is relative; give an absolute path or a URI.")
    scheme, rest = split_scheme(path)
    return os.path.normpath(rest).replace("//", "/") if scheme == "file" else path


def _expanded(path: str, locate: Callable[[str], Location]) -> list[str]:
    if "*" not in path:
        return [path]
    folder = path[: path.index("*")].rpartition("/")[0] + "/"
    names = _regex(path.removeprefix(folder))
    place = locate(folder)
    root = place.path.rstrip("/") + "/"
    deep = "/" in path.removeprefix(folder)
    with storage_errors(folder, "list"):
        infos = place.filesystem.get_file_info(
            pafs.FileSelector(place.path, allow_not_found=True, recursive=deep)
        )
    below = sorted(info.path.removeprefix(root) for info in infos if info.type == pafs.FileType.File)
    found = [folder + name for name in below if names.fullmatch(name)]
    if not found:
        raise InvalidInputError(f"No file matches {path}.")
    return found


def _regex(pattern: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return re.compile("".join(parts.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)


# Delete many files: in few requests if the store takes several at once, continuing after failures.


_AT_ONCE = 1000  # objects in one request to S3


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result of deleting one file: ``was_there`` None: unknown; ``error`` None: it is gone."""

    path: str
    was_there: bool | None = None
    error: str | None = None


def delete_files(
    paths: Iterable[str], storage_options: StorageOptions | None = None, *, below: str | None = None
) -> list[Deletion]:
    """Delete files, and say of each what became of it, in their order; one that is not there is gone.

    Local files that links lead to outside of the folder ``below`` stay; None: the user allows it. A path
    that nothing here can open is one that could not be deleted: it does not keep the others.
    """
    given = list(paths)
    opened = {path: _open(path, storage_options) for path in given}
    done = {path: one for path, one in opened.items() if isinstance(one, Deletion)}
    done |= _delete([one for one in opened.values() if isinstance(one, Location)], below)
    return [done[path] for path in given]


def _open(path: str, storage_options: StorageOptions | None) -> Location | Deletion:
    try:
        return open_filesystem(path, storage_options)
    except StorageError as error:
        return Deletion(path, error=str(error))


def delete_by_name(path: str, prefix: str, storage_options: StorageOptions | None = None) -> None:
    """Delete all files below a directory whose names begin with ``prefix``; it is listed for that."""
    names = (name for name in file_sizes(path, storage_options) if name.rpartition("/")[2].startswith(prefix))
    check_gone(delete_files([path + name for name in names], storage_options, below=path))


def delete_tree(path: str, storage_options: StorageOptions | None = None) -> None:
    """Delete a directory or prefix with all that it holds; nothing there is fine."""
    location = open_filesystem(path, storage_options)
    directory = location.path.rstrip("/")
    if "/" not in directory.strip("/"):
        raise StorageError(f"Refusing to delete {path}: it is a whole bucket or a top-level directory.")
    if _is_s3(location):
        root = path.rstrip("/") + "/"
        names = file_sizes(root, storage_options)
        check_gone(delete_files([root + name for name in names], storage_options, below=root))
        return
    with storage_errors(path, "delete"):
        if location.filesystem.get_file_info(directory).type == pafs.FileType.Directory:
            location.filesystem.delete_dir(directory)


def check_gone(deletions: Iterable[Deletion]) -> None:
    """Raise a StorageError for the first file that could not be deleted."""
    failed = next((one for one in deletions if one.error is not None), None)
    if failed is not None:
        raise StorageError(f"Cannot delete {failed.path}: {failed.error}.")


def _delete(locations: Sequence[Location], below: str | None) -> dict[str, Deletion]:
    done: dict[str, Deletion] = {}
    for members in _by_bucket(locations):
        for start in range(0, len(members), _AT_ONCE):
            with suppress(Exception):  # one by one will say why
                done |= _delete_together(members[start : start + _AT_ONCE])
    rest = [one for one in locations if one.uri not in done]
    return done | {one.path: one for one in in_threads(partial(_delete_one, below=below), rest)}


def _is_s3(location: Location) -> bool:
    """Return True if it is s3fs that reaches a place; it alone is silent about what it could not delete."""
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


def _delete_one(location: Location, below: str | None) -> Deletion:
    try:
        if location.is_local and below is not None:
            unlink_below(location.path, below)
        else:
            remover_of(location)(location.path)
    except FileNotFoundError:
        return Deletion(location.uri, was_there=False)
    except Exception as error:  # noqa: BLE001 - each store has its own; the caller names them all
        return Deletion(location.uri, error=reason_of(error))
    return Deletion(location.uri, was_there=True)
