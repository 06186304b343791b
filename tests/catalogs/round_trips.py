"""Count what goes to PostgreSQL and comes back: BEGIN and ROLLBACK as well as questions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import pq
from sqlalchemy import event
from sqlalchemy.engine import Engine

_REQUEST = re.compile(r"^F\t\d+\t(?:Query|Sync)(.*)$", re.MULTILINE)
# What SQLAlchemy asks the first connection of each engine.
_FIRST_ASKED = re.compile(
    r"^[^\n]*pg_catalog\.version.*?standard_conforming_strings\"\n", re.DOTALL | re.MULTILINE
)


@contextmanager
def round_trips(folder: Path) -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what connections opened within it asked, as libpq saw it."""
    requests: list[str] = []
    opened: list[psycopg.Connection] = []
    with (folder / "trace").open("w+", encoding="utf-8") as file:

        def trace(connection: psycopg.Connection, _record: object) -> None:
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
            opened.append(connection)

        event.listen(Engine, "connect", trace)
        try:
            yield requests
        finally:
            event.remove(Engine, "connect", trace)
            for connection in opened:
                if not connection.closed:
                    connection.pgconn.untrace()
        file.seek(0)
        lines = "\n".join(_REQUEST.findall(file.read())) + "\n"
    requests += _FIRST_ASKED.sub("", lines).splitlines()
