"""Run a job the way the operator does: request file, zip before the user's py_files, spark-submit."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyspark

from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.package_zip import application_file, package_zip
from airflow_provider_ducklake.lake.spark.job.request import JobRequest, Source

SLIM_PACKAGES = ("pyspark", "pyarrow", "py4j")


def make_request(plan: WritePlan, source: Source) -> JobRequest:
    job_id = plan.directory.rstrip("/").rsplit("ducklake-", 1)[1]
    return JobRequest(job_id, source, (plan,))


def slim_python(folder: Path, packages: Sequence[str] = SLIM_PACKAGES) -> Path:
    """Make an interpreter that has these packages, by default what a job needs, and nothing else."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        installed = Path(sys.modules[name].__file__).parent if name != "py4j" else _installed("py4j")
        (site_packages / name).symlink_to(installed)
    for library in Path(pyarrow.__file__).parents[1].glob("pyarrow.libs") if "pyarrow" in packages else ():
        (site_packages / library.name).symlink_to(library)
    return folder / "bin" / "python"


def _installed(name: str) -> Path:
    return Path(pyspark.__file__).parents[1] / name


def start(
    request: JobRequest,
    folder: Path,
    *,
    python: Path | None = None,
    py_files: tuple[Path, ...] = (),
    master: str = "local[2]",
    conf: dict[str, str] | None = None,
) -> subprocess.Popen:
    """Start spark-submit in a process group of its own; its output goes to ``folder/log``."""
    python = python or Path(sys.executable)
    spark_home = _spark_home(python)
    quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.driver.extraJavaOptions": quick_start,
        "spark.executor.extraJavaOptions": quick_start,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "WARN",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **(conf or {}),
    }
    uri = job_io.write_request(request)
    files = ",".join(str(path) for path in (package_zip(folder / "zip"), *py_files))
    command = [str(spark_home / "bin" / "spark-submit"), "--master", master, "--py-files", files]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "SPARK_HOME": str(spark_home),
        "SPARK_LAUNCHER_OPTS": quick_start,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    } | {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*command, str(application_file()), uri, job_io.request_digest(request)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )


def _spark_home(python: Path) -> Path:
    (site_packages,) = (python.parents[1]).glob("lib/python*/site-packages")
    return site_packages / "pyspark"


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


@dataclass(frozen=True)
class TaskEnd:
    partition: int
    attempt: int
    reason: str

    @property
    def succeeded(self) -> bool:
        return self.reason.startswith("Success")


def task_ends(folder: Path) -> list[TaskEnd]:
    """Return how each task attempt ended, by the event log."""
    (log,) = (path for path in folder.iterdir() if path.name.startswith(("local-", "app-")))
    events = (json.loads(line) for line in log.read_text().splitlines())
    return [
        TaskEnd(event["Task Info"]["Index"], event["Task Info"]["Attempt"], _reason(event["Task End Reason"]))
        for event in events
        if event["Event"] == "SparkListenerTaskEnd"
    ]


def _reason(end: dict) -> str:
    return f"{end['Reason']} {end.get('Class Name', '')} {end.get('Description', '')}"
