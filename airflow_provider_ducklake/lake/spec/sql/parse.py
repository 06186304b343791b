"""Read expressions: a part of DuckDB's grammar, which DuckDB certainly reads too.

A sort key or the body of a macro that DuckDB cannot parse makes it refuse the whole lake (observed on 1.5.5).
So nothing is guessed here: what this grammar does not have is refused, though DuckDB may have it. *Source:*
DuckDB's ``select.y``; tests compare with the reference what is taken and how it is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_provider_ducklake.lake.spec.names.identifiers import KEYWORDS, NOT_CALLED, RESERVED
from airflow_provider_ducklake.lake.spec.sql.tokens import (
    ExpressionError,
    Token,
    TokenKind,
    TokenReader,
    expression_tokens,
)
from airflow_provider_ducklake.lake.spec.sql.tree import (
    Argument,
    Call,
    Case,
    Cast,
    Constant,
    ConstantKind,
    Expression,
    Item,
    Join,
    Name,
    Operation,
    Ordered,
    Other,
    Over,
    Query,
    Select,
    Source,
    Subquery,
    children,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import SCALARS, ScalarKind

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = TypeVar("Read")


# How tight operators bind: the higher, the tighter.
_OR, _AND, _NOT, _IS, _COMPARISON, _IN, _OTHER, _SUM, _PRODUCT, _POWER, _SIGN = range(1, 12)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BINARY = {
    **dict.fromkeys(_COMPARISONS, _COMPARISON),
    **dict.fromkeys(("||", "~~", "!~~", "~~*", "!~~*", "->>"), _OTHER),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%"), _PRODUCT),
    **dict.fromkeys(("^", "**"), _POWER),
}
_NOT_ASSOCIATIVE = frozenset({_IS, _COMPARISON, _IN})
_LIKE = {"like": "~~", "ilike": "~~*"}
_MOST_DIGITS = 9  # of a precision or a length
_CONSTANTS = {"null": ConstantKind.NULL, "true": ConstantKind.TRUE, "false": ConstantKind.FALSE}
_CALLED_ANYWAY = frozenset({"coalesce", "nullif", "substring", "trim"})
_TIMES = (ScalarKind.DATE, ScalarKind.TIME, ScalarKind.TIMESTAMP)
_TYPED_LITERALS = {word for row in SCALARS.values() if row.kind in _TIMES for word in row.sql.split()}
_UNITS = frozenset(
    [
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "years",
        "months",
        "days",
        "hours",
        "minutes",
        "seconds",
    ]
)
_PARTS = _UNITS | {"quarter", "week", "dow", "isodow", "doy", "epoch"}
_QUERY_WORDS = frozenset({"select", "with", "values", "from"})
_SPELLINGS = {word: row.name for row in SCALARS.values() for word in row.sql.split()}
_DECIMALS = frozenset({"decimal", "dec", "numeric"})
_DEEPEST = 100  # levels of parentheses and the like; DuckDB has a limit of its own
_TALLEST = 250  # levels of the tree: what goes through it goes down as deep


def parse_expression(text: str) -> Expression:
    """Parse a string that is one expression."""
    parser = Parser(text)
    found = parser.expression()
    parser.end()
    return found


def parse_body(text: str, start: int, *, is_query: bool) -> tuple[Expression | Query, int]:
    """Return the expression or query that begins at a place of a text, and where it ends."""
    parser = Parser(text, start)
    found: Expression | Query = parser.query() if is_query else parser.expression()
    return found, parser.passed


class Parser(TokenReader):
    """Reads expressions and queries."""

    def __init__(self, text: str, start: int = 0) -> None:
        super().__init__(expression_tokens(text, start))
        self._start = start
        self._depth = self._height = 0
        self.value_end = start  # of the last expression that is no part of another
        self.columns: list[Token] = []  # the first parts of names that are not functions

    @property
    def passed(self) -> int:
        """Where the last token that was passed ends."""
        return self.peek(-1).end if self.position else self._start

    def end(self) -> None:
        """Refuse what is left."""
        if self.peek().kind is not TokenKind.END:
            raise self.error("this does not belong to the expression.")

    def error(self, problem: str, *, at: Token | None = None) -> ExpressionError:
        """Return the error for a token, or for what follows."""
        token = at or self.peek()
        return ExpressionError(token.start, f"at {token.shown}: {problem}")

    def name(self, *, is_label: bool = False) -> str:
        """Read a name; behind AS, and behind a dot, more words can be one."""
        token = self.take()
        if token.kind is TokenKind.QUOTED:
            return token.value
        if not token.word:
            raise self.error("expected a name.", at=token)
        if token.word in RESERVED or (not is_label and token.word in NOT_CALLED):
            raise self.error(
                f'this word is a keyword. To use it as a name, quote it: "{token.text}".', at=token
            )
        return token.text

    def query(self) -> Query:
        """Read a query."""
        return self._nested(lambda: read_query(self))

    # Operators

    def expression(self, least: int = 0) -> Expression:
        """Read operands with operators between them that bind no looser than ``least``."""
        return self._nested(lambda: self._operators(least))

    def _nested(self, read: Callable[[], Read]) -> Read:
        """Read what can be a part of itself, and measure how tall the tree gets."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error(f"it has more than {_DEEPEST} levels.")
        beside, self._height = self._height, 0
        try:
            found = read()
        except RecursionError:
            raise ExpressionError(self.passed, "it is nested too deeply.") from None
        self._grow()
        self._height = max(beside, self._height)
        self._depth -= 1
        if not self._depth:
            self.value_end = self.passed
        return found

    def _grow(self) -> None:
        self._height += 1
        if self._height > _TALLEST:
            raise self.error(f"it has more than {_TALLEST} operators that each need the one before.")

    def _operators(self, least: int) -> Expression:
        left, ceiling = self._prefix()
        while (level := self._level()) is not None and least <= level <= ceiling:
            left = self._infix(left, level)
            self._grow()
            ceiling = level - 1 if level in _NOT_ASSOCIATIVE else level
        return left

    def _prefix(self) -> tuple[Expression, int]:
        """Return the first operand, and how tight an operator behind it may bind."""
        if self.accept("not"):
            return Operation("NOT", (self.expression(_NOT),)), _NOT
        sign = self.peek().symbol
        if sign in ("-", "+"):
            self.take()
            operand = self.expression(_SIGN)
            if sign == "-" and isinstance(operand, Constant) and operand.kind is ConstantKind.NUMBER:
                negative = operand.text.startswith("-")
                return Constant(operand.kind, operand.text[1:] if negative else f"-{operand.text}"), _SIGN
            return Operation("negative" if sign == "-" else "positive", (operand,)), _SIGN
        return self._postfix(self._primary()), _SIGN

    def _level(self) -> int | None:
        """Look up the precedence of the operator that follows; None if none does."""
        token = self.peek()
        if token.symbol:
            return _BINARY.get(token.symbol)
        words = {"or": _OR, "and": _AND, "is": _IS, "between": _IN, "in": _IN, "like": _IN, "ilike": _IN}
        if token.word == "not" and self.peek(1).word in ("between", "in", "like", "ilike"):
            return _IN
        return words.get(token.word)

    def _infix(self, left: Expression, level: int) -> Expression:
        token = self.peek()
        if token.symbol:
            self.take()
            operator = _COMPARISONS.get(token.symbol, token.symbol)
            if level == _COMPARISON and self.accept("any"):
                return Operation(f"{operator} ANY", (left, Subquery(self.in_parentheses(self.query))))
            return Operation(operator, (left, self.expression(level + 1)))
        if level in (_AND, _OR):
            return self._joined(left, token.word, level)
        return self._is(left) if level == _IS else self._in(left)

    def _joined(self, left: Expression, word: str, level: int) -> Operation:
        """Read the rest of a conjunction or disjunction; a chain of them is one, however long it is."""
        operator = word.upper()
        is_chain = isinstance(left, Operation) and left.operator == operator
        operands = [*children(left)] if is_chain else [left]
        while self.accept(word):
            operands.append(self.expression(level + 1))
        return Operation(operator, tuple(operands))

    def _is(self, left: Expression) -> Expression:
        self.expect("is")
        negated = "NOT " if self.accept("not") else ""
        if self.accept("null"):
            return Operation(f"IS {negated}NULL", (left,))
        self.expect("distinct", "from")
        return Operation(f"IS {negated}DISTINCT FROM", (left, self.expression(_IS + 1)))

    def _in(self, left: Expression) -> Expression:
        negated = "NOT " if self.accept("not") else ""
        word = self.take().word
        if word == "between":
            low = self.expression(_OTHER)
            self.expect("and")
            return Operation(f"{negated}BETWEEN", (left, low, self.expression(_OTHER)))
        if word == "in":
            return Operation(f"{negated}IN", (left, *self.in_parentheses(self._values)))
        right = self.expression(_OTHER)
        if self.sees("escape"):
            raise self.error("ESCAPE is not supported here.")
        return Operation(("!" if negated else "") + _LIKE[word], (left, right))

    def _values(self) -> tuple[Expression, ...]:
        if self.peek().word in _QUERY_WORDS:
            return (Subquery(self.query()),)
        return self.list_of(self.expression)

    def _postfix(self, operand: Expression) -> Expression:
        while True:
            if self.accept("::"):
                operand = Cast(operand, self.type())
                self._grow()
            elif self.accept("["):
                operand = Operation("[]", (operand, self.expression()))
                self.expect("]")
                self._grow()
            else:
                return operand

    # Operands

    def _primary(self) -> Expression:
        token = self.peek()
        if token.kind is TokenKind.NUMBER:
            return Constant(ConstantKind.NUMBER, self.take().text)
        if token.kind is TokenKind.STRING:
            return Constant(ConstantKind.STRING, self.take().value)
        if token.symbol == "(":
            return self.in_parentheses(self._inner)
        if token.symbol == "[":
            return self._list()
        if token.symbol == "{":
            return self._struct()
        if token.kind is TokenKind.QUOTED:
            return self._named()
        if not token.word:
            raise self.error("expected an expression.")
        return self._of_word(token)

    def _inner(self) -> Expression:
        if self._sees_name() and self.peek(1).symbol == "->":
            return self._lambda()
        return Subquery(self.query()) if self.peek().word in _QUERY_WORDS else self.expression()

    def _of_word(self, token: Token) -> Expression:
        word, behind = token.word, self.peek(1)
        if word in _CONSTANTS:
            self.take()
            return Constant(_CONSTANTS[word])
        if word in _TYPED_LITERALS and behind.kind is TokenKind.STRING:
            self.take()
            return Cast(Constant(ConstantKind.STRING, self.take().value), word.upper(), literal=True)
        match word:
            case "case":
                return self._case()
            case "cast" | "try_cast":
                self.take()
                return self.in_parentheses(lambda: self._cast(tries=word == "try_cast"))
            case "exists":
                self.take()
                return Operation("EXISTS", (Subquery(self.in_parentheses(self.query)),))
            case "extract":
                self.take()
                return self.in_parentheses(self._extract)
            case "interval":
                return self._interval()
            case _:
                return self._named()

    def _case(self) -> Case:
        self.expect("case")
        operand = None if self.sees("when") else self.expression()
        branches = []
        while self.accept("when"):
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.expression()))
        if not branches:
            raise self.error("expected WHEN.")
        default = self.expression() if self.accept("else") else None
        self.expect("end")
        return Case(operand, tuple(branches), default)

    def _cast(self, *, tries: bool) -> Cast:
        operand = self.expression()
        self.expect("as")
        return Cast(operand, self.type(), tries)

    def _extract(self) -> Call:
        part = self.take()
        if part.word not in _PARTS:
            raise self.error("expected a part of a date or time, such as YEAR.", at=part)
        self.expect("from")
        return Call(("main", "date_part"), (_text(part.word), Argument(self.expression())))

    def _interval(self) -> Expression:
        self.expect("interval")
        if self.peek().kind not in (TokenKind.STRING, TokenKind.NUMBER):
            raise self.error("write an interval as INTERVAL '3 days' or INTERVAL 3 DAY.")
        is_text = self.take().kind is TokenKind.STRING
        if self.peek().word in _UNITS:
            self.take()
        elif not is_text:
            raise self.error("expected a unit, such as DAY.")
        return Other("interval")

    def _list(self) -> Other:
        self.expect("[")
        items = () if self.sees("]") else self.list_of(self.expression)
        self.expect("]")
        return Other("list", items)

    def _struct(self) -> Other:
        def read() -> Expression:
            if self.peek().kind is TokenKind.STRING:
                self.take()
            else:
                self.name()
            self.expect(":")
            return self.expression()

        self.expect("{")
        fields = self.list_of(read)
        self.expect("}")
        return Other("struct", fields)

    def _named(self) -> Expression:
        """Read a function or a column."""
        first = self.peek()
        parts = [self._first_name(is_called=self.peek(1).symbol == "(")]
        while self.accept("."):
            parts.append(self.name(is_label=True))
        if self.sees("("):
            if len(parts) == 1 and first.word == "trim":
                parts = ["main", "trim"]
            return self._call(tuple(parts))
        if self.sees("->"):
            raise self.error("write a lambda as the argument of a function.")
        self.columns.append(first)
        return Name(tuple(parts))

    def _first_name(self, *, is_called: bool) -> str:
        token = self.peek()
        if is_called and token.kind is TokenKind.WORD:
            if token.word in NOT_CALLED and token.word not in _CALLED_ANYWAY:
                raise self.error("this is not a function that is supported here.")
            if token.word not in RESERVED or token.word in ("left", "right"):
                self.take()
                return token.text
        return self.name(is_label=not is_called)

    def _call(self, name: tuple[str, ...]) -> Call:
        self.expect("(")
        call = self._arguments(name)
        self.expect(")")
        if self.sees("over"):
            return Call(call.name, call.arguments, call.star, call.distinct, self._over())
        if self.sees("filter") or self.sees("within"):
            raise self.error("FILTER and WITHIN GROUP are not supported here.")
        return call

    def table_call(self, name: tuple[str, ...]) -> Call:
        """Read the arguments of a function in FROM."""
        self.expect("(")
        call = self._arguments(name)
        self.expect(")")
        if call.star or call.distinct:
            raise self.error("this is not a table function.")
        return call

    def _arguments(self, name: tuple[str, ...]) -> Call:
        if self.sees(")"):
            return Call(name)
        if self.accept("*"):
            return Call(name, star=True)
        distinct = self.accept("distinct")
        if distinct and name[-1].lower() in _CALLED_ANYWAY:
            raise self.error("DISTINCT is for aggregates.")
        return Call(name, self.list_of(self._argument), distinct=distinct)

    def _argument(self) -> Argument:
        behind = self.peek(1).symbol
        if self._sees_name() and behind in (":=", "=>"):
            name = self.name()
            self.take()
            return Argument(self.expression(), name)
        if self._sees_name() and behind == "->":
            return Argument(self._lambda())
        return Argument(self.expression())

    def _sees_name(self) -> bool:
        token = self.peek()
        return token.kind in (TokenKind.WORD, TokenKind.QUOTED) and token.word not in RESERVED | NOT_CALLED

    def _lambda(self) -> Other:
        name = self.name()
        self.expect("->")
        return Other("lambda", (Name((name,)), self.expression()))

    def _over(self) -> Over:
        def read() -> Over:
            keys = self.list_of(self.expression) if self.accept("partition", "by") else ()
            order = self.list_of(self.ordered) if self.accept("order", "by") else ()
            return Over(keys, order)

        self.expect("over")
        return self.in_parentheses(read)

    def ordered(self) -> Ordered:
        """Read what rows are ordered by."""
        value = self.expression()
        direction = self.take().word.upper() if self.peek().word in ("asc", "desc") else ""
        nulls = ""
        if self.accept("nulls"):
            nulls = self.take().word.upper()
            if nulls not in ("FIRST", "LAST"):
                raise self.error("expected NULLS FIRST or NULLS LAST.")
        return Ordered(value, direction, nulls)

    # Types

    def type(self) -> str:
        """Read a type and return it as DuckDB spells it."""
        token = self.take()
        word = (token.value if token.kind is TokenKind.QUOTED else token.word).lower()
        if token.kind is TokenKind.QUOTED and word == "timestamp with time zone":
            word = "timestamptz"
        if word in _DECIMALS:
            text = self._decimal()
        elif word in _SPELLINGS:
            text = SCALARS[_SPELLINGS[word]].sql.split()[0].upper()
            self._rest_of_type(word)
        else:
            raise self.error("expected a type, such as BIGINT or VARCHAR.", at=token)
        while self.accept("[", "]"):
            text += "[]"
        return text

    def _rest_of_type(self, word: str) -> None:
        if word == "double":
            self.accept("precision")
        elif self.sees("(") or self.sees("with", "time") or self.sees("without", "time"):
            raise self.error("write the type in one word, such as TIMESTAMPTZ or VARCHAR.")

    def _decimal(self) -> str:
        if not self.sees("("):
            return "DECIMAL"
        numbers = self.in_parentheses(lambda: self.list_of(self._whole))
        precision, scale = (*numbers, 0)[:2]
        if len(numbers) > 2 or not 1 <= precision <= 38 or scale > precision:  # noqa: PLR2004 - DuckDB's limits
            raise self.error("write a decimal as DECIMAL(18, 2).")
        return f"DECIMAL({', '.join(map(str, numbers))})"

    def _whole(self) -> int:
        token = self.take()
        if not token.text.isdecimal() or not token.text.isascii() or len(token.text) > _MOST_DIGITS:
            raise self.error("expected a whole number.", at=token)
        return int(token.text)


def _text(value: str) -> Argument:
    return Argument(Constant(ConstantKind.STRING, value))


def is_keyword(word: str) -> bool:
    """Return True if a word cannot be an alias without AS."""
    return word.lower() in KEYWORDS


# Read queries: the bodies of table macros, and subqueries; see ``parse``.


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
    if parser.sees("("):
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
    if parser.accept("*"):
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
    if token.kind is TokenKind.QUOTED or (token.kind is TokenKind.WORD and not is_keyword(token.text)):
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
    if parser.accept(","):
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
    if parser.sees("("):
        query = parser.in_parentheses(parser.query)
        return _aliased(parser, Source(query=query))
    parts = [parser.name()]
    while parser.accept("."):
        parts.append(parser.name(is_label=True))
    if not parser.sees("("):
        return _aliased(parser, Source(table=tuple(parts)))
    call = parser.table_call(tuple(parts))
    return _aliased(parser, Source(call=call))


def _aliased(parser: Parser, source: Source) -> Source:
    alias = _read_alias(parser)
    columns: tuple[str, ...] = ()
    if alias is not None and parser.sees("("):
        columns = parser.in_parentheses(lambda: parser.list_of(parser.name))
    return Source(source.table, source.call, source.query, alias, columns)
