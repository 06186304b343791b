"""The SQL operator around its job: reads, several results, consumption. DuckDB mostly takes Spark's place."""

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date
from typing import Any, ClassVar

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.airflow.dags import (
    UnluckyCommits,
    clear,
    dies_after_commit,
    dies_before_commit,
    loses_the_answer,
    make_task,
    run_next_try,
    start_run,
    tried,
    xcom,
)
from tests.airflow.spark_submit import LEAVES_PROCESS, duckdb, head
from tests.reference.catalogs import CatalogDatabase

pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("airflow_db", "collected", "forgotten", "submit")]


class Unlucky(UnluckyCommits, DuckLakeSparkSQLOperator):
    events: ClassVar[list[Callable[[Lake], Any]]] = []


@pytest.fixture
def forgotten() -> Iterator[None]:
    yield
    Unlucky.events.clear()


@pytest.fixture
def lake(sqlite_catalog, connect, set_connection) -> CatalogDatabase:
    """A lake with flights, and days that nobody has counted yet."""
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    duckdb(
        sqlite_catalog,
        "CREATE TABLE flights (id INT, day DATE, passengers INT);"
        "CREATE TABLE daily (day DATE, flights BIGINT, passengers BIGINT);"
        "INSERT INTO flights VALUES (1, '2026-01-01', 10), (2, '2026-01-01', 20), (3, '2026-01-02', 5)",
    )
    return sqlite_catalog


def querying(**arguments: Any) -> Unlucky:
    return make_task(Unlucky, "sql", task_id="sql", **arguments)


def run(**arguments: Any) -> dict[str, Any]:
    """Run a task to its success and return what it handed on."""
    task = querying(**arguments)
    started = tried(task, "success")
    return xcom(started, "sql")


COUNT = "SELECT day, count(*), CAST(sum(passengers) AS BIGINT) FROM flights GROUP BY day"
COUNTED = [("2026-01-01", 2, 30), ("2026-01-02", 1, 5)]


def daily(catalog: CatalogDatabase, table: str = "daily") -> list[tuple[Any, ...]]:
    return [(str(day), *rest) for day, *rest in duckdb(catalog, f"FROM {table} ORDER BY ALL")]


def test_rows_go_to_columns_by_position(lake):
    before = head(lake)

    result = run(sql="INSERT INTO daily " + COUNT)

    assert daily(lake) == COUNTED
    assert {key: result[key] for key in ("table", "snapshot_id", "read_snapshot_id", "rows_added")} == {
        "table": "main.daily",
        "snapshot_id": before + 1,
        "read_snapshot_id": before,
        "rows_added": 2,
    }
    run(sql="INSERT INTO daily (flights, passengers, day) SELECT 7, 70, DATE '2026-02-01'")
    assert daily(lake)[-1] == ("2026-02-01", 7, 70)
    run(sql="INSERT INTO daily BY NAME SELECT 8 AS flights, 80 AS passengers, DATE '2026-03-01' AS day")
    assert daily(lake)[-1] == ("2026-03-01", 8, 80)


@pytest.mark.parametrize("statement", ["INSERT OVERWRITE daily", "CREATE OR REPLACE TABLE daily AS"])
def test_a_query_without_rows_removes_skips_or_fails_as_the_task_says(lake, statement):
    duckdb(lake, f"INSERT INTO daily {COUNT}")
    nothing = [f"{statement} {COUNT.replace('GROUP', 'WHERE false GROUP')}", f"INSERT INTO flights {FLIGHT}"]
    before = head(lake)

    for if_empty, state in (("fail", "failed"), ("skip", "skipped")):
        task = querying(sql=nothing, if_empty=if_empty)
        assert run_next_try(start_run(task.dag), task) == state
    assert (head(lake), daily(lake)) == (before, COUNTED)

    result = run(sql=nothing)
    assert result["rows_removed"] == result["tables"]["main.daily"]["rows_removed"] == 2
    assert result["tables"]["main.flights"]["rows_removed"] == 0
    assert daily(lake) == []


FLIGHT = "SELECT 9, DATE '2026-01-09', 1"


