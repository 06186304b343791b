"""What a condition in Spark SQL certainly means, before Spark analyses it: a filter, and unknown columns.

Our filter leaves out files without rows for the condition. The two languages differ in what a text in
quotes is, in casts, in times and zones: parts that Spark could read in another way are left out. The filter
may let too many rows pass, never too few. Of the columns too only certain errors are reported: names below a
query, in a lambda, of a unit of time, and whatever sqlglot does not read, are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import build_scope
from sqlglot.schema import MappingSchema

from ...errors import ColumnNotFoundError, InvalidInputError, InvalidPredicateError, UnsupportedFeatureError
from ...format.names.identifiers import FoldedName, fold, quote
from ...format.types.ducklake_types import NUMBERS, DuckLakeType, ScalarKind, StructType
from ...format.types.values import as_float32
from ...planning.reading.predicates import column_ids
from .. import trees
from ..predicate import read_predicate
from .statements import functions_of

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema


_DIALECT = "spark"
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


@lru_cache
def _all_tokens(text: str) -> tuple[Token, ...]:
    return tuple(Spark().tokenize(text))


@lru_cache
def _tree(text: str) -> exp.Expr:
    return trees.parse_one(text, _DIALECT, into=exp.Condition)


def _tokens(text: str) -> Sequence[Token]:
    try:
        return _all_tokens(text)
    except TokenError:
        return ()  # Spark will say what is wrong


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
    """Return True if Spark means what our filter means by a text."""
    try:
        predicate = read_predicate(text, schema, table)
    except (InvalidPredicateError, ColumnNotFoundError, UnsupportedFeatureError):
        return False
    written = [condition[token.start : token.end + 1] for token in words]
    if any(one.upper() in _UNLIKE for one in written):
        return False
    values = [one for one in written if one[0] in "'\"0123456789." and one != "."]
    values += [one.upper() for one in written if one.upper() in _VALUE_WORDS]
    ids = set(column_ids(predicate))
    return all(_means_the_same(values, column.type) for column in schema.walk() if column.id in ids)


def _means_the_same(values: Sequence[str], type_: DuckLakeType) -> bool:
    row = type_.facts
    if not values:  # a test for NULL
        return True
    if row.kind in NUMBERS:
        return all(_NUMBER.fullmatch(one) for one in values) and (
            row.kind is not ScalarKind.FLOAT or row.bits != _FLOAT_BITS or all(map(_is_float32, values))
        )
    if row.kind is ScalarKind.STRING:
        return all(_PLAIN_TEXT.fullmatch(one) for one in values)
    if row.kind is ScalarKind.DATE or row.is_local_microseconds:
        return all(one == "DATE" or _MOMENT.fullmatch(one) for one in values)
    return row.kind is ScalarKind.BOOLEAN and all(one in ("TRUE", "FALSE") for one in values)


_FLOAT_BITS = 32


def _is_float32(number: str) -> bool:
    """Return True for a number that a FLOAT has: Spark compares others as DOUBLE, our filters as FLOAT."""
    return Decimal(number) == Decimal(as_float32(float(number)))


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


def functions_in(expression: str) -> frozenset[FoldedName]:
    """Return the functions that an expression calls by a name with a schema; none if it cannot be read."""
    try:
        return functions_of(_tree(expression))
    except SqlglotError:
        return frozenset()


def _is_special(name: str) -> bool:
    return name.startswith("_") or name.lower() in _OTHERS


def _names(expression: str) -> Iterator[list[str]]:
    """Yield the parts of each name that can be nothing but a column, or a field of one."""
    try:
        tree = _tree(expression)
    except SqlglotError:
        return
    if tree.find(exp.Alias, exp.Aliases, exp.Kwarg, exp.PropertyEQ, exp.Command):
        return  # it is read in another way than Spark does
    for column in tree.find_all(exp.Column):
        if not column.find_ancestor(exp.Query, exp.Lambda, exp.Collate) and all(
            isinstance(part, exp.Identifier) and part.name for part in column.parts
        ):
            yield [part.name for part in column.parts]


# What the words of an expression in Spark SQL certainly say, before Spark is asked.
#
# Stars and queries are refused: rows have columns of ours beside their own, and an expression is computed
# more than once. Which columns a join says are equal, and that the rows of a table are not looked at, only
# saves work: what is not certain is left out.


Name = tuple[str, ...]  # its parts, as they were written

_FACTOR = re.compile(
    r"(?!(?:DISTINCT|ALL|\.)\Z).*[\w.)\]'\"`]", re.DOTALL
)  # what a product's star stands behind
_BOXES_MEET = "&&"
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
# A word that is one is another token for sqlglot where it has a meaning of its own, as date has.
_NAME = re.compile(r"[^\W\d]\w*")
_VALUES = frozenset([*FUNCTIONS, "null", "true", "false"])
_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")


def check_expression(text: str, what: str) -> None:
    """Refuse an expression that looks at more than the columns that it names; errors call it ``what``."""
    try:
        tokens = _all_tokens(text)
    except TokenError as error:
        raise InvalidInputError(
            f"{what}: {text!r} cannot be run: its quotes or comments are not closed."
        ) from error
    words = [_word(text, token) for token in tokens]
    if _BOXES_MEET in words:
        raise UnsupportedFeatureError(
            f"{what}: {text!r} has &&, which Spark SQL does not. Only DuckDB compares boxes of geometries: "
            "select the rows by other conditions, or by ids that DuckDB found."
        )
    if any(word == "*" and not _FACTOR.fullmatch(before) for before, word in pairwise(["(", *words])):
        raise InvalidInputError(f"{what}: {text!r} uses * for all columns. Name the columns.")
    places = [place for place, pair in enumerate(pairwise(words)) if pair[0] == "(" and pair[1] in _QUERIES]
    if any(_is_query(words, place + 1) for place in places):
        raise InvalidInputError(f"{what}: {text!r} contains a subquery. Merge with that query as the source.")


def _is_query(words: Sequence[str], place: int) -> bool:
    """Return True if the word after a parenthesis begins a query: others name functions or columns."""
    following = words[place + 1] if place + 1 < len(words) else ""
    is_call = following == "(" and words[place] != "VALUES"
    return words[place] == "SELECT" or not (is_call or following in {")", ",", ".", "=", "<", ">", ""})


def _word(text: str, token: Token) -> str:
    """Return a token as it was written, in capitals; names in backticks keep those."""
    return text[token.start : token.end + 1].upper()


def equal_columns(condition: str) -> tuple[tuple[Name, Name], ...]:
    """Return the names that a condition says are equal wherever it holds.

    >>> equal_columns("target.id = source.id AND (day = `the day`) AND n > 1")
    ((('target', 'id'), ('source', 'id')), (('day',), ('the day',)))
    >>> equal_columns("a = b OR c = d")
    ()
    """
    try:
        parts = _plain_parts(condition, _tokens(condition))
        return tuple(pair for part in parts if (pair := _equal(condition, part)) is not None)
    except RecursionError:
        return ()  # nested too deeply to be looked at


def _plain_parts(condition: str, tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield what the ANDs of a condition connect, without parentheses; nothing where an OR is among them."""
    tokens = _without_parentheses(condition, tokens)
    words = [_word(condition, token) for token in tokens]
    outer = [not depth for depth in _depths(words)]
    joined = {word for word, is_outer in zip(words, outer, strict=True) if is_outer}
    if joined & {"OR", "BETWEEN"}:
        return
    ands = [place for place, word in enumerate(words) if word == "AND" and outer[place]]
    if not ands:
        yield tokens
        return
    for start, end in pairwise([-1, *ands, len(tokens)]):
        yield from _plain_parts(condition, tokens[start + 1 : end])


