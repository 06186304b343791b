"""Several statements in one round trip to PostgreSQL, as one text: its simple query protocol takes that.

Each still sees what was committed before it began, and waits only for the ones before it. SQLAlchemy
compiles them, once each; psycopg writes their values into the text.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Escaping, TransactionStatus
from sqlalchemy import Connection, CursorResult, Dialect, Select, TableClause, bindparam, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable, DDLElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, UpdateBase

from ..database.tables import CheckedType
from .dialect import Effect, Writer

if TYPE_CHECKING:
    from sqlalchemy.sql.elements import ClauseElement
    from sqlalchemy.types import TypeEngine

    from ..database.connect import Question

_SHOWN = 80  # characters of a statement in an error

# For the transaction that a text is in, or is. What is ``IN (SELECT …)``, negated or below OR, PostgreSQL
# looks up in a hash table if it expects that to fit into its memory, else it reads the set again for each
# row: with the usual 4 MB so of a table of some 100,000 files, with this of millions. A join needs no memory,
# but of tables without statistics, as new ones are, it expects one row, and reads one of them again for each
# row of the other.
MEMORY = "SET LOCAL work_mem = '64MB'"
# Who may create in a lake's schema may create operators and functions that fit better than PostgreSQL's own.
# Rows that a policy hides would be missing silently.
SETTINGS = "SET LOCAL search_path = pg_catalog, pg_temp", "SET LOCAL row_security = off", MEMORY
# Where the server can, it itself refuses views and foreign tables, also those made after our check.
_NO_VIEWS = "SET LOCAL restrict_nonsystem_relation_kind = 'view, foreign-table'"
_NO_VIEWS_SINCE = {12: 20, 13: 16, 14: 13, 15: 8, 16: 4}  # minor releases; every later major one supports it


def settings(connection: Connection) -> tuple[str, ...]:
    """Return the texts that begin a transaction, before any other."""
    major, minor = divmod(_driver(connection).info.server_version, 10_000)
    has_it = minor >= _NO_VIEWS_SINCE.get(major, 0) and major >= min(_NO_VIEWS_SINCE)
    return (*SETTINGS, _NO_VIEWS) if has_it else SETTINGS


class _Text(str):
    """SQL with its values, for the server; a log or an error, which take ``str`` of it, show it without."""

    _shown: str

    def __new__(cls, text: str, shown: str) -> Self:
        """Return the text; ``shown`` is the same without values."""
        made = super().__new__(cls, text)
        made._shown = shown
        return made

    def __str__(self) -> str:
        return self._shown


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement's text; its own parameters; what turns Python's values into the driver's, and back."""

    text: str
    own: Mapping[str, Any]
    names: Mapping[str, str]  # in the text, of the parameters
    binders: Mapping[str, Callable[[Any], Any]]
    row: Callable[[Sequence[Any]], Any]

    def with_values(self, values: Mapping[str, Any], literal: Callable[[Any], str]) -> str:
        """Return the text with the values written into it."""
        bound = {**self.own, **values}
        for name, binder in self.binders.items():
            bound[name] = binder(bound[name])
        literals = {self.names.get(name, name): literal(value) for name, value in bound.items()}
        return _Text(self.text % literals, self.text)


