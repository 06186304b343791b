"""What managers of clusters answer over HTTP, what is made of it, and submissions to them without Spark."""

import json
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks import clusters
from airflow_provider_ducklake.hooks.clusters import (
    ApplicationState,
    ClusterManager,
    Kubernetes,
    Standalone,
    Yarn,
    as_arguments,
    from_arguments,
    manager_of,
)
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    ClusterUnavailableError,
    InvalidInputError,
    SparkJobError,
    UntrustedValueError,
)
from tests.airflow.long_jobs import execute
from tests.airflow.spark_submit import LEAVES_PROCESS, ROOT, SparkSubmit
from tests.interop.lakes import alone
from tests.reference.silent import talking_server

STATUS = "SubmissionStatusResponse"
DRIVER, APPLICATION = "driver-20261125212241-0000", "application_1795644167263_0002"


class Answers:
    """A server that gives each path's answer: a status and JSON, or a text."""

    def __init__(self) -> None:
        self.by_path: dict[str, tuple[int, Any]] = {}
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = answers.by_path.get(self.path, (404, {}))
                body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def answers() -> Iterator[Answers]:
    one = Answers()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def kubernetes(tmp_path, monkeypatch) -> Callable[[str], Kubernetes]:
    """Return the manager that Airflow's configuration names, when it is given the address."""

    def of(url: str) -> Kubernetes:
        config = {
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "here",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
        return Kubernetes("lakes")

    return of


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"success": True, "driverState": "SUBMITTED"}, ApplicationState.RUNNING),
        ({"success": True, "driverState": "RELAUNCHING"}, ApplicationState.RUNNING),
        ({"success": True, "driverState": "UNKNOWN"}, ApplicationState.RUNNING),
        ({"success": True, "driverState": "FINISHED"}, ApplicationState.SUCCEEDED),
        ({"success": True, "driverState": "ERROR", "message": "no such file"}, ApplicationState.FAILED),
        ({"success": True, "driverState": "KILLED"}, ApplicationState.KILLED),
        ({"success": False}, ApplicationState.GONE),
    ],
)
def test_states_of_a_standalone_driver(answers, said, state):
    answers.by_path[f"/v1/submissions/status/{DRIVER}"] = 200, {"action": STATUS, **said}

    assert Standalone((answers.url,)).status(DRIVER).state is state


def test_masters_that_wait_or_recover_do_not_say_that_a_driver_is_gone(answers):
    said = {
        "action": STATUS,
        "success": False,
        "message": "Exception: Current state is not alive: RECOVERING. Can only request",
    }
    answers.by_path[f"/v1/submissions/status/{DRIVER}"] = 200, said
    nobody = "http://127.0.0.1:9"

    for addresses in ((answers.url,), (answers.url, nobody), (nobody, answers.url)):
        with pytest.raises(ClusterUnavailableError, match="Cannot reach the Spark master's REST server"):
            Standalone(addresses).status(DRIVER)


def test_the_master_that_leads_answers(answers):
    said = {"action": STATUS, "success": True, "driverState": "FINISHED"}
    answers.by_path[f"/v1/submissions/status/{DRIVER}"] = 200, said

    assert Standalone(("http://127.0.0.1:9", answers.url)).status(DRIVER).state is ApplicationState.SUCCEEDED


@pytest.mark.parametrize(
    ("app", "state"),
    [
        ({"state": "NEW_SAVING", "finalStatus": "UNDEFINED"}, ApplicationState.RUNNING),
        ({"state": "ACCEPTED", "finalStatus": "UNDEFINED"}, ApplicationState.RUNNING),
        (
            {"state": "RUNNING", "finalStatus": "UNDEFINED", "trackingUrl": "http://rm/proxy"},
            ApplicationState.RUNNING,
        ),
        ({"state": "FINISHED", "finalStatus": "SUCCEEDED"}, ApplicationState.SUCCEEDED),
        (
            {"state": "FINISHED", "finalStatus": "FAILED", "diagnostics": "User class threw"},
            ApplicationState.FAILED,
        ),
        ({"state": "FAILED", "finalStatus": "FAILED"}, ApplicationState.FAILED),
        ({"state": "KILLED", "finalStatus": "KILLED"}, ApplicationState.KILLED),
    ],
)
def test_states_of_a_yarn_application(answers, app, state):
    answers.by_path[f"/ws/v1/cluster/apps/{APPLICATION}"] = 200, {"app": app}

    found = Yarn(answers.url).status(APPLICATION)

    assert found.state is state
    assert found.diagnostics == app.get("diagnostics", "")


