"""Check that the statistics of tables cover those of their files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, or_, select

from airflow_provider_ducklake.lake.catalog.snapshot.read import option_rows
from airflow_provider_ducklake.lake.catalog.snapshot.read_statistics import with_what_lies_in_them
from airflow_provider_ducklake.lake.catalog.verify.files import table_roots
from airflow_provider_ducklake.lake.catalog.verify.look import lacking
from airflow_provider_ducklake.lake.planning.reading.pruning import (
    TextBounds,
    are_crossed,
    are_readable,
    covers,
    has_bounds,
)
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.options import SKIP_STATS_COLUMNS, Options
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Row

    from airflow_provider_ducklake.lake.catalog.verify.definitions import Columns
    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType


def check_statistics(look: Look, known: Known) -> Iterator[Finding]:
    """Yield statistics that are missing, cannot be read, or are narrower than those of a file."""
    yield from chain(
        _missing(look), _exact_without_bound(look), _of_tables(look, known), _of_files(look, known)
    )


@dataclass(frozen=True, slots=True)
class TableBounds:
    """What ``ducklake_table_column_stats`` says of a column.

    ``is_skipped``: it has no bounds because an option of the table says so.
    """

    bounds: TextBounds
    contains_null: bool | None
    contains_nan: bool | None
    is_skipped: bool = False


@dataclass(frozen=True, slots=True)
class RowStats:
    """What is known of some rows' values in a column; counts None are unknown."""

    value_count: int | None
    null_count: int | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None


class Known:
    """The statistics of the tables' columns, and the types that these have had."""

    def __init__(self, look: Look, columns: Columns) -> None:
        stats = look.tables["table_column_stats"]
        skipped = _skipped(look)
        self._columns, self._head = columns, look.head.id
        self._live: dict[int, Mapping[ColumnId, DuckLakeType]] = {}
        self._types: dict[int, dict[ColumnId, tuple[DuckLakeType, ...]]] = {}
        self.stats = {
            (row.table_id, row.column_id): TableBounds(
                TextBounds(row.min_value, row.max_value),
                row.contains_null,
                row.contains_nan,
                (row.table_id, row.column_id) in skipped and row.min_value is None and row.max_value is None,
            )
            for row in look.connection.execute(select(stats).where(look.chosen(stats.c.table_id)))
        }

    def types(self, table_id: int, column_id: int) -> tuple[DuckLakeType, ...]:
        """Return the types that a column has had, none where it is no column of the table with bounds."""
        if table_id not in self._types:
            types = self._columns.types(table_id)
            self._types[table_id] = {
                column: tuple(one for one in had if has_bounds(one)) for column, had in types.items()
            }
        return self._types[table_id].get(ColumnId(column_id), ())

    def of_table(self, table_id: int, column_id: int) -> TableBounds | None:
        """Return what is said of a column that the table has now, as far as it is to be believed."""
        if table_id not in self._live:
            schema = self._columns.at(table_id, self._head)
            self._live[table_id] = schema.leaf_types() if schema is not None else {}
        type_ = self._live[table_id].get(ColumnId(column_id))
        stats = self.stats.get((table_id, column_id)) if type_ is not None else None
        if type_ is None or stats is None or type_.facts.counts_nulls:
            return stats
        return replace(stats, contains_null=None)


def _skipped(look: Look) -> frozenset[tuple[int, int]]:
    """Return the columns (table, column) that statistics leave out, with the fields below them."""
    rows = (row for row in option_rows(look.connection, look.tables) if row.key == SKIP_STATS_COLUMNS)
    named = {
        TableId(row.scope_id): Options({row.key: row.value or ""}).skipped_columns
        for row in rows
        if row.scope == "table" and row.scope_id is not None
    }
    found = with_what_lies_in_them(look.connection, look.tables, named)
    return frozenset((table_id, column) for table_id, columns in found.items() for column in columns)


def _missing(look: Look) -> Iterator[Finding]:
    table, file, stats = (look.tables[one] for one in ("table", "data_file", "table_stats"))
    with_files = select(file.c.table_id).where(file.c.end_snapshot.is_(None))
    joined, has_none = lacking(table, stats.c.table_id, stats.c.table_id == table.c.table_id)
    query = (
        select(table.c.table_id)
        .select_from(joined)
        .where(
            table.c.end_snapshot.is_(None),
            look.chosen(table.c.table_id),
            table.c.table_id.in_(with_files),
            has_none,
        )
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.TABLE_STATS_MISSING,
            f"{look.table(row.table_id)} has files but no row in ducklake_table_stats: DuckDB's next insert "
            "makes one of its own rows only.",
            {"table_id": row.table_id},
        )


