"""What a player was about to do and what came of it, in a file outside the lake that survives its death."""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SPACE = 1_000_000  # between the operations of two players


@dataclass(frozen=True)
class Op:
    """One commit. ``target`` is the operation whose rows it changes, ``was`` what their ``n`` was before."""

    id: int
    kind: str
    size: int
    target: int = 0
    was: int = 0

    @property
    def key(self) -> str:
        return f"op {self.id}"


class Journal:
    """The operations of one player, in order; the last may still be open."""

    def __init__(self, path: Path, player: int) -> None:
        self._path, self._player = path, player
        self.ops: list[Op] = []
        self.settled: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.last_error = ""
        self.wrong: list[str] = []
        self.digests: list[tuple[int, str]] = []
        for line in path.read_text().split("\n")[:-1] if path.exists() else ():
            self._take(json.loads(line))

    def _take(self, entry: dict[str, Any]) -> None:
        match entry:
            case {"op": op}:
                self.ops.append(Op(**op))
            case {"settled": number, "as": how}:
                self.settled.add(number)
                self.counts[how] += 1
            case {"count": name, "why": why}:
                self.counts[name] += 1
                self.last_error = why
            case {"wrong": text}:
                self.wrong.append(text)
            case {"snapshot": snapshot, "digest": digest}:
                self.digests.append((snapshot, digest))

    def _write(self, entry: dict[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{json.dumps(entry)}\n".encode())  # at once: a kill leaves no half of it
        finally:
            os.close(descriptor)
        self._take(entry)

    @property
    def open(self) -> Op | None:
        """The operation of which it is not known whether it was done."""
        return self.ops[-1] if self.ops and self.ops[-1].id not in self.settled else None

    @property
    def next_id(self) -> int:
        return self._player * SPACE + len(self.ops) + 1

    def intend(self, op: Op) -> None:
        self._write({"op": asdict(op)})

    def settle(self, op: Op, how: str) -> None:
        self._write({"settled": op.id, "as": how})

    def count(self, name: str, error: Exception | None = None) -> None:
        self._write({"count": name, "why": "" if error is None else f"{error}"[:500]})

    def complain(self, text: str) -> None:
        self._write({"wrong": text})

    def saw(self, snapshot: int, digest: str) -> None:
        self._write({"snapshot": snapshot, "digest": digest})
