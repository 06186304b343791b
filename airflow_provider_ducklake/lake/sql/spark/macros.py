"""Calls of a lake's macros in Spark SQL, put out in place of what they stand for.

A macro is called with its schema, ``main.net(price)``: so no macro takes the place of a function of Spark. In
its body names mean what they mean in a DuckDB session that uses the lake and the same schema (``USE
lake.sales``): a macro or table without a schema is looked for in that one, then in ``main``; then come
DuckDB's functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError, TokenError

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import (
    MAIN,
    FoldedName,
    QualifiedName,
    SchemaPath,
    fold,
)
from airflow_provider_ducklake.lake.spec.sql.parse import Parser
from airflow_provider_ducklake.lake.spec.sql.tokens import ExpressionError
from airflow_provider_ducklake.lake.spec.sql.tree import (
    Call,
    Constant,
    ConstantKind,
    Expression,
    Name,
)
from airflow_provider_ducklake.lake.spec.tags import DIALECT, EXPRESSION
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind, parse_type
from airflow_provider_ducklake.lake.sql import trees
from airflow_provider_ducklake.lake.sql.spark.macro_bodies import MOST_CHARACTERS, Body, Written
from airflow_provider_ducklake.lake.sql.spark.statements import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sqlglot import Token

    from airflow_provider_ducklake.lake.spec.sql.tree import Item, Join, Query, Select, Source
    from airflow_provider_ducklake.lake.spec.tags import Macro, MacroDefault, MacroOverload

_NAMES_OF_TABLES = frozenset({"INTO", "TABLE", "OVERWRITE", "EXISTS", "VIEW"})  # a list of columns may follow
_DEPTHS = {
    f"{side}_{kind}": by for kind in ("PAREN", "BRACKET", "BRACE") for side, by in (("L", 1), ("R", -1))
}
_BOUND = "arguments_of_macro"
_FEW_CHARACTERS = 3_000  # of one call
_CONSTANT = re.compile(r"\((-? *[\d.]\w*(\.\w*)?|(DATE *)?'[^'\\]*'|NULL|TRUE|FALSE)\)", re.IGNORECASE)


@dataclass(frozen=True)
class LakeMacros:
    """The macros of a lake at a snapshot, and what other names in their bodies can mean.

    ``columns_of`` looks up the columns of a table; none for a view, None if there is neither.
    """

    macros: Sequence[Macro]
    schema: SchemaPath = MAIN
    columns_of: Callable[[QualifiedName], Collection[str] | None] = lambda _: None

    def find(self, name: QualifiedName, *, is_table: bool) -> Macro | None:
        """Return a macro by its name."""
        for one in self.macros:
            if one.definition.is_table == is_table and one.name.folded == name.folded:
                return one
        return None

    def named(self, parts: tuple[str, ...]) -> Iterator[QualifiedName]:
        """Yield what a name in a body can mean, in the order in which DuckDB looks."""
        *above, name = parts
        schemas = [SchemaPath(tuple(above))] if above else dict.fromkeys((self.schema, MAIN))
        yield from (QualifiedName(schema, name) for schema in schemas)

    def meant(self, parts: tuple[str, ...], *, is_table: bool = False) -> Macro | None:
        """Return the macro that a name in a body means."""
        found = (self.find(name, is_table=is_table) for name in self.named(parts))
        return next((one for one in found if one is not None), None)

    def table(self, parts: tuple[str, ...]) -> QualifiedName | None:
        """Return the table or view that a name in a body means."""
        return next((name for name in self.named(parts) if self.columns_of(name) is not None), None)


def may_call_macros(text: str) -> bool:
    """Return True if a text calls something by a name with a schema."""
    try:
        return next(_sites(Spark().tokenize(text)), None) is not None
    except TokenError:
        return False  # the parser raises it


def with_macros(text: str, lake: LakeMacros) -> str:
    """Return one statement with what macros stand for in place of their calls."""
    if not lake.macros:
        return text
    try:
        return _Expansion(lake, _table_calls(text)).text(text)
    except TokenError:
        return text  # the parser raises it
    except (RecursionError, trees.TooDeepError):
        raise UnsupportedFeatureError(
            f"What calls macros is nested too deeply in {text[:40]!r}…. Write a part of the query into a "
            "temporary view of its own."
        ) from None


def _table_calls(text: str) -> dict[int, bool]:
    """Return the positions of functions in FROM, each with whether it has an alias."""
    try:
        tree = trees.parse_one(text, "spark")
    except trees.TooDeepError:
        raise
    except SqlglotError:
        return {}  # the parser raises it
    return {
        int(table.parts[0].meta["start"]): bool(table.alias)
        for table in tree.find_all(exp.Table)
        if not isinstance(table.this, exp.Identifier) and "start" in table.parts[0].meta
    }


@dataclass(frozen=True)
class _Site:
    """A call among tokens: its name, its first token, its parenthesis and the closing one."""

    name: tuple[str, ...]
    tokens: Sequence[Token]
    first: int
    opening: int
    closing: int

    @property
    def start(self) -> int:
        return self.tokens[self.first].start

    @property
    def end(self) -> int:
        return self.tokens[self.closing].end + 1

    def arguments(self) -> list[Sequence[Token]]:
        """Return the tokens of each argument."""
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in self.tokens[self.opening + 1 : self.closing]:
            depth += _depth(token)
            if token.token_type.name == "COMMA" and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        return [part for part in parts if part]


def _sites(tokens: Sequence[Token]) -> Iterator[_Site]:
    """Yield the calls by a name with a schema, in their order; those within others, too."""
    closings = _closings(tokens)
    for place in range(len(tokens)):
        site = _site(tokens, place, closings)
        if site is not None:
            yield site


def _site(tokens: Sequence[Token], place: int, closings: Mapping[int, int]) -> _Site | None:
    before = tokens[place - 1] if place else None
    if before is not None and (before.text == "." or before.text.upper() in _NAMES_OF_TABLES):
        return None
    names, last = [tokens[place]], place
    while last + 2 < len(tokens) and tokens[last + 1].text == ".":
        last += 2
        names.append(tokens[last])
    is_call = last + 1 < len(tokens) and tokens[last + 1].token_type.name == "L_PAREN"
    if len(names) == 1 or not is_call or not all(map(_is_name, names)):
        return None
    end = closings.get(last + 1)
    if end is None:
        return None
    return _Site(tuple(one.text for one in names), tokens, place, last + 1, end)


def _is_name(token: Token) -> bool:
    return token.token_type.name == "IDENTIFIER" or token.text.isidentifier()


def _closings(tokens: Sequence[Token]) -> dict[int, int]:
    """Map each opening parenthesis to its closing one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for place, token in enumerate(tokens):
        depth = _depth(token)
        if depth > 0:
            opened.append(place)
        elif depth < 0 and opened:
            found[opened.pop()] = place
    return found


