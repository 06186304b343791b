"""What a commit must know of its database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.schema import CreateSchema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime

    from sqlalchemy.exc import DBAPIError


class CatalogDialect(ABC):
    """One catalog database, as far as it differs from the others.

    ``transactional_ddl``: whether CREATE and DROP are part of the transaction; where they are not, they would
    commit it, and must run before it begins or after it ended. ``initial_options``: rows of
    ``ducklake_metadata`` that new lakes get there.
    """

    transactional_ddl: ClassVar[bool] = True
    initial_options: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @abstractmethod
    def writing(self) -> AbstractContextManager[Connection]:
        """Hold the commit lock and yield a connection inside a transaction; whoever uses it commits.

        Our writers queue here instead of racing; DuckDB knows nothing of the lock.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """Yield a connection whose statements all see one state of the catalog."""

    @abstractmethod
    def server_time(self, connection: Connection) -> datetime:
        """Return the catalog's clock as an aware time."""

    @abstractmethod
    def is_lost_race(self, error: DBAPIError) -> bool:
        """Whether another writer came first, by the driver's error code: starting again may succeed."""

    def create_metadata_schema(self, connection: Connection, name: str | None) -> None:
        """Create the database schema that holds the catalog's tables, where the database has such a thing."""
        if name is not None:
            connection.execute(CreateSchema(name, if_not_exists=True))

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        """Whether the database has a table of that name."""
        return inspect(connection).has_table(name, schema=schema)
