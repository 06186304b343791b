"""Count what is sent to catalogs."""

from collections.abc import Iterator
from contextlib import contextmanager

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
