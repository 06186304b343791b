"""The tables of jobs: with uncommitted files, which a clean-up must not delete, or that outlive their task.

A job is registered before it writes. It is released in the very transaction that commits its files, so they
are committed once; or when its files are discarded. The caller of a clean-up decides how long it protects
the files of a job that no client releases. A job on a cluster that may outlive the task which submitted it
has a row of its own as well, written before it is submitted, so that a later try of the task finds it. That
row counts while the job is registered and not released, and only with the directory that the job was
registered for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from ...errors import CatalogError, FilesReleasedError, UntrustedValueError
from ...format.log_lines import logger
from ...format.names.paths import is_job_directory
from ...format.snapshots import CommitKey, SnapshotId
from ...planning.writing.write import JobTarget
from ..database.connect import Question, in_parts
from ..database.tables import CatalogInteger, CatalogText, CatalogTimestamp, maybe
from ..dialects.bootstrap import DIGEST, OwnTable
from ..dialects.dialect import DEFAULT_RETRY, Catalog, Effect, in_transaction, insert, with_retries

log = logger(__name__)

STAGE_TTL = timedelta(days=7)  # how long a job's files wait for their commit before a clean-up takes them
_KEPT = timedelta(days=30)  # so long a task that comes late can look up what became of its job

JOBS = OwnTable(
    "airflow_ducklake_job",
    sa.Column("job_id", DIGEST, primary_key=True),
    sa.Column("prefix", CatalogText, nullable=False),
    sa.Column("registered_at", CatalogTimestamp, nullable=False),
    sa.Column("released_at", CatalogTimestamp),
    sa.Column("table_id", CatalogInteger),
    sa.Column("root", CatalogText),
    sa.Column("target_digest", DIGEST),
)


@dataclass(frozen=True, slots=True)
class RegisteredJob:
    """A job whose files were not committed when it was registered; ``prefix`` is its directory.

    ``released_at`` None: its files wait for their commit.
    """

    id: str
    prefix: str
    registered_at: datetime
    released_at: datetime | None


def register(catalog: Catalog, job_id: str, prefix: str, target: JobTarget | None = None) -> None:
    """Note that a job is about to write into a directory of its own, and what for."""
    catalog.check_writable(prefix)
    row: dict[str, Any] = {"job_id": job_id, "prefix": prefix, "released_at": None}
    if target is not None:
        row |= {"table_id": target.table_id, "root": target.root, "target_digest": target.digest}
    if not _insert(catalog, row, missing=JOBS.missing_query(catalog)):
        JOBS.ensure(catalog)
        _insert(catalog, row)


def _insert(catalog: Catalog, row: Mapping[str, Any], **asked: Question[Any]) -> bool:
    """Insert a row in two round trips, unless the table is ``missing``."""
    asked |= catalog.dialect.time_query()

    def attempt() -> bool:
        with catalog.dialect.writing_after(asked) as (connection, answers):
            if answers.get("missing"):
                return False
            writer = catalog.dialect.writer(connection)
            now = answers.get("time", datetime.now(UTC))
            writer.send(insert(JOBS.of(catalog), {**row, "registered_at": now}))
            writer.commit()
            return True

    return with_retries(catalog.dialect, DEFAULT_RETRY, attempt)[0]


def check_directory(catalog: Catalog, job: RegisteredJob) -> None:
    """Refuse a row of which the directory is not the job's own, or where the lake must not write."""
    if not is_job_directory(job.prefix, str(job.id)):
        problem = "is not the directory of a job with that id"
        raise UntrustedValueError(f"The row of {JOBS.name} for job {job.id!r:.80}", job.prefix, problem)
    catalog.check_writable(job.prefix)


