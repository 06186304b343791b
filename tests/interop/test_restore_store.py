"""Copies within a store, and a restored lake on S3, played by a server in this process."""

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    exists,
    open_filesystem,
    read_bytes,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.writing import copy_file
from tests.interop.lakes import alone
from tests.reference import s3

BUCKET = "restore-bucket"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def options(request, endpoint, monkeypatch) -> dict[str, Any]:
    return s3.storage_options(endpoint, request.param, monkeypatch)


def test_files_are_copied_within_a_store_and_between_two(options, tmp_path):
    content = b"1234" * 1000
    for name in ("a[1]*.parquet", "k=x%2Fy z/a?.parquet"):
        write_bytes(f"s3://{BUCKET}/from/{name}", content, options)
        places = [f"s3://{BUCKET}/to/{name}", str(tmp_path / name), f"s3://{BUCKET}/back/{name}"]
        ends = [open_filesystem(one, options) for one in (f"s3://{BUCKET}/from/{name}", *places)]
        for source, target in itertools.pairwise(ends):
            copy_file(source, target)
        assert [read_bytes(one, options) for one in places] == [content] * 3
    local = open_filesystem(str(tmp_path / "copies/of/a.parquet"), options)
    copy_file(open_filesystem(str(tmp_path / "a[1]*.parquet"), options), local)
    assert read_bytes(local.uri) == content


@pytest.mark.parametrize("source", ["s3://restore-bucket/none.parquet", "{}/none.parquet"])
@pytest.mark.parametrize("target", ["s3://restore-bucket/copy.parquet", "{}/copy.parquet"])
def test_a_missing_file_leaves_no_copy(options, tmp_path, source, target):
    source, target = source.format(tmp_path), target.format(tmp_path)
    with pytest.raises(StorageError, match="none"):
        copy_file(open_filesystem(source, options), open_filesystem(target, options))
    assert not exists(target, options)


def test_a_lake_on_a_store_is_restored(options, tmp_path):
    data_path = f"s3://{BUCKET}/lake/"
    with Lake.create(f"sqlite:///{tmp_path}/c.sqlite", data_path, storage_options=options) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "k": "varchar"}, ["k"])
            tx.append_arrow("t", pa.table({"i": pa.array(range(40), pa.int64()), "k": ["a/b", "c"] * 20}))
        then = lake.current_snapshot().id
        alone(lake).delete_rows("t", "i < 12")
        alone(lake).drop_table("t")

        (table,) = lake.restore("t", at=then).tables

        assert (table.files_copied, table.rows_returned) == (2, 40)
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [*range(40)]
        lake.expire_snapshots(keep_last=1)
        assert lake.verify() == []
