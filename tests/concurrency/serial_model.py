"""What becomes of a few tables when statements run one after another: plain DuckDB, without any lake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

Model: TypeAlias = Callable[[duckdb.DuckDBPyConnection], None]
Table: TypeAlias = tuple[tuple[tuple[str, str], ...], tuple[tuple[Any, ...], ...]]  # columns, rows in order
State: TypeAlias = dict[str, Table]

BASE = """
CREATE TABLE t (id BIGINT, n INTEGER, part VARCHAR);
INSERT INTO t SELECT i, i, chr((97 + i % 3)::INTEGER) FROM range(60) r(i);
CREATE TABLE _then AS FROM t;
INSERT INTO t SELECT i, i, chr((97 + i % 3)::INTEGER) FROM range(60, 90) r(i);
DELETE FROM t WHERE id < 36 AND part = 'a';
DELETE FROM t WHERE id IN (1, 4);
INSERT INTO t VALUES (102, 102, 'a'), (100, 100, 'b'), (101, 101, 'c');
CREATE TABLE o (id BIGINT, n INTEGER);
INSERT INTO o SELECT i, i FROM range(60, 66) r(i);
INSERT INTO o VALUES (1000, 1000), (1001, 1001)
"""
COLUMNS = (("id", "BIGINT"), ("n", "INTEGER"), ("part", "VARCHAR"))


class RefusedError(Exception):
    """A statement that cannot be carried out on the tables as they are then."""


@dataclass(frozen=True)
class Order:
    """What an order of statements leaves; None: one of them cannot be carried out."""

    name: str
    state: State | None


def order(name: str, models: Sequence[Model]) -> Order:
    """Run the statements one after another on the base."""
    with duckdb.connect() as connection:
        connection.execute(BASE)
        try:
            for model in models:
                model(connection)
        except (duckdb.Error, RefusedError):
            return Order(name, None)
        return Order(name, state_of(connection, "main"))


def state_of(connection: duckdb.DuckDBPyConnection, schema: str) -> State:
    """Return all tables of a schema with their columns and rows, but the model's own: ``_…``."""
    names = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? AND database_name = current_database()",
        [schema],
    ).fetchall()
    return {name: _table(connection, f'"{schema}"."{name}"') for (name,) in sorted(names) if name[0] != "_"}


def _table(connection: duckdb.DuckDBPyConnection, name: str) -> Table:
    found = connection.execute(f"FROM {name}")
    columns = tuple((one[0], str(one[1])) for one in found.description)
    return columns, in_order(found.fetchall())


def in_order(rows: Sequence[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    """Return rows in one order, whatever they hold."""
    return tuple(sorted(rows, key=repr))


def sql(*statements: str) -> Model:
    """Return the model of statements that plain DuckDB has as well."""

    def run(connection: duckdb.DuckDBPyConnection) -> None:
        for statement in statements:
            connection.execute(statement)

    return run


def needs(table: str, *columns: str, then: Model) -> Model:
    """Refuse a table with other columns, as our inserts do that match columns by name; then go on."""

    def run(connection: duckdb.DuckDBPyConnection) -> None:
        found = [one[0] for one in connection.execute(f"FROM {table} LIMIT 0").description]
        if sorted(found) != sorted(columns):
            raise RefusedError(found)
        then(connection)

    return run
