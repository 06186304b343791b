"""Write an expression as DuckDB writes it into a catalog.

*Source:* the rows that the reference stores for sort keys and macros, with which tests compare. What has not
been compared is not printed: then a text stays as its author wrote it, which every client reads as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..names.identifiers import fold, written
from .parse import Parser
from .tree import Case, Cast, Constant, ConstantKind, Expression, FunctionCall, Name, OperatorCall, walk

_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_LONGEST = 18  # digits; longer ones may be of another type, and be printed otherwise
_BETWEEN = frozenset({"+", "-", "*", "/", "//", "%", "^", "**", "||", "~~", "!~~", "~~*", "!~~*"})
_COMPARED = frozenset({"=", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"})
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_OWN_GRAMMAR = frozenset({"substring", "trim"})
_PLAIN_TYPES = re.compile(
    r"(VARCHAR|SMALLINT|INTEGER|BIGINT|FLOAT|BOOLEAN|TIMESTAMP|TIME|DECIMAL(\(\d+(, \d+)?\))?)(\[\])*"
)
_QUOTED_TYPES = frozenset({"TINYINT", "HUGEINT", "DOUBLE", "DATE", "UUID", "BLOB", "JSON", "UINTEGER"})


def printed(expression: Expression) -> str | None:
    """Return an expression in DuckDB's spelling; None where that is not known."""
    try:
        return _print(expression)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """An expression whose printed form was not compared with DuckDB's."""


def _print(expression: Expression) -> str:
    match expression:
        case Name((name,)):
            return written(name)
        case Constant():
            return _constant(expression)
        case OperatorCall(operator, operands):
            return _operation(operator, operands)
        case FunctionCall(name, arguments):
            return _call(name, arguments)
        case Cast():
            return _cast(expression)
        case Case():
            return _case(expression)
        case _:
            raise _UnknownError


def _constant(constant: Constant) -> str:
    match constant.kind:
        case ConstantKind.NUMBER:
            digits = constant.text.strip("-0").replace(".", "")
            if not _PLAIN_NUMBER.fullmatch(constant.text) or len(digits) > _LONGEST:
                raise _UnknownError
            return constant.text
        case ConstantKind.STRING:
            return "'" + constant.text.replace("'", "''") + "'"
        case ConstantKind.NULL:
            return "NULL"
        case _:
            return f"CAST('{constant.kind.value[0]}' AS BOOLEAN)"


def _operation(  # noqa: PLR0911 - a line for each kind of operator
    operator: str, operands: tuple[Expression, ...]
) -> str:
    if operator == "NOT":
        return _not(operands[0])
    texts = [_print(one) for one in operands]
    if operator in _BETWEEN or operator in _COMPARED or operator in ("AND", "OR"):
        return "(" + f" {operator} ".join(texts) + ")"
    match operator:
        case "IS NULL" | "IS NOT NULL":
            return f"({texts[0]} {operator})"
        case "IN" | "NOT IN":
            return f"({texts[0]} {operator} ({', '.join(texts[1:])}))"
        case "BETWEEN":
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
        case "NOT BETWEEN":
            return f"(NOT ({texts[0]} BETWEEN {texts[1]} AND {texts[2]}))"
        case "negative":
            return f"-({texts[0]})"
        case "positive":
            return f"+({texts[0]})"
        case "[]":
            return f"{texts[0]}[{texts[1]}]"
        case _:
            raise _UnknownError


def _not(operand: Expression) -> str:
    if isinstance(operand, OperatorCall) and operand.operator in _OPPOSITE:
        return _operation(_OPPOSITE[operand.operator], operand.operands)
    if isinstance(operand, Name):
        return f"(NOT {_print(operand)})"
    raise _UnknownError


def _call(name: tuple[str, ...], arguments: tuple[Expression, ...]) -> str:
    values = ", ".join(map(_print, arguments))
    *schema, function = name
    own = function.lower()
    if not schema and own == "coalesce":
        return f"COALESCE({values})"
    if not schema and own == "if":
        raise _UnknownError
    if not schema and own in _OWN_GRAMMAR:
        schema = ["main"]
    return ".".join(map(written, (*schema, own))) + f"({values})"


def _cast(cast: Cast) -> str:
    operand = _print(cast.operand)
    if cast.type in _QUOTED_TYPES:
        type_ = f'"{cast.type}"'
    elif _PLAIN_TYPES.fullmatch(cast.type) and not cast.literal:
        type_ = cast.type
    else:
        raise _UnknownError
    return f"{'TRY_CAST' if cast.tries else 'CAST'}({operand} AS {type_})"


def _case(case: Case) -> str:
    branches = []
    for condition, value in case.branches:
        if case.operand is not None:
            condition = OperatorCall("=", (case.operand, condition))  # noqa: PLW2901 - as the reference has it
        branches.append(f" WHEN ({_print(condition)}) THEN ({_print(value)})")
    default = "NULL" if case.default is None else _print(case.default)
    return f"CASE {''.join(branches)} ELSE {default} END"


# The columns that an expression names, and the same expression after they got other names.


def columns_of(expression: Expression) -> tuple[tuple[str, ...], ...]:
    """Return the names that stand for columns, each once, as they are written and in their order."""
    return tuple(dict.fromkeys(one.parts for one in walk(expression) if isinstance(one, Name)))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return an expression whose columns have other names, given by the old ones in small letters.

    >>> with_names('lower(s) || "S x"', {"s": "S x", "s x": "s"})
    'lower("S x") || s'
    """
    parser = Parser(text)
    parser.expression()
    parser.end()
    for token in reversed(parser.columns):
        new = names.get(fold(token.value))
        if new is not None:
            text = text[: token.start] + written(new) + text[token.end :]
    return text
