"""The operators that verify, flush and migrate a lake, on lakes of the reference client."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.flush_inlined_data import DuckLakeFlushInlinedDataOperator
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator, health_lines
from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
from airflow_provider_ducklake.operators.verify import DuckLakeVerifyOperator
from tests.airflow.dags import context_of, new_dag, succeeded, sync_dag, xcom
from tests.interop.lakes import by_duckdb
from tests.interop.old_lakes import OldLake, old_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def lake(sqlite_catalog, connect):
    connect(sqlite_catalog)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(10) r(x)")
        reference.sql("DELETE FROM t WHERE i < 4")
        reference.sql("CREATE TABLE u AS SELECT x AS i FROM range(10) r(x)")
    return sqlite_catalog


def corrupt(catalog, statement: str) -> None:
    with closing(sqlite3.connect(catalog.location)) as database, database:
        database.execute(statement)


WRONG_SIZE = "UPDATE ducklake_data_file SET footer_size = 1"


def verify(**arguments):
    result = DuckLakeVerifyOperator(task_id="verify", **arguments).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def health(**arguments):
    result = DuckLakeTableHealthOperator(task_id="health", **arguments).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def test_the_log_shows_health_as_a_table():
    tables = [
        dict.fromkeys(("file_count", "file_size_bytes", "record_count", "delete_file_count"), 7)
        | {"inlined_row_count": 0, "inlined_delete_count": 0, "deleted_row_count": 0}
        | {
            "delete_file_size_bytes": 0,
            "delete_ratio": 0.25,
            "name": name,
            "files_by_size": {"under_1_mib": 3},
        }
        for name in ("main.t", "sales.orders")
    ]

    heading, *lines = health_lines(tables)

    assert heading.split()[:3] == ["table", "files", "bytes"]
    assert [line.split() for line in lines] == [
        ["main.t", "7", "7", "7", "7", "25.0%", "0", "0", "3"],
        ["sales.orders", "7", "7", "7", "7", "25.0%", "0", "0", "3"],
    ]
    assert len({len(line) for line in (heading, *lines)}) == 1


@pytest.mark.usefixtures("lake")
def test_nothing_found_is_success():
    assert verify() == {"findings": 0, "ignored": {}, "sample": 1.0}
    assert verify(tables="t", sample="0.5")["sample"] == 0.5


def test_findings_fail_the_task_with_what_can_be_done(lake):
    corrupt(lake, WRONG_SIZE)

    with pytest.raises(AirflowFailException, match=r"2 findings \(2 footer-size-differs\)") as raised:
        verify()

    assert "main.u" in str(raised.value)
    assert "lake.repair fixes this" in str(raised.value)
    assert verify(sample=0)["findings"] == 0
    assert verify(ignore=["footer-size-differs"])["ignored"] == {"footer-size-differs": 2}


@pytest.mark.usefixtures("lake")
def test_numbers_are_handed_on_and_judged():
    result = health()

    assert [one["name"] for one in result["tables"]] == ["main.t", "main.u"]
    assert result["tables"][0]["delete_ratio"] == 0.4
    assert health(fail_above={"delete_ratio": 0.4, "snapshot_count": "9"}) == result
    with pytest.raises(AirflowFailException, match=r"main\.t has a delete_ratio of 0\.4, more than 0\.3"):
        health(fail_above={"delete_ratio": 0.3})
    with pytest.raises(AirflowFailException, match="the lake has a snapshot_count of 4, more than 3"):
        health(tables=["u"], fail_above={"snapshot_count": 3})


class Recorder:
    """A backend of Airflow's metrics that remembers."""

    def __init__(self) -> None:
        self.gauges: dict[tuple[str, str | None], float] = {}

    def gauge(self, stat: str, value: float, *_args: object, tags: dict[str, str], **_kwargs: object) -> None:
        self.gauges[stat, tags.get("table")] = value


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    stats.initialize(factory=lambda: recorder, export_legacy_names=False)
    yield recorder
    from airflow.sdk._shared.observability.metrics.stats import NoStatsLogger  # type: ignore[attr-defined]  # noqa: PLC0415

    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


