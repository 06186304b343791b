"""The bodies of DuckDB's macros as Spark SQL that gives the same, or an error.

Only what means the same in both engines is written: a list of operators and functions, each with the Spark
types for which that holds. The types are known only to Spark, so a body comes with conditions on
``typeof(…)``, which Spark evaluates when it plans: where one does not hold, rows fail instead of being wrong.
*Source:* tests compare with the reference over drawn values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.sql.tree import (
    Call,
    Case,
    Cast,
    Constant,
    ConstantKind,
    Expression,
    Name,
    Operation,
    Other,
    Subquery,
)
from airflow_provider_ducklake.lake.sql.spark.statements import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_COMPARED = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ALIKE = ("string", "date", "boolean")
_CASTS = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
}
_DECIMAL = re.compile(r"DECIMAL\((\d+)(?:, (\d+))?\)")
_DECIMAL_LITERAL = re.compile(r"\(*-?(\d*\.\d+)(?:BD)?\)*")
_WHOLE = re.compile(r"\d{1,39}", re.ASCII)  # more digits than any integer has, and fewer than int() refuses
_FIXED = re.compile(r"-?\d*\.\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Of one call: Spark's parser keeps 5 to 8 kB for each character of them, and takes seconds to read 30,000.
MOST_CHARACTERS = 20_000
# Of one statement: texts of parts, and what has to hold for them, each as often as it is written.
_MOST_WRITTEN = 5_000_000
_MOST_CALLS = 10_000
_MOST_COUNTED = 39  # digits, or characters
_MOST_DIGITS = 15  # of a decimal literal that is the same double in both engines
_INT, _LONG = 2**31, 2**63
# DuckDB reads these, and texts with digits, as a time or a UUID where they are compared with one, which is a
# string in Spark.
_SPECIAL = frozenset(
    {"infinity", "-infinity", "inf", "-inf", "epoch", "now", "today", "yesterday", "tomorrow"}
)


@dataclass
class Written:
    """The total cost so far of one statement's macro calls, nested ones included."""

    calls: int = 0
    characters: int = 0

    def excess(self, characters: int, calls: int = 0) -> str | None:
        """Count more, and say what is too much."""
        self.calls += calls
        self.characters += characters
        if self.calls > _MOST_CALLS:
            return f"with those within others, the statement has more than {_MOST_CALLS:,} calls of macros."
        if self.characters > _MOST_WRITTEN:
            return f"the statement's macros are more than {_MOST_WRITTEN:,} characters long in Spark SQL."
        return None


class NestedCalls(Protocol):
    """Writes calls of other macros within a body."""

    @property
    def written(self) -> Written:
        """The total cost of the statement's calls so far."""

    def __call__(self, call: Call, arguments: Sequence[str], body: Body) -> str | None:
        """Return the text of a call; None: it is no macro."""

    def shadows(self, function: str) -> bool:
        """Return True if a macro has the name of a function or an operator, which DuckDB would then call."""


