"""Documents that are sealed: by the key of the lake they lie in, opened by whoever knows it, and no other."""

import base64
import errno
import os
import stat
import threading
from collections.abc import Generator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.format.names.paths import split_scheme
from airflow_provider_ducklake.lake.storage.files import writing
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
    storage_errors,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.listing import delete_tree
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads, in_threads_ahead, made_ahead
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


# --- documents that are sealed ---

OUTER, INNER = (writing.new_key() for _ in range(2))
DOCUMENT = b'{"v": 4}'


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(writing, "_known", {})
    monkeypatch.setattr(writing, "_drivers", writing._Drivers())
    monkeypatch.delenv(writing.VARIABLE, raising=False)


def test_a_lake_within_the_folder_of_another_has_its_own_key(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{INNER}\n")
    writing.learn("/lake/", OUTER)
    writing.learn_from_file("/lake/inner/", str(file))

    assert (writing.key_of("/lake/x"), writing.file_of("/lake/x")) == (OUTER, None)
    assert (writing.key_of("/lake/inner/x"), writing.file_of("/lake/inner/x")) == (INNER, str(file))
    assert (writing.key_of("/other/x"), writing.file_of("/other/x")) == (None, None)


def test_a_key_that_is_learned_again_from_the_catalog_is_none_of_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    writing.learn_from_file("/lake/", str(tmp_path / "key"))
    writing.learn("/lake/", OUTER)

    assert (writing.key_of("/lake/x"), writing.file_of("/lake/x")) == (OUTER, None)


def test_another_process_opens_by_its_environment_what_this_one_sealed(monkeypatch):
    writing.learn("/lake/", OUTER)
    content = writing.sealed("/lake/x", DOCUMENT)
    environment = writing.as_environment("/lake/x")
    assert DOCUMENT not in content

    monkeypatch.setattr(writing, "_known", {})
    with pytest.raises(SparkJobError, match="/lake/x is sealed with a key that this process does not have"):
        writing.opened("/lake/x", content)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert writing.opened("/lake/x", content) == DOCUMENT


@pytest.mark.parametrize("place", [-1, 20, 30])
def test_a_document_that_was_changed_is_refused(place):
    writing.learn("/lake/", OUTER)
    content = bytearray(writing.sealed("/lake/x", DOCUMENT))
    content[place] ^= 1

    with pytest.raises(SparkJobError, match="/lake/x was changed"):
        writing.opened("/lake/x", bytes(content))


def test_without_a_key_documents_are_as_they_are():
    assert writing.sealed("/lake/x", DOCUMENT) == writing.opened("/lake/x", DOCUMENT) == DOCUMENT


@pytest.mark.parametrize("text", ["", "words", base64.b64encode(b"short").decode()])
def test_what_is_no_key_is_refused_and_not_shown(text):
    with pytest.raises(StorageError, match="openssl rand -base64 32") as raised:
        writing.learn("/lake/", text)

    assert not text or text not in str(raised.value)


def test_no_key_shows_when_it_is_printed():
    writing.learn("/lake/", OUTER)

    assert OUTER not in repr(writing._known)
    assert repr(base64.b64decode(OUTER)) not in repr(writing._known)


# --- documents that somebody put where they do not belong ---

JOB = "ducklake-01a21a71-f427-7899-b6a0-1de1e74e231a"
OTHER_JOB = "ducklake-01a21a71-f427-7899-b6a0-000000000000"


def test_a_plain_document_is_refused_where_documents_are_sealed():
    writing.learn("/lake/", OUTER)

    with pytest.raises(SparkJobError, match=r"/lake/t/_DONE is not sealed.*Run the task that wrote it again"):
        writing.opened("/lake/t/_DONE", DOCUMENT)
    assert writing.lacks_seal("/lake/t/_DONE", DOCUMENT)
    assert not writing.lacks_seal("/other/_DONE", DOCUMENT)


def test_a_plain_document_that_is_proven_by_other_means_is_taken():
    writing.learn("/lake/", OUTER)

    assert writing.opened("/lake/t/request.json", DOCUMENT, is_proven=True) == DOCUMENT


@pytest.mark.parametrize(
    "other",
    [
        f"/lake/main/t/{OTHER_JOB}/_DONE",
        f"/lake/main/t/{JOB}/part-00000.json",
        f"/lake/main/t/{JOB}/bins/_DONE",
        "/lake/_DONE",
    ],
)
def test_a_document_that_was_moved_is_refused(other):
    writing.learn("/lake/", OUTER)
    content = writing.sealed(f"/lake/main/t/{JOB}/_DONE", DOCUMENT)

    with pytest.raises(SparkJobError, match="was sealed for another place"):
        writing.opened(other, content)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"s3a://bucket/lake/t/{JOB}/_DONE", f"s3://bucket/lake/t/{JOB}/_DONE"),
        (f"/lake/ducklake/t/{JOB}/_DONE", f"/mnt/lake/ducklake/t/{JOB}/_DONE"),
        ("/checkpoints/a/ducklake/q/3.json", "file:///checkpoints/a/ducklake/q/3.json"),
    ],
)
def test_a_document_is_the_same_by_every_spelling_of_its_directory(written, read):
    writing.learn("", OUTER)

    assert writing.opened(read, writing.sealed(written, DOCUMENT)) == DOCUMENT


