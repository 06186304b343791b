"""Check that tables' statistics cover those of their files; note partitions that DuckDB misreads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, and_, func, or_, select

from ...planning.reading.pruning import TextBounds, are_crossed, are_readable, covers
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from .files import table_roots
from .scope import Check, Fields, Found, Search, TableBounds, VerificationScope, lacking

if TYPE_CHECKING:
    from ...format.files import ColumnStats
    from ...format.types.ducklake_types import DuckLakeType


def _without_statistics(scope: VerificationScope) -> Select[Any]:
    table, file, stats = (scope.tables[one] for one in ("table", "data_file", "table_stats"))
    with_files = select(file.c.table_id).where(file.c.end_snapshot.is_(None))
    is_of_it = stats.c.table_id == table.c.table_id
    return lacking(stats.c.table_id, is_of_it, table.c.table_id).where(
        table.c.end_snapshot.is_(None), scope.chosen(table.c.table_id), table.c.table_id.in_(with_files)
    )


def _exact_without_bound(kind: str, *ids: str) -> Callable[[VerificationScope], Found]:
    """Select the statistics that call a bound exact, or not, which is not there."""

    def query(scope: VerificationScope) -> Found:
        stats = scope.tables[kind]
        if "min_is_exact" not in stats.c:
            return ()
        odd = (
            stats.c[f"{end}_value"].is_(None) & stats.c[f"{end}_is_exact"].is_not(None)
            for end in ("min", "max")
        )
        return select(*(stats.c[one] for one in ids)).where(or_(*odd), scope.chosen(stats.c.table_id))

    return query


def _bounds_of_tables(scope: VerificationScope) -> Iterator[Finding]:
    statistics = scope.statistics
    for (table_id, column_id), stats in statistics.of_columns.items():
        if wrong := _wrong(stats.bounds, statistics.types(table_id, column_id)):
            of = f"ducklake_table_column_stats of column {column_id} of {scope.table(table_id)}"
            code, ending = wrong
            yield Finding(code, f"{of} {ending}", {"table_id": table_id, "column_id": column_id})


def _wrong(bounds: TextBounds, types: tuple[DuckLakeType, ...]) -> tuple[Code, str] | None:
    """Look for bounds that are none of a column with these types: a code, and how its sentence ends."""
    if not types or (are_readable(bounds, types) and not are_crossed(bounds, types)):
        return None
    shown = f"says {bounds.low!r} to {bounds.high!r}"
    if not are_readable(bounds, types):
        return Code.BOUND_UNREADABLE, f"{shown}, which is not a valid {types[-1]}."
    return Code.BOUNDS_CROSSED, f"{shown}: the lower bound is above the upper bound."


def _statistics_of_files(scope: VerificationScope) -> Iterator[Finding]:
    """Yield files' bounds that are wrong, and once each column whose table's bounds leave a live file out."""
    statistics = scope.statistics  # before rows are streamed
    file, stats = scope.tables["data_file"], scope.tables["file_column_stats"]
    ids, counts = ("data_file_id", "table_id", "column_id"), ("value_count", "null_count")
    shown = (stats.c[one] for one in (*ids, *counts, "min_value", "max_value", "contains_nan"))
    query = (
        select(*shown, file.c.end_snapshot)
        .join(file, and_(file.c.data_file_id == stats.c.data_file_id, file.c.table_id == stats.c.table_id))
        .where(scope.chosen(stats.c.table_id))
    )
    reported: set[tuple[int, int]] = set()
    for row in scope.all(query):
        types = statistics.types(row.table_id, row.column_id)
        if wrong := _wrong(TextBounds(row.min_value, row.max_value), types):
            of = f"ducklake_file_column_stats of column {row.column_id} of data file {row.data_file_id}"
            code, ending = wrong
            objects = {"table_id": row.table_id, "column_id": row.column_id, "data_file_id": row.data_file_id}
            yield Finding(code, f"{of} {ending}", objects)
        key = (row.table_id, row.column_id)
        live_bounds = statistics.of_live(*key) if row.end_snapshot is None and key not in reported else None
        if live_bounds is not None and (problem := uncovered(row, live_bounds, types)) is not None:
            reported.add(key)
            yield narrow(scope, *key, f"data file {row.data_file_id} {problem}")


def narrow(scope: VerificationScope, table_id: int, column_id: int, problem: str) -> Finding:
    """Return the finding that a table's statistics of a column do not cover its rows."""
    return Finding(
        Code.TABLE_STATS_NARROW,
        f"The statistics of column {column_id} of {scope.table(table_id)} leave rows out: {problem}.",
        {"table_id": table_id, "column_id": column_id},
    )


def uncovered(row: ColumnStats | Row[Any], known: TableBounds, types: tuple[DuckLakeType, ...]) -> str | None:
    """Explain how the values in some rows, ``row``, exceed the table's statistics; None if they do not."""
    if row.null_count and known.contains_null is False:
        return "has nulls, but the table's statistics say it has none"
    if row.contains_nan and known.contains_nan is False:
        return "has NaN, but the table's statistics say it has none"
    if not types or not row.value_count or known.contains_nan or known.is_skipped:
        return None  # with NaN, DuckDB asks no bounds
    if row.contains_nan and row.min_value is None and known.bounds.high == "nan":
        return None  # nothing but NaN, which the reference takes for a bound of rows in the catalog
    return _unbounded(TextBounds(row.min_value, row.max_value), known.bounds, types)


