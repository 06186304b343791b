"""List the files below a directory with their ages, by the store's own clock."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from airflow_provider_ducklake.storage.files.filesystem import (
    Location,
    fsspec_of,
    naming_errors,
    open_filesystem,
)
from airflow_provider_ducklake.storage.files.refusals import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_ducklake.storage.files.filesystem import StorageOptions

# How drivers of fsspec call the time of the last change.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file by its path below the directory; ``changed_at`` is an aware time; None: the store says none."""

    name: str
    size: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files below a directory, and the directories that could not be listed, with the reasons."""

    files: list[FoundFile] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def list_files(path: str, storage_options: StorageOptions | None = None) -> Listing:
    """Return all files below a directory, which ends in ``/``; none where it is missing.

    Symbolic links are not followed, and are no files: what they lead to is not below the directory.

    Raises:
        StorageError: the store cannot be listed.
    """
    location = open_filesystem(path, storage_options)
    with naming_errors(path, "list"):
        if location.is_local:
            return _local(location.path)
        filesystem = fsspec_of(location)
        files = _arrow(location) if filesystem is None else _fsspec(filesystem, location.path)
        return Listing(list(files))


def _local(root: str) -> Listing:
    listing = Listing()

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # gone meanwhile, or never there
            listing.unreadable[str(error.filename)] = reason_of(error)

    for folder, _, names in os.walk(root, onerror=note):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a million of them
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(found.st_mode):
                # A file that was moved here keeps its mtime; its ctime says when.
                changed_at = datetime.fromtimestamp(max(found.st_mtime, found.st_ctime), UTC)
                listing.files.append(FoundFile(os.path.relpath(path, root), found.st_size, changed_at))
    return listing


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