def _depth(token: Token) -> int:
    return _DEPTHS.get(token.token_type.name, 0)


@dataclass
class _Expansion:
    """Puts out the calls of one statement."""

    lake: LakeMacros
    table_calls: Mapping[int, bool]
    calling: tuple[FoldedName, ...] = ()
    written: Written = field(default_factory=Written)

    def text(self, text: str) -> str:
        return self._within(text, Spark().tokenize(text), 0, len(text))

    def _within(self, text: str, tokens: Sequence[Token], start: int, end: int) -> str:
        """Return a part of the text, which has these tokens."""
        found, position = [], start
        for site in _sites(tokens):
            if site.start < position:
                continue
            new = self._site(text, site)
            if new is not None:
                found.append(text[position : site.start] + new)
                position = site.end
        return "".join(found) + text[position:end]

    def _site(self, text: str, site: _Site) -> str | None:
        name = QualifiedName(SchemaPath(site.name[:-1]), site.name[-1])
        is_table = site.start in self.table_calls
        macro = self.lake.find(name, is_table=is_table)
        if macro is None:
            return None
        given, named = self._arguments(text, site, macro)
        if not is_table:
            return self._small(macro, self._outermost(macro, given, named))
        for argument in (*given, *named.values()):
            _check_constant(macro, argument)
        alias = "" if self.table_calls[site.start] else f" AS {quoted(site.name[-1])}"
        return self._small(macro, self._table(macro, given, named)) + alias

    def _small(self, macro: Macro, text: str) -> str:
        """Return a text that Spark's parser reads with little memory."""
        if len(text) > MOST_CHARACTERS:
            raise _refused(macro, f"a call of it is {len(text):,} characters long in Spark SQL.")
        return text

    def _outermost(self, macro: Macro, given: Sequence[str], named: Mapping[str, str]) -> str:
        """Expand a call; in a long text, a lambda binds the arguments to keep one copy.

        A body repeats its parameters, above all in its conditions, so calls within calls would grow without
        bound. A lambda cannot bind queries, and Spark does not find one in ORDER BY that it has grouped by.
        """
        text = self.scalar(macro, given, named, None)
        if len(text) <= _FEW_CHARACTERS or any(map(_has_query, (*given, *named.values()))):
            return text
        fields: list[str] = []

        def bind(value: str) -> str:
            if _CONSTANT.fullmatch(value):
                return value
            fields.append(f"{value} AS a{len(fields)}")
            return f"{_BOUND}.a{len(fields) - 1}"

        places = [bind(value) for value in given]
        body = self.scalar(macro, places, {name: bind(value) for name, value in named.items()}, None)
        bound = ", ".join(fields)
        return min(text, f"element_at(transform(array(struct({bound})), {_BOUND} -> {body}), 1)", key=len)

    def _arguments(self, text: str, site: _Site, macro: Macro) -> tuple[list[str], dict[str, str]]:
        given: list[str] = []
        named: dict[str, str] = {}
        for tokens in site.arguments():
            has_name = len(tokens) > 2 and tokens[1].token_type.name == "FARROW"  # noqa: PLR2004 - name, =>, value
            own = tokens[2:] if has_name else tokens
            value = "(" + self._within(text, own, own[0].start, own[-1].end + 1) + ")"
            if has_name:
                named[fold(tokens[0].text)] = value
            elif named:
                raise _refused(macro, "an argument without a name follows one that has a name.")
            else:
                given.append(value)
        return given, named

    def scalar(self, macro: Macro, given: Sequence[str], named: Mapping[str, str], outer: Body | None) -> str:
        """Expand a call of a scalar macro; within another body, ``outer`` checks it."""
        if macro.name.folded in self.calling:
            raise _refused(macro, "it calls itself.")
        for argument in given:
            self._small(macro, argument)
        overload, names = self._chosen(macro, given, named)
        nested = self._within_body(macro)
        body = Body(f"Macro {macro.name}", names, nested)
        if outer is not None:
            body.conditions, body.seen = outer.conditions, outer.seen
        text = self._small(macro, body.text(_expression(macro, overload)))
        return f"({text})" if outer is not None else body.checked(text)

    def _table(self, macro: Macro, given: Sequence[str], named: Mapping[str, str]) -> str:
        overload, names = self._chosen(macro, given, named)
        nested = self._within_body(macro)
        return _TableBody(macro, self.lake, names, nested).text(_query(macro, overload))

    def _chosen(
        self, macro: Macro, given: Sequence[str], named: Mapping[str, str]
    ) -> tuple[MacroOverload, dict[str, str]]:
        """Return the overload that the arguments fit, and the text of each parameter."""
        overload, names = _chosen(macro, given, named, self)
        if (excess := self.written.excess(len(overload.sql), calls=1)) is not None:
            raise _refused(macro, excess)
        return overload, names

    def _within_body(self, macro: Macro) -> _Nested:
        return _Nested(_Expansion(self.lake, {}, (*self.calling, macro.name.folded), self.written))


