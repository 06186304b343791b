"""Data files and delete files of a table: at a snapshot, or live now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa
from sqlalchemy import Column as SqlColumn

from ...errors import CatalogError, UntrustedValueError
from ...format.files import ColumnStats, FileKey, LiveDataFile, LiveDeleteFile, NameMapping, same_mapping_key
from ...format.names.paths import MAX_LENGTH, CatalogPath
from ...format.snapshots import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    MappingId,
    SnapshotId,
    TableId,
    TableSnapshot,
)
from ...transaction.declared import LiveTarget, MappingKey
from ..database.connect import Question, in_parts, streamed
from ..database.tables import CatalogTables, maybe
from .inlined_tables import inlined_delete_table
from .read import select_all, visible
from .read_snapshots import check_version
from .read_statistics import mappings_query, name_mappings

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog


_FEW_FILES = 1000


def data_files(
    connection: sa.Connection,
    catalog: Catalog,
    table: TableSnapshot,
    *,
    only: sa.ColumnElement[bool] | None = None,
    stats_of: Collection[ColumnId] | None = None,
) -> tuple[LiveDataFile, ...]:
    """Return a table's data files at its snapshot: see ``WantedFiles``."""
    return WantedFiles.of(catalog, table, only, stats_of).ask(connection, catalog)


@dataclass(frozen=True, slots=True)
class WantedFiles:
    """Data files of a table at its snapshot, with delete files, statistics and partition values.

    ``only``: those rows of ``ducklake_data_file`` for which this holds. ``stats_of``: with the statistics of
    those columns alone; None: of all. First the rows of the files are asked for, then what belongs to them.
    """

    tables: CatalogTables
    at: SnapshotId
    table_id: TableId
    root: str
    only: sa.ColumnElement[bool] | None = None
    stats_of: Collection[ColumnId] | None = None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        table: TableSnapshot,
        only: sa.ColumnElement[bool] | None,
        stats_of: Collection[ColumnId] | None,
    ) -> Self:
        """Return those of a table's snapshot."""
        return cls(catalog.tables, table.snapshot.id, table.table_id, table.root, only, stats_of)

    def ask(self, connection: sa.Connection, catalog: Catalog) -> tuple[LiveDataFile, ...]:
        """Return the files."""
        rows = self.rows_query().ask(connection)
        return self.files(rows, catalog.dialect.ask(connection, self.parts_query(rows)))

    def rows_query(self) -> Question[Sequence[sa.Row[Any]]]:
        """Return the query for the rows of the files."""
        file = self.tables["data_file"]
        query = sa.select(file).where(self._are_visible(file))
        query = query.where(sa.true() if self.only is None else self.only)
        return Question(query.order_by(file.c.data_file_id), lambda rows: rows)

    def _are_visible(self, file: sa.FromClause) -> sa.ColumnElement[bool]:
        return sa.and_(visible(file, self.at), file.c.table_id == self.table_id)

    def parts_query(self, rows: Sequence[sa.Row[Any]]) -> dict[str, Question[Any]]:
        """Return the query for what belongs to the files of those rows."""
        if not rows:
            return {}
        ids: Any = [row.data_file_id for row in rows]
        if self.only is None or len(rows) > _FEW_FILES:
            file = self.tables["data_file"]
            ids = sa.select(file.c.data_file_id).where(self._are_visible(file))
        asked: dict[str, Question[Any]] = {"deletes": self._delete_files_query(ids)}
        if any(row.partition_id is not None for row in rows):
            asked["values"] = partition_values_query(self.tables, self.table_id, ids)
        if self.stats_of is None or self.stats_of:
            asked["stats"] = file_stats_query(self.tables, self.table_id, ids, self.stats_of)
        if any(row.mapping_id is not None for row in rows):
            asked["mappings"] = mappings_query(self.tables, self.table_id)
        return asked

    def _delete_files_query(
        self,
        ids: Any,  # noqa: ANN401 - numbers, or a subquery
    ) -> Question[dict[int, list[LiveDeleteFile]]]:
        delete = self.tables["delete_file"]

        def read(rows: Sequence[sa.Row[Any]]) -> dict[int, list[LiveDeleteFile]]:
            found: dict[int, list[LiveDeleteFile]] = {}
            for row in rows:
                found.setdefault(row.data_file_id, []).append(live_delete_file(row, self.root))
            return found

        query = sa.select(delete).where(visible(delete, self.at), delete.c.table_id == self.table_id)
        return Question(query.where(delete.c.data_file_id.in_(ids)).order_by(delete.c.delete_file_id), read)

    def files(self, rows: Sequence[sa.Row[Any]], parts: Mapping[str, Any]) -> tuple[LiveDataFile, ...]:
        """Return the files."""
        deletes, stats, values = (parts.get(name, {}) for name in ("deletes", "stats", "values"))
        return tuple(
            live_data_file(
                row,
                self.root,
                parts.get("mappings", {}),
                delete_file=deletes[row.data_file_id][-1] if row.data_file_id in deletes else None,
                older_delete_files=tuple(deletes.get(row.data_file_id, ())[:-1]),
                column_stats=stats.get(row.data_file_id, {}),
                partition_values=tuple(values.get(row.data_file_id, ())),
            )
            for row in rows
        )