def _unbounded(inner: TextBounds, outer: TextBounds, types: tuple[DuckLakeType, ...]) -> str | None:
    if inner.low is None or inner.high is None:
        return "has values of unknown bounds"
    if outer.low is None or outer.high is None:
        return f"has {inner.low!r} to {inner.high!r}, but the table's bounds are NULL"
    if covers(outer, inner, types):
        return None
    return f"has {inner.low!r} to {inner.high!r}, but the table's bounds are {outer.low!r} to {outer.high!r}"


# Note the partitions of a table by which DuckDB misses rows, or of which its compaction fails.
#
# *Source:* the reference's pruning of buckets, and its compactor (docs/compatibility.md).


_Partition = tuple[int, int, tuple[str | None, ...]]


def _bucketless(scope: VerificationScope) -> Select[Any]:
    """Select the bucket keys of which files lack the value: for DuckDB what another key left in its place."""
    file, info, key = (scope.tables[one] for one in ("data_file", "partition_info", "partition_column"))
    own = key.alias()
    is_same = and_(
        own.c.partition_id == file.c.partition_id,
        own.c.partition_key_index == key.c.partition_key_index,
        own.c.column_id == key.c.column_id,
        own.c.transform == key.c.transform,
    )
    return (
        select(file.c.table_id, key.c.column_id, key.c.transform, func.count().label("files"))
        .join(info, info.c.table_id == file.c.table_id)
        .join(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id))
        .outerjoin(own, is_same)
        .where(
            scope.chosen(file.c.table_id),
            file.c.end_snapshot.is_(None),
            info.c.end_snapshot.is_(None),
            key.c.transform.startswith("bucket("),
            own.c.partition_id.is_(None),
        )
        .group_by(file.c.table_id, key.c.column_id, key.c.transform)
    )


def _scattered(scope: VerificationScope) -> Iterator[Fields]:
    """Yield the partitions whose files do not all have the folders of the first of them in their paths."""
    places: dict[_Partition, list[str]] = {}
    for partition, path in _placed(scope):
        places.setdefault(partition, []).append(path)
    for (table_id, partition_id, values), paths in places.items():
        folder = paths[0].rpartition("/")[0]
        other = next((one for one in paths if folder not in one), None)
        if other is not None:
            yield {
                "table_id": table_id,
                "partition_id": partition_id,
                "values": repr(values),
                "folder": folder,
                "other": other,
            }


def _placed(scope: VerificationScope) -> Iterator[tuple[_Partition, str]]:
    """Yield the partition of each live file, and its path as DuckDB's compactor has it, by file id."""
    file, value = scope.tables["data_file"], scope.tables["file_partition_value"]
    roots = table_roots(scope).subquery()
    ids = file.c.data_file_id, file.c.table_id, file.c.partition_id
    query = (
        select(*ids, value.c.partition_value, file.c.path, file.c.path_is_relative, roots.c.root)
        .join(value, value.c.data_file_id == file.c.data_file_id)
        .join(roots, roots.c.table_id == file.c.table_id)
        .where(scope.chosen(file.c.table_id), file.c.end_snapshot.is_(None), file.c.partition_id.is_not(None))
        .order_by(file.c.data_file_id, value.c.partition_key_index)
    )
    for _, keys in groupby(scope.all(query), attrgetter("data_file_id")):
        rows = list(keys)
        file_, values = rows[0], tuple(one.partition_value for one in rows)
        path = file_.path if file_.path_is_relative else file_.path.replace(file_.root, "")
        yield (file_.table_id, file_.partition_id, values), path


_OF_TABLE = ("table_id", "column_id")
_OF_FILE = ("data_file_id", *_OF_TABLE)
CHECKS = (
    Check(Code.BUCKET_VALUES_MISSING, _bucketless, ("table_id", "column_id", "files"),
          "{files} live data files of {table} have no value of its partition key {transform} of column "
          "{column_id}: DuckDB misses their rows where a condition says which value the column has."),
    Check(Code.PARTITION_FOLDERS_DIFFER, _scattered, ("table_id", "partition_id", "values"),
          "Files of one partition of {table} lie in {folder} and elsewhere, as {other}: DuckDB's merge, "
          "rewrite and CHECKPOINT fail."),
    Check(Code.TABLE_STATS_MISSING, _without_statistics, ("table_id",),
          "{table} has files but no row in ducklake_table_stats: DuckDB's next insert makes one of its own "
          "rows only."),
    Check(Code.EXACT_WITHOUT_BOUND, _exact_without_bound("file_column_stats", *_OF_FILE), _OF_FILE,
          "ducklake_file_column_stats of column {column_id} of {table} in data file {data_file_id} says "
          "whether a bound is exact that is not there."),
    Check(Code.EXACT_WITHOUT_BOUND, _exact_without_bound("table_column_stats", *_OF_TABLE), _OF_TABLE,
          "ducklake_table_column_stats of column {column_id} of {table} says whether a bound is exact that "
          "is not there."),
    Search(_bounds_of_tables, (Code.BOUND_UNREADABLE, Code.BOUNDS_CROSSED)),
    Search(_statistics_of_files, (Code.BOUND_UNREADABLE, Code.BOUNDS_CROSSED, Code.TABLE_STATS_NARROW)),
)  # fmt: skip