@pytest.mark.parametrize(
    "answer", [(503, {}), (401, "no"), (200, "This is standby RM. Redirecting"), (404, "not here"), (404, {})]
)
def test_a_resource_manager_that_does_not_answer_is_no_answer(answers, answer):
    answers.by_path[f"/ws/v1/cluster/apps/{APPLICATION}"] = answer

    with pytest.raises(ClusterUnavailableError, match="Cannot reach the YARN ResourceManager at http"):
        Yarn(answers.url).status(APPLICATION)


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("https://rm/proxy/application_1_2/", "https://rm/proxy/application_1_2/"),
        ("javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("UNASSIGNED", None),
        ("http://[", None),
        (7, None),
    ],
)
def test_a_link_leads_to_a_page_of_the_web_or_is_none(answers, address, page):
    app = {"state": "RUNNING", "trackingUrl": address}
    answers.by_path[f"/ws/v1/cluster/apps/{APPLICATION}"] = 200, {"app": app}

    assert Yarn(answers.url).status(APPLICATION).url == page


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ASKED = {
    "yarn": lambda url, _: Yarn(url).status(APPLICATION),
    "standalone": lambda url, _: Standalone((url,)).status(DRIVER),
    "kubernetes": lambda url, use: use(url).status("lake-driver"),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    ("begin", "again"),
    [(b"", b""), (HEAD, b"X-More: 1\r\n"), (HEAD + b"\r\n{", b" ")],
    ids=["silent", "head", "body"],
)
def test_a_manager_that_never_ends_its_answer_is_none_after_the_limit(
    ask, begin, again, kubernetes, monkeypatch
):
    monkeypatch.setattr(clusters, "ANSWER_SECONDS", 1)
    with (
        talking_server(lambda connection: connection.sendall(begin), again) as port,
        pytest.raises(ClusterUnavailableError),
    ):
        ask(f"http://127.0.0.1:{port}", kubernetes)


def test_a_manager_whose_answer_is_too_long_is_none(monkeypatch):
    monkeypatch.setattr(clusters, "_ANSWER_BYTES", 10_000)
    with (
        talking_server(lambda connection: connection.sendall(HEAD + b"\r\n{"), b" " * 8192) as port,
        pytest.raises(ClusterUnavailableError, match="longer than 10000 bytes"),
    ):
        Yarn(f"http://127.0.0.1:{port}").status(APPLICATION)


@pytest.mark.parametrize(
    ("manager", "line", "found"),
    [
        (Standalone(()), f"26/11/25 INFO ClientEndpoint: Driver successfully submitted as {DRIVER}", DRIVER),
        (Yarn(""), f"26/11/25 INFO YarnClientImpl: Submitted application {APPLICATION}", APPLICATION),
        (Yarn(""), f"26/11/25 INFO Client: Submitting application {APPLICATION} to ResourceManager", None),
        (Kubernetes("x"), "\t pod name: lake-1c9882a214b2953c-driver", "lake-1c9882a214b2953c-driver"),
        (Kubernetes("x"), "submission ID lakes:lake-1c98-driver into Kubernetes", "lake-1c98-driver"),
        (Kubernetes("x"), "26/11/25 INFO something else", None),
    ],
)
def test_the_id_is_known_when_the_manager_has_the_application(manager, line, found):
    assert manager.id_in(line) == found


@pytest.mark.parametrize(
    "manager",
    [Standalone(("http://a:6066",)), Yarn("http://rm:8088", has_kerberos=True), Kubernetes("lakes")],
)
def test_a_manager_can_be_sent_to_the_triggerer(manager: ClusterManager):
    assert from_arguments(json.loads(json.dumps(as_arguments(manager)))) == manager


def test_an_auth_object_cannot(answers):
    with pytest.raises(InvalidInputError, match="yarn_rm_auth is an object of the task's process"):
        as_arguments(Yarn(answers.url, auth=("user", "word")))


def test_an_application_that_the_resource_manager_does_not_know_is_gone(answers):
    said = {"RemoteException": {"exception": "NotFoundException", "message": "doesn't exist in RM"}}
    answers.by_path[f"/ws/v1/cluster/apps/{APPLICATION}"] = 404, said

    assert Yarn(answers.url).status(APPLICATION).state is ApplicationState.GONE


def test_a_404_of_something_before_the_master_is_no_answer(answers):
    with pytest.raises(ClusterUnavailableError):
        Standalone((answers.url,)).status(DRIVER)


@pytest.mark.parametrize(
    ("host", "port"), [("spark://master", 7077), ("spark://master:7077", None), ("master", 7077)]
)
def test_the_masters_rest_server_is_on_the_masters_host(host, port):
    connection = Connection(conn_id="spark_default", conn_type="spark", host=host, port=port)
    master = host if "://" in host else f"spark://{host}"

    found = manager_of(connection, SubmitSettings(master, "cluster"), {})

    assert found == Standalone(("http://master:6066",))


