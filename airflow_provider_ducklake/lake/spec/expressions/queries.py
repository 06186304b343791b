"""What a query says: the body of a table macro, or a subquery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.expressions.tree import Call, Expression, Ordered


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result; ``value`` None for ``*``, with ``table`` for ``table.*``."""

    value: Expression | None
    alias: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A table by its name, a function or a query in FROM; exactly one of these."""

    table: tuple[str, ...] = ()
    call: Call | None = None
    query: Query | None = None
    alias: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """What is joined to the sources before it; ``kind`` is ``,``, ``CROSS``, ``INNER`` and so on."""

    kind: str
    source: Source
    on: Expression | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT; ``values`` alone for VALUES."""

    items: tuple[Item, ...] = ()
    distinct: bool = False
    source: Source | None = None
    joins: tuple[Join, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] | None = None
    having: Expression | None = None
    qualify: Expression | None = None
    values: tuple[tuple[Expression, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Selects with set operations between them, and what stands around all of them."""

    selects: tuple[Select | Query, ...]
    operators: tuple[str, ...] = ()
    with_: tuple[tuple[str, Query], ...] = ()
    order_by: tuple[Ordered, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
