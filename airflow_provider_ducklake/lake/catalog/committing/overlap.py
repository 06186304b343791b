"""Does what others did since a plan meet the rows that it read, or the files and rows that it changes?

The records of the snapshots since (``transaction.conflicts``) say whether to look at all; then the catalog
says which files and inlined rows came and went. Under the commit lock: a few statements, and none for a
table without other writers. Where upkeep moved rows while others went, no record separates the two: that is a
conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, Table, and_, or_, select

from ...errors import TransactionConflictError
from ...planning.reading.scan import InlinedRows, ScanPlan
from ...planning.writing.overwrite import RowScope
from ...transaction.changes import ChangeSet, InlineDeletes, ReadRows
from ...transaction.changes_made import UPKEEP, ChangeKind
from ...transaction.conflicts import Rule, rule_of
from ...transaction.declared import OfTable
from ..database.connect import in_parts
from ..snapshot.inlined_read import Condition, filled, inlined_of, live_layouts
from ..snapshot.inlined_tables import bare_table, inlined_delete_table
from ..snapshot.read_files import WantedFiles
from ..snapshot.read_statistics import files_that_may_be_in, files_that_may_match
from ..snapshot.scan import partition_specs

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.snapshots import Snapshot, SnapshotId
    from ..dialects.dialect import Catalog
    from ..snapshot.read_snapshots import RecordedSnapshot

_ADDED = frozenset({ChangeKind.INSERTED_INTO_TABLE, ChangeKind.INLINED_INSERT})
_GONE = frozenset({ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINED_DELETE})


def check_overlap(
    connection: Connection,
    catalog: Catalog,
    change_set: ChangeSet,
    head: Snapshot,
    since: Collection[RecordedSnapshot],
) -> None:
    """Compare what a change set read and changes, rows and files, with what came and went since."""
    for change in change_set.changes:
        if not isinstance(change, OfTable):
            continue
        records = {
            record.kind: one.id
            for one in since
            for record in one.changes
            if record.object_id == change.table_id
        }
        rules = {kind: rule_of(change.operation, kind) for kind in records}
        seen = _ChangedSince(connection, catalog, change_set.base, head, change, records)
        if isinstance(change, ReadRows) and change.scope is not None:
            assert isinstance(change.scope, RowScope)
            met = {kind for kind, rule in rules.items() if rule is Rule.SAME_ROWS}
            seen.check_scope(change.scope, met)
        elif Rule.SAME_FILES in rules.values():
            seen.check_targets()


@dataclass(frozen=True)
class _ChangedSince:
    """A change of a table, and what others did to the table after ``base``, up to ``head``."""

    connection: Connection
    catalog: Catalog
    base: SnapshotId
    head: Snapshot
    change: OfTable
    records: Mapping[ChangeKind | None, SnapshotId]

    def check_scope(self, scope: RowScope, met: Set[ChangeKind | None]) -> None:
        """Look for rows of a scope, of kinds of changes that others made to the table."""
        is_moved = bool(self.records.keys() & UPKEEP)
        if met & _ADDED:
            if is_moved or ChangeKind.INSERTED_INTO_TABLE in met:
                self._check_added_files(scope)
            if ChangeKind.INLINED_INSERT in met:
                for row_id in self._rows(scope, self.head, self._is_new_row):
                    raise self._conflict(f"added such a row to the catalog, row {row_id}", self._last(_ADDED))
        if met & _GONE and is_moved:
            theirs = "deleted rows of it, and files were compacted or rows flushed since"
            raise self._conflict(theirs, self._last(_GONE))
        if met & _GONE:
            if not self._has_base():  # the rows of files that no later snapshot has went with it
                raise self._conflict(
                    f"deleted rows of it, and snapshot {self.base} has expired", self._last(_GONE)
                )
            self._check_gone(scope)

    def _check_added_files(self, scope: RowScope) -> None:
        read_at = scope.table.snapshot  # files that came since have higher numbers
        first_id = read_at.next_file_id if read_at.id == self.base else 0
        for file in self._files(scope, self.head, self._is_new(first_id), first_id):
            theirs = f"added data file {file.path}, which may have such rows"
            raise self._conflict(theirs, file.partial_max or file.begin_snapshot)

    def _check_gone(self, scope: RowScope) -> None:
        at_base, last = replace(self.head, id=self.base), self._last(_GONE)
        for file in self._files(scope, at_base, self._has_lost_rows()):
            raise self._conflict(
                f"deleted rows of data file {file.path}, which may have been such rows", last
            )
        if ChangeKind.INLINED_DELETE in self.records:
            for row_id in self._rows(scope, at_base, self._is_lost_row):
                raise self._conflict(f"deleted such a row from the catalog, row {row_id}", last)

    def _has_base(self) -> bool:
        snapshots = self.catalog.tables["snapshot"]
        found = select(snapshots.c.snapshot_id).where(snapshots.c.snapshot_id == self.base)
        return self.connection.execute(found).first() is not None

    def _last(self, kinds: Collection[ChangeKind]) -> SnapshotId:
        return max(self.records[kind] for kind in kinds if kind in self.records)

    def _is_new(self, first_id: int) -> ColumnElement[bool]:
        """Return the condition for files with rows that came since; merged ones may begin earlier."""
        file = self.catalog.tables["data_file"].c
        merged = [file.partial_max > self.base] if "partial_max" in file else []
        return and_(file.data_file_id >= first_id, or_(file.begin_snapshot > self.base, *merged))

    def _has_lost_rows(self) -> ColumnElement[bool]:
        file, delete = self.catalog.tables["data_file"].c, self.catalog.tables["delete_file"].c
        late = or_(*(delete[one] > self.base for one in ("begin_snapshot", "partial_max") if one in delete))
        deleted = select(delete.data_file_id).where(delete.table_id == self.change.table_id, late)
        lost = [file.end_snapshot > self.base, file.data_file_id.in_(deleted)]
        marks = inlined_delete_table(self.change.table_id, self.catalog.tables.metadata_schema)
        if self.catalog.dialect.has_table(self.connection, marks.name, marks.schema):
            marked = select(marks.c.file_id).where(marks.c.begin_snapshot > self.base)
            lost.append(file.data_file_id.in_(marked))
        return or_(*lost)

    def _is_new_row(self, rows: Table) -> ColumnElement[bool]:
        return and_(rows.c.begin_snapshot > self.base, rows.c.end_snapshot.is_(None))

    def _is_lost_row(self, rows: Table) -> ColumnElement[bool]:
        return and_(rows.c.begin_snapshot <= self.base, rows.c.end_snapshot > self.base)

    def _files(
        self, scope: RowScope, at: Snapshot, only: ColumnElement[bool], first_id: int = 0
    ) -> Iterator[LiveDataFile]:
        """Yield the files, from a number on, for which ``only`` holds and that may have rows of a scope."""
        catalog, table = self.catalog, scope.table
        if scope.partitions is None:
            condition = files_that_may_match(scope.where, table.table_id, table.schema, catalog, first_id)
        else:
            condition = files_that_may_be_in(scope.partitions, table, catalog, first_id)
        only = only if condition is None else and_(only, condition)
        files = WantedFiles.of(catalog, replace(table, snapshot=at), only, scope.column_ids)
        found = files.ask(self.connection, catalog)
        specs = partition_specs(self.connection, catalog.tables, table.table_id) if found else {}
        yield from (file for file in found if scope.may_hold(file, specs))

    def _rows(self, scope: RowScope, at: Snapshot, condition: Condition) -> list[int]:
        inlined = inlined_of(self.connection, self.catalog, replace(scope.table, snapshot=at))
        answers = self.catalog.dialect.ask(self.connection, inlined.rows_query(condition))
        return row_ids_of(scope, filled(answers.values()))

    def check_targets(self) -> None:
        """Look for other deletes of the rows in the catalog, and marks in the files, that ours changes."""
        if self.change.targets and ChangeKind.INLINED_DELETE in self.records:
            self._check_marks()
        if isinstance(self.change, InlineDeletes) and self.change.row_ids:
            self._check_alive(self.change.row_ids)

    def _check_marks(self) -> None:
        marks = inlined_delete_table(self.change.table_id, self.catalog.tables.metadata_schema)
        if not self.catalog.dialect.has_table(self.connection, marks.name, marks.schema):
            return
        for part in in_parts(self.change.targets):
            query = select(marks.c.file_id, marks.c.begin_snapshot).where(
                marks.c.begin_snapshot > self.base, marks.c.file_id.in_(part)
            )
            if (found := self.connection.execute(query.limit(1)).first()) is not None:
                raise self._conflict(f"deleted other rows of data file {found[0]}", found[1])

    def _check_alive(self, row_ids: Iterable[int]) -> None:
        missing = set(row_ids)
        for layout in live_layouts(self.connection, self.catalog, self.change.table_id):
            rows = bare_table(layout.name, self.catalog.tables)
            alive = and_(rows.c.begin_snapshot <= self.base, rows.c.end_snapshot.is_(None))
            for part in in_parts(sorted(missing)):
                found = self.connection.execute(select(rows.c.row_id).where(alive, rows.c.row_id.in_(part)))
                missing.difference_update(found.scalars())
        if missing:
            theirs = f"deleted or moved row {min(missing)} of the catalog"
            raise self._conflict(theirs, max(self.records.values()))

    def _conflict(self, theirs: str, snapshot_id: SnapshotId) -> TransactionConflictError:
        return TransactionConflictError(
            self.change.operation.value, theirs, str(self.change.name), snapshot_id
        )


def row_ids_of(scope: RowScope, inlined: Sequence[InlinedRows]) -> list[int]:
    """Return the ids of those of some rows in the catalog that are of a scope."""
    from ...storage.arrow.rows import partition_of_rows
    from ...storage.rows.inlined_values import inlined_in_schema
    from ...storage.rows.table_reader import wanted_row_ids

    row_ids = [row_id for part in inlined for row_id in part.row_ids]
    if not row_ids:
        return []
    schema, partitions = scope.table.schema, scope.partitions
    if partitions is None:
        plan = ScanPlan(scope.table, (), schema.names[:1], tuple(inlined), where=scope.where)
        return list(wanted_row_ids(plan).to_pylist())
    values = partition_of_rows(inlined_in_schema(inlined, schema), schema, partitions.fields)
    return [row_id for row_id, one in zip(row_ids, values, strict=True) if one in partitions.wanted]
