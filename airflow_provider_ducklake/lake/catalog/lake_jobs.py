"""The jobs part of ``Lake``: which jobs write files for it, and which of them outlive their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.ledger import jobs

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from airflow_provider_ducklake.lake.catalog.ledger.jobs import RegisteredJob, SubmittedJob
    from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.lake.planning.writing.write import JobTarget
    from airflow_provider_ducklake.lake.spec.snapshots import CommitKey, SnapshotId


class LakeJobs:
    """The jobs that write files for a lake, and wait for their commit."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def register(
        self, job_id: str, prefix: str, target: JobTarget | None = None, *, must_note: bool = False
    ) -> None:
        """Record that a job is about to write files into a directory, and what they are for.

        ``target`` is what they are for, which the commit compares. A database user who may not add columns to
        the provider's table cannot always record it, and is refused if ``must_note``.

        Raises:
            UntrustedValueError: the lake may not write there.
            CatalogRefusedError: it must be recorded, but cannot be; names the statements that help.
        """
        self._lake.refuse_unwritable()
        with self._lake.translated():
            seal_documents(self._lake)
            jobs.register(self._lake.catalog, job_id, prefix, target, must_note=must_note)

    def target_of(self, job_id: str) -> JobTarget | None:
        """Look up the target of a job's files, or None if it was not recorded."""
        with self._lake.reading() as connection:
            return jobs.target_of(connection, self._lake.catalog, job_id)

    def release(self, job_id: str) -> bool:
        """Release the files of a job, so that they cannot be committed; return whether they could be."""
        with self._lake.translated():
            return jobs.release(self._lake.catalog, job_id)

    def registered(self, job_ids: Collection[str]) -> dict[str, RegisteredJob]:
        """Return those of the jobs that were registered, by their ids."""
        with self._lake.reading() as connection:
            return jobs.registered_jobs(connection, self._lake.catalog, job_ids)

    def check_directory(self, job: RegisteredJob) -> None:
        """Refuse a registered job whose directory is not its own, or not the lake's to write to.

        Raises:
            UntrustedValueError: says which.
        """
        jobs.check_directory(self._lake.catalog, job)

    def note_submitted(self, job: SubmittedJob) -> None:
        """Record a job that outlives its task, in a table of the provider's; makes no snapshot."""
        self._lake.refuse_unwritable()
        with self._lake.translated():
            jobs.note_submitted(self._lake.catalog, job)

    def note_named(self, job: SubmittedJob) -> None:
        """Record the cluster's name for a job, unless another try waits for it now; makes no snapshot."""
        with self._lake.translated():
            jobs.note_named(self._lake.catalog, job)

    def forget_submitted(self, job_id: str) -> None:
        """Remove the record of a job that is over."""
        with self._lake.translated():
            jobs.forget_submitted(self._lake.catalog, job_id)

    def forget_submitted_of(self, key: CommitKey) -> None:
        """Remove the records of the jobs of a commit that was made."""
        with self._lake.translated():
            jobs.forget_submitted_of(self._lake.catalog, key)

    def submitted_of(self, key: CommitKey) -> tuple[SubmittedJob, ...]:
        """Return the recorded jobs of a commit whose files are neither committed nor discarded.

        Raises:
            UntrustedValueError: a record names a directory that its job was not registered for.
        """
        with self._lake.translated():
            return jobs.submitted_jobs(self._lake.catalog, key)

    def submitted(self, job_id: str) -> SubmittedJob | None:
        """Return the record of a job; None: its files are committed or discarded, or it never had one."""
        with self._lake.translated():
            return jobs.submitted_job(self._lake.catalog, job_id)

    def snapshot_of(self, job_id: str) -> SnapshotId | None:
        """Return the snapshot that added files of a job, 0 where they wait for deletion; None: no files."""
        with self._lake.reading() as connection:
            return jobs.snapshot_of_job(connection, self._lake.catalog, job_id)

    def protected_prefixes(self, stage_ttl: timedelta = jobs.STAGE_TTL) -> frozenset[str]:
        """Return the directories of jobs that wait for their commit and are not older than that.

        A clean-up of orphaned files must not delete them.
        """
        with self._lake.reading() as connection:
            return jobs.protected_prefixes(connection, self._lake.catalog, stage_ttl)


def open_documents(lake: OpenLake, key_file: str | None) -> None:
    """Load the key that seals job documents, if there is one yet.

    Raises:
        StorageError: the file cannot be read, or has no key.
    """
    if not lake.encrypted:
        return
    from airflow_provider_ducklake.lake.storage.files import writing  # noqa: PLC0415 - heavy

    if key_file is not None:
        writing.learn_from_file(lake.data_path, key_file)
        return
    with lake.translated():
        writing.learn(lake.data_path, jobs.document_key(lake.catalog))


def seal_documents(lake: OpenLake) -> None:
    """Seal job documents from now on."""
    if not lake.encrypted:
        return
    from airflow_provider_ducklake.lake.storage.files import writing  # noqa: PLC0415 - heavy

    if writing.file_of(lake.data_path) is None:
        writing.learn(lake.data_path, jobs.ensure_document_key(lake.catalog, writing.new_key()))