def _without_parentheses(condition: str, tokens: Sequence[Token]) -> Sequence[Token]:
    words = [_word(condition, token) for token in tokens]
    depths = _depths(words)
    while len(words) > 1 and words[0] == "(" and words[-1] == ")" and all(depths[1:-1]):
        tokens, words = tokens[1:-1], words[1:-1]
        depths = _depths(words)
    return tokens


def _depths(words: Sequence[str]) -> list[int]:
    """Return the depth of parentheses around each word; a parenthesis lies in those around it."""
    depths, depth = [], 0
    for word in words:
        depth -= word in _CLOSING
        depths.append(depth)
        depth += word in _OPENING
    return depths


def _equal(condition: str, tokens: Sequence[Token]) -> tuple[Name, Name] | None:
    words = [_word(condition, token) for token in tokens]
    places = [place for place, word in enumerate(words) if word in ("=", "==")]
    if len(places) != 1:
        return None
    sides = _name(condition, tokens[: places[0]]), _name(condition, tokens[places[0] + 1 :])
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def _name(condition: str, tokens: Sequence[Token]) -> Name | None:
    """Return the name that the tokens are, and nothing else."""
    names, dots = tokens[::2], tokens[1::2]
    if len(tokens) % 2 == 0 or any(_word(condition, dot) != "." for dot in dots):
        return None
    are_names = [
        one.token_type is TokenType.IDENTIFIER or _NAME.fullmatch(_word(condition, one)) for one in names
    ]
    is_value = len(names) == 1 and _word(condition, names[0]).lower() in _VALUES
    return None if is_value or not all(are_names) else tuple(one.text for one in names)


