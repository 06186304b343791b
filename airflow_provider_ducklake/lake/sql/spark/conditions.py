"""What a condition in Spark SQL certainly says, before Spark is asked: a filter, and unknown columns.

Our filter leaves out files without rows for the condition. The two languages differ in what a text in
quotes is, in casts, in times and zones: parts that Spark could read in another way are left out. The filter
may let too many rows pass, never too few. Of the columns too only what is certain is said: names below a
query, in a lambda, of a unit of time, and whatever sqlglot does not read, are left to Spark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError, TokenError

from airflow_provider_ducklake.lake.errors import ColumnNotFoundError, InvalidPredicateError
from airflow_provider_ducklake.lake.planning.reading.predicates import column_ids
from airflow_provider_ducklake.lake.spec.names.identifiers import fold, quote
from airflow_provider_ducklake.lake.spec.types.ducklake_types import NUMBERS, Kind
from airflow_provider_ducklake.lake.sql import trees
from airflow_provider_ducklake.lake.sql.predicate import read_predicate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlglot import Token

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType


_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
_PLAIN_TEXT = re.compile(r"'[^'\\]*'")
_MOMENT = re.compile(r"'[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?'")
_UNLIKE = ("CAST", "TRY_CAST", "TIMESTAMP", "TIME", "::")
_VALUE_WORDS = ("TRUE", "FALSE", "DATE")


def readable_filter(
    condition: str, schema: TableSchema, table: str, *, alias: str, others: Collection[str] = ()
) -> str | None:
    """Return the filter that is true wherever a condition is, None: there is none but the one that always is.

    ``alias`` is what the condition may call the table, ``others`` what it may call other tables.
    """
    tokens = _tokens(condition)
    foreign = {fold(name) for name in others}
    found = []
    for part in _parts(condition, tokens):
        words = _without_alias(part, alias)
        if words is not None and not foreign & {fold(token.text) for token in words}:
            text = " ".join(_spelled(condition, token) for token in words)
            if _says_the_same(text, condition, words, schema, table):
                found.append(f"({text})")
    return " AND ".join(found) or None


def _tokens(text: str) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except TokenError:
        return []  # Spark will say what is wrong


def _parts(condition: str, tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield what the ANDs of a condition connect; all of it where it has an OR."""
    part: list[Token] = []
    parts = [part]
    depth = betweens = 0
    for token in tokens:
        word = _spelled(condition, token).upper()
        depth += (word in ("(", "[", "CASE")) - (word in (")", "]", "END"))
        if depth == 0 and word == "OR":
            yield list(tokens)
            return
        if depth == 0 and word == "AND" and not betweens:
            part = []
            parts.append(part)
            continue
        if depth == 0:
            betweens += (word == "BETWEEN") - (word == "AND")
        part.append(token)
    yield from (part for part in parts if part)


def _without_alias(tokens: Sequence[Token], alias: str) -> list[Token] | None:
    """Return the tokens without the table's name; None where the name means something else, too."""
    words: list[Token] = []
    rest = iter(tokens)
    for token in rest:
        if fold(token.text) != fold(alias):
            words.append(token)
        elif getattr(next(rest, None), "text", None) != "." or (words and words[-1].text == "."):
            return None
    return words


def _spelled(condition: str, token: Token) -> str:
    """Return a token as it was written; a name in backticks as filters quote it."""
    text = condition[token.start : token.end + 1]
    return quote(token.text) if text.startswith("`") else text


def _says_the_same(
    text: str, condition: str, words: Sequence[Token], schema: TableSchema, table: str
) -> bool:
    """Whether Spark means what our filter means by a text."""
    try:
        predicate = read_predicate(text, schema, table)
    except (InvalidPredicateError, ColumnNotFoundError):
        return False
    written = [condition[token.start : token.end + 1] for token in words]
    if any(one.upper() in _UNLIKE for one in written):
        return False
    values = [one for one in written if one[0] in "'\"0123456789." and one != "."]
    values += [one.upper() for one in written if one.upper() in _VALUE_WORDS]
    return all(_means_the_same(values, type_) for type_ in _types(predicate, schema))


def _types(predicate: Predicate, schema: TableSchema) -> set[DuckLakeType]:
    ids = set(column_ids(predicate))
    return {column.type for column in schema.walk() if column.id in ids}


def _means_the_same(values: Sequence[str], type_: DuckLakeType) -> bool:
    row = type_.facts
    if not values:  # a test for NULL
        return True
    if row.kind in NUMBERS:
        return all(_NUMBER.fullmatch(one) for one in values)
    if row.kind is Kind.STRING:
        return all(_PLAIN_TEXT.fullmatch(one) for one in values)
    if row.kind is Kind.DATE or row.is_local_microseconds:
        return all(one == "DATE" or _MOMENT.fullmatch(one) for one in values)
    return row.kind is Kind.BOOLEAN and all(one in ("TRUE", "FALSE") for one in values)


# Words that Spark takes for more than a column, where no column has the name.
FUNCTIONS = frozenset(
    "current_catalog current_database current_date current_schema current_time current_timestamp "  # noqa: SIM905 - shorter
    "current_timezone current_user grouping__id localtimestamp now session_user user".split()
)
_UNITS = "year quarter month week day hour minute second millisecond microsecond"
_OTHERS = frozenset([*FUNCTIONS, *_UNITS.split(), *(f"{unit}s" for unit in _UNITS.split()), "dayofyear"])


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
    try:
        with trees.typed_and_quiet():
            trees.check_cost(expression, "spark")
            (tree,) = Spark().parse_into(exp.Condition, expression)
    except (SqlglotError, ValueError):
        return
    if tree is None or tree.find(exp.Alias, exp.Aliases, exp.Kwarg, exp.PropertyEQ, exp.Command):
        return  # it is read in another way than Spark does
    for column in tree.find_all(exp.Column):
        if not column.find_ancestor(exp.Query, exp.Lambda, exp.Collate) and _is_plain(column):
            yield [part.name for part in column.parts]


def _is_plain(column: exp.Column) -> bool:
    return all(isinstance(part, exp.Identifier) and part.name for part in column.parts)