def test_all_statements_become_one_snapshot(lake):
    before = head(lake)

    result = run(
        sql=[
            f"CREATE TEMPORARY VIEW counted AS SELECT * FROM ({COUNT}) AS v(day, flights, passengers)",
            "INSERT OVERWRITE daily SELECT * FROM counted; INSERT INTO daily SELECT * FROM counted LIMIT 1",
            "CREATE TABLE busy PARTITIONED BY (day) AS SELECT * FROM counted WHERE passengers > 10",
        ]
    )

    assert result["snapshot_id"] == head(lake) == before + 1
    assert result["tables"]["main.daily"]["rows_added"] == 3
    assert result["tables"]["main.busy"]["rows_added"] == 1
    assert len(daily(lake)) == 3
    assert daily(lake, "busy") == COUNTED[:1]


def test_overwritten_rows_are_gone_and_read_before(lake):
    run(sql="INSERT INTO daily " + COUNT)
    run(sql="INSERT OVERWRITE daily SELECT day, flights * 2, passengers FROM daily")
    assert daily(lake) == [(day, count * 2, sum_) for day, count, sum_ in COUNTED]

    run(sql="CREATE OR REPLACE TABLE daily AS SELECT day, flights FROM daily")
    assert daily(lake) == [(day, count * 2) for day, count, _ in COUNTED]
    result = run(sql="CREATE TABLE IF NOT EXISTS daily AS SELECT 1 AS x")
    assert (result["snapshot_id"], result["tables"]) == (None, {})


def test_reads_at_an_older_snapshot(lake):
    before = head(lake)
    duckdb(lake, "INSERT INTO flights VALUES (4, '2026-01-03', 1)")

    result = run(sql="INSERT INTO daily " + COUNT, at=f"{{{{ {before} }}}}")

    assert result["read_snapshot_id"] == before
    assert daily(lake) == COUNTED
    with Lake.connect(lake.sqlalchemy_url) as ours:
        ours.tag("two days", before)
    tagged = run(sql="INSERT OVERWRITE daily " + COUNT, at="tag:two days")
    assert tagged["read_snapshot_id"] == before
    assert daily(lake) == COUNTED


def test_spark_views_are_read(lake):
    with Lake.connect(lake.sqlalchemy_url) as ours, ours.transaction() as tx:
        tx.create_view("big", "SELECT * FROM flights WHERE passengers > 5", "spark")
        tx.create_view("bigger", "SELECT `id`, passengers FROM main.big WHERE passengers > 10", "spark")
        tx.create_view("odd", "SELECT 1", "duckdb")

    run(sql="CREATE TABLE found AS SELECT * FROM bigger")

    assert duckdb(lake, "FROM found") == [(2, 20)]
    task = querying(sql="CREATE TABLE x AS SELECT * FROM odd")
    assert run_next_try(start_run(task.dag), task) == "failed"


def test_a_table_changed_meanwhile_is_a_conflict(lake, submit):
    sql = "INSERT INTO flights VALUES (9, '2026-01-09', 9)"
    submit.meanwhile(
        "from tests.reference.duckdb_lake import open_lake\n"
        f"with open_lake({lake.attach_string!r}, {lake.data_path!r}) as lake: lake.sql({sql!r})"
    )
    task = querying(sql="INSERT OVERWRITE flights SELECT * FROM flights WHERE id = 1")
    started = tried(task, "up_for_retry")
    submit.meanwhile("")
    assert run_next_try(started, task) == "success"
    assert duckdb(lake, "FROM flights") == [(1, date(2026, 1, 1), 10)]


# --- consumption ---

# The old counts and what the changes add to them.
ADD_CHANGES = """
    CREATE TEMPORARY VIEW signed AS
        SELECT day, passengers,
               CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS sign
        FROM flights;
    INSERT OVERWRITE daily
        SELECT day, CAST(sum(f) AS BIGINT), CAST(sum(p) AS BIGINT)
        FROM (SELECT day, flights AS f, passengers AS p FROM daily
              UNION ALL SELECT day, sign, sign * passengers FROM signed) AS parts
        GROUP BY day HAVING sum(f) <> 0
"""
COPY = "INSERT INTO copied SELECT id, snapshot_id FROM flights WHERE change_type = 'insert'"


