"""Group adjacent files into bins that become one file each, and derive the facts about that file.

*Source:* the reference's ``ducklake_merge_adjacent_files`` and ``ducklake_rewrite_data_files``
(docs/sources.md, maintenance). It goes by schema versions, where ours are the table's columns: a version that
changed only sort keys, or another table, divides nothing. What is rewritten has the current columns, whatever
its files had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ...errors import InvalidInputError
from ...format.partitioning import PartitionSpec, why_not_partitioned
from ..writing.write import ParquetSettings, RowOrder, WritePlan, sort_keys_of

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.names.identifiers import QualifiedName
    from ...format.schema import TableSchema
    from ...format.snapshots import DataFileId, PartitionId, SnapshotId, TableSnapshot
    from ...format.sorting import SortField
    from ...transaction.changes import FlushedLayout


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Which files to merge, sizes in bytes of Parquet.

    Files of at least ``min_file_size`` and below ``max_file_size`` (None: the target), added before the
    snapshot ``before`` (None: any). At most ``max_input_files`` are read and ``max_output_files`` made.
    ``target_file_size`` None: the table's option, which is read when bins are planned.
    """

    target_file_size: int | None = None
    min_file_size: int = 0
    max_file_size: int | None = None
    before: SnapshotId | None = None
    max_input_files: int | None = None
    max_output_files: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_file_size", "max_file_size", "max_input_files", "max_output_files"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name}={value}: give 1 or more.")
        if self.min_file_size < 0:
            raise InvalidInputError(f"min_file_size={self.min_file_size}: give 0 or more.")
        if self.size_limit is not None and self.min_file_size >= self.size_limit:
            raise InvalidInputError(
                f"min_file_size={self.min_file_size} excludes every file: only files below "
                f"{self.size_limit} bytes are merged. Lower it."
            )
        if self.max_input_files == 1:
            raise InvalidInputError("max_input_files=1: a merge needs at least two files. Give 2 or more.")

    @property
    def size_limit(self) -> int | None:
        """The size from which on a file stays as it is."""
        return self.max_file_size or self.target_file_size

    def takes(self, file: LiveDataFile) -> bool:
        """Return True if the file is of the size and age that is asked for."""
        if self.before is not None and max(file.begin_snapshot, file.partial_max or 0) >= self.before:
            return False
        is_small = self.size_limit is None or file.file_size_bytes < self.size_limit
        return is_small and file.file_size_bytes >= self.min_file_size


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """Which files to rewrite: those that have lost at least the fraction ``delete_threshold`` of their rows.

    0 means any row, None the table's option ``rewrite_delete_threshold``, which is read when bins are
    planned. The rest is as in ``MergeRule``.
    """

    delete_threshold: float | None = None
    target_file_size: int | None = None
    max_input_files: int | None = None
    max_output_files: int | None = None

    def __post_init__(self) -> None:
        if self.delete_threshold is not None and not 0 <= self.delete_threshold <= 1:
            raise InvalidInputError(f"delete_threshold={self.delete_threshold}: give a fraction from 0 to 1.")
        for name in ("target_file_size", "max_input_files", "max_output_files"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name}={value}: give 1 or more.")

    def takes(self, file: LiveDataFile, mark_count: int) -> bool:
        """Return True if the file has lost so many rows."""
        assert self.delete_threshold is not None
        lost = mark_count + (file.delete_file.delete_count if file.delete_file is not None else 0)
        return 0 < lost >= self.delete_threshold * file.record_count


@dataclass(frozen=True, slots=True)
class Bin:
    """Adjacent files that become one, in the order of their rows; ``schema`` is that of the first of them."""

    schema: TableSchema
    files: tuple[LiveDataFile, ...]

    @property
    def begin_snapshot(self) -> SnapshotId:
        """The snapshot of the oldest row."""
        return min(file.begin_snapshot for file in self.files)

    @property
    def partial_max(self) -> SnapshotId | None:
        """The snapshot of the newest row, where not all are of one: then each row says its own."""
        newest = max(file.partial_max or file.begin_snapshot for file in self.files)
        return None if newest == self.begin_snapshot else newest

    @property
    def row_id_start(self) -> int | None:
        """The first row id where the catalog takes them for consecutive, in which files may contradict it."""
        following = pairwise(self.files)
        first = self.files[0].row_id_start
        if first is None or any(_next_row_id(one) != other.row_id_start for one, other in following):
            return None
        return first

    @property
    def partition_id(self) -> PartitionId | None:
        """The partition keys that all files were written by."""
        return self.files[0].partition_id

    @property
    def partition_values(self) -> tuple[str | None, ...]:
        """The values of those keys."""
        return self.files[0].partition_values

    @property
    def record_count(self) -> int:
        """Rows in all files."""
        return sum(file.record_count for file in self.files)

    @property
    def file_size_bytes(self) -> int:
        """Bytes in all files."""
        return sum(file.file_size_bytes for file in self.files)


