"""What holds for each row of a table that can count in a query: its WHERE, and the ON of its join.

Only what is certain is said: the condition as it is written, where sqlglot reads the very text as the tree
has it, and of a query in which a row that does not satisfy it cannot change a thing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.sql import trees
from airflow_provider_ducklake.lake.sql.spark.statements import RowCondition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import Token

# Parts of a query, a table and a join beside which a condition says what it says alone.
_OF_QUERIES = frozenset(
    "expressions from_ joins where group having order limit offset distinct windows with_ qualify sort "  # noqa: SIM905 - shorter
    "cluster distribute hint".split()
)
_OF_TABLES = frozenset({"this", "db", "catalog", "alias"})
_OF_JOINS = frozenset({"this", "side", "kind", "method", "on", "using"})
_INNER = ("", "INNER", "CROSS")
# A text that is cut too early is another condition than the tree's, and left out.
_BEHIND = frozenset(
    "GROUP_BY HAVING ORDER_BY SORT_BY CLUSTER_BY DISTRIBUTE_BY LIMIT OFFSET WINDOW QUALIFY UNION EXCEPT "  # noqa: SIM905
    "INTERSECT SEMICOLON".split()
)
_BEHIND_ON = _BEHIND | frozenset("WHERE JOIN LEFT RIGHT FULL INNER CROSS NATURAL SEMI ANTI COMMA".split())  # noqa: SIM905


class ReadConditions:
    """The conditions of a statement, by the tables that they are about."""

    def __init__(self, tokens: Sequence[Token], sql: str) -> None:
        self._tokens = tokens
        self._starts = [token.start for token in tokens]
        self._sql = sql
        self._queries: dict[int, _Query] = {}
        self._texts: dict[int, str | None] = {}

    def of(self, table: exp.Table, end: int) -> RowCondition | None:
        """Return what holds for the rows of a table whose name ends there; None: nothing certain."""
        place, query = table.parent, table.parent and table.parent.parent
        if not isinstance(query, exp.Select) or not isinstance(place, exp.From | exp.Join):
            return None
        if id(query) not in self._queries:
            self._queries[id(query)] = _Query.of(query)
        known = self._queries[id(query)]
        is_plain = not table.alias_column_names and _has_only(table, _OF_TABLES)
        if known.names[fold(table.alias_or_name)] != 1 or not is_plain:
            return None
        found = [self._text(*one, end) for one in known.conditions_of(place)]
        texts = tuple(text for text in found if text is not None)
        return RowCondition(table.alias_or_name, known.names.keys(), texts) if texts else None

    def _text(self, node: exp.Expr, word: str, behind: frozenset[str], end: int) -> str | None:
        if id(node) not in self._texts:
            text = self._between(word, behind, end)
            self._texts[id(node)] = text if text is not None and _is_read_as(text, node) else None
        return self._texts[id(node)]

    def _between(self, word: str, behind: frozenset[str], end: int) -> str | None:
        """Return what stands behind a word that follows a name, up to where another part begins."""
        depth, start = 0, None
        for token in self._tokens[bisect_left(self._starts, end) :]:
            kind = token.token_type.name
            depth += (kind == "L_PAREN") - (kind == "R_PAREN")
            if depth < 0 or (depth == 0 and start is not None and kind in behind):
                return None if start is None else self._sql[start : token.start]
            if depth == 0 and start is None and kind == word:
                start = token.end + 1
        return None if start is None else self._sql[start:]


@dataclass(frozen=True)
class _Query:
    """What a query calls its tables, its WHERE, and whether it keeps rows for which a join finds none.

    It has no names where it has parts that may change what a condition says.
    """

    names: Counter[str]
    where: exp.Expr | None
    is_outer: bool
    is_shared: bool  # a column is of two tables

    @classmethod
    def of(cls, query: exp.Select) -> _Query:
        joins: list[exp.Join] = query.args.get("joins") or []
        named: Counter[str] = Counter()
        if _has_only(query, _OF_QUERIES) and all(_has_only(one, _OF_JOINS) for one in joins):
            named.update(fold(one.this.alias_or_name) for one in (query.args.get("from_"), *joins) if one)
        where = query.args.get("where")
        return cls(
            named,
            None if where is None else where.this,
            is_outer=any(one.side not in ("", "LEFT") for one in joins),
            is_shared=any(one.method or one.args.get("using") for one in joins),
        )

    def conditions_of(self, place: exp.From | exp.Join) -> Iterator[tuple[exp.Expr, str, frozenset[str]]]:
        """Yield what each row of the table there that counts satisfies, and where that stands."""
        is_inner = not isinstance(place, exp.Join)
        if isinstance(place, exp.Join):
            if place.side in ("", "LEFT") and place.args.get("on") is not None:
                yield place.args["on"], "ON", _BEHIND_ON
            is_inner = place.side == "" and place.kind in _INNER and not self.is_shared
        if self.where is not None and is_inner and not self.is_outer:
            yield self.where, "WHERE", _BEHIND


def _has_only(node: exp.Expr, parts: frozenset[str]) -> bool:
    return all(key in parts or not value for key, value in node.args.items())


def _is_read_as(text: str, node: exp.Expr) -> bool:
    try:
        return trees.parse_one(text, "spark", into=exp.Condition) == node
    except SqlglotError:
        return False
