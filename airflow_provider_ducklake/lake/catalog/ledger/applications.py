"""The table of applications: jobs on a cluster that outlive the task which submitted them.

Our own table beside the format's; DuckDB does not mind it. A row is written before the job is submitted, so
that a later try of the task finds it, whenever the try before it died. It counts while its job is registered
(see ``jobs.py``) and not released, and only with the directory that the job was registered for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer, MetaData, String, Table, select

from airflow_provider_ducklake.lake.catalog.database.tables import (
    TABLE_OPTIONS,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    catalog_table,
)
from airflow_provider_ducklake.lake.catalog.dialects.dialect import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.lake.catalog.ledger import jobs, own_tables
from airflow_provider_ducklake.lake.errors import UntrustedValueError
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import ColumnElement

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.catalog.ledger.jobs import RegisteredJob
    from airflow_provider_ducklake.lake.spec.snapshots import CommitKey

log = logger(__name__)

NAME = "airflow_ducklake_application"
_DIGEST_LENGTH = 64


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that was, or was about to be, submitted.

    ``key_digest``, ``generation`` and ``try_id`` say for which commit and by which try, ``base`` on which
    snapshot it was planned, ``directory`` and ``request_digest`` where its request lies and which it is.
    ``application`` is what the ``cluster`` calls it; None: nobody lived to note that. ``attended_by`` is the
    try that waits for it now, or did last.
    """

    job_id: str
    key_digest: str
    generation: int
    try_id: str
    base: SnapshotId
    directory: str
    request_digest: str
    cluster: str
    attended_by: str
    application: str | None = None


@lru_cache
def application_table(metadata_schema: str | None) -> Table:
    """Return the table."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("job_id", String(_DIGEST_LENGTH), primary_key=True),
        Column("key_digest", String(_DIGEST_LENGTH), nullable=False),
        Column("generation", Integer, nullable=False),
        Column("try_id", CatalogText, nullable=False),
        Column("base_snapshot", CatalogInteger, nullable=False),
        Column("directory", CatalogText, nullable=False),
        Column("request_digest", String(_DIGEST_LENGTH), nullable=False),
        Column("cluster", CatalogText, nullable=False),
        Column("attended_by", CatalogText, nullable=False),
        Column("application", CatalogText),
        Column("noted_at", CatalogTimestamp, nullable=False),
        **TABLE_OPTIONS,
    )


def note(catalog: Catalog, job: SubmittedJob) -> None:
    """Note a job before it is submitted, or what the cluster calls it once that is known."""
    table = application_table(catalog.tables.metadata_schema)
    own_tables.ensure_table(catalog, table)

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            connection.execute(table.delete().where(table.c.job_id == job.job_id))
            row = {
                "job_id": job.job_id,
                "key_digest": job.key_digest,
                "generation": job.generation,
                "try_id": job.try_id,
                "base_snapshot": int(job.base),
                "directory": job.directory,
                "request_digest": job.request_digest,
                "cluster": job.cluster,
                "attended_by": job.attended_by,
                "application": job.application,
                "noted_at": catalog.dialect.server_time(connection),
            }
            connection.execute(table.insert(), row)
            connection.commit()

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)


def forget(catalog: Catalog, job_id: str) -> None:
    """Forget a job that is over."""
    table = application_table(catalog.tables.metadata_schema)
    _delete(catalog, table, table.c.job_id == job_id)


def forget_key(catalog: Catalog, key: CommitKey) -> None:
    """Forget the jobs of a commit that was made."""
    table = application_table(catalog.tables.metadata_schema)
    with catalog.dialect.reading() as connection:
        if not catalog.dialect.has_table(connection, NAME, table.schema):
            return
    _delete(catalog, table, table.c.key_digest == key.digest)


def _delete(catalog: Catalog, table: Table, condition: ColumnElement[bool]) -> None:
    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            connection.execute(table.delete().where(condition))
            connection.commit()

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)


def of_key(catalog: Catalog, key: CommitKey) -> tuple[SubmittedJob, ...]:
    """Return the jobs that tries of a task submitted, of whichever generation; the oldest first."""
    table = application_table(catalog.tables.metadata_schema)
    return _read(catalog, table.c.key_digest == key.digest)


def of_job(catalog: Catalog, job_id: str) -> SubmittedJob | None:
    """Return what is noted of a job, with the errors of ``of_key``; None: nothing, or it is over."""
    table = application_table(catalog.tables.metadata_schema)
    return next(iter(_read(catalog, table.c.job_id == job_id)), None)


def _read(catalog: Catalog, condition: ColumnElement[bool]) -> tuple[SubmittedJob, ...]:
    table = application_table(catalog.tables.metadata_schema)
    with catalog.dialect.reading() as connection:
        if not catalog.dialect.has_table(connection, NAME, table.schema):
            return ()
        rows = connection.execute(select(table).where(condition).order_by(table.c.noted_at)).all()
        known = jobs.registered_jobs(connection, catalog, [row.job_id for row in rows]) if rows else {}
    found = [_job(row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name
    return tuple(one for one in found if _is_open(catalog, one, known.get(one.job_id)))


def _is_open(catalog: Catalog, job: SubmittedJob, registered: RegisteredJob | None) -> bool:
    """Whether a job waits for its commit, as far as its registration says, with the errors of ``of_key``."""
    if registered is None:
        log.warning("Job %r, a row of %s, is not registered: it is left alone", job.job_id, NAME)
        return False
    if registered.released_at is not None:
        return False
    jobs.check_directory(catalog, registered)
    if job.directory != registered.prefix:
        problem = f"is not the directory that the job was registered for, {registered.prefix}"
        raise UntrustedValueError(f"The row of {NAME} for job {job.job_id}", job.directory, problem)
    return True


def _job(row: Any) -> SubmittedJob:  # noqa: ANN401 - a mapping of columns
    names = (
        "job_id",
        "key_digest",
        "generation",
        "try_id",
        "directory",
        "request_digest",
        "cluster",
        "attended_by",
        "application",
    )
    return SubmittedJob(base=SnapshotId(row["base_snapshot"]), **{name: row[name] for name in names})
