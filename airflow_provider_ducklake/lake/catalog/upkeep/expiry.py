"""Expire snapshots: remove them, and everything that no kept snapshot needs.

Files are scheduled for deletion, never deleted here. Many snapshots expire in parts, each a transaction, so
that writers need not wait for all; what remains to be done after a failure the next run does. *Source:* the
reference's ``ducklake_expire_snapshots`` (docs/sources.md, maintenance); times are compared as times, also on
SQLite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.schema import DropTable

from ...errors import UntrustedValueError
from ...format.log_lines import logger
from ...planning.upkeep.files import (
    ExpiryPlan,
    ExpiryRule,
    Hole,
    holes,
    is_reachable,
    plan_expiry,
    without_tagged,
)
from ..database.connect import in_parts
from ..database.tables import CatalogBoolean, CatalogTables, CatalogText, CatalogTimestamp
from ..dialects.dialect import DEFAULT_RETRY, Catalog, with_retries
from ..snapshot import read_snapshots
from ..snapshot.inlined_tables import inlined_delete_name, inlined_table_name
from ..snapshot.read_snapshots import tags_by_snapshot

if TYPE_CHECKING:
    from ...format.snapshots import Snapshot

log = logger(__name__)

SNAPSHOTS_AT_ONCE = 10_000
_HOLES_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What an expiry did, or with ``dry_run`` would do: ``bytes`` counts the files scheduled for deletion.

    ``kept_by_tags`` counts the snapshots that would expire if they had no tags.
    """

    snapshots: tuple[Snapshot, ...]
    data_files: int
    delete_files: int
    tables: int
    bytes: int
    dry_run: bool
    kept_by_tags: int = 0


def expire(catalog: Catalog, rule: ExpiryRule, *, dry_run: bool) -> ExpireResult:
    """Expire what ``rule`` chooses; a dry run only reads, without the commit lock."""
    if dry_run:
        return _would_expire(catalog, rule)
    with catalog.dialect.reading() as connection:
        plan = _plan(connection, catalog, rule)
    planned = plan.expired
    total = ExpireResult((), 0, 0, 0, 0, dry_run=False, kept_by_tags=len(plan.kept_by_tags))
    for start in range(0, len(planned), SNAPSHOTS_AT_ONCE):
        part = planned[start : start + SNAPSHOTS_AT_ONCE]
        total = _sum(total, _expire_part(catalog, rule, part))
        if len(planned) > SNAPSHOTS_AT_ONCE:
            log.info("Expired %d of %d snapshots", start + len(part), len(planned))
    return total


def _sum(left: ExpireResult, right: ExpireResult) -> ExpireResult:
    return ExpireResult(
        left.snapshots + right.snapshots,
        left.data_files + right.data_files,
        left.delete_files + right.delete_files,
        left.tables + right.tables,
        left.bytes + right.bytes,
        left.dry_run,
        left.kept_by_tags + right.kept_by_tags,
    )


def _plan(connection: sa.Connection, catalog: Catalog, rule: ExpiryRule) -> ExpiryPlan:
    """Select the snapshots to expire. The plan stays valid, except for tags: later snapshots are newer."""
    now = catalog.dialect.server_time(connection)
    snapshots = read_snapshots.all_snapshots(connection, catalog.tables)
    tags = tags_by_snapshot(connection, catalog)
    texts = read_snapshots.authors_and_messages(connection, catalog.tables) if rule.has_patterns else ()
    pinned = {snapshot_id for snapshot_id, author, message in texts if rule.pins(author, message)}
    return without_tagged(plan_expiry(snapshots, rule, now, pinned), rule, tags)


def _would_expire(catalog: Catalog, rule: ExpiryRule) -> ExpireResult:
    with catalog.dialect.reading() as connection:
        read_snapshots.check_version(connection, catalog.tables)
        plan = _plan(connection, catalog, rule)
        gone = {one.id for one in plan.expired}
        snapshot_id = catalog.tables["snapshot"].c.snapshot_id
        ids = connection.execute(sa.select(snapshot_id).order_by(snapshot_id)).scalars()
        now = catalog.dialect.server_time(connection)
        expiry = _Expiry(connection, catalog.tables, now, [one for one in ids if one not in gone])
        return replace(expiry.estimate(plan.expired), kept_by_tags=len(plan.kept_by_tags))


