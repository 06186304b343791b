"""Find the files that match a path with ``*``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.paths import is_absolute
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, split_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location


def expand(paths: Iterable[str], locate: Callable[[str], Location]) -> list[str]:
    """Return the files that paths and patterns mean, patterns expanded in sorted order.

    ``*`` stands for any part of a name, ``**`` for any folders. Local paths lose ``file://``, doubled slashes
    and dots, so that one file has one path.

    Raises:
        InvalidInputError: a path is relative, or no file is like a pattern.
        StorageError: a folder cannot be listed.
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
    with naming_errors(folder, "list"):
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
