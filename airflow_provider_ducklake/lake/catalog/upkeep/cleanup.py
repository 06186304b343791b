"""Delete files that an expiry or a compaction scheduled for deletion long enough ago.

A file goes before its row: what was broken off is done again. A file that a row of the lake still names
stays, even if it is scheduled. *Source:* the reference's ``ducklake_cleanup_old_files`` (docs/sources.md,
maintenance).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Delete, String, Text, case, false, or_, select, true, type_coerce

from ...errors import SharedDataPathError, StorageError, UntrustedValueError
from ...format.log_lines import logger
from ...format.names.paths import FORMATS, CatalogPath, is_absolute, is_local, path_key, why_not_deletable
from ...planning.upkeep.files import MARK, cut_off
from ..database.connect import in_parts
from ..database.tables import CatalogTimestamp, time_of
from ..dialects.bootstrap import OwnTable
from ..dialects.dialect import DEFAULT_RETRY, Catalog, in_transaction, with_retries
from ..snapshot.read_files import named_files

if TYPE_CHECKING:
    from ...storage.files.listing import Deletion


# Whether the database lets its user delete rows, asked before work that would be lost.


def check_may_delete(catalog: Catalog, kind: str) -> None:
    """Delete no row of a table of the format, so that a user who may not delete any is refused."""

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            connection.execute(catalog.tables[kind].delete().where(false()))

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)


log = logger(__name__)

FILES_AT_ONCE = 1_000
# Far from the years that a driver cannot read, as PostgreSQL's infinity, in whatever zone it returns them.
_READABLE = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What a clean-up did, or with ``dry_run`` would do; all are full paths.

    ``missing`` were gone before, according to the store; ``named`` stay since rows of the lake name them,
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
    """Delete the files that were scheduled before a moment, and then their rows, many at once."""
    from ...storage.files.listing import delete_files

    due = _due(catalog, older_than, floor)
    named = _still_named(catalog, due)
    left = tuple(_paths(one for one in due if one.path in named))
    refused = _refused(catalog, [one for one in due if one.path not in named], storage_options)
    free = _paths(one for one in due if one.path not in named and one.path not in refused)
    for path in left:
        log.warning("%s is scheduled for deletion, but the lake still uses it: it stays", path)
    if dry_run or not free:
        return CleanupResult(tuple(free), named=left, failures=tuple(refused.items()), dry_run=dry_run)
    _check_reachable(catalog, storage_options)
    check_may_delete(catalog, "files_scheduled_for_deletion")
    progress = _Progress(len(free), failures=list(refused.items()))
    for part in in_parts(free, FILES_AT_ONCE):
        done = delete_files(part, storage_options, below=catalog.only_below)
        gone = {outcome.path for outcome in done if outcome.error is None}
        _forget(catalog, [one for one in due if one.path in gone])
        progress.note(done)
    return CleanupResult(
        tuple(progress.deleted), tuple(progress.missing), left, tuple(progress.failures), dry_run
    )


def _due(catalog: Catalog, older_than: datetime | timedelta, floor: timedelta) -> list[_Scheduled]:
    """Return the files scheduled before the cut-off; times are parsed, as SQLite compares their texts."""
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


def _refused(
    catalog: Catalog, due: Sequence[_Scheduled], storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return the paths that this lake must not delete, and why: any client can write such rows."""
    from ...storage.files.parallel import in_threads

    found = [(one.path, _why_not(catalog, one)) for one in due]  # of one path, a row's problem holds for all
    problems = {path: problem for path, problem in found if problem is not None}
    odd = [one for one in _paths(due) if one not in problems and not one.lower().endswith(FORMATS)]
    looked = zip(odd, in_threads(partial(_not_a_lake_file_reason, storage_options), odd), strict=True)
    problems |= {path: problem for path, problem in looked if problem is not None}
    return {path: f"it {problem}" for path, problem in problems.items()}


def _why_not(catalog: Catalog, one: _Scheduled) -> str | None:
    if one.stored is None:
        return "is not a string; correct path in its row"
    problem = why_not_deletable(one.path, catalog.data_path, foreign_files=catalog.foreign_files)
    if problem is None and one.since is None:
        return "has no valid schedule_start; correct it in its row"
    return problem


def _not_a_lake_file_reason(storage_options: Mapping[str, Any], path: str) -> str | None:
    """Look into a file of another name: it may be the catalog itself, or whatever else lies there."""
    from ...storage.files.filesystem import exists, open_filesystem
    from ...storage.moving.restored import not_a_lake_file_reason

    try:
        there = exists(path, storage_options)
        return not_a_lake_file_reason(open_filesystem(path, storage_options), None) if there else None
    except StorageError as error:
        return f"cannot be looked at: {error}"


def _still_named(catalog: Catalog, due: Sequence[_Scheduled]) -> set[str]:
    """Return the paths of those that a row of the lake names, in whatever spelling or by a linked folder."""
    from ...storage.files.local import real_path

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
            if not is_full or not is_absolute(path):  # in an unknown directory
                found.update(names.get(path_key(path).rpartition("/")[2], ()))
            elif _may_be_one_of(path, names):
                key = path_key(path)
                found.update(paths.get(key, ()))
                others = names.get(key.rpartition("/")[2], set()) - found if is_local(path) else ()
                found.update(one for one in others if real_path(one) == real_path(path))
    return found


