"""A lake in the hands of the reference, which has 1.0.

A new lake it makes at 1.0, in another place, from which it comes here as 1.1 when the reference lets it go.
A lake of 1.1 it gets as a copy in the words of 1.0 (`as_1_0`). If it wrote there, the copy is migrated and
becomes the lake's catalog; row counts and exactness of what it left alone stay said. The files are the lake's
own all the time.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import sqlalchemy as sa

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference import postgres
from tests.reference.as_1_0 import as_1_0
from tests.reference.catalog_dump import KEYS, Dump, dump_catalog, dump_schema
from tests.reference.catalogs import USUAL_KINDS, CatalogDatabase
from tests.reference.words_of_1_0 import APPENDED, in_words_of_1_0

_METADATA = sa.table("ducklake_metadata", sa.column("key"), sa.column("value"))
_VERSION = sa.select(_METADATA.c.value).where(_METADATA.c.key == "version")
_BOUND_OF = {"min_is_exact": "min_value", "max_is_exact": "max_value"}


class CannotLendError(Exception):
    """What the reference wrote cannot become the lake's."""


@contextmanager
def lent(lake: CatalogDatabase) -> Iterator[CatalogDatabase]:
    """Yield what the reference may attach; what it has written there when the block ends is the lake's.

    Raises:
        CannotLendError: it wrote to a lake that others wrote to meanwhile, or that 1.0 cannot describe.
    """
    if lake.spec_version == "1.0":
        yield lake
        return
    if version_of(lake) is None:
        with _new(lake) as new:
            yield new
        return
    if not lake.is_for_the_reference:
        raise CannotLendError(f"there is no copy of a 1.1 lake in {lake.kind} for the reference")
    with _empty_beside(lake) as empty:
        copy = as_1_0(lake, empty)
        ours, before = _rows(lake), _rows(copy)
        yield copy
        if _rows(copy) == before:
            return
        if ours != before:
            raise CannotLendError("1.0 has no words for this lake, so the reference must not write to it")
        if _rows(lake) != ours:
            raise CannotLendError("others wrote to the lake while the reference did: keep the test to 1.0")
        _give_back(copy, lake)


@contextmanager
def _new(lake: CatalogDatabase) -> Iterator[CatalogDatabase]:
    """Yield a place for a lake of 1.0, from which it comes here as 1.1: nobody is to see it at 1.0."""
    if lake.kind not in USUAL_KINDS:
        yield replace(lake, spec_version="1.0")
        _migrate(lake)
        return
    with _empty_beside(lake) as empty:
        made = replace(empty, data_path=lake.data_path)
        yield made
        if version_of(made) is None:  # the reference has failed to make one
            return
        if version_of(lake) is not None:
            raise CannotLendError("others made a lake here while the reference did: keep the test to 1.0")
        _migrate(made)
        _move(made, lake)


def version_of(lake: CatalogDatabase) -> str | None:
    """Return the version that a catalog says; None: there is no lake."""
    is_server = lake.kind in ("postgres", "mariadb")
    if not (is_server or Path(lake.location).exists()) or "ducklake_metadata" not in dump_schema(lake):
        return None
    with _connected(lake) as connection:
        return connection.execute(_VERSION).scalar()


@contextmanager
def _connected(lake: CatalogDatabase) -> Iterator[sa.Connection]:
    engine = open_engine(parse_url(lake.sqlalchemy_url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _rows(lake: CatalogDatabase) -> dict[str, list[str]]:
    """Return all rows, in the words of 1.0; in which order they lie says nothing."""
    found = _as_they_are(lake)
    found = in_words_of_1_0(found) if lake.spec_version == "1.1" else found
    return {table: sorted(map(repr, rows)) for table, rows in found.items()}


def _as_they_are(lake: CatalogDatabase) -> Dump:
    """Return all rows; PostgreSQL's as JSON, for times that Python has not."""
    if lake.kind == "sqlite":
        return dump_catalog(replace(lake, spec_version="1.0"))
    with psycopg.connect(lake.location) as connection:
        return {
            table: [row for (row,) in connection.execute(f'SELECT to_jsonb(t) FROM "{table}" t')]
            for table in dump_schema(lake)
        }


def _migrate(lake: CatalogDatabase) -> None:
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.migrate(to_version="1.1", backup=False)


@contextmanager
def _empty_beside(lake: CatalogDatabase) -> Iterator[CatalogDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        if lake.kind == "postgres":
            with postgres.fresh_database(int(lake.server["port"])) as location:
                yield CatalogDatabase("postgres", location, f"{folder}/")
        else:
            yield CatalogDatabase(lake.kind, f"{folder}/catalog", f"{folder}/")


def _give_back(copy: CatalogDatabase, lake: CatalogDatabase) -> None:
    known = _as_they_are(lake)
    _migrate(copy)
    with _connected(copy) as connection:
        _say_again(connection, known)
    _move(copy, lake)


def _move(copy: CatalogDatabase, lake: CatalogDatabase) -> None:
    """Put a catalog in the place of another, whose clients stay connected."""
    if lake.kind == "postgres":
        postgres.replace_database(lake.location, copy.location)
        return
    with closing(sqlite3.connect(copy.location)) as source, closing(sqlite3.connect(lake.location)) as target:
        source.backup(target)


def _say_again(connection: sa.Connection, known: Dump) -> None:
    """Repeat what was known of rows that are still there; of a bound, while it is the same."""
    for table, columns in APPENDED.items():
        for row in known[table]:
            for column in columns:
                if row[column] is None:
                    continue
                same = [*KEYS[table], *([_BOUND_OF[column]] if column in _BOUND_OF else [])]
                where = " AND ".join(f"{name} = :{name}" for name in same)
                statement = sa.text(f"UPDATE {table} SET {column} = :{column} WHERE {where}")
                connection.execute(statement, {name: row[name] for name in (column, *same)})
