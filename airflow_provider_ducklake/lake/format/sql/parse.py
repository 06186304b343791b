"""Read expressions: a part of DuckDB's grammar, which DuckDB certainly reads too.

A sort key that DuckDB cannot parse makes its inserts fail. So nothing is guessed here: what this grammar does
not have is refused, though DuckDB may have it. *Source:* DuckDB's ``select.y``; tests compare with the
reference what is taken and how it is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..names.identifiers import NOT_CALLED, RESERVED
from ..types.ducklake_types import SCALARS, ScalarKind
from .tokens import ExpressionError, Token, TokenKind, TokenReader, expression_tokens
from .tree import (
    Case,
    Cast,
    Constant,
    ConstantKind,
    Expression,
    FunctionCall,
    Name,
    OperatorCall,
    Ordered,
    Other,
    children,
)

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


class Parser(TokenReader):
    """Reads expressions."""

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
            return OperatorCall("NOT", (self.expression(_NOT),)), _NOT
        sign = self.peek().symbol
        if sign in ("-", "+"):
            self.take()
            operand = self.expression(_SIGN)
            if sign == "-" and isinstance(operand, Constant) and operand.kind is ConstantKind.NUMBER:
                negative = operand.text.startswith("-")
                return Constant(operand.kind, operand.text[1:] if negative else f"-{operand.text}"), _SIGN
            return OperatorCall("negative" if sign == "-" else "positive", (operand,)), _SIGN
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
            return OperatorCall(operator, (left, self.expression(level + 1)))
        if level in (_AND, _OR):
            return self._joined(left, token.word, level)
        return self._is(left) if level == _IS else self._in(left)

    def _joined(self, left: Expression, word: str, level: int) -> OperatorCall:
        """Read the rest of a conjunction or disjunction; a chain of them is one, however long it is."""
        operator = word.upper()
        is_chain = isinstance(left, OperatorCall) and left.operator == operator
        operands = [*children(left)] if is_chain else [left]
        while self.accept(word):
            operands.append(self.expression(level + 1))
        return OperatorCall(operator, tuple(operands))

    def _is(self, left: Expression) -> Expression:
        self.expect("is")
        negated = "NOT " if self.accept("not") else ""
        if self.accept("null"):
            return OperatorCall(f"IS {negated}NULL", (left,))
        self.expect("distinct", "from")
        return OperatorCall(f"IS {negated}DISTINCT FROM", (left, self.expression(_IS + 1)))

    def _in(self, left: Expression) -> Expression:
        negated = "NOT " if self.accept("not") else ""
        word = self.take().word
        if word == "between":
            low = self.expression(_OTHER)
            self.expect("and")
            return OperatorCall(f"{negated}BETWEEN", (left, low, self.expression(_OTHER)))
        if word == "in":
            values = self.in_parentheses(lambda: self.list_of(self.expression))
            return OperatorCall(f"{negated}IN", (left, *values))
        right = self.expression(_OTHER)
        if self.sees("escape"):
            raise self.error("ESCAPE is not supported here.")
        return OperatorCall(("!" if negated else "") + _LIKE[word], (left, right))

    def _postfix(self, operand: Expression) -> Expression:
        while True:
            if self.accept("::"):
                operand = Cast(operand, self.type())
                self._grow()
            elif self.accept("["):
                operand = OperatorCall("[]", (operand, self.expression()))
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
            return self.in_parentheses(self.expression)
        if token.symbol == "[":
            return self._list()
        if token.symbol == "{":
            return self._struct()
        if token.kind is TokenKind.QUOTED:
            return self._named()
        if not token.word:
            raise self.error("expected an expression.")
        return self._word_expression(token)

    def _word_expression(self, token: Token) -> Expression:
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
            case "extract":
                self.take()
                return self.in_parentheses(self._extract)
            case "interval":
                return self._interval()
            case "select" | "exists":
                raise self.error("an expression of this kind cannot contain a query.")
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

    def _extract(self) -> FunctionCall:
        part = self.take()
        if part.word not in _PARTS:
            raise self.error("expected a part of a date or time, such as YEAR.", at=part)
        self.expect("from")
        literal = Constant(ConstantKind.STRING, part.word)
        return FunctionCall(("main", "date_part"), (literal, self.expression()))

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

    def _call(self, name: tuple[str, ...]) -> FunctionCall:
        self.expect("(")
        arguments = () if self.sees(")") else self.list_of(self.expression)
        self.expect(")")
        return FunctionCall(name, arguments)

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