def _may_be_one_of(path: str, names: Collection[str]) -> bool:
    """Return True if a path may end in one of the names: a cheap test before its key is computed."""
    last = path.rpartition("/")[2].casefold()
    return last in names or last in ("", ".", "..") or "%" in path or "\\" in path or not path.isascii()


def _check_reachable(catalog: Catalog, storage_options: Mapping[str, Any]) -> None:
    """Refuse to take every file for gone where it is the whole directory that is not there."""
    from ...storage.files.filesystem import exists, open_filesystem

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

    def write(connection: Connection) -> None:
        for part in chain(in_parts(relative), in_parts(others)):
            connection.execute(_deletion(catalog, part))

    if rows:
        in_transaction(catalog.dialect, write)


def _deletion(catalog: Catalog, rows: Sequence[_Scheduled]) -> Delete:
    """Build the DELETE of rows whose paths are all relative, or all absolute."""
    file = catalog.tables["files_scheduled_for_deletion"]
    is_relative = file.c.path_is_relative.is_(true())
    return file.delete().where(
        or_(file.c.data_file_id.is_(None), file.c.data_file_id.in_([one.id for one in rows])),
        file.c.path.in_([one.stored for one in rows]),
        is_relative if rows[0].is_relative else ~is_relative,
    )


# The mark that a lake leaves below its data path to show other lakes that the files are its own.
#
# The mark is named by the lake and holds a token, new each time, which the catalog stores as well: a copy of
# the catalog, or a backup of it, lacks the newest. The tokens are in a table of our own.


_KEPT = timedelta(days=7)
_LENGTH = 36
_MOST_BYTES = 2**16  # of a mark, which has about a hundred

# The tokens; all rows have the lake's own id.
MARKS = OwnTable(
    "airflow_ducklake_mark",
    Column("token", String(_LENGTH), primary_key=True),
    Column("lake_id", String(_LENGTH), nullable=False),
    Column("written_at", CatalogTimestamp, nullable=False),
)


def mark_names(connection: Connection, catalog: Catalog) -> frozenset[str]:
    """Return the name of the lake's mark; none if it never left one."""
    return frozenset(MARK + lake_id for _, lake_id in _tokens(connection, catalog))


def leave_mark(catalog: Catalog, storage_options: Mapping[str, Any]) -> str:
    """Look at the mark below the data path, write a new token there, and return the mark's name."""
    from ...storage.files.filesystem import write_bytes

    MARKS.ensure(catalog)
    with catalog.dialect.reading() as connection:
        name = next(iter(mark_names(connection, catalog)), None)
    if name is not None:
        check_mark(catalog, name, storage_options)
    lake_id, token = _add_token(catalog)
    document = json.dumps({"lake": lake_id, "token": token}).encode()
    write_bytes(f"{catalog.data_path}{MARK}{lake_id}", document, storage_options)
    return MARK + lake_id


def check_mark(catalog: Catalog, name: str, storage_options: Mapping[str, Any]) -> None:
    """Check that the mark, if there is one, holds a token that the catalog has stored."""
    from ...storage.files.filesystem import exists, read_bytes

    path = catalog.data_path + name
    if not exists(path, storage_options):
        return
    try:
        token = str(json.loads(read_bytes(path, storage_options, limit=_MOST_BYTES))["token"])
    except (ValueError, KeyError, TypeError, RecursionError):
        token = ""
    with catalog.dialect.reading() as connection:
        known = {known for known, _ in _tokens(connection, catalog)}
    if token not in known:
        raise SharedDataPathError(
            catalog.data_path,
            f"{path} was written by a copy of this catalog, or by a newer state of it. If no such copy is "
            "in use any more, remove that file and run this again.",
        )


def _tokens(connection: Connection, catalog: Catalog) -> list[tuple[str, str]]:
    rows = MARKS.rows(connection, catalog, select(MARKS.of(catalog)))
    return [(row.token, _checked(row.lake_id)) for row in rows]


def _checked(lake_id: str) -> str:
    """Return an id that a file is named by."""
    try:
        return str(uuid.UUID(lake_id))
    except (ValueError, AttributeError, TypeError):  # UUID raises the others for values that are no texts
        raise UntrustedValueError(MARKS.name, lake_id, "is not the id of a lake") from None


def _add_token(catalog: Catalog) -> tuple[str, str]:
    """Record a new token before it is written, and remove those of last week."""
    token, table = str(uuid.uuid4()), MARKS.of(catalog)

    def write(connection: Connection) -> str:
        now = catalog.dialect.server_time(connection)
        rows = connection.execute(select(table)).all()
        lake_id = _checked(rows[0].lake_id) if rows else str(uuid.uuid4())
        connection.execute(table.insert(), {"token": token, "lake_id": lake_id, "written_at": now})
        newest = max((row.written_at for row in rows), default=now)
        old = [row.token for row in rows if row.written_at < min(now - _KEPT, newest)]
        for part in in_parts(old):
            connection.execute(table.delete().where(table.c.token.in_(part)))
        return lake_id

    return in_transaction(catalog.dialect, write), token
