"""Paths of the catalog: relative or absolute, directory names, and the schemes of object stores.

A file's location is ``data_path`` + schema path + table path + file path, each step only while the lower one
is marked relative; directories end in ``/`` and are joined plainly. *Source:* docs/sources.md, new catalogs.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...errors import InvalidInputError, InvalidOptionError, UntrustedValueError

if TYPE_CHECKING:
    from .identifiers import SchemaPath

JOB_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # the form of a job's id: a UUID's
_SAFE_DIRECTORY = re.compile(r"[A-Za-z0-9_-]+\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: C:/ is a drive
_SAME_STORE = {
    **dict.fromkeys(("file", "local"), ""),  # the second is fsspec's
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    **dict.fromkeys(("abfss", "wasb", "wasbs", "az", "azure", "adl"), "abfs"),
}
_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "az": "abfs"}
_LOCAL_SCHEMES = frozenset({"", "file", "local"})
# fsspec has schemes that lead to any other store, or to local files.
_STORES = frozenset({"s3", "gs", "abfs", "hdfs", "http", "https"})
FORMATS = (".parquet", ".puffin")
MAX_LENGTH = 8192  # characters: twice what a local file system takes, and more than any store does
_STEP_UP = re.compile(r"(?:\.|%(?:25)*2e){2}", re.IGNORECASE)  # also encoded, however often


@dataclass(frozen=True, slots=True)
class CatalogPath:
    """A path as the catalog stores it."""

    path: str | None
    is_relative: bool = True

    def below(self, parent: str, of: str = "The catalog") -> str:
        """Return the full path, given the full path of the parent directory.

        ``of`` is the row that has the path, for the error.
        """
        problem = self.problem_below(parent)
        if problem is not None:
            raise UntrustedValueError(of, str(self.path), problem)
        return self.spelled_below(parent)

    def problem_below(self, parent: str) -> str | None:
        """Explain why the path must not be used, to complete "which …"; None: it may."""
        problem = misleading(self.path or "")
        if problem is None and self.path is not None and not self.is_relative and is_absolute(parent):
            return _unreachable(self.path, parent)
        return problem

    def spelled_below(self, parent: str) -> str:
        """Return the full path as it is spelled, to compare it with others, never to use it."""
        if self.path is None:
            return parent
        return parent + self.path if self.is_relative else self.path


def directory_path(path: str) -> str:
    """Return a data path with forward slashes and one at its end, as the catalog stores it."""
    if not path:
        raise InvalidInputError(
            "The data path is empty; give the folder or bucket prefix that holds the data files."
        )
    return with_slash(path.removeprefix("file://").replace("\\", "/"))


def with_slash(data_path: str) -> str:
    """Return a catalog's data path as the reference takes it: with a slash at its end; an empty one stays."""
    return data_path if not data_path or data_path.endswith("/") else data_path + "/"


def job_directory(table_root: str, job_id: str) -> str:
    """Return the directory that belongs to one job alone, below the table's (both end in ``/``)."""
    return f"{table_root}ducklake-{job_id}/"


def is_job_directory(path: str, job_id: str) -> bool:
    """Return True if a path is the directory of a job with that id (a UUID), below some table's.

    >>> job_id = "00000000-0000-7000-8000-000000000001"
    >>> [is_job_directory(f"/t/ducklake-{one}/", job_id) for one in (job_id, "x")]
    [True, False]
    """
    return re.fullmatch(JOB_ID, job_id) is not None and path.endswith("/" + job_directory("", job_id))


def directory_name(name: str, object_uuid: str) -> str:
    """Return the directory of a schema or table: its name where that is a safe segment, else its UUID."""
    return f"{name if _SAFE_DIRECTORY.match(name) else object_uuid}/"


def schema_directory(schema: SchemaPath, schema_uuid: str) -> str:
    """Return the directory of a schema, below the lake's data path: schemas below others have their UUID.

    *Source:* docs/sources.md, nested schemas.
    """
    is_nested = schema.parent is not None
    return f"{schema_uuid}/" if is_nested else directory_name(schema.name, schema_uuid)


