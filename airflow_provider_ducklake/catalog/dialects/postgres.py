"""PostgreSQL catalogs: an advisory transaction lock, READ COMMITTED for writers, one snapshot for readers."""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    collate,
    column,
    event,
    func,
    inspect,
    literal,
    select,
    table,
    text,
)
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.catalog.database.column_types import CatalogTimestamp
from airflow_provider_ducklake.catalog.database.questions import Question
from airflow_provider_ducklake.catalog.dialects.batches import MEMORY, Batches, BatchWriter, is_busy
from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect
from airflow_provider_ducklake.catalog.dialects.grants import postgres_grants
from airflow_provider_ducklake.spec.inlined_form import InlinedForm
from airflow_provider_ducklake.spec.types.scalars import BYTES, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg
    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_ducklake.catalog.dialects.effect import Writer
    from airflow_provider_ducklake.catalog.dialects.grants import Wanted

_LOST_RACE = {
    "23505",  # unique_violation: somebody else has the snapshot id
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available: lock_timeout ran out
}
_MISSING_RIGHT = "42501"  # insufficient_privilege: "must be owner of table …"
# Connection lost, completion unknown, shutdown, trouble of the system: a pooler may say so and stay open.
_OPEN = ("08", "40003", "57P", "58")
_BEGIN, _END = "BEGIN ISOLATION LEVEL REPEATABLE READ", "ROLLBACK"

# Its system columns, and the words that only it reserves: DuckDB writes them bare.
_WORDS = """
tableoid xmin cmin xmax cmax ctid current_catalog current_date current_role current_schema current_time
current_timestamp current_user localtime localtimestamp session_user system_user
"""

# Not ``information_schema``, which leaves out what the user may not read: rows would be missing silently.
_CLASS = table("pg_class", *map(column, ("oid", "relname", "relnamespace", "relkind")), schema="pg_catalog")
_NAMESPACE = table("pg_namespace", *map(column, ("oid", "nspname")), schema="pg_catalog")
_ATTRIBUTE = table(
    "pg_attribute",
    *map(column, ("attrelid", "attname", "attnum", "attisdropped", "atttypid")),
    schema="pg_catalog",
)
_TYPE = table("pg_type", *map(column, ("oid", "typname")), schema="pg_catalog")


def _pass_commands(_: Connection, cursor: psycopg.Cursor[Any], statement: str, *_rest: object) -> None:
    """Go on to the first answer: SQLAlchemy closes a cursor whose first result has no rows."""
    if statement.startswith((_BEGIN, MEMORY)):
        while cursor.description is None and cursor.nextset():
            pass


# ``owner`` is NULL where the user has the owner's rights, ``lacking`` where it has them all
_RIGHTS = text(
    "SELECT current_user AS person,"
    " CASE WHEN NOT pg_has_role(relowner, 'USAGE') THEN pg_get_userbyid(relowner) END AS owner,"
    " (SELECT string_agg(wanted, ', ' ORDER BY number)"
    " FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS rights(wanted, number)"
    " WHERE NOT has_table_privilege(c.oid, wanted)) AS lacking"
    " FROM pg_class c JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relname = :name"
    " AND CASE WHEN CAST(:schema AS text) IS NULL THEN pg_table_is_visible(c.oid) ELSE nspname = :schema END"
)
_TABLE_OF_LAKE = re.compile(r"\b(airflow_)?ducklake_\w+")
_OWNERS = text(
    "SELECT relname, pg_get_userbyid(relowner) AS owner FROM pg_class"
    " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = :schema"
)