def live_data_file(
    row: sa.Row[Any],
    root: str,
    mappings: Mapping[MappingId, NameMapping],
    **of_other_tables: Any,  # noqa: ANN401 - fields of ``LiveDataFile``
) -> LiveDataFile:
    """Return a row of ``ducklake_data_file`` with what other tables say of it."""
    return LiveDataFile(
        id=DataFileId(row.data_file_id),
        path=CatalogPath(row.path, row.path_is_relative).below(root, f"Data file {row.data_file_id}"),
        record_count=row.record_count,
        file_size_bytes=row.file_size_bytes,
        footer_size=row.footer_size,
        row_id_start=row.row_id_start,
        begin_snapshot=SnapshotId(row.begin_snapshot),
        partition_id=row.partition_id,
        mapping_id=row.mapping_id,
        mapping=mappings.get(row.mapping_id),
        partial_max=row.partial_max,
        encryption_key=file_key(row.encryption_key),
        **of_other_tables,
    )


def file_key(text: str | None) -> FileKey | None:
    """Return the key that the catalog has for a file, whatever it says."""
    return None if text is None else FileKey(text)


def key_length(connection: sa.Connection, tables: CatalogTables) -> int | None:
    """Return the length of the key of the newest encrypted data file; None: there is no such file."""
    file = tables["data_file"]
    query = sa.select(file.c.encryption_key).where(file.c.encryption_key.is_not(None))
    text = connection.execute(query.order_by(file.c.data_file_id.desc()).limit(1)).scalar_one_or_none()
    with suppress(ValueError):
        return None if text is None else len(FileKey(text).raw)
    return None


def live_delete_file(row: sa.Row[Any], root: str) -> LiveDeleteFile:
    """Return a row of ``ducklake_delete_file``."""
    return LiveDeleteFile(
        DeleteFileId(row.delete_file_id),
        CatalogPath(row.path, row.path_is_relative).below(root, f"Delete file {row.delete_file_id}"),
        row.format,
        row.delete_count,
        row.file_size_bytes,
        SnapshotId(row.begin_snapshot),
        getattr(row, "partial_max", None),
        row.footer_size,
        file_key(row.encryption_key),
    )


def file_stats_query(
    tables: CatalogTables,
    table_id: int,
    ids: Any,  # noqa: ANN401 - numbers, or a subquery
    columns: Collection[ColumnId] | None,
) -> Question[dict[int, dict[ColumnId, ColumnStats]]]:
    """Return the query for the statistics of data files of a table, of those columns or of all (None)."""
    stats = tables["file_column_stats"]
    query = select_all(stats, "min_is_exact", "max_is_exact").where(
        stats.c.table_id == table_id, stats.c.data_file_id.in_(ids)
    )
    return Question(query if columns is None else query.where(stats.c.column_id.in_(columns)), _stats)


def _stats(rows: Sequence[sa.Row[Any]]) -> dict[int, dict[ColumnId, ColumnStats]]:
    found: dict[int, dict[ColumnId, ColumnStats]] = {}
    for row in rows:
        found.setdefault(row.data_file_id, {})[ColumnId(row.column_id)] = ColumnStats(
            ColumnId(row.column_id),
            row.value_count,
            row.null_count,
            row.min_value,
            row.max_value,
            row.contains_nan,
            row.column_size_bytes,
            extra_stats=row.extra_stats,
            min_is_exact=row.min_is_exact,
            max_is_exact=row.max_is_exact,
        )
    return found


