"""Under which name the catalog keeps the comment of a view's column: as the query has it, before aliases.

*Source:* docs/sources.md, comments of view columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.tags import ViewDefinition

_LAKE = "{DUCKLAKE_CATALOG}"  # what the reference writes for the name under which a lake is attached


def stored_name(view: str, definition: ViewDefinition, column: str) -> str:
    """Return the query's name for a column of the view.

    Where the query does not say its columns, as with ``*``, the name given is taken for the query's.

    Raises:
        ColumnNotFoundError: the view has no such column.
        UnsupportedFeatureError: the view gives the column an alias, and the query does not say its name.
    """
    names, aliases = _query_names(definition), definition.column_aliases
    shown = [*aliases, *(names or ())[len(aliases) :]]
    place = next((place for place, one in enumerate(shown) if one and fold(one) == fold(column)), None)
    if place is None:
        if names is None and not aliases:
            return column
        raise ColumnNotFoundError(column, view, [one or "?" for one in shown])
    if names is None or place >= len(names) or not names[place]:
        raise UnsupportedFeatureError(
            f"{view}: the query does not say the name of column {column!r}, under which DuckLake keeps its "
            "comment. Name the column in the query, with AS."
        )
    return names[place]


def _query_names(definition: ViewDefinition) -> list[str] | None:
    """Return the names that a query gives to its columns, empty for those without; None: it does not say."""
    from sqlglot import exp  # noqa: PLC0415 - a third of a second, and few transactions ask
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    from airflow_provider_ducklake.lake.sql import trees  # noqa: PLC0415

    try:
        tree = trees.parse_one(definition.sql.replace(_LAKE, "lake"), definition.dialect)
    except (SqlglotError, ValueError):
        return None
    if not isinstance(tree, exp.Query) or tree.is_star:
        return None
    return list(tree.named_selects)
