"""Answers the calls of `process.py`, one after another, until its input ends."""

import os
import sys
from typing import Any

from tests.reference.next.core import Core
from tests.reference.next.lake import Lake
from tests.reference.next.wire import receive, send


class Makers:
    """The object with number 0."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {0: self}

    def lake(self, *args: Any, **kwargs: Any) -> int:
        return self._keep(Lake(*args, **kwargs))

    def core(self) -> int:
        return self._keep(Core())

    def close(self, number: int) -> None:
        self.made.pop(number).close()

    def _keep(self, made: object) -> int:
        number = max(self.made) + 1
        self.made[number] = made
        return number


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    made = Makers().made
    while True:
        try:
            number, method, args, kwargs = receive(requests)
        except EOFError:
            return
        try:
            answer = None, getattr(made[number], method)(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other side raises it
            answer = type(error).__name__, str(error)
        send(answers, answer)


if __name__ == "__main__":
    main()
