"""Sort specs of tables, as stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.ids import SortId


@dataclass(frozen=True, slots=True)
class SortField:
    """One key: an expression in a dialect, ``ASC``/``DESC``, ``NULLS_FIRST``/``NULLS_LAST``."""

    expression: str
    dialect: str = "duckdb"
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"


@dataclass(frozen=True, slots=True)
class SortSpec:
    """The sort keys of a table at one snapshot."""

    fields: tuple[SortField, ...]
    id: SortId | None = None
