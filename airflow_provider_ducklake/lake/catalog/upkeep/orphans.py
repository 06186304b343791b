"""Delete files below the data path that the catalog does not name, left by failed or killed writes.

A file that was just written looks the same, so only those of a certain age go, none of a job that may still
commit, and none at all where another lake seems to keep its files there. *Source:* the reference's
``ducklake_delete_orphaned_files`` (docs/sources.md, maintenance), which has the age alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from ...errors import SharedDataPathError, StorageError
from ...format.log_lines import logger
from ...format.names.paths import CatalogPath, path_key
from ...planning.upkeep.files import LakeFiles, Orphans, StoredFile, cut_off, find_orphans, foreign_evidence
from ..database.connect import in_parts, streamed
from ..ledger import jobs
from ..snapshot import read_snapshots
from ..snapshot.read_files import may_mislead, named_files, scheduled_files, table_directories
from .cleanup import check_mark, leave_mark, mark_names

if TYPE_CHECKING:
    from ...storage.files.writing import Upload
    from ..dialects.dialect import Catalog

log = logger(__name__)

FILES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class OrphanRule:
    """The user's arguments; times are aware.

    ``stage_ttl``: how long the files of an uncommitted job are kept. ``sole_owner``: the user guarantees
    that no other lake has files below the data path.
    """

    older_than: datetime | timedelta
    floor: timedelta
    stage_ttl: timedelta
    sole_owner: bool = False


@dataclass(frozen=True, slots=True)
class OrphansResult:
    """What a deletion of orphans did, or with ``dry_run`` would do; paths are full ones.

    ``young`` and ``protected`` count the orphaned files that stay: for their age, and for the
    sake of jobs that may still commit. ``failures`` are (path, reason) of files and directories.
    ``evidence`` says why a dry run would be refused. ``uploads`` are the files of unfinished uploads,
    whose parts S3 dropped.
    """

    deleted: tuple[str, ...]
    bytes: int
    young: int
    protected: int
    failures: tuple[tuple[str, str], ...]
    evidence: str | None
    dry_run: bool
    uploads: tuple[str, ...] = ()


def delete_orphans(
    catalog: Catalog, rule: OrphanRule, storage_options: Mapping[str, Any], *, dry_run: bool
) -> OrphansResult:
    """Delete what ``rule`` chooses.

    The catalog is read before the files are listed, and they are looked at one by one, since there may be
    millions. What is written in the meantime is younger than the lake's mark; what is committed in the
    meantime is looked up before it would be deleted.
    """
    from ...storage.files.listing import changed_at, list_files

    with catalog.dialect.reading() as connection:
        now = catalog.dialect.server_time(connection)
    cut_off(rule.older_than, now, rule.floor)  # before anything is done
    mark = None if dry_run else leave_mark(catalog, storage_options)
    marked_at = None if mark is None else changed_at(catalog.data_path + mark, storage_options)
    limit = _limit(rule, now, marked_at)
    begun = _begun_uploads(catalog.data_path, storage_options)
    if not dry_run:
        jobs.retire(catalog, rule.stage_ttl)
    lake, next_file_id, marks = _what_is_named(catalog)
    listing = list_files(catalog.data_path, storage_options)
    stored = (
        StoredFile(catalog.data_path + one.name, one.name, one.size, one.changed_at) for one in listing.files
    )
    orphans = find_orphans(stored, lake, limit, marks)
    orphans = _without_linked(orphans, [one for one in orphans.files if listing.is_linked(one.name)])
    evidence = _evidence(orphans.other_marks)
    if evidence is None and not rule.sole_owner:
        evidence = foreign_evidence(orphans, lake)
    failures = list(listing.unreadable.items())
    abandoned = _abandoned(begun, catalog.data_path, lake, limit)
    if dry_run:
        size = sum(one.size for one in orphans.files)
        paths = tuple(one.path for one in orphans.files)
        uploads = tuple(catalog.data_path + one.name for one in abandoned)
        return OrphansResult(
            paths, size, orphans.young, orphans.protected, tuple(failures), evidence, dry_run, uploads
        )
    if evidence is not None:
        raise SharedDataPathError(catalog.data_path, evidence)
    assert mark is not None
    check_mark(catalog, mark, storage_options)
    deleted = _delete(catalog, orphans.files, next_file_id, storage_options, failures)
    uploads = _abort(abandoned, catalog.data_path, storage_options, failures)
    size = sum(one.size for one in deleted)
    paths = tuple(one.path for one in deleted)
    return OrphansResult(
        paths, size, orphans.young, orphans.protected, tuple(failures), None, dry_run, uploads
    )


def _without_linked(orphans: Orphans, linked: Sequence[StoredFile]) -> Orphans:
    """Keep what symbolic links lead to: the lake may name it by their paths."""
    if not linked:
        return orphans
    log.warning("%d files stay, since symbolic links lead to them, such as %s", len(linked), linked[0].path)
    kept = set(linked)
    files = tuple(one for one in orphans.files if one not in kept)
    return replace(orphans, files=files, protected=orphans.protected + len(linked))


def _begun_uploads(data_path: str, storage_options: Mapping[str, Any]) -> list[Upload]:
    """Return the uploads under way; none where the store, or the user's rights, do not let them be listed."""
    from ...storage.files.writing import unfinished_uploads

    try:
        return unfinished_uploads(data_path, storage_options)
    except StorageError as error:
        log.warning("Unfinished uploads are left to the store's own rules: %s", error)
        return []


