"""The same surface over S3, played by a server in this process: through fsspec and by Arrow alone."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.format.files import LiveDataFile
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.snapshots import DataFileId, SnapshotId
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    Location,
    check_writable,
    delete_file,
    exists,
    open_filesystem,
    read_bytes,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.listing import delete_tree
from airflow_provider_ducklake.lake.storage.files.writing import OutputFile
from airflow_provider_ducklake.lake.storage.parquet.footer import read_footer
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from tests.reference import s3

BUCKET = "lake-bucket"
SCHEMA = new_columns({"id": "int64", "text": "varchar"})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def options(request, endpoint, monkeypatch) -> dict[str, Any]:
    return s3.storage_options(endpoint, request.param, monkeypatch)


def keys(options: dict, prefix: str) -> list[str]:
    location = open_filesystem(f"s3://{BUCKET}/{prefix}", options)
    selector = pafs.FileSelector(location.path, recursive=True, allow_not_found=True)
    return [info.path for info in location.filesystem.get_file_info(selector) if info.is_file]


def test_bytes_come_back_from_odd_keys(options):
    path = f"s3://{BUCKET}/odd/a b%20ü=1/file"

    write_bytes(path, b"content", options)

    assert read_bytes(path, options) == b"content"
    assert exists(path, options)
    assert delete_file(path, options)
    assert not exists(path, options)


def test_a_prefix_is_deleted_whole_and_its_neighbours_stay(options):
    for key in ("tree/x/1", "tree/2", "tree2/3"):
        write_bytes(f"s3://{BUCKET}/del/{key}", b"x", options)

    delete_tree(f"s3://{BUCKET}/del/tree/", options)
    delete_tree(f"s3://{BUCKET}/del/gone/", options)

    assert keys(options, "del") == [f"{BUCKET}/del/tree2/3"]


def test_a_writable_place_is_left_as_it_was(options):
    check_writable(f"s3://{BUCKET}/probe/", options)

    assert keys(options, "probe") == []


def test_a_missing_bucket_is_an_error_that_names_it_and_no_secret(options):
    with pytest.raises(StorageError, match="s3://no-such-bucket/lake/") as caught:
        check_writable("s3://no-such-bucket/lake/", options)

    assert "hunter2" not in str(caught.value)


@pytest.fixture
def locate(options):
    def locate(path: str) -> Location:
        return open_filesystem(path, options)

    return locate


def rows(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": list(range(number)), "text": [f"text {n}" * 50 for n in range(number)]}
    )


def test_data_files_are_written_and_read(request, locate):
    numbers = count()
    prefix = f"s3://{BUCKET}/{request.node.name}"
    settings = ParquetSettings(row_group_rows=500, target_file_size_bytes=5000)

    with RollingWriter(SCHEMA, lambda: f"{prefix}/{next(numbers)}", settings, locate=locate) as writer:
        for _ in range(4):
            writer.write(rows(500))

    assert len(writer.files) > 1
    for file in writer.files:
        assert read_footer(locate(file.path), SCHEMA) == file
        live = LiveDataFile(DataFileId(1), file.path, 1, 1, 1, 0, SnapshotId(1))
        read = read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(1), locate=locate).cast()
        assert read.num_rows == file.record_count


@pytest.mark.parametrize("size", [10, 30_000_000])  # below and above what one upload part holds
def test_an_aborted_file_is_never_published(request, locate, options, size):
    file = OutputFile(locate(f"s3://{BUCKET}/{request.node.name}/file"))
    file.write(bytes(size))

    file.abort()
    del file

    assert keys(options, request.node.name) == []


def test_an_error_while_writing_leaves_no_object(request, locate, options):
    prefix = f"s3://{BUCKET}/{request.node.name}"

    def write_and_fail() -> None:
        with RollingWriter(
            SCHEMA, lambda: f"{prefix}/file", ParquetSettings(row_group_rows=10), locate=locate
        ) as writer:
            writer.write(rows(100))
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()

    assert keys(options, request.node.name) == []


def test_a_missing_object_is_an_error_that_names_it(locate):
    live = LiveDataFile(DataFileId(1), f"s3://{BUCKET}/gone", 1, 1, 1, 0, SnapshotId(1))

    with pytest.raises(StorageError, match=f"s3://{BUCKET}/gone of main.t at snapshot 7"):
        read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(7), locate=locate).cast()


def test_what_another_client_writes_is_seen_at_once(options, endpoint):
    prefix = f"s3://{BUCKET}/seen"
    assert keys(options, "seen/x") == []
    write_bytes(f"{prefix}/first", b"x", options)
    keys(options, "seen")

    another = pafs.S3FileSystem(
        access_key="id", secret_key="hunter2hunter2", endpoint_override=endpoint, region="us-east-1"
    )
    with another.open_output_stream(f"{BUCKET}/seen/second") as stream:
        stream.write(b"x")

    assert exists(f"{prefix}/second", options)
    assert len(keys(options, "seen")) == 2
    delete_tree(prefix, options)


def test_an_encrypted_file_is_written_and_read_over_a_store(options):
    def locate(path: str) -> Location:
        return open_filesystem(path, options).of_lake(16)

    rows = pa.table(
        {"id": pa.array(range(1000), pa.int64()), "text": [f"a secret {i % 7}" for i in range(1000)]}
    )
    path = f"s3://{BUCKET}/encrypted/file.parquet"

    with RollingWriter(SCHEMA, lambda: path, ParquetSettings(row_group_rows=300), locate=locate) as writer:
        writer.write(rows)

    (file,) = writer.files
    assert b"secret" not in read_bytes(path, options)
    live = LiveDataFile(
        id=DataFileId(1),
        path=path,
        record_count=1000,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=0,
        begin_snapshot=SnapshotId(1),
        encryption_key=file.encryption_key,
    )
    read = read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(1), locate=locate).cast()
    assert read.to_pylist() == rows.to_pylist()
    keyed = locate(path).with_key(file.encryption_key)
    assert read_footer(keyed, SCHEMA).footer_size == file.footer_size
