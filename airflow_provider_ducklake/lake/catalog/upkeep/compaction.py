"""Choose the files of a table to compact, and build the changes that replace them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ...errors import UnsupportedFeatureError
from ...format.names.paths import relative_to
from ...format.schema import TableSchema
from ...format.snapshots import DataFileId, DeleteFileId, PartitionId, SnapshotId, TableSnapshot
from ...format.types.ducklake_types import is_misread_by_filters
from ...planning.upkeep.compaction import Bin, Compaction, MergeRule, RewriteRule, plan_bins, plan_rewrites
from ...planning.writing.overwrite import has_other_buckets
from ...transaction.changes import MergeAdjacent, MergedFile, RewriteDeletes, RewriteSource, RewrittenFile
from ..snapshot import read_files
from ..snapshot.inlined_read import inlined_delete_snapshots
from ..snapshot.read_files import files_with_deletes, mark_counts, mergeable_files
from ..snapshot.read_layouts import ColumnVersions, columns_query
from ..snapshot.scan import partition_specs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ...format.files import DataFile, LiveDataFile
    from ...format.partitioning import PartitionSpec
    from ..dialects.dialect import Catalog


def find_merge(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    rule: MergeRule,
    files: Collection[LiveDataFile] | None = None,
) -> Compaction:
    """Plan the merge of a table's small files; ``files``: only these may be merged."""
    if files is None:
        files = read_files.data_files(connection, catalog, table, stats_of=())
    if rule.target_file_size is None:
        rule = replace(rule, target_file_size=table.options.integer("target_file_size"))
    columns = columns_query(catalog.tables, table.table_id).ask(connection)
    changed = columns.changes()
    touched = files_with_deletes(connection, catalog, table.table_id)
    schema_at = cache(columns.at)

    def before(begun: SnapshotId) -> SnapshotId:
        return max((one for one in changed if one <= begun), default=SnapshotId(0))

    bins = tuple(
        Bin(_in_types_of(table.schema, schema_at(before(found[0].begin_snapshot))), found)
        for found in plan_bins(files, rule, changed, touched)
    )
    _check_writable(table, bins)
    return Compaction(table, bins)


def find_rewrite(
    connection: Connection, catalog: Catalog, table: TableSnapshot, rule: RewriteRule
) -> Compaction:
    """Plan the rewrite of those files of a table that have lost many rows."""
    at = table.snapshot.id
    columns = columns_query(catalog.tables, table.table_id).ask(connection)
    specs = partition_specs(connection, catalog.tables, table.table_id)
    if rule.target_file_size is None:
        rule = replace(rule, target_file_size=table.options.integer("target_file_size"))
    if rule.delete_threshold is None:
        rule = replace(rule, delete_threshold=table.options.share("rewrite_delete_threshold"))
    files = [
        _without_other_buckets(file, columns, table, specs)
        for file in read_files.data_files(connection, catalog, table, stats_of=())
    ]
    found = inlined_delete_snapshots(connection, catalog, table.table_id, at)
    marks = {file_id: tuple(sorted(places)) for file_id, places in found.items()}
    bins = [Bin(table.schema, chosen) for chosen in plan_rewrites(files, rule, marks)]
    _check_writable(table, bins)
    touched = {file.id for one in bins for file in one.files}
    chosen_marks = {file_id: places for file_id, places in marks.items() if file_id in touched}
    return Compaction(table, tuple(bins), is_rewrite=True, marks=chosen_marks)


def _in_types_of(now: TableSchema, old: TableSchema) -> TableSchema:
    """Return old columns, with the current types of those whose old types DuckDB misreads."""
    types = {column.id: column.type for column in now.columns}
    return TableSchema(
        tuple(
            replace(one, type=types[one.id])
            if one.id in types and is_misread_by_filters(one.type, types[one.id])
            else one
            for one in old.columns
        )
    )


def _without_other_buckets(
    file: LiveDataFile,
    columns: ColumnVersions,
    table: TableSnapshot,
    specs: Mapping[PartitionId, PartitionSpec],
) -> LiveDataFile:
    """Return a file without partition values if its buckets are those of another type: it will look newer."""
    spec = None if file.partition_id is None else specs.get(file.partition_id)
    if spec is None:
        return file
    live = {column.id: column for column in table.schema.columns}
    keys = [live[one.column_id] for one in spec.fields if one.column_id in live]
    if not has_other_buckets(file, spec, {one.id: columns.bucketed_since(one) for one in keys}):
        return file
    return replace(file, partition_id=None, partition_values=())


def _check_writable(table: TableSnapshot, bins: Iterable[Bin]) -> None:
    """Refuse columns that cannot be written, before any work."""
    for column in (column for one in bins for column in one.schema.walk()):
        if not column.type.facts.rewritable:
            raise UnsupportedFeatureError(
                f"Files of {table.name} cannot be rewritten: column {column.name} has type {column.type}, "
                "which this release does not write. Compact the table with DuckDB."
            )


def compaction_change(
    table: TableSnapshot, files: Collection[MergedFile | RewrittenFile]
) -> MergeAdjacent | RewriteDeletes:
    """Return the change that puts files of one kind, by their absolute paths, in the place of others."""
    merged = tuple(replace(one, file=_below(table, one.file)) for one in files if isinstance(one, MergedFile))
    if merged:
        return MergeAdjacent(table.table_id, table.name, merged)
    rewritten = tuple(
        replace(one, file=None if one.file is None else _below(table, one.file))
        for one in files
        if isinstance(one, RewrittenFile)
    )
    return RewriteDeletes(table.table_id, table.name, rewritten)


def _below(table: TableSnapshot, file: DataFile) -> DataFile:
    return replace(file, path=relative_to(file.path, table.root).path or "")


def as_planned(
    connection: Connection, catalog: Catalog, table_id: int, files: Collection[MergedFile | RewrittenFile]
) -> list[MergedFile | RewrittenFile]:
    """Return those of the files whose sources are what they were when they were read, each source once.

    Where a task ran twice, two files are made of the same sources: the first counts.
    What was rewritten has the columns of its base snapshot, which the table must still have: readers take the
    columns of a file for those of its first snapshot. What was merged is as old as its rows.
    """
    sources = [one for file in files for one in file.sources]
    whole = mergeable_files(connection, catalog, table_id, sources)
    targets = read_files.live_targets(connection, catalog.tables, sources, table_id)
    counts = mark_counts(connection, catalog, table_id)
    altered = max(columns_query(catalog.tables, table_id).ask(connection).changes(), default=0)

    def is_as_planned(one: MergedFile | RewrittenFile) -> bool:
        if isinstance(one, MergedFile):
            return whole.keys() >= set(one.sources)
        return altered <= one.read_at and all(_is_as_read(origin, targets, counts) for origin in one.origins)

    taken: set[DataFileId] = set()
    found = []
    for one in files:
        if is_as_planned(one) and taken.isdisjoint(one.sources):
            taken.update(one.sources)
            found.append(one)
    return found


def _is_as_read(
    origin: RewriteSource, targets: Mapping[DataFileId, DeleteFileId | None], counts: Mapping[DataFileId, int]
) -> bool:
    is_live = origin.file_id in targets
    same_deletes = is_live and targets[origin.file_id] == origin.delete_file_id
    return same_deletes and counts.get(origin.file_id, 0) == origin.mark_count