def _abandoned(begun: Sequence[Upload], data_path: str, lake: LakeFiles, limit: datetime) -> list[Upload]:
    """Return the uploads whose files would be orphans."""
    by_file = {StoredFile(data_path + one.name, one.name, 0, one.began_at): one for one in begun}
    return [by_file[one] for one in find_orphans(by_file, lake, limit).files]


def _abort(
    uploads: Sequence[Upload],
    data_path: str,
    storage_options: Mapping[str, Any],
    failures: list[tuple[str, str]],
) -> tuple[str, ...]:
    from ...storage.files.writing import abort_upload

    aborted = []
    for one in uploads:
        problem = abort_upload(data_path, one, storage_options)
        if problem is None:
            aborted.append(data_path + one.name)
        else:
            failures.append((data_path + one.name, problem))
    return tuple(aborted)


def _limit(rule: OrphanRule, now: datetime, marked_at: datetime | None) -> datetime:
    """Return before when a file must have changed: by the slowest of the clocks, the store's among them."""
    slowest = min(now, datetime.now(UTC), marked_at or now)
    if isinstance(rule.older_than, datetime):
        return min(rule.older_than, slowest - rule.floor)
    return cut_off(rule.older_than, slowest, rule.floor)


def _what_is_named(catalog: Catalog) -> tuple[LakeFiles, int, frozenset[str]]:
    """Collect the paths that the lake names, the first file id that is free, and the lake's own marks."""
    lake, data_path_key = LakeFiles(), path_key(catalog.data_path).rstrip("/") + "/"
    with catalog.dialect.reading() as connection:
        head = read_snapshots.head(connection, catalog.tables)
        known = jobs.all_jobs(connection, catalog)
        lake.jobs = {
            id_: path_key(one.prefix.removesuffix("/").rpartition("/")[0]) for id_, one in known.items()
        }
        lake.open_jobs = frozenset(one.id for one in known.values() if one.released_at is None)
        for path, is_full in named_files(connection, catalog):
            lake.add(path, data_path_key, is_full=is_full)
        for path in scheduled_files(connection, catalog):
            lake.add(path, data_path_key)
        _check_readable(connection, catalog)
        directories = table_directories(connection, catalog)
        lake.directories = {path_key(one) for roots in directories.values() for one in roots}
        return lake, head.next_file_id, mark_names(connection, catalog)


def _check_readable(connection: Connection, catalog: Catalog) -> None:
    """Refuse a catalog that has a directory elsewhere: all files of the true one would seem to be orphans."""
    for kind in ("schema", "table"):
        row = catalog.tables[kind]
        query = select(row.c.path, row.c.path_is_relative).where(may_mislead(row.c.path))
        for path, is_relative in streamed(connection, query):
            CatalogPath(path, is_relative).below(catalog.data_path, f"A row of ducklake_{kind}")


def _evidence(marks: Sequence[str]) -> str | None:
    if not marks:
        return None
    return (
        f"it contains the mark of another lake, {', '.join(marks)}. Give each lake a data path of its own; "
        "if that lake no longer exists, remove its mark."
    )


def _delete(
    catalog: Catalog,
    files: Sequence[StoredFile],
    next_file_id: int,
    storage_options: Mapping[str, Any],
    failures: list[tuple[str, str]],
) -> list[StoredFile]:
    """Delete files, many at once, but those that commits since have named; return which are gone."""
    from ...storage.files.listing import delete_files

    deleted: list[StoredFile] = []
    for part in in_parts(files, FILES_AT_ONCE):
        with catalog.dialect.reading() as connection:
            named = {path_key(path) for path, _ in named_files(connection, catalog, since=next_file_id)}
        free = [one for one in part if path_key(one.path) not in named]
        done = delete_files([one.path for one in free], storage_options, below=catalog.data_path)
        deleted += [one for one, outcome in zip(free, done, strict=True) if outcome.error is None]
        failures += [(outcome.path, outcome.error) for outcome in done if outcome.error is not None]
        log.info("Deleted %d of %d orphaned files, %d failed", len(deleted), len(files), len(failures))
    return deleted
