"""Submissions to clusters: a `spark-submit` without Spark, and managers that answer over HTTP."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, SparkJobError
from tests.airflow.long_jobs import execute
from tests.airflow.spark_submit import ROOT, SparkSubmit
from tests.airflow.test_clusters import APPLICATION, DRIVER, STATUS, Answers, answering

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]
APP = f"/ws/v1/cluster/apps/{APPLICATION}"
# The job runs in a process of its own: this one has the environment of the test.
_JOB = """
import subprocess
environment = {{**os.environ, "PYTHONPATH": {root!r}}}
code = subprocess.run([{python!r}, "-c", {job!r}, *sys.argv[-2:]], env=environment)
print("Submitted application {application}", flush=True)
sys.exit(code.returncode)
"""
_DONE = "import sys; from tests.airflow.stand_in_job import main; main(*sys.argv[-2:])"
_MISTAKE = """
import sys
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spark.job import io
io.write_error(io.read_request(*sys.argv[-2:]), InvalidInputError("a column too many"))
"""


@pytest.fixture
def answers() -> Iterator[Answers]:
    yield from answering()


@pytest.fixture
def rows(tmp_path: Path) -> str:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


@pytest.fixture
def lake(sqlite_catalog, connect) -> Iterator[Lake]:
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with DuckLakeHook() as hook:
        with hook.get_or_create_lake().transaction() as tx:
            tx.create_table("t", {"id": "int32"})
        yield hook.lake()


@pytest.fixture
def yarn(set_connection: Callable[..., str], answers: Answers) -> dict[str, Any]:
    """Return the arguments of a task on YARN, whose manager has seen the application succeed."""
    extra = {"yarn_resourcemanager_webapp_address": answers.url}
    set_connection("spark_default", conn_type="spark", host="yarn", extra=extra)
    answers.by_path[APP] = 200, {"app": {"state": "FINISHED", "finalStatus": "SUCCEEDED"}}
    return {"deploy_mode": "cluster"}


def submits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, application: str = APPLICATION
) -> SparkSubmit:
    code = _JOB.format(python=sys.executable, job=job, root=str(ROOT), application=application)
    return SparkSubmit(tmp_path / "bin", [], monkeypatch, code)


def test_a_connection_that_is_gone_when_the_job_has_ended_costs_its_link_alone(
    lake, rows, yarn, answers, tmp_path, monkeypatch
):
    submit = submits(tmp_path, monkeypatch, _DONE)

    class GoneOnceAsked(dict[str, tuple[int, Any]]):
        def get(self, path: str, default: Any = None) -> Any:
            monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
            return super().get(path, default)

    answers.by_path = GoneOnceAsked(answers.by_path)

    summary = execute(source=rows, post_submit_commands=["true"], **yarn)

    assert summary["rows_added"] == 2
    assert len(submit.calls) == 1
    assert lake.row_count("t") == 2


@pytest.mark.parametrize(("job", "application"), [("raise SystemExit(1)", APPLICATION), ("", "")])
def test_what_is_to_run_after_a_submission_runs_after_one_that_fails(
    lake, rows, yarn, answers, tmp_path, monkeypatch, job, application
):
    submits(tmp_path, monkeypatch, job, application)
    answers.by_path["/ws/v1/cluster/apps"] = 200, {"apps": None}

    with pytest.raises(SparkJobError):
        execute(source=rows, post_submit_commands=[f"touch {tmp_path / 'after'}"], **yarn)

    assert (tmp_path / "after").exists()
    assert lake.row_count("t") == 0


@pytest.mark.parametrize("durable", [None, False])
@pytest.mark.usefixtures("lake")
def test_a_mistake_of_a_user_is_named_whoever_waits_for_the_application(
    durable, rows, yarn, answers, tmp_path, monkeypatch
):
    submits(tmp_path, monkeypatch, _MISTAKE)
    answers.by_path[APP] = 200, {"app": {"state": "FINISHED", "finalStatus": "FAILED"}}

    with pytest.raises(AirflowFailException, match="a column too many"):
        execute(source=rows, durable=durable, yarn_track_via_rm_api=True, **yarn)


@pytest.mark.parametrize("env_vars", [None, {"MINE": "1"}])
@pytest.mark.usefixtures("lake")
def test_a_standalone_master_gets_no_variable_of_airflow(
    env_vars, rows, answers, set_connection, tmp_path, monkeypatch
):
    port = answers.server.server_port
    set_connection(
        "spark_default", conn_type="spark", host="spark://127.0.0.1:7077", extra={"rest-port": port}
    )
    answers.by_path[f"/v1/submissions/status/{DRIVER}"] = (
        200,
        {
            "action": STATUS,
            "success": True,
            "driverState": "FAILED",
        },
    )
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    submit = submits(tmp_path, monkeypatch, "pass", DRIVER)

    with pytest.raises(SparkJobError):
        execute(source=rows, conf={"spark.submit.deployMode": "cluster"}, env_vars=env_vars)

    (call,) = submit.calls
    assert not [name for name in call.environment if name.startswith("AIRFLOW")]
    assert call.environment.get("MINE") == (env_vars or {}).get("MINE")


@pytest.mark.parametrize(
    ("host", "arguments", "message"),
    [
        ("spark://127.0.0.1:7077", {}, "a standalone master runs no Python application"),
        ("yarn", {"deferrable": True}, "deferrable=True needs a job that outlives its task"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_where_each_try_cannot_submit_its_own_job_it_is_refused(
    host, arguments, message, rows, answers, set_connection, tmp_path, monkeypatch
):
    extra = {"yarn_resourcemanager_webapp_address": answers.url}
    set_connection("spark_default", conn_type="spark", host=host, extra=extra)
    submit = submits(tmp_path, monkeypatch, _DONE)

    with pytest.raises((InvalidInputError, AirflowFailException), match=message):
        execute(source=rows, deploy_mode="cluster", durable=False, **arguments)

    assert submit.calls == []
