"""What follows the name in CREATE MACRO: parameters and bodies, which DuckDB judges.

A body is kept as its author wrote it: DuckDB parses it again whenever it loads the lake, and refuses the
whole lake if it cannot (observed on 1.5.5). So a DuckDB in memory, which reaches no file and no network,
creates the macro first. It has none of the lake's tables and macros: those that a body names are looked up
when the macro is called. As in the reference, a default is a value: of a constant the result is stored.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import InvalidInputError, InvalidStatementError, UnsupportedFeatureError
from ...format.names.identifiers import is_storable, written
from ...format.sql.parse import parse_expression
from ...format.sql.tokens import ExpressionError, Token, TokenKind
from ...format.sql.tree import Cast, Constant, ConstantKind
from ...format.tags import DIALECT, EXPRESSION, MacroDefault, MacroDefinition, MacroOverload, MacroParameter
from ...format.types.ducklake_types import DecimalType, ScalarType, parse_type
from ...format.versions import Feature, WriteVersion
from .cursor import Cursor, split_statements
from .types import read_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# Of the connection that judges; "Python replacements" are variables of ours that a query could read.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "threads": 1,
}
_TYPES = "SELECT parameter_types FROM duckdb_functions() WHERE function_name = 'judged'"  # of each overload
_NESTED = ""  # a type that DuckDB is to spell
_NESTED_TYPE = re.compile(r".*\[\d*\]|(STRUCT|MAP)\(.*\)", re.DOTALL)  # as it does
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def parse_macro(text: str, writer: WriteVersion) -> MacroDefinition:
    """Parse a definition, as it may follow the name in CREATE MACRO.

    >>> from airflow_provider_ducklake.lake.format.versions import DEFAULT, write_version
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


def judged(definition: MacroDefinition | str, name: str, writer: WriteVersion) -> MacroDefinition:
    """Return a definition, parsed, that DuckDB reads when it loads the lake."""
    if isinstance(definition, str):
        return parse_macro(definition, writer)
    if not definition.overloads:
        raise InvalidInputError(f"Macro {name} has no body.")
    kind = "TABLE " if definition.is_table else ""
    for overload in definition.overloads:
        if overload.dialect != DIALECT:
            raise InvalidInputError(
                f"Macro {name}: DuckDB has no bodies in the dialect {overload.dialect!r}."
            )
        names = ", ".join(written(one.name) for one in overload.parameters)
        try:
            if len(parse_macro(f"({names}) AS {kind}{overload.sql}", writer).overloads) > 1:
                raise InvalidInputError("this is more than one body.")
            for parameter in overload.parameters:
                _check_stored(parameter, f"Macro {name}: ", writer)
        except ValueError as error:
            raise InvalidInputError(f"Macro {name}, with the body {overload.sql!r}: {error}") from None
    return definition


def _check_stored(parameter: MacroParameter, where: str, writer: WriteVersion) -> None:
    type_, default = parameter.type, parameter.default
    if type_ is not None and _NESTED_TYPE.fullmatch(type_):
        writer.check(Feature.NESTED_MACRO_TYPES, where)
    elif type_ is not None:
        parse_type(type_)
    if default is not None and default.type == EXPRESSION:
        writer.check(Feature.MACRO_EXPRESSIONS, where)
    elif default is not None:
        parse_type(default.type)


def read_macro(cursor: Cursor) -> MacroDefinition:
    """Read parameters and bodies up to the end of the statement."""
    try:
        import duckdb
    except ImportError:
        raise UnsupportedFeatureError(
            "DuckDB judges what CREATE MACRO says, and is not installed where this runs: "
            "pip install 'duckdb>=1.4.1'."
        ) from None
    start = cursor.peek()
    if not is_storable(cursor.statement[start.start :]):
        raise cursor.error("it has a NUL character or an unpaired surrogate.", at=start)
    with duckdb.connect(config=_CONFIG) as connection:
        try:
            return _Reader(cursor, connection).definition()
        except duckdb.Error as error:
            problem = str(error).splitlines()[0]
            raise cursor.error(f"DuckDB refuses the macro ({problem}).", at=start) from None


