"""The table of jobs gets columns that older releases do not know; both go on beside each other."""

import uuid

import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.catalog.connect import parse_url
from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.hooks.staged_writes import discard, read_staged
from airflow_provider_ducklake.planning.job_target import JobTarget
from airflow_provider_ducklake.spark import job_io
from tests.interop.staging import rows_of, stage
from tests.reference.duckdb_lake import open_lake

TARGET = JobTarget(3, "/lake/t/", "0" * 64)


@pytest.fixture
def lake(catalog):
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id BIGINT)")
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        yield opened


def run(catalog, *statements, **values):
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)
    engine.dispose()


def as_before(catalog, lake):
    """Make the table what the first releases make it, with a job of theirs."""
    lake.register_job(str(uuid.uuid4()), f"{lake.data_path}main/t/x/")
    columns = ("table_id", "root", "target_digest")
    run(catalog, *(f"ALTER TABLE airflow_ducklake_job DROP COLUMN {name}" for name in columns))


@pytest.mark.every_catalog
def test_a_table_of_an_older_release_gets_the_columns_when_a_job_is_registered(catalog_kind, new_catalog):
    catalog = new_catalog(catalog_kind)
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        prefix = f"{lake.data_path}main/t/"
        as_before(catalog, lake)
        assert (lake.target_of_job(old), lake.registered_jobs([old])) == (None, {})

        lake.register_job(new, prefix, TARGET)
        lake.register_job(old, prefix)

        assert (lake.target_of_job(new), lake.target_of_job(old)) == (TARGET, None)
        assert {one.prefix for one in lake.registered_jobs([old, new]).values()} == {prefix}
        assert lake.release_job(old)
        assert not lake.release_job(old)


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

    assert lake.target_of_job(job_id) is None
    assert [one.job_id for one in read_staged(lake, uri)] == [job_id]
    assert discard(lake, [uri]) == [uri]


def test_what_an_older_release_staged_is_committed_by_a_newer_one(catalog, lake):
    staged = stage(lake, "main.t", rows_of(1))
    run(catalog, *(f"ALTER TABLE airflow_ducklake_job DROP COLUMN {name}" for name in ("table_id", "root")))
    run(catalog, "ALTER TABLE airflow_ducklake_job DROP COLUMN target_digest")

    (found,) = read_staged(lake, job_io.stage_uri(staged.directory))

    assert found.job_id == staged.job_id
    assert lake.protected_prefixes()
