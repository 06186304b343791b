"""Encrypted lakes in Spark: every verb, read by the reference; and what it wrote, by us."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.test_encrypted_lakes import COLUMNS, SELECT, check_sealed, keys, rows
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", COLUMNS)
        yield lake


@pytest.fixture
def session(spark, lake) -> LakeSession:
    return LakeSession(spark, lake)


def both(catalog, lake: Lake, session: LakeSession) -> list[dict]:
    """Return the rows as we read them, which are those that the reference and Spark read."""
    ours = lake.read_arrow("t").sort_by("id").to_pylist()
    with open_lake(catalog, encrypted=True) as duckdb:
        assert duckdb.arrow(SELECT).to_pylist() == ours
    assert session.read("t").orderBy("id").toArrow().to_pylist() == ours
    check_sealed(catalog)
    assert None not in keys(catalog)
    assert lake.verify() == []
    return ours


def test_every_verb_keeps_the_lake_encrypted_and_right(spark, session, lake, sqlite_catalog):
    session.insert("t", spark.createDataFrame(rows()))
    assert len(both(sqlite_catalog, lake, session)) == 5_000

    first = session.delete("t", "id % 10 = 3")
    session.update("t", {"word": "'changed'"}, "id % 100 = 1")
    last = session.merge(
        "t", spark.createDataFrame(rows(4_990, 20)), ["id"], update_all=True, insert_all=True
    )
    found = both(sqlite_catalog, lake, session)
    assert len(found) == 4_511
    assert {row["word"] for row in found if row["id"] % 100 == 1 and row["id"] < 4_990} == {"changed"}
    kinds = session.changes("t", first.id, last.id).groupBy("change_type").count().collect()
    ours = lake.changes("t", first.id, last.id).read_arrow()["change_type"].value_counts().to_pylist()
    assert {one["change_type"]: one["count"] for one in kinds} == {
        one["values"]: one["counts"] for one in ours
    }

    session.rewrite_data_files("t", delete_threshold=0.0)
    session.insert("t", spark.createDataFrame(rows(10_000, 10)).coalesce(1))
    session.merge_adjacent_files("t")
    found += rows(10_000, 10).to_pylist()
    assert both(sqlite_catalog, lake, session) == found
    assert len(set(keys(sqlite_catalog))) == len(keys(sqlite_catalog))


def test_what_the_reference_wrote_is_read_and_changed(session, sqlite_catalog, lake):
    with open_lake(sqlite_catalog, encrypted=True, data_inlining_row_limit=0) as duckdb:
        duckdb.raw.register("given", rows())
        duckdb.sql("INSERT INTO t FROM given")
        duckdb.sql("DELETE FROM t WHERE id % 7 = 3")
    session.delete("t", "id % 7 = 4")
    session.update("t", {"word": "upper(word)"}, "word = 'word 5'")
    assert "WORD 5" in {row["word"] for row in both(sqlite_catalog, lake, session)}
