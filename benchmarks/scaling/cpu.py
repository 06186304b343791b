"""CPU seconds of processes: unlike the time on the wall, they are alike on an idle and a busy machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")
_USED = slice(11, 15)  # of the fields after the name: utime, stime, and those of children that ended


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server on this machine, by its first process."""

    pid: int

    @classmethod
    def at(cls, connection: str) -> Server:
        """Return the server of a libpq connection string."""
        with psycopg.connect(connection) as admin:
            folder = admin.execute("SHOW data_directory").fetchone()[0]
        return cls(int((Path(folder) / "postmaster.pid").read_text(encoding="ascii").split()[0]))

    def cpu_seconds(self) -> float:
        """Return what the server has used, with its workers, those that ended as well."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        return sum(map(_used, (str(self.pid), *children)))


def _used(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    except FileNotFoundError:  # it ended meanwhile, and counts for its parent
        return 0.0
    return sum(map(int, fields[_USED])) / _TICKS
