"""Find a column in a Spark SQL expression that its table certainly does not have.

Spark is asked in the end. What is not certain is left to it: names below a query, in a lambda, of a unit
of time, and whatever sqlglot does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlglot import exp

# Words that Spark takes for more than a column, where no column has the name.
_FUNCTIONS = (
    "current_catalog current_database current_date current_schema current_time current_timestamp "
    "current_timezone current_user grouping__id localtimestamp now session_user user"
)
_UNITS = "year quarter month week day hour minute second millisecond microsecond"
_OTHERS = frozenset(
    [*_FUNCTIONS.split(), *_UNITS.split(), *(f"{unit}s" for unit in _UNITS.split()), "dayofyear"]
)


def unknown_column(expression: str, columns: Collection[str], *, alias: str, is_alone: bool) -> str | None:
    """Return a column that the expression names and the table does not have; None: none for certain.

    ``alias`` is what the expression may call the table. ``is_alone``: it sees no other table; else only
    names behind the alias are looked at.
    """
    known = {fold(name) for name in columns}
    for names in _names(expression):
        head, *fields = names
        if fold(head) in known:
            continue
        if fold(head) == fold(alias):
            if fields and fold(fields[0]) not in known and not _is_special(fields[0]):
                return fields[0]
        elif is_alone and not _is_special(head):
            return head
    return None


def _is_special(name: str) -> bool:
    return name.startswith("_") or name.lower() in _OTHERS


def _names(expression: str) -> Iterator[list[str]]:
    """Yield the parts of each name that can be nothing but a column, or a field of one."""
    from sqlglot import exp  # noqa: PLC0415 - a second, and DAG files import operators over and over
    from sqlglot.dialects.spark import Spark  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    try:
        (tree,) = Spark().parse_into(exp.Condition, expression)
    except (SqlglotError, RecursionError, ValueError):
        return
    if tree is None or tree.find(exp.Alias, exp.Aliases, exp.Kwarg, exp.PropertyEQ, exp.Command):
        return  # it is read in another way than Spark does
    for column in tree.find_all(exp.Column):
        if not column.find_ancestor(exp.Query, exp.Lambda, exp.Collate) and _is_plain(column):
            yield [part.name for part in column.parts]


def _is_plain(column: exp.Column) -> bool:
    from sqlglot import exp  # noqa: PLC0415

    return all(isinstance(part, exp.Identifier) and part.name for part in column.parts)
