"""Texts of a catalog or a user are data for Spark: none runs a program, calls Java or reads a variable."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spark.job.request import LakeSource, Step
from airflow_provider_ducklake.lake.spark.jobs.lake_views import FUNCTIONS
from airflow_provider_ducklake.lake.spark.jobs.sql import rows_of
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import alone
from tests.spark.view_fuzz import ATTACKS, CANARY, DEFAULT, SET, Judge, report
from tests.unit.sql.view_texts import HARMLESS, HOSTILE, ORDINARY

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


@pytest.fixture(scope="module")
def judge(spark) -> Judge:
    return Judge(spark)


@pytest.mark.classic_only("asks Spark's parser")
@pytest.mark.parametrize("texts", [ORDINARY, HARMLESS], ids=["ordinary", "harmless"])
def test_queries_that_only_compute_rows_pass(judge, texts):
    refused = {text: problem for text in texts if (problem := judge.problem(text)) is not None}

    assert refused == {}


@pytest.mark.classic_only("asks Spark's parser")
def test_queries_that_do_more_than_compute_rows_are_refused(judge):
    assert [text for text in HOSTILE if judge.problem(text) is None] == []


@pytest.mark.classic_only("asks Spark's parser")
def test_views_call_none_of_the_functions_that_are_left_out(spark, judge):
    left_out = sorted(functions_of(spark) - FUNCTIONS - set(LEFT_OUT["is an operator or a clause"].split()))
    assert len(left_out) > 50

    for name in left_out:
        for text in (f"SELECT {name}(a) FROM t", f"SELECT `{name}`('a', 'b') AS x FROM t"):
            assert judge.problem(text) is not None


CALL = "java_method('java.lang.System', 'getenv', 'PATH')"
PLACES = (
    "SELECT {call} AS x",
    "SELECT upper(concat({call}, 'a')) FROM t",
    "SELECT a FROM t WHERE id > 1 AND {call} = 'x'",
    "SELECT a FROM t JOIN u ON {call} = u.a",
    "SELECT a FROM t GROUP BY a, {call}",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), ({call}))",
    "SELECT a FROM t GROUP BY CUBE (a, {call})",
    "SELECT a FROM t GROUP BY a HAVING {call} = 'x'",
    "SELECT a FROM t QUALIFY row_number() OVER (ORDER BY {call}) = 1",
    "SELECT a FROM t ORDER BY {call}",
    "SELECT a FROM t LIMIT length({call})",
    "SELECT a FROM t OFFSET length({call})",
    "SELECT sum(a) OVER (PARTITION BY {call}) FROM t",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY {call})",
    "SELECT a FROM t WINDOW w AS (PARTITION BY {call})",
    "SELECT sum(a) FILTER (WHERE {call} = 'x') FROM t",
    "SELECT listagg(a, ',') WITHIN GROUP (ORDER BY {call}) FROM t",
    "SELECT * FROM VALUES (1, {call}) AS v(id, name)",
    "SELECT * FROM t PIVOT (max({call}) FOR b IN ('a'))",
    "SELECT * FROM t PIVOT (max(a) FOR b IN ({call}))",
    "SELECT * FROM t LATERAL VIEW explode(array({call})) e AS x",
    "SELECT * FROM t, LATERAL explode(array({call})) AS e(x)",
    "SELECT * FROM t, LATERAL (SELECT {call} AS x) AS l",
    "WITH c AS (SELECT {call} AS x) SELECT * FROM c",
    "WITH c AS (SELECT {call} AS x) SELECT a FROM t",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + {call} FROM r WHERE n < 5) SELECT n FROM r",
    "SELECT (SELECT {call}) AS x FROM t",
    "SELECT a FROM t WHERE a IN (SELECT {call} FROM u)",
    "SELECT a FROM t WHERE EXISTS (WITH c AS (SELECT {call} AS x) SELECT * FROM c)",
    "SELECT a FROM t UNION ALL SELECT {call}",
    "SELECT transform(items, x -> {call}) FROM t",
    "SELECT CASE WHEN a = 1 THEN {call} END, s[{call}], CAST({call} AS INT) FROM t",
    "SELECT a BETWEEN {call} AND 2, a LIKE {call}, a IN (1, {call}) FROM t",
    "SELECT /*+ REPARTITION(2, {call}) */ a FROM t",
    "WITH DIV AS (SELECT 1 AS a) SELECT a FROM (SELECT 1 AS FROM , FROM DIV {call}) AS q(a)",
)


@pytest.mark.classic_only("asks Spark's parser")
def test_a_call_is_seen_wherever_it_stands(judge):
    seen = {text: judge.problem(text.format(call=CALL)) or "" for text in PLACES}

    assert [text for text, problem in seen.items() if "calls 'java_method'" not in problem] == []


@pytest.mark.classic_only("asks Spark's parser")
def test_a_schema_in_json_is_refused_as_spark_runs_the_defaults_in_it(judge, spark):
    ways = [
        f"'{DEFAULT}'",
        f"concat('', '{DEFAULT}')",
        f"'{DEFAULT}' || ''",
        f"from_json('{DEFAULT}', 'a INT')",
    ]
    for function, value in (("from_json", "'{}'"), ("FROM_CSV", "'1'")):
        for way in ways:
            assert "with a schema that" in judge.problem(f"SELECT {function}({value}, {way}).a AS x")
        assert judge.problem(f"SELECT {function}({value}, schema_of_json('{{\"a\": 1}}')) AS x") is None
    [[shown]] = spark.sql(f"SELECT from_json('{{}}', '{DEFAULT}').a").collect()
    assert shown.startswith(spark.version)  # what version() gives, which views may not call


@pytest.mark.classic_only("asks Spark's parser")
def test_drawn_texts_that_pass_do_no_more_than_compute_rows(judge, seed):
    done = report(judge, seed, most=150)

    assert done.passed > 5
    assert not done.found, str(done)


@pytest.mark.soak
@pytest.mark.classic_only("asks Spark's parser")
@pytest.mark.timeout(1500)
def test_texts_drawn_for_twenty_minutes_that_pass_do_no_more_than_compute_rows(judge, seed):
    done = report(judge, seed, seconds=1200)

    assert not done.found, str(done)


@pytest.mark.classic_only("asks Spark's parser")
def test_the_drawn_texts_find_a_gate_that_is_open(spark):
    """Of Spark's plan, JSON leaves out the definitions of windows."""

    def by_its_json(plan) -> str | None:
        return "calls" if any(one in plan.toJSON() for one in ("java_method", "EXISTS_DEFAULT")) else None

    done = report(Judge(spark, by_its_json), 0, most=len(ATTACKS))

    seen = {problem for problems in done.found.values() for problem in problems}
    assert "ran" in seen
    assert any(CANARY in text and "WINDOW" in text for text in done.found)
    assert any("ScriptTransformation" in problem for problem in seen)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/files/") as lake:
        with lake.transaction() as transaction:
            transaction.create_table("main.t", {"id": "int64", "s": "varchar"})
            transaction.create_view("main.v", "SELECT id, s FROM t", dialect="spark")
            transaction.create_view("main.w", "SELECT id, s FROM v", dialect="spark")
        lake.append_arrow("main.t", pa.table({"id": pa.array([1], pa.int64()), "s": ["a"]}))
        yield lake


