"""Encrypted lakes in Spark: every verb, read by the reference; and what it wrote, by us."""

import base64
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import alone
from tests.interop.test_encrypted_lakes import COLUMNS, SELECT, check_sealed, contents_seen, keys, rows
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
        yield lake


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


def seen_on_disk(spark: SparkSession) -> AbstractContextManager[set[bytes]]:
    """Collect what new files below Spark's local directory contain meanwhile."""
    local = Path(spark.conf.get("spark.local.dir"))
    old = set(local.rglob("*"))
    return contents_seen(lambda: set(local.rglob("*")) - old)


@pytest.fixture
def functions_in_files(spark) -> Iterator[set[bytes]]:
    """Have Spark put even small functions of tasks into files; return what is in them."""
    if is_remote(spark):  # its server has them in memory
        yield set()
        return
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.broadcast.UDFCompressionThreshold", "1")
    yield {b"rows_of_file", b"compact_bin", b"_BinWriter"}
    conf.remove("spark.broadcast.UDFCompressionThreshold")


def test_spark_leaves_no_key_on_local_disks(spark, session, lake, sqlite_catalog, functions_in_files):
    session.insert("t", spark.createDataFrame(rows()))
    secrets: set[str] = set()
    with seen_on_disk(spark) as seen:
        first = session.delete("t", "id % 10 = 3")
        assert session.read("t").toArrow().num_rows == 4_500
        secrets |= set(keys(sqlite_catalog))
        session.rewrite_data_files("t", delete_threshold=0.0)
        last = session.insert("t", spark.createDataFrame(rows(10_000, 10)).coalesce(1))
        assert session.changes("t", first.id, last.id).toArrow().num_rows == 510
        secrets |= set(keys(sqlite_catalog))
        alone(lake).set_sorted_by("t", ["word"])
        session.merge_adjacent_files("t")
        secrets |= set(keys(sqlite_catalog))

    assert session.read("t").count() == 4_510
    assert seen
    assert {name for name in functions_in_files if any(name in one for one in seen)} == functions_in_files
    forms = {form for key in secrets for form in (key.encode(), base64.b64decode(key))}
    assert len(forms) >= 10
    assert not [one for one in seen if any(form in one for form in forms)]
