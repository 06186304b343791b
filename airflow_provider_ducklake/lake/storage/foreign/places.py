"""Where the files of a table of another format may lie, and how DuckLake spells their paths."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass

from airflow_provider_ducklake.lake.errors import InvalidInputError, UntrustedValueError
from airflow_provider_ducklake.lake.spec.names.paths import directory_path, is_absolute, is_below, misleading

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
        """Return the table's own folder, and further ones that a user allows.

        Raises:
            InvalidInputError: a path is relative.
        """
        for path in allowed_paths:
            if not is_absolute(spelled(path)):
                raise InvalidInputError(
                    f"The allowed path {path!r} is relative; give an absolute path or a URI."
                )
        folders = (folder, *allowed_paths)
        return cls(document, tuple(directory_path(spelled(one)) for one in folders))

    def checked(self, path: str) -> str:
        """Return the path of a file as the lake spells it.

        Raises:
            UntrustedValueError: it lies in none of the folders.
        """
        found = spelled(path)
        if not any(is_below(found, folder) for folder in self.folders):
            raise UntrustedValueError(
                self.document,
                path,
                f"lies in none of the folders {', '.join(self.folders)} (more can be given as allowed_paths)",
            )
        return found
