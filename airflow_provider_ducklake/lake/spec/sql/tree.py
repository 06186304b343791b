"""What an expression says, without how it is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


class ConstantKind(StrEnum):
    """What a constant is; of those without a text, its name says all."""

    NUMBER = "number"
    STRING = "string"
    NULL = "null"
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True)
class Name:
    """A column, or a parameter of a macro; with its table or struct before it where it has several parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a number as it is written, a string as what it says."""

    kind: ConstantKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """What a function is called with; ``name`` for ``name := value``."""

    value: Expression
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name, perhaps with its schema; ``star`` is ``count(*)``."""

    name: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    star: bool = False
    distinct: bool = False
    over: Over | None = None


@dataclass(frozen=True, slots=True)
class Over:
    """The window of a function."""

    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[Ordered, ...] = ()


@dataclass(frozen=True, slots=True)
class Ordered:
    """What rows are ordered by: ``ASC``, ``DESC`` or nothing, ``NULLS FIRST``, ``NULLS LAST`` or nothing."""

    value: Expression
    direction: str = ""
    nulls: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
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
    """What we only know to be well-formed: a list, a struct, a lambda, an interval; ``kind`` says which."""

    kind: str
    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query within an expression."""

    query: Query


Expression: TypeAlias = Name | Constant | Call | Operation | Cast | Case | Other | Subquery


def children(expression: Expression) -> tuple[Expression, ...]:
    """List the parts of an expression, without the insides of subqueries."""
    match expression:
        case Call(_, arguments, over=over):
            windows = () if over is None else (*over.partition_by, *(one.value for one in over.order_by))
            return (*(one.value for one in arguments), *windows)
        case Operation(_, operands):
            return operands
        case Cast(operand):
            return (operand,)
        case Case(operand, branches, default):
            pairs = tuple(part for branch in branches for part in branch)
            return tuple(one for one in (operand, *pairs, default) if one is not None)
        case Other(_, parts):
            return parts
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all that it is made of, without the insides of subqueries."""
    yield expression
    for one in children(expression):
        yield from walk(one)


# What a query says: the body of a table macro, or a subquery.


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result; ``value`` None for ``*``, with ``table`` for ``table.*``."""

    value: Expression | None
    alias: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A table by its name, a function or a query in FROM; exactly one of these."""

    table: tuple[str, ...] = ()
    call: Call | None = None
    query: Query | None = None
    alias: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """What is joined to the sources before it; ``kind`` is ``,``, ``CROSS``, ``INNER`` and so on."""

    kind: str
    source: Source
    on: Expression | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT; ``values`` alone for VALUES."""

    items: tuple[Item, ...] = ()
    distinct: bool = False
    source: Source | None = None
    joins: tuple[Join, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] | None = None
    having: Expression | None = None
    qualify: Expression | None = None
    values: tuple[tuple[Expression, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Selects with set operations between them, and what stands around all of them."""

    selects: tuple[Select | Query, ...]
    operators: tuple[str, ...] = ()
    with_: tuple[tuple[str, Query], ...] = ()
    order_by: tuple[Ordered, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