def _expire_part(catalog: Catalog, rule: ExpiryRule, planned: Sequence[Snapshot]) -> ExpireResult:
    return with_retries(catalog.dialect, DEFAULT_RETRY, lambda: _expire(catalog, rule, planned))[0]


def _expire(catalog: Catalog, rule: ExpiryRule, planned: Sequence[Snapshot]) -> ExpireResult:
    dialect, tables = catalog.dialect, catalog.tables
    with dialect.writing() as connection:
        read_snapshots.check_version(connection, tables)
        snapshot = tables["snapshot"]
        ids = list(
            connection.execute(sa.select(snapshot.c.snapshot_id).order_by(snapshot.c.snapshot_id)).scalars()
        )
        there = set(ids[:-1])
        plan = without_tagged(  # what was tagged since it was planned stays, too
            [one for one in planned if one.id in there], rule, tags_by_snapshot(connection, catalog)
        )
        expired, kept = plan.expired, len(plan.kept_by_tags)
        if not expired:
            return ExpireResult((), 0, 0, 0, 0, dry_run=False, kept_by_tags=kept)
        gone = {one.id for one in expired}
        expiry = _Expiry(
            connection, tables, dialect.server_time(connection), [i for i in ids if i not in gone]
        )
        result = replace(expiry.run(expired), kept_by_tags=kept)
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
Condition = sa.ColumnElement[bool]


