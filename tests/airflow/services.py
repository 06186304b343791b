"""A real Airflow in processes of its own: API server, scheduler, triggerer, DAG processor."""

import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.reference.processes import free_port

# What serves logs over HTTP would listen on all addresses.
SERVICES = {
    "api-server": (),
    "dag-processor": (),
    "scheduler": ("--skip-serve-logs",),
    "triggerer": ("--skip-serve-logs",),
}
SECONDS_TO_IMPORT = "600"  # a DAG file, on a machine that has much else to do


class Airflow:
    """An Airflow home with its services, each of which can be killed and started again."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        self.port = free_port()
        url = f"http://127.0.0.1:{self.port}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.environment = clean | {
            "AIRFLOW_HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": SECONDS_TO_IMPORT,
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": SECONDS_TO_IMPORT,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
            **(environment or {}),
        }
        self.run("db", "migrate")
        self.services: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *command: str, program: tuple[str, ...] = ("airflow",)) -> str:
        """Run a command of Airflow's, or of another program in its home, and return its output."""
        ended = subprocess.run(
            [*program, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self, *services: str) -> None:
        """Start services, all by default."""
        for service in services or SERVICES:
            with (self.home / f"{service}.log").open("a") as log:
                self.services[service] = subprocess.Popen(
                    ["airflow", service, *SERVICES[service]],
                    env=self.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.home,
                    start_new_session=True,
                )

    def kill(self, *services: str) -> None:
        """Kill services with all their processes, as a lost machine does."""
        for service in services or tuple(self.services):
            process = self.services.pop(service)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of the metadata database."""
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=60)) as connection:
            return connection.execute(sql, values).fetchall()

    def logs(self) -> str:
        """Return the ends of all services' logs."""
        return "\n".join(
            f"=== {file.name}\n{file.read_text(errors='replace')[-4000:]}" for file in self.home.glob("*.log")
        )

    def wait(self, is_so: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait until something is so, and return it."""
        end = time.monotonic() + seconds
        while not (found := is_so()):
            if time.monotonic() > end:
                raise TimeoutError(f"{what}\n{self.logs()}")
            time.sleep(0.2)
        return found


@contextmanager
def airflow(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Airflow]:
    """Make an Airflow; whatever it runs ends with the block."""
    one = Airflow(home, environment)
    try:
        yield one
    finally:
        one.kill()


def unpaused(one: Airflow, dag_ids: Iterable[str], seconds: float = 300) -> None:
    """Wait until DAGs were parsed, and let them run."""
    for dag_id in dag_ids:
        one.wait(
            lambda dag_id=dag_id: one.query("SELECT 1 FROM dag WHERE dag_id = ?", dag_id), seconds, dag_id
        )
        one.run("dags", "unpause", dag_id, "-y")
