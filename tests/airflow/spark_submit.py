"""`spark-submit` as the PATH gives it: noted down before it runs, or replaced by a stand-in without a JVM."""

import json
import os
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import warm_jobs
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.reference.processes import FAST_JVM

ROOT = Path(__file__).parents[2]
# SparkSubmitHook leaves its process to the garbage collector.
LEAVES_PROCESS = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
STAND_IN = Path(__file__).with_name("stand_in_job.py")

_RECORDER = """#!{python} -SE
import json, os, sys
call = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
call = json.dumps(call).encode()
calls = os.open({calls!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(calls, call + b"\\n")  # at once, as two may start at the same time
os.close(calls)
command = {command!r}
"""
_RUN = "os.execv(command[0], command + sys.argv[1:])"


@dataclass(frozen=True)
class Call:
    """One start of `spark-submit`."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str

    def value_of(self, option: str) -> str:
        return self.arguments[self.arguments.index(option) + 1]

    @property
    def conf(self) -> dict[str, str]:
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return dict(value.split("=", 1) for option, value in pairs if option == "--conf")


class SparkSubmit:
    """A `spark-submit` that comes first on the PATH."""

    def __init__(
        self, folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, code: str = _RUN
    ) -> None:
        self._calls = folder / "calls"
        self._monkeypatch = monkeypatch
        program = self.program = folder / "spark-submit"
        folder.mkdir(parents=True, exist_ok=True)
        recorder = _RECORDER.format(python=sys.executable, calls=str(self._calls), command=command)
        program.write_text(recorder + code)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    @property
    def calls(self) -> list[Call]:
        if not self._calls.exists():
            return []
        return [Call(**json.loads(line)) for line in self._calls.read_text().splitlines()]

    def meanwhile(self, code: str) -> None:
        """Have the stand-in run `code` between its last file and its result."""
        self._monkeypatch.setenv("STAND_IN_MEANWHILE", code)


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    """Put a recorder before the real one, which starts fast and knows the interpreter of the tests."""
    real = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert real is not None
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", FAST_JVM)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return SparkSubmit(folder, [real], monkeypatch)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_warm: bool = True) -> SparkSubmit:
    """Put a job without Spark in its place (`stand_in_job`), out of a warm process or as one of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    if is_warm:
        return SparkSubmit(folder, [warm_jobs.address()], monkeypatch, warm_jobs.CLIENT)
    return SparkSubmit(folder, [sys.executable, "-P", str(STAND_IN)], monkeypatch)


def duckdb(catalog: CatalogDatabase, sql: str) -> list[tuple[Any, ...]]:
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        return lake.sql(sql)


def head(catalog: CatalogDatabase) -> int:
    return duckdb(catalog, "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]


def files_below(catalog: CatalogDatabase) -> list[Path]:
    return [path for path in Path(catalog.data_path).rglob("*") if path.is_file()]