def path_key(path: str) -> str:
    """Return a key that is equal for all spellings of one place, and rarely for two places.

    Use it to find out if a file may have another spelling, never to open one. A path that is too
    long for any store is returned as it is: to normalize one takes quadratic time.

    >>> path_key("s3a://Bucket/x//./a%20b") == path_key("s3://bucket/x/a b")
    True
    """
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    rest = path[match.end() :] if match else path
    if len(rest) > MAX_LENGTH:
        return path
    rest = unquote(rest)
    rest = unicodedata.normalize("NFC", rest.replace("\\", "/")).casefold()
    rest = posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SAME_STORE.get(scheme, scheme)}:{rest}"


def relative_to(path: str, parent: str) -> CatalogPath:
    """Return a file's path as the catalog stores it, for a table whose directory is ``parent``.

    >>> relative_to("/lake/main/t/a.parquet", "/lake/main/t/")
    CatalogPath(path='a.parquet', is_relative=True)
    """
    if not is_absolute(path):
        return CatalogPath(path)
    if path.startswith(parent):
        return CatalogPath(path.removeprefix(parent))
    return CatalogPath(path, is_relative=False)


def is_absolute(path: str) -> bool:
    """Return True if the path stands by itself: a URI or an absolute local path.

    >>> is_absolute("file:///data/x"), is_absolute("file://localhost/data/x"), is_absolute("data/x")
    (True, False, False)
    """
    match = _SCHEME.match(path)
    if match is not None and not is_local(path):
        return True
    rest = path[match.end() :] if match else path
    return rest.startswith("/") or re.match(r"[A-Za-z]:/", rest) is not None


def split_scheme(path: str) -> tuple[str, str]:
    """Return the scheme of a lake path and what follows it; local paths have the scheme ``file``.

    >>> split_scheme("s3://bucket/a b%20c"), split_scheme("/data/x"), split_scheme("local:///data/x")
    (('s3', 'bucket/a b%20c'), ('file', '/data/x'), ('file', '/data/x'))
    """
    scheme, match = _scheme(path), _SCHEME.match(path)
    return "file" if scheme in _LOCAL_SCHEMES else scheme, path[match.end() :] if match else path


def hadoop_uri(path: str) -> str:
    """Return the URI of a lake path for Hadoop's file systems.

    >>> hadoop_uri("s3://bucket/x"), hadoop_uri("/data/a b")
    ('s3a://bucket/x', 'file:/data/a b')
    """
    match = _SCHEME.match(path)
    if match is None:
        return f"file:{path}"
    return f"{_HADOOP_SCHEMES.get(match[1], match[1])}://{path[match.end() :]}"


def misleading(path: str) -> str | None:
    """Explain why a path may lead elsewhere than it says, to complete "which …"; None: it does not.

    Percent signs are looked through within a step only: ``day=a%2F..`` is the folder of a partition.

    >>> misleading("main/../x"), misleading("day=..%2F../x"), misleading("a/%2e%2e/b")
    ("has a step '..'", None, "has a step '..'")
    """
    if "\0" in path:
        return "has a NUL character"
    if len(path) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    if (".." in path or "%" in path) and any(map(_STEP_UP.fullmatch, re.split(r"[/\\]", path))):
        return "has a step '..'"
    return None


def is_local(path: str) -> bool:
    """Return True if a path is one of this machine's file system, in whatever spelling."""
    return _scheme(path) in _LOCAL_SCHEMES


def _scheme(path: str) -> str:
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def _unreachable(path: str, root: str) -> str | None:
    """Explain why an absolute path can be none of the files of a lake that has files below ``root``."""
    if not is_absolute(path):
        return "is neither absolute nor relative to the table"
    if is_local(path) and not is_local(root):
        return f"is a local path, but the lake is in an object store ({root})"
    if not is_local(path) and _store(path) not in _STORES | {_store(root)}:
        return f"has a scheme that is neither the lake's nor that of a known object store ({_scheme(path)})"
    return None


def _store(path: str) -> str:
    scheme = _scheme(path)
    return _SAME_STORE.get(scheme, scheme)


