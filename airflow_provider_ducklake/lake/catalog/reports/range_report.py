"""Report what a range of snapshots did to a table: how many rows, in which partitions, and who."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select

from airflow_provider_ducklake.lake.catalog.reports.read_changes import find_changes
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.catalog.snapshot.read_files import which_partition_values
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import partition_specs
from airflow_provider_ducklake.lake.planning.reading.scan import BEGIN_SNAPSHOT, END_SNAPSHOT, InlinedRows
from airflow_provider_ducklake.lake.planning.reading.watch import (
    RangeReport,
    added,
    count_changes,
    deleted,
    words_of,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.spec.partitioning import partition_key
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot
    from airflow_provider_ducklake.lake.transaction.changes_made import ChangeRecord


def touched_partitions(
    connection: Connection, catalog: Catalog, plan: ChangeFeedPlan
) -> tuple[str, ...] | None:
    """Return the partitions in which rows came or went, sorted; None: any may be one."""
    specs = partition_specs(connection, catalog.tables, plan.table.table_id)
    files = [one.file for one in plan.files if added(plan, one) != 0 or deleted(plan, one) != 0]
    if not specs:
        return ()
    ids = [one.id for one in files]
    asked = which_partition_values(catalog.tables, plan.table.table_id, ids)
    values = asked.ask(connection) if ids else {}
    found: set[str] = set()
    for file in files:
        spec = specs.get(file.partition_id) if file.partition_id is not None else None
        name = None if spec is None else _key(plan, spec, values.get(file.id, ()))
        if name is None:
            return None
        found.add(name)
    for name in _of_inlined(plan):
        if name is None:
            return None
        found.add(name)
    return tuple(sorted(found))


def _key(plan: ChangeFeedPlan, spec: PartitionSpec, values: Sequence[str | None]) -> str | None:
    known = {column.id for column in plan.table.schema.columns}
    if len(values) != len(spec.fields) or not known.issuperset(one.column_id for one in spec.fields):
        return None
    return partition_key(spec.fields, plan.table.schema, values)


def _of_inlined(plan: ChangeFeedPlan) -> Iterator[str | None]:
    """Yield the partitions that rows in the catalog will be flushed to."""
    from airflow_provider_ducklake.lake.storage.parquet.rows import split_by_partition  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema  # noqa: PLC0415 - as well

    touched = tuple(
        InlinedRows(part.table_name, part.schema, rows)
        for part in plan.inlined
        if (rows := tuple(row for row in part.rows if _is_touched(plan, row)))
    )
    if not touched:
        return
    spec = plan.table.partition_spec
    if spec is None:
        yield None
        return
    rows = inlined_in_schema(touched, plan.table.schema)
    for values, _ in split_by_partition(rows, plan.table.schema, spec.fields):
        yield _key(plan, spec, values)


def _is_touched(plan: ChangeFeedPlan, row: Mapping[str, Any]) -> bool:
    moments = (row[BEGIN_SNAPSHOT], row[END_SNAPSHOT])
    return any(one is not None and plan.start <= one <= plan.end for one in moments)


def authors_of(
    connection: Connection, catalog: Catalog, table_id: int, after: int, upto: int
) -> tuple[str, ...]:
    """Return who changed a table in snapshots after one, up to another, as far as they say, sorted."""
    newer = read_snapshots.which_newer(catalog.tables, after).ask(connection)
    ours = (one for one in newer if one.id <= upto and any(of.object_id == table_id for of in one.changes))
    return tuple(sorted({one.author for one in ours if one.author}))


def commit_reports(connection: Connection, catalog: Catalog, snapshot: Snapshot) -> Iterator[RangeReport]:
    """Yield what a snapshot did to each table that it changed; upkeep changes none."""
    newer = read_snapshots.which_newer(catalog.tables, snapshot.id - 1).ask(connection)
    records = next((one.changes for one in newer if one.id == snapshot.id), ())
    for table_id, name in _touched_tables(connection, catalog, snapshot, records):
        words = words_of(records, table_id, name, deletes_are_flush=False)
        if words:
            plan = find_changes(connection, catalog, name, snapshot.id, snapshot)
            report = reported(connection, catalog, plan, tuple(sorted(words)))
            yield replace(report, is_new=_creates(records, name))


def _touched_tables(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, records: Iterable[ChangeRecord]
) -> list[tuple[int, QualifiedName]]:
    """Return the tables that records may be about, whatever the number of others: by id, or just created."""
    table = catalog.tables["table"].c
    ids = {one.object_id for one in records if one.object_id is not None}
    is_meant = or_(table.table_id.in_(ids), table.begin_snapshot == snapshot.id)
    query = select(table.table_id, table.schema_id, table.table_name)
    query = query.where(read.visible(catalog.tables["table"], snapshot.id), is_meant)
    rows = connection.execute(query.order_by(table.table_id)).all()
    paths = read.all_schema_paths(connection, catalog.tables) if rows else {}
    named = [(row, paths[row.schema_id]) for row in rows if row.schema_id in paths]
    return [(int(row.table_id), QualifiedName(path, row.table_name)) for row, path in named]


def _creates(records: Iterable[ChangeRecord], name: QualifiedName) -> bool:
    return any(
        one.kind is ChangeKind.CREATED_TABLE
        and isinstance(one.name, QualifiedName)
        and one.name.folded == name.folded
        for one in records
    )


def reported(
    connection: Connection, catalog: Catalog, plan: ChangeFeedPlan, changes: tuple[str, ...]
) -> RangeReport:
    """Return the report of a complete range."""
    counts, after = count_changes(plan), plan.start - 1
    return RangeReport(
        str(plan.table.name),
        plan.table.table_id,
        after,
        plan.end,
        changes,
        counts.added,
        counts.deleted,
        touched_partitions(connection, catalog, plan),
        authors_of(connection, catalog, plan.table.table_id, after, plan.end),
    )
