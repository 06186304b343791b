"""A catalog or a disk that takes no more: a clear error, and nothing is lost or half there."""

import os
import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogRefusedError, StorageError
from tests.reference.catalog_dump import dump_catalog

ROWS = pa.table({"k": ["a secret"] * 20, "i": pa.array(range(20), pa.int64())})
READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgres": "SET default_transaction_read_only = on",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


@contextmanager
def session(lake: Lake, statement: str) -> Iterator[None]:
    """Let every new connection begin with a statement."""
    engine = lake.opened.catalog.dialect.engine

    def run(connection, _record) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", run)
    engine.dispose()
    yield
    event.remove(engine, "connect", run)
    engine.dispose()


@pytest.fixture
def lake(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"k": "varchar", "i": "int64"})
            tx.append_arrow("t", ROWS)
        yield lake


def parquet_files(lake: Lake) -> set[Path]:
    return set(Path(lake.data_path).rglob("*.parquet"))


def is_refused(lake: Lake, catalog, reason: str, rows: pa.Table = ROWS) -> None:
    before, files = dump_catalog(catalog), parquet_files(lake)
    with pytest.raises(CatalogRefusedError, match=reason) as caught:
        lake.append_arrow("t", rows)
    assert "secret" not in str(caught.value)
    assert dump_catalog(catalog) == before
    assert parquet_files(lake) == files


@pytest.mark.parametrize("kind", list(READ_ONLY))
def test_a_catalog_that_turned_read_only(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"k": "varchar", "i": "int64"})

        with session(lake, READ_ONLY[kind]):
            is_refused(lake, catalog, "(?i)read.?only")
            assert lake.read_arrow("t").num_rows == 0
            assert lake.current_snapshot().id == 1

        lake.append_arrow("t", ROWS)
        assert lake.read_arrow("t").num_rows == ROWS.num_rows


def test_a_catalog_file_that_cannot_grow(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"k": "varchar", "i": "int64"})
        lake.set_option("data_inlining_row_limit", 100)
        large = pa.table({"k": ["a secret" * 10_000] * 20, "i": pa.array(range(20), pa.int64())})

        with session(lake, "PRAGMA max_page_count = 1"):  # at once as many as there are
            is_refused(lake, sqlite_catalog, "full", large)

        lake.append_arrow("t", large)
        assert lake.read_arrow("t").num_rows == 20


def test_files_that_cannot_grow(postgres_catalog):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        before = dump_catalog(postgres_catalog)

        child = os.fork()
        if child == 0:
            os._exit(append_with_small_files(lake))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        assert dump_catalog(postgres_catalog) == before
        assert parquet_files(lake) == set()


def append_with_small_files(lake: Lake) -> int:
    """Append more than a file may hold, as on a full disk; 0: refused as it has to be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    rows = pa.table({"i": pa.array([random.getrandbits(60) for _ in range(10_000)], pa.int64())})
    try:
        lake.append_arrow("t", rows)
    except StorageError as error:
        return 0 if ".parquet" in str(error) else 2
    return 1
