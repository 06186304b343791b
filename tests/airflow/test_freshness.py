"""When a table's rows last changed, as a missed deadline tells it; the reference makes the changes."""

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator
from airflow_provider_ducklake.triggers.snapshot import described, last_change
from tests.airflow.test_snapshot_sensor import commit_to

RUN = {"dag_run_id": "r1", "state": "running", "run_after": "2026-11-25T05:00:00Z"}


@pytest.fixture
def lake(sqlite_catalog):
    commit_to(sqlite_catalog, "CREATE TABLE others (id INT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def test_the_newest_change_of_rows_counts_and_nothing_else(lake, sqlite_catalog):
    commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1), (2)")
    changed = commit_to(sqlite_catalog, "DELETE FROM orders WHERE id = 1")
    commit_to(sqlite_catalog, "INSERT INTO others VALUES (1); ALTER TABLE orders ADD COLUMN name TEXT")

    found = last_change(lake, "orders")

    assert (found.snapshot_id, found.is_expired) == (changed, False)
    assert found.time == lake.snapshot_at(changed).time


def test_of_an_expired_change_only_the_oldest_snapshot_is_known(lake, sqlite_catalog):
    changed = commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1)")
    kept = commit_to(sqlite_catalog, "INSERT INTO others VALUES (1)")
    commit_to(
        sqlite_catalog,
        f"CALL ducklake_expire_snapshots('lake', versions => {list(range(changed + 1))})",
    )

    found = last_change(lake, "orders")

    assert (found.snapshot_id, found.is_expired) == (kept, True)
    assert "orders is not fresh: not changed since snapshot" in described("orders", found, RUN)


def test_a_table_that_does_not_exist_is_not_fresh(lake):
    found = last_change(lake, "orders")

    assert found is None
    assert described("orders", found, RUN).startswith(
        "orders is not fresh: it does not exist. The run r1, of"
    )


def test_a_table_that_has_not_changed_for_too_long_fails_the_task_of_its_health(sqlite_catalog, connect):
    commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1)")
    connect(sqlite_catalog)

    def health(hours):
        limits = {"hours_since_change": hours}
        return DuckLakeTableHealthOperator(task_id="health", fail_above=limits).execute({})

    (table,) = health(26)["tables"]
    assert 0 <= table["hours_since_change"] < 1
    with pytest.raises(AirflowFailException, match=r"orders has not changed for .* hours, more than -1"):
        health(-1)