def changed(tmp_path: Path, sql: str) -> None:
    """Change the view v, as anybody who writes the catalog can."""
    with sqlite3.connect(tmp_path / "lake.sqlite") as catalog:
        catalog.execute("UPDATE ducklake_view SET sql = ? WHERE view_name = 'v'", [sql])


COPY = "CREATE OR REPLACE TABLE out AS SELECT * FROM "


@pytest.mark.parametrize("read", ["v", "w"])
def test_views_that_somebody_changed_run_nothing(lake, spark, tmp_path, read):
    (tmp_path / "file.txt").write_text("only the worker's")
    session = LakeSession(spark, lake)
    program = f"SELECT TRANSFORM(id) USING 'touch {tmp_path}/ran; cat' AS (s STRING) FROM t"
    for sql in (
        f"SELECT 1L AS id, s FROM ({program})",
        "SELECT id, java_method('java.lang.System', 'getenv', 'PATH') AS s FROM t",
        f"WITH DIV AS (SELECT 1 AS a) SELECT a, b FROM (SELECT 1 AS FROM , FROM DIV {SET}) AS q(a, b)",
        f"SELECT 1L AS id, value AS s FROM text.`{tmp_path}/file.txt`",
        f"SELECT 1L AS id, value AS s FROM `{tmp_path}/file.txt`",
        f"SELECT 1L AS id, value AS s FROM LATERAL text.`{tmp_path}/file.txt`",
        "SELECT id, s FROM LATERAL other_team",
        "WITH stream AS (SELECT 1) SELECT id, s FROM stream other_team",
        "SELECT s FROM (WITH other_team AS (SELECT s FROM t) SELECT * FROM other_team), LATERAL other_team",
    ):
        changed(tmp_path, sql)

        with pytest.raises(DuckLakeError):
            session.sql(f"{COPY}{read}")

    assert not (tmp_path / "ran").exists()
    assert "out" not in {table.name for table in lake.tables()}


@pytest.mark.classic_only("asks Spark's parser")
def test_what_a_view_may_not_have_is_named_with_the_view_and_the_ways_out(lake, spark, tmp_path):
    changed(tmp_path, "SELECT id,\n reflect('java.lang.System', 'exit') AS s FROM t")

    with pytest.raises(
        UnsupportedFeatureError,
        match=r"View main\.v: its query calls 'reflect', .*the task's own sql; .*trust_views=True",
    ):
        LakeSession(spark, lake).sql(f"{COPY}w")