class _Expiry:
    """One expiry under way; ``kept`` are the ids of the snapshots that stay, ascending."""

    def __init__(
        self, connection: sa.Connection, tables: CatalogTables, now: datetime, kept: Sequence[int]
    ) -> None:
        self.connection = connection
        self.tables = tables
        self.now = now
        self.kept = kept
        self.bytes = 0
        self.inlined: list[str] = []  # dynamic tables that no snapshot reaches

    def estimate(self, expired: tuple[Snapshot, ...]) -> ExpireResult:
        """Compute the result of ``run``, and change nothing."""
        data, deletes = self.tables["data_file"], self.tables["delete_file"]
        dead_tables = self.dead_tables()
        data_files: dict[int, int] = {}
        delete_files: dict[int, int] = {}
        found = list(holes(self.kept, [one.id for one in expired]))
        for is_dead in [*_unreachable(found), *_reachable_by_tables(dead_tables)]:
            data_files |= self._sizes(data, data.c.data_file_id, is_dead(data))
            delete_files |= self._sizes(deletes, deletes.c.delete_file_id, is_dead(deletes))
        for part in in_parts(list(data_files)):
            delete_files |= self._sizes(deletes, deletes.c.delete_file_id, deletes.c.data_file_id.in_(part))
        total = sum(data_files.values()) + sum(delete_files.values())
        return ExpireResult(
            expired, len(data_files), len(delete_files), len(dead_tables), total, dry_run=True
        )

    def _sizes(self, file: sa.Table, file_id: sa.ColumnElement[int], dies: Condition) -> dict[int, int]:
        size = sa.func.coalesce(file.c.file_size_bytes, 0)
        return {
            int(one): int(found)
            for one, found in self.connection.execute(sa.select(file_id, size).where(dies))
        }

    def run(self, expired: tuple[Snapshot, ...]) -> ExpireResult:
        """Schedule and remove what becomes unreachable; later steps ask for what earlier ones left."""
        ids = [one.id for one in expired]
        self.forget_snapshots(ids)
        found = list(holes(self.kept, ids))
        dead_tables = self.dead_tables()
        data_files = delete_files = 0
        for is_dead in [*_unreachable(found), *_reachable_by_tables(dead_tables)]:
            data, deletes = self.remove_files(is_dead)
            data_files += data
            delete_files += deletes
        self.remove_tables(dead_tables)
        self.remove_objects(found)
        return ExpireResult(expired, data_files, delete_files, len(dead_tables), self.bytes, dry_run=False)

    def forget_snapshots(self, ids: Sequence[int]) -> None:
        """Remove the snapshots."""
        for part in in_parts(ids):
            for name in ("snapshot", "snapshot_changes"):
                self._delete(name, self.tables[name].c.snapshot_id.in_(part))

    def dead_tables(self) -> list[int]:
        """Return the ids of tables without a reachable version."""
        table = self.tables["table"]
        rows = self.connection.execute(
            sa.select(table.c.table_id, table.c.begin_snapshot, table.c.end_snapshot)
        ).all()
        living = {
            row.table_id for row in rows if is_reachable(row.begin_snapshot, row.end_snapshot, self.kept)
        }
        return sorted({row.table_id for row in rows} - living)

    def remove_files(self, is_dead: _Reachability) -> tuple[int, int]:
        """Schedule the dead data files and delete files, and remove their rows; return how many they were."""
        data, deletes = self.tables["data_file"], self.tables["delete_file"]
        dead_data = sa.select(data.c.data_file_id).where(is_dead(data))
        data_files = self._schedule(data, data.c.data_file_id, is_dead(data))
        delete_files = 0
        # In two steps: databases are slow at OR with a subquery.
        for dies in (*((deletes.c.data_file_id.in_(dead_data),) if data_files else ()), is_dead(deletes)):
            found = self._schedule(deletes, deletes.c.delete_file_id, dies)
            if found:
                self._delete("delete_file", dies)
            delete_files += found
        if data_files:
            for name in _OF_DATA_FILE:
                self._delete(name, self.tables[name].c.data_file_id.in_(dead_data))
            self._delete("data_file", is_dead(data))
        return data_files, delete_files

    def _schedule(self, file: sa.Table, file_id: sa.ColumnElement[int], dies: Condition) -> int:
        """Hand files to the clean-up and return how many they are."""
        size = sa.func.coalesce(sa.func.sum(file.c.file_size_bytes), 0)
        count, found_bytes = self.connection.execute(sa.select(sa.func.count(), size).where(dies)).one()
        if count:
            schedule = self.tables["files_scheduled_for_deletion"]
            rows = _scheduled(self.tables, file, file_id, dies, self.now)
            self.connection.execute(schedule.insert().from_select([one.name for one in schedule.c], rows))
        self.bytes += int(found_bytes)
        return int(count)

    def remove_tables(self, table_ids: list[int]) -> None:
        """Remove everything that belongs to unreachable tables."""
        for part in in_parts(table_ids):
            self._forget_inlined(part)
            mapping, names = self.tables["column_mapping"], self.tables["name_mapping"]
            mappings = sa.select(mapping.c.mapping_id).where(mapping.c.table_id.in_(part))
            self._delete("name_mapping", names.c.mapping_id.in_(mappings))
            for name in (*_OF_TABLE, "column_mapping", "inlined_data_tables", "table"):
                self._delete(name, self.tables[name].c.table_id.in_(part))

    def _forget_inlined(self, table_ids: Collection[int]) -> None:
        registry = self.tables["inlined_data_tables"]
        registered = self.connection.execute(
            sa.select(registry.c.table_id, registry.c.table_name).where(registry.c.table_id.in_(table_ids))
        )
        for table_id, name in registered:
            if not name.startswith(inlined_table_name(table_id, "")):
                raise UntrustedValueError(registry.name, name, f"holds no inlined rows of table {table_id}")
            self.inlined.append(name)
        self.inlined += map(inlined_delete_name, table_ids)

    def drop_inlined(self) -> None:
        """Drop the inlined rows of unreachable tables."""
        for name in self.inlined:
            dynamic = sa.Table(name, sa.MetaData(schema=self.tables.metadata_schema))
            self.connection.execute(DropTable(dynamic, if_exists=True))

    def remove_objects(self, found: Sequence[Hole]) -> None:
        """Remove the unreachable rows of schemas, views, tags and macros."""
        names = ("schema", "view", "tag", "macro", "view_column_tag")
        for name in (one for one in names if one in self.tables):
            for is_dead in _unreachable(found):
                self._delete(name, is_dead(self.tables[name]))
        if self.tables.writer.expires_options:
            self.remove_options()
        living = sa.select(self.tables["macro"].c.macro_id)
        for name in ("macro_impl", "macro_parameters"):
            self._delete(name, self.tables[name].c.macro_id.not_in(living))

    def remove_options(self) -> None:
        """Remove the options of tables and schemas that have no version left."""
        metadata = self.tables["metadata"].c
        for scope in ("table", "schema"):
            object_id = self.tables[scope].c[f"{scope}_id"]
            named = sa.select(metadata.scope_id).where(
                metadata.scope == scope, metadata.scope_id.is_not(None)
            )
            ids = set(self.connection.execute(named).scalars())
            for part in in_parts(sorted(ids)):
                ids.difference_update(
                    self.connection.execute(sa.select(object_id).where(object_id.in_(part))).scalars()
                )
            for part in in_parts(sorted(ids)):
                self._delete("metadata", sa.and_(metadata.scope == scope, metadata.scope_id.in_(part)))

    def _delete(self, name: str, dies: Condition) -> None:
        self.connection.execute(self.tables[name].delete().where(dies))


