"""What may happen to a task around its commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.lake import Lake


class WorkerDiedError(Exception):
    """A worker that dies raises nothing; for Airflow it comes to the same."""


@contextmanager
def dies_after_commit(_lake: Lake) -> Iterator[None]:
    yield
    raise WorkerDiedError


@contextmanager
def dies_before_commit(_lake: Lake) -> Iterator[None]:
    raise WorkerDiedError
    yield


@contextmanager
def loses_the_answer(lake: Lake) -> Iterator[None]:
    """COMMIT lands and its answer is lost."""

    def act(connection: Any) -> None:
        connection.connection.driver_connection.commit()
        raise ConnectionResetError

    engine = lake.opened.catalog.dialect.engine
    event.listen(engine, "commit", act)
    try:
        yield
    finally:
        event.remove(engine, "commit", act)


class UnluckyCommits:
    """Comes before an operator's class: what happens around its commits, one after the other."""

    events: list[Callable[[Lake], Any]]

    def run(self, lake: Lake, *arguments: Any) -> Any:
        return super().run(UnluckyLake(lake, self.events), *arguments)  # type: ignore[misc]


class UnluckyLake:
    """A lake around whose commits something happens."""

    def __init__(self, lake: Lake, events: list[Callable[[Lake], Any]]) -> None:
        self._real, self._events = lake, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def committer(self) -> Any:
        return self

    def commit_change_sets(self, *arguments: Any, **named: Any) -> Any:
        around = self._events.pop(0) if self._events else nullcontext
        with around(self._real):
            return self._real.committer.commit_change_sets(*arguments, **named)