@pytest.mark.parametrize("read", ["v", "w"])
def test_a_trusted_view_runs_in_any_session(lake, spark, tmp_path, read):
    changed(tmp_path, "SELECT id, java_method('java.lang.Math', 'abs', -7) || \"text\" AS s FROM t")
    session = LakeSession(spark, lake)

    session.sql(f"{COPY}{read}", trust_views=True)
    session.merge("t", on=["id"], source_table=read, update_all=True, trust_views=True)

    for table in ("out", "t"):
        assert lake.read_arrow(table).to_pylist() == [{"id": 1, "s": "7text"}]
    with pytest.raises(InvalidInputError, match="trust_views is 'maybe'"):
        session.sql(f"{COPY}{read}", trust_views="maybe")


def test_a_view_is_not_read_with_spark_connect_unless_it_is_trusted(lake, spark):
    session = LakeSession(spark, lake)
    if not is_remote(spark):
        session.sql(f"{COPY}w")
        assert lake.read_arrow("out").num_rows == 1
        return

    for read in (
        lambda: session.sql(f"{COPY}w"),
        lambda: session.merge("t", on=["id"], source_table="v", update_all=True),
    ):
        with pytest.raises(
            UnsupportedFeatureError,
            match=r"View main\.v: its query cannot be checked before a Spark Connect .*trust_views=True",
        ):
            read()


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
        "SELECT s FROM t WITH (`a` = 'b'), other_team",
    ],
)
def test_a_view_reads_no_table_or_view_of_sparks_own(lake, spark, tmp_path, sql):
    spark.sql("SELECT 'theirs' AS s").createOrReplaceTempView("other_team")
    step = Step(sql.format(file=tmp_path / "file.txt"), view="v", lake_view="main.v")

    with pytest.raises(
        UnsupportedFeatureError,
        match=r"View main\.v: .*(reads '(text|.*other_team|t)|NamedStreamingRelation)",
    ):
        rows_of(spark, LakeSource({"t": lake.scan("t")}, steps=(step,)), ())
    spark.catalog.dropTempView("other_team")


@pytest.mark.classic_only("asks Spark's parser")
def test_a_view_takes_common_tables_and_other_views_of_the_lake(lake, spark):
    texts = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT id FROM t WHERE EXISTS (WITH t AS (SELECT 1) FROM t) AND id IN (SELECT 1 FROM `a, b`)",
        "SELECT " + "(SELECT max(id) FROM t WHERE id = " * 20 + "1" + ")" * 20,
    )
    steps = (
        Step("SELECT * FROM t", view="a, b", lake_view="main.a"),
        *(Step(text, view="v", lake_view="main.v") for text in texts),
    )

    assert rows_of(spark, LakeSource({"t": lake.scan("t")}, steps=steps), ()) == []


def test_strings_of_a_view_mean_the_same_whatever_the_session_has_set(lake, own, tmp_path):
    own.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    own.conf.set("spark.sql.variable.substitute", "true")
    changed(tmp_path, "SELECT id, \"s\" || 'it\\'s ${env:PATH}' AS s FROM t")

    LakeSession(own, lake).sql(f"{COPY}v", trust_views=is_remote(own))

    assert lake.read_arrow("out").to_pylist() == [{"id": 1, "s": "sit's ${env:PATH}"}]


VARIABLE = "${env:PATH}"


def test_no_text_of_a_user_reads_the_drivers_variables(lake, spark):
    session = LakeSession(spark, lake)

    session.sql(f"INSERT INTO t SELECT 2L, '{VARIABLE}'")
    session.update("t", {"s": f"'{VARIABLE}'"}, "id = 1")
    session.sql(f"INSERT INTO t SELECT 3L, s FROM t WHERE s = '{VARIABLE}' AND id = 1")
    session.delete("t", f"s = '{VARIABLE}' AND id = 2")

    rows = sorted(lake.read_arrow("t").to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "s": VARIABLE}, {"id": 3, "s": VARIABLE}]


def test_names_of_columns_are_no_variables_in_any_verb(lake, spark):
    alone(lake).create_table("main.odd", {"id": "int64", VARIABLE: "varchar"})
    lake.append_arrow("main.odd", pa.table({"id": pa.array([1], pa.int64()), VARIABLE: ["a"]}))
    session = LakeSession(spark, lake)
    rows = session.read("main.odd")

    session.merge("main.odd", rows, ["id"], when_matched=[{"update": "*"}])
    session.insert("main.odd", rows)
    session.update("main.odd", {VARIABLE: "'c'"}, "id = 1")

    assert rows.collect() == [(1, "a")]
    assert lake.read_arrow("main.odd").to_pylist() == [{"id": 1, VARIABLE: "c"}] * 2
