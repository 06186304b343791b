"""Repair findings without losing anything: in one transaction, with a snapshot if clients must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Table as SqlTable
from sqlalchemy.schema import DropTable

from ...format.log_lines import logger
from ...planning.upkeep.findings import Finding, FindingCode
from ..dialects.dialect import DEFAULT_RETRY, Catalog, with_retries
from ..effects.files import no_bounds
from ..snapshot.inlined_read import has_inlined_rows
from .files import full_paths
from .scope import VerificationScope, scope_of

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The findings that were repaired, or with ``dry_run`` would be, and those that are left as they are.

    ``snapshot_id`` is the snapshot that shows the repair to other clients; None if none was needed.
    """

    repaired: tuple[Finding, ...]
    left: tuple[Finding, ...]
    snapshot_id: int | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """Statements that repair a finding, and what running clients must notice of it.

    ``least`` are counters that the next snapshot has to have at least; ``drops`` inlined tables without rows.
    """

    statements: tuple[sa.Executable, ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    drops: tuple[str, ...] = ()
    changes_statistics: bool = False
    changes_definitions: bool = False

    @property
    def needs_snapshot(self) -> bool:
        """Return True if running clients must notice the repair."""
        return bool(self.least) or self.changes_statistics or self.changes_definitions


def repair(catalog: Catalog, findings: Sequence[Finding], *, dry_run: bool) -> RepairResult:
    """Repair those of the findings that can be repaired; see ``Lake.repair``."""
    if dry_run:
        with catalog.dialect.reading() as connection:
            scope = scope_of(connection, catalog, None)
            _, result = _planned(scope, findings, dry_run=True)
    else:
        result, _ = with_retries(catalog.dialect, DEFAULT_RETRY, lambda: _repair(catalog, findings))
    log.info(
        "%s %d of %d findings%s",
        "Would repair" if dry_run else "Repaired",
        len(result.repaired),
        len(findings),
        "" if result.snapshot_id is None else f" in snapshot {result.snapshot_id}",
    )
    return result


def _planned(
    scope: VerificationScope, findings: Sequence[Finding], *, dry_run: bool
) -> tuple[list[Repair], RepairResult]:
    """Plan the repair of the findings, and the snapshot by which clients notice it if they must."""
    done: list[Repair] = []
    repaired: list[Finding] = []
    left: list[Finding] = []
    for finding in findings:
        planner = REPAIRS.get(finding.code)
        one_repair = None if planner is None else planner(scope, finding.objects)
        if one_repair is None:
            left.append(finding)
        else:
            repaired.append(finding)
            done.append(one_repair)
    snapshot_id = scope.head.id + 1 if any(one.needs_snapshot for one in done) else None
    return done, RepairResult(tuple(repaired), tuple(left), snapshot_id, dry_run)


def _repair(catalog: Catalog, findings: Sequence[Finding]) -> RepairResult:
    with catalog.dialect.writing() as connection:
        scope = scope_of(connection, catalog, None)
        done, result = _planned(scope, findings, dry_run=False)
        for one_repair in done:
            for statement in one_repair.statements:
                connection.execute(statement)
        if result.snapshot_id is not None:
            _add_snapshot(scope, done, result)
        drops = [name for one_repair in done for name in one_repair.drops]
        if catalog.dialect.transactional_ddl:
            _drop(scope, drops)
        connection.commit()
        if not catalog.dialect.transactional_ddl:
            _drop(scope, drops)
    return result


def _drop(scope: VerificationScope, names: Sequence[str]) -> None:
    for name in names:
        dynamic = SqlTable(name, sa.MetaData(schema=scope.tables.metadata_schema))
        scope.connection.execute(DropTable(dynamic, if_exists=True))


def _add_snapshot(scope: VerificationScope, done: Sequence[Repair], result: RepairResult) -> None:
    """Make the snapshot by which clients notice; it says nothing of changes, as there are none of rows."""
    head, least = scope.head, {name: count for one in done for name, count in one.least}
    scope.connection.execute(
        sa.insert(scope.tables["snapshot"]).values(
            snapshot_id=result.snapshot_id,
            snapshot_time=scope.catalog.dialect.server_time(scope.connection),
            schema_version=max(head.schema_version, least.get("schema_version", 0))
            + any(one.changes_definitions for one in done),
            next_catalog_id=max(head.next_catalog_id, least.get("next_catalog_id", 0)),
            next_file_id=max(head.next_file_id + 1, least.get("next_file_id", 0)),
        )
    )
    codes = ", ".join(sorted({finding.code.value for finding in result.repaired}))
    scope.connection.execute(
        sa.insert(scope.tables["snapshot_changes"]).values(
            snapshot_id=result.snapshot_id, commit_message=f"Repaired: {codes}"
        )
    )


# The repair of each kind of finding; None if each possible one would lose something.


def _changes_missing(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    changes, snapshot_id = scope.tables["snapshot_changes"], objects["snapshot_id"]
    is_there = sa.exists().where(changes.c.snapshot_id == snapshot_id)
    row = sa.select(sa.literal(snapshot_id)).where(~is_there)
    return Repair((sa.insert(changes).from_select(["snapshot_id"], row),))


def _counter(_look: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    return Repair(least=((objects["counter"], objects["least"]),))


def _schema_version(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    """Say of each snapshot that changed the table's columns or partitioning which schema version it made."""
    versions, snapshot = scope.tables["schema_versions"], scope.tables["snapshot"]
    table_id = objects["table_id"]
    changed = sa.union(
        *(
            sa.select(one.c[moment].label("begin_snapshot")).where(
                one.c.table_id == table_id, one.c[moment].is_not(None)
            )
            for name in ("table", "column", "partition_info")
            for one in (scope.tables[name],)
            for moment in ("begin_snapshot", "end_snapshot")
        )
    ).subquery()
    is_later = snapshot.c.snapshot_id >= changed.c.begin_snapshot
    then = sa.select(sa.func.min(snapshot.c.schema_version)).where(is_later)
    is_there = sa.exists().where(versions.c.table_id == table_id)
    rows = sa.select(changed.c.begin_snapshot, then.scalar_subquery(), sa.literal(table_id)).where(~is_there)
    names = ["begin_snapshot", "schema_version", "table_id"]
    return Repair((sa.insert(versions).from_select(names, rows),))


def _column_twice(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair | None:
    """End each row of the column where the next begins; None where two say different things at once."""
    column = scope.tables["column"]
    is_seen = sa.or_(column.c.end_snapshot.is_(None), column.c.end_snapshot > column.c.begin_snapshot)
    is_it = sa.and_(column.c.table_id == objects["table_id"], column.c.column_id == objects["id"], is_seen)
    found = scope.connection.execute(sa.select(column).where(is_it).order_by(column.c.begin_snapshot))
    rows = [row._asdict() for row in found]
    kept: list[dict[str, Any]] = []
    for row in rows:
        begin = row["begin_snapshot"]
        if kept and kept[-1]["begin_snapshot"] == begin:
            if {**kept[-1], "end_snapshot": None} != {**row, "end_snapshot": None}:
                return None
            kept.pop()
        elif kept and (kept[-1]["end_snapshot"] is None or kept[-1]["end_snapshot"] > begin):
            kept[-1]["end_snapshot"] = begin
        kept.append(row)
    return Repair((sa.delete(column).where(is_it), sa.insert(column).values(kept)), changes_definitions=True)


def _table_ended(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    file = scope.tables[objects["kind"]]
    is_it = file.c[f"{objects['kind']}_id"] == objects["id"]
    ended = sa.update(file).where(is_it, file.c.end_snapshot.is_(None))
    return Repair((ended.values(end_snapshot=objects["end_snapshot"]),))


def _rows_of_nothing(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    rows = scope.tables[objects["rows_of"]]
    owner = "snapshot" if objects["rows_of"] == "snapshot_changes" else "data_file"
    id_ = f"{owner}_id"
    has_owner = sa.exists().where(scope.tables[owner].c[id_] == objects[id_])
    return Repair((sa.delete(rows).where(rows.c[id_] == objects[id_], ~has_owner),))


def _row_counter(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    stats = scope.tables["table_stats"]
    least = objects["least"]
    behind = sa.update(stats).where(stats.c.table_id == objects["table_id"], stats.c.next_row_id < least)
    return Repair((behind.values(next_row_id=least),), changes_statistics=True)


def _scheduled(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    scheduled, file = scope.tables["files_scheduled_for_deletion"], full_paths(scope)
    is_in_use = sa.select(sa.literal(1)).select_from(file).where(file.c.path == objects["path"]).exists()
    return Repair(
        (sa.delete(scheduled).where(scheduled.c.data_file_id == objects["scheduled_id"], is_in_use),)
    )


def _forget_bounds(scope: VerificationScope, objects: Mapping[str, Any]) -> sa.Executable:
    """Build the deletion of the table's statistics of a column: without them no reader skips rows."""
    stats = scope.tables["table_column_stats"]
    return sa.delete(stats).where(
        stats.c.table_id == objects["table_id"], stats.c.column_id == objects["column_id"]
    )


def _table_bounds(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    return Repair((_forget_bounds(scope, objects),), changes_statistics=True)


def _bounds(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    """Make bounds that say nothing unknown: a file's become NULL, a table's row goes."""
    if "data_file_id" not in objects:
        return _table_bounds(scope, objects)
    return _file_stats(scope, objects, **no_bounds(scope.tables["file_column_stats"]))


def _file_stats(scope: VerificationScope, objects: Mapping[str, Any], **values: str | int | None) -> Repair:
    stats = scope.tables["file_column_stats"]
    of_file = sa.update(stats).where(
        stats.c.data_file_id == objects["data_file_id"], stats.c.column_id == objects["column_id"]
    )
    return Repair((of_file.values(values), _forget_bounds(scope, objects)), changes_statistics=True)


def _exactness(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    """Say nothing of bounds that are not there."""
    stats = scope.tables["file_column_stats" if "data_file_id" in objects else "table_column_stats"]
    is_it = [stats.c[name] == value for name, value in objects.items()]
    values = {
        f"{end}_is_exact": sa.case(
            (stats.c[f"{end}_value"].is_(None), sa.null()), else_=stats.c[f"{end}_is_exact"]
        )
        for end in ("min", "max")
    }
    return Repair((sa.update(stats).where(*is_it).values(values),), changes_statistics=True)


def _found_bounds(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    bounds = {"min_value": objects["low"], "max_value": objects["high"]}
    return _file_stats(scope, objects, **no_bounds(scope.tables["file_column_stats"]) | bounds)


def _found_counts(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
    return _file_stats(scope, objects, value_count=objects["values"], null_count=objects["nulls"])


def _found(name: str) -> Callable[[VerificationScope, Mapping[str, Any]], Repair]:
    """Build the repair that writes the number found in a file into the column of that name."""

    def planner(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair:
        kind = "data_file" if "data_file_id" in objects else "delete_file"
        file = scope.tables[kind]
        is_it = file.c[f"{kind}_id"] == objects[f"{kind}_id"]
        return Repair((sa.update(file).where(is_it).values({name: objects["found"]}),))

    return planner


def _table_stats(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair | None:
    """Count what the files say; None where row ids may lie elsewhere than in the counts of files."""
    file, stats = scope.tables["data_file"], scope.tables["table_stats"]
    table_id = objects["table_id"]
    of_table = file.c.table_id == table_id
    stored = sa.exists().where(of_table, file.c.row_id_start.is_(None) | file.c.partial_max.is_not(None))
    if scope.connection.execute(sa.select(stored)).scalar_one() or has_inlined_rows(
        scope.connection, scope.catalog, table_id
    ):
        return None
    row = sa.select(
        sa.literal(table_id),
        sa.func.sum(file.c.record_count),
        sa.func.max(file.c.row_id_start + file.c.record_count),
        sa.func.sum(file.c.file_size_bytes),
    ).where(of_table, ~sa.exists().where(stats.c.table_id == table_id))
    column_stats = scope.tables["table_column_stats"]
    columns = ["table_id", "record_count", "next_row_id", "file_size_bytes"]
    return Repair(
        (
            sa.insert(stats).from_select(columns, row.having(sa.func.count() > 0)),
            sa.delete(column_stats).where(column_stats.c.table_id == table_id),
        ),
        changes_statistics=True,
    )


def _inlined_missing(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair | None:
    if scope.catalog.dialect.has_table(scope.connection, objects["name"], scope.tables.metadata_schema):
        return None
    return Repair((_unregistered(scope, objects),), changes_definitions=True)


def _inlined_columns(scope: VerificationScope, objects: Mapping[str, Any]) -> Repair | None:
    """Drop an inlined table without rows: DuckDB makes one of the right columns when it needs it."""
    rows = sa.table(objects["name"], schema=scope.tables.metadata_schema)
    if scope.connection.execute(sa.select(sa.func.count()).select_from(rows)).scalar_one():
        return None
    return Repair((_unregistered(scope, objects),), drops=(objects["name"],), changes_definitions=True)


def _unregistered(scope: VerificationScope, objects: Mapping[str, Any]) -> sa.Executable:
    registry = scope.tables["inlined_data_tables"]
    return sa.delete(registry).where(
        registry.c.table_id == objects["table_id"], registry.c.table_name == objects["name"]
    )


REPAIRS: Mapping[FindingCode, Callable[[VerificationScope, Mapping[str, Any]], Repair | None]] = {
    FindingCode.CHANGES_MISSING: _changes_missing,
    FindingCode.COUNTER_BEHIND: _counter,
    FindingCode.COLUMN_TWICE: _column_twice,
    FindingCode.SCHEMA_VERSION_MISSING: _schema_version,
    FindingCode.TABLE_ENDED: _table_ended,
    FindingCode.ROWS_OF_NOTHING: _rows_of_nothing,
    FindingCode.ROW_COUNTER_BEHIND: _row_counter,
    FindingCode.SCHEDULED_IN_USE: _scheduled,
    FindingCode.TABLE_STATS_MISSING: _table_stats,
    FindingCode.TABLE_STATS_NARROW: _table_bounds,
    FindingCode.BOUND_UNREADABLE: _bounds,
    FindingCode.BOUNDS_CROSSED: _bounds,
    FindingCode.EXACT_WITHOUT_BOUND: _exactness,
    FindingCode.INLINED_TABLE_MISSING: _inlined_missing,
    FindingCode.INLINED_COLUMNS_DIFFER: _inlined_columns,
    FindingCode.FILE_SIZE_DIFFERS: _found("file_size_bytes"),
    FindingCode.FOOTER_SIZE_DIFFERS: _found("footer_size"),
    FindingCode.FILE_STATS_NARROW: _found_bounds,
    FindingCode.FILE_STATS_INEXACT: _found_bounds,
    FindingCode.FILE_STATS_COUNTS: _found_counts,
    FindingCode.DELETE_COUNT_DIFFERS: _found("delete_count"),
}
