"""Count what is sent to catalogs."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield a list of what is sent within the block; one statement with many rows counts once.

    What PostgreSQL gets in one text, in one round trip, counts once as well.
    """
    sent: list[str] = []

    def note(_connection, _cursor, statement, *_rest) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def questions() -> Iterator[list[str]]:
    """Yield a list of the queries that PostgreSQL gets within the block, each with its values in it."""
    sent: list[str] = []

    def note(connection, _cursor, statement, parameters, *_rest) -> None:
        if parameters:
            statement = psycopg.ClientCursor(connection.connection.driver_connection).mogrify(
                statement, parameters
            )
        sent.extend(one for one in statement.split(";\n") if one.lstrip().startswith("SELECT"))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)
