"""A new file that is there whole or not at all, on local disks and in object stores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.durable import make_parents, sync_directory
from airflow_provider_ducklake.lake.storage.files.filesystem import delete_file_at, fsspec_of

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location


class OutputFile:
    """A new file that appears complete or, after ``abort``, not at all as far as the store allows.

    ``size`` counts the bytes written, ``tail`` keeps the last few. pyarrow takes it for a Python file object.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self.closed = False
        self.size = 0
        self.tail = b""
        self._stream: Any = _open_output(location)

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        if self.closed:
            raise StorageError(f"{self._location.uri} was abandoned.")
        written = bytes(data)
        self._stream.write(written)
        self.size += len(written)
        self.tail = (
            (self.tail + written)[-_TAIL_BYTES:] if len(written) < _TAIL_BYTES else written[-_TAIL_BYTES:]
        )
        return len(written)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: only ``finish`` makes the file visible."""

    def close(self) -> None:
        """Do nothing: a Parquet writer that closes its file may do so because of an error."""

    def finish(self) -> None:
        """Make the file complete and lasting."""
        self.closed = True
        if self._location.is_local:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            sync_directory(Path(self._location.path).parent)
        self._stream.close()

    def abort(self) -> None:
        """Drop the file. A store that published it half written is asked to delete it."""
        self.closed = True
        stream, self._stream = self._stream, None
        with suppress(Exception):
            _discard(stream)
        with suppress(StorageError):
            delete_file_at(self._location)


_TAIL_BYTES = 8


def _open_output(location: Location) -> Any:  # noqa: ANN401
    if location.is_local:
        path = Path(location.path)
        try:
            return path.open("xb")
        except FileNotFoundError:
            make_parents(path)
            return path.open("xb")
    fsspec_filesystem = fsspec_of(location)
    if fsspec_filesystem is not None:
        return fsspec_filesystem.open(location.path, "wb")
    return location.filesystem.open_output_stream(location.path)


def _discard(stream: Any) -> None:  # noqa: ANN401
    if hasattr(stream, "discard"):  # fsspec: cancels the upload
        stream.discard()
        stream.closed = True  # else it uploads when it is collected
    else:  # Arrow cannot cancel an upload, and its destructor would publish it after we deleted it
        stream.close()