@pytest.mark.usefixtures("lake")
def test_numbers_go_to_the_metrics(recorder):
    health()

    assert recorder.gauges["ducklake.delete_ratio", "main.t"] == 0.4
    assert recorder.gauges["ducklake.under_1_mib", "main.u"] == 1
    assert recorder.gauges["ducklake.snapshot_count", None] == 4


@pytest.mark.usefixtures("airflow_db")
def test_a_task_that_fails_hands_its_findings_on(lake):
    corrupt(lake, WRONG_SIZE)
    with new_dag("verify") as dag:
        DuckLakeVerifyOperator(task_id="verify", tables="{{ params.table }}", params={"table": "u"})
        DuckLakeTableHealthOperator(
            task_id="health",
            tables="{{ params.table }}",
            params={"table": "t"},
            fail_above={"delete_ratio": 0},
        )

    run = sync_dag(dag).test()

    assert run.state == "failed"
    (finding,) = xcom(run, "verify", "findings")
    assert (finding["code"], finding["objects"]["table_id"]) == ("footer-size-differs", 2)
    assert [one["name"] for one in xcom(run, "health", "health")["tables"]] == ["main.t"]


# --- inlined rows are flushed ---


@pytest.fixture
def inlined(catalog: CatalogDatabase, connect) -> CatalogDatabase:
    connect(catalog)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(20) r(x)")
        reference.sql("INSERT INTO t VALUES (20), (21)")
        reference.sql("DELETE FROM t WHERE i IN (3, 21)")
        reference.sql("CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 1 AS i")
    return catalog


def flush(**arguments: Any) -> dict[str, Any]:
    operator = DuckLakeFlushInlinedDataOperator(task_id="flush", **arguments)
    result = operator.execute(context_of("flush"))
    assert json.loads(json.dumps(result)) == result
    return result


def test_what_was_flushed_is_said_and_a_second_try_finds_nothing_left(inlined):
    result = flush(table="main.t")

    counts = {
        "rows_flushed": 2,
        "rows_ended": 1,
        "deletes_flushed": 1,
        "files_added": 1,
        "delete_files_added": 2,
    }
    assert {name: result[name] for name in counts} == counts
    assert {name: result["tables"]["main.t"][name] for name in counts} == counts
    assert not result["dry_run"]
    with Lake.connect(inlined.sqlalchemy_url) as ours:
        newest = ours.snapshots()[-1]
        assert (newest.id, newest.author, newest.message) == (result["snapshot_id"], "airflow", "dag.flush")
        assert json.loads(newest.extra)["airflow"]["run_id"] == "run"
    assert by_duckdb(inlined, "SELECT count(*), sum(i) FROM t") == [(20, 207)]
    again = flush(table="main.t")
    assert (again["snapshot_id"], again["rows_flushed"], again["tables"]) == (None, 0, {})


@pytest.mark.usefixtures("inlined")
def test_templates_make_texts_of_arguments():
    planned = flush(table="", schema="s", min_rows="1", dry_run="True")

    assert (list(planned["tables"]), planned["rows_flushed"], planned["snapshot_id"]) == (["s.u"], 1, None)
    assert flush(min_rows=2)["tables"].keys() == {"main.t"}
    assert flush(message="all of it")["tables"].keys() == {"s.u"}


# --- a lake of an older DuckDB is migrated ---


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
    assert by_duckdb(old.catalog, "SELECT count(*) FROM m AT (VERSION => 17)") == [(6,)]


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


def test_a_version_that_no_migration_knows_fails_for_good(old):
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


@pytest.mark.usefixtures("airflow_db")
def test_flags_may_be_templates(old):
    with new_dag("migrate_by_params") as dag:
        plan = DuckLakeMigrateOperator(task_id="plan", dry_run="{{ params.dry }}", params={"dry": True})
        execute = DuckLakeMigrateOperator(
            task_id="execute", backup="{{ params.backup }}", params={"backup": False}
        )
        plan >> execute

    run = succeeded(dag)

    assert xcom(run, "plan")["dry_run"] is True
    assert xcom(run, "execute")["steps"] == xcom(run, "plan")["steps"]
    assert xcom(run, "execute")["backup"] is None
    assert {row["value"] for row in dump_catalog(old.catalog)["ducklake_metadata"]} >= {"1.0"}
