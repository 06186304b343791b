"""A Parquet file whose footer is changed on its way out: what pyarrow cannot say of a file is said here.

*Source:* Apache Parquet, ``parquet.thrift``: ``SchemaElement``, ``LogicalType``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.storage.parquet.footer_end import MAGIC, TAIL_BYTES, footer_length
from airflow_provider_ducklake.storage.parquet.thrift import Field, Kind, read_struct, write_struct

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from airflow_provider_ducklake.storage.files.output_file import OutputFile
    from airflow_provider_ducklake.storage.parquet.encrypted import EncryptedOutput
    from airflow_provider_ducklake.storage.parquet.thrift import Struct

_SCHEMA = 2  # of FileMetaData
_CHILDREN, _FIELD_ID, _LOGICAL_TYPE = 5, 9, 10  # of SchemaElement
_VARIANT = 16  # of LogicalType
_VERSION = 1  # of VariantType


class FooterEditedOutput:
    """A sink for a Parquet writer that marks groups as variants, by their field ids, in the footer.

    It passes on what is written until ``hold`` is called, before the writer is closed: what it writes then
    ends with the footer.
    """

    def __init__(self, sink: OutputFile | EncryptedOutput, variants: Collection[int], where: str) -> None:
        self._sink, self._variants, self._where = sink, variants, where
        self._held: bytearray | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing more may be written."""
        return self._sink.closed

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes of the writer's."""
        if self._held is None or self.closed:
            return self._sink.write(data)
        self._held += data
        return len(memoryview(data))

    def hold(self) -> None:
        """Keep what is written from now on, up to ``finish``."""
        self._held = bytearray()

    def tell(self) -> int:
        """Return the number of bytes that the writer has written."""
        return self._sink.tell() + len(self._held or b"")

    def flush(self) -> None:
        """Do nothing: only ``finish`` makes the file visible."""

    def close(self) -> None:
        """Do nothing: a Parquet writer that closes its file may do so because of an error."""

    def finish(self) -> None:
        """Write the footer as it is to be, and make the file complete and lasting.

        Raises:
            StorageError: the writer has not written one.
        """
        held = bytes(self._held or b"")
        length = footer_length(held[-TAIL_BYTES:], self._where)
        start = len(held) - TAIL_BYTES - length
        if start < 0:
            raise StorageError(f"{self._where} is not complete: its footer began before it was expected.")
        footer, _ = read_struct(held, start)
        mark_variants(footer, self._variants)
        edited = write_struct(footer)
        self._sink.write(held[:start] + edited + len(edited).to_bytes(4, "little") + MAGIC)
        self._sink.finish()


def mark_variants(footer: Struct, ids: Collection[int]) -> None:
    """Give groups with these field ids the logical type VARIANT."""
    for element in footer[_SCHEMA].value.values:
        if _CHILDREN in element and _FIELD_ID in element and element[_FIELD_ID].value in ids:
            version = {_VERSION: Field(Kind.BYTE, 1)}
            element[_LOGICAL_TYPE] = Field(Kind.STRUCT, {_VARIANT: Field(Kind.STRUCT, version)})


def read_plain_footer(source: pa.NativeFile, where: str) -> Struct:
    """Return the footer of a Parquet file that is open, and decrypted.

    Raises:
        StorageError: it is damaged.
    """
    size = source.size()
    length = footer_length(source.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)), where)
    start = max(0, size - TAIL_BYTES - length)
    footer, _ = read_struct(source.read_at(length, start))
    return footer


def marked_variants(footer: Struct) -> frozenset[int]:
    """Return the field ids of groups with the logical type VARIANT."""
    return frozenset(
        element[_FIELD_ID].value
        for element in footer[_SCHEMA].value.values
        if _FIELD_ID in element and _LOGICAL_TYPE in element and _VARIANT in element[_LOGICAL_TYPE].value
    )