def partition_values_query(
    tables: CatalogTables,
    table_id: int,
    ids: Any,  # noqa: ANN401 - numbers, or a subquery
) -> Question[dict[int, list[str | None]]]:
    """Return the query for the partition values of data files of a table, in the order of the keys."""
    value = tables["file_partition_value"]
    query = sa.select(value).where(value.c.table_id == table_id, value.c.data_file_id.in_(ids))
    return Question(query.order_by(value.c.data_file_id, value.c.partition_key_index), _partition_values)


def _partition_values(rows: Sequence[sa.Row[Any]]) -> dict[int, list[str | None]]:
    found: dict[int, list[str | None]] = {}
    for row in rows:
        found.setdefault(row.data_file_id, []).append(row.partition_value)
    return found


def live_targets(
    connection: sa.Connection, tables: CatalogTables, file_ids: Collection[int], table_id: int
) -> dict[DataFileId, DeleteFileId | None]:
    """Return those of a table's data files that are live, with their live delete files."""
    asked = live_targets_query(tables, file_ids, tables["data_file"].c.table_id == table_id)
    return {file_id: found.delete_file_id for one in asked for file_id, found in one.ask(connection).items()}


def live_targets_query(
    tables: CatalogTables, file_ids: Collection[int], condition: sa.ColumnElement[bool] | None = None
) -> Iterator[Question[dict[DataFileId, LiveTarget]]]:
    """Yield queries for those of the data files that are live, with their live delete files."""
    if not file_ids:  # most commits: the condition below takes longer than all else here
        return
    file, deletes = tables["data_file"], tables["delete_file"]
    of_file = sa.and_(deletes.c.data_file_id == file.c.data_file_id, deletes.c.end_snapshot.is_(None))
    for ids in in_parts(file_ids):
        query = (
            sa.select(
                file.c.data_file_id,
                maybe(deletes.c.delete_file_id).label("delete_file_id"),
                _rows_left(file, deletes).label("row_count"),
            )
            .outerjoin(deletes, of_file)
            .where(file.c.end_snapshot.is_(None), file.c.data_file_id.in_(ids))
            .where(sa.true() if condition is None else condition)
        )
        yield Question(query, _live_targets)


def _live_targets(rows: Sequence[sa.Row[Any]]) -> dict[DataFileId, LiveTarget]:
    return {
        DataFileId(row.data_file_id): LiveTarget(
            None if row.delete_file_id is None else DeleteFileId(row.delete_file_id), int(row.row_count)
        )
        for row in rows
    }


def _rows_left(file: sa.Table, deletes: sa.Table) -> sa.ColumnElement[int]:
    return file.c.record_count - sa.func.coalesce(deletes.c.delete_count, 0)


def live_file_paths(
    connection: sa.Connection, tables: CatalogTables, table_id: int, file_ids: Collection[int]
) -> dict[DataFileId, str]:
    """Return the paths of those of the data files that are live, as the schedule of deletions has them."""
    file = tables["data_file"]
    asked = _places_query(tables, table_id, file.c.data_file_id, file_ids, file.c.end_snapshot.is_(None))
    return {
        DataFileId(one): path
        for question in asked
        for one, path in question.ask(connection).scheduled().items()
    }


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """Rows of files of a table, each with the directories of the table and of its schema."""

    table_id: int
    rows: Sequence[sa.Row[Any]]

    def scheduled(self) -> dict[int, str]:
        """Return the paths as the schedule of deletions has them: below the data path."""
        directories = {
            (row.of_table, row.of_table_is_relative, row.of_schema, row.of_schema_is_relative)
            for row in self.rows
        }
        if not directories:
            return {}
        if len(directories) > 1:
            raise CatalogError(
                f"Table {self.table_id} or its schema has several live rows in the catalog, with different "
                "paths. End all but one of each; lake.verify() names them."
            )
        ((path, is_relative, path_above, is_relative_above),) = directories
        above = CatalogPath(path_above, is_relative_above).spelled_below("")
        root = CatalogPath(path, is_relative).spelled_below(above)
        return {row.id: CatalogPath(row.path, row.path_is_relative).spelled_below(root) for row in self.rows}


def delete_file_places_query(
    tables: CatalogTables, table_id: int, delete_file_ids: Collection[int]
) -> Iterator[Question[FilePlaces]]:
    """Ask where delete files of a table lie, some in each question."""
    return _places_query(tables, table_id, tables["delete_file"].c.delete_file_id, delete_file_ids)