@dataclass(frozen=True)
class _Nested:
    """Calls of macros within a body."""

    expansion: _Expansion

    @property
    def written(self) -> Written:
        return self.expansion.written

    def __call__(self, call: Call, arguments: Sequence[str], body: Body) -> str | None:
        macro = self.expansion.lake.meant(call.name)
        return None if macro is None else self.expansion.scalar(macro, arguments, {}, body)

    def shadows(self, function: str) -> bool:
        """Return True if a macro has that name where DuckDB looks for functions without a schema."""
        return self.expansion.lake.meant((function,)) is not None


def _has_query(value: str) -> bool:
    try:
        return trees.parse_one(value, "spark").find(exp.Query) is not None
    except trees.TooDeepError:
        raise
    except SqlglotError:
        return False  # the parser raises it


def _refused(macro: Macro, problem: str) -> UnsupportedFeatureError:
    kind = "Table macro" if macro.definition.is_table else "Macro"
    return UnsupportedFeatureError(
        f"{kind} {macro.name}: {problem} Run the query in DuckDB, or write it out in Spark SQL."
    )


def _chosen(
    macro: Macro, given: Sequence[str], named: Mapping[str, str], expansion: _Expansion
) -> tuple[MacroOverload, dict[str, str]]:
    """Return the overload that the arguments fit, and the text of each parameter."""
    fitting = [one for one in macro.definition.overloads if _fits(one, len(given), named)]
    if len(fitting) != 1:
        many = "several overloads fit" if fitting else "no overload fits"
        names = f" and {', '.join(named)}" if named else ""
        raise _refused(macro, f"{many} {len(given)} arguments{names}.")
    (overload,) = fitting
    if overload.dialect != DIALECT:
        raise _refused(macro, f"it is written in the dialect {overload.dialect!r}.")
    texts = {}
    for place, parameter in enumerate(overload.parameters):
        if parameter.type is not None:
            raise _refused(
                macro,
                f"its parameter {parameter.name} has the type {parameter.type}: only DuckDB can decide "
                "which values it takes.",
            )
        key = fold(parameter.name)
        if place < len(given):
            texts[key] = given[place]
        elif key in named:
            texts[key] = named[key]
        else:
            assert parameter.default is not None
            texts[key] = Body(f"Macro {macro.name}", {}, _Nested(expansion)).text(
                _default(macro, parameter.default)
            )
    return overload, texts


