"""A standalone Spark cluster of this machine: a master and workers, as processes of their own.

Where the tests run as root, the workers run as another user, who reads everything and writes nothing but
their own folders: what a task needs to write lies in the store, as on machines that share no disk.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reference.processes import free_ports, running, wait_for

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SECONDS_TO_START = 120
NOBODY = 65534
_AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs: the master's URL, and the folder of each worker."""

    url: str
    folder: Path
    workers: tuple[Path, ...]
    rest_port: int

    @property
    def logs(self) -> str:
        """All that master, workers and executors have printed."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*/work/*/*/std*")]
        return "".join(file.read_text(errors="replace") for file in sorted(files))

    def executors(self) -> list[int]:
        """The process ids of the executors that run."""
        ports = [f"Worker@127.0.0.1:{port}" for port in self._ports()]
        return [
            one
            for one, line in command_lines()
            if "CoarseGrainedExecutorBackend" in line and any(port in line for port in ports)
        ]

    def drivers(self) -> list[int]:
        """The process ids of the drivers in client mode: of their JVMs."""
        return [
            one
            for one, line in command_lines()
            if "org.apache.spark.deploy.SparkSubmit" in line and self.url in line
        ]

    def cluster_drivers(self) -> list[int]:
        """The process ids of the drivers in cluster mode: of their JVMs."""
        ports = [f"Worker@127.0.0.1:{port}" for port in self._ports()]
        return [
            one
            for one, line in command_lines()
            if "org.apache.spark.deploy.worker.DriverWrapper" in line and any(port in line for port in ports)
        ]

    def shuffle_files(self) -> list[Path]:
        """What executors have written for later stages."""
        return [file for one in self.workers for file in one.glob("tmp/**/shuffle_*")]

    def _ports(self) -> list[str]:
        logs = [(self.folder / f"{one.name}.log").read_text() for one in self.workers]
        return [port for log in logs for port in re.findall(r"Starting Spark worker [\d.]+:(\d+)", log)]


def command_lines() -> list[tuple[int, str]]:
    """Return what `ps` shows of every process of this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found.append((int(entry.name), line.replace(b"\0", b" ").decode(errors="replace")))
    return found


@contextmanager
def standalone_cluster(folder: Path, *, shares_disk: bool = False) -> Iterator[Cluster]:
    """Start a master and two workers of one core each, wait until they know each other, and end them.

    With ``shares_disk`` the workers run as the user of the tests.
    """
    folder.mkdir(parents=True)
    port, rest_port = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    places = tuple(folder / f"worker{number}" for number in range(2))
    with ExitStack() as stack:
        master = [_MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_server(folder / "master.log", master, rest_port=rest_port))
        wait_for(folder / "master.log", "I have been elected leader", _SECONDS_TO_START)
        for place in places:
            (place / "tmp").mkdir(parents=True)
            worker = [_WORKER, "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(place / "work"), url]
            log = folder / f"{place.name}.log"
            stack.enter_context(_server(log, worker, place, as_other=not shares_disk))
        wait_for(folder / "master.log", "Registering worker", _SECONDS_TO_START, len(places))
        yield Cluster(url, folder, places, rest_port)


def _server(
    log: Path,
    arguments: Sequence[str],
    place: Path | None = None,
    *,
    as_other: bool = False,
    rest_port: int = 0,
) -> AbstractContextManager[object]:
    """Run a class of Spark's in a folder; perhaps as another user, who may write there alone."""
    program = shutil.which("spark-class", path=str(Path(sys.executable).parent)) or "spark-class"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    environment.pop("DUCKLAKE_STORAGE_SECRETS", None)
    settings = {"enabled": "true", "host": "127.0.0.1", "port": str(rest_port)} if rest_port else {}
    options = [f"-Dspark.master.rest.{name}={value}" for name, value in settings.items()]
    environment["SPARK_MASTER_OPTS"] = " ".join(options)
    prefix: Sequence[str] = ()
    if place is not None:
        environment |= {
            "SPARK_LOCAL_DIRS": str(place / "tmp"),
            "TMPDIR": str(place / "tmp"),
            "HOME": str(place),
        }
        if as_other and os.geteuid() == 0:
            prefix = _AS_NOBODY
            for one in (place, place / "tmp"):
                os.chown(one, NOBODY, NOBODY)
    return running([*prefix, program, *arguments], log, place or log.parent, environment)
