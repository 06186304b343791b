"""Numbers that show if a lake needs maintenance: files and their sizes, deletes, inlined rows, snapshots."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import column

from ...format.names.identifiers import QualifiedName, TableName
from ..snapshot import read, read_snapshots
from ..snapshot.inlined_tables import inlined_delete_name
from ..snapshot.scan import find_table
from .numbers import inlined_row_counts

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog

_MIB = 2**20
# Names of the bands, and the size that their files are below; the last has none.
SIZE_BANDS: Mapping[str, int | None] = {
    "under_1_mib": _MIB,
    "under_16_mib": 16 * _MIB,
    "under_128_mib": 128 * _MIB,
    "under_512_mib": 512 * _MIB,
    "from_512_mib": None,
}
_AT_ONCE = 200  # tables that one statement asks


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The newest snapshot's numbers of a table, from the catalog alone; sizes are bytes.

    ``record_count`` are the rows of files, deleted ones included. ``deleted_row_count`` are those of them
    that delete files and marks in the catalog leave out, ``delete_ratio`` their share. ``files_by_size`` has
    each file in the first band of ``SIZE_BANDS`` that it fits in.
    """

    name: str
    file_count: int
    file_size_bytes: int
    files_by_size: Mapping[str, int]
    record_count: int
    delete_file_count: int
    delete_file_size_bytes: int
    deleted_row_count: int
    delete_ratio: float
    inlined_row_count: int
    inlined_delete_count: int


@dataclass(frozen=True, slots=True)
class LakeHealth:
    """The numbers of tables, sorted by name, and those of the whole lake."""

    snapshot_id: int
    snapshot_count: int
    oldest_snapshot_time: datetime
    scheduled_file_count: int
    tables: tuple[TableHealth, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, times as ISO texts."""
        plain = asdict(self)
        time = self.oldest_snapshot_time.isoformat()
        return {**plain, "oldest_snapshot_time": time, "tables": list(plain["tables"])}


def health(connection: sa.Connection, catalog: Catalog, names: Collection[TableName] | None) -> LakeHealth:
    """Return the numbers of the tables of those names, or of all, at the newest snapshot."""
    tables, head = catalog.tables, read_snapshots.head(connection, catalog.tables)
    if names is None:
        rows = read.table_rows(connection, tables, head.id)
    else:
        named = (find_table(connection, tables, head, QualifiedName.of(one)) for one in names)
        rows = sorted({row.id: row for row in named}.values(), key=lambda row: row.qualified)
    ids = {int(row.id) for row in rows}
    only = ids if names is not None and len(ids) <= _AT_ONCE else None
    data, deletes = _data_files(connection, catalog, only), _delete_files(connection, catalog, only)
    marks = _inlined_deletes(connection, catalog, ids)
    inlined = inlined_row_counts(connection, catalog, ids, head.id)
    snapshot, scheduled = tables["snapshot"], tables["files_scheduled_for_deletion"]
    count, oldest = connection.execute(sa.select(sa.func.count(), sa.func.min(snapshot.c.snapshot_id))).one()
    return LakeHealth(
        head.id,
        count,
        read_snapshots.snapshot_at(connection, catalog, oldest).time,
        connection.execute(sa.select(sa.func.count()).select_from(scheduled)).scalar_one(),
        tuple(
            _table_health(
                str(row.qualified),
                data.get(row.id, {}),
                deletes.get(row.id, {}),
                inlined_row_count=inlined.get(row.id, 0),
                inlined_delete_count=marks.get(row.id, 0),
            )
            for row in rows
        ),
    )


def _table_health(
    name: str,
    data: Mapping[str, int],
    deletes: Mapping[str, int],
    *,
    inlined_row_count: int,
    inlined_delete_count: int,
) -> TableHealth:
    rows = data.get("rows", 0)
    deleted = deletes.get("rows", 0) + inlined_delete_count
    return TableHealth(
        name=name,
        file_count=data.get("files", 0),
        file_size_bytes=data.get("bytes", 0),
        files_by_size={band: data.get(band, 0) for band in SIZE_BANDS},
        record_count=rows,
        delete_file_count=deletes.get("files", 0),
        delete_file_size_bytes=deletes.get("bytes", 0),
        deleted_row_count=deleted,
        delete_ratio=deleted / rows if rows else 0.0,
        inlined_row_count=inlined_row_count,
        inlined_delete_count=inlined_delete_count,
    )


def _data_files(
    connection: sa.Connection, catalog: Catalog, only: Collection[int] | None
) -> dict[int, dict[str, int]]:
    """Return the numbers of live data files of each of the tables (None: of all) that has any."""
    file = catalog.tables["data_file"]
    size, limits = file.c.file_size_bytes, list(SIZE_BANDS.values())
    bands = []
    for band, least, limit in zip(SIZE_BANDS, [0, *limits], limits, strict=False):
        fits = size >= least if limit is None else sa.and_(size >= least, size < limit)
        bands.append(sa.func.sum(sa.case((fits, 1), else_=0)).label(band))
    query = (
        sa.select(
            file.c.table_id,
            sa.func.count().label("files"),
            _sum(size).label("bytes"),
            _sum(file.c.record_count).label("rows"),
            *bands,
        )
        .where(file.c.end_snapshot.is_(None), _is_of(file, only))
        .group_by(file.c.table_id)
    )
    return {row["table_id"]: _numbers(row) for row in connection.execute(query).mappings()}


def _sum(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return the sum as a number of the column's own type: of an expression, databases give others."""
    return sa.func.sum(column, type_=column.type)


def _is_of(file: sa.Table, only: Collection[int] | None) -> sa.ColumnElement[bool]:
    return sa.true() if only is None else file.c.table_id.in_(only)


def _delete_files(
    connection: sa.Connection, catalog: Catalog, only: Collection[int] | None
) -> dict[int, dict[str, int]]:
    """Count the live delete files of live data files, by table."""
    file, delete = catalog.tables["data_file"], catalog.tables["delete_file"]
    query = (
        sa.select(
            delete.c.table_id,
            sa.func.count().label("files"),
            _sum(delete.c.file_size_bytes).label("bytes"),
            _sum(delete.c.delete_count).label("rows"),
        )
        .join(file, file.c.data_file_id == delete.c.data_file_id)
        .where(delete.c.end_snapshot.is_(None), file.c.end_snapshot.is_(None), _is_of(delete, only))
        .group_by(delete.c.table_id)
    )
    return {row["table_id"]: _numbers(row) for row in connection.execute(query).mappings()}


def _numbers(row: sa.RowMapping) -> dict[str, int]:
    return {str(name): int(value or 0) for name, value in row.items()}


def _inlined_deletes(
    connection: sa.Connection, catalog: Catalog, table_ids: Collection[int]
) -> dict[int, int]:
    """Return the number of marks on live data files of each of the tables that has any."""
    schema, file = catalog.tables.metadata_schema, catalog.tables["data_file"]
    existing = catalog.dialect.table_names(connection, schema)
    queries = []
    for table_id in sorted(table_ids):
        name = inlined_delete_name(table_id)
        if name in existing:
            marks = sa.table(name, column("file_id"), schema=schema)
            query = sa.select(sa.literal(table_id).label("table_id"), sa.func.count().label("marks"))
            joined = marks.join(file, file.c.data_file_id == marks.c.file_id)
            queries.append(query.select_from(joined).where(file.c.end_snapshot.is_(None)))
    return {
        row.table_id: row.marks
        for start in range(0, len(queries), _AT_ONCE)
        for row in connection.execute(sa.union_all(*queries[start : start + _AT_ONCE]))
    }