class PostgresDialect(CatalogDialect):
    """A catalog in one schema of a PostgreSQL database."""

    # clock_timestamp() and not now(): the transaction began before we waited for the lock.
    compares_decimals = True
    inlined_form = InlinedForm(
        max_columns=1600,
        native=BYTES | {Kind.BOOLEAN, Kind.FLOAT},
        has_decimals=True,
        nested_nul=False,
        finest_clock=10**6,
        kept_names=frozenset(_WORDS.split()),
        max_name_bytes=63,
    )
    clock = func.clock_timestamp(type_=CatalogTimestamp)

    def __init__(self, engine: Engine, metadata_schema: str | None) -> None:
        super().__init__(engine)
        self._metadata_schema = metadata_schema
        digest = hashlib.sha256(f"ducklake commit {metadata_schema or 'public'}".encode()).digest()
        self.lock_key = int.from_bytes(digest[:8], "big", signed=True)
        # A statement of its own: together with the head, the waiter would read the state before its wait.
        self._lock = Question(select(func.pg_advisory_xact_lock(self.lock_key)), len)
        self._batches = Batches(engine.dialect)
        event.listen(engine, "after_cursor_execute", _pass_commands)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Yield a connection; one whose statement was interrupted can do nothing more, and goes."""
        with self.engine.connect() as connection:
            try:
                yield connection
            except BaseException:
                if not connection.invalidated and is_busy(connection):
                    connection.invalidate()  # a ROLLBACK would fail, and hide what interrupted us
                raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._connection() as connection:
            self._lock.ask(connection)
            yield connection

    @contextmanager
    def writing_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[Connection, dict[str, Any]]]:
        with self._connection() as connection:
            yield connection, self._batches.ask(connection, {"lock": self._lock, **questions})

    def ask_at_once(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        with self._connection() as connection:  # without round trips for BEGIN and ROLLBACK
            connection.execution_options(isolation_level="AUTOCOMMIT")
            return self._batches.ask(connection, questions)

    def writer(self, connection: Connection) -> Writer:
        return BatchWriter(connection, self._batches)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._connection() as connection:
            yield connection.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def reading_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[Connection, dict[str, Any]]]:
        with self._connection() as connection:  # BEGIN goes with the questions, not in a round trip before
            connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection, self._batches.ask(connection, questions, begin=(_BEGIN,))

    def ask(
        self, connection: Connection, questions: Mapping[str, Question[Any]], *, is_last: bool = False
    ) -> dict[str, Any]:
        return self._batches.ask(connection, questions, end=(_END,) if is_last else ())

    def bytewise(self, text: ColumnElement[Any]) -> ColumnElement[Any]:
        return collate(text, "C")

    @staticmethod
    def all_columns(schema: str | None) -> Select[Any]:
        of_table, of_schema = _CLASS.c.oid == _ATTRIBUTE.c.attrelid, _NAMESPACE.c.oid == _CLASS.c.relnamespace
        is_there = (
            func.pg_table_is_visible(_CLASS.c.oid) if schema is None else _NAMESPACE.c.nspname == schema
        )
        return (
            select(_CLASS.c.relname, _ATTRIBUTE.c.attname)
            .join_from(_ATTRIBUTE, _CLASS, of_table)
            .join(_NAMESPACE, of_schema)
            .where(is_there, _ATTRIBUTE.c.attnum > 0, ~_ATTRIBUTE.c.attisdropped)
            .where(_CLASS.c.relkind.in_([literal(one) for one in "rpvmf"]))  # tables and views
            .order_by(_CLASS.c.relname, _ATTRIBUTE.c.attnum)
        )

    def inlined_types(self, connection: Connection, schema: str | None) -> dict[str, dict[str, str]]:
        is_inlined = _CLASS.c.relname.like("ducklake_inlined_data_%")
        typed = self.all_columns(schema).add_columns(_TYPE.c.typname).where(is_inlined)
        found: dict[str, dict[str, str]] = {}
        for name, column_name, type_ in connection.execute(
            typed.join(_TYPE, _TYPE.c.oid == _ATTRIBUTE.c.atttypid)
        ):
            found.setdefault(name, {})[column_name] = type_
        return found

    def create_metadata_schema(self, connection: Connection, name: str | None) -> None:
        # IF NOT EXISTS takes the right to create one also where it exists.
        if name is not None and not inspect(connection).has_schema(name):
            super().create_metadata_schema(connection, name)

    def try_to_create_table(self, schema: str | None) -> None:
        with self._connection() as connection:
            self.create_metadata_schema(connection, schema)
            name = f"airflow_ducklake_check_{secrets.token_hex(8)}"
            connection.execute(CreateTable(Table(name, MetaData(), Column("id", Integer), schema=schema)))
            connection.rollback()

    def why_not_alter(self, connection: Connection, table: Table) -> str | None:
        values = {"name": table.name, "schema": table.schema}
        owner = connection.execute(_RIGHTS, values).one().owner
        if owner is None:
            return None
        return (
            f"Run it as their owner, {owner}, or as a member of that role, or make the user the owner: "
            'DuckLakeHook.grants("maintainer") returns the statements.'
        )

    def schema_of(self, connection: Connection, table: Table) -> str:
        if table.schema is not None:
            return table.schema
        found = select(_NAMESPACE.c.nspname).join_from(
            _CLASS, _NAMESPACE, _NAMESPACE.c.oid == _CLASS.c.relnamespace
        )
        is_it = (_CLASS.c.relname == table.name) & func.pg_table_is_visible(_CLASS.c.oid)
        return str(connection.execute(found.where(is_it)).scalar_one())

    def grants(self, connection: Connection, wanted: Wanted, schema: str) -> list[str]:
        database = str(connection.execute(select(func.current_database())).scalar_one())
        owners = {row.relname: row.owner for row in connection.execute(_OWNERS, {"schema": schema})}
        return list(postgres_grants(wanted, database, schema, owners))

    def is_lost_race(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in _LOST_RACE

    def is_missing_right(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _MISSING_RIGHT

    def lacking_rights(self, error: DBAPIError) -> str:
        """Ask which rights the user lacks on the table that the error names: it does not say which."""
        named = _TABLE_OF_LAKE.search(str(error.orig))
        if named is None:
            return ""
        values = {"name": named[0], "schema": self._metadata_schema}
        with self._connection() as connection:
            found = connection.execute(_RIGHTS, values).first()
        if found is None or found.lacking is None:
            return ""
        return f"The user {found.person} lacks {found.lacking} on {named[0]}."

    def is_refusal(self, error: DBAPIError) -> bool:
        """Whether the server answered: the statements come with the COMMIT, and so do their errors."""
        state = getattr(error.orig, "sqlstate", None)
        return state is not None and not error.connection_invalidated and not state.startswith(_OPEN)