def test_drivers_without_the_key_leave_plain_documents_unless_they_have_it_in_a_file(tmp_path):
    (tmp_path / "key").write_text(INNER)
    writing.learn("/lake/", OUTER)
    writing.learn_from_file("/lake/inner/", str(tmp_path / "key"))

    writing.expect_drivers_without_key()

    assert writing.opened("/lake/t/_DONE", DOCUMENT) == DOCUMENT
    with pytest.raises(SparkJobError, match="is not sealed"):
        writing.opened("/lake/inner/_DONE", DOCUMENT)


# --- work in threads: the order of what comes, how far it goes ahead, and how it ends ---


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_all_come_in_their_order(count):
    numbers = list(range(count))

    assert in_threads(lambda one: one * 2, numbers) == [one * 2 for one in numbers]
    assert list(in_threads_ahead(lambda one: one * 2, numbers)) == [one * 2 for one in numbers]
    assert list(made_ahead(one for one in numbers)) == numbers


def test_no_more_than_a_few_items_are_worked_on_ahead():
    begun: list[int] = []
    found = in_threads_ahead(begun.append, range(1000))

    for _ in range(3):
        next(found)
    assert len(begun) <= 12
    found.close()
    assert len(begun) < 1000


def test_an_error_comes_where_its_item_would_have_come():
    def work(one: int) -> int:
        return 1 // (5 - one)

    def items() -> Generator[int]:
        for one in range(10):
            yield work(one)

    for found in (in_threads_ahead(work, range(10)), made_ahead(items())):
        assert [next(found) for _ in range(5)] == [0, 0, 0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_items_are_made_by_one_thread_and_closed_when_nobody_wants_more():
    ended = threading.Event()
    makers: set[int] = set()

    def items() -> Generator[int]:
        try:
            for one in range(1000):
                makers.add(threading.get_ident())
                yield one
        finally:
            ended.set()

    found = made_ahead(items())
    assert [next(found), next(found)] == [0, 1]
    assert not ended.is_set()
    found.close()

    assert ended.is_set()
    assert len(makers) == 1
    assert threading.get_ident() not in makers


# --- what the errors of a disk mean ---

FULL = "/dev/full"  # each write to it fails as one to a full disk


def write_by_python() -> None:
    with open(FULL, "wb", buffering=0) as file:  # noqa: PTH123 - no path of a disk
        file.write(b"x")


def write_by_arrow() -> None:
    with pafs.LocalFileSystem().open_output_stream(FULL) as stream:
        stream.write(b"x" * 2**20)


@pytest.mark.parametrize("write", [write_by_python, write_by_arrow])
def test_a_full_disk_is_called_full(write):
    with pytest.raises(StorageError) as raised, storage_errors("/data/x", "write"):
        write()

    assert str(raised.value) == (
        "Cannot write /data/x: the disk is full. Make room there, or write elsewhere; then run this again."
    )


def test_a_quota_that_is_used_up_is_no_lack_of_permissions():
    with pytest.raises(StorageError, match="the quota of") as raised, storage_errors("/data/x", "write"):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/data/x")

    assert "permission" not in str(raised.value)


def test_a_missing_permission_is_still_one():
    with pytest.raises(StorageError, match="your permissions for it"), storage_errors("/data/x", "write"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/data/x")
