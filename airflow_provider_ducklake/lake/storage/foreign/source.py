"""A table of another format: what a task says of it, where its files may lie, and who reads its metadata.

The owner of such a table chooses how much memory its metadata takes, and whether a file of it ever ends. So
pyiceberg and deltalake read it in a process of its own, which has limits and returns facts alone.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ... import errors
from ...format.names.paths import directory_path, is_absolute, misleading
from ..files.local import lies_below, real_path

if TYPE_CHECKING:
    from ...planning.writing.source_table import SourceTable

_PACKAGES = {"iceberg": "pyiceberg", "delta": "deltalake"}
FORMATS = tuple(_PACKAGES)
MOST_BYTES = 2**31  # of the process's memory
MOST_SECONDS = 600
_MAIN = f"from {__name__} import main; main()"
# By these no allocator reserves memory that it may never use.
_LEAN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "4"}


@dataclass(frozen=True, slots=True)
class Source:
    """A table of another format at a snapshot, with the options to read it; ``version`` is Delta's."""

    path: str
    format: str
    snapshot_id: int | None = None
    version: int | None = None
    catalog: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    allowed_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise errors.InvalidInputError(f"The format {self.format!r} is not one of {', '.join(FORMATS)}.")
        others = {"iceberg": ("version", "storage_options"), "delta": ("snapshot_id", "catalog")}[self.format]
        if wrong := [name for name in others if getattr(self, name) not in (None, {})]:
            hint = "snapshot_id and catalog are Iceberg's, version and storage_options Delta's"
            raise errors.InvalidInputError(f"{wrong[0]} does not go with the format {self.format}: {hint}.")


def read_source(source: Source, storage_options: Mapping[str, Any]) -> SourceTable:
    """Read the metadata of a table, in a process that gets the lake's storage options by a pipe."""
    request = pickle.dumps((source, dict(storage_options), MOST_BYTES, MOST_SECONDS))
    places = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, "-P", "-c", _MAIN],
        input=request,
        capture_output=True,
        check=False,
        env={**os.environ, **places, **_LEAN},
    )
    if done.returncode:
        raise errors.StorageError(f"Cannot read the metadata of {source.path}: {_why(done)}.")
    found: SourceTable | BaseException = pickle.loads(done.stdout)  # noqa: S301 - of our own process
    if isinstance(found, BaseException):
        raise found
    return found


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == -signal.SIGALRM:
        return (
            f"it took more than {MOST_SECONDS} seconds. Check that its store and catalog answer, and that "
            "its files are regular ones; then run this again"
        )
    if done.returncode < 0 or done.returncode == errno.ENOMEM:
        return (
            f"it is damaged, or needs more than {MOST_BYTES >> 20} MiB of memory. Write a checkpoint or "
            "expire snapshots of the table, or find out who wrote it"
        )
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"the process that reads it ended with code {done.returncode} ({last})"


def main() -> None:
    """Answer the request of ``read_source`` that comes by standard input."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    source, storage_options, memory, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own process
    signal.setitimer(signal.ITIMER_REAL, seconds)  # which ends this process, also if its parent is gone
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    sys.modules["pandas"] = too_old = ModuleType("pandas")  # pyarrow would import it, which takes a second
    vars(too_old)["__version__"] = "0"
    try:
        found: object = _read(source, storage_options)
    except (errors.DuckLakeError, MemoryError) as error:
        if isinstance(error.__cause__ or error, MemoryError):
            sys.exit(errno.ENOMEM)
        found = error
    with answer:
        pickle.dump(found, answer)


def _read(source: Source, storage_options: Mapping[str, Any]) -> SourceTable:
    from ..files.filesystem import open_filesystem

    locate = partial(open_filesystem, storage_options=storage_options)
    try:
        if source.format == "iceberg":
            from .iceberg import iceberg_table

            return iceberg_table(source, locate)
        from .delta import delta_table
    except ModuleNotFoundError as error:
        package = _PACKAGES[source.format]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise errors.UnsupportedFeatureError(
            f"{package} is not installed, by which {source.format} tables are read: pip install {package}."
        ) from error
    return delta_table(source, storage_options)


# Where the files of a table of another format may lie, and how DuckLake spells their paths.


_LOCAL = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)
_S3 = re.compile(r"s3[an]://", re.IGNORECASE)


def spelled(path: str) -> str:
    """Return a path as a lake spells it: local ones without scheme, those of S3 with ``s3://``.

    >>> spelled("file:/data/a%20b"), spelled("s3a://bucket/x")
    ('/data/a%20b', 's3://bucket/x')
    """
    path, count = _LOCAL.subn("", path, count=1)
    path = _S3.sub("s3://", path, count=1)
    return os.path.normpath(path).replace("//", "/") if count and misleading(path) is None else path


@dataclass(frozen=True, slots=True)
class Places:
    """The folders, ending in ``/``, that hold a table's files; ``document`` names the table in errors."""

    document: str
    folders: tuple[str, ...]

    @classmethod
    def of(cls, document: str, folder: str, allowed_paths: tuple[str, ...]) -> Places:
        """Return the table's own folder, and further ones that a user allows."""
        for path in allowed_paths:
            if not is_absolute(spelled(path)):
                raise errors.InvalidInputError(
                    f"The allowed path {path!r} is relative; give an absolute path or a URI."
                )
        folders = (folder, *allowed_paths)
        return cls(document, tuple(directory_path(spelled(one)) for one in folders))

    def checked(self, path: str) -> str:
        """Return the path of a file as the lake spells it."""
        found = spelled(path)
        if not any(lies_below(found, folder) for folder in self.folders):
            place = real_path(found)
            leads = "" if place == found else f"leads to {place} and "
            folders = f"{', '.join(self.folders)} (more can be given as allowed_paths)"
            raise errors.UntrustedValueError(
                self.document, path, f"{leads}lies in none of the folders {folders}"
            )
        return found
