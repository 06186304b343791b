"""What a commit names of a job's files is synced by the committing process."""

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.synced import before_commit, needed, recorded


def test_files_of_a_job_are_synced_before_the_commit(spark, sqlite_catalog, monkeypatch):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        session = LakeSession(spark, lake)

        with recorded(monkeypatch) as events:
            session.insert("t", spark.range(100).repartition(2), create_table=True)

        files = [one.path for one in lake.scan("t").files]
    assert files
    assert needed(sqlite_catalog.data_path, files) <= before_commit(events)