def release(catalog: Catalog, job_id: str) -> bool:
    """Release a job, so that its files can no longer be committed; return True if they could be before."""

    def write(connection: sa.Connection) -> bool:
        known = registered_jobs(connection, catalog, [job_id]).get(job_id)
        now = catalog.dialect.server_time(connection)
        connection.execute(release_effect(catalog, [job_id], now).statement)
        return known is not None and known.released_at is None

    return in_transaction(catalog.dialect, write)


def release_effect(catalog: Catalog, job_ids: Collection[str], now: datetime) -> Effect:
    """Build the statement that releases jobs."""
    table = JOBS.of(catalog)
    is_open = table.c.job_id.in_(job_ids) & table.c.released_at.is_(None)
    return Effect(table.update().where(is_open).values(released_at=now))


def check_open(job_ids: Iterable[str], known: Mapping[str, RegisteredJob]) -> None:
    """Refuse jobs that are not registered, or that were released; ask under the commit lock."""
    for job_id in job_ids:
        if job_id not in known or known[job_id].released_at is not None:
            raise FilesReleasedError(job_id)


def jobs_query(catalog: Catalog, job_ids: Collection[str]) -> Question[dict[str, RegisteredJob]]:
    """Return the query for those of the jobs that are registered, by their ids."""
    return Question(_registered(catalog, JOBS.of(catalog).c.job_id.in_(job_ids)), _jobs)


