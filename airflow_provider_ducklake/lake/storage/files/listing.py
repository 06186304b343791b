"""List the files below a directory with their ages, by the store's own clock."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    Location,
    bucket_and_key,
    fsspec_of,
    naming_errors,
    open_filesystem,
)
from airflow_provider_ducklake.lake.storage.files.refusals import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_ducklake.lake.storage.files.filesystem import StorageOptions

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
        """Whether a link found so far leads to a file, or to a directory above it: it has two names then."""
        if not self.link_targets:
            return False
        path = Path(os.path.realpath(os.path.join(self.root, name)))  # noqa: PTH118 - as it is below
        return not self.link_targets.isdisjoint(map(str, (path, *path.parents)))


def list_files(path: str, storage_options: StorageOptions | None = None) -> Listing:
    """Return all files below a directory, which ends in ``/``; none where it is missing.

    They are listed while they are asked for: a store may have millions. Symbolic links are not followed, and
    are no files; where they lead to is noted, since a file there has another name as well.

    Raises:
        StorageError: the store cannot be listed; also while the files are asked for.
    """
    location = open_filesystem(path, storage_options)
    listing = Listing(iter(()), root=location.path)
    listing.files = _named(path, _files(location, listing))
    return listing


def changed_at(path: str, storage_options: StorageOptions | None = None) -> datetime | None:
    """Return when a file last changed, by the store's clock; None: the store does not say.

    Raises:
        StorageError: it is not there, or cannot be looked at.
    """
    location = open_filesystem(path, storage_options)
    with naming_errors(path, "look at"):
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
    with naming_errors(path, "list"):
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
        if not isinstance(error, FileNotFoundError):  # gone meanwhile, or never there
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
