"""Copy a file, server-side where the store supports it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.storage.files.durable import make_parents, sync_directory
from airflow_provider_ducklake.storage.files.filesystem import (
    fsspec_of,
    naming_errors,
    open_input,
    regular_file,
)
from airflow_provider_ducklake.storage.files.output_file import OutputFile

if TYPE_CHECKING:
    from airflow_provider_ducklake.storage.files.filesystem import Location

_BLOCK_BYTES = 8 * 2**20


def copy_file(source: Location, target: Location) -> None:
    """Copy a file to where there is none; it appears complete or, as far as the store allows, not at all.

    Raises:
        StorageError: it is not there, or the copy cannot be written.
    """
    with naming_errors(source.uri, "copy"):
        if source.is_local and target.is_local:
            _copy_locally(Path(source.path), Path(target.path))
        elif not _copy_in_store(source, target):
            _copy_through(source, target)


def _copy_locally(source: Path, target: Path) -> None:
    make_parents(target)
    try:
        with regular_file(str(source)) as opened:
            shutil.copyfile(opened, target)
        with target.open("rb+") as copied:
            os.fsync(copied.fileno())
        sync_directory(target.parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _copy_in_store(source: Location, target: Location) -> bool:
    """Let the store copy, and return whether it can."""
    filesystem = fsspec_of(source)
    if filesystem is None:
        if not source.filesystem.equals(target.filesystem):
            return False
        source.filesystem.copy_file(source.path, target.path)
        return True
    if filesystem is not fsspec_of(target):
        return False
    try:
        filesystem.cp_file(source.path, target.path)
    except NotImplementedError:
        return False
    return True


def _copy_through(source: Location, target: Location) -> None:
    with open_input(source) as stream:
        sink = OutputFile(target)
        try:
            while block := stream.read(_BLOCK_BYTES):
                sink.write(block)
            sink.finish()
        except BaseException:
            sink.abort()
            raise