def is_below(path: str, directory: str) -> bool:
    """Return True if a path lies below a directory (it ends in ``/``): by letters, but for the scheme.

    >>> is_below("s3a://b/x/y", "s3://b/x/"), is_below("file:///x//y", "/x/"), is_below("/x/../y", "/x/")
    (True, True, False)
    """
    if not directory or misleading(path.removeprefix(directory)) is not None:
        return False
    return _place(path).startswith(_place(directory))


def _place(path: str) -> str:
    match = _SCHEME.match(path)
    scheme, rest = _scheme(path), path[match.end() :] if match else path
    if scheme not in _LOCAL_SCHEMES:
        return f"{_store(path)}://{rest}"
    return re.sub(r"/(?:\./|/)+", "/", rest)


def why_not_ours(path: str, data_path: str, *, foreign_files: bool) -> str | None:
    """Explain why a lake must not write or delete at a full path, to complete "which …"; None: it may.

    ``foreign_files``: the user allows it outside the data path.
    """
    if is_below(path, data_path):
        return None
    problem = misleading(path.removeprefix(data_path)) or _unreachable(path, data_path)
    if problem is None and not foreign_files:
        problem = (
            f"lies outside the data path {data_path}. If this lake may write and delete files there, set "
            "foreign_files to true in its connection, or give foreign_files=True to Lake.connect"
        )
    return problem


def why_not_deletable(path: str, data_path: str, *, foreign_files: bool) -> str | None:
    """Return the same of a file that is to be deleted: elsewhere it has to be a Parquet or Puffin file."""
    problem = why_not_ours(path, data_path, foreign_files=foreign_files)
    if problem is None and path.endswith("/"):
        return "is a directory"
    if problem is None and not is_below(path, data_path) and not path.lower().endswith(FORMATS):
        return (
            f"lies outside the data path {data_path} and does not have the name of a Parquet or Puffin file"
        )
    return problem


def is_of_job(path: str, directory: str) -> bool:
    """Return True if a job with that directory (see ``job_directory``) may have written a file.

    Its files lie there, or anywhere below the table's directory under names that begin with the job's id;
    each has one spelling.

    >>> [is_of_job(path, "/t/ducklake-1/") for path in ("/t/ducklake-1/a", "/t/day=2/ducklake-1-a", "/t/a")]
    [True, True, False]
    """
    root, _, own = directory.removesuffix("/").rpartition("/")
    below = path.removeprefix(f"{root}/")
    if below == path or misleading(below) is not None or not {"", "."}.isdisjoint(below.split("/")):
        return False
    return path.startswith(directory) or path.rpartition("/")[2].startswith(f"{own}-")


# Places that users give: a secret in them would be stored in a job's request, and shown.


_SECRET_OPTION = re.compile(
    r"password|passwd|secret|token|credential|(?:private|api|account)[._-]?key|\bsas\b", re.IGNORECASE
)
_SECRET_URL = re.compile(r"(?:password|passwd|pwd|secret|token)=", re.IGNORECASE)
# A login before a host, one of Oracle's, and what a query signs or gives a password by.
_LOGIN = re.compile(
    r"//[^/@:\s]*:[^/@\s]+@|jdbc:oracle:\w+:[^/@]+/[^@]+@"
    r"|[?&;][\w.-]*(?:sig|signature|password|passwd|pwd|secret|token)=",
    re.IGNORECASE,
)


def check_secrets(options: Mapping[str, object], name: str) -> None:
    """Refuse options that hold a secret, which a request, a rendered field or a log would show."""
    for key, value in options.items():
        is_url = str(key).lower() == "url"
        if (
            _SECRET_OPTION.search(str(key))
            or _LOGIN.search(str(value))
            or (is_url and _SECRET_URL.search(str(value)))
        ):
            raise InvalidOptionError(
                f"{name}: option {key!r} holds a secret, and a job's request is stored in a file. Keep user "
                "and password in an Airflow connection, and give it as the source's conn_id."
            )


def check_login(path: object, name: str) -> None:
    """Refuse a path with a login in it, which a request, a rendered field or a log would show."""
    if _LOGIN.search(str(path)):
        raise InvalidOptionError(
            f"{name}: its path holds a password or a signature, and a job's request is stored in a file. "
            "Leave them out; the credentials for a store belong into the lake's connection."
        )
