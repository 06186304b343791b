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
def transactions() -> Iterator[list[list[str]]]:
    """Yield what PostgreSQL gets within the block: the texts of each connection, with their values."""
    sent: dict[object, list[str]] = {}
    texts: list[list[str]] = []

    def note(connection, _cursor, statement, parameters, *_rest) -> None:
        driver = connection.connection.driver_connection
        if parameters:
            statement = psycopg.ClientCursor(driver).mogrify(statement, parameters)
        if driver not in sent:
            texts.append(sent.setdefault(driver, []))
        sent[driver] += statement.split(";\n")

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield texts
    finally:
        event.remove(Engine, "before_cursor_execute", note)
