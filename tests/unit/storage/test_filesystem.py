import os
import stat
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.format.names.paths import split_scheme
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    MOST_READ_BYTES,
    as_environment,
    check_writable,
    delete_file,
    exists,
    fsspec_of,
    open_filesystem,
    open_input,
    process_options,
    read_bytes,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.listing import delete_tree
from airflow_provider_ducklake.lake.storage.files.writing import OutputFile, copy_file

ODD = "a b/%20/ü#?=&"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/data/x y%20", ("file", "/data/x y%20")),
        ("file:///data/x", ("file", "/data/x")),
        ("s3://bucket/a b", ("s3", "bucket/a b")),
        ("S3A://bucket/", ("s3a", "bucket/")),
        ("C:/data", ("file", "C:/data")),
        ("C://data", ("file", "C://data")),
    ],
)
def test_schemes_are_told_from_paths(path, parts):
    assert split_scheme(path) == parts


def test_bytes_come_back_from_any_path(tmp_path):
    path = f"{tmp_path}/{ODD}/file"

    write_bytes(path, b"content")

    assert read_bytes(path) == b"content"
    assert exists(path)
    assert (tmp_path / ODD / "file").exists()


READS = {
    "whole": read_bytes,
    "in pieces": lambda path: open_input(open_filesystem(path, {})),
    "to copy": lambda path: copy_file(open_filesystem(path, {}), open_filesystem(f"{path}.copy", {})),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_a_fifo_in_the_place_of_a_file_is_refused_at_once(tmp_path, read, scheme):
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(StorageError, match=r"fifo: it is a FIFO\. Correct the path"):
        read(f"{scheme}{tmp_path}/fifo")
    assert not (tmp_path / "fifo.copy").exists()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_device_in_the_place_of_a_file_is_refused_at_once(tmp_path, read):
    (tmp_path / "endless").symlink_to("/dev/zero")

    with pytest.raises(StorageError, match=r"endless: it is a device\."):
        read(f"{tmp_path}/endless")


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_directories_and_sockets_in_the_place_of_a_file_are_refused(tmp_path, read):
    (tmp_path / "folder").mkdir()
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    for name in ("folder", "socket"):
        with pytest.raises(StorageError, match=f"/{name}: "):
            read(f"{tmp_path}/{name}")


def test_a_private_file_is_its_owners(tmp_path):
    write_bytes(f"{tmp_path}/private/secret", b"x", private=True)

    assert mode(tmp_path / "private" / "secret") == 0o600


def test_a_write_replaces_the_whole_file_and_leaves_nothing_else(tmp_path):
    write_bytes(f"{tmp_path}/file", b"a long first content")
    write_bytes(f"{tmp_path}/file", b"short")

    assert read_bytes(f"{tmp_path}/file") == b"short"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(StorageError, match=f"Cannot read {tmp_path}/gone"):
        read_bytes(f"{tmp_path}/gone")


def test_deleting_says_whether_there_was_something(tmp_path):
    write_bytes(f"{tmp_path}/file", b"")

    assert delete_file(f"{tmp_path}/file")
    assert not delete_file(f"{tmp_path}/file")


def test_a_tree_is_deleted_whole_and_its_neighbours_stay(tmp_path):
    write_bytes(f"{tmp_path}/tree/{ODD}/file", b"")
    write_bytes(f"{tmp_path}/tree2/file", b"")

    delete_tree(f"{tmp_path}/tree/")
    delete_tree(f"{tmp_path}/gone/")

    assert [path.name for path in tmp_path.iterdir()] == ["tree2"]


@pytest.mark.parametrize("path", ["/", "/data", "/data/", "s3://bucket", "s3://bucket/", "memory://x/"])
def test_a_whole_bucket_or_top_directory_is_never_deleted(path):
    with pytest.raises(StorageError, match="Refusing"):
        delete_tree(path)


def test_a_writable_place_is_left_as_it_was(tmp_path):
    (tmp_path / "lake").mkdir()

    check_writable(f"{tmp_path}/lake/")
    check_writable(f"{tmp_path}/could/be/made/")

    assert [path.name for path in tmp_path.rglob("*")] == ["lake"]


def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageError, match=rf"{tmp_path}/file/.*: .*(directory|exists)"):
        check_writable(f"{tmp_path}/file/")
    with pytest.raises(
        StorageError, match=rf"Cannot make the directory {tmp_path}/file/lake: {tmp_path}/file"
    ):
        check_writable(f"{tmp_path}/file/lake/")


def test_an_unknown_scheme_is_an_error_that_names_it():
    with pytest.raises(StorageError, match="no library for nosuch://"):
        open_filesystem("nosuch://bucket/x")


def test_other_fsspec_stores_work_by_their_scheme():
    write_bytes("memory://bucket/a b%20/file", b"content")

    assert read_bytes("memory://bucket/a b%20/file") == b"content"
    delete_tree("memory://bucket/a b%20")
    assert not exists("memory://bucket/a b%20/file")


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_an_aborted_file_is_gone(tmp_path, scheme):
    location = open_filesystem(f"{scheme}{tmp_path}/file")
    file = OutputFile(location)
    file.write(b"half")

    file.abort()

    assert not exists(location.uri)


def test_a_finished_file_knows_its_size_and_end(tmp_path):
    file = OutputFile(open_filesystem(f"{tmp_path}/file"))
    for part in (b"12", b"", b"3456789012", b"3"):
        file.write(part)
    file.finish()

    assert (file.size, file.tail) == (13, b"67890123")
    assert read_bytes(f"{tmp_path}/file") == b"1234567890123"


def test_a_job_opens_stores_with_the_options_that_its_process_was_started_with(monkeypatch):
    options = {"key": "id", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9"}
    for name, value in as_environment(options).items():
        monkeypatch.setenv(name, value)

    assert process_options() == options
    assert fsspec_of(open_filesystem("s3://lake/x")).key == "id"
    assert fsspec_of(open_filesystem("s3://lake/x", {"key": "other"})).key == "other"


def test_another_lake_that_is_opened_in_a_jobs_process_has_its_own_options(monkeypatch, tmp_path):
    for name, value in as_environment({"key": "id", "endpoint_url": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)

    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", "s3://other/lake/") as lake:
        opened = fsspec_of(open_filesystem("s3://other/lake/x", lake.opened.storage_options))

    assert (opened.key, opened.endpoint_url) == (None, None)


def test_a_file_that_is_too_long_to_be_read_whole_is_not_begun(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(MOST_READ_BYTES + 1)
    write_bytes(f"{tmp_path}/short", b"four")
    assert read_bytes(f"{tmp_path}/short", limit=4) == b"four"

    for path, limit in {"sparse": MOST_READ_BYTES, "short": 3}.items():
        with pytest.raises(
            StorageError, match=rf"{path}: it has \d+ bytes, and such a file has {limit} at most"
        ):
            read_bytes(f"{tmp_path}/{path}", limit=limit)
