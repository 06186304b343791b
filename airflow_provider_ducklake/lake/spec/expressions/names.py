"""The columns that an expression names, and the same expression after they got other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.expressions.parse import Parser
from airflow_provider_ducklake.lake.spec.expressions.tokens import ExpressionError
from airflow_provider_ducklake.lake.spec.expressions.tree import Expression, Name, Other, Subquery, walk
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.names.quoting import written

if TYPE_CHECKING:
    from collections.abc import Mapping


def columns_of(expression: Expression) -> tuple[tuple[str, ...], ...]:
    """Return the names that stand for columns, each once, as they are written and in their order."""
    variables = {
        fold(one.parts[0].parts[0])
        for one in walk(expression)
        if isinstance(one, Other) and one.kind == "lambda" and isinstance(one.parts[0], Name)
    }
    names = [one.parts for one in walk(expression) if isinstance(one, Name)]
    return tuple(dict.fromkeys(parts for parts in names if fold(parts[0]) not in variables))


def has_subquery(expression: Expression) -> bool:
    """Whether a part of it is a query."""
    return any(isinstance(one, Subquery) for one in walk(expression))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return an expression whose columns have other names, given by the old ones in small letters.

    >>> with_names('lower(s) || "S x"', {"s": "S x", "s x": "s"})
    'lower("S x") || s'

    Raises:
        ExpressionError: it cannot be read, or a variable of a lambda has a name that is to change.
    """
    parser = Parser(text)
    found = parser.expression()
    parser.end()
    for one in walk(found):
        if isinstance(one, Other) and one.kind == "lambda":
            variable = one.parts[0]
            if isinstance(variable, Name) and fold(variable.parts[0]) in names:
                raise ExpressionError(0, f"a lambda has the variable {variable.parts[0]}.")
    for token in reversed(parser.columns):
        new = names.get(fold(token.value))
        if new is not None:
            text = text[: token.start] + written(new) + text[token.end :]
    return text