def may_read(text: str, columns: Collection[str], *, alias: str, other: str) -> bool:
    """Return True if an expression may need the columns of a table that it calls ``alias``.

    What it says behind the name of the ``other`` table is that one's.

    >>> may_read("source.price + fee", ["price"], alias="target", other="source")
    False
    >>> may_read("price + 1", ["price"], alias="target", other="source")
    True
    """
    known = {one.casefold() for one in (alias, *columns)}
    try:
        tokens = _all_tokens(text)
    except TokenError:
        return True
    heads_of_other = other.casefold() not in known
    before = ""
    is_of_other = False  # the chain of names that the token is in
    for token, following in zip_longest(tokens, tokens[1:]):
        word = _word(text, token)
        if before != "." and word != ".":
            is_dotted = following is not None and _word(text, following) == "."
            is_of_other = heads_of_other and is_dotted and fold(token.text) == fold(other)
        if word != "." and not is_of_other and token.text.casefold() in known:
            return True
        before = word
    return False


# Columns that Spark has as texts: it compares their spelling.


_CLOCK, _DAY = "[0-9]{2}:[0-9]{2}:[0-9]{2}", "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MICROSECONDS = 10**6
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
Spelling = tuple[DuckLakeType, str, str]  # an example, and a pattern of all


def _spelling(type_: DuckLakeType) -> Spelling | None:
    """Return an example and a pattern of the texts that Spark has for values of a type; None: it has none."""
    facts = type_.facts
    digits = 6 if facts.per_second == _MICROSECONDS else 9
    example, pattern = f"12:30:00.{'0' * digits}", rf"{_CLOCK}\.[0-9]{{{digits}}}"
    if facts.zoned:
        example, pattern = f"{example}+00", rf"{pattern}\+00"
    if facts.kind is ScalarKind.UUID:
        return type_, "0190f3c1-0000-7000-8000-00000000000a", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    if facts.kind is ScalarKind.TIME:
        return type_, example, pattern
    if facts.kind is ScalarKind.TIMESTAMP and facts.per_second > _MICROSECONDS:
        return type_, f"2026-01-31 {example}", f"-?infinity|{_DAY} {pattern}"
    return None


@dataclass(frozen=True)
class Spellings:
    """The columns of a table that Spark has as texts, by their folded paths.

    ``alias`` is what an expression may call the table, ``source`` the rows that are matched with it. A column
    of the source is spelled as the table's if it has its name, or if ``on`` says that both are equal; not
    where values are made of it: without a ``source``.
    """

    columns: Mapping[Name, Spelling]
    alias: str
    source: str
    equal: Collection[frozenset[Name]]

    @classmethod
    def of(cls, schema: TableSchema, alias: str, source: str = "", on: str = "") -> Spellings:
        """Collect the columns of a schema, and of fields of structs."""
        paths: dict[Name, Spelling] = {}
        above: list[tuple[Name, Column]] = [((), one) for one in schema.columns]
        for path, column in above:
            own = (*path, fold(column.name))
            if isinstance(column.type, StructType):
                above += [(own, one) for one in column.children]
            elif (found := _spelling(column.type)) is not None:
                paths[own] = found
        made = cls(paths, fold(alias), fold(source), set())
        pairs = equal_columns(on) if paths else ()
        return replace(made, equal={frozenset(map(made.own, pair)) for pair in pairs})

    def check(self, text: str, what: str) -> None:
        """Refuse an expression, which errors call ``what``, that compares such a column with other texts."""
        if not self.columns or not text:
            return
        try:
            tree = _tree(text)
        except SqlglotError:
            named = {path[-1] for path in self.columns} & {fold(one.text) for one in _tokens(text)}
            if not named:
                return
            raise InvalidInputError(
                f"{what}: {text!r} cannot be read, so how it compares {', '.join(sorted(named))} cannot be "
                "checked. Write it in a simpler way."
            ) from None
        for column in tree.find_all(exp.Column):
            wanted = self._target_spelling(column)
            if wanted is None:
                continue
            for other in _compared(column):
                if not self._is_spelled_so(other.unnest(), column, wanted):
                    type_, example, _ = wanted
                    raise InvalidInputError(
                        f"{what}: {text!r} compares {column.name} with {other.sql(_DIALECT)}. Spark has a "
                        f"{type_} as text and compares spellings: write values like {example!r}, or convert "
                        f"{column.name} by a function."
                    )

    def own(self, names: Iterable[str]) -> Name:
        """Fold a name, and drop the name of its table."""
        folded = tuple(map(fold, names))
        return folded[len(folded) > 1 and folded[0] in (self.alias, self.source) :]

    def _target_spelling(self, column: exp.Column) -> Spelling | None:
        names = [part.name for part in column.parts]
        is_of_source = len(names) > 1 and fold(names[0]) == self.source
        return None if is_of_source else self.columns.get(self.own(names))

    def _is_spelled_so(self, other: exp.Expr, column: exp.Column, wanted: Spelling) -> bool:
        if isinstance(other, exp.Literal):
            return other.is_string and re.fullmatch(wanted[2], other.name) is not None
        if not isinstance(other, exp.Column):
            return isinstance(other, exp.Null)
        if (found := self._target_spelling(other)) is not None:
            return found[0] == wanted[0]
        pair = frozenset(self.own(part.name for part in one.parts) for one in (column, other))
        return len(pair) == 1 or pair in self.equal


