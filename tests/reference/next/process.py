"""A Python of the other environment that makes objects and calls their methods; a test worker needs one."""

import atexit
import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from tests.reference.next.wire import receive, send

_ROOT = Path(__file__).parents[3]
PYTHON = Path(sys.prefix) / "next" / "bin" / "python"


class OracleError(Exception):
    """What an oracle raised; the text begins with the class of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class OracleProcess:
    """One process with what was made in it. Calls from several threads wait for one another."""

    def __init__(self) -> None:
        if not PYTHON.exists():
            raise RuntimeError(f"there is no {PYTHON}: run scripts/setup")
        self._lock = threading.Lock()
        self._running = subprocess.Popen(
            [PYTHON, "-m", "tests.reference.next.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={"TZ": "UTC", "PATH": ""},
            start_new_session=True,  # Ctrl-C goes to the test run, which then stops us
        )

    @property
    def is_alive(self) -> bool:
        return self._running.poll() is None

    def call(self, target: int, method: str, *args: object, **kwargs: object) -> Any:
        """Call a method of the object with that number; 0 makes others and returns their numbers.

        Raises:
            OracleError: the method raised.
        """
        with self._lock:
            try:
                send(self._running.stdin, (target, method, args, kwargs))
                kind, value = receive(self._running.stdout)
            except BaseException:  # a timeout leaves an answer in the pipe
                self._running.kill()
                raise
        if kind is not None:
            raise OracleError(kind, value)
        return value

    def stop(self) -> None:
        self._running.kill()
        self._running.communicate()


class Remote:
    """An object in the process. Its methods are those of the class that its maker names."""

    def __init__(self, process: OracleProcess, maker: str, *args: object, **kwargs: object) -> None:
        self._process = process
        self._number = process.call(0, maker, *args, **kwargs)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._process.call, self._number, method)

    def close(self) -> None:
        self._process.call(0, "close", self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.is_alive:
            self.close()


_shared: list[OracleProcess] = []


def shared_process() -> OracleProcess:
    """Return this worker's process, started at the first call and again when it has died."""
    if not _shared or not _shared[0].is_alive:
        _shared[:] = [OracleProcess()]
        atexit.register(_shared[0].stop)
    return _shared[0]
