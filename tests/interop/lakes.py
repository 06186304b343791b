"""How a test changes a lake: we by one change in a transaction of its own, DuckDB by statements."""

from collections.abc import Callable
from typing import Any, cast

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


class _Alone:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            with self._lake.transaction() as tx:
                return getattr(tx, name)(*arguments, **named)

        return change


def alone(lake: Lake) -> LakeTransaction:
    """Return what has the methods of a transaction, and commits each call alone."""
    return cast(LakeTransaction, _Alone(lake))


def by_duckdb(catalog: CatalogDatabase | str, *statements: str, **options: Any) -> list[tuple[Any, ...]]:
    """Let DuckDB attach a lake and run statements; return the rows of the last."""
    rows: list[tuple[Any, ...]] = []
    with open_lake(catalog, **options) as reference:
        for statement in statements:
            rows = reference.sql(statement)
    return rows