def _next_row_id(file: LiveDataFile) -> int | None:
    return None if file.row_id_start is None else file.row_id_start + file.record_count


@dataclass(frozen=True, slots=True)
class Compaction:
    """The bins of one table, as its snapshot has them.

    With ``is_rewrite``, deleted rows are left out: those in the files' delete files, and those at ``marks``,
    ascending positions by data file.
    """

    table: TableSnapshot
    bins: tuple[Bin, ...]
    is_rewrite: bool = False
    marks: Mapping[DataFileId, Sequence[int]] = field(default_factory=dict)

    @property
    def file_count(self) -> int:
        """How many files are read."""
        return sum(len(one.files) for one in self.bins)

    @property
    def file_size_bytes(self) -> int:
        """How many bytes of Parquet are read."""
        return sum(one.file_size_bytes for one in self.bins)

    @property
    def has_keys(self) -> bool:
        """True if a file or one of its delete files is encrypted."""
        return any(file.has_keys for one in self.bins for file in one.files)

    def without_keys(self) -> Compaction:
        """Return it without the keys of its files."""
        bins = (replace(one, files=tuple(map(_without_keys, one.files))) for one in self.bins)
        return replace(self, bins=tuple(bins))


def _without_keys(file: LiveDataFile) -> LiveDataFile:
    delete_file = file.delete_file and replace(file.delete_file, encryption_key=None)
    older = tuple(replace(one, encryption_key=None) for one in file.older_delete_files)
    return replace(file, encryption_key=None, delete_file=delete_file, older_delete_files=older)


def plan_bins(
    files: Iterable[LiveDataFile],
    rule: MergeRule,
    column_changes: Collection[SnapshotId],
    untouched: Collection[DataFileId] = (),
) -> Iterator[tuple[LiveDataFile, ...]]:
    """Yield the files of each bin: two or more that lie next to each other and are alike.

    The rule has a target. ``column_changes`` are the snapshots that changed the table's columns; files from
    before and after one have different columns. ``untouched`` are the ids of files that must stay as they
    are.
    """
    groups: dict[tuple[object, ...], list[LiveDataFile]] = defaultdict(list)
    boundaries = sorted(column_changes)
    for file in files:
        if rule.takes(file) and file.id not in untouched:
            age = bisect_right(boundaries, file.begin_snapshot)
            groups[age, file.partition_id, file.partition_values].append(file)
    yield from _limited(_bins(groups.values(), rule), rule, least=2)


def plan_rewrites(
    files: Iterable[LiveDataFile], rule: RewriteRule, marks: Mapping[DataFileId, Sequence[int]]
) -> Iterator[tuple[LiveDataFile, ...]]:
    """Yield the files of each bin: one or more of one partition that have lost rows.

    ``marks`` are positions that were deleted in the catalog. The rule has a target; files count with what is
    left of them.
    """
    groups: dict[tuple[object, ...], list[LiveDataFile]] = defaultdict(list)
    for file in files:
        if rule.takes(file, len(marks.get(file.id, ()))):
            groups[file.partition_id, file.partition_values].append(file)
    yield from _limited(_bins(groups.values(), rule), rule, least=1)


def _bins(
    groups: Iterable[Sequence[LiveDataFile]], rule: MergeRule | RewriteRule
) -> list[tuple[LiveDataFile, ...]]:
    bins = (found for group in groups for found in _packed(sorted(group, key=_place), rule))
    return sorted(bins, key=lambda found: _place(found[0]))


def _place(file: LiveDataFile) -> tuple[int, int, int]:
    return file.begin_snapshot, file.row_id_start or 0, file.id


