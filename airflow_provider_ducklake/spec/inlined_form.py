"""In which form a catalog database holds users' rows, and what it cannot hold; each dialect has its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InlinedForm:
    """What a database takes as columns and values of tables for inlined rows.

    ``native``: the types whose values it gets as they are; all others are texts. ``missing_types``: those for
    which it has no column. ``kept_names``: names, folded, that no column can have there. ``max_name_bytes``
    None: no limit.
    """

    max_columns: int
    native: frozenset[str]
    has_decimals: bool
    nested_nul: bool
    missing_types: frozenset[str] = frozenset()
    kept_names: frozenset[str] = frozenset()
    max_name_bytes: int | None = None


TEXTS = ("varchar", "json")
SMALL_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
