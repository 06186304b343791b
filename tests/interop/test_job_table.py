"""The table of jobs gets columns that older releases do not know; both go on beside each other."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.errors import CatalogRefusedError
from airflow_provider_ducklake.lake.planning.writing.write import JobTarget
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spec.names.paths import job_directory
from airflow_provider_ducklake.lake.spec.snapshots import CommitKey, SnapshotId
from airflow_provider_ducklake.lake.writes.staged import discard, read_staged
from tests.interop.job_columns import another_user, as_before, run
from tests.interop.staging import rows_of, stage
from tests.reference.duckdb_lake import open_lake

PAGE = (Path(__file__).parents[2] / "docs" / "connection.md").read_text()
TARGET = JobTarget(3, "/lake/t/", "0" * 64)


@pytest.fixture
def lake(catalog):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id BIGINT)")
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        yield opened


@pytest.mark.every_catalog
def test_a_table_of_an_older_release_gets_the_columns_when_a_job_is_registered(catalog_kind, new_catalog):
    catalog = new_catalog(catalog_kind)
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        prefix = f"{lake.data_path}main/t/"
        as_before(catalog, lake)
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


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_user_who_may_not_add_the_columns_registers_without_them_but_stages_nothing(new_catalog, kind):
    catalog, job_id = new_catalog(kind), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64"})
        prefix = f"{lake.data_path}main/t/"
        as_before(catalog, lake)
        with another_user(catalog) as theirs, Lake.connect(theirs.sqlalchemy_url) as other:
            other.jobs.register(job_id, prefix, TARGET)
            assert other.jobs.target_of(job_id) is None
            assert prefix in other.jobs.protected_prefixes()
            with pytest.raises(CatalogRefusedError) as refused:
                stage(other, "main.t", rows_of(1))
            assert other.jobs.registered([job_id]).keys() == {job_id}
            assert other.jobs.release(job_id)

            statements = refused.value.statement.split("; ")
            run(catalog, *statements)  # as the owner
            if kind == "postgres":
                assert "".join(f"{one};\n" for one in statements) in PAGE

            staged = stage(other, "main.t", rows_of(1))
            assert other.jobs.target_of(staged.job_id) == job_io.target_of_stage(staged.target)
            assert read_staged(other, job_io.stage_uri(staged.directory)) == [staged]


def test_an_older_release_goes_on_beside_a_newer_one(catalog, lake):
    staged = stage(lake, "main.t", rows_of(1))
    uri, job_id = job_io.stage_uri(staged.directory), staged.job_id
    run(  # as an older release writes its row
        catalog,
        "INSERT INTO airflow_ducklake_job (job_id, prefix, registered_at, released_at) "
        "SELECT 'older', prefix, registered_at, released_at FROM airflow_ducklake_job",
        "UPDATE airflow_ducklake_job SET table_id = NULL, root = NULL, target_digest = NULL "
        "WHERE job_id = :id",
        id=job_id,
    )

    assert lake.jobs.target_of(job_id) is None
    assert [one.job_id for one in read_staged(lake, uri)] == [job_id]
    assert discard(lake, [uri]) == [uri]


def test_what_an_older_release_staged_is_committed_by_a_newer_one(catalog, lake):
    staged = stage(lake, "main.t", rows_of(1))
    run(catalog, *(f"ALTER TABLE airflow_ducklake_job DROP COLUMN {name}" for name in ("table_id", "root")))
    run(catalog, "ALTER TABLE airflow_ducklake_job DROP COLUMN target_digest")

    (found,) = read_staged(lake, job_io.stage_uri(staged.directory))

    assert found.job_id == staged.job_id
    assert lake.jobs.protected_prefixes()
