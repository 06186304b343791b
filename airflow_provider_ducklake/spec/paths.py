"""Paths of the catalog: relative or absolute, directory names, and the schemes of object stores.

A file's location is ``data_path`` + schema path + table path + file path, each step only while the lower one
is marked relative; directories end in ``/`` and are joined plainly. *Source:* dossier §2.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote

from airflow_provider_ducklake.errors import InvalidInputError

_SAFE_DIRECTORY = re.compile(r"[A-Za-z0-9_-]+\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SAME_STORE = {
    "file": "",
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    **dict.fromkeys(("abfss", "wasb", "wasbs", "az", "azure", "adl"), "abfs"),
}
_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "az": "abfs"}


@dataclass(frozen=True, slots=True)
class CatalogPath:
    """A path as the catalog stores it."""

    path: str | None
    is_relative: bool = True

    def below(self, parent: str) -> str:
        """Return the full path, given the full path of the parent directory."""
        if self.path is None:
            return parent
        return parent + self.path if self.is_relative else self.path


def directory_path(path: str) -> str:
    """Return a data path with forward slashes and one at its end, as the catalog stores it.

    Raises:
        InvalidInputError: it is empty, or a ``file://`` URI that DuckDB could not open.
    """
    if not path:
        raise InvalidInputError(
            "The data path is empty; give the folder or bucket prefix that holds the data files."
        )
    path = path.removeprefix("file://").replace("\\", "/")
    return path if path.endswith("/") else path + "/"


def job_directory(table_root: str, job_id: str) -> str:
    """Return the directory that belongs to one job alone, below the table's (both end in ``/``)."""
    return f"{table_root}ducklake-{job_id}/"


def directory_name(name: str, object_uuid: str) -> str:
    """Return the directory of a schema or table: its name where that is a safe segment, else its UUID."""
    return f"{name if _SAFE_DIRECTORY.match(name) else object_uuid}/"


def path_key(path: str) -> str:
    """Return what the spellings of one place have in common, and now and then those of two.

    Use it to find out whether a file may be known by another spelling, never to reach one.

    >>> path_key("s3a://Bucket/x//./a%20b") == path_key("s3://bucket/x/a b")
    True
    """
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    rest = path[match.end() :] if match else path
    while (decoded := unquote(rest)) != rest:
        rest = decoded
    rest = unicodedata.normalize("NFC", rest.replace("\\", "/")).casefold()
    rest = posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SAME_STORE.get(scheme, scheme)}:{rest}"


def relative_to(path: str, parent: str) -> CatalogPath:
    """Return how the catalog stores the file ``path`` of a table whose directory is ``parent``.

    >>> relative_to("/lake/main/t/a.parquet", "/lake/main/t/")
    CatalogPath(path='a.parquet', is_relative=True)
    """
    if not is_absolute(path):
        return CatalogPath(path)
    if path.startswith(parent):
        return CatalogPath(path.removeprefix(parent))
    return CatalogPath(path, is_relative=False)


def is_absolute(path: str) -> bool:
    """Whether the path stands by itself: a URI or an absolute local path."""
    return (
        path.startswith("/") or _SCHEME.match(path) is not None or re.match(r"[A-Za-z]:/", path) is not None
    )


def hadoop_uri(path: str) -> str:
    """Return the URI under which Hadoop's file systems know a lake path.

    >>> hadoop_uri("s3://bucket/x"), hadoop_uri("/data/a b")
    ('s3a://bucket/x', 'file:/data/a b')
    """
    match = _SCHEME.match(path)
    if match is None:
        return f"file:{path}"
    return f"{_HADOOP_SCHEMES.get(match[1], match[1])}://{path[match.end() :]}"