def _packed(
    files: Sequence[LiveDataFile], rule: MergeRule | RewriteRule
) -> Iterator[tuple[LiveDataFile, ...]]:
    target = rule.target_file_size
    assert target is not None
    run: list[LiveDataFile] = []
    size = 0
    for file in files:
        if run and size + file.file_size_bytes > target:
            yield tuple(run)
            run, size = [], 0
        run.append(file)
        size += file.file_size_bytes
    yield tuple(run)


def _limited(
    bins: Iterable[tuple[LiveDataFile, ...]], rule: MergeRule | RewriteRule, *, least: int
) -> Iterator[tuple[LiveDataFile, ...]]:
    """Yield bins of ``least`` files and more, as far as the rule's limits go; the last may be cut short."""
    left = rule.max_input_files
    made = 0
    for found in bins:
        chosen = found if left is None else found[:left]
        if len(chosen) < least or made == rule.max_output_files:
            continue
        made += 1
        left = None if left is None else left - len(chosen)
        yield chosen


# The plan and the result of a flush of inlined data.


@dataclass(frozen=True, slots=True)
class LayoutToFlush:
    """An inlined table with rows: the columns and the partition keys that the table had when it was made."""

    rows: FlushedLayout
    schema: TableSchema
    partition_spec: PartitionSpec | None = None

    @property
    def schema_version(self) -> int:
        """The schema version that the inlined table is named after."""
        return self.rows.schema_version

    @property
    def partition_id(self) -> PartitionId | None:
        """The id of the partition keys; None: none."""
        return None if self.partition_spec is None else self.partition_spec.id


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The inlined rows and deletes of a table, at the table's snapshot.

    ``marks`` are the deletes of ``files`` in the catalog: positions, with the snapshots that deleted them.
    """

    table: TableSnapshot
    layouts: tuple[LayoutToFlush, ...] = ()
    files: tuple[LiveDataFile, ...] = ()
    marks: Mapping[DataFileId, Mapping[int, int]] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """Rows in the catalog, those that have ended among them."""
        return sum(one.rows.row_count for one in self.layouts)

    @property
    def ended_count(self) -> int:
        """Those of the rows that have ended."""
        return sum(one.rows.ended_count for one in self.layouts)

    @property
    def mark_count(self) -> int:
        """Deletes of rows in data files."""
        return sum(len(self.marks[file.id]) for file in self.files)

    @property
    def why_not(self) -> str | None:
        """Why the rows cannot be written to files; None if they can."""
        for layout in self.layouts:
            for column in layout.schema.walk() if layout.rows.row_count else ():
                if not column.type.facts.storable:
                    return f"column {column.name} has type {column.type}, which this release does not write"
            spec = layout.partition_spec
            if spec is not None and (problem := why_not_partitioned(spec.fields, layout.schema)):
                return problem
        return None

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to flush."""
        return not (self.row_count or self.mark_count)


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush did with one table, or with a dry run would do: then no files are counted.

    ``row_count`` rows left the catalog, ``ended_count`` of them are not in the newest snapshot;
    ``delete_count`` deletes of rows in data files did. ``snapshot_id`` is None where nothing was committed.
    """

    table: QualifiedName
    row_count: int
    ended_count: int
    delete_count: int
    data_files: int = 0
    delete_files: int = 0
    bytes: int = 0
    snapshot_id: SnapshotId | None = None


def plan_layout(table: TableSnapshot, layout: LayoutToFlush, directory: str) -> WritePlan:
    """Plan the write of an inlined table's rows: with its columns, by the current options."""
    spec = layout.partition_spec
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=layout.schema,
        partition_fields=spec.fields if spec is not None else (),
        settings=ParquetSettings.of_options(table.options),
        row_order=RowOrder(_sort_keys_at(table, layout.schema)),
    )


def _sort_keys_at(table: TableSnapshot, schema: TableSchema) -> tuple[SortField, ...]:
    """Return the sort keys with the names that their columns had; one that is not there yet sorts nothing."""
    then = {column.id: column.name for column in schema.columns}
    keys = []
    for key in sort_keys_of(table):
        (column,) = (one for one in table.schema.columns if key.mentions(one))
        if column.id in then:
            keys.append(key.renamed(column, then[column.id]))
    return tuple(keys)
