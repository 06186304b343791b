"""What an expression says, without how it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class ConstantKind(StrEnum):
    """What a constant is; of those without a text, its name says all."""

    NUMBER = "number"
    STRING = "string"
    NULL = "null"
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True)
class Name:
    """A column; with its table or struct before it where it has several parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a number as it is written, a string as what it says."""

    kind: ConstantKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function by its name, perhaps with its schema."""

    name: tuple[str, ...]
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Ordered:
    """What rows are ordered by: ``ASC``, ``DESC`` or nothing, ``NULLS FIRST``, ``NULLS LAST`` or nothing."""

    value: Expression
    direction: str = ""
    nulls: str = ""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator and what it is applied to, by DuckDB's own name of it.

    ``AND`` and ``OR`` have any number of operands, ``IN`` its values after the first, ``BETWEEN`` both ends.
    """

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast to a type, as DuckDB spells it; ``literal`` for ``DATE '2024-01-31'``."""

    operand: Expression
    type: str
    tries: bool = False
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE``; ``default`` is NULL where there is no ``ELSE``."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None


@dataclass(frozen=True, slots=True)
class Other:
    """What we only know to be well-formed: a list, a struct, an interval; ``kind`` says which."""

    kind: str
    parts: tuple[Expression, ...] = ()


Expression: TypeAlias = Name | Constant | FunctionCall | OperatorCall | Cast | Case | Other


def children(expression: Expression) -> tuple[Expression, ...]:
    """List the parts of an expression."""
    match expression:
        case FunctionCall(_, parts) | OperatorCall(_, parts) | Other(_, parts):
            return parts
        case Cast(operand):
            return (operand,)
        case Case(operand, branches, default):
            pairs = tuple(part for branch in branches for part in branch)
            return tuple(one for one in (operand, *pairs, default) if one is not None)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all that it is made of."""
    yield expression
    for one in children(expression):
        yield from walk(one)
