"""Which tables of a query are its own common table expressions, and how often each is read.

Spark puts a common table expression in each place that names it: what it reads is read as often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_provider_ducklake.lake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 10**9  # how exact a count needs to be


class Scopes:
    """The common table expressions of a query, by the tables that name them."""

    def __init__(self, tree: exp.Expr) -> None:
        self._places: dict[int, dict[str, int]] = {}  # in its clause, by name
        self._times: dict[int, int] = {}
        self._named_by: dict[int, list[exp.Table]] = {}
        for table in tree.find_all(exp.Table):
            common = self.common(table)
            if common is not None and not _is_within(table, common):  # one that recurs is read once
                self._named_by.setdefault(id(common), []).append(table)
        for one in reversed(list(tree.find_all(exp.CTE, bfs=False))):
            self._count(one)  # the later ones, which name earlier ones, first: the stack stays low

    def common(self, table: exp.Table) -> exp.CTE | None:
        """Return the common table expression that a table names: of those before the one it stands in."""
        if table.db or not isinstance(table.this, exp.Identifier):
            return None
        name = fold(table.name)
        below: exp.Expr | None = None  # the common table expression in which the table stands
        for node in (table, *_ancestors(table)):
            clause = node.args.get("with_")
            if clause is not None:
                place = self._places_in(clause).get(name)
                if place is not None and place < _end_of_visible(clause, below):
                    found: exp.CTE = clause.expressions[place]
                    return found
            if isinstance(node, exp.CTE):
                below = node
        return None

    def times(self, table: exp.Table) -> int:
        """Return how often a table is read where it stands."""
        around = table.find_ancestor(exp.CTE)
        return 1 if around is None else self._count(around)

    @property
    def reads(self) -> int:
        """How often common table expressions are read."""
        return sum(self.times(table) for tables in self._named_by.values() for table in tables)

    def _count(self, common: exp.CTE) -> int:
        known = self._times.get(id(common))
        if known is None:
            known = sum(self.times(table) for table in self._named_by.get(id(common), ()))
            known = self._times[id(common)] = min(known, _MOST)
        return known

    def _places_in(self, clause: exp.With) -> dict[str, int]:
        known = self._places.get(id(clause))
        if known is None:
            known = {}
            for place, one in enumerate(clause.expressions):
                known.setdefault(fold(one.alias), place)
            self._places[id(clause)] = known
        return known


def _end_of_visible(clause: exp.With, below: exp.Expr | None) -> int:
    """Return before which place the common table expressions of a clause are visible."""
    if below is None or below.parent is not clause:
        return len(clause.expressions)
    assert below.index is not None
    return below.index + bool(clause.recursive)


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _is_within(node: exp.Expr, outer: exp.Expr) -> bool:
    return any(one is outer for one in _ancestors(node))
