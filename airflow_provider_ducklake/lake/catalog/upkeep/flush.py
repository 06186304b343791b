"""Move inlined rows and deletes to Parquet files; no snapshot changes for any reader.

Rows pass through this process, as they come from its database. A concurrent commit that conflicts with a
table's flush makes that table be read again; nothing of it was committed by then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import table
from uuid6 import uuid7

from ... import errors
from ...format.log_lines import logger
from ...format.names.paths import job_directory
from ...format.versions import Feature
from ...planning.upkeep.compaction import FlushPlan, FlushResult, LayoutToFlush, plan_layout
from ...transaction.changes import (
    AddDeletes,
    Change,
    ChangeSet,
    FlushedFile,
    FlushInlined,
    Positions,
    UnwrittenDeletes,
)
from ..committing.commit import check_change_set
from ..committing.delete_writer import remove_unused
from ..database.connect import in_parts
from ..ledger import jobs
from ..snapshot import read, read_files, read_snapshots
from ..snapshot.inlined_read import inlined_batches, inlined_delete_snapshots, inlined_of
from ..snapshot.read_layouts import rows_of_layout
from ..snapshot.scan import load_table, partitionings_query

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.names.identifiers import QualifiedName, SchemaPath
    from ...format.snapshots import CommittedSnapshot, DataFileId, Snapshot, TableSnapshot
    from ...planning.reading.scan import InlinedRows
    from ...storage.files.filesystem import Location
    from ..dialects.dialect import Catalog

    Commit = Callable[[Sequence[ChangeSet], Sequence[str]], CommittedSnapshot | None]


# Read the inlined rows and deletes of tables that are to be flushed.


_TABLES_AT_ONCE = 200
_DYNAMIC = re.compile(r"ducklake_inlined_(?:data_(\d{1,19})_\d{1,19}|delete_(\d{1,19}))\Z")


def tables_with_inlined_data(
    connection: sa.Connection, catalog: Catalog, snapshot: Snapshot, schema: SchemaPath | None
) -> list[QualifiedName]:
    """List the tables, of a schema or of all, that have inlined rows or deletes."""
    metadata_schema = catalog.tables.metadata_schema
    asked = []
    for name in sorted(catalog.dialect.table_names(connection, metadata_schema)):
        if found := _DYNAMIC.match(name):
            rows = table(name, schema=metadata_schema)
            has_rows = sa.exists(sa.select(sa.literal(1)).select_from(rows))
            asked.append(sa.select(sa.literal(int(found[1] or found[2])).label("table_id")).where(has_rows))
    filled = {
        table_id
        for part in in_parts(asked, _TABLES_AT_ONCE)
        for table_id in connection.execute(sa.union_all(*part)).scalars()
    }
    return [
        row.qualified
        for row in read.table_rows(connection, catalog.tables, snapshot.id)
        if row.id in filled and (schema is None or row.schema.name.folded == schema.folded)
    ]


def find_flush(connection: sa.Connection, catalog: Catalog, found: TableSnapshot) -> FlushPlan:
    """Plan the flush of a table: all of its snapshot and before."""
    marks = inlined_delete_snapshots(connection, catalog, found.table_id, found.snapshot.id)
    files = tuple(_files(connection, catalog, found, marks))
    return FlushPlan(found, tuple(_layouts(connection, catalog, found)), files, marks)


def _layouts(connection: sa.Connection, catalog: Catalog, found: TableSnapshot) -> Iterator[LayoutToFlush]:
    inlined = inlined_of(connection, catalog, found)
    partitionings = partitionings_query(catalog.tables, found.table_id).ask(connection)
    for layout in inlined.layouts:
        rows = rows_of_layout(connection, catalog, found.table_id, layout.schema_version, found.snapshot.id)
        if rows is not None:
            spec = partitionings.at(layout.begin)
            yield LayoutToFlush(rows.upto, inlined.columns.at(layout.begin), spec)


def _files(
    connection: sa.Connection,
    catalog: Catalog,
    found: TableSnapshot,
    marks: Mapping[DataFileId, Mapping[int, int]],
) -> Iterator[LiveDataFile]:
    """Yield the live data files that have marks.

    Those of files that ended stay as they are until these expire, and so do those of a file with two delete
    files, which ``Lake.repair`` merges.
    """
    file_id = catalog.tables["data_file"].c.data_file_id
    for part in in_parts(marks):
        only = file_id.in_(part)
        for file in read_files.data_files(connection, catalog, found, only=only, stats_of=()):
            if not file.older_delete_files:
                yield file


def rows_to_flush(
    connection: sa.Connection, catalog: Catalog, found: TableSnapshot, schema_version: int
) -> Iterator[InlinedRows]:
    """Yield the rows of an inlined table but those that had ended before the oldest snapshot there is.

    Those are of no snapshot, and of no change between two of them.
    """
    ids = catalog.tables["snapshot"].c.snapshot_id
    oldest = connection.execute(sa.select(sa.func.min(ids))).scalar_one()

    def is_known(rows: sa.Table) -> sa.ColumnElement[bool]:
        ended = rows.c.end_snapshot
        return sa.and_(rows.c.begin_snapshot <= found.snapshot.id, sa.or_(ended.is_(None), ended >= oldest))

    yield from inlined_batches(connection, catalog, found, schema_version, is_known)


log = logger(__name__)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class FlushRule:
    """What to flush: a table, or all of a schema or of the lake that have ``min_rows``.

    Rows and deletes count alike. Tables whose option ``auto_compact`` is off have to be named.
    """

    table: QualifiedName | None = None
    schema: SchemaPath | None = None
    min_rows: int = 0

    def __post_init__(self) -> None:
        if self.table is not None and self.schema is not None:
            raise errors.InvalidInputError(
                f"Give a table or a schema, not both: {self.table} and {self.schema!r}."
            )
        if self.min_rows < 0:
            raise errors.InvalidInputError(f"min_rows={self.min_rows}: give 0 or more.")


@dataclass(frozen=True, slots=True)
class _Flushed:
    """A table's files, written and not committed; ``job_id`` protects them from clean-ups."""

    plan: FlushPlan
    job_id: str
    change_set: ChangeSet
    files: tuple[FlushedFile, ...]
    paths: Sequence[str]

    def result(self, committed: CommittedSnapshot) -> FlushResult:
        sizes = [one.file.file_size_bytes for one in self.files]
        deletes = [one.deletes for one in self.files if one.deletes is not None]
        return FlushResult(
            self.plan.table.name,
            self.plan.row_count,
            self.plan.ended_count,
            self.plan.mark_count,
            data_files=len(sizes),
            delete_files=len(deletes) + len(self.plan.files),
            bytes=sum(sizes) + sum(one.file_size_bytes for one in deletes),
            snapshot_id=committed.id,
        )


