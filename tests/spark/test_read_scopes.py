"""Rows outside of what a query is found to read of its target do not change what Spark makes of it."""

import random
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.overwrite import RowScope
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.sql.spark.conditions import readable_filter
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.lake.sql.spark.statements import WriteMode
from airflow_provider_ducklake.lake.storage.rows.table_reader import matching
from airflow_provider_ducklake.lake.writes.sql_plan import Reads, find_target, rows_read

JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"
DAYS = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3), None]
ROWS = pa.table(
    {
        "id": pa.array([row if row % 7 else None for row in range(64)], pa.int64()),
        "day": pa.array([DAYS[row % 4] for row in range(64)], pa.date32()),
        "name": pa.array(["a", "b", None, "day", "4"] * 12 + ["a"] * 4),
    }
)

NARROWED = [
    "SELECT * FROM t WHERE day = DATE '2026-01-01' AND id < 40",
    "SELECT * FROM t WHERE day = '2026-01-01' OR day = DATE '2026-01-03'",
    "SELECT * FROM t WHERE name = 'a' AND length(name) = 1 AND id BETWEEN 3 AND 30",
    "SELECT * FROM t WHERE \"day\" = 'day' AND id < 40",
    'SELECT * FROM t WHERE name = "a" AND id < 40',
    "SELECT * FROM t WHERE `day` IS NULL AND NOT id > 20",
    "SELECT max(id), day, 'x' FROM t WHERE id IN (1, 2, 30) GROUP BY day",
    "SELECT count(*), max(day), 'x' FROM t AS q WHERE q.day <=> NULL AND q.id < 40",
    "SELECT s.* FROM s LEFT ANTI JOIN t ON s.id = t.id AND t.day = DATE '2026-01-02'",
    "SELECT s.* FROM s LEFT SEMI JOIN t ON s.id = t.id AND t.name = 'a'",
    "SELECT s.id, t.day, t.name FROM s LEFT JOIN t ON s.id = t.id AND t.id < 9 WHERE t.day IS NULL",
    "SELECT s.* FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = s.id AND t.day = DATE '2026-01-02')",
    "SELECT s.* FROM s WHERE s.id NOT IN (SELECT id FROM t WHERE id IS NOT NULL AND name = 'b')",
    "SELECT id, (SELECT max(day) FROM t WHERE t.id < s.id AND t.name = 'a'), name FROM s WHERE s.id = 5",
    "SELECT t.* FROM t LEFT JOIN s USING (id) WHERE id < 10 AND s.day IS NULL",
    "SELECT t.* FROM s, t WHERE t.id = s.id + 1 AND t.id > 50 AND s.id > 3",
    "WITH x AS (SELECT * FROM t WHERE id < 20) TABLE x UNION ALL SELECT * FROM t WHERE id = 60",
    "SELECT x.* FROM t x JOIN t y ON x.id = y.id + 1 AND y.id < 7 WHERE x.id > 50",
    "SELECT id, day, name FROM (SELECT *, max(id) OVER (ORDER BY id) n FROM t WHERE name = 'a') WHERE n = id",
]
WHOLE = [
    "SELECT s.* FROM s LEFT ANTI JOIN t ON s.id = t.id WHERE day = DATE '2026-01-02'",
    "SELECT t.* FROM t RIGHT JOIN s ON t.id = s.id AND t.day = DATE '2026-01-01' WHERE t.day IS NULL",
    "SELECT t.* FROM t FULL JOIN s ON t.id = s.id AND t.id < 5 WHERE t.day IS NULL AND t.id < 9",
    "SELECT t.* FROM s JOIN t USING (id) WHERE id < 10",
    "SELECT * FROM (SELECT * FROM t) WHERE id < 10",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("lake")
    with Lake.create(f"sqlite:///{folder}/lake.sqlite", f"{folder}/data/") as lake:
        with lake.transaction() as tx:
            for name in ("t", "s"):
                tx.create_table(name, {"id": "int64", "day": "date", "name": "varchar"})
            tx.append_arrow("t", ROWS)
            tx.append_arrow("s", ROWS.slice(20, 30))
        yield lake


@pytest.mark.parametrize("query", [*NARROWED, *WHOLE])
def test_rows_outside_of_the_scope_do_not_count(spark, lake, query):
    head = lake.current_snapshot()
    target = find_target(lake, QualifiedName.of("t"), WriteMode.APPEND, head, JOB)
    reads = Reads(lake, JOB, head, targets=frozenset({target.name.folded}))
    (statement,) = parse_spark_sql(f"INSERT INTO t {query}")
    text = reads.query(statement.query)
    (read,) = rows_read([target], reads, head.id)

    def answer(rows_of_t: pa.Table) -> list[str]:
        for name in ("t", "s"):
            view = reads.view_of(QualifiedName.of(name))
            rows = rows_of_t if name == "t" else lake.read_arrow(name)
            spark.createDataFrame(
                rows.to_pylist(), "id bigint, day date, name string"
            ).createOrReplaceTempView(view)
        return sorted(map(str, spark.sql(text).collect()))

    scope = read.scope
    assert scope is None or isinstance(scope, RowScope)
    inside = ROWS if scope is None else matching(ROWS, scope.where, scope.table.schema)

    assert answer(inside) == answer(ROWS)
    assert (inside.num_rows < ROWS.num_rows) == (query in NARROWED)


def test_a_filter_of_floats_is_true_wherever_spark_finds_the_condition_true(spark):
    drawn = random.Random(56)
    schema = new_columns({"f": "float32"})
    numbers = ["0.1", "16777217", "0.5", "5"]
    numbers += [f"{drawn.uniform(0, 10 ** drawn.randint(-3, 9)):.{drawn.randint(0, 9)}f}" for _ in range(12)]
    near = [np.float32(float(one)) for one in numbers]
    values = [float(np.nextafter(one, way)) for one in near for way in (-np.inf, one, np.inf)]
    rows = pa.table({"f": pa.array(values, pa.float32())})
    spark.createDataFrame([(one,) for one in rows["f"].to_pylist()], "f float").createOrReplaceTempView("fs")
    conditions = [f"f {operator} {one}" for one in numbers for operator in ("=", "<>", "<", "<=", ">", ">=")]
    by_spark = spark.sql(f"SELECT f, {', '.join(conditions)} FROM fs").collect()
    filters = [readable_filter(one, schema, "t", alias="t") for one in conditions]
    for place, text in enumerate(filters, 1):
        if text is not None:
            found = matching(rows, read_predicate(text, schema, "t"), schema)["f"].to_pylist()
            assert {row[0] for row in by_spark if row[place]} <= set(found), text
    assert {text is not None for text in filters} == {True, False}
