"""What the errors of a disk mean; those of stores are provoked in tests/interop/test_object_store.py."""

import errno
import os

import pyarrow.fs as pafs
import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import storage_errors

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
