"""Act at the moment a commit is about to happen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.lake import Lake


@contextmanager
def before_commit(lake: Lake, act: Callable[[object], None]) -> Iterator[None]:
    """Call `act` with the connection that is about to commit; on PostgreSQL the COMMIT ends a text."""
    engine = lake.opened.catalog.dialect.engine

    def listener(connection, _cursor, statement, *_others):
        if statement.endswith("COMMIT"):
            act(connection)

    name, called = (
        ("before_cursor_execute", listener) if engine.dialect.name == "postgresql" else ("commit", act)
    )
    event.listen(engine, name, called)
    try:
        yield
    finally:
        event.remove(engine, name, called)
