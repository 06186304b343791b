"""What a SQL task reads and writes, planned on a lake before any job runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from .. import errors
from ..format.snapshots import Consumption, Snapshot, SnapshotId, TableSnapshot
from ..format.versions import Feature
from ..planning.reading.predicates import ALWAYS, AllOf, AnyOf, Predicate
from ..planning.reading.scan import ChangeFeedPlan, ScanPlan
from ..planning.reading.watch import ChangeRange, ConsumptionHistory
from ..planning.writing.overwrite import RowScope
from ..planning.writing.write import (
    NewTable,
    WritePlan,
    WriteResult,
    append_to_existing,
    create_and_append,
    new_table_uuid,
    plan_append,
    plan_create,
)
from ..spark.job.request import Step, job_directory
from ..spark.types.names import quoted
from ..sql.predicate import read_predicate
from ..sql.spark.conditions import readable_filter
from ..sql.spark.parse import parse_query
from ..sql.spark.statements import (
    RowCondition,
    SparkQuery,
    SparkStatement,
    ViewStatement,
    WriteMode,
    WriteStatement,
)
from ..transaction.changes import Change, DropTable, NewTableRef, ReadRows, Truncate

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..format.names.identifiers import FoldedName, QualifiedName

TableRead: TypeAlias = "ScanPlan | ChangeFeedPlan"


_MOST_VIEWS = 50  # each takes a part of the stack, and Spark plans them all as one query
_MOST_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class SqlTarget:
    """A table that a task writes; ``base`` is it as it was planned, or what it is to become."""

    base: TableSnapshot | NewTable
    mode: WriteMode
    drops: TableSnapshot | None = None

    @property
    def existing(self) -> TableSnapshot | None:
        """The table that is there as it was planned, to be written or replaced."""
        return self.drops if isinstance(self.base, NewTable) else self.base

    @property
    def name(self) -> QualifiedName:
        """Its name."""
        return self.base.name

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Its columns, None where they come from the rows."""
        return None if isinstance(self.base, NewTable) else self.base.schema.names

    def plan(self, job_id: str, number: int, partition_by: Sequence[str] = ()) -> WritePlan:
        """Plan the write of the ``number``-th result of a job."""
        directory = f"{job_directory(self.base.root, job_id)}{number}/"
        if isinstance(self.base, NewTable):
            return plan_create(self.base, directory, partition_by)
        return plan_append(self.base, directory)

    def changes(self, results: Sequence[WriteResult], number: int, *, empties: bool) -> Iterator[Change]:
        """Yield what makes the results the table's; with ``empties`` in place of the rows it has."""
        if isinstance(self.base, NewTable):
            if self.drops is not None:
                yield DropTable(self.drops.table_id, self.drops.name, is_replaced=True)
            yield from create_and_append(self.base, results[0], NewTableRef(number))
            return
        if empties or self.mode is WriteMode.OVERWRITE:
            yield Truncate(self.base.table_id, self.base.name)
        for result in results:
            yield from append_to_existing(self.base, result)


def find_target(
    lake: Lake, name: QualifiedName, mode: WriteMode, at: Snapshot, job_id: str
) -> SqlTarget | None:
    """Return a table to be written; None: it exists, and was to be made only if it did not."""
    try:
        existing = lake.table_snapshot(name, at.id)
    except errors.TableNotFoundError:
        if mode in (WriteMode.APPEND, WriteMode.OVERWRITE):
            raise
        return SqlTarget(lake.reads.new_table(name, new_table_uuid(job_id, name)), mode)
    if mode is WriteMode.CREATE_IF_MISSING:
        return None
    if mode is WriteMode.CREATE:
        raise errors.AlreadyExistsError("table", str(existing.name))
    if mode is WriteMode.REPLACE:
        return SqlTarget(lake.reads.new_table(name, new_table_uuid(job_id, name)), mode, existing)
    return SqlTarget(existing, mode)


