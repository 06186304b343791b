"""A Spark Connect server from the pyspark package, as a process of its own."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reference.processes import FAST_JVM, free_port, running

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SECONDS_TO_START = 180


@dataclass(frozen=True)
class ConnectServer:
    """A server that runs: where it listens, and the folder with its log and its events."""

    port: int
    folder: Path
    process_id: int

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    @property
    def events(self) -> str:
        """All that its event logs hold, which a history server shows."""
        return "".join(
            path.read_text() for path in sorted((self.folder / "events").rglob("*")) if path.is_file()
        )


@contextmanager
def connect_server(
    folder: Path, conf: Mapping[str, str] | None = None, master: str = "local[2]"
) -> Iterator[ConnectServer]:
    """Start a server, wait until it listens, and end it."""
    (folder / "events").mkdir(parents=True)
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.log.level": "WARN",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "true",
        **(conf or {}),
    }
    flags = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program = shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or "spark-submit"
    command = [program, "--class", _CLASS, "--master", master, *flags, "spark-internal"]
    environment = {
        **os.environ,
        "JDK_JAVA_OPTIONS": FAST_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    environment.pop("DUCKLAKE_STORAGE_SECRETS", None)
    with running(command, folder / "server.log", folder, environment) as process:
        _wait_for(port, process, folder)
        yield ConnectServer(port, folder, process.pid)


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"The Spark Connect server did not start: {(folder / 'server.log').read_text()}")