class _Reachability:
    """A condition that can be put to any table with the columns that it asks about."""

    def __init__(self, found: Sequence[Hole] = (), table_ids: Collection[int] = ()) -> None:
        self._holes = found
        self._table_ids = table_ids

    def __call__(self, table: sa.Table) -> Condition:
        if self._table_ids:
            return table.c.table_id.in_(self._table_ids)
        begin, end = table.c.begin_snapshot, table.c.end_snapshot
        return sa.or_(
            begin == end,  # which no snapshot ever saw
            *(
                sa.and_(end <= one.before, sa.true() if one.after is None else begin > one.after)
                for one in self._holes
            ),
        )


def _unreachable(found: Sequence[Hole]) -> Iterator[_Reachability]:
    """Yield the condition that no kept snapshot sees a row, in parts: a statement has to have an end."""
    for start in range(0, len(found), _HOLES_AT_ONCE):
        yield _Reachability(found[start : start + _HOLES_AT_ONCE])


def _reachable_by_tables(table_ids: Sequence[int]) -> Iterator[_Reachability]:
    for part in in_parts(table_ids):
        yield _Reachability(table_ids=part)


def _scheduled(
    tables: CatalogTables, file: sa.Table, file_id: sa.ColumnElement[int], dies: Condition, now: datetime
) -> sa.Select[Any]:
    """Select the schedule's rows, whose paths are relative to the data path."""
    directory = _directories(tables)
    is_relative = file.c.path_is_relative.is_(sa.true())
    return (
        sa.select(
            file_id,
            sa.case((is_relative, directory.c.path + _text(file.c.path)), else_=_text(file.c.path)),
            sa.case((is_relative, directory.c.path_is_relative), else_=sa.literal(False, CatalogBoolean)),  # noqa: FBT003 - a value
            sa.literal(now, CatalogTimestamp),
        )
        .join(directory, directory.c.table_id == file.c.table_id)
        .where(dies)
        .order_by(file_id)
    )


def _directories(tables: CatalogTables) -> sa.Subquery:
    """Select each table's directory relative to the data path, unless one of its steps is absolute."""
    table, schema = tables["table"], tables["schema"]
    is_relative = table.c.path_is_relative.is_(sa.true())
    path, above = _text(table.c.path), _text(schema.c.path)
    return (
        sa.select(
            table.c.table_id,
            sa.case((is_relative, above + path), else_=path).label("path"),
            sa.case((is_relative, schema.c.path_is_relative), else_=sa.literal(False, CatalogBoolean)).label(  # noqa: FBT003
                "path_is_relative"
            ),
        )
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .distinct()
        .subquery()
    )


def _text(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    return sa.func.coalesce(column, sa.literal("", CatalogText), type_=CatalogText)
