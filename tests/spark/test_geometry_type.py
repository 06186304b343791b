"""Spark's own type of geometries, which it has since 4.2: what goes into a lake, and what does not."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidTypeError, SchemaMismatchError
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake

POINTS = (
    "SELECT id, st_geomfromwkb(unhex('0101000000000000000000f03f00000000000000' || '40')) AS g FROM range(2)"
)


@pytest.fixture
def session(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "g": "geometry"})
        yield LakeSession(spark, lake)


def test_they_are_inserted_merged_and_make_tables(spark, session, sqlite_catalog):
    points = spark.sql(POINTS)
    nested = points.selectExpr("id", "named_struct('g', g) AS s", "array(g, NULL) AS l")

    session.insert("t", points)
    session.merge("t", points.where("id = 1"), ["id"], update_all=True)
    session.insert("made", nested, create_table=True)

    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("SELECT id, g::VARCHAR FROM t ORDER BY 1") == [
            (0, "POINT (1 2)"),
            (1, "POINT (1 2)"),
        ]
        found = reference.sql("SELECT s.g::VARCHAR, l[1]::VARCHAR, l[2] FROM made")
        assert found == [("POINT (1 2)", "POINT (1 2)", None)] * 2


def test_one_with_an_srid_is_refused_with_the_way_out(spark, session):
    points = spark.sql(POINTS).selectExpr("id", "st_setsrid(g, 4326) AS g")

    with pytest.raises(SchemaMismatchError, match=r"geometry\(4326\) does not fit.*no SRID.*st_asbinary"):
        session.insert("t", points)
    with pytest.raises(InvalidTypeError, match=r"geometry\(4326\)"):
        session.insert("made", points, create_table=True)

    session.insert("t", points.selectExpr("id", "st_asbinary(g) AS g"))
    assert session.read("t").count() == 2
