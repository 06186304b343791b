"""Deliberate mistakes in DAGs of a real Airflow: the answer to each names the thing and the way out."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import run_next_try, start_run, sync_dag
from tests.airflow.mistakes import IN_A_TASK, IN_THE_DAG_FILE, Mistake
from tests.airflow.spark_submit import SparkSubmit, recorded
from tests.airflow.test_failed_submits import RECORDS, REPLAY
from tests.reference.catalogs import file_catalog

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.usefixtures("airflow_db"),
]


class Workshop:
    """A lake, its connections, and the ways in which they can be wrong."""

    def __init__(self, folder: Path, set_connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = folder
        self._set = set_connection
        self._patch = monkeypatch
        self.catalog = file_catalog("sqlite", folder / "lake")
        self._make_lake()
        self.fields = connection_fields(self.catalog)
        self._set(**self.fields)
        self._set("spark_default", conn_type="spark", host="local[1]")
        recorded(folder / "bin", monkeypatch)

    def _make_lake(self) -> None:
        pq.write_table(pa.table({"id": [1]}), self.data / "orders.parquet")
        pq.write_table(pa.table({"id": ["one"], "note": ["x"]}), self.data / "others.parquet")
        with Lake.create(self.catalog.sqlalchemy_url, self.catalog.data_path) as lake:
            with lake.transaction() as tx:
                tx.create_table("orders", {"id": "int64", "name": "varchar", "price": "decimal(9,2)"})
            with lake.transaction() as tx:
                tx.create_table("feed", {"id": "int64"})
            lake.set_option("data_inlining_row_limit", 0)
            lake.append_arrow(
                "orders", pa.table({"id": [1], "name": ["Bern"], "price": pa.array([1], pa.decimal128(9, 2))})
            )
            lake.expire_snapshots(snapshots=[1])

    def _settings(self, **fields: Any) -> None:
        self._set(**self.fields | fields)

    def no_lake(self) -> None:
        self._settings(schema=str(self.data / "no_lake.sqlite"))

    def erp(self) -> None:
        self._set("erp", conn_type="postgres", host="erp", extra={"sslmode": "require"})

    def relative(self) -> None:
        self._settings(schema="lake.sqlite")

    def unreachable(self) -> None:
        self._settings(host="127.0.0.1", port=1, schema="lakehouse", extra={"catalog_type": "postgres"})

    def no_driver(self) -> None:
        self._settings(host="db", schema="lakehouse", extra={"catalog_type": "mysql"})
        self._patch.setitem(sys.modules, "pymysql", None)

    def other_data_path(self) -> None:
        self._settings(extra={"catalog_type": "sqlite", "data_path": "/elsewhere/"})

    def unwritable(self) -> None:
        catalog = file_catalog("sqlite", self.data / "other")
        (self.data / "files").write_text("a file where the directory should be")
        with Lake.create(catalog.sqlalchemy_url, f"{self.data}/files/") as lake, lake.transaction() as tx:
            tx.create_table("orders", {"id": "int64"})
        self._set(**connection_fields(catalog))

    def no_java(self) -> None:
        self._patch.setenv("JAVA_HOME", str(self.data))

    def no_master(self) -> None:
        SparkSubmit(
            self.data / "replay", [sys.executable, "-c", REPLAY, str(RECORDS / "no_master.txt")], self._patch
        )

    def no_spark_submit(self) -> None:
        self._patch.setenv("PATH", str(self.data))


@pytest.fixture
def workshop(tmp_path, set_connection, monkeypatch) -> Workshop:
    return Workshop(tmp_path, set_connection, monkeypatch)


def by_name(mistake: Mistake) -> str:
    return mistake.name.replace(" ", "_")


def filled_in(value: Any, data: Path) -> Any:
    return value.replace("{data}", str(data)) if isinstance(value, str) else value


def check(mistake: Mistake, answer: str, data: Path, record_property: Any) -> None:
    sentence = " ".join(answer.split())
    record_property("mistake", mistake.name)
    record_property("answer", sentence.replace(str(data), "…"))
    for part in (*mistake.named, mistake.way_out):
        assert filled_in(part, data) in sentence, sentence
    assert "Traceback" not in answer
    assert sentence.endswith((".", "'", ")", "?")) or "Spark says" in sentence, sentence
    assert len(sentence) < 700


@pytest.mark.parametrize("mistake", IN_THE_DAG_FILE, ids=by_name)
def test_a_mistake_in_the_dag_file_is_an_import_error_with_the_way_out(mistake, tmp_path, record_property):
    with pytest.raises(DuckLakeError) as raised:
        mistake.operator(task_id="mistake", **mistake.arguments)

    check(mistake, str(raised.value), tmp_path, record_property)


# Spark has to start for these to be found; of a warm one test_spark_connect.py asks the same.
FOUND_BY_SPARK = ("rows of other columns", "a syntax error in a condition")


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(one, marks=[pytest.mark.submits] * (one.name in FOUND_BY_SPARK)) for one in IN_A_TASK],
    ids=by_name,
)
def test_a_mistake_of_a_task_is_answered_with_the_way_out(mistake, workshop, record_property):
    answers: list[BaseException] = []
    arguments = {name: filled_in(value, workshop.data) for name, value in mistake.arguments.items()}
    with DAG(
        f"mistake_{IN_A_TASK.index(mistake)}",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        schedule=None,
        default_args={
            "retries": 2,
            "retry_delay": timedelta(0),
            "on_failure_callback": lambda context: answers.append(context["exception"]),
            "on_retry_callback": lambda context: answers.append(context["exception"]),
        },
    ) as dag:
        task = mistake.operator(task_id="mistake", **arguments)
    sync_dag(dag)
    run = start_run(dag)
    if mistake.prepare is not None:
        getattr(workshop, mistake.prepare)()

    state = run_next_try(run, task)

    assert state == ("up_for_retry" if mistake.retried else "failed"), answers
    (answer,) = answers
    check(mistake, str(answer), workshop.data, record_property)