def _exact_without_bound(look: Look) -> Iterator[Finding]:
    """Yield the statistics that call a bound exact, or not, which is not there."""
    for name, of in (("file_column_stats", ("data_file_id",)), ("table_column_stats", ())):
        stats = look.tables[name]
        if "min_is_exact" not in stats.c:
            return
        ids = [stats.c[one] for one in (*of, "table_id", "column_id")]
        odd = (
            stats.c[f"{end}_value"].is_(None) & stats.c[f"{end}_is_exact"].is_not(None)
            for end in ("min", "max")
        )
        for row in look.few(select(*ids).where(or_(*odd), look.chosen(stats.c.table_id))):
            file = f" in data file {row.data_file_id}" if of else ""
            yield Finding(
                FindingCode.EXACT_WITHOUT_BOUND,
                f"ducklake_{name} of column {row.column_id} of {look.table(row.table_id)}{file} says "
                "whether a bound is exact that is not there.",
                {one.name: getattr(row, one.name) for one in ids},
            )


def _of_tables(look: Look, known: Known) -> Iterator[Finding]:
    for (table_id, column_id), stats in known.stats.items():
        of = f"ducklake_table_column_stats of column {column_id} of {look.table(table_id)}"
        objects = {"table_id": table_id, "column_id": column_id}
        yield from _texts(of, stats.bounds, known.types(table_id, column_id), objects)


def _are_in_order(bounds: TextBounds, types: tuple[DuckLakeType, ...]) -> bool:
    return are_readable(bounds, types) and not are_crossed(bounds, types)


def _texts(
    of: str, bounds: TextBounds, types: tuple[DuckLakeType, ...], objects: dict[str, int | str | None]
) -> Iterator[Finding]:
    if not types:
        return
    shown = f"{of} says {bounds.low!r} to {bounds.high!r}"
    if not are_readable(bounds, types):
        yield Finding(FindingCode.BOUND_UNREADABLE, f"{shown}, which is not a valid {types[-1]}.", objects)
    elif are_crossed(bounds, types):
        yield Finding(
            FindingCode.BOUNDS_CROSSED, f"{shown}: the lower bound is above the upper bound.", objects
        )


def _of_files(look: Look, known: Known) -> Iterator[Finding]:
    """Yield the columns whose table's bounds lie within those of a live file; each once."""
    file, stats = look.tables["data_file"], look.tables["file_column_stats"]
    query = (
        select(
            stats.c.data_file_id,
            stats.c.table_id,
            stats.c.column_id,
            stats.c.value_count,
            stats.c.null_count,
            stats.c.min_value,
            stats.c.max_value,
            stats.c.contains_nan,
            file.c.end_snapshot,
        )
        .join(file, and_(file.c.data_file_id == stats.c.data_file_id, file.c.table_id == stats.c.table_id))
        .where(look.chosen(stats.c.table_id))
    )
    said: set[tuple[int, int]] = set()
    for row in look.all(query):
        types = known.types(row.table_id, row.column_id)
        bounds = TextBounds(row.min_value, row.max_value)
        if types and not _are_in_order(bounds, types):
            objects = {"table_id": row.table_id, "column_id": row.column_id, "data_file_id": row.data_file_id}
            of = f"ducklake_file_column_stats of column {row.column_id} of data file {row.data_file_id}"
            yield from _texts(of, bounds, types, objects)
        key = (row.table_id, row.column_id)
        told = known.of_table(*key) if row.end_snapshot is None and key not in said else None
        if told is not None and (problem := uncovered(row, told, types)) is not None:
            said.add(key)
            yield narrow(look, *key, f"data file {row.data_file_id} {problem}")


def narrow(look: Look, table_id: int, column_id: int, problem: str) -> Finding:
    """Return the finding that a table's statistics of a column do not cover its rows."""
    return Finding(
        FindingCode.TABLE_STATS_NARROW,
        f"The statistics of column {column_id} of {look.table(table_id)} leave rows out: {problem}.",
        {"table_id": table_id, "column_id": column_id},
    )


def uncovered(row: RowStats | Row[Any], known: TableBounds, types: tuple[DuckLakeType, ...]) -> str | None:
    """Return what the table's statistics of a column do not cover of some rows, whose are in ``row``."""
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
