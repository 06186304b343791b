"""Servers of the tests, as processes: one that a block ends, and one that ends with the test run."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# A JVM starts faster, and does little work faster, without its second compiler and its other threads.
FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_PORTS = range(20_000, 32_000)


@contextmanager
def running(
    command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a folder; end it with the block, by force where it does not go."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(log: Path, words: str, seconds: float, times: int = 1) -> None:
    """Wait until a log has the words so many times."""
    end = time.monotonic() + seconds
    while log.read_text().count(words) < times:
        if time.monotonic() > end:
            raise TimeoutError(f"{words!r} is not in {log}:\n{log.read_text()}")
        time.sleep(0.1)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, and that the system gives to no client."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


class SupervisedServer:
    """A server under a shell that prints `ready`, and ends it and removes ``root`` when its input closes.

    It closes also when the test run is killed. ``user`` are arguments of ``Popen``.
    """

    def __init__(
        self,
        name: str,
        script: str,
        arguments: Sequence[str],
        root: Path,
        user: Mapping[str, Any] | None = None,
    ) -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,  # Ctrl-C goes to the test run, which then stops us
            **(user or {}),
        )
        if self._shell.stdout.readline() != b"ready\n":
            log = (root / "log").read_text(errors="replace")
            self.stop()
            shutil.rmtree(root, ignore_errors=True)
            raise RuntimeError(f"{name} did not start:\n{log}")

    def stop(self) -> None:
        self._shell.communicate(timeout=60)
