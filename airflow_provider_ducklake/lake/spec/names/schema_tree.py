"""The full names of schemas that lie in each other. *Source:* docs/sources.md, nested schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.spec.names.identifiers import SchemaPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def schema_paths(rows: Iterable[tuple[int, int | None, str]]) -> dict[int, SchemaPath]:
    """Return the full names of schemas by id; each row is an id, the id of the schema it lies in, and a name.

    One that lies in a schema that is not there counts as dropped, with all that lies in it.

    >>> {id_: str(path) for id_, path in schema_paths([(2, 1, "b"), (1, None, "a"), (3, 9, "c")]).items()}
    {1: 'a', 2: 'a.b'}

    Raises:
        CatalogError: schemas lie in each other.
    """
    named = {schema_id: (parent, name) for schema_id, parent, name in rows}
    found: dict[int, SchemaPath | None] = {}
    for schema_id in named:
        _find(schema_id, named, found)
    return {schema_id: path for schema_id, path in found.items() if path is not None}


def schema_circles(parents: Mapping[int, int | None]) -> Iterator[tuple[int, ...]]:
    """Yield the schemas of each circle; ``parents`` are the schemas in which they lie, by id.

    >>> list(schema_circles({1: 2, 2: 3, 3: 2, 4: 4, 5: None, 6: 9}))
    [(2, 3), (4,)]
    """
    seen: set[int] = set()
    for start in parents:
        way: dict[int, int] = {}
        above: int | None = start
        while above is not None and above in parents and above not in seen and above not in way:
            way[above] = len(way)
            above = parents[above]
        if above in way:
            yield tuple(way)[way[above] :]
        seen.update(way)


def _find(start: int, named: dict[int, tuple[int | None, str]], found: dict[int, SchemaPath | None]) -> None:
    """Note the paths of a schema and of those above it, top down; no recursion, as depth has no limit."""
    way: dict[int, None] = {}
    above: int | None = start
    while above is not None and above in named and above not in found:
        if above in way:
            raise CatalogError(
                f'Schema "{named[above][1]}" (id {above}) lies in itself: the column parent_schema_id of '
                "ducklake_schema leads round in a circle. Correct it, or go back to a backup of the catalog."
            )
        way[above] = None
        above = named[above][0]
    path = None if above is None else found.get(above)
    is_there = above is None or path is not None
    for schema_id in reversed(way):
        parts = () if path is None else path.parts
        path = SchemaPath((*parts, named[schema_id][1])) if is_there else None
        found[schema_id] = path
