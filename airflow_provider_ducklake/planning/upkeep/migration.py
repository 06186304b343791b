"""Pure rules of the migration, for what 1.0 requires and older catalogs left open.

*Source:* docs/sources.md, versions, and what the reference writes for the same history in 1.0.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def versions_of_tables(
    changed: Iterable[tuple[int, int]], versions: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Return the rows (begin snapshot, schema version, table) of ``ducklake_schema_versions``, sorted.

    ``changed`` are tables with the snapshots that created or changed them; ``versions`` the snapshots by
    which the lake's schema versions began, ascending. One that has expired gets the next version known.

    >>> versions_of_tables([(1, 1), (1, 4), (2, 4), (2, 7)], [(1, 1), (4, 2), (9, 4)])
    [(1, 1, 1), (4, 2, 1), (4, 2, 2), (7, 4, 2)]
    """
    known = [snapshot for snapshot, _ in versions]
    rows = {
        (snapshot, versions[min(bisect_left(known, snapshot), len(known) - 1)][1], table)
        for table, snapshot in changed
    }
    return sorted(rows)


def snapshot_counts(text: str, record_count: int, file: str) -> tuple[tuple[int, int], ...]:
    """Return what older catalogs say of a merged file: snapshots, each with the number of rows up to it.

    >>> snapshot_counts("3:2|4:3", 3, "a.parquet")
    ((3, 2), (4, 3))

    Raises:
        CatalogError: it says nothing, or of another number of rows than the file has.
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
            "does not give the snapshot of each row. Nothing was changed."
        )
    return pairs


def column_ids_of_ordinals(
    keys: Iterable[tuple[int, int]], columns: Mapping[int, Sequence[int]]
) -> list[int]:
    """Return the columns that partition keys of 0.1 mean: (partition, place of the column, from 0).

    ``columns`` are the ids of the top-level columns that a table had when a partitioning of it began, by the
    partitioning.

    Raises:
        CatalogError: no such column.
    """
    found = []
    for partition, place in keys:
        ids = columns.get(partition, ())
        if not 0 <= place < len(ids):
            raise CatalogError(
                f"Partitioning {partition} names column {place} of a table that had {len(ids)} columns. "
                "Nothing was changed."
            )
        found.append(ids[place])
    return found
