"""Child processes that do one task after the other; one that aborts or hangs is started again."""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

_START_SECONDS = 120  # what the first task of a process may take beyond its limit: imports, a JVM
_LAST_WORDS = 300  # characters


class WorkerEndedError(Exception):
    """The process of a task ended, by a signal or an exit."""


class TimeLimitError(Exception):
    """A task did not end within its limit; its process was killed."""


class TaskError(Exception):
    """A task raised something that it was to turn into an outcome."""


class Worker:
    """A process that calls ``serve(*arguments)`` once, and what this returns for each task."""

    def __init__(self, serve: Callable[[], Callable[..., Any]], seconds: float) -> None:
        self._serve = serve
        self._seconds = seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_new = True
        self._log = Path(tempfile.mkstemp(prefix="corpora-", suffix=".log")[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end()
        self._log.unlink()

    def do(self, *task: Any) -> Any:
        """Return what the process makes of a task.

        Raises:
            WorkerEndedError: the process ended; says by what, and its last words.
            TimeLimitError: it was ended after the time limit.
            TaskError: the task raised.
        """
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._connection is not None
        self._connection.send(task)
        limit = self._seconds + (_START_SECONDS if self._is_new else 0)
        self._is_new = False
        if not self._connection.poll(limit):
            self._end(patience=0)
            raise TimeLimitError(f"not done within {limit:.0f} s")
        try:
            is_done, result = self._connection.recv()
        except EOFError:
            raise WorkerEndedError(self._last_words()) from None
        if not is_done:
            raise TaskError(result)
        return result

    def _start(self) -> None:
        self._end()
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_tasks, args=(theirs, self._serve, str(self._log)), daemon=False)
        self._process.start()
        theirs.close()
        self._is_new = True

    def _end(self, patience: float = 5) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join(patience)  # it ends by itself when its connection is closed
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._process = None

    def _last_words(self) -> str:
        assert self._process is not None
        self._process.join(10)
        code = self._process.exitcode
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{name}: {' / '.join(said[-3:])[-_LAST_WORDS:]}"


def _tasks(connection: Connection, serve: Callable[[], Callable[..., Any]], log: str) -> None:
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    do = serve()
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            task = connection.recv()
            began = time.monotonic()
            try:
                answer = (True, do(*task))
            except Exception as error:  # noqa: BLE001 - what the parent is to see
                answer = (False, f"{type(error).__name__}: {error} ({time.monotonic() - began:.1f} s)")
            os.truncate(log, 0)
            connection.send(answer)
