"""Note the partitions of a table by which DuckDB misses rows, or of which its compaction fails.

*Source:* the reference's pruning of buckets, and its compactor (docs/compatibility.md).
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select

from airflow_provider_ducklake.lake.catalog.verify.paths import table_roots
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.verify.look import Look

_Partition = tuple[int, int, tuple[str | None, ...]]


def note_partitions(look: Look) -> Iterator[Finding]:
    """Yield the bucket keys that live files have no value of, and the partitions in several folders."""
    yield from _bucketless(look)
    yield from _scattered(look)


def _bucketless(look: Look) -> Iterator[Finding]:
    """Yield the bucket keys of which files lack the value: for DuckDB what another key left in its place."""
    file, info, key = (look.tables[one] for one in ("data_file", "partition_info", "partition_column"))
    own = key.alias()
    is_same = and_(
        own.c.partition_id == file.c.partition_id,
        own.c.partition_key_index == key.c.partition_key_index,
        own.c.column_id == key.c.column_id,
        own.c.transform == key.c.transform,
    )
    query = (
        select(file.c.table_id, key.c.column_id, key.c.transform, func.count().label("number"))
        .join(info, info.c.table_id == file.c.table_id)
        .join(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id))
        .outerjoin(own, is_same)
        .where(
            look.chosen(file.c.table_id),
            file.c.end_snapshot.is_(None),
            info.c.end_snapshot.is_(None),
            key.c.transform.startswith("bucket("),
            own.c.partition_id.is_(None),
        )
        .group_by(file.c.table_id, key.c.column_id, key.c.transform)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.BUCKET_VALUES_MISSING,
            f"{row.number} live data files of {look.table(row.table_id)} have no value of its partition key "
            f"{row.transform} of column {row.column_id}: DuckDB misses their rows where a condition says "
            "which value the column has.",
            {"table_id": row.table_id, "column_id": row.column_id, "files": row.number},
        )


def _scattered(look: Look) -> Iterator[Finding]:
    """Yield the partitions whose files do not all have the folders of the first of them in their paths."""
    places: dict[_Partition, list[str]] = {}
    for partition, path in _placed(look):
        places.setdefault(partition, []).append(path)
    for (table_id, partition_id, values), paths in places.items():
        folder = paths[0].rpartition("/")[0]
        other = next((one for one in paths if folder not in one), None)
        if other is not None:
            yield Finding(
                FindingCode.PARTITION_FOLDERS_DIFFER,
                f"Files of one partition of {look.table(table_id)} lie in {folder} and elsewhere, as {other}"
                ": DuckDB's merge, rewrite and CHECKPOINT fail.",
                {"table_id": table_id, "partition_id": partition_id, "values": repr(values)},
            )


def _placed(look: Look) -> Iterator[tuple[_Partition, str]]:
    """Yield the partition of each live file, and its path as DuckDB's compactor has it, by file id."""
    file, value = look.tables["data_file"], look.tables["file_partition_value"]
    roots = table_roots(look).subquery()
    query = (
        select(
            file.c.data_file_id,
            file.c.table_id,
            file.c.partition_id,
            value.c.partition_value,
            file.c.path,
            file.c.path_is_relative,
            roots.c.root,
        )
        .join(value, value.c.data_file_id == file.c.data_file_id)
        .join(roots, roots.c.table_id == file.c.table_id)
        .where(look.chosen(file.c.table_id), file.c.end_snapshot.is_(None), file.c.partition_id.is_not(None))
        .order_by(file.c.data_file_id, value.c.partition_key_index)
    )
    for _, keys in groupby(look.all(query), attrgetter("data_file_id")):
        rows = list(keys)
        file_, values = rows[0], tuple(one.partition_value for one in rows)
        path = file_.path if file_.path_is_relative else file_.path.replace(file_.root, "")
        yield (file_.table_id, file_.partition_id, values), path
