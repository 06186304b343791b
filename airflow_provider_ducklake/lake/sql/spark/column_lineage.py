"""From which columns of which tables each column of a Spark SQL query is made.

For lineage, not for execution: what sqlglot cannot follow is left out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import build_scope
from sqlglot.schema import MappingSchema

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.sql import trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Origins: TypeAlias = tuple[tuple[str, str], ...]  # a relation of the query, and its column

_DIALECT = "spark"


def column_lineage(
    query: str, relations: Mapping[str, Sequence[str]], views: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Origins]:
    """Return the origins of each column of a query, in its order; nothing where it cannot be read.

    A column's origins are sorted, since sqlglot has them in another order in each process.

    ``relations`` are what the query reads, by the names it uses, with their columns, none where they are not
    known; ``views`` are queries that it names.

    >>> column_lineage("SELECT a.x + b.y AS z FROM a JOIN b USING (k)", {"a": ["x", "k"], "b": ["y", "k"]})
    {'z': (('a', 'x'), ('b', 'y'))}
    """
    schema: dict[str, object] = {
        fold(name): dict.fromkeys(map(fold, of), "string") for name, of in relations.items() if of
    }
    try:
        parsed = _expanded(query, views)
        named = {fold(one): one for one in parsed.named_selects}
        with trees.typed_and_quiet():
            nodes = _nodes(parsed, schema)
    except (SqlglotError, ValueError, KeyError, AssertionError, RecursionError):
        return {}
    spelled = {fold(name): name for name in relations}
    columns = {fold(name): {fold(one): one for one in of} for name, of in relations.items()}
    return {
        named.get(name, name): tuple(sorted(set(_origins(node, spelled, columns))))
        for name, node in nodes.items()
    }


def _nodes(query: exp.Query, schema: dict[str, object]) -> dict[str, Node]:
    """Return where each column of a query comes from."""
    known = MappingSchema(schema, dialect=_DIALECT)
    tree = qualify(query, dialect=_DIALECT, schema=known, validate_qualify_columns=False, identify=False)
    assert isinstance(tree, exp.Query)
    scope = build_scope(tree)  # as the schema, once: else each column costs as much as all of them
    names = [one for one in tree.named_selects if one != "*"]
    return {
        name: lineage(name, tree, known, dialect=_DIALECT, scope=scope, trim_selects=False, copy=False)
        for name in names
    }


def _expanded(query: str, views: Mapping[str, str]) -> exp.Query:
    """Return the query with the views' queries in it."""
    parsed = trees.parse_one(query, _DIALECT)
    queries: dict[str, exp.Query | Callable[[], exp.Query]] = {
        name: one
        for name, text in views.items()
        if isinstance(one := trees.parse_one(text, _DIALECT), exp.Query)
    }
    expanded = exp.expand(parsed, queries, dialect=_DIALECT) if queries else parsed
    assert isinstance(expanded, exp.Query)
    return expanded


def _origins(
    node: Node, spelled: Mapping[str, str], columns: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    for leaf in node.walk():
        if leaf.downstream or not isinstance(leaf.expression, exp.Table):
            continue
        relation, column = fold(leaf.expression.name), fold(leaf.name.rpartition(".")[2])
        if relation in spelled:
            yield spelled[relation], columns[relation].get(column, column)
