"""Pure rules of the migration, for what 1.0 and 1.1 require and older catalogs left open.

*Source:* docs/sources.md, versions, and what the reference writes for the same history in 1.0.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ...errors import CatalogError, InvalidTypeError
from ...format.names.identifiers import fold
from ...format.types.ducklake_types import ScalarKind, parse_type


def versions_of_tables(
    changed: Iterable[tuple[int, int]], versions: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Return the rows (begin snapshot, schema version, table) of ``ducklake_schema_versions``, sorted.

    ``changed`` are tables with the snapshots that created or changed them; ``versions`` the snapshots by
    which the lake's schema versions began, ascending. An expired one gets the next version that is left.

    >>> versions_of_tables([(1, 1), (1, 4), (2, 4), (2, 7)], [(1, 1), (4, 2), (9, 4)])
    [(1, 1, 1), (4, 2, 1), (4, 2, 2), (7, 4, 2)]
    """
    known = [snapshot for snapshot, _ in versions]
    rows = {
        (snapshot, versions[min(bisect_left(known, snapshot), len(known) - 1)][1], table)
        for table, snapshot in changed
    }
    return sorted(rows)


_STAMPED = "partial_max:"  # so late builds of 0.3 say it


def stamped_max(text: str) -> int | None:
    """Parse the newest snapshot of a file whose rows carry their snapshots, as 0.3 stores it.

    >>> stamped_max("partial_max:7"), stamped_max("3:2|4:3")
    (7, None)
    """
    if not text.startswith(_STAMPED):
        return None
    number = text.removeprefix(_STAMPED)
    if not re.fullmatch(r"\d{1,18}", number):
        raise CatalogError(
            f"The partial_file_info {text!r:.80} of a data file does not give the snapshot of each row. "
            "Restore the catalog from a backup."
        )
    return int(number)


def snapshot_counts(text: str, record_count: int, file: str) -> tuple[tuple[int, int], ...]:
    """Parse a merged file's ``partial_file_info``: snapshots, each with the number of rows up to it.

    >>> snapshot_counts("3:2|4:3", 3, "a.parquet")
    ((3, 2), (4, 3))
    """
    try:
        pairs = tuple(
            (int(one), int(count)) for one, _, count in (part.partition(":") for part in text.split("|"))
        )
    except ValueError:
        pairs = ()
    counts = [count for _, count in pairs]
    if not pairs or sorted(pairs) != list(pairs) or counts != sorted(counts) or counts[-1] != record_count:
        raise CatalogError(
            f"The merged file {file} with {record_count} rows has the partial_file_info {text!r}, which "
            "does not give the snapshot of each row. Restore the catalog from a backup."
        )
    return pairs


def column_ids_of_ordinals(
    keys: Iterable[tuple[int, int | None]], columns: Mapping[int, Sequence[int]]
) -> list[int]:
    """Return the columns that partition keys of 0.1 mean: (partition, place of the column, from 0).

    ``columns`` are the ids of the top-level columns that a table had when a partitioning of it began, by the
    partitioning.
    """
    found = []
    for partition, place in keys:
        ids = columns.get(partition, ())
        if place is None or not 0 <= place < len(ids):
            raise CatalogError(
                f"Partitioning {partition} names column {place} of a table that had {len(ids)} columns. "
                "Restore the catalog from a backup."
            )
        found.append(ids[place])
    return found


@dataclass(frozen=True, slots=True)
class Renames:
    """New names of a table's columns, each after the old one; or, as ``refusal``, why there cannot be any."""

    of: tuple[tuple[str, str], ...] = ()
    refusal: str | None = None


