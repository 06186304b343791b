"""A Spark SQL statement over the lake: its query, and what happens to its rows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sqlglot import Token, exp
from sqlglot.errors import SqlglotError

from ...format.names.identifiers import FoldedName, QualifiedName, fold
from .. import trees


class WriteMode(Enum):
    """How the rows of a query are written to a table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    CREATE = "create"
    CREATE_IF_MISSING = "create_if_missing"
    REPLACE = "replace"

    @property
    def creates(self) -> bool:
        """Return True if the query's own names become the table's."""
        return self in (WriteMode.CREATE, WriteMode.CREATE_IF_MISSING, WriteMode.REPLACE)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """Conditions that each relevant row of a table meets in a query: texts that are all true.

    They call the table ``alias``; ``names`` are what they call all tables.
    """

    alias: str
    names: Collection[str]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A table's name in a query, from ``start`` to before ``end``; without ``alias`` it is its own.

    ``in_columns`` are the places of the schema before a column, ``sales.`` in ``sales.orders.price``.
    ``condition`` is what holds for its rows that count, None: all may.
    """

    name: QualifiedName
    start: int
    end: int
    has_alias: bool
    in_columns: tuple[tuple[int, int], ...] = ()
    condition: RowCondition | None = None


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A query as written, the tables of the lake that it names, and the functions with a schema."""

    text: str
    references: tuple[Reference, ...] = ()
    functions: frozenset[FoldedName] = frozenset()

    @property
    def reads(self) -> dict[FoldedName, QualifiedName]:
        """The tables, by their names as names are compared."""
        return {one.name.folded: one.name for one in self.references}

    def with_views(self, views: Mapping[FoldedName, str]) -> str:
        """Return the text with views, whose names are given as Spark reads them, in place of the tables."""
        edits: list[tuple[int, int, str]] = []
        for one in self.references:
            alias = "" if one.has_alias else f" AS {quoted(one.name.name)}"
            edits.append((one.start, one.end, views[one.name.folded] + alias))
            edits.extend((start, end, "") for start, end in one.in_columns)
        pieces, position = [], 0
        for start, end, new in sorted(set(edits)):
            pieces.append(self.text[position:start] + new)
            position = end
        return "".join(pieces) + self.text[position:]


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """A query whose rows go to a table; ``columns`` are named, or else taken in the table's order.

    With ``by_name`` the query's own names count.
    """

    number: int
    table: QualifiedName
    mode: WriteMode
    query: SparkQuery
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewStatement:
    """A query that later statements can name."""

    number: int
    view: str
    query: SparkQuery


SparkStatement: TypeAlias = WriteStatement | ViewStatement


def quoted(name: str) -> str:
    """Return a name as Spark reads it whatever it is.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def functions_of(tree: exp.Expr) -> frozenset[FoldedName]:
    """Return the functions that a tree calls by a name with a schema."""
    return frozenset(name for call in tree.find_all(exp.Anonymous) if len(name := _full_name(call)) > 1)


def _full_name(call: exp.Anonymous) -> FoldedName:
    above, names = call.parent, [fold(call.name)]
    if isinstance(above, exp.Table):
        return tuple(fold(part.name) for part in above.parts)
    part = above.this if isinstance(above, exp.Dot) else None
    while isinstance(part, exp.Dot) and isinstance(part.expression, exp.Identifier):
        names.append(fold(part.name))
        part = part.this
    if isinstance(part, exp.Identifier):
        names.append(fold(part.name))
    return tuple(reversed(names))


# What holds for each row of a table that can count in a query: its WHERE, and the ON of its join.
#
# Only certain conditions are returned: the condition as it is written, where sqlglot reads the text as the
# tree has it, and of a query in which a row that does not satisfy it cannot change the result.


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
        """Return the condition for the rows of a table whose name ends there; None: none is certain."""
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
        """Return the text behind a word that follows a name, up to where another part begins."""
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
    """The names of a query's tables, its WHERE, and whether its joins are outer ones.

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


class Scopes:
    """The common table expressions of a query, by the tables that name them."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, int]] = {}  # in its clause, by name

    def is_common(self, table: exp.Table) -> bool:
        """Return True if a table names a common table expression: of those before the one it stands in."""
        if table.db or not isinstance(table.this, exp.Identifier):
            return False
        name = fold(table.name)
        below: exp.Expr | None = None  # the common table expression in which the table stands
        for node in (table, *_ancestors(table)):
            clause = node.args.get("with_")
            if clause is not None:
                place = self._places_in(clause).get(name)
                if place is not None and place < _end_of_visible(clause, below):
                    return True
            if isinstance(node, exp.CTE):
                below = node
        return False

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
