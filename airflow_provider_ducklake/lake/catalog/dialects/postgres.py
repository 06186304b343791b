"""PostgreSQL catalogs: a row that writers lock, READ COMMITTED for them, one snapshot for readers."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import table, text
from sqlalchemy.schema import CreateTable

from ...errors import InvalidInputError
from ...format.files import InlinedForm
from ...format.types.ducklake_types import BYTES, ScalarKind
from ..database.connect import Question
from ..database.tables import CatalogTimestamp
from .batches import NO_PARAMETERS, Batches, BatchWriter, continue_to_rows, is_busy, run, settings
from .dialect import ONLY_PLAIN, CatalogDialect, Writer, is_unknown_host

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.engine.interfaces import ExecutionContext
    from sqlalchemy.exc import DBAPIError


_LOST_RACE = {
    "23505",  # unique_violation: another commit took the snapshot id
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
}
_LOCK_TIMEOUT = "55P03"  # lock_not_available: lock_timeout ran out
_MISSING_RIGHT = "42501"  # insufficient_privilege: "must be owner of table …"
# Connection lost, completion unknown, shutdown, trouble of the system: a pooler may say so and stay open.
_OPEN = ("08", "40003", "57P", "58")
_BEGIN_OPTION = "ducklake_begin"  # execution option: what begins a transaction; none: a text does
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_READ, _END = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", "ROLLBACK"
_READ_ONCE = "SET LOCAL transaction_read_only = on"
# The schema where the session's own search path finds a lake, else its first one; kept for the transaction.
# Asked before that path is ours, it takes nothing from it.
_SCHEMA = "airflow_ducklake.schema"
_FOUND = (
    "(SELECT n.nspname FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
    " WHERE c.relname OPERATOR(pg_catalog.=) CAST('ducklake_metadata' AS pg_catalog.name)"
    " AND pg_catalog.pg_table_is_visible(c.oid))"
)
_FIRST = "pg_catalog.current_schema(), CAST('' AS pg_catalog.name)"
_HOME = sa.literal_column(f"CAST(COALESCE({_FOUND}, {_FIRST}) AS pg_catalog.text)", sa.String())
_WHICH_SCHEMA = Question(
    sa.select(sa.func.pg_catalog.set_config(_SCHEMA, _HOME, sa.true(), type_=sa.String()).label("name")),
    lambda rows: str(rows[0].name),
)

# Its system columns, and the words that only it reserves: DuckDB writes them bare.
_WORDS = """
tableoid xmin cmin xmax cmax ctid current_catalog current_date current_role current_schema current_time
current_timestamp current_user localtime localtimestamp session_user system_user
"""

# Not ``information_schema``, which leaves out what the user may not read: rows would be missing silently.
_CLASS = table(
    "pg_class", *map(sa.column, ("oid", "relname", "relnamespace", "relkind")), schema="pg_catalog"
)
_NAMESPACE = table("pg_namespace", *map(sa.column, ("oid", "nspname")), schema="pg_catalog")
_ATTRIBUTE = table(
    "pg_attribute",
    *map(sa.column, ("attrelid", "attname", "attnum", "attisdropped", "atttypid")),
    schema="pg_catalog",
)
_TYPE = table("pg_type", *map(sa.column, ("oid", "typname")), schema="pg_catalog")


# Objects that run code of their owner as the user who reads or writes rows: the planner also evaluates
# what is constant in indexes and statistics. ``relhas…`` only say where to look, and stay after a DROP.
_PROBLEM = sa.literal_column(
    """
    CASE
    WHEN c.relkind <> 'r' THEN CASE c.relkind WHEN 'v' THEN 'is a view' WHEN 'm' THEN 'is a materialized view'
        WHEN 'f' THEN 'is a foreign table' ELSE 'is a partitioned table' END
    WHEN c.relhasrules AND EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'has a rule'
    WHEN c.relhastriggers AND EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid) THEN 'has a trigger'
    WHEN c.relrowsecurity THEN 'has row security'
    WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid)
        THEN 'inherits from a table, or is inherited from'
    WHEN c.relchecks > 0 THEN 'has a check constraint'
    WHEN c.relhasindex AND EXISTS (
        SELECT FROM pg_index WHERE indrelid = c.oid
        AND (indexprs IS NOT NULL OR indpred IS NOT NULL OR indisexclusion)
    ) THEN 'has an index on an expression or a condition'
    WHEN EXISTS (SELECT FROM pg_statistic_ext WHERE stxrelid = c.oid AND 'e' = ANY(stxkind))
        THEN 'has statistics on an expression'
    WHEN EXISTS (
        SELECT FROM pg_attrdef WHERE adrelid = c.oid AND CAST(adbin AS text) NOT LIKE '{CONST %'
    ) THEN 'has a column with an expression as its value'
    WHEN EXISTS (
        SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0
        AND (t.typtype <> 'b' OR t.typnamespace <> CAST('pg_catalog' AS regnamespace))
    ) THEN 'has a column of a type that is not PostgreSQL''s own'
    END || ' (its owner is ' || pg_get_userbyid(c.relowner) || ')'
    """,
    sa.String(),
)


@lru_cache
def _relations(schema: str | None) -> sa.Select[Any]:
    columns = (
        "ARRAY(SELECT CAST(attname AS text) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum)"
    )
    name = sa.func.current_setting(_SCHEMA) if schema is None else sa.literal(schema)
    found: tuple[sa.ColumnElement[Any], ...] = (
        sa.literal_column("c.relname", sa.String()).label("relname"),
        sa.literal_column(columns).label("columns"),
        (_PROBLEM + ONLY_PLAIN).label("problem"),
    )
    is_there = sa.literal_column("n.nspname", sa.String()) == name
    return (
        sa.select(*found)
        .select_from(text("pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"))
        .where(is_there, text("c.relkind IN ('r', 'p', 'v', 'm', 'f')"))
    )


def _continue_to_rows(
    _: sa.Connection,
    cursor: psycopg.Cursor[Any],
    _statement: str,
    _parameters: object,
    context: ExecutionContext,
    *_many: object,
) -> None:
    """Go on to the first answer: SQLAlchemy closes a cursor whose first result has no rows."""
    if context.execution_options.get(NO_PARAMETERS):
        continue_to_rows(cursor)


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction with our settings, in one round trip, unless its first text does."""
    begin = connection.get_execution_options().get(_BEGIN_OPTION, _WRITE)
    if begin is not None:
        run(connection, [begin, *settings(connection)]).close()