def recomputed(catalog: CatalogDatabase) -> list[tuple[Any, ...]]:
    found = duckdb(
        catalog, "SELECT day, count(*), sum(passengers)::BIGINT FROM flights GROUP BY day ORDER BY day"
    )
    return [(str(day), *rest) for day, *rest in found]


def test_only_changes_are_seen(lake):
    first = run(sql=ADD_CHANGES, incremental=True)
    assert daily(lake) == COUNTED
    assert first["consumed"] == {"main.flights": [None, 3]}

    duckdb(lake, "UPDATE flights SET passengers = 7 WHERE id = 3; DELETE FROM flights WHERE id = 1")
    second = run(sql=ADD_CHANGES, incremental=["flights"])

    assert daily(lake) == [("2026-01-01", 1, 20), ("2026-01-02", 1, 7)]
    assert second["consumed"] == {"main.flights": [3, 6]}


def test_nothing_new_starts_no_job(lake, submit):
    run(sql=ADD_CHANGES, incremental=True)
    calls, before = len(submit.calls), head(lake)

    result = run(sql=ADD_CHANGES, incremental=True)

    assert (result["snapshot_id"], len(submit.calls), head(lake)) == (None, calls, before)
    assert result["consumed"]["main.flights"] == [before - 1, before]


def test_marks_move_also_where_nothing_comes_of_the_changes(lake):
    duckdb(lake, "CREATE TABLE copied (id INT, seen BIGINT)")
    run(sql=COPY, incremental=True)
    duckdb(lake, "DELETE FROM flights WHERE id = 1")
    before = head(lake)

    result = run(sql=COPY, incremental=True)

    assert (result["snapshot_id"], head(lake)) == (None, before)
    assert result["consumed"]["main.flights"][1] == before
    with Lake.connect(lake.sqlalchemy_url) as ours, ours.opened.reading() as connection:
        marks = connection.exec_driver_sql("SELECT max(snapshot_id) FROM airflow_ducklake_consumer").scalar()
    assert marks == before


def test_consumers_have_marks_of_their_own(lake):
    duckdb(lake, "CREATE TABLE copied (id INT, seen BIGINT)")
    run(sql=COPY, incremental=True, consumer="one")
    run(sql=COPY, incremental=True, consumer="one")
    assert duckdb(lake, "SELECT count(*) FROM copied") == [(3,)]
    run(sql=COPY, incremental=True, consumer="two")
    assert duckdb(lake, "SELECT count(*) FROM copied") == [(6,)]


def test_expired_changes_are_an_error_until_all_is_made_anew(lake):
    run(sql=ADD_CHANGES, incremental=True)
    duckdb(lake, "DELETE FROM flights WHERE id = 1")
    duckdb(lake, "INSERT INTO flights VALUES (4, '2026-01-03', 1)")
    newest = head(lake)
    duckdb(lake, f"CALL ducklake_expire_snapshots('lake', versions => [{newest - 1}])")
    task = querying(sql=ADD_CHANGES, incremental=True)
    started = tried(task, "failed")
    with pytest.raises(
        AirflowFailException, match=rf"after snapshot 3 up to snapshot {newest} .*full_refresh=True"
    ):
        task.execute({"ti": started.get_task_instance("sql"), "logical_date": None})

    run(sql=ADD_CHANGES, incremental=True, full_refresh=True)
    assert daily(lake) == recomputed(lake)
    duckdb(lake, "INSERT INTO flights VALUES (5, '2026-01-03', 1)")
    run(sql=ADD_CHANGES, incremental=True)
    assert daily(lake) == recomputed(lake)


def test_a_cleared_task_consumes_the_same_again(lake):
    duckdb(lake, "CREATE TABLE copied (id INT, seen BIGINT)")
    task = querying(sql=COPY, incremental=True)
    first = tried(task, "success")
    duckdb(lake, "INSERT INTO flights VALUES (4, '2026-01-03', 1)")
    second = tried(task, "success")

    for started in (second, first, second):
        clear(started, "sql")
        assert run_next_try(started, task) == "success"

    assert duckdb(lake, "SELECT id FROM copied ORDER BY id") == [(1,), (2,), (3,), (4,)]
    tried(task, "success")
    assert duckdb(lake, "SELECT count(*) FROM copied") == [(4,)]