def _fits(overload: MacroOverload, count: int, named: Mapping[str, str]) -> bool:
    names = [fold(one.name) for one in overload.parameters]
    rest = overload.parameters[count:]
    if count > len(names) or not set(named) <= set(names[count:]):
        return False
    return all(one.default is not None or fold(one.name) in named for one in rest)


def _default(macro: Macro, default: MacroDefault) -> Expression:
    kind = ScalarKind.OTHER if default.type == EXPRESSION else parse_type(default.type).facts.kind
    if kind in (ScalarKind.INTEGER, ScalarKind.DECIMAL):
        return Constant(ConstantKind.NUMBER, default.text)
    if kind is ScalarKind.STRING:
        return Constant(ConstantKind.STRING, default.text)
    if kind is ScalarKind.BOOLEAN and default.text in ("true", "false"):
        return Constant(ConstantKind(default.text))
    shown = (
        "a boolean that is neither true nor false" if kind is ScalarKind.BOOLEAN else f"type {default.type}"
    )
    raise _refused(macro, f"it has a default of {shown}.")


def _expression(macro: Macro, overload: MacroOverload) -> Expression:
    parser = Parser(overload.sql)
    try:
        found = parser.expression()
        parser.end()
    except ExpressionError as error:
        raise _refused(macro, f"{error.problem}") from error
    return found


def _query(macro: Macro, overload: MacroOverload) -> Query:
    parser = Parser(overload.sql)
    try:
        found = parser.query()
        parser.end()
    except ExpressionError as error:
        raise _refused(macro, f"{error.problem}") from error
    return found


