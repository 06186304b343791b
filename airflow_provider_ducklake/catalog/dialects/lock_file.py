"""A lock file next to a catalog file: this provider's clients queue on it; other clients ignore it."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from airflow_provider_ducklake.catalog.database.connect import shown
from airflow_provider_ducklake.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL


@contextmanager
def locked(url: URL, *, shared: bool = False) -> Iterator[None]:
    """Hold the catalog's lock, alone or together with other ``shared`` holders; waits as long as it takes.

    Raises:
        CatalogUnavailableError: the lock file cannot be opened.
    """
    with _lock_file(url) as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def _lock_file(url: URL) -> TextIO:
    path = Path(f"{url.database}.lock")
    try:
        return path.open("a")
    except OSError as error:
        reason = f"its lock file {path} cannot be opened: {error.strerror}"
        raise CatalogUnavailableError(shown(url), reason) from error
