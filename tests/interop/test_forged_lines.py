"""No text of a catalog forges a line of a log: each column has one that begins one, and verbs show none."""

import logging
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from tests.interop.lakes import alone
from tests.interop.odd import Verb
from tests.reference.catalogs import CatalogDatabase, file_catalog

FORGED = "[2026-11-26T00:00:00] ERROR - Task failed: call us"
HOSTILE = f"x\n{FORGED}"
ROWS = pa.table({"id": pa.array(range(30), pa.int64()), "s": ["a", "b", "c"] * 10})
VERBS: dict[str, Verb] = {
    "tables": lambda lake: lake.tables(),
    "read": lambda lake: lake.read_arrow("main.t", filter="id = 15 AND s = 'a'"),
    "view": lambda lake: lake.reads.view("main.v"),
    "clean up": lambda lake: lake.cleanup_old_files(dry_run=True, older_than=timedelta(0)),
    "orphans": lambda lake: lake.delete_orphaned_files(dry_run=True, older_than=timedelta(days=2)),
    "append": lambda lake: lake.append_arrow("main.t", ROWS.slice(0, 2)),
}


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextmanager
def heard() -> Iterator[list[str]]:
    """Give what the package logs meanwhile."""
    handler, log = Heard(), logging.getLogger("airflow_provider_ducklake")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield handler.texts
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> CatalogDatabase:
    """Return a lake with a row in most tables of its catalog."""
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("lake"))
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction(message="made", author="me") as tx:
            tx.create_table("main.t", {"id": "int64", "s": "varchar"}, partition_by=["s"])
            tx.create_view("main.v", "SELECT id FROM t", dialect="spark")
            tx.create_macro("main.m", "(a, b := 2) AS a + b")
            tx.set_default("main.t", "s", "'x'")
            tx.set_sorted_by("main.t", ["id"])
            tx.comment_on_table("main.t", "a comment")
            tx.comment_on_column("main.t", "s", "a comment")
        lake.append_arrow("main.t", ROWS)
        with lake.transaction() as tx:
            tx.delete_rows("main.t", "id < 10")
            tx.create_table("main.old", {"id": "int64"})
        lake.tag("q3")
        lake.append_arrow("main.old", ROWS.select(["id"]))
        lake.append_arrow("main.old", ROWS.select(["id"]).slice(0, 1))
        alone(lake).drop_table("main.old")
    return catalog


def texts_of(catalog: CatalogDatabase) -> list[tuple[str, str]]:
    """Return the columns of text in those tables of the format that have rows."""
    found = []
    with closing(sqlite3.connect(catalog.location)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'ducklake_%'").fetchall()
        for (table,) in tables:
            columns = database.execute(f'PRAGMA table_info("{table}")').fetchall()
            if columns and database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]:
                found += [
                    (table, name) for _, name, type_, *_ in columns if "CHAR" in type_ or "TEXT" in type_
                ]
    return found


def plant(catalog: CatalogDatabase, first: bytes, table: str, columns: list[str]) -> None:
    """Make the catalog what it was, with the hostile text in these columns of every row."""
    Path(catalog.location).write_bytes(first)
    values = ", ".join(f"\"{column}\" = '{HOSTILE}'" for column in columns)
    with closing(sqlite3.connect(catalog.location)) as database, database:
        database.execute(f'UPDATE "{table}" SET {values}')


def forged_by(catalog: CatalogDatabase, verbs: Iterable[Verb]) -> list[str]:
    """Return what verbs log and raise, with their causes as Python shows them, where it has a forged line."""
    with heard() as texts:
        try:
            with Lake.connect(catalog.sqlalchemy_url) as lake:
                for verb in verbs:
                    texts.extend(said_by(lambda verb=verb: verb(lake)))
        except DuckLakeError as error:
            texts.extend(traceback.format_exception(error))
    return [text for text in texts if any(line.startswith(FORGED) for line in text.splitlines())]


def said_by(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except DuckLakeError as error:
        return traceback.format_exception(error)
    return []


def test_no_text_of_the_catalog_begins_a_line_of_a_log_or_an_error(catalog):
    first = Path(catalog.location).read_bytes()
    columns_of: dict[str, list[str]] = {}
    wrong = []
    for table, column in texts_of(catalog):
        columns_of.setdefault(table, []).append(column)
        plant(catalog, first, table, [column])
        wrong += [f"{table}.{column}: {text}" for text in forged_by(catalog, VERBS.values())]
    for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_column"):
        plant(catalog, first, table, columns_of[table])  # a verification goes on where others end
        wrong += [f"{table}: {text}" for text in forged_by(catalog, [show_findings])]

    assert len(columns_of) > 12
    assert wrong == []


def show_findings(lake: Lake) -> None:
    for finding in lake.verify():
        logging.getLogger("airflow_provider_ducklake").info("%s %s", finding, finding.remedy)
