"""Files of jobs, committed to a lake: DuckDB's filters find what a plain scan finds."""

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.write import (
    append_to_existing,
    create_and_append,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.spark.type_values import VALUES

JOB_ID = "0190f3c1-0000-7000-8000-000000000001"
COLUMNS = {f"c{number}": text for number, (text, _, _) in enumerate(VALUES)}
OPERATORS = ("=", "<>", "<=", ">=", "<", ">")


def every_value(spark, columns: dict[str, str]):
    """Rows in which each column runs through its values and a NULL, over and over."""
    texts = {type_: [*values, "NULL"] for type_, values, _ in VALUES}
    longest = max(len(values) for values in texts.values())
    rows = [
        ", ".join(f"{texts[type_][row % len(texts[type_])]} AS {name}" for name, type_ in columns.items())
        for row in range(longest)
    ]
    return spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))


def test_filters_on_every_column_find_the_right_rows(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("main.t", COLUMNS)
        table = lake.table_snapshot("main.t")
        result = write(every_value(spark, COLUMNS), plan_write(table, job_directory(table.root, JOB_ID)))
        lake.committer.commit(table.snapshot.id, append_to_existing(table, result), CommitInfo())

    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE memory.plain AS FROM lake.t")  # a full scan looks at no statistics
        for name in COLUMNS:
            for condition in _conditions(duck, name):
                found = _matching(duck, "lake.t", name, condition)
                assert found == _matching(duck, "memory.plain", name, condition), condition


def _matching(duck: DuckLakeConnection, table: str, column: str, condition: str) -> list[tuple]:
    return duck.sql(f"SELECT {column}::VARCHAR FROM {table} WHERE {condition} ORDER BY ALL")


def _conditions(duck: DuckLakeConnection, column: str) -> list[str]:
    values = duck.sql(
        f"SELECT DISTINCT {column}::VARCHAR, typeof({column}) FROM memory.plain WHERE {column} IS NOT NULL"
    )
    literals = [f"'{text.replace(chr(39), chr(39) * 2)}'::{type_}" for text, type_ in values]
    compared = [f"{column} {operator} {literal}" for literal in literals for operator in OPERATORS]
    return [*compared, f"{column} IS NULL", f"{column} IS NOT NULL"]


def test_a_created_table_appears_with_its_rows_and_types(spark, sqlite_catalog):
    df = spark.sql(
        "SELECT 1L AS id, 'x' AS name, date'2024-05-06' AS day UNION ALL SELECT 2L, NULL, date'2025-01-01'"
    )
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        target = lake.reads.new_table(QualifiedName.of(("main", "t")))
        plan = plan_create(target, job_directory(target.root, JOB_ID), ["year(day)"])
        committed = lake.committer.commit(
            target.snapshot.id, create_and_append(target, write(df, plan)), CommitInfo()
        )
        assert committed is not None
        assert [change.name or change.object_id for change in lake.snapshots()[-1].changes] == [
            QualifiedName.of(("main", "t")),
            1,
            1,
        ]

    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("SELECT id, name, day::VARCHAR FROM t ORDER BY id") == [
            (1, "x", "2024-05-06"),
            (2, None, "2025-01-01"),
        ]
        assert duck.sql("SELECT id FROM t WHERE year(day) = 2025 AND day > DATE '2024-12-31'") == [(2,)]