# ``owner`` is NULL where the user has the owner's rights, ``lacking`` where it has them all
_RIGHTS = text(
    "SELECT current_user AS person,"
    " CASE WHEN NOT pg_has_role(relowner, 'USAGE') THEN pg_get_userbyid(relowner) END AS owner,"
    " (SELECT string_agg(wanted, ', ' ORDER BY number)"
    " FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS rights(wanted, number)"
    " WHERE NOT has_table_privilege(c.oid, wanted)) AS lacking"
    " FROM pg_class c JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE relname = :name AND nspname = :schema"
)
_TABLE_OF_LAKE = re.compile(r"\b(airflow_)?ducklake_\w+")


def _lock_of_version(metadata_schema: str) -> sa.Select[Any]:
    """Return the query that locks the row of the catalog's version, which takes the right to change it.

    A user who may only read can take neither this lock nor one that it would wait for. Other clients change
    the row in migrations alone.
    """
    metadata = table("ducklake_metadata", sa.column("key"), schema=metadata_schema)
    return sa.select(metadata.c.key).where(metadata.c.key == "version").with_for_update(key_share=True)


_WRONG_LOGIN = re.compile(
    r'FATAL: +(?:password authentication failed for user "|(?:database|role) ".*" does not exist)'
)


class PostgresDialect(CatalogDialect):
    """A catalog in one schema of a PostgreSQL database."""

    # clock_timestamp() and not now(): the transaction began before we waited for the lock.
    compares_decimals = True
    inlined_form = InlinedForm(
        max_columns=1600,
        native=BYTES | {ScalarKind.BOOLEAN, ScalarKind.FLOAT},
        has_decimals=True,
        nested_nul=False,
        finest_clock=10**6,
        kept_names=frozenset(_WORDS.split()),
        max_name_bytes=63,
    )
    clock = sa.func.clock_timestamp(type_=CatalogTimestamp)

    def __init__(self, engine: sa.Engine, metadata_schema: str | None) -> None:
        super().__init__(engine)
        self._batches = Batches(engine.dialect)
        self._lives_in(metadata_schema or "public")  # until it is found where none is given
        sa.event.listen(engine, "begin", _begin)
        sa.event.listen(engine, "after_cursor_execute", _continue_to_rows)

    def _lives_in(self, schema: str) -> None:
        self._schema = schema
        # A separate statement: together with the head, the waiter would read the state before its wait.
        self._lock = Question(_lock_of_version(schema), len)

    @contextmanager
    def _connection(self) -> Iterator[sa.Connection]:
        """Yield a connection; one whose statement was interrupted can do nothing more, and goes."""
        with self.engine.connect() as connection:
            try:
                yield connection
            except BaseException:
                if not connection.invalidated and is_busy(connection):
                    connection.invalidate()  # a ROLLBACK would fail, and hide what interrupted us
                raise

    @contextmanager
    def _asking(
        self, begin: str, questions: Mapping[str, Question[Any]], **first: Question[Any]
    ) -> Iterator[tuple[sa.Connection, dict[str, Any]]]:
        """Ask in the round trip that begins the transaction; ``first`` as the session's user finds names."""
        with self._connection() as connection:
            connection.execution_options(**{_BEGIN_OPTION: None})
            texts = (begin, *settings(connection))
            yield connection, self._batches.ask(connection, questions, first=first, begin=texts)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with self._connection() as connection:
            self._lock.ask(connection)
            yield connection

    @contextmanager
    def creating(self) -> Iterator[sa.Connection]:
        digest = hashlib.sha256(f"ducklake commit {self._schema}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        with self._connection() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            yield connection

    @contextmanager
    def writing_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, dict[str, Any]]]:
        with self._asking(_WRITE, {"lock": self._lock, **questions}) as asked:
            yield asked

    def ask_at_once(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        with self._asking(_READ_ONCE, questions) as (_, answers):  # no round trips for BEGIN and ROLLBACK
            return answers

    def writer(self, connection: sa.Connection) -> Writer:
        return BatchWriter(connection, self._batches, self.columns_query)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._connection() as connection:
            yield connection.execution_options(**{_BEGIN_OPTION: _READ})

    @contextmanager
    def reading_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, dict[str, Any]]]:
        with self._asking(_READ, questions) as asked:
            yield asked

    @contextmanager
    def opening_after(
        self, schema: str | None, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, str | None, dict[str, Any]]]:
        first = {} if schema is not None else {"schema": _WHICH_SCHEMA}
        with self._asking(_READ, questions, **first) as (connection, answers):
            self._lives_in(found := answers.pop("schema", schema))
            yield connection, found, answers

    def home(self, schema: str | None) -> str | None:
        with self.opening_after(schema, {}) as (_, found, _answers):
            if not found:
                raise InvalidInputError(
                    "The search path of the catalog's user names no schema that exists: give metadata_schema."
                )
            return found

    def ask(
        self, connection: sa.Connection, questions: Mapping[str, Question[Any]], *, is_last: bool = False
    ) -> dict[str, Any]:
        return self._batches.ask(connection, questions, end=(_END,) if is_last else ())

    def bytewise(self, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.collate(text, "C")

    @staticmethod
    def relations(schema: str | None) -> sa.Select[Any]:
        return _relations(schema)

    def inlined_types(self, connection: sa.Connection, schema: str | None) -> dict[str, dict[str, str]]:
        query = (
            sa.select(_CLASS.c.relname, _ATTRIBUTE.c.attname, _TYPE.c.typname)
            .join_from(_ATTRIBUTE, _CLASS, _CLASS.c.oid == _ATTRIBUTE.c.attrelid)
            .join(_NAMESPACE, _NAMESPACE.c.oid == _CLASS.c.relnamespace)
            .join(_TYPE, _TYPE.c.oid == _ATTRIBUTE.c.atttypid)
            .where(_NAMESPACE.c.nspname == schema, _CLASS.c.relname.like("ducklake_inlined_data_%"))
            .where(_ATTRIBUTE.c.attnum > 0, ~_ATTRIBUTE.c.attisdropped)
        )
        found: dict[str, dict[str, str]] = {}
        for name, column_name, type_ in connection.execute(query):
            found.setdefault(name, {})[column_name] = type_
        return found

    def create_metadata_schema(self, connection: sa.Connection, name: str | None) -> None:
        # IF NOT EXISTS takes the right to create one also where it exists.
        if name is not None and not sa.inspect(connection).has_schema(name):
            super().create_metadata_schema(connection, name)

    def try_to_create_table(self, schema: str | None) -> None:
        schema = self.home(schema)
        with self._connection() as connection:
            self.create_metadata_schema(connection, schema)
            name = f"airflow_ducklake_check_{secrets.token_hex(8)}"
            connection.execute(
                CreateTable(sa.Table(name, sa.MetaData(), sa.Column("id", sa.Integer), schema=schema))
            )
            connection.rollback()

    def why_not_alter(self, connection: sa.Connection, table: sa.Table) -> str | None:
        values = {"name": table.name, "schema": table.schema}
        owner = connection.execute(_RIGHTS, values).one().owner
        if owner is None:
            return None
        return (
            f"Run it as their owner, {owner}, or as a member of that role, or make the user the owner: "
            "docs/roles.md has the statements for a maintainer."
        )

    def is_lost_race(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in _LOST_RACE

    def is_lock_timeout(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _LOCK_TIMEOUT

    def is_wrong_address(self, error: DBAPIError) -> bool:
        """Return True for these; libpq has no code of what a server says that refuses a connection."""
        return _WRONG_LOGIN.search(str(error.orig)) is not None or is_unknown_host(self.engine.url)

    def is_missing_right(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _MISSING_RIGHT

    def lacking_rights(self, error: DBAPIError) -> str:
        """Ask which rights the user lacks on the table that the error names: it does not say which."""
        named = _TABLE_OF_LAKE.search(str(error.orig))
        if named is None:
            return ""
        values = {"name": named[0], "schema": self._schema}
        with self._connection() as connection:
            found = connection.execute(_RIGHTS, values).first()
        if found is None or found.lacking is None:
            return ""
        return f"The user {found.person} lacks {found.lacking} on {named[0]}."

    def is_refusal(self, error: DBAPIError) -> bool:
        """Return True if the server answered: the statements come with the COMMIT, and so do their errors."""
        state = getattr(error.orig, "sqlstate", None)
        return state is not None and not error.connection_invalidated and not state.startswith(_OPEN)