def _registered(catalog: Catalog, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(JOBS.of(catalog)).where(*where)


def _jobs(rows: Iterable[sa.Row[Any]]) -> dict[str, RegisteredJob]:
    return {
        row.job_id: RegisteredJob(row.job_id, row.prefix, row.registered_at, row.released_at) for row in rows
    }


def registered_jobs(
    connection: sa.Connection, catalog: Catalog, job_ids: Collection[str]
) -> dict[str, RegisteredJob]:
    """Look up those of the jobs that are registered, by their ids."""
    return _jobs(JOBS.rows(connection, catalog, jobs_query(catalog, job_ids).query))


def all_jobs(connection: sa.Connection, catalog: Catalog) -> dict[str, RegisteredJob]:
    """Look up all registered jobs, by their ids."""
    return _jobs(JOBS.rows(connection, catalog, _registered(catalog)))


def target_of(connection: sa.Connection, catalog: Catalog, job_id: str) -> JobTarget | None:
    """Look up what the files of a job are for; None: it has no files of its own to commit."""
    table = JOBS.of(catalog)
    chosen = sa.select(table.c.table_id, table.c.root, table.c.target_digest).where(table.c.job_id == job_id)
    found = next(iter(JOBS.rows(connection, catalog, chosen)), None)
    if found is None or found.target_digest is None:
        return None
    return JobTarget(found.table_id, found.root, found.target_digest)


def protected_prefixes(connection: sa.Connection, catalog: Catalog, ttl: timedelta) -> frozenset[str]:
    """Look up the directories whose files wait for their commit, of jobs no older than ``ttl``."""
    if not JOBS.exists(connection, catalog):
        return frozenset()
    oldest = catalog.dialect.server_time(connection) - ttl
    jobs = connection.execute(_registered(catalog, JOBS.of(catalog).c.released_at.is_(None)))
    return frozenset(row.prefix for row in jobs if row.registered_at >= oldest)


def retire(catalog: Catalog, ttl: timedelta) -> None:
    """Release jobs registered longer ago than ``ttl``, and delete the rows of jobs released long ago.

    From then on no client can commit the files of those jobs, so that they can be deleted.
    """
    with catalog.dialect.reading() as connection:
        if not all_jobs(connection, catalog):
            return

    def write(connection: sa.Connection) -> list[str]:
        now = catalog.dialect.server_time(connection)
        found = all_jobs(connection, catalog).values()
        overdue = [one.id for one in found if one.released_at is None and one.registered_at < now - ttl]
        old = [one.id for one in found if one.released_at and one.released_at < now - _KEPT]
        tables = [one.of(catalog) for one in (JOBS, APPLICATIONS) if one.exists(connection, catalog)]
        for part in in_parts(overdue):
            connection.execute(release_effect(catalog, part, now).statement)
        for part in in_parts(old):
            for table in tables:
                connection.execute(table.delete().where(table.c.job_id.in_(part)))
        return overdue

    if overdue := in_transaction(catalog.dialect, write):
        log.info("Released jobs %s, registered longer than %s ago and not committed", overdue, ttl)


def snapshot_of_job(connection: sa.Connection, catalog: Catalog, job_id: str) -> SnapshotId | None:
    """Look up the snapshot that added files of a job, 0 where they wait for their deletion.

    None: the lake has no such files.
    """
    file, scheduled = catalog.tables["data_file"], catalog.tables["files_scheduled_for_deletion"]
    deletes = catalog.tables["delete_file"]
    pattern = f"%ducklake-{job_id}%"  # its directory, or files in those of partitions
    found = sa.union_all(
        sa.select(file.c.begin_snapshot.label("id")).where(file.c.path.like(pattern)),
        sa.select(deletes.c.begin_snapshot.label("id")).where(deletes.c.path.like(pattern)),
        sa.select(sa.literal(0).label("id")).where(scheduled.c.path.like(pattern)),
    ).subquery()
    newest = connection.execute(sa.select(maybe(sa.func.max(found.c.id)))).scalar()
    return None if newest is None else SnapshotId(newest)


# Jobs on a cluster that outlive the task which submitted them.


APPLICATIONS = OwnTable(
    "airflow_ducklake_application",
    sa.Column("job_id", DIGEST, primary_key=True),
    sa.Column("key_digest", DIGEST, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("try_id", CatalogText, nullable=False),
    sa.Column("base_snapshot", CatalogInteger, nullable=False),
    sa.Column("directory", CatalogText, nullable=False),
    sa.Column("request_digest", DIGEST, nullable=False),
    sa.Column("cluster", CatalogText, nullable=False),
    sa.Column("attended_by", CatalogText, nullable=False),
    sa.Column("application", CatalogText),
    sa.Column("noted_at", CatalogTimestamp, nullable=False),
)


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that was, or was about to be, submitted.

    ``key_digest``, ``generation`` and ``try_id`` say for which commit and by which try, ``base`` on which
    snapshot it was planned, ``directory`` and ``request_digest`` where its request lies and which it is.
    ``application`` is the ``cluster``'s name for it; None: the try ended before it recorded that.
    ``attended_by`` is the try that waits for it now, or did last.
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


_COLUMNS = {one.name: one.name for one in fields(SubmittedJob)} | {"base": "base_snapshot"}


def note_submitted(catalog: Catalog, job: SubmittedJob) -> None:
    """Note a job before it is submitted, or the try that waits for it from now on."""
    APPLICATIONS.replace(catalog, _row_of(job))


def note_named(catalog: Catalog, job: SubmittedJob) -> None:
    """Note what the cluster calls a job, if the try that waits for it is still the same.

    This takes the rights that ``note_submitted`` takes, so that it is not refused once the job is submitted.
    """
    APPLICATIONS.replace(catalog, _row_of(job), if_same="attended_by")


def _row_of(job: SubmittedJob) -> dict[str, Any]:
    return {column: getattr(job, name) for name, column in _COLUMNS.items()}


def forget_submitted(catalog: Catalog, job_id: str) -> None:
    """Forget a job that is over."""
    _forget(catalog, APPLICATIONS.of(catalog).c.job_id == job_id)


def forget_submitted_of(catalog: Catalog, key: CommitKey) -> None:
    """Forget the jobs of a commit that was made."""
    with catalog.dialect.reading() as connection:
        if not APPLICATIONS.exists(connection, catalog):
            return
    _forget(catalog, APPLICATIONS.of(catalog).c.key_digest == key.digest)


def _forget(catalog: Catalog, condition: sa.ColumnElement[bool]) -> None:
    deletion = APPLICATIONS.of(catalog).delete().where(condition)
    in_transaction(catalog.dialect, lambda connection: connection.execute(deletion))


def submitted_jobs(catalog: Catalog, key: CommitKey) -> tuple[SubmittedJob, ...]:
    """Look up the jobs that tries of a task submitted, of whichever generation; the oldest first."""
    return _submitted(catalog, APPLICATIONS.of(catalog).c.key_digest == key.digest)


def submitted_job(catalog: Catalog, job_id: str) -> SubmittedJob | None:
    """Look up a submitted job, with the errors of ``submitted_jobs``; None: it is not noted, or is over."""
    return next(iter(_submitted(catalog, APPLICATIONS.of(catalog).c.job_id == job_id)), None)


def _submitted(catalog: Catalog, condition: sa.ColumnElement[bool]) -> tuple[SubmittedJob, ...]:
    table = APPLICATIONS.of(catalog)
    with catalog.dialect.reading() as connection:
        query = sa.select(table).where(condition).order_by(table.c.noted_at)
        rows = APPLICATIONS.rows(connection, catalog, query)
        known = registered_jobs(connection, catalog, [row.job_id for row in rows]) if rows else {}
    found = [
        SubmittedJob(**{name: getattr(row, column) for name, column in _COLUMNS.items()}) for row in rows
    ]
    return tuple(one for one in found if _is_open(catalog, one, known.get(one.job_id)))


def _is_open(catalog: Catalog, job: SubmittedJob, registered: RegisteredJob | None) -> bool:
    """Return True if a job waits for its commit, by its registration; see ``submitted_jobs``.

    Raises:
        UntrustedValueError: its directory is not the one that it was registered for.
    """
    if registered is None:
        log.warning("Job %r, a row of %s, is not registered: it is left alone", job.job_id, APPLICATIONS.name)
        return False
    if registered.released_at is not None:
        return False
    check_directory(catalog, registered)
    if job.directory != registered.prefix:
        problem = f"is not the directory that the job was registered for, {registered.prefix}"
        place = f"The row of {APPLICATIONS.name} for job {job.job_id}"
        raise UntrustedValueError(place, job.directory, problem)
    return True


# The key by which documents of jobs are sealed, in base64: one row, of lakes whose files are encrypted.
#
# A client that reads it can read the keys of all files, too.


DOCUMENT_KEYS = OwnTable(
    "airflow_ducklake_document_key",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("document_key", CatalogText, nullable=False),
)
_ONLY = 1


def document_key(catalog: Catalog) -> str | None:
    """Look up the key; None: no job has needed one."""
    with catalog.dialect.reading() as connection:
        return _only_key(DOCUMENT_KEYS.rows(connection, catalog, _two_keys(catalog)))


def _two_keys(catalog: Catalog) -> sa.Select[Any]:
    return sa.select(DOCUMENT_KEYS.of(catalog).c.document_key).limit(2)


def _only_key(rows: Sequence[sa.Row[Any]]) -> str | None:
    if len(rows) > 1:
        raise CatalogError(
            f"The catalog's table {DOCUMENT_KEYS.name} has several rows, of which one alone is the key that "
            "seals documents. Find out who wrote the others, and delete all rows but the one with id "
            f"{_ONLY}."
        )
    return rows[0].document_key if rows else None


def ensure_document_key(catalog: Catalog, new: str) -> str:
    """Look up the key, which becomes ``new`` if there was none."""
    found = document_key(catalog)
    if found is not None:
        return found
    DOCUMENT_KEYS.ensure(catalog)

    def write(connection: sa.Connection) -> str:
        known = _only_key(connection.execute(_two_keys(catalog)).all())
        if known is None:
            row = {"id": _ONLY, "document_key": new}
            connection.execute(DOCUMENT_KEYS.of(catalog).insert(), row)
        return known or new

    return in_transaction(catalog.dialect, write)