def _places_query(
    tables: CatalogTables,
    table_id: int,
    id_column: SqlColumn[int],
    ids: Collection[int],
    condition: sa.ColumnElement[bool] | None = None,
) -> Iterator[Question[FilePlaces]]:
    table, schema, file = tables["table"], tables["schema"], id_column.table
    directories = {"of_table": table.c.path, "of_table_is_relative": table.c.path_is_relative}
    directories |= {"of_schema": schema.c.path, "of_schema_is_relative": schema.c.path_is_relative}
    query = (
        sa.select(id_column.label("id"), file.c.path, file.c.path_is_relative)
        .add_columns(*(column.label(name) for name, column in directories.items()))
        .join_from(file, table, table.c.table_id == table_id)
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .where(table.c.end_snapshot.is_(None), schema.c.end_snapshot.is_(None))
        .where(sa.true() if condition is None else condition)
    )
    for part in in_parts(ids):
        yield Question(query.where(id_column.in_(part)), partial(FilePlaces, table_id))


def rows_of_live_files(
    connection: sa.Connection, tables: CatalogTables, table_ids: Collection[int]
) -> dict[TableId, int]:
    """Count the rows that live data files and their delete files leave to tables that have such a file."""
    if not table_ids:
        return {}
    file, deletes = tables["data_file"], tables["delete_file"]
    of_file = sa.and_(deletes.c.data_file_id == file.c.data_file_id, deletes.c.end_snapshot.is_(None))
    rows = connection.execute(
        sa.select(file.c.table_id, sa.func.sum(_rows_left(file, deletes), type_=file.c.record_count.type))
        .outerjoin(deletes, of_file)
        .where(file.c.table_id.in_(table_ids), file.c.end_snapshot.is_(None))
        .group_by(file.c.table_id)
    )
    return {TableId(table_id): int(count) for table_id, count in rows}


# The full paths of all files that a lake names, however its rows spell them.


def table_directories(
    connection: sa.Connection, catalog: Catalog, table_ids: Collection[int] | None = None
) -> dict[int, set[str]]:
    """Return the directories that each table, or each of those, has had: full paths that end in ``/``."""
    table, schema = catalog.tables["table"], catalog.tables["schema"]
    query = sa.select(
        table.c.table_id, table.c.path, table.c.path_is_relative, schema.c.path, schema.c.path_is_relative
    ).join(schema, schema.c.schema_id == table.c.schema_id)
    if table_ids is not None:
        query = query.where(table.c.table_id.in_(table_ids))
    roots: dict[int, set[str]] = {}
    for table_id, path, is_relative, above, above_is_relative in connection.execute(query.distinct()):
        parent = CatalogPath(above, above_is_relative).spelled_below(catalog.data_path)
        roots.setdefault(table_id, set()).add(CatalogPath(path, is_relative).spelled_below(parent))
    return roots