def renamed_columns(
    table: str, of: str, columns: Sequence[str] | None, old: Sequence[str], new: Sequence[str]
) -> Renames:
    """Plan new names for a catalog table's first columns; those that have them already stay.

    ``columns`` is None where there is no such table; ``of`` is the user's table whose rows it holds.

    >>> renamed_columns("inlined", "t", ["row_id", "_begin", "i"], ["row_id", "begin"], ["_row_id", "_begin"])
    Renames(of=(('row_id', '_row_id'),), refusal=None)
    """
    if columns is None:
        return Renames(
            refusal=f"{table}, which is to hold rows of {of}, is registered but does not exist. Remove the "
            "registration with lake.repair(lake.verify())."
        )
    folded = [fold(name) for name in columns]
    found = folded[: len(old)]
    if len(found) < len(old) or any(
        name not in pair for name, pair in zip(found, zip(old, new, strict=True), strict=True)
    ):
        return Renames(
            refusal=f"{table}, which holds rows of {of}, has the columns {', '.join(columns)}; the first "
            f"must be {', '.join(old)}. Restore the catalog from a backup, or empty and drop the table."
        )
    taken = [name for name in new if name in folded[len(old) :]]
    if taken:
        return Renames(
            refusal=f"{table} holds rows of {of} with a column {taken[0]}, a name that DuckLake 1.1 needs. "
            f"Rename the column, then flush the inlined data of {of}."
        )
    changed = zip(columns, found, new, strict=False)
    return Renames(tuple((column, name) for column, old_name, name in changed if old_name != name))


def missing_schema_versions(
    snapshots: Sequence[tuple[int, int]],
    registered: Iterable[tuple[int, int]],
    known: Collection[tuple[int, int, int]],
) -> list[tuple[int, int, int]]:
    """Return rows (begin snapshot, schema version, table) that tables for inlined rows need and lack.

    ``snapshots`` are ids with schema versions, ascending; ``registered`` tables with the schema versions that
    have a table for inlined rows; ``known`` the rows that are there. The first snapshot of a version
    can be found while the one before it exists. A table with one version needs no second row.

    >>> missing_schema_versions([(1, 1), (2, 1), (3, 3)], [(7, 2), (8, 2)], [(1, 0, 7), (2, 1, 7), (1, 1, 8)])
    [(3, 2, 7)]
    """
    there = {(table, version) for _, version, table in known}
    found = []
    for table, version in sorted(set(registered) - there):
        for (before, old), (snapshot, new) in pairwise(snapshots):
            if before != snapshot - 1 or not old < version <= new:
                continue
            if sum(one == table and begin <= snapshot for begin, _, one in known) > 1:
                found.append((snapshot, version, table))
    return found


Default: TypeAlias = tuple[str | None, ...]  # the four columns that say it, ``initial_default`` first


def lost_defaults(fields: Iterable[tuple[int, int, int, Default]]) -> list[tuple[int, int, int, Default]]:
    """Return the rows of nested fields whose default got lost with a rename, each with that default.

    ``fields`` are the rows of nested fields: table, column, begin snapshot, default.

    >>> lost_defaults([(1, 4, 2, ("7", "7")), (1, 4, 3, (None, "NULL")), (1, 5, 2, (None, "NULL"))])
    [(1, 4, 3, ('7', '7'))]
    """
    found = []
    last: dict[tuple[int, int], Default] = {}
    for table, column, begin, default in sorted(fields, key=lambda row: row[:3]):
        key = table, column
        if default[0] is not None:
            last[key] = default
        elif key in last:
            found.append((table, column, begin, last[key]))
    return found


def misspelled_bounds(columns: Iterable[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Return the columns (table, column) whose bounds may be spelled in the way of an earlier type of theirs.

    ``columns`` are tables and columns with each type that they had. A whole number is spelled alike in all
    types of whole numbers, and a decimal in all of decimals.

    >>> misspelled_bounds([(1, 1, "int32"), (1, 1, "int64"), (1, 2, "float32"), (1, 2, "float64")])
    [(1, 2)]
    """
    types: dict[tuple[int, int], set[str]] = {}
    for table, column, type_ in columns:
        types.setdefault((table, column), set()).add(type_)
    return [key for key, names in sorted(types.items()) if len(names) > 1 and not _spelled_alike(names)]


def _spelled_alike(names: Collection[str]) -> bool:
    kinds = {_kind(name) for name in names}
    return len(kinds) == 1 and kinds <= {ScalarKind.INTEGER, ScalarKind.DECIMAL}


def _kind(name: str) -> ScalarKind:
    try:
        return parse_type(name).facts.kind
    except InvalidTypeError:
        return ScalarKind.OTHER
