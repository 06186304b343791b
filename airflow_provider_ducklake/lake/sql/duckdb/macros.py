"""What follows the name in CREATE MACRO: parameters and bodies.

A body is kept as its author wrote it: DuckDB parses it again whenever it loads the lake, and refuses the
whole lake if it cannot (observed on 1.5.5). So only what ``spec.sql`` reads is taken. As in the
reference, a default is a value: of a constant expression it stores the result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidStatementError, InvalidTypeError
from airflow_provider_ducklake.lake.spec.defaults import default_of
from airflow_provider_ducklake.lake.spec.names.identifiers import fold, is_storable
from airflow_provider_ducklake.lake.spec.sql.parse import Parser
from airflow_provider_ducklake.lake.spec.sql.tokens import ExpressionError, Token
from airflow_provider_ducklake.lake.spec.sql.tree import (
    Cast,
    Constant,
    ConstantKind,
    Expression,
    Name,
    Other,
    Subquery,
    children,
)
from airflow_provider_ducklake.lake.spec.tags import (
    DIALECT,
    EXPRESSION,
    MacroDefault,
    MacroDefinition,
    MacroOverload,
    MacroParameter,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind, ScalarType, parse_type
from airflow_provider_ducklake.lake.spec.types.values import format_float64
from airflow_provider_ducklake.lake.spec.versions import Feature
from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor, split_statements
from airflow_provider_ducklake.lake.sql.duckdb.types import BARE_FUNCTIONS, SCALAR_SPELLINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType
    from airflow_provider_ducklake.lake.spec.versions import WriteVersion

_WHOLE = re.compile(r"-?\d+")
_FIXED = re.compile(r"-?(\d*)\.(\d+)")
_MOST_DIGITS = 38
_LEAST = f"-{2**63}"
_LONGEST = 99  # of whole numbers: int() reads no longer ones than of 4,300 digits
_WHOLE_TYPES = tuple(ScalarType(f"int{bits}") for bits in (32, 64, 128))  # in which DuckDB has them


def parse_macro(text: str, writer: WriteVersion) -> MacroDefinition:
    """Parse a definition, as it may follow the name in CREATE MACRO.

    >>> from airflow_provider_ducklake.lake.spec.versions import DEFAULT, write_version
    >>> parse_macro("(a, b := 2) AS a + b", write_version(DEFAULT)).overloads[0].sql
    'a + b'
    """
    statements = tuple(split_statements(text))
    if len(statements) != 1:
        raise InvalidStatementError(1, 1, 1, repr(text[:20]), "expected one definition: (a) AS a + 1.")
    cursor = Cursor(text, statements[0], 1, writer)
    definition = read_macro(cursor)
    cursor.end()
    return definition


def check_macro(definition: MacroDefinition, name: str) -> None:
    """Refuse a definition that DuckDB might not read when it loads the lake."""
    if not definition.overloads:
        raise InvalidInputError(f"Macro {name} has no body.")
    for overload in definition.overloads:
        try:
            parser = Parser(overload.sql)
            _ = parser.query() if definition.is_table else parser.expression()
            parser.end()
            for parameter in overload.parameters:
                _check_stored(parameter)
        except (ExpressionError, InvalidTypeError) as error:
            raise InvalidInputError(f"Macro {name}, with the body {overload.sql!r}: {error}") from None
        if overload.dialect != DIALECT:
            raise InvalidInputError(
                f"Macro {name}: DuckDB has no bodies in the dialect {overload.dialect!r}."
            )


def _check_stored(parameter: MacroParameter) -> None:
    if parameter.type is not None and not parameter.type.endswith("]"):
        parse_type(parameter.type)
    if parameter.default is not None and parameter.default.type != EXPRESSION:
        parse_type(parameter.default.type)


def read_macro(cursor: Cursor) -> MacroDefinition:
    """Read parameters and bodies up to the end of the statement."""
    try:
        parser = Parser(cursor.statement, cursor.peek().start)
        found = _Reader(parser, cursor).definition()
    except ExpressionError as error:
        raise cursor.error_in_text(error.position, f"{error.problem}") from error
    cursor.skip_to(parser.passed)
    return found


class _Reader:
    def __init__(self, parser: Parser, cursor: Cursor) -> None:
        self._parser = parser
        self._cursor = cursor
        self._text = cursor.statement

    def definition(self) -> MacroDefinition:
        overload, is_table = self._overload()
        overloads = [overload]
        while self._parser.accept(","):
            place = self._parser.peek()
            overload, also_table = self._overload()
            if also_table != is_table:
                raise self._parser.error("all bodies of a macro are expressions, or all are TABLE.", at=place)
            overloads.append(overload)
            _check_ambiguity(overloads, place)
        return MacroDefinition(tuple(overloads), is_table)

    def _overload(self) -> tuple[MacroOverload, bool]:
        parser = self._parser
        parameters = self._parameters()
        parser.expect("as")
        is_table = parser.accept("table")
        first = parser.peek()
        if is_table:
            parser.query()
        else:
            _check_names(parser.expression(), parameters, first)
        body = self._text[first.start : parser.passed]
        if not is_storable(body):
            raise parser.error("it has a NUL character or an unpaired surrogate.", at=first)
        return MacroOverload(body, parameters), is_table

    def _parameters(self) -> tuple[MacroParameter, ...]:
        parser = self._parser
        parser.expect("(")
        found: list[MacroParameter] = []
        while not parser.sees(")"):
            if found:
                parser.expect(",")
            place = parser.peek()
            one = self._parameter()
            if fold(one.name) in {fold(other.name) for other in found}:
                raise parser.error("two parameters have this name (names are case-insensitive).", at=place)
            if found and found[-1].default is not None and one.default is None:
                raise parser.error("a parameter without a default follows one that has a default.", at=place)
            found.append(one)
        parser.expect(")")
        return tuple(found)

    def _parameter(self) -> MacroParameter:
        parser = self._parser
        name = parser.name()
        place = parser.peek()
        has_type = place.symbol not in (",", ")", ":=", "=>")
        type_ = self._type(place) if has_type else None
        if not (parser.accept(":=") or parser.accept("=>")):
            return MacroParameter(name, type_)
        place = parser.peek()
        default = self._default(parser.expression(), place)
        if type_ is not None:
            _check_default(default, type_, parser, place)
        return MacroParameter(name, type_, default)

    def _type(self, place: Token) -> str:
        spelled = self._parser.type()
        if spelled.endswith("]"):
            self._cursor.writer.check(Feature.NESTED_MACRO_TYPES, f"Macro, at {place.text!r}: ")
            return spelled
        if spelled.startswith("DECIMAL"):
            numbers = re.findall(r"\d+", spelled) or ["18", "3"]
            precision, scale = (*numbers, "0")[:2]
            return f"decimal({precision},{scale})"
        return SCALAR_SPELLINGS[spelled.lower()]

    def _default(self, value: Expression, place: Token) -> MacroDefault:
        match value:
            case Constant(ConstantKind.NUMBER, text):
                return _number(text, self._parser, place)
            case Constant(ConstantKind.STRING, text):
                if not is_storable(text):
                    raise self._parser.error("it has a NUL character or an unpaired surrogate.", at=place)
                return MacroDefault(text, "varchar")
            case Constant(ConstantKind.TRUE | ConstantKind.FALSE as kind):
                return MacroDefault(kind.value, "boolean")
            case Constant():
                raise self._parser.error(
                    "DuckDB stores no NULL as a default. Leave the default out.", at=place
                )
            case Cast(Constant(ConstantKind.STRING, text), type_, literal=True):
                return self._typed(text, ScalarType(SCALAR_SPELLINGS[type_.lower()]), place)
            case _:
                return self._expression(value, place)

    def _typed(self, text: str, type_: ScalarType, place: Token) -> MacroDefault:
        try:
            _, initial = default_of(text, type_)
        except InvalidInputError as error:
            raise self._parser.error(str(error), at=place) from error
        assert initial is not None
        return MacroDefault(initial, str(type_))

    def _expression(self, value: Expression, place: Token) -> MacroDefault:
        self._cursor.writer.check(Feature.MACRO_EXPRESSIONS, f"Macro, at {place.text!r}: ")
        _check_names(value, (), place)
        return MacroDefault(self._text[place.start : self._parser.passed], EXPRESSION)


def _number(text: str, parser: Parser, place: Token) -> MacroDefault:
    """Return a number with the type that DuckDB gives it."""
    if _WHOLE.fullmatch(text):
        size = abs(int(text)) - (text == _LEAST) if len(text) <= _LONGEST else 2**128
        type_ = next((one for one in _WHOLE_TYPES if size < 2 ** (one.facts.bits - 1)), None)
        if type_ is None:
            raise parser.error("the number is too large.", at=place)
        return MacroDefault(str(int(text)), str(type_))
    if (found := _FIXED.fullmatch(text)) is not None:
        precision, scale = len(found[1]) + len(found[2]), len(found[2])
        if precision > _MOST_DIGITS:
            raise parser.error(f"a decimal has at most {_MOST_DIGITS} digits.", at=place)
        return MacroDefault(text, f"decimal({precision},{scale})")
    return MacroDefault(format_float64(float(text)), "float64")


def _check_default(default: MacroDefault, type_: str, parser: Parser, place: Token) -> None:
    if default.type in (type_, EXPRESSION) or _takes(parse_type(type_), parse_type(default.type)):
        return
    raise parser.error(
        f"the default has type {default.type}, which DuckDB does not take for {type_}. Write it in that "
        "type, or leave the parameter's type out.",
        at=place,
    )


def _takes(wanted: DuckLakeType, given: DuckLakeType) -> bool:
    """Return True if DuckDB casts values of the given type to the wanted one implicitly."""
    to, of = wanted.facts, given.facts
    match of.kind:
        case ScalarKind.INTEGER if to.kind is ScalarKind.INTEGER:
            return to.signed and to.bits >= of.bits
        case ScalarKind.INTEGER:
            return to.kind is ScalarKind.FLOAT or (to.kind is ScalarKind.DECIMAL and of.storable)
        case ScalarKind.DECIMAL:
            return to.kind in (ScalarKind.FLOAT, ScalarKind.DECIMAL)
        case ScalarKind.DATE:
            return to.is_local_microseconds
        case ScalarKind.STRING:
            return to.kind is ScalarKind.JSON
        case _:
            return False


def _check_ambiguity(overloads: list[MacroOverload], place: Token) -> None:
    types = [tuple(one.type for one in overload.parameters) for overload in overloads]
    if types[-1] in types[:-1]:
        raise ExpressionError(place.start, "two bodies have the same parameters.")


def _check_names(body: Expression, parameters: tuple[MacroParameter, ...], place: Token) -> None:
    """Refuse a name outside a subquery that is not a parameter: there is no column that it could be."""
    known = {fold(one.name) for one in parameters} | BARE_FUNCTIONS
    for name in _free_names(body, frozenset(known)):
        raise ExpressionError(place.start, f"{name!r} is not a parameter of this body.")


def _free_names(expression: Expression, known: frozenset[str]) -> Iterator[str]:
    if isinstance(expression, Name) and fold(expression.parts[0]) not in known:
        yield expression.parts[0]
    if isinstance(expression, Subquery):
        return
    parts = children(expression)
    if isinstance(expression, Other) and expression.kind == "lambda":
        variable = parts[0]
        assert isinstance(variable, Name)
        known, parts = known | {fold(variable.parts[0])}, parts[1:]
    for one in parts:
        yield from _free_names(one, known)
