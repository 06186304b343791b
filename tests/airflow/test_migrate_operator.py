"""The operator on a recorded lake of an older DuckDB."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from tests.airflow.dags import sync_dag, xcom
from tests.interop.old_lakes import OldLake, old_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def old(tmp_path, connect) -> OldLake:
    lake = old_lake("0.3", tmp_path / "old")
    connect(lake.catalog)
    return lake


def migrate(**arguments):
    result = DuckLakeMigrateOperator(task_id="migrate", **arguments).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def test_a_dry_run_says_the_steps_and_the_next_run_takes_them(old):
    before = dump_catalog(old.catalog)

    plan = migrate(dry_run="True")

    assert dump_catalog(old.catalog) == before
    assert (plan["dry_run"], plan["backup"]) == (True, None)
    done = migrate()
    assert done["steps"] == plan["steps"] != []
    assert (done["from_version"], done["to_version"], done["files_rewritten"]) == ("0.3", "1.0", 1)
    assert Path(done["backup"]).exists()
    with open_lake(old.catalog) as reference:
        assert reference.sql("SELECT count(*) FROM m AT (VERSION => 17)") == [(6,)]


@pytest.mark.usefixtures("old")
def test_a_second_run_has_nothing_to_do():
    assert migrate(backup="false")["backup"] is None

    assert migrate() == {
        "from_version": "1.0",
        "to_version": "1.0",
        "steps": [],
        "files_rewritten": 0,
        "bytes_read": 0,
        "backup": None,
        "dry_run": False,
        "refusals": [],
        "opened_by": "DuckDB 1.5 and newer open it",
        "locked_out": [],
    }


def test_what_no_retry_cures_fails_for_good(old):
    old.execute("UPDATE ducklake_metadata SET value = '0.4-dev1' WHERE key = 'version'")

    with pytest.raises(AirflowFailException, match=r"0\.4-dev1"):
        migrate()


def test_a_lake_is_migrated_to_1_1_if_a_template_says_so(old):
    result = migrate(to_version="1.1")

    assert (result["from_version"], result["to_version"], result["steps"][-1]) == (
        "0.3",
        "1.1",
        "set the version to 1.1",
    )
    assert "DuckDB 2.0" in result["opened_by"]
    assert {row["value"] for row in dump_catalog(old.catalog)["ducklake_metadata"]} >= {"1.1"}
    assert "to_version" in DuckLakeMigrateOperator.template_fields
    with pytest.raises(AirflowFailException, match="to_version"):
        migrate(to_version="1.2")


def test_half_a_migration_to_1_1_is_finished_by_another_one(old):
    migrate()
    old.execute("UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")
    with pytest.raises(AirflowFailException, match=r"to_version='1\.1'"):
        migrate()

    assert migrate(to_version="1.1")["from_version"] == "1.1-dev1"


@pytest.mark.usefixtures("old")
def test_flags_that_say_nothing_are_refused():
    with pytest.raises(AirflowFailException, match="backup"):
        migrate(backup="perhaps")


@pytest.mark.usefixtures("airflow_db")
def test_flags_may_be_templates(old):
    with DAG("migrate_by_params", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        plan = DuckLakeMigrateOperator(task_id="plan", dry_run="{{ params.dry }}", params={"dry": True})
        execute = DuckLakeMigrateOperator(
            task_id="execute", backup="{{ params.backup }}", params={"backup": False}
        )
        plan >> execute

    run = sync_dag(dag).test()

    assert run.state == "success"
    assert xcom(run, "plan")["dry_run"] is True
    assert xcom(run, "execute")["steps"] == xcom(run, "plan")["steps"]
    assert xcom(run, "execute")["backup"] is None
    assert {row["value"] for row in dump_catalog(old.catalog)["ducklake_metadata"]} >= {"1.0"}
