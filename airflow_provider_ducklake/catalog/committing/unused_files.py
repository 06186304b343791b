"""Remove files that no snapshot names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_ducklake.storage.files.filesystem import Location

log = logging.getLogger(__name__)


def remove_unused(paths: Iterable[str], locate: Callable[[str], Location]) -> None:
    """Remove files; one that cannot be removed is left behind and logged."""
    if not (paths := list(paths)):
        return
    from airflow_provider_ducklake.storage.files.filesystem import delete_file_at  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.storage.files.parallel import in_threads  # noqa: PLC0415

    def remove(path: str) -> None:
        try:
            delete_file_at(locate(path))
        except (StorageError, OSError) as error:
            log.warning("Cannot remove %s, which no snapshot refers to: %s", path, error)

    in_threads(remove, paths)
