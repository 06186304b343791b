"""Tables with a default that only DuckDB computes: they matter only where rows lack the column."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake

TABLE = "CREATE TABLE t (id INT, name VARCHAR, made TIMESTAMPTZ DEFAULT now())"
FED = "SELECT {} AS id, '{}' AS name, TIMESTAMP '2026-01-01 00:00:00Z' AS made"


@pytest.fixture
def session(spark, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(TABLE)
        reference.sql("INSERT INTO t (id, name) VALUES (1, 'one'), (2, 'two')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield LakeSession(spark, lake)


def test_every_verb_writes_rows_that_have_the_column(session, spark, sqlite_catalog):
    session.insert("t", spark.sql(FED.format(3, "three")).coalesce(1))
    session.update("t", {"name": "upper(name)"}, "id <= 2")
    session.delete("t", "id = 2")
    session.merge("t", spark.sql(FED.format(4, "four")), ["id"], update_all=True, insert_all=True)
    session.sql("INSERT INTO t SELECT id + 10, name, made FROM t WHERE id = 3")
    session.merge_adjacent_files("t")
    session.rewrite_data_files("t", delete_threshold=0)

    with open_lake(sqlite_catalog) as reference:
        found = reference.sql("SELECT id, name, made = '2026-01-01 00:00:00Z' FROM t ORDER BY id")
    assert found == [(1, "ONE", False), (3, "three", True), (4, "four", True), (13, "three", True)]
    assert session._lake.verify() == []


def test_rows_without_the_column_are_refused(session, spark):
    with pytest.raises(UnsupportedFeatureError, match=r"made is missing .* now"):
        session.merge(
            "t",
            spark.sql("SELECT 5 AS id, 'five' AS name"),
            ["id"],
            when_not_matched=[{"insert": {"id": "source.id", "name": "source.name"}}],
        )
