"""Expire snapshots: forget them, and all that no kept snapshot can reach.

Files are scheduled for deletion, never deleted here. *Source:* the reference's ``ducklake_expire_snapshots``
(dossier §9.3); times are compared as times, also on SQLite.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, MetaData, Table, and_, exists, or_, select
from sqlalchemy import Table as SqlTable
from sqlalchemy.schema import DropTable

from airflow_provider_ducklake.catalog import read_snapshots
from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.planning.expiry import ExpiryRule, plan_expiry
from airflow_provider_ducklake.spec.paths import CatalogPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.spec.snapshots import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What an expiry did, or with ``dry_run`` would do: ``bytes`` counts the files scheduled for deletion."""

    snapshots: tuple[Snapshot, ...]
    data_files: int
    delete_files: int
    tables: int
    bytes: int
    dry_run: bool


def expire(catalog: Catalog, rule: ExpiryRule, *, dry_run: bool) -> ExpireResult:
    """Expire what ``rule`` chooses, in one transaction; a dry run does the same and rolls back.

    Raises:
        CommitRetriesExceededError: other writers, or readers of a SQLite file, never let it through.
    """
    result, _ = with_retries(catalog.dialect, DEFAULT_RETRY, lambda: _expire(catalog, rule, dry_run=dry_run))
    return result


def _expire(catalog: Catalog, rule: ExpiryRule, *, dry_run: bool) -> ExpireResult:
    dialect, tables = catalog.dialect, catalog.tables
    with dialect.writing() as connection:
        now = dialect.server_time(connection)
        snapshots = [one.snapshot for one in read_snapshots.recorded_snapshots(connection, tables)]
        expired = plan_expiry(snapshots, rule, now)
        if not expired:
            return ExpireResult((), 0, 0, 0, 0, dry_run)
        _forget_snapshots(connection, tables, expired)
        expiry = _Expiry(connection, tables, now)
        result = expiry.run(expired, dry_run=dry_run)
        if dry_run:
            connection.rollback()
            return result
        if dialect.transactional_ddl:
            expiry.drop_inlined()
        connection.commit()
        if not dialect.transactional_ddl:
            _drop_afterwards(expiry)
    return result


def _drop_afterwards(expiry: _Expiry) -> None:
    """Drop what no row names any more; the expiry is committed, so a failure leaves only that behind."""
    try:
        expiry.drop_inlined()
    except Exception:
        log.warning("Could not drop the expired inlined tables %s", expiry.inlined, exc_info=True)


_CHUNK = 500


def _forget_snapshots(connection: Connection, tables: CatalogTables, expired: Sequence[Snapshot]) -> None:
    for start in range(0, len(expired), _CHUNK):
        ids = [one.id for one in expired[start : start + _CHUNK]]
        for name in ("snapshot", "snapshot_changes"):
            connection.execute(tables[name].delete().where(tables[name].c.snapshot_id.in_(ids)))


# Rows that go with a table once none of its versions can be reached.
_OF_TABLE = (
    "table_stats",
    "table_column_stats",
    "partition_info",
    "partition_column",
    "column",
    "column_tag",
    "sort_info",
    "sort_expression",
    "schema_versions",
)
_OF_DATA_FILE = ("file_column_stats", "file_variant_stats", "file_partition_value")


