"""Iceberg and Delta tables on S3, read with the options of the lake's connection."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.filesystem import exists, write_bytes
from tests.interop.lakes import alone
from tests.interop.test_add_delta_table import RECORDED
from tests.interop.test_odd_stores import read_by_duckdb
from tests.reference import s3

BUCKET = "tables-of-others"


@pytest.fixture(scope="module")
def endpoint():
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture
def options(endpoint, monkeypatch):
    return s3.storage_options(endpoint, "fsspec", monkeypatch)


@pytest.fixture
def lake(sqlite_catalog, options):
    root = f"s3://{BUCKET}/lake-{Path(sqlite_catalog.data_path).parent.name}/"
    with Lake.create(
        sqlite_catalog.sqlalchemy_url, root, storage_options=options, foreign_files=True
    ) as lake:
        yield lake


def test_a_delta_table_with_vectors_is_added_and_its_files_are_deleted_in_the_end(
    lake, sqlite_catalog, endpoint, options
):
    for path in sorted((RECORDED / "parts").rglob("*")):
        if path.is_file():
            name = path.relative_to(RECORDED).as_posix()
            write_bytes(f"s3://{BUCKET}/delta/{name}", path.read_bytes(), options)

    files = alone(lake).add_table("t", f"s3://{BUCKET}/delta/parts", "delta", create_table=True)

    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 4]
    assert read_by_duckdb(sqlite_catalog, endpoint, "SELECT id FROM t ORDER BY id") == [(1,), (4,)]
    assert lake.verify() == []
    alone(lake).drop_table("t")
    lake.expire_snapshots(keep_last=1)
    done = lake.cleanup_old_files(older_than=timedelta(0))
    assert (len(done.deleted), done.failures) == (4, ())
    assert not any(exists(file.path, options) for file in files)


def test_an_iceberg_table_is_found_by_its_catalog(lake, sqlite_catalog, endpoint, options, tmp_path):
    catalog = {
        "name": "theirs",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": endpoint,
        "s3.access-key-id": options["key"],
        "s3.secret-access-key": options["secret"],
    }
    theirs = SqlCatalog(**catalog)
    theirs.create_namespace("sales")
    rows = pa.table({"id": [1, 2, 3], "name": ["a b", "x/y", None]})
    table = theirs.create_table("sales.orders", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("name")
    table.append(rows)

    lake.add_table("t", "sales.orders", "iceberg", catalog=catalog, create_table=True)

    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 2, 3]
    found = read_by_duckdb(sqlite_catalog, endpoint, "SELECT * FROM t ORDER BY id")
    assert found == [(1, "a b"), (2, "x/y"), (3, None)]
    assert lake.verify() == []
