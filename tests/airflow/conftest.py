"""An Airflow of its own for each test process, without any service."""

import atexit
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.airflow.spark_submit import SparkSubmit, stand_in
from tests.reference.catalogs import CatalogDatabase
from tests.reference.connect_server import ConnectServer, connect_server
from tests.reference.standalone_cluster import Cluster, standalone_cluster
from tests.reference.yarn_cluster import Yarn, yarn_cluster

if "airflow" in sys.modules:
    raise RuntimeError("Airflow was imported before its home was set: import it below tests/airflow only")

_home = tempfile.mkdtemp(prefix="ducklake_airflow_")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith(("AIRFLOW", "_AIRFLOW"))]:
    del os.environ[_name]
os.environ |= {
    "AIRFLOW_HOME": _home,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": f"{_home}/dags",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # seconds, on a machine that has much else to do
}
Path(_home, "dags").mkdir()

SetConnection = Callable[..., str]
# In the environment of YARN's containers: those of the connection have to take their place.
KEYS_OF_NODE = {"AWS_ACCESS_KEY_ID": "node", "AWS_SECRET_ACCESS_KEY": "the-nodes-own-secret"}


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """The metadata database; needed to run DAGs, not to call hooks and operators."""
    from airflow.utils import db  # noqa: PLC0415 - its home is set by now

    db.initdb()


@pytest.fixture
def collected() -> Iterator[None]:
    """Leave no pipe of SparkSubmitHook for the tests of others to close."""
    yield
    gc.collect()
    gc.freeze()  # what is left now stays, and the next one need not look at it


@pytest.fixture
def set_connection(monkeypatch: pytest.MonkeyPatch) -> SetConnection:
    """Set an Airflow connection for this test: `set_connection(schema="/data/lake.sqlite", extra={…})`."""

    def set_it(conn_id: str = "ducklake_default", **fields: Any) -> str:
        text = json.dumps({"conn_type": "ducklake", **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", text)
        return conn_id

    return set_it


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The server of all tests that need no settings of their own; `lanes.GROUPS` names their files."""
    with connect_server(tmp_path_factory.mktemp("connect")) as one:
        yield one


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The standalone cluster of all tests whose workers may share this machine's disk."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster") / "all", shares_disk=True) as one:
        yield one


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    ivy = Path(__file__).parents[2] / "build" / "yarn"
    with yarn_cluster(tmp_path_factory.mktemp("yarn") / "all", ivy, KEYS_OF_NODE) as one:
        yield one


@pytest.fixture
def on_server(server: ConnectServer, set_connection: SetConnection) -> Callable[[Any], Any]:
    """Have the Spark jobs of a DAG run on the server, which is warm, and return the DAG."""
    from airflow.sdk.definitions.mappedoperator import MappedOperator  # noqa: PLC0415 - its home is set by now

    from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator  # noqa: PLC0415

    conn_id = set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=server.port)

    def moved(dag: Any) -> Any:
        for task in dag.tasks:
            if isinstance(task, MappedOperator) and issubclass(task.operator_class, DuckLakeSparkOperator):
                task.partial_kwargs["spark_connect_conn_id"] = conn_id
            elif isinstance(task, DuckLakeSparkOperator):
                task.spark_connect_conn_id = conn_id
        return dag

    return moved


@pytest.fixture
def connect(set_connection: SetConnection) -> Callable[[CatalogDatabase], str]:
    """Set a connection to a catalog and return its id."""

    def connect(catalog: CatalogDatabase, **extra: Any) -> str:
        return set_connection(**connection_fields(catalog, **extra))

    return connect


def connection_fields(catalog: CatalogDatabase, **extra: Any) -> dict[str, Any]:
    """Describe a catalog as the fields of a connection."""
    if catalog.kind in ("sqlite", "duckdb"):
        return {"schema": catalog.location, "extra": {"catalog_type": catalog.kind, **extra}}
    server = catalog.server
    return {
        "host": server["host"],
        "port": int(server["port"]),
        "login": server["user"],
        "schema": catalog.database,
        "extra": {"catalog_type": "mysql" if catalog.kind == "mariadb" else catalog.kind, **extra},
    }


def run_python(code: str, timeout: float = 120) -> str:
    """Run code in a process of its own and return what it prints last; Airflow may log before that."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


@pytest.fixture
def task_log() -> Iterator[Callable[[], str]]:
    with structlog.testing.capture_logs() as entries:
        yield lambda: "\n".join(one["event"] % one.get("positional_args", ()) for one in entries)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    """A `spark-submit` without Spark."""
    return stand_in(tmp_path / "bin", monkeypatch)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def spark_conn(set_connection: Callable[..., str]) -> None:
    set_connection("spark_default", conn_type="spark", host="local[2]")