class _Expiry:
    """One expiry under way, after its snapshots are gone."""

    def __init__(self, connection: Connection, tables: CatalogTables, now: datetime) -> None:
        self.connection = connection
        self.tables = tables
        self.now = now
        self.inlined: list[str] = []  # dynamic tables that nobody can reach

    def run(self, expired: tuple[Snapshot, ...], *, dry_run: bool) -> ExpireResult:
        """Schedule and remove what became unreachable; later steps ask for what earlier ones left."""
        dead_tables = self.dead_tables()
        directories = self.directories()
        data = self.dead_data_files(dead_tables)
        deletes = self.dead_delete_files(dead_tables, data)
        self.schedule([*self.paths(data, directories), *self.paths(deletes, directories)])
        self.remove_files([row.id for row in data], [row.id for row in deletes])
        self.remove_tables(dead_tables)
        self.remove_objects()
        size = sum(row.file_size_bytes or 0 for row in (*data, *deletes))
        return ExpireResult(expired, len(data), len(deletes), len(dead_tables), size, dry_run)

    def reachable(self, table: Table) -> ColumnElement[bool]:
        """Return the condition that some kept snapshot sees the row."""
        ids = self.tables["snapshot"].c.snapshot_id
        end = table.c.end_snapshot
        return or_(end.is_(None), exists().where(ids >= table.c.begin_snapshot, ids < end))

    def dead_tables(self) -> list[int]:
        """Return the ids of tables of which no version can be reached."""
        table = self.tables["table"]
        alive = select(table.c.table_id).where(self.reachable(table))
        query = (
            select(table.c.table_id)
            .distinct()
            .where(table.c.table_id.not_in(alive))
            .order_by(table.c.table_id)
        )
        return list(self.connection.execute(query).scalars())

    def directories(self) -> dict[int, CatalogPath]:
        """Return each table's directory relative to the data path."""
        table, schema = self.tables["table"], self.tables["schema"]
        rows = self.connection.execute(
            select(
                table.c.table_id,
                table.c.path,
                table.c.path_is_relative,
                schema.c.path.label("schema_path"),
                schema.c.path_is_relative.label("schema_is_relative"),
            ).join(schema, schema.c.schema_id == table.c.schema_id)
        )
        return {
            row.table_id: _joined(
                CatalogPath(row.schema_path, row.schema_is_relative),
                CatalogPath(row.path, row.path_is_relative),
            )
            for row in rows
        }

    def dead_data_files(self, dead_tables: list[int]) -> Sequence[Any]:
        """Return (id, table_id, path, path_is_relative, file_size_bytes) of data files nobody can reach."""
        file = self.tables["data_file"]
        return self._dead_files(file, file.c.data_file_id, dead_tables)

    def dead_delete_files(self, dead_tables: list[int], data: Sequence[Any]) -> Sequence[Any]:
        """Return the same of delete files: unreachable themselves, or of a data file that goes."""
        file = self.tables["delete_file"]
        rows = {row.id: row for row in self._dead_files(file, file.c.delete_file_id, dead_tables)}
        for chunk in _chunks([row.id for row in data]):
            query = self._file_columns(file, file.c.delete_file_id).where(file.c.data_file_id.in_(chunk))
            rows |= {row.id: row for row in self.connection.execute(query)}
        return [rows[file_id] for file_id in sorted(rows)]

    def _dead_files(self, file: Table, file_id: ColumnElement[int], dead_tables: list[int]) -> Sequence[Any]:
        unreachable = and_(file.c.end_snapshot.is_not(None), ~self.reachable(file))
        query = self._file_columns(file, file_id).where(or_(unreachable, file.c.table_id.in_(dead_tables)))
        return self.connection.execute(query.order_by(file_id)).all()

    def _file_columns(self, file: Table, file_id: ColumnElement[int]) -> Any:  # noqa: ANN401 - a select
        return select(
            file_id.label("id"), file.c.table_id, file.c.path, file.c.path_is_relative, file.c.file_size_bytes
        )

    def paths(self, files: Sequence[Any], directories: dict[int, CatalogPath]) -> Iterator[dict[str, Any]]:
        """Yield the schedule's rows, whose paths are relative to the data path."""
        for row in files:
            path = _joined(directories[row.table_id], CatalogPath(row.path, row.path_is_relative))
            yield {
                "data_file_id": row.id,
                "path": path.path,
                "path_is_relative": path.is_relative,
                "schedule_start": self.now,
            }

    def schedule(self, rows: list[dict[str, Any]]) -> None:
        """Hand files to the clean-up."""
        if rows:
            self.connection.execute(self.tables["files_scheduled_for_deletion"].insert(), rows)

    def remove_files(self, data: list[int], deletes: list[int]) -> None:
        """Remove the rows of files."""
        for chunk in _chunks(data):
            for name in (*_OF_DATA_FILE, "data_file"):
                table = self.tables[name]
                self.connection.execute(table.delete().where(table.c.data_file_id.in_(chunk)))
        for chunk in _chunks(deletes):
            table = self.tables["delete_file"]
            self.connection.execute(table.delete().where(table.c.delete_file_id.in_(chunk)))

    def remove_tables(self, table_ids: list[int]) -> None:
        """Remove everything that belongs to tables nobody can reach."""
        for chunk in _chunks(table_ids):
            self._forget_inlined(chunk)
            mapping, names = self.tables["column_mapping"], self.tables["name_mapping"]
            mappings = select(mapping.c.mapping_id).where(mapping.c.table_id.in_(chunk))
            self.connection.execute(names.delete().where(names.c.mapping_id.in_(mappings)))
            for name in (*_OF_TABLE, "column_mapping", "inlined_data_tables", "table"):
                table = self.tables[name]
                self.connection.execute(table.delete().where(table.c.table_id.in_(chunk)))

    def _forget_inlined(self, table_ids: list[int]) -> None:
        registry = self.tables["inlined_data_tables"]
        registered = self.connection.execute(
            select(registry.c.table_name).where(registry.c.table_id.in_(table_ids))
        ).scalars()
        self.inlined += [*registered, *(f"ducklake_inlined_delete_{table_id}" for table_id in table_ids)]

    def drop_inlined(self) -> None:
        """Drop the inlined rows of tables nobody can reach."""
        for name in self.inlined:
            dynamic = SqlTable(name, MetaData(schema=self.tables.metadata_schema))
            self.connection.execute(DropTable(dynamic, if_exists=True))

    def remove_objects(self) -> None:
        """Remove the unreachable rows of schemas, views, tags and macros."""
        for name in ("schema", "view", "tag", "macro"):
            table = self.tables[name]
            self.connection.execute(table.delete().where(~self.reachable(table)))
        living = select(self.tables["macro"].c.macro_id)
        for name in ("macro_impl", "macro_parameters"):
            table = self.tables[name]
            self.connection.execute(table.delete().where(table.c.macro_id.not_in(living)))


def _chunks(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _joined(parent: CatalogPath, child: CatalogPath) -> CatalogPath:
    """Return a path below another, still relative to the data path unless one of the steps is absolute."""
    if not child.is_relative:
        return child
    return CatalogPath((parent.path or "") + (child.path or ""), parent.is_relative)