def named_files(connection: sa.Connection, catalog: Catalog, since: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield the path of each data file and delete file of any snapshot, and whether it is a full one.

    It is none where the table of a file is unknown. ``since``: only those with that file id or a higher one.
    """
    check_version(connection, catalog.tables)
    roots = table_directories(connection, catalog)
    data, deletes = catalog.tables["data_file"], catalog.tables["delete_file"]
    query = sa.union_all(
        *(
            sa.select(one.c.table_id, _as_it_is(one.c.path), one.c.path_is_relative).where(file_id >= since)
            for one, file_id in ((data, data.c.data_file_id), (deletes, deletes.c.delete_file_id))
        )
    )
    for table_id, path, is_relative in streamed(connection, query):
        if not isinstance(path, str):
            raise _not_a_string("data_file or ducklake_delete_file", path)
        if not is_relative:
            yield path, True
        elif table_id not in roots:
            yield path, False
        else:
            yield from ((root + path, True) for root in roots[table_id])


def scheduled_files(connection: sa.Connection, catalog: Catalog) -> Iterator[str]:
    """Yield the full path of each file that waits for its deletion."""
    file = catalog.tables["files_scheduled_for_deletion"]
    query = sa.select(_as_it_is(file.c.path), file.c.path_is_relative)
    for path, is_relative in streamed(connection, query):
        if isinstance(path, bytes):
            raise _not_a_string("files_scheduled_for_deletion", path)
        yield CatalogPath(path, is_relative).spelled_below(catalog.data_path)


def _as_it_is(path: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return a path that is read whatever SQLite keeps there, for an error that says what to do."""
    return sa.type_coerce(path, sa.Text)


def _not_a_string(kind: str, path: object) -> UntrustedValueError:
    problem = "is not a string; correct path in that row"
    return UntrustedValueError(f"A row of ducklake_{kind}", repr(path), problem)


def may_mislead(path: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return a condition true for all paths that ``format.names.paths.misleading`` finds, and few others."""
    encoded = (path.contains(start, autoescape=True) for start in ("%2", "%%"))
    return sa.or_(path.like("%..%"), *encoded, sa.func.length(path) > MAX_LENGTH)


# Data files that a lake has or had, by their full paths, and the name mappings of its tables.


def registered(connection: sa.Connection, catalog: Catalog, paths: Collection[str]) -> frozenset[str]:
    """Return those of the full paths that are data files of the lake, of whatever table and snapshot.

    Files that wait for their deletion are among them: they would be deleted under their new table.
    """
    wanted = set(paths)
    found = _data_files(connection, catalog, wanted) | _scheduled(connection, catalog, wanted)
    return frozenset(wanted & found)


def _data_files(connection: sa.Connection, catalog: Catalog, paths: Collection[str]) -> set[str]:
    file = catalog.tables["data_file"]
    rows = [
        row
        for texts in in_parts(_endings(paths))
        for row in connection.execute(
            sa.select(file.c.table_id, file.c.path, file.c.path_is_relative).where(file.c.path.in_(texts))
        )
    ]
    roots = table_directories(connection, catalog, {row.table_id for row in rows if row.path_is_relative})
    return {
        CatalogPath(row.path, row.path_is_relative).spelled_below(root)
        for row in rows
        for root in (roots.get(row.table_id, ()) if row.path_is_relative else ("",))
    }


def _scheduled(connection: sa.Connection, catalog: Catalog, paths: Collection[str]) -> set[str]:
    file = catalog.tables["files_scheduled_for_deletion"]
    return {
        CatalogPath(row.path, row.path_is_relative).spelled_below(catalog.data_path)
        for texts in in_parts(_endings(paths))
        for row in connection.execute(
            sa.select(file.c.path, file.c.path_is_relative).where(file.c.path.in_(texts))
        )
    }


def _endings(paths: Collection[str]) -> list[str]:
    """Return the paths and what is left of them below each directory: how the catalog may have them."""
    endings = set(paths)
    for path in paths:
        place = path.find("/")
        while place >= 0:
            endings.add(path[place + 1 :])
            place = path.find("/", place + 1)
    return sorted(endings - {""})


def mappings_of(
    connection: sa.Connection, catalog: Catalog, table_id: TableId
) -> dict[MappingKey, MappingId]:
    """Return a table's name mappings; of equal ones the first."""
    found: dict[MappingKey, MappingId] = {}
    for mapping_id, mapping in name_mappings(connection, catalog.tables, table_id).items():
        found.setdefault(same_mapping_key(mapping), mapping_id)
    return found


# Which data files of a table have deleted rows, and which have none and may be merged.


def mark_counts(connection: sa.Connection, catalog: Catalog, table_id: int) -> dict[DataFileId, int]:
    """Count the inlined deletes of each data file of a table."""
    marks = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, marks.name, marks.schema):
        return {}
    query = sa.select(marks.c.file_id, sa.func.count(marks.c.row_id.distinct())).group_by(marks.c.file_id)
    return {DataFileId(file_id): count for file_id, count in connection.execute(query)}


def files_with_deletes(connection: sa.Connection, catalog: Catalog, table_id: int) -> frozenset[DataFileId]:
    """Return the data files of a table that have had deletes, now or at any snapshot."""
    deletes = catalog.tables["delete_file"]
    query = sa.select(deletes.c.data_file_id).where(deletes.c.table_id == table_id).distinct()
    found = set(connection.execute(query).scalars())
    marks = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if catalog.dialect.has_table(connection, marks.name, marks.schema):
        found.update(connection.execute(sa.select(marks.c.file_id).distinct()).scalars())
    return frozenset(DataFileId(one) for one in found)


def mergeable_files(
    connection: sa.Connection, catalog: Catalog, table_id: int, file_ids: Collection[DataFileId]
) -> dict[DataFileId, str]:
    """Return those of the files that are live and never lost a row, with their paths below the data path."""
    touched = files_with_deletes(connection, catalog, table_id)
    paths = live_file_paths(connection, catalog.tables, table_id, file_ids)
    return {file_id: path for file_id, path in paths.items() if file_id not in touched}