@dataclass
class Body:
    """One body that is being written; ``where`` begins its errors.

    ``names`` are texts for parameters, ``conditions`` what has to hold. Only queries have columns.
    """

    where: str
    names: Mapping[str, str]
    nested: NestedCalls
    has_columns: bool = False
    conditions: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)  # texts whose types an error shows
    _texts: dict[int, tuple[Expression, str]] = field(default_factory=dict)  # by the expression's identity

    def refuse(self, what: str) -> UnsupportedFeatureError:
        """Return the error for an expression that may mean something else in Spark."""
        return UnsupportedFeatureError(
            f"{self.where}: {what} Run the query in DuckDB, or write the expression out in Spark SQL."
        )

    def guarded(self, expression: Expression) -> str:
        """Return an expression that fails where it might differ."""
        return self.checked(self.text(expression))

    def checked(self, text: str) -> str:
        """Return a text that fails where a condition does not hold."""
        if not self.conditions:
            return f"({text})"
        holds = " AND ".join(dict.fromkeys(self.conditions))
        types = ", ', ', ".join(f"typeof({one})" for one in dict.fromkeys(self.seen))
        problem = _string(f"{self.where}: Spark and DuckDB may differ for arguments of these types: ")
        return f"(CASE WHEN {holds} THEN {text} ELSE raise_error(concat({problem}, {types})) END)"

    def check(self, condition: str, *texts: str) -> None:
        """Add the conditions for operands of those texts."""
        self._count(condition)
        self.conditions.append(condition)
        self.seen.extend(texts)

    # Nodes

    def text(self, expression: Expression) -> str:
        """Return an expression in Spark SQL; its conditions are noted.

        What is around an expression may ask for its text several times, and repeat it. So it is written
        once, and not without bound.
        """
        if id(expression) not in self._texts:
            text = self._written(expression)
            if len(text) > MOST_CHARACTERS:
                raise self.refuse(f"a part of it is {len(text):,} characters long in Spark SQL.")
            self._count(text)
            self._texts[id(expression)] = expression, text
        return self._texts[id(expression)][1]

    def _count(self, text: str) -> None:
        if (excess := self.nested.written.excess(len(text))) is not None:
            raise self.refuse(excess)

    def _written(self, expression: Expression) -> str:
        match expression:
            case Name(parts):
                return self._name(parts)
            case Constant():
                return self._constant(expression)
            case Operation(operator, operands):
                return self._operation(operator, operands)
            case Call():
                return self._call(expression)
            case Cast():
                return self._cast(expression)
            case Case():
                return self._case(expression)
            case Subquery():
                raise self.refuse("it has a query within an expression.")
            case Other(kind):
                raise self.refuse(f"it has a {kind}.")

    def _name(self, parts: tuple[str, ...]) -> str:
        known = self.names.get(fold(parts[0]))
        if known is not None and len(parts) == 1:
            return known
        if known is not None or not self.has_columns:
            raise self.refuse(f"{'.'.join(parts)} is not a parameter alone.")
        return ".".join(map(quoted, parts))

    def _constant(self, constant: Constant) -> str:
        match constant.kind:
            case ConstantKind.STRING:
                return _string(constant.text)
            case ConstantKind.NUMBER:
                return self._number(constant.text)
            case _:
                return constant.kind.value.upper()

    def _number(self, text: str) -> str:
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        if _WHOLE.fullmatch(digits) and int(digits) < _LONG:
            size = "L" if int(digits) >= _INT else ""
            return f"({sign}{digits}{size})" if sign else f"{digits}{size}"
        if _FIXED.fullmatch(digits):
            return f"({sign}{digits}BD)"
        shown = text if len(text) <= _MOST_COUNTED else f"{text[:_MOST_COUNTED]}…"
        raise self.refuse(f"the number {shown} has another type in Spark.")

    def _operation(self, operator: str, operands: tuple[Expression, ...]) -> str:
        if (name := _OPERATOR_FUNCTIONS.get(operator)) is not None and self.nested.shadows(name):
            raise self.refuse(f"a macro of the lake redefines the operator {name}.")
        if operator in ("AND", "OR"):
            return self._junction(operator, operands)
        if operator in _COMPARED:
            return self._comparison(_COMPARED[operator], *operands)
        write = _OPERATIONS.get(operator)
        if write is None:
            raise self.refuse(f"the operator {operator} is not the same in Spark.")
        return write(self, operands)

    def _junction(self, operator: str, operands: tuple[Expression, ...]) -> str:
        return "(" + f" {operator} ".join(self.boolean(one) for one in operands) + ")"

    def boolean(self, operand: Expression) -> str:
        """Return a condition."""
        text = self.text(operand)
        self.check(f"typeof({text}) = 'boolean'", text)
        return text

    def _comparison(self, operator: str, left: Expression, right: Expression) -> str:
        one, other = self.text(left), self.text(right)
        self.comparable(left, right, one, other)
        return f"({one} {operator} {other})"

    def comparable(self, left: Expression, right: Expression, one: str, other: str) -> None:
        """Add the condition of a comparison; strings only with a literal that is always a string."""
        literals = [side for side in (left, right) if _is_string(side)]
        alike = [type_ for type_ in _ALIKE if type_ != "string" or literals]
        for literal in literals:
            assert isinstance(literal, Constant)
            if re.search(r"\d", literal.text) or literal.text.lower() in _SPECIAL:
                raise self.refuse(
                    f"it compares with the string {literal.text!r}, which DuckDB may read as a time or UUID."
                )
        same = f"typeof({one}) = typeof({other}) AND typeof({one}) IN {_listed(alike)}"
        common = f"coalesce({one}, {other})"  # of the type in which Spark compares
        self.check(f"(({same}) OR {_arithmetic(one, other, common)})", one, other)

    def _cast(self, cast: Cast) -> str:
        if cast.literal:
            if (
                cast.type == "DATE"
                and isinstance(cast.operand, Constant)
                and _DATE.fullmatch(cast.operand.text)
            ):
                return f"DATE'{cast.operand.text}'"
            raise self.refuse(f"a literal of type {cast.type} is not the same in Spark.")
        if cast.type == "DATE" and _is_string(cast.operand):
            return self._cast(Cast(cast.operand, "DATE", literal=True))
        text = self.text(cast.operand)
        decimal = _DECIMAL.fullmatch(cast.type)
        allowed: tuple[str, ...] = _INTEGERS
        condition = f"typeof({text}) IN {_listed(allowed)}"
        if decimal:
            target = f"DECIMAL({decimal[1]},{decimal[2] or 0})"
            condition = f"({condition} OR typeof({text}) LIKE 'decimal%')"
        elif cast.type == "VARCHAR":
            target, condition = "STRING", f"typeof({text}) IN {_listed((*_INTEGERS, 'string', 'boolean'))}"
        else:
            target = _CASTS.get(cast.type, "")
        if cast.tries or not target:
            raise self.refuse(f"a cast to {cast.type} is not the same in Spark.")
        self.check(condition, text)
        return f"CAST({text} AS {target})"

    def _case(self, case: Case) -> str:
        branches = []
        values = []
        for condition, value in case.branches:
            if case.operand is not None:
                condition = Operation("=", (case.operand, condition))  # noqa: PLW2901 - what it means
            branches.append(f"WHEN {self.boolean(condition)} THEN {self.text(value)}")
            values.append(value)
        default = "NULL" if case.default is None else self.text(case.default)
        self.of_one_type((*values, *([] if case.default is None else [case.default])))
        return f"(CASE {' '.join(branches)} ELSE {default} END)"

    def of_one_type(self, values: Sequence[Expression]) -> list[str]:
        """Add the condition that values have one type, or are integers; NULL has any."""
        texts = [self.text(one) for one in values]
        known = [text for one, text in zip(values, texts, strict=True) if not _is_null(one)]
        for text in known[1:]:
            integers = (
                f"typeof({known[0]}) IN {_listed(_INTEGERS)} AND typeof({text}) IN {_listed(_INTEGERS)}"
            )
            self.check(f"(typeof({known[0]}) = typeof({text}) OR ({integers}))", known[0], text)
        return texts

    def of_type(self, value: Expression, *types: str) -> str:
        """Return a value, noting that it has one of these types; ``decimal`` stands for all of them."""
        text = self.text(value)
        plain = [one for one in types if one != "decimal"]
        condition = f"typeof({text}) IN {_listed(plain)}" if plain else "FALSE"
        if "decimal" in types:
            condition = f"({condition} OR typeof({text}) LIKE 'decimal%')"
        self.check(condition, text)
        return text

    def _call(self, call: Call) -> str:
        shown = ".".join(call.name)
        if call.star or call.distinct or call.over is not None:
            raise self.refuse(f"{shown} is an aggregate or has a window.")
        if any(one.name is not None for one in call.arguments):
            raise self.refuse(f"{shown} is called with names of arguments.")
        values = tuple(one.value for one in call.arguments)
        nested = self.nested(call, [self.text(one) for one in values], self)
        if nested is not None:
            return nested
        *schema, function = (part.lower() for part in call.name)
        write = _FUNCTIONS.get(function) if schema in ([], ["main"]) else None
        if write is None:
            raise self.refuse(f"the function {shown} is not the same in Spark, or not known here.")
        found = write(self, values)
        if found is None:
            raise self.refuse(f"{shown} is not the same in Spark with such arguments.")
        return found