def _compared(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what an expression is compared with."""
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    above = node.parent
    if isinstance(above, _COMPARISONS):
        yield from (one for one in above.iter_expressions() if one is not node)
    elif isinstance(above, exp.Case) and above.this is node:
        yield from (one.this for one in above.args["ifs"])


# The columns of tables from which each column of a Spark SQL query is made.
#
# For lineage, not for execution: what sqlglot cannot follow is left out.


Origins: TypeAlias = tuple[tuple[str, str], ...]  # a relation of the query, and its column


def column_lineage(
    query: str, relations: Mapping[str, Sequence[str]], views: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Origins]:
    """Return the origins of each column of a query, in its order; empty if it cannot be parsed.

    A column's origins are sorted, since sqlglot has them in another order in each process.

    ``relations`` are what the query reads, by the names it uses, with their columns, none if they are
    unknown; ``views`` are queries that it names.

    >>> column_lineage("SELECT a.x + b.y AS z FROM a JOIN b USING (k)", {"a": ["x", "k"], "b": ["y", "k"]})
    {'z': (('a', 'x'), ('b', 'y'))}
    """
    schema: dict[str, object] = {
        fold(name): dict.fromkeys(map(fold, of), "string") for name, of in relations.items() if of
    }
    try:
        parsed = _expanded(query, views)
        named = {fold(one): one for one in parsed.named_selects}
        with trees.typed_and_quiet():
            nodes = _nodes(parsed, schema)
    except (SqlglotError, ValueError, KeyError, AssertionError, RecursionError):
        return {}
    spelled = {fold(name): name for name in relations}
    columns = {fold(name): {fold(one): one for one in of} for name, of in relations.items()}
    return {
        named.get(name, name): tuple(sorted(set(_origins(node, spelled, columns))))
        for name, node in nodes.items()
    }


def _nodes(query: exp.Query, schema: dict[str, object]) -> dict[str, Node]:
    """Trace the origin of each column of a query."""
    known = MappingSchema(schema, dialect=_DIALECT)
    tree = qualify(query, dialect=_DIALECT, schema=known, validate_qualify_columns=False, identify=False)
    assert isinstance(tree, exp.Query)
    scope = build_scope(tree)  # as the schema, once: else each column costs as much as all of them
    names = [one for one in tree.named_selects if one != "*"]
    return {
        name: lineage(name, tree, known, dialect=_DIALECT, scope=scope, trim_selects=False, copy=False)
        for name in names
    }


def _expanded(query: str, views: Mapping[str, str]) -> exp.Query:
    """Return the query with the views' queries in it."""
    parsed = trees.parse_one(query, _DIALECT)
    queries: dict[str, exp.Query | Callable[[], exp.Query]] = {
        name: one
        for name, text in views.items()
        if isinstance(one := trees.parse_one(text, _DIALECT), exp.Query)
    }
    expanded = exp.expand(parsed, queries, dialect=_DIALECT) if queries else parsed
    assert isinstance(expanded, exp.Query)
    return expanded


def _origins(
    node: Node, spelled: Mapping[str, str], columns: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    for leaf in node.walk():
        if leaf.downstream or not isinstance(leaf.expression, exp.Table):
            continue
        relation, column = fold(leaf.expression.name), fold(leaf.name.rpartition(".")[2])
        if relation in spelled:
            yield spelled[relation], columns[relation].get(column, column)
