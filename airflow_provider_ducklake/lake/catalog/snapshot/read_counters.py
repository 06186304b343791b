"""What a catalog has given out already, by which the counters of its newest snapshot are checked.

Two writers with counters that they kept in memory leave one behind, and the next commit would give two
tables one id. *Source:* docs/sources.md, commits; DuckDB itself does not look.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.database.questions import Question
from airflow_provider_ducklake.lake.errors import CounterBehindError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row, Select

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot

# The counter of a snapshot, and where it is used; the first are primary keys, and cost nothing to ask.
_OF_FILES = (("next_file_id", "data_file", "data_file_id"), ("next_file_id", "delete_file", "delete_file_id"))
_OF_DEFINITIONS = (
    ("next_file_id", "column_mapping", "mapping_id"),
    ("next_catalog_id", "schema", "schema_id"),
    ("next_catalog_id", "table", "table_id"),
    ("next_catalog_id", "view", "view_id"),
    ("next_catalog_id", "macro", "macro_id"),
    ("next_catalog_id", "partition_info", "partition_id"),
    ("next_catalog_id", "sort_info", "sort_id"),
    ("schema_version", "schema_versions", "schema_version"),
)


def which_counters(tables: CatalogTables, *, definitions: bool) -> Question[Mapping[str, int]]:
    """Ask what each counter has to be at least; that of files alone, or with ``definitions`` all of them."""
    places = (*_OF_FILES, *(_OF_DEFINITIONS if definitions else ()))

    def read(rows: Sequence[Row[Any]]) -> Mapping[str, int]:
        least: dict[str, int] = {}
        for (counter, *_), largest in zip(places, rows[0], strict=True):
            if largest is not None:
                given = largest if counter == "schema_version" else largest + 1
                least[counter] = max(least.get(counter, 0), given)
        return least

    return Question(_largest(tables, places), read)


def check_counters(head: Snapshot, least: Mapping[str, int]) -> None:
    """Compare the newest snapshot's counters with what is given out.

    Raises:
        CounterBehindError: one is behind; names it.
    """
    for counter, wanted in least.items():
        if (found := getattr(head, counter)) < wanted:
            raise CounterBehindError(counter, found, wanted, head.id)


@lru_cache
def _largest(tables: CatalogTables, places: tuple[tuple[str, str, str], ...]) -> Select[Any]:
    return select(
        *(
            select(maybe(func.max(tables[table].c[column]))).scalar_subquery().label(column)
            for _, table, column in places
        )
    )
