"""The text of a filter: ``price > 10 AND day IN (DATE '2024-01-01')``, read for the columns of one table.

sqlglot's parser makes a tree of it, and what is read here is that tree: each kind of node and each of its
parts is named below, and anything else is refused with its place. Since a parser may drop or reinterpret what
it reads (``docs/adr/0010-…``), the words, symbols and values of the text are looked at too: none may be
foreign to filters, and each value and name must be found in the tree. The text itself goes nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from ..errors import InvalidInputError, InvalidPredicateError, InvalidStatementError, UnsupportedFeatureError
from ..format.defaults import literal_physical
from ..format.schema import Column, TableSchema
from ..format.sql.tokens import Token, TokenKind, line_and_column, without_comments
from ..format.types.ducklake_types import ScalarKind, ScalarType, StructType, parse_type
from ..planning.reading import predicates as terms
from ..planning.reading.predicates import like
from .duckdb.cursor import split_statements
from .duckdb.types import DECIMAL_SPELLINGS, SCALAR_SPELLINGS, read_number

Node: TypeAlias = Any  # of sqlglot's tree; the class has another name in each release

_BOOLEAN = ScalarType("boolean")
_DOUBLE = ScalarType("float64")
_COMPARING = {
    "EQ": terms.Operator.EQUAL,
    "NEQ": terms.Operator.UNEQUAL,
    "LT": terms.Operator.LESS,
    "LTE": terms.Operator.AT_MOST,
    "GT": terms.Operator.GREATER,
    "GTE": terms.Operator.AT_LEAST,
}
_KEYWORDS = frozenset(
    """AND OR NOT IN IS NULL ISNULL NOTNULL BETWEEN LIKE DISTINCT FROM TRUE FALSE CAST AS
    WITH WITHOUT TIME ZONE PRECISION""".split()  # noqa: SIM905 - a list of them would fill the page
) | {word.upper() for word in (*SCALAR_SPELLINGS, *DECIMAL_SPELLINGS)}
_COMPARISON_SIGNS = frozenset(["==", "!=", *terms.Operator])
_OTHER_SYMBOLS = frozenset(["(", ")", ",", ".", "-", "+", "::", "&&"])
_ALLOWED = (
    "A filter compares columns with values: = <> < <= > >=, IN, BETWEEN, LIKE, IS NULL, "
    "IS DISTINCT FROM, combined with AND, OR, NOT and parentheses."
)


def read_predicate(text: str, schema: TableSchema, table: str) -> terms.Predicate:
    """Return the filter that a text spells for a table of that schema."""
    tokens = _tokens(text)
    _check_signs(text, tokens)
    reader = _PredicateReader(text, schema, table)
    try:
        predicate = reader.condition(_tree(text, tokens), negate=False)
    except RecursionError:
        raise _error(text, 0, text, _TOO_DEEP) from None
    reader.check_all_read(tokens)
    return predicate


def _error(text: str, position: int, near: str, problem: str) -> InvalidPredicateError:
    return InvalidPredicateError(*line_and_column(text, position), _shortened(near), problem)


def _shortened(near: str) -> str:
    return repr(near if len(near) <= _SHOWN else near[:_SHOWN] + "…")


_SHOWN = 60
_TOO_DEEP = "this is nested too deeply."


def _tokens(text: str) -> tuple[Token, ...]:
    try:
        statements = list(split_statements(text))
    except InvalidStatementError as error:
        raise InvalidPredicateError(error.line, error.column, error.near, error.problem) from error
    if len(statements) != 1 or text[statements[0][-1].end :].lstrip().startswith(";"):
        raise _error(text, 0, text, "this is not a single condition. Leave the filter out to read every row.")
    return statements[0]


def _check_signs(text: str, tokens: tuple[Token, ...]) -> None:
    """Refuse symbols that filters do not have, before sqlglot makes something of them."""
    for sign in tokens:
        if sign.kind is TokenKind.SYMBOL and sign.text not in _COMPARISON_SIGNS | _OTHER_SYMBOLS:
            raise _error(text, sign.start, sign.text, f"filters do not support this character. {_ALLOWED}")


def _tree(text: str, tokens: tuple[Token, ...]) -> Node:
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    from . import trees

    try:
        return trees.parse_one(without_comments(text, tokens), "duckdb", into=exp.Condition)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = first.get("highlight") or text
        column = (first.get("col") or len(near)) - len(near) + 1
        raise InvalidPredicateError(
            first.get("line") or 1, column, _shortened(near), f"this cannot be read. {_ALLOWED}"
        ) from error
    except trees.TooDeepError as error:
        raise _error(text, 0, text, _TOO_DEEP) from error
    except SqlglotError as error:
        raise _error(text, 0, text, f"this cannot be read. {_ALLOWED}") from error


@dataclass
class _PredicateReader:
    """Reads sqlglot's tree, and counts the names and values that it has read."""

    text: str
    schema: TableSchema
    table: str
    found: Counter[tuple[TokenKind, str]] = field(default_factory=Counter)

    def refuse(self, node: Node, problem: str) -> InvalidPredicateError:
        shown = node.sql("duckdb")
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        position = min(starts) if starts else max(self.text.upper().find(shown.upper()), 0)
        return _error(self.text, position, shown, problem)

    def unsupported(self, node: Node, problem: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(f"Filter on {self.table}: {_shortened(node.sql('duckdb'))} {problem}")

    def condition(self, node: Node, *, negate: bool) -> terms.Predicate:
        """Return the filter that is true where a condition is, or, with ``negate``, where it is false."""
        read = _CONDITIONS.get(type(node).__name__)
        if read is None:
            raise self.refuse(node, f"filters do not support this. {_ALLOWED}")
        return read(self, node, negate)

    def inner(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001 - these are called by the table below
        (inner,) = self.parts(node, "this")
        return self.condition(inner, negate=negate)

    def opposite(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        return self.inner(node, not negate)

    def all_of(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        parts = tuple(self.condition(part, negate=negate) for part in node.flatten())
        return terms.AnyOf(parts) if negate else terms.AllOf(parts)

    def any_of(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        parts = tuple(self.condition(part, negate=negate) for part in node.flatten())
        return terms.AllOf(parts) if negate else terms.AnyOf(parts)

    def constant(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        return terms.ALWAYS if bool(node.this) != negate else terms.NEVER

    def null(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: ARG002, FBT001
        return terms.NEVER

    def made(self, node: Node, make: Any, *arguments: Any, **options: Any) -> terms.Predicate:  # noqa: ANN401
        """Call one of the functions of ``planning.reading.predicates``; its error gets a place."""
        try:
            predicate: terms.Predicate = make(*arguments, **options)
        except InvalidInputError as error:
            raise self.refuse(node, str(error)) from error
        return predicate

    def parts(self, node: Node, *names: str, optional: str | None = None) -> list[Any]:
        """Return the named parts of a node, which must have them and no others."""
        for name, part in node.args.items():
            if name not in (*names, optional) and part not in (None, False, []):
                raise self.refuse(node, f"filters do not support this. {_ALLOWED}")
        found = [node.args.get(name) for name in names]
        if any(part is None or part == [] for part in found):
            raise self.refuse(node, "something is missing here.")
        return found

    def truth(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        column = self.column(node)
        if column.type != _BOOLEAN:
            raise self.refuse(node, f"this column is {column.type}, not boolean: compare it with a value.")
        return terms.compare(column, terms.Operator.EQUAL, terms.TypedValue(_BOOLEAN, not negate))

    def comparison(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        left, right = self.parts(node, "this", "expression")
        operator = _COMPARING[type(node).__name__]
        if not _is_column(left) and _is_column(right):
            left, right, operator = right, left, terms.FLIPPED[operator]
        target, value = self.column(left), self.value(right)
        return self.made(node, terms.compare, target, terms.NEGATED[operator] if negate else operator, value)

    def is_same(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        return self.sameness(node, negate=negate)

    def is_distinct(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        return self.sameness(node, negate=not negate)

    def sameness(self, node: Node, *, negate: bool) -> terms.Predicate:
        left, right = self.parts(node, "this", "expression")
        if not _is_column(left) and _is_column(right):
            left, right = right, left
        target, value = self.column(left), self.value(right)
        return self.made(node, terms.same, target, value, negated=negate)

    def membership(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        column, values = self.parts(node, "this", "expressions")
        target, given = self.column(column), [self.value(one) for one in values]
        return self.made(node, terms.member, target, given, negated=negate)

    def between(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        column, *limits = self.parts(node, "this", "low", "high")
        target, given = self.column(column), [self.value(limit) for limit in limits]
        low, high = terms.unified(target, given)
        ends = ((terms.Operator.AT_LEAST, low), (terms.Operator.AT_MOST, high))
        parts = tuple(
            self.made(node, terms.compare, target, terms.NEGATED[operator] if negate else operator, value)
            for operator, value in ends
        )
        return terms.AnyOf(parts) if negate else terms.AllOf(parts)

    def like(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        column, pattern = self.parts(node, "this", "expression", optional="negate")
        negated = negate != bool(node.args.get("negate"))  # sqlglot 30 has no NOT around it
        return self.made(node, like, self.column(column), self.value(pattern), negated=negated)

    def overlap(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: ARG002, FBT001
        raise self.unsupported(
            node,
            "has &&, and filters do not compare boxes of geometries. Select the rows by other conditions, or "
            "by ids that DuckDB found.",
        )

    def is_(self, node: Node, negate: bool) -> terms.Predicate:  # noqa: FBT001
        left, right = self.parts(node, "this", "expression")
        if type(right).__name__ == "Null":
            return self.made(node, terms.null_test, self.column(left), negated=negate)
        if type(right).__name__ != "Boolean":
            raise self.refuse(node, "expected NULL, TRUE, FALSE or DISTINCT FROM after IS.")
        return self.sameness(node, negate=negate)

    def column(self, node: Node) -> Column:
        """Return the column or struct field that a name means."""
        node = _bare(node)
        if not _is_column(node):
            raise self.refuse(node, "expected a column here: a filter compares a column with a value.")
        names = [self.name(part) for part in node.parts]
        column = self.schema.find(names[0], self.table)
        for name in names[1:]:
            if column.type.facts.kind is ScalarKind.VARIANT:
                raise self.unsupported(
                    node,
                    f"names a part of {column.name}, a variant, and filters look into none. Select "
                    "such rows with variant_get in Spark SQL, or read them by other conditions and use "
                    "decode_variant.",
                )
            if not isinstance(column.type, StructType):
                raise self.refuse(node, f"{column.name} is of type {column.type} and has no fields.")
            column = TableSchema(column.children).find(name, f"{self.table} column {column.name}")
        return column

    def name(self, part: Node) -> str:
        if type(part).__name__ != "Identifier":
            raise self.refuse(part, "expected the name of a column.")
        quoted = bool(part.args.get("quoted"))
        self.found[(TokenKind.QUOTED, "") if quoted else (TokenKind.WORD, part.name.upper())] += 1
        return str(part.name)

    def value(self, node: Node) -> terms.Value:
        match type(node).__name__:
            case "Paren":
                (inner,) = self.parts(node, "this")
                return self.value(inner)
            case "Null":
                return None
            case "Boolean":
                return terms.TypedValue(_BOOLEAN, bool(node.this))
            case "Literal":
                return self.literal(node)
            case "Neg":
                return self.negative(node)
            case "Cast":
                return self.cast(node)
            case _:
                raise self.refuse(
                    node, "expected a value here: 1, 1.5, 'text', DATE '2024-01-31', TRUE, NULL."
                )

    def literal(self, node: Node) -> terms.Value:
        if node.is_string:
            self.found[TokenKind.STRING, ""] += 1
            return str(node.this)
        self.found[TokenKind.NUMBER, ""] += 1
        number = read_number(str(node.this))
        return terms.TypedValue(_DOUBLE, number) if isinstance(number, float) else number

    def negative(self, node: Node) -> terms.Value:
        (inner,) = self.parts(node, "this")
        match self.value(inner):
            case int() as number:
                return -number
            case Decimal() as number:
                return number.copy_negate()  # a minus would round it to the 28 digits of Python's context
            case terms.TypedValue(type_, number) if type_.facts.kind is ScalarKind.FLOAT:
                return terms.TypedValue(type_, -float(number))
            case _:
                raise self.refuse(node, "expected a number after the minus.")

    def cast(self, node: Node) -> terms.Value:
        inner, to = self.parts(node, "this", "to")
        given = self.value(inner)
        if given is None:
            return None
        if isinstance(given, terms.TypedValue) and (given.type != _DOUBLE or type(inner).__name__ == "Cast"):
            raise self.refuse(node, "only a string or a number can be cast here.")
        literal = float(given.value) if isinstance(given, terms.TypedValue) else given
        try:
            type_ = parse_type(to.sql("duckdb"))
            value = terms.TypedValue(type_, literal_physical(type_, literal))
        except (ValueError, OverflowError) as error:
            raise self.refuse(node, f"{literal!r} is not a valid value of this type: {error}.") from error
        self.found.update((TokenKind.NUMBER, "") for one in to.walk() if type(one).__name__ == "Literal")
        return value

    def check_all_read(self, tokens: tuple[Token, ...]) -> None:
        """Refuse what sqlglot dropped, or read otherwise than as the name or value that it is written as."""
        written = Counter(
            (one.kind, one.text.upper() if one.kind is TokenKind.WORD else "")
            for one in tokens
            if one.kind is not TokenKind.SYMBOL
        )
        for (kind, word), count in written.items():
            if word not in _KEYWORDS and self.found[kind, word] != count:
                of_kind = (one for one in tokens if one.kind is kind)
                place = next(one for one in of_kind if not word or one.text.upper() == word)
                raise _error(self.text, place.start, place.text, f"this does not belong here. {_ALLOWED}")


def _bare(node: Node) -> Node:  # without parentheses
    return node.unnest()


def _is_column(node: Node) -> bool:
    return type(_bare(node)).__name__ in ("Column", "Dot")


_CONDITIONS: dict[str, Callable[[_PredicateReader, Node, bool], terms.Predicate]] = {
    "Paren": _PredicateReader.inner,
    "Not": _PredicateReader.opposite,
    "And": _PredicateReader.all_of,
    "Or": _PredicateReader.any_of,
    "Boolean": _PredicateReader.constant,
    "Null": _PredicateReader.null,
    "Column": _PredicateReader.truth,
    "Dot": _PredicateReader.truth,
    **dict.fromkeys(_COMPARING, _PredicateReader.comparison),
    "NullSafeEQ": _PredicateReader.is_same,
    "NullSafeNEQ": _PredicateReader.is_distinct,
    "In": _PredicateReader.membership,
    "Between": _PredicateReader.between,
    "Is": _PredicateReader.is_,
    "Like": _PredicateReader.like,
    "ArrayOverlaps": _PredicateReader.overlap,
}