class _Literals:
    """Writes values as one connection's SQL: the simple ones by libpq, all others by psycopg."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._encoding = connection.info.encoding
        self._escape = Escaping(connection.pgconn).escape_literal
        self._others = Transformer(connection)

    def __call__(self, value: Any) -> str:  # noqa: ANN401
        if value is None:
            return "NULL"
        kind = type(value)
        if kind is bool:
            return "true" if value else "false"
        if kind is int:  # quoted: in -32768::SMALLINT the cast would come before the minus
            return str(value) if value >= 0 else f"'{value}'"
        if kind is float:  # quoted: -0.0 would be a NUMERIC first, which has no such zero
            return f"'{value!r}'"
        if kind is list and _PLAIN.issuperset(map(type, value)):
            value = "{" + ",".join(map(_element, value)) + "}"
        if type(value) is str and "\0" not in value:
            return self._escape(value.encode(self._encoding)).decode(self._encoding)
        return self._others.as_literal(value).decode(self._encoding)


_PLAIN = frozenset({NoneType, bool, int, str, datetime})
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"'})


def _element(value: datetime | str | int | None) -> str:
    """Return a value as PostgreSQL reads it within the text of an array; psycopg takes ten times as long."""
    return "NULL" if value is None else f'"{str(value).translate(_ESCAPED)}"'


class Batches:
    """Compiles for one engine, and keeps what it compiled for as long as the statements live."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: WeakKeyDictionary[ClauseElement, dict[tuple[str, ...], _Compiled]] = (
            WeakKeyDictionary()
        )

    def ask(
        self,
        connection: Connection,
        questions: Mapping[str, Question[Any]],
        *,
        first: Mapping[str, Question[Any]] = MappingProxyType({}),
        begin: Sequence[str] = (),
        end: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the answers to the questions, asked between statements, by their names.

        ``first`` are asked before all, as soon as ``begin[0]`` began the transaction.
        """
        asked = {**first, **questions}
        if not asked and not begin:
            return {}
        literal = _Literals(_driver(connection))
        compiled = [self._compiled_form(question.query) for question in asked.values()]
        texts = [
            one.with_values(question.parameters, literal)
            for one, question in zip(compiled, asked.values(), strict=True)
        ]
        before = len(first)
        result = run(connection, [*begin[:1], *texts[:before], *begin[1:], *texts[before:], *end])
        cursor: Any = result.cursor
        answers = {}
        for (name, question), one in zip(asked.items(), compiled, strict=True):
            answers[name] = question.read([one.row(values) for values in cursor.fetchall()])
            cursor.nextset()
            continue_to_rows(cursor)
        result.close()
        return answers

    def texts_of(self, effect: Effect, literal: Callable[[Any], str]) -> list[str]:
        """Return the texts of an effect: one for all rows of a table of the format."""
        statement, rows = effect.statement, effect.rows
        if isinstance(statement, DDLElement):
            return [str(statement.compile(dialect=self._dialect)) % ()]  # a % in a name is doubled
        assert isinstance(statement, UpdateBase)
        if rows is None:
            return [self._compiled_form(statement).with_values({}, literal)]
        names = tuple(rows[0])
        if len(rows) > 1 and isinstance(statement, Insert) and _has_simple_columns(statement, names):
            compiled = self._compiled_form(_all_at_once(statement, names))
            columns = {name: [row[name] for row in rows] for name in names}
            return [compiled.with_values(columns, literal)]
        compiled = self._compiled_form(statement, names)
        return [compiled.with_values(row, literal) for row in rows]

    def _compiled_form(self, statement: ClauseElement, names: tuple[str, ...] = ()) -> _Compiled:
        shapes = self._compiled.setdefault(statement, {})
        if names not in shapes:
            shapes[names] = _compile(statement, names, self._dialect)
        return shapes[names]


class BatchWriter(Writer):
    """Keeps the effects until they go to the server together with the COMMIT.

    Tables of inlined rows belong to the user who made them. ``which`` asks whether they are safe to write to:
    while they are locked, their owner cannot give them a trigger.
    """

    def __init__(
        self,
        connection: Connection,
        batches: Batches,
        which: Callable[[Collection[str], str | None], Question[Any]],
    ) -> None:
        super().__init__(connection)
        self._batches = batches
        self._which = which
        self._literal = _Literals(_driver(connection))
        self._texts: list[str] = []
        self._of_others: dict[str, TableClause] = {}
        self._made: set[str] = set()

    def send(self, effect: Effect) -> None:
        statement = effect.statement
        if isinstance(statement, CreateTable):
            self._made.add(statement.element.name)
        elif isinstance(statement, UpdateBase):
            assert isinstance(statement.table, TableClause)
            name = statement.table.name
            if name.startswith(_OF_WRITERS) and name != _REGISTRY and name not in self._made:
                self._of_others[name] = statement.table
        self._texts += self._batches.texts_of(effect, self._literal)

    def prepare(self) -> None:
        if not self._of_others:
            return
        tables = [*self._of_others.values()]
        name_of: Any = self._connection.dialect.identifier_preparer.format_table  # takes either
        names = ", ".join(f"ONLY {name_of(one)}" for one in tables)
        lock = f"LOCK TABLE {names} IN ROW EXCLUSIVE MODE" % ()  # a % in a name is doubled
        found = self._which([one.name for one in tables], tables[0].schema)
        first, self._texts = self._texts[:1], self._texts[1:]  # what fails fast, still does
        self._batches.ask(self._connection, {"found": found}, begin=(*first, lock))

    def commit(self) -> None:
        run(self._connection, [*self._texts, "COMMIT"]).close()
        super().commit()  # nothing is left to do for the driver, but SQLAlchemy's transaction must end, too


NO_PARAMETERS = "no_parameters"  # execution option, of texts
_OF_WRITERS, _REGISTRY = "ducklake_inlined_", "ducklake_inlined_data_tables"


def continue_to_rows(cursor: psycopg.Cursor[Any]) -> None:
    """Go on to the next answer, beyond the results of commands."""
    while (result := cursor.pgresult) and not result.nfields and cursor.nextset():
        pass


def run(connection: Connection, texts: Sequence[str]) -> CursorResult[Any]:
    """Execute texts in one round trip; the result is that of the first that has one."""
    options = {NO_PARAMETERS: True}  # else a % would mean something
    shown = f"{len(texts)} statements, from {str(texts[0])[:_SHOWN]} to {str(texts[-1])[:_SHOWN]}"
    try:
        return connection.exec_driver_sql(_Text(";\n".join(texts), shown), execution_options=options)
    except DBAPIError as error:
        error.statement = shown
        raise


def is_busy(connection: Connection) -> bool:
    """Return True if the server has not answered yet, and no thread waits for it any more."""
    return _driver(connection).info.transaction_status == TransactionStatus.ACTIVE


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _compile(statement: ClauseElement, names: tuple[str, ...], dialect: Dialect) -> _Compiled:
    compiled = statement.compile(
        dialect=dialect, column_keys=names or None, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(compiled, SQLCompiler)
    binders = {
        name: binder
        for name, bind in compiled.binds.items()
        if (binder := _binder(bind.type, dialect)) is not None
    }
    assert not any(one.key in binders for one in compiled.post_compile_params)  # lists: numbers and texts
    own = dict(compiled.construct_params(escape_names=False, _check=False))
    own_binders = {name: binder for name, binder in binders.items() if name in own}
    escaped = dict(compiled.escaped_bind_names)
    return _Compiled(str(compiled), own, escaped, own_binders, _row_reader(statement, dialect))


def _binder(type_: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """Return the converter from Python values to the driver's; None: they are the same."""
    if not isinstance(type_, ARRAY):
        return type_.dialect_impl(dialect).bind_processor(dialect)
    of_item = _binder(type_.item_type, dialect)
    return None if of_item is None else lambda values: [of_item(value) for value in values]


_NUMERIC = psycopg.adapters.types["numeric"].oid  # as which a NUMERIC comes; for other types it says nothing


def _row_reader(statement: ClauseElement, dialect: Dialect) -> Callable[[Sequence[Any]], Any]:
    """Build the function that turns a driver's row into a named tuple of Python values."""
    columns = statement.selected_columns if isinstance(statement, Select) else ()
    names = [str(column.key) for column in columns]
    row_type = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # functions have no name
    readers = [column.type.dialect_impl(dialect).result_processor(dialect, _NUMERIC) for column in columns]
    if not any(readers):
        return row_type._make
    return lambda values: row_type._make(
        value if reader is None else reader(value) for reader, value in zip(readers, values, strict=True)
    )


@lru_cache(maxsize=256)
def _all_at_once(statement: Insert, names: tuple[str, ...]) -> Insert:
    """Return the insertion of any number of rows, a list for each column."""
    table = statement.table
    lists = [bindparam(name, type_=ARRAY(table.c[name].type)) for name in names]
    rows = func.unnest(*lists).table_valued(*names).render_derived()
    return insert(table).from_select(names, select(*(rows.c[name] for name in names)))


def _has_simple_columns(statement: Insert, names: Sequence[str]) -> bool:
    """Return True if no column is itself a list, which would look like a list of lists."""
    return all(isinstance(statement.table.c[name].type, CheckedType) for name in names)