def _string(text: str) -> str:
    """Write a string; bytes are the same whatever a session says of quotes and backslashes."""
    if "'" in text or "\\" in text:
        return f"CAST(X'{text.encode().hex()}' AS STRING)"
    return f"'{text}'"


def _listed(types: Sequence[str]) -> str:
    return "(" + ", ".join(f"'{one}'" for one in types) + ")"


def _is_string(value: Expression) -> bool:
    return isinstance(value, Constant) and value.kind is ConstantKind.STRING


def _is_null(value: Expression) -> bool:
    return isinstance(value, Constant) and value.kind is ConstantKind.NULL


def _is_short_decimal(text: str) -> bool:
    found = _DECIMAL_LITERAL.fullmatch(text)
    return found is not None and len(found[1].replace(".", "")) <= _MOST_DIGITS


def _arithmetic(one: str, other: str, text: str) -> str:
    """Return the condition that two numbers have the same result in both engines.

    Integers and doubles; or decimals, of whose result Spark cuts no digits: it would, to no less than six, if
    it had more than 38. A double and a decimal only where that is a literal.
    """
    wide = _listed((*_INTEGERS, "double"))
    doubles = f"(typeof({one}) IN {wide} AND typeof({other}) IN {wide})"
    kept = _listed([f"decimal(38,{scale})" for scale in range(6)])
    cut = f"(typeof({text}) NOT LIKE 'decimal(38,%' OR typeof({text}) IN {kept})"
    both = " AND ".join(
        f"(typeof({side}) LIKE 'decimal%' OR typeof({side}) IN {_listed(_INTEGERS)})" for side in (one, other)
    )
    conditions = [doubles, f"({both} AND {cut})"]
    conditions += [
        f"typeof({side}) = 'double'"
        for literal, side in ((one, other), (other, one))
        if _is_short_decimal(literal)
    ]
    return f"({' OR '.join(conditions)})"


