"""Merges by real Spark jobs whose workers are killed at any moment: each has its effect once."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from tests.airflow.killed_workers import execute, run_until_done
from tests.airflow.spark_submit import recorded
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

SIZES = {"ci": 1, "full": 10}
LATEST_KILL = 14.0  # seconds; a whole task takes about twelve
ROWS = 2_000


def draw_source(lake: DuckLakeConnection, choose: random.Random, path: Path, number: int) -> None:
    """Write rows that delete, update and insert; and let others delete, insert and compact."""
    first = choose.randrange(ROWS)
    lake.sql(
        f"COPY (SELECT x AS id, 100 + x % 7 AS n, x % 5 = 0 AS gone FROM range({first}, {first + 600}) r(x)) "
        f"TO '{path}'"
    )
    others = [
        f"DELETE FROM t WHERE id % 19 = {choose.randrange(19)}",
        f"INSERT INTO t SELECT {3 * ROWS + 100 * number} + x, 0 FROM range({choose.randrange(1, 30)}) r(x)",
        "CALL ducklake_merge_adjacent_files('lake')",
    ]
    lake.sql(choose.choice(others))


MERGED = """
    MERGE INTO {table} t USING '{source}' s ON t.id = s.id
    WHEN MATCHED AND s.gone THEN DELETE
    WHEN MATCHED THEN UPDATE SET n = t.n + s.n
    WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, n) VALUES (s.id, s.n)
"""


@pytest.mark.kills
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_merge_has_its_effect_once(
    sqlite_catalog: CatalogDatabase, connect, set_connection, tmp_path, monkeypatch, size, seed, capsys
):
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    choose, killed, moved = random.Random(f"{seed} merges"), 0, 0
    with open_lake(sqlite_catalog, data_inlining_row_limit=20) as lake:
        lake.sql(f"CREATE TABLE t AS SELECT x AS id, (x % 10)::BIGINT AS n FROM range({ROWS}) r(x)")
    for number in range(SIZES[size]):
        source = tmp_path / f"source{number}.parquet"
        with open_lake(sqlite_catalog, data_inlining_row_limit=20) as lake:
            draw_source(lake, choose, source, number)
            kept = lake.sql("SELECT rowid, id FROM t")
            lake.raw.execute("CREATE OR REPLACE TABLE memory.expected AS FROM t")
            lake.raw.execute(MERGED.format(table="memory.expected", source=source))
            expected = lake.sql("FROM memory.expected ORDER BY id")
        arguments: dict[str, Any] = {
            "task_id": "merge",
            "table": "t",
            "source": str(source),
            "on": ["id"],
            "when_matched": [
                {"delete": True, "condition": "source.gone"},
                {"update": {"n": "target.n + source.n"}},
            ],
            "when_not_matched": [{"insert": {"id": "id", "n": "n"}, "condition": "NOT gone"}],
        }
        run = partial(execute, DuckLakeSparkMergeOperator, arguments, number)
        killed += run_until_done(run, choose, LATEST_KILL)

        with open_lake(sqlite_catalog) as lake:
            assert lake.sql("FROM t ORDER BY id") == expected
            ids = dict(lake.sql("SELECT id, rowid FROM t"))
            moved += sum(ids[id_] == row_id for row_id, id_ in kept if id_ in ids)
            assert all(ids[id_] == row_id for row_id, id_ in kept if id_ in ids)
    assert moved > ROWS / 4
    with capsys.disabled():
        print(f"\nseed {seed}: {SIZES[size]} merges, {killed} workers killed")  # noqa: T201 - what was drawn
