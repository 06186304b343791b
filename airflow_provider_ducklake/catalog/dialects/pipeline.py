"""Statements sent to PostgreSQL without waiting for each other, through psycopg's pipeline.

SQLAlchemy compiles them, once each, and its events see them; only the sending is ours, since SQLAlchemy asks
for every result before it sends the next statement.
"""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import Select, bindparam, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import DDLElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, UpdateBase

from airflow_provider_ducklake.catalog.column_types import CATALOG_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from airflow_provider_ducklake.catalog.effects.effect import Effect
    from airflow_provider_ducklake.catalog.questions import Question


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement's text; its own parameters; what turns Python's values into the driver's, and back."""

    text: str
    parameters: Mapping[str, Any]
    binders: Mapping[str, Callable[[Any], Any]]
    row: Callable[[Sequence[Any]], Any]

    def bind(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the driver's parameters."""
        bound = {**self.parameters, **values}
        for name, binder in self.binders.items():
            bound[name] = binder(bound[name])
        return bound


class Pipeline:
    """Sends the statements of one engine; keeps what it compiled for as long as the statements live."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: WeakKeyDictionary[ClauseElement, dict[tuple[str, ...], _Compiled]] = (
            WeakKeyDictionary()
        )

    def ask(self, connection: Connection, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        """Return the answers to the questions, all asked in one round trip, each as of its own moment."""
        asked = []
        with _pipeline(connection) as driver:
            for question in questions.values():
                compiled = self._compile(question.query, ())
                cursor = driver.cursor()
                _send(connection, cursor, compiled.text, compiled.bind(question.parameters))
                asked.append((question, compiled, cursor))
        return {
            name: question.read([compiled.row(row) for row in cursor.fetchall()])
            for name, (question, compiled, cursor) in zip(questions, asked, strict=True)
        }

    @contextmanager
    def sending(self, connection: Connection) -> Iterator[Callable[[Effect], None]]:
        """Yield what sends effects; they travel together with the COMMIT that ends them."""
        with _pipeline(connection) as driver, driver.cursor() as cursor:

            def send(effect: Effect) -> None:
                self._send_effect(connection, cursor, effect)

            yield send

    def _send_effect(self, connection: Connection, cursor: psycopg.Cursor, effect: Effect) -> None:
        statement, rows = effect.statement, effect.rows
        if not isinstance(statement, UpdateBase):  # DDL: seldom, and compiled in its own way
            assert isinstance(statement, DDLElement)
            _send(connection, cursor, str(statement.compile(dialect=self._dialect)), None)
            return
        if rows is None:
            compiled = self._compile(statement, ())
            _send(connection, cursor, compiled.text, compiled.bind({}))
            return
        names = tuple(rows[0])
        if len(rows) > 1 and isinstance(statement, Insert) and _is_catalog_table(statement, names):
            compiled = self._compile(_all_at_once(statement, names), ())
            columns = {name: [row[name] for row in rows] for name in names}
            _send(connection, cursor, compiled.text, compiled.bind(columns))
            return
        compiled = self._compile(statement, names)
        for row in rows:
            _send(connection, cursor, compiled.text, compiled.bind(row))

    def _compile(self, statement: ClauseElement, names: tuple[str, ...]) -> _Compiled:
        shapes = self._compiled.setdefault(statement, {})
        if names not in shapes:
            shapes[names] = _compile(statement, names, self._dialect)
        return shapes[names]


def _compile(statement: ClauseElement, names: tuple[str, ...], dialect: Dialect) -> _Compiled:
    compiled = statement.compile(
        dialect=dialect, column_keys=names or None, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(compiled, SQLCompiler)
    binders = {
        name: binder
        for name, bind in compiled.binds.items()
        if (binder := bind.type.dialect_impl(dialect).bind_processor(dialect)) is not None
    }
    assert not any(one.key in binders for one in compiled.post_compile_params)  # lists: numbers and texts
    own = dict(compiled.params)
    own_binders = {name: binder for name, binder in binders.items() if name in own}
    return _Compiled(str(compiled), own, own_binders, _row_reader(statement, dialect))


def _row_reader(statement: ClauseElement, dialect: Dialect) -> Callable[[Sequence[Any]], Any]:
    """Return what makes a named tuple of Python values of a driver's row."""
    columns = statement.selected_columns if isinstance(statement, Select) else ()
    names = [str(column.key) for column in columns]
    row_type = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # functions have no name
    readers = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
    if not any(readers):
        return row_type._make
    return lambda values: row_type._make(
        value if reader is None else reader(value) for reader, value in zip(readers, values, strict=True)
    )


@lru_cache(maxsize=256)
def _all_at_once(statement: Insert, names: tuple[str, ...]) -> Insert:
    """Return the insertion of any number of rows, a list for each column: one text, and one statement."""
    table = statement.table
    lists = [bindparam(name, type_=ARRAY(table.c[name].type)) for name in names]
    rows = func.unnest(*lists).table_valued(*names).render_derived()
    return insert(table).from_select(names, select(*(rows.c[name] for name in names)))


def _is_catalog_table(statement: Insert, names: Sequence[str]) -> bool:
    """Whether no column is itself a list, which a list of lists could not be told from."""
    return all(isinstance(statement.table.c[name].type, CATALOG_TYPES) for name in names)


@contextmanager
def _pipeline(connection: Connection) -> Iterator[psycopg.Connection]:
    """Yield the driver's connection in pipeline mode; errors of any statement come when the block ends."""
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    try:
        with driver.pipeline():
            yield driver
    except psycopg.Error as error:
        raise _as_sqlalchemys(connection, error) from error
    except DBAPIError:
        raise
    except BaseException:  # raised by a signal handler, say, in the middle of the protocol
        connection.invalidate()
        raise


def _as_sqlalchemys(connection: Connection, error: psycopg.Error) -> DBAPIError:
    is_lost = connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None)  # type: ignore[arg-type]
    if is_lost:
        connection.invalidate(error)
    found = DBAPIError.instance(
        "a pipeline of statements",
        None,
        error,
        psycopg.Error,
        connection_invalidated=is_lost,
        dialect=connection.dialect,
    )
    assert isinstance(found, DBAPIError)
    return found


def _send(
    connection: Connection, cursor: psycopg.Cursor, text: str, parameters: dict[str, Any] | None
) -> None:
    """Send a statement; SQLAlchemy's listeners hear of it before and after."""
    context = SimpleNamespace(executemany=False, statement=text)
    for listener in connection.dispatch.before_cursor_execute:
        text, parameters = listener(connection, cursor, text, parameters, context, False)  # noqa: FBT003 - SQLAlchemy's
    cursor.execute(text, parameters)
    for listener in connection.dispatch.after_cursor_execute:
        listener(connection, cursor, text, parameters, context, False)  # noqa: FBT003 - SQLAlchemy's
