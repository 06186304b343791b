"""Texts of a catalog or a user are data for Spark: none runs a program, calls Java or reads a variable."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spark.job.request import LakeSource, Step
from airflow_provider_ducklake.lake.spark.jobs.sql import rows_of
from airflow_provider_ducklake.lake.spark.sessions.settings import no_named_files
from airflow_provider_ducklake.lake.spark.sources import query
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.sql.spark.lake_views import FUNCTIONS, checked_text
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.unit.sql.view_texts import ORDINARY

NAME = QualifiedName.of("main.v")
LEFT_OUT = {
    "calls Java": "java_method reflect try_reflect",
    "loads classes, or opens what its arguments name": """
        from_avro to_avro schema_of_avro from_protobuf to_protobuf from_xml to_xml schema_of_xml xpath
        xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """,
    "describes the session or the job": """
        current_catalog current_database current_path current_schema input_file_block_length
        input_file_block_start input_file_name spark_partition_id version
    """,
    "is a table function": "collations python_worker_logs range sql_keywords",
    "decodes sketches": """
        approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate bitmap_and_agg
        bitmap_construct_agg bitmap_or_agg count_min_sketch hll_sketch_agg hll_sketch_estimate hll_union
        hll_union_agg
    """,
    "is an operator or a clause": "and between case div in not or when",
    "is not of use in views": """
        is_valid_variant measure time_bucket vector_avg vector_cosine_similarity vector_inner_product
        vector_l2_distance vector_norm vector_normalize vector_sum
    """,
}
SKETCHES = ("kll_", "theta_", "tuple_")


def functions_of(spark) -> set[str]:
    names = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return {name for name in names if name.replace("_", "a").isalnum()}  # the others are operators


def test_each_function_of_spark_is_one_of_views_or_left_out_for_a_reason(spark):
    of_spark = functions_of(spark)
    left_out = {name for names in LEFT_OUT.values() for name in names.split()}
    undecided = {name for name in of_spark - FUNCTIONS - left_out if not name.startswith(SKETCHES)}

    assert undecided == set()
    assert FUNCTIONS & left_out == set()
    assert FUNCTIONS - of_spark == {"timestampadd", "timestampdiff", "try_cast"}  # of its grammar


def test_views_call_none_of_the_functions_that_are_left_out(spark):
    left_out = sorted(functions_of(spark) - FUNCTIONS - set(LEFT_OUT["is an operator or a clause"].split()))
    assert len(left_out) > 50

    for name in left_out:
        for text in (f"SELECT {name}(a) FROM t", f"SELECT `{name}`('a', 'b') AS x FROM t"):
            with pytest.raises(UnsupportedFeatureError, match=r"View main.v, line 1"):
                checked_text(NAME, text)


@pytest.mark.classic_only("asks the JVM's parser")
def test_spark_reads_a_checked_query_as_the_one_that_was_written(spark):
    parser = spark._jsparkSession.sessionState().sqlParser()

    def plan(text: str) -> str:
        lines = re.sub(r"#\d+", "", parser.parsePlan(text).toString()).splitlines()
        return "\n".join(lines)

    other = [text for text in ORDINARY if "/*+" not in text and plan(text) != plan(checked_text(NAME, text))]
    assert other == []


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/files/") as lake:
        with lake.transaction() as transaction:
            transaction.create_table("main.t", {"id": "int64", "s": "varchar"})
            transaction.create_view("main.v", "SELECT id, s FROM t", dialect="spark")
            transaction.create_view("main.w", "SELECT id, s FROM v", dialect="spark")
        lake.append_arrow("main.t", pa.table({"id": pa.array([1], pa.int64()), "s": ["a"]}))
        yield lake


@pytest.mark.parametrize("read", ["v", "w"])
def test_views_that_somebody_changed_run_nothing(lake, spark, tmp_path, read):
    (tmp_path / "file.txt").write_text("only the worker's")
    session = LakeSession(spark, lake)
    program = f"SELECT TRANSFORM(id) USING 'touch {tmp_path}/ran; cat' AS (s STRING) FROM t"
    for sql in (
        f"SELECT 1L AS id, s FROM ({program})",
        "SELECT id, java_method('java.lang.System', 'getenv', 'PATH') AS s FROM t",
        "SELECT id, '${env:PATH}' AS s FROM t",
        f"SELECT 1L AS id, value AS s FROM text.`{tmp_path}/file.txt`",
        f"SELECT 1L AS id, value AS s FROM `{tmp_path}/file.txt`",
        f"SELECT 1L AS id, value AS s FROM LATERAL text.`{tmp_path}/file.txt`",
        "SELECT id, s FROM LATERAL other_team",
        "WITH stream AS (SELECT 1) SELECT id, s FROM stream other_team",
        "SELECT id, s -- \\\n, reflect('java.lang.System', 'setProperty', 'pt_ran', 'yes') FROM t",
    ):
        with sqlite3.connect(tmp_path / "lake.sqlite") as catalog:
            catalog.execute("UPDATE ducklake_view SET sql = ? WHERE view_name = 'v'", [sql])

        with pytest.raises((UnsupportedFeatureError, NotFoundError)):
            session.sql(f"CREATE OR REPLACE TABLE out AS SELECT id, s FROM {read}")

    assert not (tmp_path / "ran").exists()
    assert "out" not in {table.name for table in lake.tables()}


@pytest.mark.classic_only("asks Spark's parser")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT value AS s FROM LATERAL text.`{file}`",
        "SELECT s FROM spark_catalog.default.other_team",
        "SELECT (SELECT max(s) FROM other_team) AS s FROM t",
        "WITH RECURSIVE a AS (SELECT s FROM other_team), other_team AS (SELECT s FROM t) SELECT s FROM a",
        "SELECT s FROM (WITH other_team AS (SELECT s FROM t) SELECT * FROM other_team), other_team",
        "WITH stream AS (SELECT s FROM t) SELECT s FROM stream other_team",
    ],
)
def test_a_job_refuses_what_its_spark_takes_for_a_relation_of_its_own(lake, spark, tmp_path, sql):
    step = Step(sql.format(file=tmp_path / "file.txt"), view="v")

    with pytest.raises(
        InvalidInputError, match=r"names (text, .*/file.txt|(.*, )?other_team) where Spark would"
    ):
        rows_of(spark, LakeSource({"t": lake.scan("t")}, steps=(step,)), ())


def test_a_job_takes_queries_of_common_tables_and_of_its_own_views(lake, spark):
    texts = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT id FROM T WHERE EXISTS (WITH t AS (SELECT 1) FROM t) AND id IN (SELECT 1 FROM `a, b`)",
        "SELECT " + "(SELECT max(id) FROM t WHERE id = " * 20 + "1" + ")" * 20,
    )
    steps = (Step("SELECT * FROM t", view="a, b"), *(Step(text, view="v") for text in texts))

    assert rows_of(spark, LakeSource({"t": lake.scan("t")}, steps=steps), ()) == []


def test_files_are_not_named_in_sql_of_any_session_while_a_job_reads_its_own(spark, tmp_path):
    (tmp_path / "file.txt").write_text("only the worker's")
    text = f"SELECT value FROM text.`{tmp_path}/file.txt`"

    with no_named_files(spark), pytest.raises(InvalidInputError, match="TABLE_OR_VIEW_NOT_FOUND"):
        query(spark, text)
    assert query(spark, text).count() == 1


VARIABLE = "${env:PATH}"


def test_no_text_of_a_user_reads_the_drivers_variables(lake, spark):
    session = LakeSession(spark, lake)

    session.sql(f"INSERT INTO t SELECT 2L, '{VARIABLE}'")
    session.update("t", {"s": f"'{VARIABLE}'"}, "id = 1")
    session.sql(f"INSERT INTO t SELECT 3L, s FROM t WHERE s = '{VARIABLE}' AND id = 1")
    session.delete("t", f"s = '{VARIABLE}' AND id = 2")

    rows = sorted(lake.read_arrow("t").to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "s": VARIABLE}, {"id": 3, "s": VARIABLE}]


def test_a_macro_of_the_catalog_gives_its_text_and_no_variable(lake, spark):
    with lake.transaction() as transaction:
        transaction.create_macro("main.m", f"(a) AS a || '{VARIABLE}'")
    session = LakeSession(spark, lake)

    session.sql("CREATE TABLE out AS SELECT main.m(s) AS s FROM t")

    assert lake.read_arrow("out").to_pylist() == [{"s": f"a{VARIABLE}"}]


def test_names_of_columns_are_no_variables_in_any_verb(lake, spark):
    with lake.transaction() as transaction:
        transaction.create_table("main.odd", {"id": "int64", VARIABLE: "varchar"})
    lake.append_arrow("main.odd", pa.table({"id": pa.array([1], pa.int64()), VARIABLE: ["a"]}))
    session = LakeSession(spark, lake)
    rows = session.read("main.odd")

    session.merge("main.odd", rows, ["id"], when_matched=[{"update": "*"}])
    session.insert("main.odd", rows)
    session.update("main.odd", {VARIABLE: "'c'"}, "id = 1")

    assert rows.collect() == [(1, "a")]
    assert lake.read_arrow("main.odd").to_pylist() == [{"id": 1, VARIABLE: "c"}] * 2
