"""Which tables of a catalog each role may change.

A reader may read every table. A maintainer may do everything: it owns them. What a writer may change is here.
*Source:* the statements of our verbs and of DuckDB 1.5.5 as users with these rights
(docs/sources.md, rights in the catalog's database).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_UPDATE, _DELETE = ("UPDATE",), ("DELETE",)
# A writer inserts into every table of the format. It changes these besides: it ends lifetimes, adds to
# statistics, sets options, and replaces delete files.
_CHANGED: Mapping[str, tuple[str, ...]] = {
    "metadata": (*_UPDATE, *_DELETE),
    "schema": _UPDATE,
    "table": _UPDATE,
    "view": _UPDATE,
    "macro": _UPDATE,
    "tag": _UPDATE,
    "column_tag": _UPDATE,
    "view_column_tag": _UPDATE,
    "column": _UPDATE,
    "data_file": _UPDATE,
    "delete_file": (*_UPDATE, *_DELETE),
    "file_column_stats": _UPDATE,
    "table_stats": _UPDATE,
    "table_column_stats": (*_UPDATE, *_DELETE),
    "partition_info": _UPDATE,
    "sort_info": _UPDATE,
    "inlined_data_tables": _DELETE,
}
# Tables that are made for a table of the lake, some of them while it is written.
_INLINED = {
    re.compile(r"ducklake_inlined_data_\d+_\d+"): ("SELECT", "INSERT", *_UPDATE),
    re.compile(r"ducklake_inlined_delete_\d+"): ("SELECT", "INSERT", *_DELETE),
}


def rights_on(kind: str) -> tuple[str, ...]:
    """Return what a writer may do to a table of the format, which has its name after ``ducklake_``."""
    return ("SELECT", "INSERT", *_CHANGED.get(kind, ()))


def rights_on_inlined(name: str) -> tuple[str, ...]:
    """Return what a writer may do to a table of inlined rows or deletes; nothing where it is neither."""
    return next((rights for pattern, rights in _INLINED.items() if pattern.fullmatch(name)), ())
