"""Parquet files as plain ones, whether their lake is encrypted or not: opened to read, and made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.spec.files import FileKey
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, open_input
from airflow_provider_ducklake.lake.storage.files.output_file import OutputFile
from airflow_provider_ducklake.lake.storage.parquet.decrypted import DecryptedFile
from airflow_provider_ducklake.lake.storage.parquet.encrypted import EncryptedOutput
from airflow_provider_ducklake.lake.storage.parquet.footer_edits import (
    NO_ANNOTATIONS,
    Annotations,
    FooterEditedOutput,
)
from airflow_provider_ducklake.lake.storage.parquet.footer_end import (
    MAGIC,
    READ_AHEAD_BYTES,
    TAIL_BYTES,
    footer_length,
)
from airflow_provider_ducklake.lake.storage.parquet.modules import Cipher

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location


def open_parquet(location: Location) -> pa.NativeFile:
    """Return a Parquet file for random reads, decrypted where its lake is encrypted.

    Raises:
        StorageError: it does not exist, or cannot be opened or decrypted.
        UnsupportedFeatureError: it is encrypted in a way that DuckLake's clients do not read.
    """
    if not location.is_encrypted:
        return open_plain_parquet(location)
    source = open_input(location)
    with naming_errors(location.uri, "read"):
        decrypted = DecryptedFile(source, location.key or FileKey(""), location.uri)
        return pa.PythonFile(decrypted, mode="r")


def open_plain_parquet(location: Location) -> pa.NativeFile:
    """Return a Parquet file that is not encrypted; a footer that is too long is not even begun to be read.

    Raises:
        StorageError: it does not exist, cannot be opened, or has such a footer.
    """
    source = open_input(location)
    with naming_errors(location.uri, "read"):
        size = source.size()
        count = min(size, TAIL_BYTES if location.is_local else READ_AHEAD_BYTES)
        tail = source.read_at(count, size - count)
        if tail.endswith(MAGIC) and size > TAIL_BYTES:  # of anything else, readers say what it is
            footer_length(tail, location.uri)
        return source


@dataclass(frozen=True, slots=True)
class Written:
    """What the catalog is to know of a file that was written, beside its rows."""

    file_size_bytes: int
    footer_size: int
    encryption_key: FileKey | None


class ParquetOutput:
    """A new Parquet file, for a writer of plain ones; encrypted with a new key where its lake is.

    ``annotations`` are types of columns of which a writer knows nothing.
    """

    def __init__(self, location: Location, annotations: Annotations = NO_ANNOTATIONS) -> None:
        self._where = location.uri
        self.key = FileKey.of_length(location.key_bytes) if location.key_bytes else None
        cipher = None if self.key is None else Cipher(self.key, location.uri)  # before a file is made
        self._output = OutputFile(location)
        self.sink: OutputFile | EncryptedOutput | FooterEditedOutput = self._output
        if cipher is not None:
            self.sink = EncryptedOutput(self._output, cipher, location.uri)
        if annotations:
            self.sink = FooterEditedOutput(self.sink, annotations, location.uri)

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._output.size

    def expect_footer(self) -> None:
        """Prepare for the end of what a writer writes; to be called before it is closed."""
        if isinstance(self.sink, FooterEditedOutput):
            self.sink.hold()

    def finish(self) -> Written:
        """Make the file complete and lasting, when the writer has written its footer.

        Raises:
            StorageError: it has not, or it cannot be written.
        """
        self.sink.finish()
        length = footer_length(self._output.tail, self._where, is_encrypted=self.key is not None)
        return Written(self._output.size, length, self.key)

    def abort(self) -> None:
        """Drop the file; see ``OutputFile``."""
        self._output.abort()
