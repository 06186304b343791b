"""Provoke each way in which a job dies before it can say why, and keep what spark-submit then prints.

    scripts/run python -m tests.spark.record_failed_logs [name …]

Paths of the machine become `/opt/…`, so that the records stay when nothing changes.
"""

import os
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.package_zip import application_file, package_zip
from airflow_provider_ducklake.lake.spark.job.request import JobRequest, source_of
from tests.spark.submission import slim_python

RECORDS = Path(__file__).with_name("failed_logs")
SPARK_HOME = Path(pyspark.__file__).parent
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

TRANSFORMS = """
import os

def fine(spark, sources):
    return spark.range(3).mapInArrow(lambda batches: batches, "id bigint")

def heap(spark, sources):
    spark._jvm.java.util.Arrays.copyOf(spark._jvm.java.nio.ByteBuffer.allocate(2**30).array(), 2**30)

def kill_worker(spark, sources):
    return spark.range(3).mapInArrow(lambda batches: os.kill(os.getpid(), 9), "id bigint")

def kill_executor(spark, sources):
    def kill(batches):
        os.kill(int(open(f"/proc/{os.getppid()}/stat").read().split(") ")[1].split()[1]), 9)
        return batches

    return spark.range(3).mapInArrow(kill, "id bigint")

def kill_driver(spark, sources):
    os.kill(os.getpid(), 9)

def kill_jvm(spark, sources):
    os.kill(os.getppid(), 9)
"""


@dataclass(frozen=True)
class Failure:
    """How to provoke one: what the task gives spark-submit, and its environment."""

    arguments: tuple[str, ...] = ("--master", "local[1]")
    transform: str = "fine"
    environment: Callable[[Path], dict[str, str]] = field(default=lambda _: {})
    request_is_there: bool = True


def without_java(folder: Path) -> dict[str, str]:
    """A PATH with every program but Java's."""
    (folder / "bin").mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith("java"):
            (folder / "bin" / program.name).symlink_to(program)
    return {"JAVA_HOME": "", "PATH": str(folder / "bin")}


def newer_spark(folder: Path) -> dict[str, str]:
    """A Spark that was compiled for a Java which is not out yet, as a new Spark is for an old Java."""
    (folder / "spark").mkdir()
    (folder / "spark" / "bin").symlink_to(SPARK_HOME / "bin")
    (launcher,) = SPARK_HOME.glob("jars/spark-launcher_*.jar")
    (folder / "spark" / "jars").mkdir()
    with zipfile.ZipFile(launcher) as old, zipfile.ZipFile(folder / "spark" / "jars" / "a.jar", "w") as new:
        for name in old.namelist():
            code = old.read(name)
            new.writestr(name, code[:6] + (99).to_bytes(2) + code[8:] if name.endswith(".class") else code)
    return {"SPARK_HOME": str(folder / "spark")}


def other_python(version: str) -> Callable[[Path], dict[str, str]]:
    """Executors with another version of Python, as it lies beside the one that we run in."""

    def environment(_: Path) -> dict[str, str]:
        (python,) = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python3")
        return {"PYSPARK_PYTHON": str(python)}

    return environment


def without_pyarrow(folder: Path) -> dict[str, str]:
    """Executors that have PySpark only."""
    return {"PYSPARK_PYTHON": str(slim_python(folder / "venv", ("pyspark", "py4j")))}


LOCAL_CLUSTER = ("--master", "local-cluster[1,1,1024]")
FAILURES = {
    "no_java": Failure(environment=without_java),
    "wrong_java_home": Failure(environment=lambda _: {"JAVA_HOME": "/usr/lib/jvm/none"}),
    "old_java": Failure(environment=newer_spark),
    "no_master": Failure(("--master", "spark://127.0.0.1:9")),
    "cluster_local": Failure(("--master", "local[1]", "--deploy-mode", "cluster")),
    "cluster_standalone": Failure(("--master", "spark://127.0.0.1:9", "--deploy-mode", "cluster")),
    "no_yarn": Failure(("--master", "yarn")),
    "no_such_package": Failure(("--master", "local[1]", "--packages", "org.apache.hadoop:hadoop-aws:0.0.1")),
    "no_python": Failure(environment=lambda _: {"PYSPARK_PYTHON": "/opt/no/python"}),
    "other_python": Failure(environment=other_python("3.13")),
    "no_pyarrow": Failure(environment=without_pyarrow),
    "old_python": Failure(environment=other_python("3.9")),
    "heap": Failure(("--master", "local[1]", "--driver-memory", "600m"), "heap"),
    "killed_worker": Failure(transform="kill_worker"),
    "killed_executor": Failure(LOCAL_CLUSTER, "kill_executor"),
    "killed_driver": Failure(transform="kill_driver"),
    "killed_jvm": Failure(transform="kill_jvm"),
    "no_request": Failure(request_is_there=False),
}


def provoke(failure: Failure, folder: Path) -> str:
    """Return what spark-submit prints, and last how it ended, as Airflow's hook says it."""
    arguments, module = _written_request(folder, failure), folder / "provoked.py"
    module.write_text(TRANSFORMS)
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "JAVA_HOME": os.environ["JAVA_HOME"],
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": QUICK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    } | failure.environment(folder)
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", *failure.arguments]
    command += ["--conf", "spark.log.level=WARN", "--conf", "spark.ui.enabled=false"]
    command += ["--py-files", f"{package_zip(folder)},{module}", str(application_file()), *arguments]
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={name: value for name, value in environment.items() if value},
        cwd=folder,
        check=False,
        timeout=400,
    )
    return f"{ended.stdout}Error code is: {ended.returncode}.\n"


def _written_request(folder: Path, failure: Failure) -> tuple[str, str]:
    job_id, root = str(uuid.uuid4()), f"{folder}/main/t/"
    schema = new_columns({"id": "int64"})
    directory = f"{root}ducklake-{job_id}/"
    plan = WritePlan("main.t", directory, schema)
    request = JobRequest(job_id, source_of(transform=f"provoked:{failure.transform}"), (plan,))
    if not failure.request_is_there:
        return job_io.request_uri(directory), job_io.request_digest(request)
    return job_io.write_request(request), job_io.request_digest(request)


def anonymous(text: str, folder: Path) -> str:
    """Return the text without this machine's names."""
    places = {
        str(folder): "/opt/job",
        str(SPARK_HOME): "/opt/spark",
        os.environ["JAVA_HOME"]: "/opt/java",
        sys.prefix: "/opt/venv",
        str(Path(__file__).parents[2]): "/opt/dags",
        str(Path(sys.base_prefix).parent): "/opt/pythons",
        str(Path.home()): "/opt/home",
    }
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def main(names: list[str]) -> None:
    for name in names or FAILURES:
        with tempfile.TemporaryDirectory() as folder:
            text = anonymous(provoke(FAILURES[name], Path(folder)), Path(folder))
        (RECORDS / f"{name}.txt").write_text(text)
        sys.stdout.write(f"{name}: {len(text.splitlines())} lines\n")


if __name__ == "__main__":
    main(sys.argv[1:])
