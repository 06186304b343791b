"""What to read for a table at a snapshot, or for the changes of its rows between two.

*Source:* docs/sources.md, change feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...format.names.identifiers import fold
from .predicates import Predicate, column_ids
from .pruning import file_may_match

if TYPE_CHECKING:
    from ...format.files import LiveDataFile, LiveDeleteFile
    from ...format.partitioning import PartitionSpec
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId, DataFileId, PartitionId, SnapshotId, TableSnapshot


# cells of an inlined row that no user's column is called: no name has a NUL
SYSTEM_CELLS = ROW_ID, BEGIN_SNAPSHOT, END_SNAPSHOT = "\0row_id", "\0begin_snapshot", "\0end_snapshot"


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Live rows of one inlined table as the database gave them; ``schema`` is the one it was made for.

    A row has a cell for each column by name, and ``SYSTEM_CELLS``: its row id, its first snapshot, and the
    snapshot that ended it.
    """

    table_name: str
    schema: TableSchema
    rows: tuple[Mapping[str, Any], ...]

    @property
    def row_ids(self) -> tuple[int, ...]:
        """The row id of each row."""
        return tuple(row[ROW_ID] for row in self.rows)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The rows that are the table: of its files, all but those at ``inlined_deletes``, and inlined ones.

    With ``where`` only those for which it is true: ``files`` are those that may hold such rows.
    ``columns_since`` is for each column and nested field the snapshot that gave it its current name and type:
    what DuckLake wrote after it has the field so. A field that is not in it may differ in any file.
    """

    table: TableSnapshot
    files: tuple[LiveDataFile, ...]
    columns: tuple[str, ...]
    inlined_rows: tuple[InlinedRows, ...] = ()
    inlined_deletes: Mapping[DataFileId, Sequence[int]] = field(default_factory=dict)  # ascending positions
    where: Predicate | None = None
    columns_since: Mapping[ColumnId, SnapshotId] = field(default_factory=dict)


def columns_to_read(plan: ScanPlan) -> tuple[Column, ...]:
    """Return the plan's columns, and behind them those that only its filter looks at."""
    schema = plan.table.schema
    chosen = tuple(schema.find(name) for name in plan.columns)
    if plan.where is None:
        return chosen
    wanted = set(column_ids(plan.where))
    return (
        *chosen,
        *(one for one in schema.columns if one not in chosen and wanted & {inner.id for inner in one.walk()}),
    )


def plan_scan(  # noqa: PLR0913 - the last three have defaults
    table: TableSnapshot,
    columns: tuple[str, ...] | None,
    inlined_rows: tuple[InlinedRows, ...],
    inlined_deletes: Mapping[DataFileId, Sequence[int]],
    *,
    where: Predicate | None = None,
    partition_specs: Mapping[PartitionId, PartitionSpec] = MappingProxyType({}),
    columns_since: Mapping[ColumnId, SnapshotId] = MappingProxyType({}),
) -> ScanPlan:
    """Return the plan for reading a table whose snapshot was taken with its files.

    ``columns`` None means every column. The inlined rows and deletes are those in force at the snapshot; an
    inlined delete names the position of a row in its file, ascending. ``partition_specs`` are those that the
    table ever had.
    """
    assert table.files is not None
    chosen = table.schema.names if columns is None else columns
    names = tuple(table.schema.find(name, str(table.name)).name for name in chosen)
    files = table.files
    if where is not None:
        types = {column.id: column.type for column in table.schema.walk()}
        files = tuple(file for file in files if file_may_match(where, file, types, partition_specs))
    return ScanPlan(table, files, names, inlined_rows, inlined_deletes, where, columns_since)


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A data file, whether it is live or not, with all that took rows out of it.

    ``ended_by`` is the snapshot that ended it with the rows it still had; ``marks`` are the positions deleted
    in the catalog, with the snapshots that did so.
    """

    file: LiveDataFile
    ended_by: SnapshotId | None = None
    delete_files: tuple[LiveDeleteFile, ...] = ()
    marks: Mapping[int, int] = field(default_factory=dict)

    @property
    def has_keys(self) -> bool:
        """True if the file or one of the delete files is encrypted."""
        return self.file.has_keys or any(one.encryption_key is not None for one in self.delete_files)


@dataclass(frozen=True, slots=True)
class ChangeFeedPlan:
    """The changes of a table's rows from snapshot ``start`` to ``end``, both included.

    ``table`` is the table at ``end``, whose columns the rows have. ``inlined`` holds the rows in the catalog
    that any of the snapshots has, with their ``end_snapshot``. ``rewrites`` are the snapshots of compaction
    that moved rows without changing any. ``columns_since`` is that of a ``ScanPlan``.
    """

    table: TableSnapshot
    start: int
    end: int
    files: tuple[FileHistory, ...] = ()
    inlined: tuple[InlinedRows, ...] = ()
    rewrites: frozenset[int] = frozenset()
    columns_since: Mapping[ColumnId, SnapshotId] = field(default_factory=dict)


def may_hold_changes(plan_start: int, history: FileHistory, *, begin: int, partial_max: int | None) -> bool:
    """Return True if a file that begins by the end of the range may have rows that came or went in it."""
    if max(begin, partial_max or 0) >= plan_start:
        return True
    if history.ended_by is not None and history.ended_by >= plan_start:
        return True
    if any(snapshot >= plan_start for snapshot in history.marks.values()):
        return True
    return any(
        max(one.begin_snapshot, one.partial_max or 0) >= plan_start
        # a flush writes deletes of several snapshots without saying so, and only for its own files
        or (one.partial_max is None and partial_max is not None)
        for one in history.delete_files
    )


# Which columns texts of SQL may name: never too few, though perhaps too many.


_STAR = re.compile(r"(?:\A|[(,.])\s*\*")  # not that of a product, which has a factor before it
_WORD = re.compile(r"\w+")


def named_columns(texts: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``names`` that occur in the texts, in their order; a star names them all.

    >>> named_columns(["price * 2 > `unit price`"], ["id", "price", "unit price", "unit"])
    ('price', 'unit price', 'unit')
    >>> named_columns(["hash(*) > 0"], ["id", "price"])
    ('id', 'price')
    """
    whole = "\n".join(texts)
    if _STAR.search(whole):
        return tuple(names)
    folded = fold(whole).replace("``", "`")
    words = set(_WORD.findall(folded))
    return tuple(
        name for name in names if (fold(name) in words if _WORD.fullmatch(name) else fold(name) in folded)
    )
