"""How a catalog database stores inlined rows, and what it cannot store; each dialect has its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.types.scalars import Kind


@dataclass(frozen=True, slots=True)
class InlinedForm:
    """What a database takes as columns and values of tables for inlined rows.

    ``native``: the kinds of types whose values it gets as they are, besides whole numbers of up to 64 bits;
    all others are texts. ``finest_clock``: the most units a second of a time of day. ``kept_names``: names,
    folded, that no column can have there. ``max_name_bytes`` None: no limit.
    """

    max_columns: int
    native: frozenset[Kind]
    has_decimals: bool
    nested_nul: bool
    finest_clock: int = 10**9
    kept_names: frozenset[str] = frozenset()
    max_name_bytes: int | None = None