@dataclass
class Reads:
    """The tables and views of a lake that queries name, as one snapshot has them.

    ``incremental`` are the tables of which only the changes are wanted (None: of all that are no targets),
    ``of_source`` are those of which the changes of an older table are seen, whose place they took, ``wanted``
    the names of views that a function looks its tables up by; other names are drawn. With ``trust_views`` the
    lake's views are not checked before they run.
    """

    lake: Lake
    job_id: str
    at: Snapshot
    incremental: Collection[FoldedName] | None = ()
    log: ConsumptionHistory | None = None
    again: bool = False
    full_refresh: bool = False
    targets: frozenset[FoldedName] = frozenset()
    wanted: Mapping[FoldedName, str] = field(default_factory=dict)
    trust_views: bool = False
    tables: dict[str, TableRead] = field(default_factory=dict)
    as_inserts: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    ranges: dict[FoldedName, Consumption] = field(default_factory=dict)
    names_of: dict[FoldedName, str] = field(default_factory=dict)
    of_source: set[FoldedName] = field(default_factory=set)
    conditions: dict[FoldedName, list[RowCondition | None]] = field(default_factory=dict)
    _views: dict[FoldedName, str] = field(default_factory=dict)
    _within: list[QualifiedName] = field(default_factory=list)  # views whose queries are being read

    @property
    def names(self) -> list[str]:
        """The names of all tables and views that are read, sorted."""
        return sorted(self.names_of.values())

    def query(self, query: SparkQuery) -> str:
        """Return the text to run for a query, whose tables are there from then on."""
        where = f"View {self._within[-1]}: " if self._within else ""
        refuse_macros(self.lake, self.at.id, query.functions, where)
        for one in query.references:
            self.conditions.setdefault(one.name.folded, []).append(one.condition)
        return query.with_views({key: quoted(self.view_of(name)) for key, name in query.reads.items()})

    def view_of(self, name: QualifiedName) -> str:
        """Name the job's view for a table or view of the lake, which is there from then on."""
        if name.folded not in self._views:
            # drawn: whatever statements, views of the lake and sources call something, none hides a table
            drawn = f"_ducklake_{self.job_id.replace('-', '')}_{len(self._views)}"
            wanted = self.wanted.get(name.folded, drawn)
            if name.folded in self.wanted:  # the function may look at all rows
                self.conditions.setdefault(name.folded, []).append(None)
            self.names_of[name.folded] = str(name)
            self._views[name.folded] = wanted  # before its own query, in which it may not be named
            try:
                self.tables[wanted] = self._read(name, wanted)
            except errors.TableNotFoundError as missing:
                self._enter_view(name, wanted, missing)
        elif any(name.folded == one.folded for one in self._within):
            raise errors.InvalidInputError(f"View {name} reads itself{self._through(name)}.")
        return self._views[name.folded]

    def _enter_view(self, name: QualifiedName, wanted: str, missing: errors.TableNotFoundError) -> None:
        if len(self._within) == _MOST_VIEWS:
            raise errors.UnsupportedFeatureError(
                f"View {name} is read{self._through(name)}: a query may have {_MOST_VIEWS} views that each "
                "read the next, not more. Read a view further down, or its tables."
            )
        self._within.append(name)
        self._add_view(name, wanted, missing)
        self._within.pop()

    def _through(self, name: QualifiedName) -> str:
        """Say by which other views one is read: the outermost, and the one that names it."""
        others = dict.fromkeys(one for one in (self._within[0], self._within[-1]) if one != name)
        return f" through {' and '.join(map(str, others))}" if others else ""

    def _add_view(self, name: QualifiedName, wanted: str, missing: errors.TableNotFoundError) -> None:
        try:
            found = self.lake.reads.view(name, self.at.id)
        except errors.ViewNotFoundError:
            raise missing from None
        if found.dialect != "spark":
            raise errors.UnsupportedFeatureError(
                f"View {name} is written in the dialect {found.dialect!r}, which Spark cannot read. Create "
                "a view with dialect='spark', or read the view's tables directly."
            )
        nested = self.lake.opened.has(Feature.NESTED_SCHEMAS)
        text = found.sql
        if len(text) > _MOST_CHARACTERS:
            raise errors.UnsupportedFeatureError(
                f"View {name}: its query has {len(text)} characters; {_MOST_CHARACTERS} can be checked."
            )
        try:
            parsed = parse_query(text, name.schema, nested_schemas=nested)
        except (errors.InvalidStatementError, errors.UnsupportedFeatureError) as error:
            raise errors.UnsupportedFeatureError(f"View {name}: {error}") from None
        text = self.query(parsed)
        names = ", ".join(map(quoted, found.column_aliases))
        named = f"SELECT * FROM ({text}\n) AS v({names})"  # noqa: S608 - as the view's author wrote it
        text = named if names else text
        self.steps.append(Step(text, view=wanted, lake_view=str(name), is_trusted=self.trust_views))

    def _read(self, name: QualifiedName, view: str) -> TableRead:
        if self._is_incremental(name):
            return self._changes(name, view)
        plan = self.lake.scan(name, at=self.at.id)
        if self.full_refresh and name.folded in self.targets:
            return replace(plan, files=(), inlined_rows=(), inlined_deletes={})
        return plan

    def _is_incremental(self, name: QualifiedName) -> bool:
        if self.log is None or name.folded in self.targets:
            return False
        return self.incremental is None or name.folded in self.incremental

    def _changes(self, name: QualifiedName, view: str) -> TableRead:
        assert self.log is not None
        table = self.lake.table_snapshot(name, self.at.id)
        part = self._next(table)
        key = self.log.key
        consumed = Consumption(table.table_id, part.after, part.marked_at, key.digest, key.generation)
        self.ranges[name.folded] = consumed
        if part.after is None:
            self.as_inserts.add(view)
            return self.lake.scan(name, at=self.at.id)
        if part.table_id == table.table_id:
            return self.lake.changes_after(name, part.after, self.at.id).plan
        self.of_source.add(name.folded)
        return self.lake.reads.changes_of_source(name, part.table_id, part.after, part.upto).plan

    def _next(self, table: TableSnapshot) -> ChangeRange:
        assert self.log is not None
        if self.full_refresh:
            return ChangeRange(table.table_id, None, self.at.id, self.at.id)
        return self.log.next(
            table.table_id, self.at.id, self.lake.reads.is_unchanged, str(table.name), again=self.again
        )


