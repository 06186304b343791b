"""Run Spark SQL, or a function, over tables of a lake, and put the results into tables of the lake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..catalog.ledger.consumers import Consumed
from ..errors import InvalidInputError
from ..format.log_lines import logger
from ..format.names.identifiers import DEFAULT_SCHEMA, FoldedName, QualifiedName, SchemaPath, split_parts
from ..format.snapshots import CommitRecord, CommittedSnapshot, Consumer, OnClear, Snapshot, TableId
from ..format.versions import Feature
from ..planning.reading.watch import ConsumptionHistory, changed
from ..spark.job.request import Dataset, JobRequest, LakeSource, Step, check_function, check_view_names
from ..sql.spark.parse import parse_spark_sql
from ..sql.spark.statements import SparkStatement, WriteMode, WriteStatement
from ..transaction.changes import ChangeSet
from .arguments import IfEmpty, names_of, parse_at, parse_flag, parse_word
from .run import announce_replaced
from .sql_plan import Reads, SqlTarget, find_target, rows_read, steps_of, table_changes
from .verb import Commit, Resolve, Results, Summary, Write, announce_commit, numbers

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..planning.writing.write import WritePlan, WriteResult
    from ..transaction.changes_made import Replay

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Sql:
    """Queries over a lake, and where their rows go; see ``DuckLakeSparkSQLOperator`` for the arguments.

    ``views`` are names that the session has already. ``consumer`` is needed with ``incremental``;
    ``starts_over`` says that what is noted of it under the commit's key was left by a run of the same name
    that was deleted.
    """

    sql: str | Sequence[str] | None = None
    transform: str | None = None
    tables: str | Sequence[str] = ()
    targets: Mapping[str, str] | None = None
    sources: Mapping[str, Any] | None = None
    views: tuple[str, ...] = ()
    default_schema: str = DEFAULT_SCHEMA
    at: int | datetime | str | None = None
    incremental: bool | str | Sequence[str] = False
    consumer: Consumer | None = None
    starts_over: bool = False
    full_refresh: bool | str = False
    trust_views: bool = False
    if_empty: str = IfEmpty.REPLACE

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedSql:
        """Plan the reads at one snapshot, and the writes on the newest; see ``Verb``."""
        if self.transform is not None:
            check_function(self.transform)
        statements = self._statements(lake)
        modes = self._modes(statements)
        full_refresh = parse_flag("full_refresh", self.full_refresh)
        consumed = self._log(lake, commit)
        only_appends = set(modes.values()) == {WriteMode.APPEND} and not full_refresh
        replaces = bool(commit.seen.replaced) and only_appends
        repeats = only_appends and _repeats(consumed, commit)
        if replaces and consumed is not None and not repeats:
            raise InvalidInputError(
                "The task was cleared, but the changes it had consumed are no longer known: their "
                "snapshots have expired. Run it with full_refresh=True, or with on_clear='append' to "
                "continue after them."
            )
        if replaces:
            announce_replaced(lake, commit.seen)
        head = lake.current_snapshot()
        with lake.opened.planned_on(head.id):
            found = {
                name.folded: find_target(lake, name, mode, head, commit.job_id)
                for name, mode in modes.items()
            }
        again = consumed.again() if consumed is not None and repeats else None
        reads = Reads(
            lake,
            commit.job_id,
            lake.snapshot_at(again) if again is not None else self._pinned(lake, head),
            incremental=() if consumed is None else self._incremental_tables(),
            log=consumed,
            again=repeats,
            full_refresh=full_refresh,
            targets=frozenset(found),
            wanted={one.folded: str(one) for one in map(self._qualified, names_of(self.tables))},
            trust_views=parse_flag("trust_views", self.trust_views),
        )
        targets = tuple(target for target in found.values() if target is not None)
        with lake.opened.planned_on(reads.at.id):
            plan = PlannedSql(self, statements, head, targets, reads, replaces=replaces)
            return plan.with_request(self._request(lake, plan, resolve, commit.job_id))

    def _statements(self, lake: Lake) -> tuple[SparkStatement, ...]:
        names = (*(self.sources or ()), *self.views)
        check_view_names(names)
        if self.sql is None:
            return ()
        return parse_spark_sql(
            self.sql,
            names,
            SchemaPath.of(self.default_schema),
            nested_schemas=lake.opened.has(Feature.NESTED_SCHEMAS),
        )

    def _modes(self, statements: Sequence[SparkStatement]) -> dict[QualifiedName, WriteMode]:
        """Return the tables to be written, each with the first thing that is done to it."""
        modes: dict[QualifiedName, WriteMode] = {}
        seen = set()
        for one in statements:
            if isinstance(one, WriteStatement) and one.table.folded not in seen:
                seen.add(one.table.folded)
                modes[one.table] = one.mode
        for name, word in (self.targets or {}).items():
            modes[self._qualified(name)] = _mode(name, word)
        if not modes:
            raise InvalidInputError(
                "Nothing is written: the statements only create temporary views, or there are no targets. "
                "Add a statement or a target."
            )
        return modes

    def _log(self, lake: Lake, commit: Commit) -> ConsumptionHistory | None:
        if self.incremental is False or self.incremental == "False":
            return None
        assert self.consumer is not None
        assert commit.keyed is not None
        key = commit.keyed.key
        known = lake.writes.consumptions(self.consumer, starts_over=key if self.starts_over else None)
        return ConsumptionHistory(known, key, lake.reads.restored_tables())

    def _incremental_tables(self) -> frozenset[FoldedName] | None:
        if self.incremental is True or self.incremental == "True":
            return None
        assert not isinstance(self.incremental, bool)
        return frozenset(self._qualified(name).folded for name in names_of(self.incremental))

    def _qualified(self, name: str) -> QualifiedName:
        """Return the name of a table; one without a schema lies where those of the statements do."""
        *above, own = split_parts(name)
        return QualifiedName(SchemaPath.of(tuple(above) or self.default_schema), own)

    def _pinned(self, lake: Lake, head: Snapshot) -> Snapshot:
        at = parse_at(self.at)
        if at is None:
            return head
        return lake.snapshot_at(at)

    def _request(self, lake: Lake, plan: PlannedSql, resolve: Resolve, job_id: str) -> JobRequest | None:
        """Build the request of the job; None: there is nothing to do."""
        reads = plan.reads
        steps, plans = self._steps_and_plans(plan, job_id)
        self._check_incremental(reads)
        if not plans or _sees_no_changes(lake, reads):
            return None
        log.info("Reading %s at snapshot %d", ", ".join(reads.names) or "no table", reads.at.id)
        for key in sorted(reads.of_source):
            log.info(
                "%s was restored as a new table: this run consumes the changes of the old one, the next "
                "run the changes since then",
                reads.names_of[key],
            )
        datasets = {
            name: Dataset.of(resolve(item), f"sources[{name!r}]")
            for name, item in (self.sources or {}).items()
        }
        source = LakeSource(
            tables=reads.tables,
            datasets=datasets,
            steps=tuple(steps),
            function=self.transform,
            as_inserts=frozenset(reads.as_inserts),
        )
        return JobRequest(job_id, source, tuple(plans), verb="sql")

    def _steps_and_plans(self, plan: PlannedSql, job_id: str) -> tuple[list[Step], list[WritePlan]]:
        reads = plan.reads
        if self.transform is None:
            targets = {target.name.folded: target for target in plan.targets}
            return steps_of(plan.statements, reads, targets, job_id)
        for name in names_of(self.tables):
            reads.view_of(self._qualified(name))
        plans = [target.plan(job_id, number) for number, target in enumerate(plan.targets)]
        return reads.steps, plans

    def _check_incremental(self, reads: Reads) -> None:
        if reads.log is None:
            return
        missing = (self._incremental_tables() or frozenset()) - reads.ranges.keys()
        if missing or not reads.ranges:
            names = ", ".join(sorted(".".join(name) for name in missing))
            raise InvalidInputError(
                f"incremental={self.incremental!r}: the statements read "
                f"{f'{names} not' if names else 'no table'}, or write it too. Name the tables whose changes "
                "they read."
            )

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:
        """Return the numbers that the catalog kept."""
        names = {row.id: str(row.qualified) for row in lake.reads.table_rows()}
        rows = {names.get(one.table_id, "?"): one.row_count for one in records if one.table_id is not None}
        unknown = dict.fromkeys(("files_added", "bytes_added", "rows_removed"))
        return {
            "table": ", ".join(rows),
            "snapshot_id": int(records[0].snapshot_id),
            "read_snapshot_id": None,
            **unknown,
            "rows_added": sum(rows.values()),
            "tables": {name: {**unknown, "rows_added": count} for name, count in rows.items()},
            "consumed": {},
            "already_committed": True,
        }


@dataclass(frozen=True, slots=True)
class PlannedSql:
    """What is read, as of the snapshot of ``reads``, and the ``targets`` as they are at ``head``."""

    verb: Sql
    statements: tuple[SparkStatement, ...]
    head: Snapshot
    targets: tuple[SqlTarget, ...]
    reads: Reads
    request: JobRequest | None = None
    replaces: bool = False

    def with_request(self, request: JobRequest | None) -> PlannedSql:
        """Return the plan with what the job is to do; without a job nothing is written."""
        targets = () if request is None else self.targets
        return PlannedSql(self.verb, self.statements, self.head, targets, self.reads, request, self.replaces)

    def _named(self, results: Results) -> list[tuple[QualifiedName, WriteResult]]:
        """Return the results with the names of the tables that they are for."""
        if not results.of_plans:
            return []
        if self.verb.transform is not None:
            names = [target.name for target in self.targets]
        else:
            known = {target.name.folded for target in self.targets}
            writes = [one for one in self.statements if isinstance(one, WriteStatement)]
            names = [one.table for one in writes if one.table.folded in known]
        return list(zip(names, results.of_plans, strict=True))

    def write(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Return the results of all queries as one change of the lake; see ``Verb``."""
        written = _grouped(self._named(results))
        empty = [one for one in self.targets if not numbers(written[one.name.folded])["rows_added"]]
        if parse_word("if_empty", self.verb.if_empty, IfEmpty).keeps(*(str(one.name) for one in empty)):
            return None
        replaced = lake.writes.replaced_rows(seen, self.head.id) if self.replaces else ()
        changes = table_changes(self.targets, self._named(results), empties=self.reads.full_refresh)
        read = rows_read(self.targets, self.reads, self.head.id)
        return Write((ChangeSet(self.head.id, (*replaced, *read, *changes)),), self._consumed())

    def _consumed(self) -> Consumed | None:
        if self.reads.log is None or self.verb.consumer is None:
            return None
        ranges = changed(self.reads.ranges.values())
        return Consumed(self.verb.consumer, ranges, self.reads.log.entries) if ranges else None

    def write_again(self, lake: Lake, results: Results, seen: Replay) -> None:
        """Return None: on other rows the queries would have given others."""

    def summary(
        self,
        results: Results,
        write: Write | None,  # noqa: ARG002 - the results have all numbers
        committed: CommittedSnapshot | None,
    ) -> Summary:
        """Return the numbers of what was read and written."""
        written = _grouped(self._named(results))
        removed: Mapping[TableId, int] = {} if committed is None else committed.removed
        tables = {
            str(one.name): {
                **numbers(written[one.name.folded]),
                "rows_removed": 0 if one.existing is None else removed.get(one.existing.table_id, 0),
            }
            for one in self.targets
        }
        ranges = {
            self.reads.names_of[key]: [one.after, int(one.upto)] for key, one in self.reads.ranges.items()
        }
        summary = {
            "table": ", ".join(tables),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "read_snapshot_id": int(self.reads.at.id),
            **results.numbers,
            "rows_removed": sum(removed.values()),
            "tables": tables,
            "consumed": ranges,
            "already_committed": False,
        }
        if committed is None:
            log.info("The statements produced no rows: no snapshot was made.")
            return summary
        for name, of_table in tables.items():
            announce_commit(log, committed, name, of_table)
        return summary


def _repeats(consumed: ConsumptionHistory | None, commit: Commit) -> bool:
    """Return True if the task consumes again the changes that its earlier generation consumed."""
    replaces = commit.keyed is not None and commit.keyed.on_clear is OnClear.REPLACE
    return consumed is not None and replaces and bool(consumed.earlier)


def _sees_no_changes(lake: Lake, reads: Reads) -> bool:
    """Return True if no table has changed that is to be consumed: the others alone call for no job."""
    return reads.log is not None and all(
        one.after is not None
        and key not in reads.of_source
        and lake.table_changes(reads.names_of[key], one.after, ["data"]) is None
        for key, one in reads.ranges.items()
    )


def _mode(table: str, word: str) -> WriteMode:
    try:
        return WriteMode(word)
    except ValueError:
        raise InvalidInputError(
            f"targets[{table!r}] is {word!r}; choose one of {', '.join(mode.value for mode in WriteMode)}."
        ) from None


def _grouped(written: Sequence[tuple[QualifiedName, WriteResult]]) -> dict[FoldedName, list[WriteResult]]:
    groups: dict[FoldedName, list[WriteResult]] = defaultdict(list)
    for name, result in written:
        groups[name.folded].append(result)
    return groups
