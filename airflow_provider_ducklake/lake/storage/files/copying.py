"""Copy a file, server-side where the store supports it."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.storage.files.durable import make_parents, sync_directory
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    fsspec_of,
    naming_errors,
    open_input,
    regular_file,
)
from airflow_provider_ducklake.lake.storage.files.output_file import OutputFile

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

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
    """Copy under a new name first: a link that has the target's name is replaced, and not followed."""
    make_parents(target)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with (
            regular_file(str(source)) as opened,
            Path(opened).open("rb") as read,
            temporary.open("xb") as made,
        ):
            shutil.copyfileobj(read, made, _BLOCK_BYTES)
            made.flush()
            os.fsync(made.fileno())
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