def test_the_namespace_is_the_operators_then_the_connections():
    connection = Connection(
        conn_id="spark_default", conn_type="spark", host="k8s://h", extra='{"namespace": "a"}'
    )
    settings = SubmitSettings("k8s://h", "cluster", {"spark.kubernetes.namespace": "c"})

    assert manager_of(connection, settings, {"spark.kubernetes.namespace": "b"}) == Kubernetes("b")
    assert manager_of(connection, settings, {}) == Kubernetes("a")


MANAGERS = [Standalone(("http://a:6066",)), Yarn("http://rm:8088"), Kubernetes("lakes")]
OF_NONE = (
    "",
    "x/../y",
    "../../../json?x=",
    f"{DRIVER}/../x",
    f"{APPLICATION}#",
    "a b",
    "Driver",
    "x" * 300,
    f"{DRIVER}\n",
    "driver-\u0661",
    "%2e%2e",
)


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda one: one.name)
def test_an_id_that_no_manager_gives_is_no_jobs_and_not_asked_about(manager):
    job_id = str(uuid4())

    for one in OF_NONE:
        assert not manager.runs(one, job_id)
        with pytest.raises(UntrustedValueError, match="is not an application's id as"):
            manager.status(one)
        with pytest.raises(UntrustedValueError, match="is not an application's id as"):
            manager.kill(one)


def test_an_application_of_yarn_is_a_jobs_if_it_has_its_tag_or_is_gone(answers):
    job_id, gone, other = str(uuid4()), "application_1795644167263_0009", "application_1795644167263_0001"
    apps = "/ws/v1/cluster/apps"
    answers.by_path[f"{apps}?applicationTags=ducklake-{job_id}"] = (
        200,
        {"apps": {"app": [{"id": APPLICATION}]}},
    )
    answers.by_path[f"{apps}/{other}"] = 200, {"app": {"state": "RUNNING"}}
    said = {"RemoteException": {"exception": "NotFoundException"}}
    answers.by_path[f"{apps}/{gone}"] = 404, said
    manager = Yarn(answers.url)

    assert [manager.runs(one, job_id) for one in (APPLICATION, other, gone)] == [True, False, True]
    assert manager.find(job_id) == APPLICATION


def test_a_pod_is_a_jobs_if_it_has_its_label_or_is_gone(answers, kubernetes):
    job_id, pods = str(uuid4()), "/api/v1/namespaces/lakes/pods"
    ours, others = (
        {"metadata": {"name": name}, "status": {"phase": "Running"}} for name in ("a-driver", "b")
    )
    answers.by_path[f"{pods}?labelSelector=ducklake-job%3D{job_id}"] = 200, {"items": [ours]}
    answers.by_path[f"{pods}/b"] = 200, others
    manager = kubernetes(answers.url)

    assert [manager.runs(one, job_id) for one in ("a-driver", "b", "gone-driver")] == [True, False, True]
    assert manager.find(job_id) == "a-driver"


# --- submissions: a spark-submit without Spark ---

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
def rows(tmp_path: Path) -> str:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


@pytest.fixture
def lake(sqlite_catalog, connect) -> Iterator[Lake]:
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with DuckLakeHook() as hook:
        alone(hook.get_or_create_lake()).create_table("t", {"id": "int32"})
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


@LEAVES_PROCESS
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


@LEAVES_PROCESS
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


@LEAVES_PROCESS
@pytest.mark.parametrize("durable", [None, False])
@pytest.mark.usefixtures("lake")
def test_a_mistake_of_a_user_is_named_whoever_waits_for_the_application(
    durable, rows, yarn, answers, tmp_path, monkeypatch
):
    submits(tmp_path, monkeypatch, _MISTAKE)
    answers.by_path[APP] = 200, {"app": {"state": "FINISHED", "finalStatus": "FAILED"}}

    with pytest.raises(AirflowFailException, match="a column too many"):
        execute(source=rows, durable=durable, yarn_track_via_rm_api=True, **yarn)


@LEAVES_PROCESS
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
        {"action": STATUS, "success": True, "driverState": "FAILED"},
    )
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    submit = submits(tmp_path, monkeypatch, "pass", DRIVER)

    with pytest.raises(SparkJobError):
        execute(source=rows, conf={"spark.submit.deployMode": "cluster"}, env_vars=env_vars)

    (call,) = submit.calls
    assert not [name for name in call.environment if name.startswith("AIRFLOW")]
    assert call.environment.get("MINE") == (env_vars or {}).get("MINE")


@LEAVES_PROCESS
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