def _binary(operator: str) -> Callable[[Body, tuple[Expression, ...]], str]:
    def write(body: Body, operands: tuple[Expression, ...]) -> str:
        left, right = operands
        one, other = body.text(left), body.text(right)
        text = f"({one} {operator} {other})"
        body.check(_arithmetic(one, other, text), one, other)
        return text

    return write


def _remainder(body: Body, operands: tuple[Expression, ...]) -> str:
    by = operands[1]
    if not _number(by):
        raise body.refuse("% is the same in Spark only with a positive whole number behind it.")
    return f"({body.of_type(operands[0], *_INTEGERS)} % {body.text(by)})"


def _joined(body: Body, operands: tuple[Expression, ...]) -> str:
    return "(" + " || ".join(body.of_type(one, "string") for one in operands) + ")"


def _signed(sign: str) -> Callable[[Body, tuple[Expression, ...]], str]:
    return lambda body, operands: f"({sign}{body.of_type(operands[0], *_INTEGERS, 'decimal', 'double')})"


def _distinct(body: Body, operands: tuple[Expression, ...]) -> str:
    left, right = operands
    one, other = body.text(left), body.text(right)
    body.comparable(left, right, one, other)
    return f"(NOT ({one} <=> {other}))"


def _among(body: Body, operands: tuple[Expression, ...]) -> str:
    value, *others = operands
    text = body.text(value)
    texts = [body.text(one) for one in others]
    for one, other in zip(others, texts, strict=True):
        if not _is_null(one):
            body.comparable(value, one, text, other)
    return f"({text} IN ({', '.join(texts)}))"


def _between(body: Body, operands: tuple[Expression, ...]) -> str:
    value, low, high = operands
    text, least, most = (body.text(one) for one in operands)
    body.comparable(value, low, text, least)
    body.comparable(value, high, text, most)
    return f"({text} BETWEEN {least} AND {most})"


def _like(body: Body, operands: tuple[Expression, ...]) -> str:
    value, pattern = operands
    if not _is_string(pattern) or not isinstance(pattern, Constant) or "\\" in pattern.text:
        raise body.refuse("LIKE is the same in Spark only with a literal without a backslash.")
    return f"({body.of_type(value, 'string')} LIKE {_string(pattern.text)})"


def _negated(
    write: Callable[[Body, tuple[Expression, ...]], str],
) -> Callable[[Body, tuple[Expression, ...]], str]:
    return lambda body, operands: f"(NOT {write(body, operands)})"


_OPERATIONS: Mapping[str, Callable[[Body, tuple[Expression, ...]], str]] = {
    "+": _binary("+"),
    "-": _binary("-"),
    "*": _binary("*"),
    "%": _remainder,
    "||": _joined,
    "negative": _signed("-"),
    "positive": _signed("+"),
    "NOT": lambda body, operands: f"(NOT {body.boolean(operands[0])})",
    "IS NULL": lambda body, operands: f"({body.text(operands[0])} IS NULL)",
    "IS NOT NULL": lambda body, operands: f"({body.text(operands[0])} IS NOT NULL)",
    "IS DISTINCT FROM": _distinct,
    "IS NOT DISTINCT FROM": _negated(_distinct),
    "IN": _among,
    "NOT IN": _negated(_among),
    "BETWEEN": _between,
    "NOT BETWEEN": _negated(_between),
    "~~": _like,
    "!~~": _negated(_like),
}
_OPERATOR_FUNCTIONS = {
    **{one: one for one in ("+", "-", "*", "%", "||", "~~", "!~~")},
    "negative": "-",
    "positive": "+",
}


