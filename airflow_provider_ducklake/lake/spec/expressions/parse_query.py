"""Read queries: the bodies of table macros, and subqueries; see ``parse``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.expressions.parse import is_keyword
from airflow_provider_ducklake.lake.spec.expressions.queries import Item, Join, Query, Select, Source
from airflow_provider_ducklake.lake.spec.expressions.tokens import Kind
from airflow_provider_ducklake.lake.spec.expressions.tree import Ordered, Other

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.expressions.parse import Parser
    from airflow_provider_ducklake.lake.spec.expressions.tree import Expression

_EVERYTHING: tuple[Item, ...] = (Item(None),)
_SET_OPERATORS = ("union", "except", "intersect")
_JOINS = ("inner", "left", "right", "full", "cross", "semi", "anti")


def read_query(parser: Parser) -> Query:
    """Read a query with all that may stand around it."""
    with_ = _read_with(parser)
    selects, operators = [_read_operand(parser)], []
    while (operator := _read_set_operator(parser)) is not None:
        operators.append(operator)
        selects.append(_read_operand(parser))
    order = _read_order(parser) if parser.accept("order", "by") else ()
    limit = parser.expression() if parser.accept("limit") else None
    offset = parser.expression() if parser.accept("offset") else None
    return Query(tuple(selects), tuple(operators), with_, order, limit, offset)


def _read_order(parser: Parser) -> tuple[Ordered, ...]:
    if parser.accept("all"):
        return (Ordered(Other("all columns")),)
    return parser.list_of(parser.ordered)


def _read_with(parser: Parser) -> tuple[tuple[str, Query], ...]:
    def read() -> tuple[str, Query]:
        name = parser.name()
        parser.expect("as")
        return name, parser.in_parentheses(parser.query)

    if not parser.accept("with"):
        return ()
    if parser.sees("recursive"):
        raise parser.error("WITH RECURSIVE is not supported here.")
    return parser.list_of(read)


def _read_set_operator(parser: Parser) -> str | None:
    word = parser.peek().word
    if word not in _SET_OPERATORS:
        return None
    parser.take()
    which = " ALL" if parser.accept("all") else ""
    if not which:
        parser.accept("distinct")
    if parser.accept("by"):
        parser.expect("name")
        which += " BY NAME"
    return word.upper() + which


def _read_operand(parser: Parser) -> Select | Query:
    if parser.peek().symbol == "(":
        return parser.in_parentheses(parser.query)
    if parser.accept("values"):
        return Select(values=_read_rows(parser))
    source, joins = _read_from(parser) if parser.sees("from") else (None, ())
    distinct, items = False, _EVERYTHING
    if source is None or parser.sees("select"):
        parser.expect("select")
        distinct = parser.accept("distinct")
        if distinct and parser.sees("on"):
            raise parser.error("DISTINCT ON is not supported here.")
        items = parser.list_of(lambda: _read_item(parser))
    if source is None and parser.sees("from"):
        source, joins = _read_from(parser)
    where = parser.expression() if parser.accept("where") else None
    group_by = _read_group_by(parser)
    having = parser.expression() if parser.accept("having") else None
    qualify = parser.expression() if parser.accept("qualify") else None
    return Select(items, distinct, source, joins, where, group_by, having, qualify)


def _read_rows(parser: Parser) -> tuple[tuple[Expression, ...], ...]:
    rows = parser.list_of(lambda: parser.in_parentheses(lambda: _expressions(parser)))
    if len({len(row) for row in rows}) > 1:
        raise parser.error("rows of VALUES have as many values each.")
    return rows


def _expressions(parser: Parser) -> tuple[Expression, ...]:
    return parser.list_of(parser.expression)


def _read_group_by(parser: Parser) -> tuple[Expression, ...] | None:
    if not parser.accept("group", "by"):
        return None
    return () if parser.accept("all") else _expressions(parser)


def _read_item(parser: Parser) -> Item:
    if parser.accept_symbol("*"):
        if parser.peek().word in ("exclude", "replace", "rename", "like"):
            raise parser.error("EXCLUDE, REPLACE and RENAME are not supported here.")
        return Item(None)
    if parser.peek(1).symbol == "." and parser.peek(2).symbol == "*":
        table = parser.name()
        parser.take()
        parser.take()
        return Item(None, table=table)
    value = parser.expression()
    return Item(value, _read_alias(parser))


def _read_alias(parser: Parser) -> str | None:
    if parser.accept("as"):
        return parser.name()
    token = parser.peek()
    if token.kind is Kind.QUOTED or (token.kind is Kind.WORD and not is_keyword(token.text)):
        return parser.name()
    return None


def _read_from(parser: Parser) -> tuple[Source, tuple[Join, ...]]:
    parser.expect("from")
    first = _read_source(parser)
    joins = []
    while (join := _read_join(parser)) is not None:
        joins.append(join)
    return first, tuple(joins)


def _read_join(parser: Parser) -> Join | None:
    if parser.accept_symbol(","):
        return Join(",", _read_source(parser))
    word = parser.peek().word
    if word != "join" and word not in _JOINS:
        return None
    kind = "inner" if word == "join" else parser.take().word
    if kind in ("left", "right", "full"):
        parser.accept("outer")
    parser.expect("join")
    source = _read_source(parser)
    if kind == "cross":
        return Join("CROSS", source)
    if parser.accept("using"):
        columns = parser.in_parentheses(lambda: parser.list_of(parser.name))
        return Join(kind.upper(), source, using=columns)
    parser.expect("on")
    return Join(kind.upper(), source, parser.expression())


def _read_source(parser: Parser) -> Source:
    if parser.peek().symbol == "(":
        query = parser.in_parentheses(parser.query)
        return _aliased(parser, Source(query=query))
    parts = [parser.name()]
    while parser.accept_symbol("."):
        parts.append(parser.name(is_label=True))
    if parser.peek().symbol != "(":
        return _aliased(parser, Source(table=tuple(parts)))
    call = parser.table_call(tuple(parts))
    return _aliased(parser, Source(call=call))


def _aliased(parser: Parser, source: Source) -> Source:
    alias = _read_alias(parser)
    columns: tuple[str, ...] = ()
    if alias is not None and parser.peek().symbol == "(":
        columns = parser.in_parentheses(lambda: parser.list_of(parser.name))
    return Source(source.table, source.call, source.query, alias, columns)
