"""The operator on lakes of the reference client, which also judges what is left."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from tests.airflow.dags import sync_dag, xcom
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


def query(catalog: CatalogDatabase, sql: str) -> list[tuple[Any, ...]]:
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        return lake.sql(sql)


def snapshot_ids(catalog: CatalogDatabase) -> list[int]:
    return [row[0] for row in query(catalog, "SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]


def scheduled_files(catalog: CatalogDatabase) -> int:
    return len(
        query(catalog, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true, dry_run => true)")
    )


def history(catalog: CatalogDatabase) -> None:
    """Snapshots 0 to 6; the file of 2 is dead since 4, whose file lives on; table x was dropped in 6."""
    query(
        catalog,
        "CREATE TABLE orders (id INT);"
        "INSERT INTO orders VALUES (1), (2);"
        "DELETE FROM orders;"
        "INSERT INTO orders VALUES (3);"
        "CREATE TABLE x AS SELECT 1 AS a;"
        "DROP TABLE x",
    )


@pytest.fixture
def lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(catalog)
    history(catalog)
    return catalog


@pytest.fixture
def sqlite_lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(sqlite_catalog)
    history(sqlite_catalog)
    return sqlite_catalog


def expire(**arguments: Any) -> dict[str, Any]:
    result = DuckLakeExpireSnapshotsOperator(task_id="expire", **arguments).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def test_keeping_the_newest_expires_all_the_others(lake):
    result = expire(keep_last=2)

    assert result["snapshot_ids"] == [0, 1, 2, 3, 4]
    assert (result["data_files_scheduled"], result["dry_run"]) == (1, False)
    assert result["bytes_scheduled"] > 0
    assert snapshot_ids(lake) == [5, 6]
    assert scheduled_files(lake) == result["data_files_scheduled"] + result["delete_files_scheduled"]
    assert query(lake, "FROM orders") == [(3,)]


def test_chosen_versions_expire(lake):
    assert expire(snapshots=[1, 3])["snapshot_ids"] == [1, 3]
    assert snapshot_ids(lake) == [0, 2, 4, 5, 6]


def test_versions_that_are_gone_already_are_no_error(sqlite_lake):
    """The retry of a task that was killed after its commit; and a plan that found nothing."""
    expire(snapshots=[1, 3])

    assert expire(snapshots=[1, 3])["snapshot_ids"] == []
    assert expire(snapshots="[]")["snapshot_ids"] == []
    assert len(snapshot_ids(sqlite_lake)) == 5


def test_a_dry_run_says_the_same_and_changes_nothing(lake):
    planned = expire(keep_last=1, dry_run=True)

    assert snapshot_ids(lake) == [0, 1, 2, 3, 4, 5, 6]
    assert scheduled_files(lake) == 0
    assert expire(keep_last=1) == {**planned, "dry_run": False}


@pytest.mark.parametrize(
    "age", [timedelta(0), "0 days", lambda: datetime.now(UTC), lambda: datetime.now(UTC).isoformat()]
)
def test_an_age_may_be_an_interval_or_a_time(sqlite_lake, age):
    result = expire(older_than=age() if callable(age) else age, min_retention="0 days")

    assert result["snapshot_ids"] == [0, 1, 2, 3, 4, 5]
    assert snapshot_ids(sqlite_lake) == [6]


def test_nothing_is_that_old_yet(sqlite_lake):
    result = expire(older_than="7 days")

    assert result == {
        "snapshot_ids": [],
        "data_files_scheduled": 0,
        "delete_files_scheduled": 0,
        "tables_removed": 0,
        "bytes_scheduled": 0,
        "kept_by_tags": 0,
        "dry_run": False,
    }
    assert len(snapshot_ids(sqlite_lake)) == 7


def test_an_age_spares_the_newest_that_are_to_be_kept(sqlite_lake):
    assert expire(older_than=timedelta(0), keep_last=4, min_retention=timedelta(0))["snapshot_ids"] == [
        0,
        1,
        2,
    ]
    assert snapshot_ids(sqlite_lake) == [3, 4, 5, 6]


def test_what_is_younger_than_the_floor_stays(sqlite_lake):
    assert expire(keep_last=1, min_retention="1 hour")["snapshot_ids"] == []
    assert expire(older_than="24 hours")["snapshot_ids"] == []
    assert len(snapshot_ids(sqlite_lake)) == 7


def test_the_lakes_option_counts_where_no_argument_does(sqlite_lake):
    query(sqlite_lake, "CALL lake.set_option('expire_older_than', '3 days')")
    assert expire()["snapshot_ids"] == []

    query(sqlite_lake, "CALL lake.set_option('expire_older_than', '00:00:00')")
    with pytest.raises(AirflowFailException, match="younger than min_retention"):
        expire()
    assert expire(snapshots=[2])["snapshot_ids"] == [2]
    assert expire(min_retention="0 days")["snapshot_ids"] == [0, 1, 3, 4, 5]


def test_pinned_releases_stay(sqlite_lake):
    for author, message in (
        ("release-bot", "v1"),
        ("etl", "pinned: audit"),
        ("etl", "nightly"),
        (None, None),
    ):
        with open_lake(sqlite_lake) as lake:
            said = ", ".join("NULL" if one is None else f"'{one}'" for one in (author, message))
            lake.sql("BEGIN")
            lake.sql("INSERT INTO orders VALUES (4)")
            lake.sql(f"CALL lake.set_commit_message({said})")
            lake.sql("COMMIT")

    result = expire(keep_last=1, keep="[3]", keep_author="release-*", keep_message="pinned:*")

    assert result["snapshot_ids"] == [0, 1, 2, 4, 5, 6, 9]
    assert snapshot_ids(sqlite_lake) == [3, 7, 8, 10]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "set the lake's option expire_older_than"),
        ({"older_than": "7 days", "snapshots": [1]}, ""),
        ({"keep_last": 0}, ""),
        ({"keep_last": "two"}, "keep_last is 'two'"),
        ({"keep_last": True}, "keep_last is True"),
        ({"older_than": "last week"}, "'last week' is not a valid interval"),
        ({"older_than": "1 month"}, "'1 month' is not a valid interval"),
        ({"older_than": ""}, "'' is not a valid interval"),
        ({"older_than": "2026-01-01T00:00:00"}, "no time zone"),
        ({"older_than": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - the point
        ({"older_than": 7}, "older_than is 7"),
        ({"older_than": "1000000 days"}, "is longer than 2,000 years"),
        ({"older_than": "99999999999 days"}, "is too long for an interval"),
        ({"older_than": "23 hours"}, "younger than min_retention=1 day"),
        ({"older_than": lambda: datetime.now(UTC)}, "younger than min_retention=1 day"),
        ({"older_than": datetime(2126, 1, 1, tzinfo=UTC)}, "is in the future"),
        ({"snapshots": [1, 2], "min_retention": "1 hour"}, "Snapshots [1, 2] are younger"),
        ({"keep_last": 1, "min_retention": "a while"}, "'a while' is not a valid interval"),
        ({"keep_last": 1, "min_retention": 5}, "min_retention is 5"),
        ({"keep_last": 1, "keep": ["x"]}, "keep is 'x'"),
        ({"snapshots": "newest"}, "snapshots is 'newest'"),
        ({"snapshots": [1, "x"]}, "snapshots is 'x'"),
        ({"keep_last": 1, "dry_run": "maybe"}, "dry_run is 'maybe'"),
    ],
)
def test_input_that_makes_no_sense_fails_the_task_for_good(sqlite_lake, arguments, said):
    given = {name: value() if callable(value) else value for name, value in arguments.items()}
    with pytest.raises(AirflowFailException, match=r"^InvalidInputError: ") as raised:
        expire(**given)

    assert said in str(raised.value)
    assert len(snapshot_ids(sqlite_lake)) == 7


def test_a_database_without_a_lake_fails_the_task_for_good(sqlite_catalog, connect):
    connect(sqlite_catalog)

    with pytest.raises(AirflowFailException, match=r"^NotADuckLakeError: "):
        expire(keep_last=1)


@pytest.mark.usefixtures("airflow_db")
def test_arguments_may_be_templates(sqlite_lake):
    with DAG("expire", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None) as dag:
        plan = DuckLakeExpireSnapshotsOperator(
            task_id="plan",
            older_than="{{ params.age }}",
            keep_last="{{ params.keep }}",
            min_retention="{{ params.age }}",
            dry_run="{{ params.dry }}",
            params={"age": "0 days", "keep": 3, "dry": True},
        )
        execute = DuckLakeExpireSnapshotsOperator(
            task_id="execute",
            snapshots="{{ ti.xcom_pull(task_ids='plan')['snapshot_ids'] }}",
            dry_run="{{ params.dry }}",
            params={"dry": False},
        )
        plan >> execute

    run = sync_dag(dag).test()

    assert run.state == "success"
    assert xcom(run, "plan")["dry_run"] is True
    assert xcom(run, "execute")["snapshot_ids"] == xcom(run, "plan")["snapshot_ids"] == [0, 1, 2, 3]
    assert snapshot_ids(sqlite_lake) == [4, 5, 6]