def refuse_macros(lake: Lake, at: SnapshotId, functions: Collection[FoldedName], where: str = "") -> None:
    """Refuse a text of these functions if one is a macro of the lake; ``where`` begins the error."""
    for one in lake.macros(at) if functions else ():
        if one.name.folded in functions:
            raise errors.UnsupportedFeatureError(
                f"{where}Macro {one.name} is called, but Spark SQL cannot call macros of the lake. Run the "
                "query in DuckDB, or write the expression out in Spark SQL."
            )


def steps_of(
    statements: Sequence[SparkStatement], reads: Reads, targets: dict[FoldedName, SqlTarget], job_id: str
) -> tuple[list[Step], list[WritePlan]]:
    """Plan the steps of the job, and the write of each result; statements without a target are left out."""
    steps: list[Step] = []
    plans: list[WritePlan] = []
    for one in statements:
        if isinstance(one, ViewStatement):
            steps.append(Step(reads.query(one.query), view=one.view))
            continue
        target = targets.get(one.table.folded)
        if target is None:
            continue
        steps.append(Step(reads.query(one.query), plan=len(plans), columns=_columns(one, target)))
        plans.append(target.plan(job_id, len(plans), one.partition_by))
    return [*reads.steps, *steps], plans


def _columns(statement: WriteStatement, target: SqlTarget) -> tuple[str, ...] | None:
    if statement.by_name:
        return None
    return statement.columns or target.columns


def rows_read(targets: Sequence[SqlTarget], reads: Reads, base: SnapshotId) -> Iterator[ReadRows]:
    """Yield which tables are read and written: rows that came or went since would change what is written.

    ``base`` is the newest snapshot when the statements were planned. An earlier one that they read, and no
    rows at all, say the same whatever comes.
    """
    if reads.full_refresh or reads.at.id != base:
        return
    for target in targets:
        if (table := target.existing) is not None and table.name.folded in reads.names_of:
            yield ReadRows(table.table_id, table.name, _scope(table, reads.conditions[table.name.folded]))


def _scope(table: TableSnapshot, conditions: Sequence[RowCondition | None]) -> RowScope | None:
    """Return the rows of a table for which one of the conditions may be true; None: all of them."""
    found = AnyOf(tuple(_filter(table, one) for one in conditions))
    return None if ALWAYS in found.parts else RowScope(table, found)


def _filter(table: TableSnapshot, condition: RowCondition | None) -> Predicate:
    if condition is None:
        return ALWAYS
    name, parts = str(table.name), []
    for text in condition.texts:
        read = readable_filter(text, table.schema, name, alias=condition.alias, others=condition.names)
        if read is not None:
            parts.append(read_predicate(read, table.schema, name))
    return AllOf(tuple(parts))


def table_changes(
    targets: Sequence[SqlTarget], written: Sequence[tuple[QualifiedName, WriteResult]], *, empties: bool
) -> tuple[Change, ...]:
    """Return the changes of all targets; ``written`` are the results with the tables they are for."""
    return tuple(
        change
        for number, target in enumerate(targets)
        for change in target.changes(
            [result for name, result in written if name.folded == target.name.folded], number, empties=empties
        )
    )
