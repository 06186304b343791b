"""Migrate a catalog to a newer version completely or not at all, under the commit lock.

Files come first, under new names that no row lists. Then, in one transaction, what the layout lacks, has too
much of and names otherwise, the rows, and last the version. Where DDL is no part of a transaction: what the
layout lacks, statement by statement, then all rows at once and the version that says that the migration is
unfinished, then the columns that are too many or get another name, then the version. A catalog whose clients
would stumble over what it has too much gets that unfinished version first. So whatever a kill leaves is a
catalog that the next call finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from ...errors import MigrationRefusedError, StorageError, TransactionConflictError, UnsupportedFeatureError
from ...format.log_lines import logger
from ...format.versions import DEFAULT, WRITABLE, SpecVersion, opened_by, refused
from ..committing.delete_writer import remove_unused
from ..database.connect import catalog_file
from ..database.file_connections import made_private
from ..database.tables import catalog_tables
from ..dialects.dialect import DEFAULT_RETRY, Catalog, CatalogDialect, with_retries
from ..snapshot import read
from ..snapshot.read_snapshots import head_of_any_version
from . import files as old_files
from . import steps
from .steps import LayoutChange

if TYPE_CHECKING:
    from ...format.names.paths import CatalogPath
    from ...storage.files.filesystem import Location
    from ..snapshot.read import Place


# Back up a catalog file, in its own directory, before a migration.


def back_up(dialect: CatalogDialect, connection: Connection, version: SpecVersion) -> Path | None:
    """Copy the catalog's file and return the copy's path; None: it is on a server, which has its own backups.

    Only users who can read the original can read the copy.
    The connection holds the commit lock, and has changed nothing yet.
    """
    file = catalog_file(dialect.engine.url)
    if file is None:
        return None
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = file.with_name(f"{file.name}.{version.value}.{now}.backup")
    with made_private(target, like=file) as made:
        dialect.copy_file(connection, made)
    return target


log = logger(__name__)

_NO_MERGED_FILES = old_files.OldMergedFiles()
_MAY_NOT_ALTER = "The database's user may not alter the catalog's tables."
_MAX_PLANS = 10  # an old client that merges files all the while has to stop some time


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a migration did, or with ``dry_run`` would do; no ``steps``: the catalog had the version already.

    ``files`` counts the merged files and the chains of delete files that were rewritten, ``bytes`` the
    size of what was read for that. ``backup`` is the copy of a catalog that is a file, as it was before.
    ``refusals`` are the reasons why it cannot be migrated as it is, each with what to do; ``opened_by`` says
    which clients open the catalog then. ``locked_out``, of a dry run: clients that wrote the newest files and
    do not open it then.
    """

    from_version: str
    steps: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    backup: str | None = None
    dry_run: bool = False
    to_version: str = DEFAULT.value
    refusals: tuple[str, ...] = ()
    opened_by: str = ""
    locked_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    version: SpecVersion
    target: SpecVersion
    snapshot_id: int
    grow: tuple[LayoutChange, ...] = ()
    fills: tuple[steps.Fill, ...] = ()
    merged: old_files.OldMergedFiles = _NO_MERGED_FILES
    chains: tuple[old_files.DeleteChain, ...] = ()
    shrink: tuple[LayoutChange, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Return True if the catalog has the version, or a newer one."""
        return self.version >= self.target

    def result(self, to_copy: Collection[old_files.OldMergedFile], *, dry_run: bool) -> MigrationResult:
        """Build the result, given the merged files to copy."""
        size = sum(file.size or 0 for file in to_copy) + sum(
            file.size or 0 for chain in self.chains for file in chain.files
        )
        count = len(to_copy) + len(self.chains)
        to_version = max(self.version, self.target)
        return MigrationResult(
            self.version.value,
            () if self.is_done else tuple(self._steps(len(to_copy))),
            count,
            size,
            dry_run=dry_run,
            to_version=to_version.value,
            refusals=self.refusals,
            opened_by=opened_by(to_version),
        )

    def check(self) -> None:
        """Refuse what cannot be migrated as it is."""
        if self.refusals:
            raise MigrationRefusedError(self.target.value, self.refusals)

    def _steps(self, copied: int) -> Iterator[str]:
        joined = len(self.chains)
        if copied:
            yield f"copy {copied} merged files that do not say by which snapshot each row came"
        if joined:
            yield f"make one delete file of each of {joined} chains of them"
        yield from (change.what for change in self.grow)
        yield from (fill.what for fill in self.fills)
        if copied + joined:
            yield f"name {copied + joined} new files, schedule the old ones for deletion"
        yield from (change.what for change in self.shrink)
        yield f"set the version to {self.target.value}"


@dataclass(frozen=True, slots=True)
class Files:
    """A migration's access to the lake's files; ``refuse`` raises if it has none."""

    locate: Callable[[str], Location]
    refuse: Callable[[], None]


def migrate(
    catalog: Catalog, files: Files, target: SpecVersion = DEFAULT, *, dry_run: bool, backup: bool
) -> MigrationResult:
    """Bring the catalog to a version; one that has it already, or a newer one, is left alone."""
    with catalog.dialect.reading() as connection:
        plan = _plan(connection, catalog, target)
        rights = catalog.dialect.why_not_alter(connection, catalog.tables["metadata"])
    if rights is not None:
        plan = replace(plan, refusals=(*plan.refusals, f"{_MAY_NOT_ALTER} {rights}"))
    if plan.is_done and plan.version not in WRITABLE:
        raise refused(plan.version.value, WRITABLE)
    migration = _Migration(catalog, files, target, wants_backup=backup)
    if plan.is_done:
        return replace(plan, refusals=()).result((), dry_run=dry_run)
    if dry_run:
        refusals = (*plan.refusals, *migration.why_not_readable(plan))
        return replace(plan, refusals=refusals).result(migration.to_copy(plan), dry_run=True)
    plan.check()
    migration.inspect(plan)
    try:
        result = migration.run(plan)
    except BaseException:
        migration.clean_up()
        raise
    log.info(
        "Migrated the catalog from %s to %s: %d steps",
        result.from_version,
        result.to_version,
        len(result.steps),
    )
    return result


def _plan(connection: Connection, catalog: Catalog, target: SpecVersion) -> _Plan:
    schema = catalog.tables.metadata_schema
    version = min(SpecVersion.parse(text) for text in read.stored_versions(connection, catalog.tables))
    old, new = catalog_tables(version, schema), catalog_tables(target, schema)
    snapshot_id = head_of_any_version(connection, old).id
    if version >= target:
        return _Plan(version, target, snapshot_id)
    found = steps.found_layout(connection, catalog.dialect, schema)
    renames, unrenamed = steps.read_renames(connection, catalog.dialect, old, new)
    merged = old_files.read_merged_files(connection, old)
    conversions = steps.read_conversions(connection, catalog.dialect, old) if target > DEFAULT else ()
    return _Plan(
        version,
        target,
        snapshot_id,
        tuple(steps.growth(found, new)),
        steps.fills_of(version, target),
        merged,
        old_files.read_delete_chains(connection, old),
        (*steps.shrinkage(found, new), *renames, *conversions),
        (
            *steps.why_not_ordered(found, new),
            *steps.why_not_keyed(connection, old),
            *merged.refusals,
            *unrenamed,
        ),
    )


class _Migration:
    """One migration under way: the files that it made, and whether they may be in use."""

    def __init__(self, catalog: Catalog, files: Files, target: SpecVersion, *, wants_backup: bool) -> None:
        self._catalog = catalog
        self._files = files
        self._target = target
        self._wants_backup = wants_backup
        self._schema = catalog.tables.metadata_schema
        self._tables = catalog_tables(target, self._schema)
        self._needs_copy: dict[old_files.OldMergedFile, bool] = {}
        self._copies: dict[old_files.OldMergedFile, old_files.StampedCopy] = {}
        self._joined: dict[old_files.DeleteChain, old_files.JoinedDeletes] = {}
        self._backup: Path | None = None
        self._named: set[Place] = set()  # files that the catalog may name by now
        self._may_be_committed = False

    def inspect(self, plan: _Plan) -> None:
        """Find out which merged files have to be copied; nothing is written."""
        from ...storage.files.parallel import in_threads

        if plan.merged.counted or plan.chains:
            self._files.refuse()
        in_threads(self._inspect_file, [file for file in plan.merged.counted if file not in self._needs_copy])

    def _inspect_file(self, file: old_files.OldMergedFile) -> None:
        self._needs_copy[file] = old_files.needs_copy(file, self._catalog.data_path, self._files.locate)

    def why_not_readable(self, plan: _Plan) -> tuple[str, ...]:
        """Read what the migration would, and return why that is not possible, each with what to do."""
        from ...storage.files.parallel import in_threads

        data_path, locate = self._catalog.data_path, self._files.locate
        tries = [_Try(partial(self._inspect_file, file), file.newest) for file in plan.merged.counted]
        tries += [
            _Try(partial(old_files.deletes_of, chain, data_path, locate), chain.files[-1].begin - 1)
            for chain in plan.chains
        ]
        if tries and (refusal := _why_not(self._files.refuse)) is not None:
            return (refusal,)
        return tuple(one for one in in_threads(_Try.why_not, tries) if one is not None)

    def to_copy(self, plan: _Plan) -> list[old_files.OldMergedFile]:
        """Return the merged files of a plan that have to be copied, as far as they could be read."""
        return [file for file in plan.merged.counted if self._needs_copy.get(file, False)]

    def run(self, plan: _Plan) -> MigrationResult:
        """Copy the files, then change the catalog; start again if it got other merged files by then."""
        for _ in range(_MAX_PLANS):
            self.inspect(plan)
            self._write(plan)
            done, _ = with_retries(self._catalog.dialect, DEFAULT_RETRY, self._attempt)
            if isinstance(done, MigrationResult):
                self._remove_files()
                return done
            plan = done
        raise TransactionConflictError(
            "migrate the catalog",
            "was committed by an older client and merged files",
            "the lake",
            plan.snapshot_id,
        )

    def _write(self, plan: _Plan) -> None:
        from ...storage.files.parallel import in_threads

        data_path, locate = self._catalog.data_path, self._files.locate
        beside = [*(file.place for file in self.to_copy(plan)), *(one.files[-1].place for one in plan.chains)]
        for place in beside:
            self._catalog.check_writable(place.full(data_path))

        def copy(file: old_files.OldMergedFile) -> None:
            self._copies[file] = old_files.copy_stamped(file, data_path, locate)

        in_threads(copy, [file for file in self.to_copy(plan) if file not in self._copies])
        moved = {copy.of.id: copy.place for copy in self._copies.values()}

        def join(chain: old_files.DeleteChain) -> None:
            data_file = moved.get(chain.data_file_id, chain.data_file)
            self._joined[chain] = old_files.join_chain(chain, data_file, data_path, locate)

        in_threads(join, [chain for chain in plan.chains if chain not in self._joined])

    def _has_files_of(self, plan: _Plan) -> bool:
        return self._needs_copy.keys() >= set(plan.merged.counted) and self._joined.keys() >= set(plan.chains)

    def _attempt(self) -> MigrationResult | _Plan:
        """Change the catalog in one transaction; return a new plan where files are to be copied first."""
        with self._catalog.dialect.writing() as connection:
            plan = _plan(connection, self._catalog, self._target)
            if plan.is_done:  # another one was faster
                return plan.result((), dry_run=False)
            plan.check()
            if self._wants_backup:
                self._remove_backup()  # of an attempt that lost a race: it lacks the winner's snapshot
                self._backup = back_up(self._catalog.dialect, connection, plan.version)
            self._mark_if_complete(connection, plan)
            _execute(connection, plan.grow)
            # Old clients ignore the lock; most databases make them wait from here on.
            now = _plan(connection, self._catalog, self._target)
            if not self._has_files_of(now):
                connection.rollback()
                return now
            if self._catalog.dialect.transactional_ddl:
                _execute(connection, now.shrink)  # DuckDB alters no table whose rows changed
                self._change_rows(connection, now)
            else:
                self._change_rows(connection, now)
                self._set_version(connection, self._tables.writer.unfinished)
                self._commit(connection, now.snapshot_id)
                _execute(connection, now.shrink)
            self._set_version(connection, self._target)
            self._commit(connection, now.snapshot_id)
        done = replace(now, version=plan.version, grow=plan.grow)
        result = done.result(self.to_copy(now), dry_run=False)
        return replace(result, backup=None if self._backup is None else str(self._backup))

    def _mark_if_complete(self, connection: Connection, plan: _Plan) -> None:
        """Keep clients of a catalog's version away that has all rows of it, before its tables change."""
        unfinished = self._tables.writer.unfinished
        if not self._catalog.dialect.transactional_ddl and SpecVersion.V0_4 <= plan.version < unfinished:
            self._set_version(connection, unfinished)
            self._commit(connection, plan.snapshot_id)

    def _change_rows(self, connection: Connection, plan: _Plan) -> None:
        for fill in plan.fills:
            fill.run(connection, self._tables, plan.version)
        copied, joined = self.to_copy(plan), [self._joined[chain] for chain in plan.chains]
        stamped = [(file.id, file.newest) for file in plan.merged.counted if not self._needs_copy[file]]
        old_files.put_stamped(connection, self._tables, [*plan.merged.stamped, *stamped])
        self._named |= {self._copies[file].place for file in copied}
        self._named |= {one.place for one in joined if one.place is not None}
        old_files.put_copies(connection, self._tables, [self._copies[file] for file in copied])
        old_files.put_joined(connection, self._tables, joined)
        old = [
            *(file.place for file in copied),
            *(file.place for one in joined if one.place is not None for file in one.of.files),
        ]
        self._schedule(connection, [place.from_data_path for place in old])

    def _schedule(self, connection: Connection, paths: list[CatalogPath]) -> None:
        """Hand files to the clean-up, each under a new id: DuckDB's forgets all rows of an id at once."""
        snapshot = self._tables["snapshot"]
        newest = head_of_any_version(connection, self._tables)
        now = self._catalog.dialect.server_time(connection)
        rows = [
            {
                "data_file_id": newest.next_file_id + place,
                "path": path.path,
                "path_is_relative": path.is_relative,
                "schedule_start": now,
            }
            for place, path in enumerate(paths)
        ]
        if rows:
            connection.execute(self._tables["files_scheduled_for_deletion"].insert(), rows)
            connection.execute(
                update(snapshot)
                .where(snapshot.c.snapshot_id == newest.id)
                .values(next_file_id=newest.next_file_id + len(rows))
            )

    def _set_version(self, connection: Connection, version: SpecVersion) -> None:
        metadata = self._tables["metadata"]
        connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version.value))

    def _commit(self, connection: Connection, snapshot_id: int) -> None:
        snapshot = self._tables["snapshot"]
        newer = connection.execute(select(snapshot.c.snapshot_id).where(snapshot.c.snapshot_id > snapshot_id))
        if (first := newer.scalars().first()) is not None:
            raise TransactionConflictError(
                "migrate the catalog", "was committed by an older client", "the lake", first
            )
        before, self._may_be_committed = self._may_be_committed, True
        try:
            connection.commit()
        except DBAPIError as error:
            dialect = self._catalog.dialect
            if dialect.is_lost_race(error) or dialect.is_refusal(error):
                self._may_be_committed = before
            raise

    def _remove_files(self) -> None:
        """Remove the files that the catalog does not name, whatever became of the last COMMIT."""
        copied = {one.place for one in self._copies.values()}
        joined = {one.place for one in self._joined.values() if one.place is not None}
        kept = self._named if self._may_be_committed else set()
        unused = [one.full(self._catalog.data_path) for one in (copied | joined) - kept]
        remove_unused(unused, self._files.locate)

    def clean_up(self) -> None:
        """Remove what a migration that failed has made; nothing that a COMMIT without an answer may need."""
        self._remove_files()
        if not self._may_be_committed:
            self._remove_backup()

    def _remove_backup(self) -> None:
        if self._backup is not None:
            self._backup.unlink(missing_ok=True)
            self._backup = None


@dataclass(frozen=True, slots=True)
class _Try:
    """Reading a file that only snapshots up to one need."""

    read: Callable[[], object]
    up_to: int

    def why_not(self) -> str | None:
        """Explain why it cannot be read, and what to do; None: it can."""
        reason = _why_not(self.read)
        if reason is None:
            return None
        return (
            f"{reason} Put the file back from a backup, if it is lost or damaged; or expire all snapshots "
            f"up to {self.up_to} with the DuckDB that wrote them: then the migration leaves it alone."
        )


def _why_not(act: Callable[[], object]) -> str | None:
    try:
        act()
    except (StorageError, UnsupportedFeatureError) as error:
        return str(error)
    return None


def _execute(connection: Connection, changes: Iterable[LayoutChange]) -> None:
    for change in changes:
        connection.execute(change.ddl)
