"""A count of rows that the catalog has wrong: a small deletion vector fills no memory by it."""

import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import OUTAGES, CatalogError, StorageError
from airflow_provider_ducklake.lake.storage.deletes.vectors import positions
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase, file_catalog

ROWS = pa.table({"id": pa.array(range(50), pa.int64())})
CONTAINERS = 400  # of 65,536 rows each


def runs(containers: int) -> bytes:
    """Return a bitmap of containers that are one run each, of all their numbers."""
    body = struct.pack("<QII", 1, 0, 12347 | (containers - 1) << 16) + b"\xff" * ((containers + 7) // 8)
    body += b"".join(struct.pack("<HH", key, 65535) for key in range(containers)) + b"\0\0\0\0" * containers
    return body + struct.pack("<HHH", 1, 0, 65535) * containers


def vector(bitmap: bytes) -> bytes:
    body = b"\xd1\xd3\x39\x64" + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.fixture
def forged(tmp_path) -> CatalogDatabase:
    """Return a lake whose catalog has 2**62 rows for a file of 50, and a vector that deletes millions."""
    catalog = file_catalog("sqlite", tmp_path)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        lake.append_arrow("main.t", ROWS)
    data = vector(runs(CONTAINERS))
    Path(catalog.data_path, "main", "t", "d.puffin").write_bytes(data)
    with closing(sqlite3.connect(catalog.location)) as database, database:
        database.execute("UPDATE ducklake_data_file SET record_count = ?", (2**62,))
        database.execute(
            "INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
            " path_is_relative, format, delete_count, file_size_bytes) SELECT 900, table_id, begin_snapshot,"
            " data_file_id, 'd.puffin', 1, 'puffin', 5, ? FROM ducklake_data_file",
            (len(data),),
        )
    return catalog


@pytest.mark.parametrize(
    "verb",
    [
        lambda lake: lake.read_arrow("main.t"),
        lambda lake: lake.changes("main.t", 1, lake.current_snapshot().id).read_arrow(),
    ],
    ids=["read", "changes"],
)
def test_a_vector_is_bounded_by_the_rows_that_the_data_file_has(forged, verb):
    before = pa.default_memory_pool().max_memory()

    with (
        Lake.connect(forged.sqlalchemy_url) as lake,
        pytest.raises(StorageError, match="more numbers than the 50 that it may have"),
    ):
        verb(lake)

    assert pa.default_memory_pool().max_memory() - before < 64 * 2**20


def test_containers_of_one_number_are_few_arrays():
    ones = struct.pack("<QII", 1, 0, 12346) + struct.pack("<I", 65536)
    ones += b"".join(struct.pack("<HH", key, 0) for key in range(65536)) + b"\0\0\0\0" * 65536

    many = positions(runs(CONTAINERS), 2**62)
    few = positions(ones + b"\7\0" * 65536, 2**62)

    assert many.chunk(7)[3].as_py() == 7 * 65536 + 3
    assert few.to_pylist() == [(key << 16) + 7 for key in range(65536)]
    assert few.num_chunks < 32


@pytest.mark.parametrize("report", [lambda lake: lake.table_info(), lambda lake: lake.table_health()])
def test_sizes_whose_sum_is_beyond_64_bits_are_no_outage(sqlite_catalog, report):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        for _ in range(2):
            lake.append_arrow("main.t", ROWS)
        with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
            database.execute("UPDATE ducklake_data_file SET file_size_bytes = ?", (2**63 - 1,))
        with pytest.raises(CatalogError, match="or a sum is") as caught:
            report(lake)
    assert type(caught.value) is CatalogError  # which no task tries again


@pytest.mark.every_catalog
def test_a_number_that_grows_beyond_64_bits_is_no_refusal_that_a_later_try_may_pass(catalog):
    most = 2**63 - 1
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        lake.append_arrow("main.t", ROWS)
        engine = create_engine(parse_url(catalog.sqlalchemy_url))
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE ducklake_table_stats SET next_row_id = {most}"))
        engine.dispose()
        with pytest.raises(CatalogError) as caught:
            lake.append_arrow("main.t", ROWS)
        assert not isinstance(caught.value, OUTAGES), caught.value
        assert lake.read_arrow("main.t") == ROWS
