"""The operators that look at a lake and change nothing: what they find, hand on and tell the metrics."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator, health_lines
from airflow_provider_ducklake.operators.verify import DuckLakeVerifyOperator
from tests.airflow.dags import sync_dag, xcom
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
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sample": "some"}, "sample is 'some'"),
        ({"sample": 1.5}, "sample is 1.5"),
        ({"ignore": ["all"]}, "'all' is not a valid FindingCode"),
        ({"tables": ["nothing"]}, "nothing"),
    ],
)
def test_verifying_what_makes_no_sense_fails_for_good(arguments, said):
    with pytest.raises(AirflowFailException, match=said):
        verify(**arguments)


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


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"beauty": 1}, "fail_above names 'beauty'"),
        ({"file_count": "few"}, r"fail_above\['file_count'\] is 'few'"),
        ("file_count", "fail_above is 'file_count'"),
    ],
)
def test_bounds_that_make_no_sense_fail_for_good(limits, said):
    with pytest.raises(AirflowFailException, match=said):
        health(fail_above=limits)


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
    with DAG("verify", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None) as dag:
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