def _check_constant(macro: Macro, argument: str) -> None:
    """Refuse an argument that is not a constant: in FROM, Spark would see other columns than DuckDB."""
    try:
        tree = trees.parse_one(argument, "spark")
    except SqlglotError:
        raise _refused(macro, f"its argument {argument} cannot be read.") from None
    if tree.find(exp.Column, exp.Query, exp.Star):
        raise _refused(macro, f"its argument {argument} is not a constant.")


@dataclass(frozen=True)
class _TableBody:
    """Writes the query of a table macro: columns, tables and joins by their names, a condition."""

    macro: Macro
    lake: LakeMacros
    names: Mapping[str, str]
    nested: _Nested

    def text(self, query: Query) -> str:
        select = self._only(query)
        assert select.source is not None
        sources = [select.source, *(one.source for one in select.joins)]
        for one in sources:
            self._check_columns(one)
        items = ", ".join(self._item(one, len(sources)) for one in select.items)
        joins = "".join(self._join(one) for one in select.joins)
        where = "" if select.where is None else f" WHERE {self._condition(select.where)}"
        return f"(SELECT {items} FROM {self._source(select.source)}{joins}{where})"  # noqa: S608 - parts of ours

    def _only(self, query: Query) -> Select:
        from airflow_provider_ducklake.lake.spec.sql.tree import Select  # noqa: PLC0415 - for its class

        others = query.operators or query.with_ or query.order_by or query.limit or query.offset
        select = query.selects[0]
        if others or not isinstance(select, Select):
            raise self._refused("it is more than one SELECT with FROM and WHERE.")
        grouped = select.distinct or select.group_by is not None or select.having or select.qualify
        if grouped or select.values or select.source is None:
            raise self._refused("it is more than one SELECT with FROM and WHERE.")
        return select

    def _refused(self, problem: str) -> UnsupportedFeatureError:
        return _refused(self.macro, problem)

    def _body(self) -> Body:
        return Body(f"Table macro {self.macro.name}", self.names, self.nested, has_columns=True)

    def _condition(self, condition: Expression) -> str:
        body = self._body()
        return body.checked(body.boolean(condition))

    def _item(self, item: Item, sources: int) -> str:
        if item.value is None:
            if item.table is not None or sources > 1:
                raise self._refused("it takes all columns of one of several tables.")
            return "*"
        if item.alias is None and not isinstance(item.value, Name):
            raise self._refused("a column of it is an expression without a name. Give it one with AS.")
        alias = item.alias
        if alias is None and isinstance(item.value, Name):
            alias = item.value.parts[-1]
        return f"{self._body().guarded(item.value)} AS {quoted(alias or '')}"

    def _source(self, source: Source) -> str:
        table = self._table(source)
        if source.columns:
            raise self._refused("it gives other names to the columns of a table.")
        return f"{'.'.join(map(quoted, table.parts))} AS {quoted(source.alias or source.table[-1])}"

    def _table(self, source: Source) -> QualifiedName:
        if not source.table:
            raise self._refused("it reads from a function or a query.")
        table = self.lake.table(source.table)
        if table is None:
            raise self._refused(f"there is no table {'.'.join(source.table)}.")
        return table

    def _check_columns(self, source: Source) -> None:
        """Refuse a parameter that has the name of a column: in DuckDB it would be ambiguous."""
        table = self._table(source)
        for column in self.lake.columns_of(table) or ():
            if fold(column) in self.names:
                raise self._refused(f"the parameter {column} is also a column of {table}.")

    def _join(self, join: Join) -> str:
        if join.using:
            raise self._refused("it joins with USING.")
        if join.kind in (",", "CROSS"):
            return f" CROSS JOIN {self._source(join.source)}"
        if join.kind not in ("INNER", "LEFT") or join.on is None:
            raise self._refused(f"it has a {join.kind} JOIN.")
        return f" {join.kind} JOIN {self._source(join.source)} ON {self._condition(join.on)}"