def test_a_cleared_task_that_overwrites_goes_on_from_its_mark(lake):
    task = querying(sql=ADD_CHANGES, incremental=True)
    started = tried(task, "success")
    duckdb(lake, "INSERT INTO flights VALUES (4, '2026-01-03', 1)")
    clear(started, "sql")

    assert run_next_try(started, task) == "success"

    assert daily(lake) == recomputed(lake)


EVENTS = [nullcontext, dies_before_commit, dies_after_commit, loses_the_answer]


def test_ten_commits_consumed_bit_by_bit_are_a_full_recomputation(lake, seed):
    choose = random.Random(f"{seed} flights")
    task = querying(sql=ADD_CHANGES, incremental=True)
    for number in range(10):
        duckdb(lake, drawn_commit(choose, number))
        if choose.random() < 0.3:
            continue
        started = start_run(task.dag)
        Unlucky.events[:] = choose.choices(EVENTS, k=2)
        while run_next_try(started, task) != "success":
            if choose.random() < 0.3:
                duckdb(lake, drawn_commit(choose, 100 + number))
        Unlucky.events.clear()
    tried(task, "success")

    assert daily(lake) == recomputed(lake)


def drawn_commit(choose: random.Random, number: int) -> str:
    day = f"DATE '2026-01-01' + {choose.randrange(5)}"
    return choose.choice(
        [
            f"INSERT INTO flights SELECT {number * 10} + x, {day} + x::INT % 3, x FROM range(5) r(x)",
            f"UPDATE flights SET passengers = passengers + {number} WHERE id % 3 = {choose.randrange(3)}",
            f"UPDATE flights SET day = {day} WHERE id % 5 = {choose.randrange(5)}",
            f"DELETE FROM flights WHERE id % 7 = {choose.randrange(7)}",
            "CALL ducklake_merge_adjacent_files('lake')",
        ]
    )


# --- bad input ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of sql and transform"),
        ({"sql": "x", "transform": "a:b", "targets": {}}, "exactly one of sql and transform"),
        ({"transform": "a:b"}, "targets and tables"),
        ({"sql": "x", "tables": ["t"]}, "targets and tables"),
        ({"sql": "x", "stage_only": True}, "stage_only"),
        ({"sql": "x", "consumer": "c"}, "are for incremental"),
        ({"sql": "x", "full_refresh": True}, "are for incremental"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        querying(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sql": "SELECT 1"}, "does not write a table"),
        ({"sql": "CREATE TEMPORARY VIEW v AS SELECT 1"}, "Nothing is written"),
        ({"sql": "INSERT INTO daily SELECT * FROM nowhere"}, "nowhere"),
        ({"sql": "INSERT INTO nowhere SELECT 1"}, "nowhere"),
        ({"sql": "CREATE TABLE daily AS SELECT 1 AS x"}, "exists"),
        ({"sql": "INSERT INTO daily " + COUNT, "at": "999"}, "There is no snapshot 999"),
        ({"sql": "INSERT INTO daily " + COUNT, "at": "yesterday"}, "yesterday"),
        ({"sql": "INSERT INTO daily SELECT 1, 2, 3", "incremental": True}, "no table"),
        ({"sql": "INSERT INTO daily " + COUNT, "incremental": ["daily"]}, "main.daily"),
        ({"sql": "INSERT INTO daily FROM a", "sources": {"a": "a.csv", "A": "b.csv"}}, "'a' and 'A'"),
        ({"transform": "nonsense", "targets": {"daily": "append"}}, "package.module:function"),
        ({"transform": "a:b", "targets": {"daily": "upsert"}}, "upsert"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_bad_input_is_refused_before_any_job(submit, arguments, message):
    task = querying(**arguments)

    with pytest.raises(AirflowFailException, match=message):
        task.execute({"ti": start_run(task.dag).get_task_instance("sql"), "logical_date": None})

    assert not submit.calls