@dataclass(slots=True)
class Flush:
    """One flush: the tables that are ready to be committed, as one snapshot.

    ``commit`` takes the change sets and the ids of the jobs to be released.
    """

    catalog: Catalog
    locate: Callable[[str], Location]
    rule: FlushRule
    commit: Commit
    _ready: dict[QualifiedName, _Flushed] = field(default_factory=dict)
    _failed: dict[QualifiedName, errors.DuckLakeError] = field(default_factory=dict)

    def dry_run(self) -> list[FlushResult]:
        """Compute what would be flushed, and change nothing."""
        plans = []
        for name in self._names():
            with self.catalog.dialect.reading() as connection:
                plans.append(self._plan(connection, name))
        return [
            FlushResult(plan.table.name, plan.row_count, plan.ended_count, plan.mark_count)
            for plan in plans
            if plan is not None
        ]

    def run(self) -> list[FlushResult]:
        """Flush, and return what was done with each table; nothing to do, no snapshot."""
        committed = self._commit(self._names())
        if self._failed:
            raise self._failures(committed)
        return [one.result(committed) for one in self._ready.values()] if committed is not None else []

    def _failures(self, committed: CommittedSnapshot | None) -> errors.DuckLakeError:
        failures = list(self._failed.values())
        may_pass = any(isinstance(error, errors.StorageError) for error in failures)
        if committed is None and len(failures) == 1 and not may_pass:
            return failures[0]
        done = f"snapshot {committed.id} flushed {len(self._ready)} others" if committed else "nothing landed"
        of_each = "; ".join(f"{name}: {error}" for name, error in self._failed.items())
        kind = errors.StorageError if may_pass else errors.CatalogError
        return kind(f"{len(failures)} tables could not be flushed, {done}. {of_each}")

    def _commit(self, names: Sequence[QualifiedName]) -> CommittedSnapshot | None:
        for attempt in range(_TRIES):
            self._make_all_ready(names)
            try:
                ready = self._ready.values()
                return self.commit([one.change_set for one in ready], [one.job_id for one in ready])
            except errors.TransactionConflictError as error:
                if attempt == _TRIES - 1:
                    self._discard_all()
                    raise
                log.info("%s Those tables are read again.", error)
                names = self._discard_stale()
            except errors.CommitStateUnknownError:
                raise  # the files may be the lake's
            except Exception:  # did not land; an interruption may follow COMMIT and keeps the files
                self._discard_all()
                raise
        return None

    def _make_all_ready(self, names: Sequence[QualifiedName]) -> None:
        try:
            for name in names:
                self._make_ready_if_possible(name)
        except BaseException:
            self._discard_all()
            raise

    def _make_ready_if_possible(self, name: QualifiedName) -> None:
        """Do as ``_make_ready``; a table that was not named does not keep the others."""
        try:
            self._make_ready(name)
        except errors.DuckLakeError as error:
            if self.rule.table is not None or not _is_of_one_table(error):
                raise
            log.warning("%s is left unchanged: %s", name, error)
            self._failed[name] = error

    def _discard_all(self) -> None:
        for name in list(self._ready):
            self._discard(name)

    def _discard_stale(self) -> list[QualifiedName]:
        """Discard the flushes that conflict with concurrent commits, and return the tables' names."""
        stale = [name for name, one in self._ready.items() if not _fits(self.catalog, one.change_set)]
        for name in stale:
            self._discard(name)
        return stale

    def _discard(self, name: QualifiedName) -> None:
        flushed = self._ready.pop(name)
        remove_unused(flushed.paths, self.locate)
        jobs.release(self.catalog, flushed.job_id)

    def _names(self) -> list[QualifiedName]:
        if self.rule.table is not None:
            return [self.rule.table]
        with self.catalog.dialect.reading() as connection:
            head = read_snapshots.head(connection, self.catalog.tables)
            return tables_with_inlined_data(connection, self.catalog, head, self.rule.schema)

    def _plan(self, connection: sa.Connection, name: QualifiedName) -> FlushPlan | None:
        """Plan the flush of a table; None: nothing to flush, or it is to be left alone."""
        try:
            plan = self._read_plan(connection, name)
        except (errors.TableNotFoundError, errors.SchemaNotFoundError):
            if self.rule.table is not None:
                raise
            return None  # dropped in the meantime
        wanted = self.rule.table is not None or plan.table.options.flag("auto_compact")
        enough = plan.row_count + plan.mark_count >= self.rule.min_rows
        return plan if wanted and enough and not plan.is_empty and self._can_write(plan) else None

    def _can_write(self, plan: FlushPlan) -> bool:
        """Return True if the rows can be written; if not, a table that was named is refused."""
        if plan.why_not is None:
            return True
        message = f"The inlined rows of {plan.table.name} stay in the catalog: {plan.why_not}."
        if self.rule.table is not None:
            raise errors.UnsupportedFeatureError(f"{message} Flush them with DuckDB.")
        log.warning("%s", message)
        return False

    def _read_plan(self, connection: sa.Connection, name: QualifiedName) -> FlushPlan:
        head = read_snapshots.head(connection, self.catalog.tables)
        found = load_table(connection, self.catalog, head, name, with_files=False)
        return find_flush(connection, self.catalog, found)

    def _make_ready(self, name: QualifiedName) -> None:
        with self.catalog.dialect.reading() as connection:
            plan = self._plan(connection, name)
        if plan is None:
            return
        job_id, paths = str(uuid7()), list[str]()
        jobs.register(self.catalog, job_id, job_directory(plan.table.root, job_id))
        try:
            flushed = self._write(name, job_id, paths)
        except BaseException:
            remove_unused(paths, self.locate)
            jobs.release(self.catalog, job_id)
            raise
        if flushed is None:
            jobs.release(self.catalog, job_id)
        else:
            self._ready[name] = flushed

    def _write(self, name: QualifiedName, job_id: str, paths: list[str]) -> _Flushed | None:
        """Read the rows, by one transaction, and write them; ``paths`` gets those of the files.

        None: another client has flushed them, or dropped the table, since they were first planned.
        """
        files: list[FlushedFile] = []
        with self.catalog.dialect.reading() as connection:
            plan = self._plan(connection, name)
            if plan is None:
                return None
            for layout in plan.layouts:
                if layout.rows.row_count:
                    files += self._write_layout(connection, plan, layout, job_id, paths)
        change_set = ChangeSet(plan.table.snapshot.id, tuple(_changes(plan, tuple(files))))
        return _Flushed(plan, job_id, change_set, tuple(files), paths)

    def _write_layout(
        self, connection: sa.Connection, plan: FlushPlan, layout: LayoutToFlush, job_id: str, paths: list[str]
    ) -> list[FlushedFile]:
        from ...storage.moving.flush_files import Flushing, rows_with_lives

        table = plan.table
        writing = plan_layout(table, layout, job_directory(table.root, job_id))
        found = rows_to_flush(connection, self.catalog, table, layout.schema_version)
        flushing = Flushing(writing, layout.partition_id, self.locate, paths)
        return flushing.write(rows_with_lives(part) for part in found)