class _Reader:
    def __init__(self, cursor: Cursor, connection: DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._connection = connection
        self._lists: list[str] = []  # of parameters, as written
        self._is_table = False

    def definition(self) -> MacroDefinition:
        start = self._cursor.peek()
        overloads = self._cursor.list_of(self._overload)
        self._judge(self._cursor.text_from(start))
        return MacroDefinition(self._spelled(overloads), self._is_table)

    def _judge(self, text: str) -> None:
        from duckdb import CatalogException, PermissionException

        with suppress(CatalogException, PermissionException):  # a table or a file, and DuckDB has parsed it
            self._connection.execute(f"CREATE MACRO whole{text}")
        lists = ", ".join(f"{one} AS {number}" for number, one in enumerate(self._lists))
        self._connection.execute(f"CREATE MACRO judged{lists}")

    def _overload(self) -> MacroOverload:
        cursor = self._cursor
        start = cursor.peek()
        cursor.expect("(")
        parameters = () if cursor.sees(")") else cursor.list_of(self._parameter)
        cursor.expect(")")
        self._lists.append(cursor.text_from(start))
        cursor.expect("as")
        self._is_table = cursor.accept("table")
        start = cursor.peek()
        if not self._is_table:
            self._skip(",")
        elif cursor.accept("("):
            self._skip(")")
            cursor.accept(")")
        if self._is_table and not cursor.sees(","):
            self._skip()
        return MacroOverload(cursor.text_from(start), parameters)

    def _skip(self, *ends: str) -> None:
        """Pass tokens up to one of these symbols that is in no parentheses."""
        depth, token = 0, self._cursor.peek()
        while token.kind is not TokenKind.END and (depth or token.symbol not in ends):
            depth += (token.symbol in _OPENING) - (token.symbol in _CLOSING)
            self._cursor.take()
            token = self._cursor.peek()

    def _parameter(self) -> MacroParameter:
        cursor = self._cursor
        name = cursor.name("parameter")
        type_ = None if cursor.peek().symbol in (",", ")", ":", "=>") else self._type()
        if not (cursor.accept(":", "=") or cursor.accept("=>")):
            return MacroParameter(name, type_)
        start = cursor.peek()
        self._skip(",", ")")
        return MacroParameter(name, type_, self._default(cursor.text_from(start), start))

    def _type(self) -> str:
        place = self._cursor.peek()
        found = read_type(self._cursor)
        if isinstance(found, ScalarType | DecimalType):
            return str(found)
        self._cursor.writer.check(Feature.NESTED_MACRO_TYPES, f"Macro, at {place.text!r}: ")
        return _NESTED

    def _default(self, text: str, place: Token) -> MacroDefault:
        try:
            found = parse_expression(text)
        except ExpressionError:
            found = None
        if isinstance(found, Constant) and found.kind is ConstantKind.NULL:
            raise self._cursor.error("DuckDB stores no NULL as a default. Leave the default out.", at=place)
        if isinstance(found, Constant) or (isinstance(found, Cast) and found.literal):
            query = f"SELECT CAST({text} AS VARCHAR), typeof({text})"
            value, type_ = self._connection.execute(query).fetchall()[0]
            (tokens,) = split_statements(type_)
            return MacroDefault(value, str(read_type(Cursor(type_, tokens, 1, self._cursor.writer))))
        self._cursor.writer.check(Feature.MACRO_EXPRESSIONS, f"Macro, at {place.text!r}: ")
        return MacroDefault(text, EXPRESSION)

    def _spelled(self, overloads: tuple[MacroOverload, ...]) -> tuple[MacroOverload, ...]:
        """Return the overloads with nested types in DuckDB's spelling."""
        if all(one.type != _NESTED for overload in overloads for one in overload.parameters):
            return overloads
        types = [row[0] for row in self._connection.execute(_TYPES).fetchall()]
        return tuple(
            replace(overload, parameters=tuple(map(_typed, overload.parameters, of)))
            for overload, of in zip(overloads, types, strict=True)
        )


def _typed(parameter: MacroParameter, spelled: str) -> MacroParameter:
    return replace(parameter, type=spelled) if parameter.type == _NESTED else parameter
