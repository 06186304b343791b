"""The table of jobs: what is noted of each, and by whom."""

import uuid
from dataclasses import replace

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.format.names.paths import job_directory
from airflow_provider_ducklake.lake.format.snapshots import CommitKey, SnapshotId
from airflow_provider_ducklake.lake.planning.writing.write import JobTarget

TARGET = JobTarget(3, "/lake/t/", "0" * 64)


@pytest.mark.every_catalog
def test_a_job_is_noted_with_what_its_files_are_for(catalog_kind, new_catalog):
    catalog = new_catalog(catalog_kind)
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        prefix = f"{lake.data_path}main/t/"
        assert (lake.jobs.target_of(old), lake.jobs.registered([old])) == (None, {})

        lake.jobs.register(new, prefix, TARGET)
        lake.jobs.register(old, prefix)

        assert (lake.jobs.target_of(new), lake.jobs.target_of(old)) == (TARGET, None)
        assert {one.prefix for one in lake.jobs.registered([old, new]).values()} == {prefix}
        assert lake.jobs.release(old)
        assert not lake.jobs.release(old)


@pytest.mark.every_catalog
def test_the_cluster_s_name_for_a_job_is_noted_by_the_try_that_waits_for_it(catalog_kind, new_catalog):
    catalog, job_id = new_catalog(catalog_kind), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        directory = job_directory(f"{lake.data_path}main/t/", job_id)
        digest = CommitKey(("dag", "task")).digest
        job = SubmittedJob(job_id, digest, 1, "try 1", SnapshotId(0), directory, "0" * 64, "here", "try 1")
        lake.jobs.register(job_id, directory)
        lake.jobs.note_named(replace(job, application="app-0"))
        assert lake.jobs.submitted(job_id) is None
        lake.jobs.note_submitted(job)

        lake.jobs.note_named(replace(job, attended_by="try 2", application="app-2"))
        assert lake.jobs.submitted(job_id) == job
        lake.jobs.note_named(replace(job, application="app-1"))
        assert lake.jobs.submitted(job_id) == replace(job, application="app-1")
