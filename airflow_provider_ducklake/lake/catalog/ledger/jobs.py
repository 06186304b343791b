"""The table of jobs with uncommitted files, which a clean-up must not delete.

Our own table beside the format's; DuckDB does not mind it. A job is registered before it writes. It is
released in the very transaction that commits its files, so they are committed once; or when they are given
up. How long the files of one that nobody releases are protected is said by whoever cleans up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, Row, String, Table, func, literal, select, union_all

from airflow_provider_ducklake.lake.catalog.database.connect import Question, in_parts, shown
from airflow_provider_ducklake.lake.catalog.database.tables import (
    TABLE_OPTIONS,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    catalog_table,
    maybe,
)
from airflow_provider_ducklake.lake.catalog.dialects.dialect import (
    DEFAULT_RETRY,
    Effect,
    insert,
    with_retries,
)
from airflow_provider_ducklake.lake.catalog.ledger.own_tables import ensure_table, how_to_add, which_missing
from airflow_provider_ducklake.lake.errors import CatalogRefusedError, FilesReleasedError, UntrustedValueError
from airflow_provider_ducklake.lake.planning.writing.write import JobTarget
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.paths import is_job_directory
from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog

log = logger(__name__)

NAME = "airflow_ducklake_job"
_ID_LENGTH = 64
STAGE_TTL = timedelta(days=7)  # how long a staged write waits for its commit before a clean-up takes it


@dataclass(frozen=True, slots=True)
class RegisteredJob:
    """A job whose files were not committed when it was registered; ``prefix`` is its directory.

    ``released_at`` None: its files wait for their commit.
    """

    id: str
    prefix: str
    registered_at: datetime
    released_at: datetime | None


@lru_cache
def job_table(metadata_schema: str | None) -> Table:
    """Return the table."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("job_id", String(_ID_LENGTH), primary_key=True),
        Column("prefix", CatalogText, nullable=False),
        Column("registered_at", CatalogTimestamp, nullable=False),
        Column("released_at", CatalogTimestamp),
        *_target_columns(),
        **TABLE_OPTIONS,
    )


def _target_columns() -> tuple[Column[Any], ...]:
    """Return the columns that the first releases did not have; those leave them NULL."""
    return (
        Column("table_id", CatalogInteger),
        Column("root", CatalogText),
        Column("target_digest", String(_ID_LENGTH)),
    )


_NOTES = frozenset(column.name for column in _target_columns())


def register(
    catalog: Catalog, job_id: str, prefix: str, target: JobTarget | None = None, *, must_note: bool = False
) -> None:
    """Note that a job is about to write into a directory of its own, and what for."""
    catalog.check_writable(prefix)
    table = job_table(catalog.tables.metadata_schema)
    row: dict[str, object] = {"job_id": job_id, "prefix": prefix, "released_at": None}
    meant: dict[str, object] = {}
    if target is not None:
        meant = {"table_id": target.table_id, "root": target.root, "target_digest": target.digest}

    def attempt(values: Mapping[str, object], **asked: Question[Any]) -> bool:
        with catalog.dialect.writing_after(asked | catalog.dialect.which_time()) as (connection, answers):
            if answers.get("missing"):
                return False
            writer = catalog.dialect.writer(connection)
            writer.send(insert(table, {**values, "registered_at": answers.get("time", datetime.now(UTC))}))
            writer.commit()
            return True

    columns = which_missing(catalog.dialect, table)
    if with_retries(catalog.dialect, DEFAULT_RETRY, lambda: attempt(row | meant, missing=columns))[0]:
        return
    missing = ensure_table(catalog, table, _NOTES)
    if missing:
        _announce(catalog, missing, must_note=must_note)
    with_retries(catalog.dialect, DEFAULT_RETRY, lambda: attempt(row if missing else row | meant))


def _announce(catalog: Catalog, missing: Collection[Column[Any]], *, must_note: bool) -> None:
    """Say which columns the table's owner has to add, and refuse what cannot do without."""
    statements = how_to_add(catalog, missing)
    if must_note:
        reason = (
            f"a staged write needs columns that {NAME} lacks, and this user may not add them; ask the "
            "table's owner to run the statements once"
        )
        raise CatalogRefusedError(shown(catalog.dialect.engine.url), reason, statements)
    log.warning(
        "%s lacks columns that only its owner may add: the purpose of jobs is not recorded, and stage_only "
        "is refused. Ask the owner to run: %s",
        *(NAME, statements),
    )


def check_directory(catalog: Catalog, job: RegisteredJob) -> None:
    """Refuse a row of which the directory is not the job's own, or where the lake must not write."""
    if not is_job_directory(job.prefix, str(job.id)):
        problem = "is not the directory of a job with that id"
        raise UntrustedValueError(f"The row of {NAME} for job {job.id!r:.80}", job.prefix, problem)
    catalog.check_writable(job.prefix)


def release(catalog: Catalog, job_id: str) -> bool:
    """Give the files of a job up: nobody can commit them any more; return whether somebody could before."""

    def attempt() -> bool:
        with catalog.dialect.writing() as connection:
            known = registered_jobs(connection, catalog, [job_id]).get(job_id)
            now = catalog.dialect.server_time(connection)
            connection.execute(release_effect(catalog, [job_id], now).statement)
            connection.commit()
        return known is not None and known.released_at is None

    return with_retries(catalog.dialect, DEFAULT_RETRY, attempt)[0]


