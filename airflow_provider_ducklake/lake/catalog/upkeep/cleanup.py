"""Delete files that an expiry or a compaction scheduled for deletion long enough ago.

A file goes before its row: what was broken off is done again. A file that a row of the lake still names
stays, whoever scheduled it. *Source:* the reference's ``ducklake_cleanup_old_files`` (docs/sources.md,
maintenance).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from sqlalchemy import Text, case, or_, select, true, type_coerce

from airflow_provider_ducklake.lake.catalog.database.column_types import time_of
from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.dialects.retry import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.lake.catalog.snapshot.file_paths import named_files
from airflow_provider_ducklake.lake.catalog.upkeep.may_delete import check_may_delete
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.planning.upkeep.files import cut_off
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.paths import (
    CatalogPath,
    is_absolute,
    path_key,
    why_not_deletable,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import timedelta
    from typing import Any

    from sqlalchemy import Delete

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.storage.files.listing import Deletion

log = logger(__name__)

FILES_AT_ONCE = 1_000
# Far from the years that a driver cannot read, as PostgreSQL's infinity, in whatever zone it returns them.
_READABLE = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


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
    """The row of a file that waits for its deletion: nothing keeps a second one from having its id.

    ``path`` is the full one and ``stored`` that of the row, None where it is not a string. ``since`` is when
    the file was scheduled; None: that cannot be read.
    """

    id: int | None
    path: str
    stored: str | None
    is_relative: bool
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
    from airflow_provider_ducklake.lake.storage.files.listing import delete_files  # noqa: PLC0415 - heavy

    due = _due(catalog, older_than, floor)
    named = _still_named(catalog, due)
    left = tuple(_paths(one for one in due if one.path in named))
    refused = _refused(catalog, [one for one in due if one.path not in named])
    free = _paths(one for one in due if one.path not in named and one.path not in refused)
    for path in left:
        log.warning("%s is scheduled for deletion, but the lake still uses it: it stays", path)
    if dry_run or not free:
        return CleanupResult(tuple(free), named=left, failures=tuple(refused.items()), dry_run=dry_run)
    _check_reachable(catalog, storage_options)
    check_may_delete(catalog, "files_scheduled_for_deletion")
    progress = _Progress(len(free), failures=list(refused.items()))
    for part in in_parts(free, FILES_AT_ONCE):
        done = delete_files(part, storage_options)
        gone = {outcome.path for outcome in done if outcome.error is None}
        _forget(catalog, [one for one in due if one.path in gone])
        progress.note(done)
    return CleanupResult(
        tuple(progress.deleted), tuple(progress.missing), left, tuple(progress.failures), dry_run
    )


def _due(catalog: Catalog, older_than: datetime | timedelta, floor: timedelta) -> list[_Scheduled]:
    """Return what was scheduled before the moment; times are read, since SQLite compares their texts."""
    file = catalog.tables["files_scheduled_for_deletion"]
    readable = case((file.c.schedule_start.between(*_READABLE), file.c.schedule_start))
    query = select(
        file.c.data_file_id,
        type_coerce(file.c.path, Text),  # each is read by itself, as is the time
        file.c.path_is_relative,
        type_coerce(readable, Text),
    )
    with catalog.dialect.reading() as connection:
        limit = cut_off(older_than, catalog.dialect.server_time(connection), floor)
        rows = connection.execute(query.order_by(file.c.data_file_id))
        waiting = [_scheduled(catalog, row) for row in rows]
    return [one for one in waiting if one.since is None or one.since < limit]


def _scheduled(catalog: Catalog, row: Sequence[Any]) -> _Scheduled:
    id_, path, is_relative, since = row
    if isinstance(path, bytes):  # SQLite keeps whatever it is given
        return _Scheduled(id_, repr(path), None, is_relative, _time(since))
    full = CatalogPath(path, is_relative).spelled_below(catalog.data_path)
    return _Scheduled(id_, full, path or "", is_relative, _time(since))


def _paths(rows: Iterable[_Scheduled]) -> list[str]:
    return list(dict.fromkeys(one.path for one in rows))


def _time(value: str | bytes | datetime | None) -> datetime | None:
    try:
        return None if isinstance(value, bytes) else time_of(value)
    except ValueError:
        return None


def _refused(catalog: Catalog, due: Sequence[_Scheduled]) -> dict[str, str]:
    """Return the paths where this lake must not delete, and why: whoever writes the catalog chose them."""
    problems = ((one.path, _why_not(catalog, one)) for one in due)
    return {path: f"it {problem}" for path, problem in problems if problem is not None}


def _why_not(catalog: Catalog, one: _Scheduled) -> str | None:
    if one.stored is None:
        return "is not a string; correct path in its row"
    problem = why_not_deletable(one.path, catalog.data_path, foreign_files=catalog.foreign_files)
    if problem is None and one.since is None:
        return "has no valid schedule_start; correct it in its row"
    return problem


def _still_named(catalog: Catalog, due: Sequence[_Scheduled]) -> set[str]:
    """Return the paths of those that a row of the lake names, in whatever spelling."""
    if not due:
        return set()
    paths: dict[str, set[str]] = {}
    for one in due:
        paths.setdefault(path_key(one.path), set()).add(one.path)
    names: dict[str, set[str]] = {}
    for key, spelled in paths.items():
        names.setdefault(key.rpartition("/")[2], set()).update(spelled)
    found: set[str] = set()
    with catalog.dialect.reading() as connection:
        for path, is_full in named_files(connection, catalog):
            if not is_full or not is_absolute(path):  # nobody knows in which directory
                found.update(names.get(path_key(path).rpartition("/")[2], ()))
            elif _may_be_one_of(path, names):
                found.update(paths.get(path_key(path), ()))
    return found


def _may_be_one_of(path: str, names: Collection[str]) -> bool:
    """Whether a path may be that of a file with one of the names: most are none, and their keys cost much."""
    last = path.rpartition("/")[2].casefold()
    return last in names or last in ("", ".", "..") or "%" in path or "\\" in path or not path.isascii()


def _check_reachable(catalog: Catalog, storage_options: Mapping[str, Any]) -> None:
    """Refuse to take every file for gone where it is the whole directory that is not there.

    Raises:
        StorageError: the data path is not there.
    """
    from airflow_provider_ducklake.lake.storage.files.filesystem import exists, open_filesystem  # noqa: PLC0415

    is_local = open_filesystem(catalog.data_path, storage_options).is_local
    if is_local and not exists(catalog.data_path):
        raise StorageError(
            f"The data path {catalog.data_path} does not exist here. Check that its disk is mounted. "
            "Nothing was deleted."
        )


def _forget(catalog: Catalog, rows: Sequence[_Scheduled]) -> None:
    """Remove the rows of files that are gone, not those of other files with the same ids."""
    relative = [one for one in rows if one.is_relative]
    others = [one for one in rows if not one.is_relative]

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            for part in chain(in_parts(relative), in_parts(others)):
                connection.execute(_deletion(catalog, part))
            connection.commit()

    if rows:
        with_retries(catalog.dialect, DEFAULT_RETRY, attempt)


def _deletion(catalog: Catalog, rows: Sequence[_Scheduled]) -> Delete:
    """Return what removes rows whose paths are all relative, or all full ones."""
    file = catalog.tables["files_scheduled_for_deletion"]
    is_relative = file.c.path_is_relative.is_(true())
    return file.delete().where(
        or_(file.c.data_file_id.is_(None), file.c.data_file_id.in_([one.id for one in rows])),
        file.c.path.in_([one.stored for one in rows]),
        is_relative if rows[0].is_relative else ~is_relative,
    )
