"""Rows as users give them: files, a query, a function, or a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spark.job.request import source_of

if TYPE_CHECKING:
    from airflow_provider_ducklake.spark.job.request import GivenSource
    from airflow_provider_ducklake.writes.verb import Resolve

UserDatasets: TypeAlias = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Where rows come from: exactly one of ``source``, ``sql`` and ``transform``; see the insert operator."""

    source: Any = None
    sql: str | None = None
    transform: str | None = None
    sources: UserDatasets = None

    def check(self, **others: object) -> None:
        """Refuse none or several ways to give rows; ``others`` are further ones.

        Raises:
            InvalidInputError: names what there is to choose from.
        """
        ways = {"source": self.source, "sql": self.sql, "transform": self.transform, **others}
        if sum(one is not None for one in ways.values()) != 1:
            *first, last = ways
            raise InvalidInputError(f"Give exactly one of {', '.join(first)} and {last}.")

    def resolved(self, resolve: Resolve) -> GivenSource:
        """Return the source of a job's request.

        Raises:
            InvalidInputError: something cannot be read, or names a connection that does not exist.
        """
        source = None if self.source is None else resolve(self.source)
        sources = {name: resolve(item) for name, item in (self.sources or {}).items()}
        return source_of(source, self.sql, self.transform, sources)
