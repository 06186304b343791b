"""Rows by the boxes of their geometries in Spark: read, changed and replaced as DuckDB finds them."""

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.catalog.drafting import overwrite
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidPredicateError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.reading.row_filter import condition
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote
from airflow_provider_ducklake.lake.spec.schema import new_columns
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake

GEOMETRIES = (
    *("POINT(1 2)", "LINESTRING Z (0 0 7, 4 4 7)", "POLYGON((10 10, 12 10, 12 12, 10 10))", "POINT EMPTY"),
    *("MULTIPOINT(EMPTY, 3 3)", "GEOMETRYCOLLECTION(POINT(-5 -5), LINESTRING EMPTY)", None, "POINT(11 11)"),
)
AROUND = "POLYGON((2 2, 11 2, 11 11, 2 11, 2 2))"
CONDITIONS = (
    f"g && '{AROUND}'::GEOMETRY",
    f"NOT g && '{AROUND}'",
    f"s.g && GEOMETRY '{AROUND}' AND id < 5",
    f"g IS NULL OR '{AROUND}' && g",
)


@pytest.fixture
def catalog(sqlite_catalog):
    """A table of these geometries, twice in each row, in two files."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id INTEGER, g GEOMETRY, s STRUCT(g GEOMETRY))")
        for part in (range(4), range(4, 8)):
            cells = ((number, GEOMETRIES[number]) for number in part)
            rows = ", ".join(
                f"({number}, {text}, {{'g': {text}}})"
                for number, one in cells
                for text in ["NULL::GEOMETRY" if one is None else f"'{one}'::GEOMETRY"]
            )
            reference.sql(f"INSERT INTO t VALUES {rows}")
    return sqlite_catalog


@pytest.fixture
def session(spark, catalog):
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield LakeSession(spark, lake)


def theirs(catalog, query: str) -> list[int]:
    with open_lake(catalog) as reference:
        reference.sql("CREATE TEMP TABLE copied AS FROM t")
        return [id_ for (id_,) in reference.sql(query)]


def test_rows_are_read_as_duckdb_finds_them(session, catalog):
    found = [
        session.read("t", filter=where, columns=["id"]).withColumn("number", f.lit(number))
        for number, where in enumerate(CONDITIONS)
    ]

    read = sorted((row.number, row.id) for row in reduce(DataFrame.union, found).collect())

    wanted = [f"SELECT id FROM copied WHERE {where} ORDER BY id" for where in CONDITIONS]
    assert read == [(number, id_) for number, query in enumerate(wanted) for id_ in theirs(catalog, query)]


def test_rows_are_deleted_and_updated_as_duckdb_finds_them(session, catalog):
    kept = theirs(catalog, f"SELECT id FROM copied WHERE (NOT {CONDITIONS[0]}) IS NOT FALSE ORDER BY id")

    session.update("t", {"id": "id + 100"}, f"g && '{AROUND}' AND id < 4")
    assert theirs(catalog, "SELECT id FROM copied ORDER BY id") == [0, 3, 4, 5, 6, 7, 101, 102]
    session.delete("t", CONDITIONS[0])

    assert theirs(catalog, "SELECT id FROM copied ORDER BY id") == kept == [0, 3, 5, 6]
    assert session.delete("t", "g && 'POINT(99 99)'") is None


def test_rows_around_a_box_are_replaced_wherever_they_are_found(session, catalog, monkeypatch):
    monkeypatch.setattr(overwrite, "MOST_BYTES_READ", 0)
    rows = "SELECT 50 AS id, g, s FROM t WHERE id = 7"
    sources = {"t": session.read("t")}
    session.insert("t", sql=rows, sources=sources, overwrite_where=CONDITIONS[0])

    assert theirs(catalog, "SELECT id FROM copied ORDER BY id") == [0, 3, 5, 6, 50]


def test_what_spark_sql_cannot_say_is_refused_by_name(session):
    with pytest.raises(UnsupportedFeatureError, match=r"on: .* has &&, which Spark SQL does not"):
        session.merge(
            "t",
            sql="SELECT 1 AS id",
            on="target.id = source.id AND target.g && 'POINT(1 2)'",
            when_matched=[{"delete": True}],
        )
    with pytest.raises(UnsupportedFeatureError, match=r"A value of the clause update: .* has &&"):
        session.update("t", {"id": "if(g && 'POINT(1 2)', 1, 2)"}, "id = 1")
    with pytest.raises(InvalidPredicateError, match="expected a column here"):
        session.delete("t", "g && 'POINT(1 2)' AND abs(id) = 1")


def test_a_value_that_is_no_geometry_fails_the_read(spark):
    schema = new_columns({"g": "geometry"})
    rows = spark.createDataFrame([(bytearray(b"\x07"),)], "g binary")

    with pytest.raises(Exception, match="no geometry in WKB") as raised:
        rows.where(condition(read_predicate("g && 'POINT(1 2)'", schema, "t"), schema)).collect()

    assert isinstance(typed(raised.value), StorageError)


def test_a_filter_with_a_function_brings_this_package_to_a_server(own, catalog):
    def place(_: int) -> str:
        import airflow_provider_ducklake  # noqa: PLC0415 - the one of the task

        return str(airflow_provider_ducklake.__file__)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        LakeSession(own, lake).read("t", filter=f"id > 1 AND ({CONDITIONS[0]})")

    ((found,),) = own.range(1).select(f.udf(place, "string", useArrow=False)("id")).collect()
    assert (".zip/" in found) == is_remote(own)


def test_a_default_that_duckdb_gave_an_added_column_is_read_filtered_and_rewritten(session, catalog):
    with open_lake(catalog) as reference:
        reference.sql("ALTER TABLE t ADD COLUMN d GEOMETRY DEFAULT 'POINT Z (7 8 9)'")

    assert session.read("t", filter="d && 'POINT(7 8)'").count() == len(GEOMETRIES)
    assert session.read("t", filter="d && 'POINT(7 9)'").count() == 0
    session.update("t", {"id": "id + 100"}, where="id < 2")

    with open_lake(catalog) as reference:
        found = reference.sql("SELECT d::VARCHAR, count(*), count_if(id >= 100) FROM t GROUP BY ALL")
    assert found == [("POINT Z (7 8 9)", len(GEOMETRIES), 2)]