def _is_of_one_table(error: errors.DuckLakeError) -> bool:
    """Return True for a store, or for rows of one table that cannot be read or written."""
    rows = (
        errors.CatalogError,
        errors.UnsupportedFeatureError,
    )  # not their subclasses, which are about the lake
    return isinstance(error, errors.StorageError | errors.InvalidValueError) or type(error) in rows


def _changes(plan: FlushPlan, files: tuple[FlushedFile, ...]) -> Iterator[Change]:
    table = plan.table
    if plan.row_count:
        layouts = tuple(one.rows for one in plan.layouts)
        yield FlushInlined(table.table_id, table.name, table.snapshot.id, layouts, files)
    if plan.files:
        deletes = tuple(
            UnwrittenDeletes(
                file.id,
                file.path,
                file.record_count,
                table.root,
                Positions(b""),
                file.delete_file,
                plan.marks[file.id],
                as_vectors=table.options.flag("write_deletion_vectors"),
                in_containers=Feature.DELETION_VECTOR_CONTAINERS in table.options.writer.features,
            )
            for file in plan.files
        )
        folded = tuple(file.id for file in plan.files)
        yield AddDeletes(table.table_id, table.name, deletes, folded, of_flush=True)


def _fits(catalog: Catalog, change_set: ChangeSet) -> bool:
    try:
        check_change_set(catalog, change_set)
    except errors.TransactionConflictError:
        return False
    return True