def release_effect(catalog: Catalog, job_ids: Collection[str], now: datetime) -> Effect:
    """Return the statement that releases jobs."""
    table = job_table(catalog.tables.metadata_schema)
    is_open = table.c.job_id.in_(job_ids) & table.c.released_at.is_(None)
    return Effect(table.update().where(is_open).values(released_at=now))


def check_open(job_ids: Iterable[str], known: Mapping[str, RegisteredJob]) -> None:
    """Refuse jobs whose files have been committed or given up; ask under the commit lock."""
    for job_id in job_ids:
        if job_id not in known or known[job_id].released_at is not None:
            raise FilesReleasedError(job_id)


def which_jobs(catalog: Catalog, job_ids: Collection[str]) -> Question[dict[str, RegisteredJob]]:
    """Ask for those of the jobs that are known, by their ids."""
    table = job_table(catalog.tables.metadata_schema)
    return Question(select(*_known(table)).where(table.c.job_id.in_(job_ids)), _jobs)


def _known(table: Table) -> tuple[Column[Any], ...]:
    """Return the columns that every release has: nobody adds the others before a job is registered again."""
    return tuple(table.c[name] for name in ("job_id", "prefix", "registered_at", "released_at"))


def _jobs(rows: Iterable[Row[Any]]) -> dict[str, RegisteredJob]:
    return {
        row.job_id: RegisteredJob(row.job_id, row.prefix, row.registered_at, row.released_at) for row in rows
    }


def registered_jobs(
    connection: Connection, catalog: Catalog, job_ids: Collection[str]
) -> dict[str, RegisteredJob]:
    """Return those of the jobs that are known, by their ids; none where no job ever was registered."""
    if not catalog.dialect.has_table(connection, NAME, catalog.tables.metadata_schema):
        return {}
    return which_jobs(catalog, job_ids).ask(connection)


def target_of(connection: Connection, catalog: Catalog, job_id: str) -> JobTarget | None:
    """Return what the files of a job are for; None where an older release has registered it."""
    table = job_table(catalog.tables.metadata_schema)
    if not set(catalog.dialect.column_names(connection, NAME, table.schema)) >= _NOTES:
        return None
    chosen = select(table.c.table_id, table.c.root, table.c.target_digest).where(table.c.job_id == job_id)
    found = connection.execute(chosen).one_or_none()
    return JobTarget(*found) if found is not None and found.target_digest is not None else None


def protected_prefixes(connection: Connection, catalog: Catalog, ttl: timedelta) -> frozenset[str]:
    """Return the directories whose files wait for their commit, of jobs no older than ``ttl``."""
    table = job_table(catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, NAME, table.schema):
        return frozenset()
    oldest = catalog.dialect.server_time(connection) - ttl
    jobs = connection.execute(select(*_known(table)).where(table.c.released_at.is_(None)))
    return frozenset(row.prefix for row in jobs if row.registered_at >= oldest)


def all_jobs(connection: Connection, catalog: Catalog) -> dict[str, RegisteredJob]:
    """Return all jobs that are known, by their ids."""
    table = job_table(catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, NAME, table.schema):
        return {}
    return _jobs(connection.execute(select(*_known(table))))


def retire(catalog: Catalog, ttl: timedelta) -> None:
    """Give up the files of jobs registered longer ago than ``ttl``, and forget jobs released long ago.

    From then on nobody can commit those files, so that they can be deleted.
    """
    table = job_table(catalog.tables.metadata_schema)
    with catalog.dialect.reading() as connection:
        if not all_jobs(connection, catalog):
            return

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            now = catalog.dialect.server_time(connection)
            found = all_jobs(connection, catalog).values()
            overdue = [one.id for one in found if one.released_at is None and one.registered_at < now - ttl]
            old = [one.id for one in found if one.released_at and one.released_at < now - _KEPT]
            for part in in_parts(overdue):
                connection.execute(release_effect(catalog, part, now).statement)
            for part in in_parts(old):
                connection.execute(table.delete().where(table.c.job_id.in_(part)))
            connection.commit()
            if overdue:
                log.info("Released the staged files of jobs %s, registered longer than %s ago", overdue, ttl)

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)


_KEPT = timedelta(days=30)  # so long a task that comes late is told what became of its job


def snapshot_of_job(connection: Connection, catalog: Catalog, job_id: str) -> SnapshotId | None:
    """Return the snapshot that added files of a job, 0 where they wait for their deletion.

    None: the lake has no such files.
    """
    file, scheduled = catalog.tables["data_file"], catalog.tables["files_scheduled_for_deletion"]
    deletes = catalog.tables["delete_file"]
    pattern = f"%ducklake-{job_id}%"  # its directory, or files in those of partitions
    found = union_all(
        select(file.c.begin_snapshot.label("id")).where(file.c.path.like(pattern)),
        select(deletes.c.begin_snapshot.label("id")).where(deletes.c.path.like(pattern)),
        select(literal(0).label("id")).where(scheduled.c.path.like(pattern)),
    ).subquery()
    newest = connection.execute(select(maybe(func.max(found.c.id)))).scalar()
    return None if newest is None else SnapshotId(newest)
