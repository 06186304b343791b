"""Encrypt the output of a Parquet writer while it is written: each page's header and body becomes a module.

The writer is not involved. The positions in its footer are changed at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ...errors import StorageError
from . import modules
from .modules import MAGIC, TAIL_BYTES, ModuleKind, Struct

if TYPE_CHECKING:
    from ..files.writing import OutputFile

# FileCryptoMetaData: AES_GCM_V1 with nothing else, as the reference writes it.
_CRYPTO = bytes.fromhex("1c1c000000")
_LONGEST_HEADER = 1 << 20
_SHIFT = 2 * modules.OVERHEAD  # of whatever follows a page

# Fields of the footer's structs, by Parquet's own numbers.
_ROW_GROUPS = 4  # of FileMetaData
_COLUMNS, _GROUP_OFFSET, _GROUP_SIZE = 1, 5, 6  # of RowGroup
_CHUNK_OFFSET, _METADATA = 2, 3  # of ColumnChunk
_COMPRESSED_SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 7, 9, 10, 11  # of ColumnMetaData
_PAGE_SIZE = 3  # of PageHeader


class EncryptedOutput:
    """An ``OutputFile`` for a Parquet writer, whose pages and footer it encrypts on their way.

    ``size`` and ``tail`` are those of the encrypted file, ``tell`` counts the writer's bytes.
    """

    def __init__(self, output: OutputFile, cipher: modules.Cipher, where: str) -> None:
        self._output, self._where = output, where
        self._cipher = cipher
        self._waiting = bytearray()
        self._position = 0
        self._pages: list[int] = []  # where each began, in the writer's bytes
        self._next = len(MAGIC)
        self._needed = 0  # bytes of the page that waits
        self._is_in_footer = False
        output.write(modules.ENCRYPTED_MAGIC)

    @property
    def closed(self) -> bool:
        """Return True if nothing more may be written."""
        return self._output.closed

    @property
    def size(self) -> int:
        """The number of bytes written to the file."""
        return self._output.size

    @property
    def tail(self) -> bytes:
        """The last bytes of the file."""
        return self._output.tail

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes of the writer's."""
        if self.closed:
            raise StorageError(f"{self._where} was abandoned.")
        part = memoryview(data)
        skipped = max(0, min(len(part), len(MAGIC) - self._position))  # the magic is another one
        self._position += len(part)
        self._waiting += part[skipped:]
        if not self._is_in_footer and len(self._waiting) >= self._needed:
            self._seal_pages()
        return len(part)

    def _seal_pages(self) -> None:
        start = 0
        with memoryview(self._waiting) as waiting:
            while (page := self._page(waiting, start)) is not None:
                header_end, end = page
                self._output.write(self._cipher.sealed(waiting[start:header_end]))
                self._output.write(self._cipher.sealed(waiting[header_end:end]))
                self._pages.append(self._next)
                self._next += end - start
                start = end
        del self._waiting[:start]
        self._needed = max(0, self._needed - start)

    def _page(self, waiting: memoryview, start: int) -> tuple[int, int] | None:
        """Return the ends of the header of the page at ``start`` and of its body; None: not whole yet."""
        self._needed = 0
        try:
            header, header_end = modules.read_struct(waiting[start : start + _LONGEST_HEADER])
        except StorageError:  # cut off, or the footer's first bytes
            self._is_in_footer = _is_footer(waiting[start : start + 16])
            return None
        if header[2].kind is not ModuleKind.I32:
            self._is_in_footer = True
            return None
        end = start + header_end + header[_PAGE_SIZE].value
        if end > len(waiting):
            self._needed = end
            return None
        return start + header_end, end

    def tell(self) -> int:
        """Return the number of bytes that the writer has written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: only ``finish`` makes the file visible."""

    def close(self) -> None:
        """Do nothing: a Parquet writer that closes its file may do so because of an error."""

    def finish(self) -> None:
        """Write the footer, and make the file complete and lasting."""
        length = int.from_bytes(self._waiting[-TAIL_BYTES:-4], "little")
        if self._waiting[-4:] != MAGIC or length + TAIL_BYTES != len(self._waiting):
            raise StorageError(f"{self._where}: what was written between pages and footer is not known.")
        footer, _ = modules.read_struct(memoryview(self._waiting)[:length])
        sealed = _CRYPTO + self._cipher.sealed(modules.write_struct(self._moved(footer)))
        self._output.write(sealed + len(sealed).to_bytes(4, "little") + modules.ENCRYPTED_MAGIC)
        self._output.finish()

    def abort(self) -> None:
        """Drop the file; see ``OutputFile``."""
        self._output.abort()

    def _moved(self, footer: Struct) -> Struct:
        """Return the footer with the places and sizes of the encrypted file."""
        for group in footer[_ROW_GROUPS].value.values:
            total = 0
            for chunk in group[_COLUMNS].value.values:
                metadata: Struct = chunk[_METADATA].value
                total += self._resize(metadata)
                for struct, numbers in ((chunk, (_CHUNK_OFFSET,)), (metadata, _PLACES)):
                    self._move(struct, numbers)
            self._move(group, (_GROUP_OFFSET,))
            if _GROUP_SIZE in group:
                group[_GROUP_SIZE].value = total
        return footer

    def _resize(self, metadata: Struct) -> int:
        start = min(metadata[number].value for number in _PLACES if _is_place(metadata.get(number)))
        size: modules.ThriftField = metadata[_COMPRESSED_SIZE]
        end = start + size.value
        size.value += _SHIFT * (bisect_left(self._pages, end) - bisect_left(self._pages, start))
        return int(size.value)

    def _move(self, struct: Struct, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            field = struct.get(number)
            if _is_place(field):
                assert field is not None
                field.value += _SHIFT * bisect_left(self._pages, field.value)


_PLACES = (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE)


def _is_place(field: modules.ThriftField | None) -> bool:
    return field is not None and field.value > 0


def _is_footer(start: memoryview) -> bool:
    """Return True if bytes begin a footer: its second field is a list, that of a page's header a number."""
    place = 1
    while place < len(start) and start[place] & 0x80:
        place += 1
    return place + 1 < len(start) and start[place + 1] & 0x0F == ModuleKind.LIST
