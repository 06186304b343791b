"""Columns that come in with rows: the catalog is that of ALTER TABLE and INSERT in one transaction."""

import logging

import pytest

from airflow_provider_ducklake.hooks.task import verbs_logged_by
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice, InsertMode, SchemaEvolution
from tests.differential.twin import Twin
from tests.interop.lakes import by_duckdb
from tests.spark.inserting import insert, new_lake, rows_of

ADD = InsertChoice(evolution=SchemaEvolution.ADD_COLUMNS)
WIDEN = InsertChoice(evolution=SchemaEvolution.ADD_AND_WIDEN)
N = 20  # rows, more than the reference keeps in the catalog

# (columns of the table, what comes in of Spark, ALTER of the reference, INSERT of the reference)
CASES = {
    "a column, in other letters, and defaults": (
        "ID INT, note VARCHAR DEFAULT 'none', price DECIMAL(5,2) DEFAULT 1.5, Name VARCHAR",
        "CAST(id AS INT) AS id, CAST(id AS STRING) AS NAME, id * 2 AS more",
        ["ADD COLUMN more BIGINT"],
        "(id, name, more) SELECT range, range::VARCHAR, range * 2",
    ),
    "fields at every depth": (
        "a STRUCT(x INT), l STRUCT(y INT)[], i INT",
        (
            "CAST(id AS INT) AS i, named_struct('X', CAST(id AS INT), 'w', 'a', 's', struct(id AS z)) AS a, "
            "array(named_struct('v', id, 'y', 1)) AS l"
        ),
        ["ADD COLUMN a.w VARCHAR", "ADD COLUMN a.s STRUCT(z BIGINT)", "ADD COLUMN l.element.v BIGINT"],
        "SELECT {'x': range::INT, 'w': 'a', 's': {'z': range}}, [{'y': 1, 'v': range}], range::INT",
    ),
    "wider types": (
        "i INT, f FLOAT, d DECIMAL(5,2), t DATE",
        (
            "id * 10000000000 AS i, CAST(id AS DOUBLE) + 0.1D AS f, CAST(id AS DECIMAL(10,1)) AS d, "
            "TIMESTAMP_NTZ'2024-01-01 10:00:00' AS t"
        ),
        [
            "ALTER i TYPE BIGINT",
            "ALTER f TYPE DOUBLE",
            "ALTER d TYPE DECIMAL(11,2)",
            "ALTER t TYPE TIMESTAMP",
        ],
        (
            "SELECT range * 10000000000, range::DOUBLE + 0.1::DOUBLE, range::DECIMAL(10,1), "
            "TIMESTAMP '2024-01-01 10:00:00'"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_catalog_is_that_of_alter_and_insert(spark, sqlite_catalog, new_catalog, case):
    columns, incoming, alters, select = CASES[case]
    with Twin(sqlite_catalog, new_catalog("sqlite")) as twin:
        create = f"CREATE TABLE t ({columns})"
        twin.reference.sql(create)
        with twin.lake.transaction() as tx:
            apply_ddl(tx, parse_ddl(create))
        insert(twin.lake, spark.sql(f"SELECT {incoming} FROM range(0, {N}, 1, 1)"), WIDEN)
        twin.reference.sql("BEGIN")
        for alter in alters:
            twin.reference.sql(f"ALTER TABLE t {alter}")
        twin.reference.sql(f"INSERT INTO t {select} FROM range({N})")
        twin.reference.sql("COMMIT")

        differences = [one for one in twin.differences() if "ducklake_data_file 0: path" not in one]
        assert differences == []  # but for the file's name
        expected = twin.reference.sql("FROM t ORDER BY ALL")
    assert rows_of(sqlite_catalog) == expected


SAID = {
    "a column, in other letters, and defaults": "added column more int64",
    "fields at every depth": (
        "added column a.w varchar; added column a.s struct(z int64); added column l.element.v int64"
    ),
    "wider types": (
        "i int32 → int64; f float32 → float64; d decimal(5,2) → decimal(11,2); t date → timestamp"
    ),
}


class Lines(list[str]):
    def log(self, level: int, line: str) -> None:
        self.append(f"{logging.getLevelName(level)} {line}")


@pytest.mark.parametrize("case", CASES)
def test_the_log_names_the_columns_that_were_added_and_widened(spark, sqlite_catalog, case):
    columns, incoming, *_ = CASES[case]
    lines = Lines()
    with new_lake(sqlite_catalog, f"CREATE TABLE t ({columns})") as lake, verbs_logged_by(lines):
        insert(lake, spark.sql(f"SELECT {incoming} FROM range(0, {N}, 1, 1)"), WIDEN)
        insert(lake, spark.sql(f"SELECT {incoming} FROM range(0, {N}, 1, 1)"), WIDEN)

    place = next(place for place, one in enumerate(lines) if "Committed" in one)
    assert lines[place].startswith("INFO Committed snapshot 2 to main.t: 20 rows in 1 file (")
    assert [one for one in lines if "columns" in one] == [f"INFO Its columns: {SAID[case]}"]
    assert lines[place + 1] == f"INFO Its columns: {SAID[case]}"


def test_what_would_narrow_is_listed_as_a_whole(spark, sqlite_catalog):
    table = "CREATE TABLE t (i INT, b BOOLEAN, s STRUCT(x DATE), n INT NOT NULL)"
    rows = spark.sql("SELECT 1.5D AS b, 'x' AS i, named_struct('x', 1L) AS s, 'new' AS more")
    with new_lake(sqlite_catalog, table) as lake:
        for choice in (ADD, WIDEN):
            with pytest.raises(errors.SchemaMismatchError) as raised:
                insert(lake, rows, choice)
            assert [text.split(" in the table")[0] for text in raised.value.differences] == [
                "column n is missing",
                "column i is int32",
                "column b is boolean",
                "column s.x is date",
            ]
        with pytest.raises(errors.SchemaMismatchError, match="column i is int32 in the table; int64"):
            insert(lake, spark.sql("SELECT 1L AS i, 1 AS n"), ADD)
        with pytest.raises(errors.InvalidNameError, match="_ducklake_internal_x"):
            insert(lake, spark.sql("SELECT 1 AS n, 2 AS _ducklake_internal_x"), ADD)


def test_columns_are_added_beside_replaced_rows_and_none_without_rows(spark, sqlite_catalog):
    statements = (
        "CREATE TABLE t (id INT, region VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (region)",
        "INSERT INTO t VALUES (1, 'eu'), (2, 'us')",
    )
    rows = spark.sql("SELECT 3 AS id, 'eu' AS region, NULL AS region_of, 4L AS more")
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=0) as lake:
        partitions = InsertChoice(InsertMode.OVERWRITE_PARTITIONS, evolution=SchemaEvolution.ADD_COLUMNS)
        before = lake.current_snapshot().id
        assert insert(lake, rows.limit(0), partitions)[1] is None
        insert(lake, rows, partitions)
        assert rows_of(sqlite_catalog) == [(2, "us", None), (3, "eu", 4)]  # a column of nothing is none

        overwrite = InsertChoice(where="id < 3", evolution=SchemaEvolution.ADD_AND_WIDEN)
        with pytest.raises(
            errors.SchemaMismatchError, match="column id is int32"
        ):  # its condition is on int32
            insert(lake, spark.sql("SELECT 1L AS id"), overwrite)
        insert(lake, spark.sql("SELECT 1 AS id, 'z' AS last"), overwrite)
        assert lake.current_snapshot().id == before + 2
    assert rows_of(sqlite_catalog) == [(1, None, None, "z"), (3, "eu", 4, None)]


def test_an_alter_meanwhile_is_a_conflict_and_an_append_is_none(spark, sqlite_catalog):
    def elsewhere(statement: str):
        def run() -> None:
            by_duckdb(sqlite_catalog, statement)

        return run

    with new_lake(sqlite_catalog, "CREATE TABLE t (id INT)") as lake:
        rows = spark.sql("SELECT 1 AS id, 2 AS more")
        with pytest.raises(errors.TransactionConflictError):
            insert(lake, rows, ADD, meanwhile=elsewhere("ALTER TABLE t ADD COLUMN theirs INT"))
        insert(lake, rows, ADD, meanwhile=elsewhere("INSERT INTO t VALUES (7, 8)"))
    assert rows_of(sqlite_catalog, "SELECT id, theirs, more FROM t ORDER BY id") == [
        (1, None, 2),
        (7, 8, None),
    ]


@pytest.mark.parametrize("evolution", [SchemaEvolution.STRICT, SchemaEvolution.ADD_COLUMNS])
def test_a_default_that_only_the_reference_computes_is_no_matter_where_rows_have_the_column(
    spark, sqlite_catalog, evolution
):
    with new_lake(sqlite_catalog, "CREATE TABLE t (id INT, made TIMESTAMPTZ DEFAULT now())") as lake:
        rows = spark.sql("SELECT 1 AS id, TIMESTAMP '2026-01-01 00:00:00Z' AS made")
        insert(lake, rows, InsertChoice(evolution=evolution))

    assert rows_of(sqlite_catalog, "SELECT id, epoch(made)::INT FROM t") == [(1, 1_767_225_600)]


def test_a_default_that_only_the_reference_computes_is_refused(spark, sqlite_catalog):
    table = "CREATE TABLE t (id INT, made TIMESTAMP DEFAULT now())"
    with (
        new_lake(sqlite_catalog, table) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match=r"made is missing .* now"),
    ):
        insert(lake, spark.sql("SELECT 1 AS id"), ADD)