def _texts(function: str, count: int) -> Callable[[Body, tuple[Expression, ...]], str | None]:
    def write(body: Body, values: tuple[Expression, ...]) -> str | None:
        if len(values) != count:
            return None
        return f"{function}({', '.join(body.of_type(one, 'string') for one in values)})"

    return write


def _concat(body: Body, values: tuple[Expression, ...]) -> str:
    return "concat(" + ", ".join(f"coalesce({body.of_type(one, 'string')}, '')" for one in values) + ")"


def _absolute(body: Body, values: tuple[Expression, ...]) -> str | None:
    return f"abs({body.of_type(values[0], *_INTEGERS, 'decimal', 'double')})" if len(values) == 1 else None


def _number(value: Expression) -> int | None:
    """Return the whole number that an expression is; None: it is none."""
    if not isinstance(value, Constant) or value.kind is not ConstantKind.NUMBER:
        return None
    return int(value.text) if _WHOLE.fullmatch(value.text) else None


def _whole(value: Expression, least: int) -> bool:
    number = _number(value)
    return number is not None and least <= number < _MOST_COUNTED


def _round(body: Body, values: tuple[Expression, ...]) -> str | None:
    if len(values) != 2 or not _whole(values[1], 0):  # noqa: PLR2004 - what, and to how many digits
        return None
    return f"round({body.of_type(values[0], 'decimal')}, {body.text(values[1])})"


def _substring(body: Body, values: tuple[Expression, ...]) -> str | None:
    if len(values) != 3 or not _whole(values[1], 1) or not _whole(values[2], 0):  # noqa: PLR2004
        return None
    start, length = (body.text(one) for one in values[1:])
    return f"substring({body.of_type(values[0], 'string')}, {start}, {length})"


def _left(body: Body, values: tuple[Expression, ...]) -> str | None:
    if len(values) != 2 or not _whole(values[1], 0):  # noqa: PLR2004
        return None
    return f"substring({body.of_type(values[0], 'string')}, 1, {body.text(values[1])})"


def _coalesce(body: Body, values: tuple[Expression, ...]) -> str | None:
    return f"coalesce({', '.join(body.of_one_type(values))})" if values else None


def _nullif(body: Body, values: tuple[Expression, ...]) -> str | None:
    if len(values) != 2:  # noqa: PLR2004 - what, and unless it is what
        return None
    left, right = values
    one, other = body.text(left), body.text(right)
    body.comparable(left, right, one, other)
    return f"(CASE WHEN {one} = {other} THEN NULL ELSE {one} END)"


def _extreme(function: str) -> Callable[[Body, tuple[Expression, ...]], str | None]:
    def write(body: Body, values: tuple[Expression, ...]) -> str | None:
        if len(values) < 2:  # noqa: PLR2004 - Spark wants two
            return None
        return f"{function}({', '.join(body.of_type(one, *_INTEGERS) for one in values)})"

    return write


def _trimmed(side: str) -> Callable[[Body, tuple[Expression, ...]], str | None]:
    def write(body: Body, values: tuple[Expression, ...]) -> str | None:
        if len(values) != 1:
            return None
        return f"trim({side} {_string(_SPACES)} FROM {body.of_type(values[0], 'string')})"

    return write


def _part(function: str) -> Callable[[Body, tuple[Expression, ...]], str | None]:
    def write(body: Body, values: tuple[Expression, ...]) -> str | None:
        if len(values) != 1:
            return None
        text = body.of_type(values[0], "date")
        infinite = f"unix_date({text}) IN ({_INT - 1}, {1 - _INT})"
        return f"(CASE WHEN {infinite} THEN NULL ELSE {function}({text}) END)"

    return write


# What DuckDB trims: Unicode's space separators. Spark trims U+0020 alone.
_SPACES = " \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u202f\u205f\u3000"

_FUNCTIONS: Mapping[str, Callable[[Body, tuple[Expression, ...]], str | None]] = {
    "abs": _absolute,
    "round": _round,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "length": _texts("length", 1),
    "trim": _trimmed("BOTH"),
    "ltrim": _trimmed("LEADING"),
    "rtrim": _trimmed("TRAILING"),
    "replace": _texts("replace", 3),
    "starts_with": _texts("startswith", 2),
    "ends_with": _texts("endswith", 2),
    "contains": _texts("contains", 2),
    "concat": _concat,
    "substring": _substring,
    "left": _left,
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
}
