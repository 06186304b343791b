"""Delete files that wait for it: an expiry or a compaction has scheduled them, and readers had their time.

A file goes before its row: what was broken off is done again. A file that a row of the lake still names
stays, whoever scheduled it. *Source:* the reference's ``ducklake_cleanup_old_files`` (dossier §9.4).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Text, select, type_coerce

from airflow_provider_ducklake.catalog.column_types import time_of
from airflow_provider_ducklake.catalog.file_paths import named_files
from airflow_provider_ducklake.catalog.questions import in_parts
from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.planning.retention import cut_off
from airflow_provider_ducklake.spec.paths import CatalogPath, path_key, why_not_deletable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta
    from typing import Any

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.storage.deletion import Deletion

log = logging.getLogger(__name__)

FILES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What a clean-up did, or with ``dry_run`` would do; all are full paths.

    ``missing`` were gone before, as far as the store tells; ``named`` stay since rows of the lake name them,
    ``failures`` (path, reason) since the store would not delete them, or this lake must not.
    """

    deleted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False


@dataclass(slots=True)
class _Progress:
    """What has been done so far."""

    total: int
    deleted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def note(self, done: Collection[Deletion]) -> None:
        for one in done:
            if one.error is not None:
                self.failures.append((one.path, one.error))
            elif one.was_there is False:
                self.missing.append(one.path)
            else:
                self.deleted.append(one.path)
        gone = len(self.deleted) + len(self.missing)
        log.info("Deleted %d of %d files, %d failed", gone, self.total, len(self.failures))


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A file that waits for its deletion; ids of data files and delete files are of one series.

    ``since`` is when it was scheduled; None: that cannot be read.
    """

    id: int
    path: str
    since: datetime | None


def cleanup(
    catalog: Catalog,
    older_than: datetime | timedelta,
    floor: timedelta,
    storage_options: Mapping[str, Any],
    *,
    dry_run: bool,
) -> CleanupResult:
    """Delete the files that were scheduled before a moment, and then their rows, many at once.

    Raises:
        InvalidInputError: the moment lies in the future, or is nearer than ``floor``.
        StorageError: the data path is not there, as a disk that is not mounted.
    """
    from airflow_provider_ducklake.storage.deletion import delete_files  # noqa: PLC0415 - heavy

    due = _due(catalog, older_than, floor)
    named = _still_named(catalog, due)
    refused = _refused(catalog, [one for one in due if one.id not in named])
    free = [one for one in due if one.id not in named and one.path not in refused]
    left = tuple(one.path for one in due if one.id in named)
    for path in left:
        log.warning("%s waits for its deletion, and the lake still uses it: it stays", path)
    if dry_run or not free:
        paths = tuple(one.path for one in free)
        return CleanupResult(paths, named=left, failures=tuple(refused.items()), dry_run=dry_run)
    _check_reachable(catalog, storage_options)
    progress = _Progress(len(free), failures=list(refused.items()))
    for part in in_parts(free, FILES_AT_ONCE):
        done = delete_files([one.path for one in part], storage_options)
        gone = [one.id for one, outcome in zip(part, done, strict=True) if outcome.error is None]
        _forget(catalog, gone)
        progress.note(done)
    return CleanupResult(
        tuple(progress.deleted), tuple(progress.missing), left, tuple(progress.failures), dry_run
    )


def _due(catalog: Catalog, older_than: datetime | timedelta, floor: timedelta) -> list[_Scheduled]:
    """Return what was scheduled before the moment; times are read, since SQLite compares their texts."""
    file = catalog.tables["files_scheduled_for_deletion"]
    times = type_coerce(file.c.schedule_start, Text)  # as they are: one that is none must not stop the others
    with catalog.dialect.reading() as connection:
        limit = cut_off(older_than, catalog.dialect.server_time(connection), floor)
        rows = connection.execute(
            select(file.c.data_file_id, file.c.path, file.c.path_is_relative, times).order_by(
                file.c.data_file_id
            )
        )
        waiting = [
            _Scheduled(id_, CatalogPath(path, is_relative).spelled_below(catalog.data_path), _time(since))
            for id_, path, is_relative, since in rows
        ]
    return [one for one in waiting if one.since is None or one.since < limit]


def _time(value: str | datetime | None) -> datetime | None:
    try:
        return time_of(value)
    except ValueError:
        return None


def _refused(catalog: Catalog, due: Sequence[_Scheduled]) -> dict[str, str]:
    """Return the paths where this lake must not delete, and why: whoever writes the catalog chose them."""
    problems = {one.path: _why_not(catalog, one) for one in due}
    return {path: f"it {problem}" for path, problem in problems.items() if problem is not None}


def _why_not(catalog: Catalog, one: _Scheduled) -> str | None:
    problem = why_not_deletable(one.path, catalog.data_path, foreign_files=catalog.foreign_files)
    if problem is None and one.since is None:
        return "has no time since when it waits; correct schedule_start in its row"
    return problem


def _still_named(catalog: Catalog, due: Sequence[_Scheduled]) -> set[int]:
    """Return the ids of those whose path a row of the lake names, in whatever spelling."""
    if not due:
        return set()
    ids: dict[str, list[int]] = {}
    for one in due:
        ids.setdefault(path_key(one.path), []).append(one.id)
    names = {key.rpartition("/")[2] for key in ids}
    found: set[int] = set()
    with catalog.dialect.reading() as connection:
        for path, _ in named_files(connection, catalog):
            # Most names say at once that they are none of them.
            if path.rpartition("/")[2].casefold() in names or "%" in path or not path.isascii():
                found.update(ids.get(path_key(path), ()))
    return found


def _check_reachable(catalog: Catalog, storage_options: Mapping[str, Any]) -> None:
    """Refuse to take every file for gone where it is the whole directory that is not there.

    Raises:
        StorageError: the data path is not there.
    """
    from airflow_provider_ducklake.storage.filesystem import exists, open_filesystem  # noqa: PLC0415

    is_local = open_filesystem(catalog.data_path, storage_options).is_local
    if is_local and not exists(catalog.data_path):
        raise StorageError(
            f"The data path {catalog.data_path} does not exist here: is its disk mounted? Nothing was "
            "deleted."
        )


def _forget(catalog: Catalog, ids: Sequence[int]) -> None:
    """Remove the rows of files that are gone."""
    file = catalog.tables["files_scheduled_for_deletion"]

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            for part in in_parts(ids):
                connection.execute(file.delete().where(file.c.data_file_id.in_(part)))
            connection.commit()

    if ids:
        with_retries(catalog.dialect, DEFAULT_RETRY, attempt)
