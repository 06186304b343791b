"""An encrypted Parquet file as a plain one for its reader: decrypted in memory, a column chunk at a time.

A decrypted chunk is shorter than the encrypted one. It stands where that began, and nothing refers to the
rest of the place; so all that the footer says of places stays right.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import StorageError, UnsupportedFeatureError
from . import modules
from .modules import MAGIC, TAIL_BYTES, Struct

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.files import FileKey

_KEPT_CHUNKS = 4
# of FileCryptoMetaData: anyone can forge it, and a value takes a hundred bytes in memory
_MOST_CRYPTO_BYTES = 2**16

# Fields of the footer's structs, by Parquet's own numbers.
_ROW_GROUPS, _ALGORITHM, _SIGNING_KEY = 4, 8, 9  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_METADATA, _CRYPTO, _SEALED_METADATA = 3, 8, 9  # of ColumnChunk
_INDEXES = (4, 5, 6, 7)  # of ColumnChunk: where page indexes lie
_BLOOM_FILTER = (14, 15)  # of ColumnMetaData
_PATH, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 7, 9, 11  # of ColumnMetaData
_WITH_COLUMN_KEY = 2  # of ColumnCryptoMetaData
_COMPRESSED_PAGE_SIZE = 3  # of PageHeader


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Where a column chunk lies, and which one it is."""

    start: int
    size: int
    row_group: int
    column: int
    has_dictionary: bool


class DecryptedFile(io.RawIOBase):
    """The plain form of an encrypted file, for random reads; ``size`` counts its bytes."""

    def __init__(self, source: pa.NativeFile, key: FileKey, where: str) -> None:
        super().__init__()
        self._source, self._where = source, where
        self._cipher = modules.Cipher(key, where)
        footer, self._additional, place = self._read_footer()
        self._chunks = _chunks_of(footer, place, where)
        self._starts = [chunk.start for chunk in self._chunks]
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        plain = modules.write_struct(_without_encryption(footer))
        self._end_place = place
        self._end = plain + len(plain).to_bytes(4, "little") + MAGIC
        self._size = place + len(self._end)
        self._place = 0

    def _read_footer(self) -> tuple[Struct, modules.Additional, int]:
        size = self._source.size()
        end = self._source.read_at(min(TAIL_BYTES, size), max(0, size - TAIL_BYTES))
        length = modules.footer_length(end, self._where, is_encrypted=True)
        place = size - TAIL_BYTES - length
        if place < len(MAGIC):
            raise StorageError(f"{self._where} is truncated: its footer is longer than the file.")
        data = memoryview(self._source.read_at(length, place))
        crypto, start = self._struct(data[:_MOST_CRYPTO_BYTES])
        additional = modules.Additional.of(crypto, self._where)
        plain, _ = self._cipher.opened(data, start, additional.of_module(modules.Module.FOOTER))
        footer, _ = self._struct(plain)
        return footer, additional, place

    def _struct(self, data: bytes | memoryview) -> tuple[Struct, int]:
        try:
            return modules.read_struct(data)
        except StorageError as error:
            raise StorageError(f"{self._where} is damaged: {error}.") from None

    # --- as a file ---

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def size(self) -> int:
        """Return the number of bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Choose where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes."""
        stop = self._size if count < 0 else min(self._size, self._place + count)
        found = self._between(self._place, stop)
        self._place += len(found)
        return found

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Fill a buffer with the next bytes."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Close the encrypted file, too."""
        if not self.closed:
            self._source.close()
        super().close()

    # --- what it holds ---

    def _between(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        inside = self._whole_chunk(start, stop)
        if inside is not None:
            return inside
        out = bytearray(stop - start)
        _overlay(out, start, MAGIC, 0)
        first = max(0, bisect_right(self._starts, start) - 1)
        for index in range(first, len(self._chunks)):
            chunk = self._chunks[index]
            if chunk.start >= stop:
                break
            if chunk.start + chunk.size > start:
                _overlay(out, start, self._decrypted(index), chunk.start)
        _overlay(out, start, self._end, self._end_place)
        return bytes(out)

    def _whole_chunk(self, start: int, stop: int) -> bytes | None:
        """Return the requested bytes without a copy, if they are exactly one chunk, the usual case."""
        index = bisect_right(self._starts, start) - 1
        if index < 0 or self._chunks[index].start != start or stop != start + self._chunks[index].size:
            return None
        return self._decrypted(index).ljust(stop - start, b"\0")

    def _decrypted(self, index: int) -> bytes:
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        chunk = self._chunks[index]
        data = memoryview(self._source.read_at(chunk.size, chunk.start))
        plain = b"".join(self._pages(chunk, data))
        self._kept[index] = plain
        if len(self._kept) > _KEPT_CHUNKS:
            self._kept.popitem(last=False)
        return plain

    def _pages(self, chunk: _Chunk, data: memoryview) -> list[bytes]:
        """Return the headers and bodies of a chunk's pages, in turn."""
        parts: list[bytes] = []
        place = page = 0
        in_dictionary = chunk.has_dictionary
        additional, where = self._additional, (chunk.row_group, chunk.column)
        while place < len(data):
            kinds = _DICTIONARY if in_dictionary else _DATA
            ordinals = where if in_dictionary else (*where, page)
            header, place = self._cipher.opened(data, place, additional.of_module(kinds[0], *ordinals))
            body, place = self._cipher.opened(data, place, additional.of_module(kinds[1], *ordinals))
            parts += [self._plain_header(header, len(body)) if additional.file else header, body]
            page, in_dictionary = page + (not in_dictionary), False
        return parts

    def _plain_header(self, header: bytes, size: int) -> bytes:
        """Return a page's header with the size of the plain page, where it has that of the encrypted one."""
        struct, _ = self._struct(header)
        struct[_COMPRESSED_PAGE_SIZE].value = size
        return modules.write_struct(struct)


_DICTIONARY = (modules.Module.DICTIONARY_PAGE_HEADER, modules.Module.DICTIONARY_PAGE)
_DATA = (modules.Module.DATA_PAGE_HEADER, modules.Module.DATA_PAGE)


def _overlay(out: bytearray, start: int, data: bytes, place: int) -> None:
    """Put data that stand at ``place`` of a file into the part of it that begins at ``start``."""
    first, last = max(start, place), min(start + len(out), place + len(data))
    if first < last:
        out[first - start : last - start] = memoryview(data)[first - place : last - place]


def _chunks_of(footer: Struct, end: int, where: str) -> list[_Chunk]:
    try:
        found = [
            _chunk(chunk, group_number, number, where)
            for group_number, group in enumerate(footer[_ROW_GROUPS].value.values)
            for number, chunk in enumerate(group[_COLUMNS].value.values)
        ]
    except (KeyError, AttributeError, TypeError) as error:
        raise StorageError(f"{where} is damaged: its footer lacks {error}.") from None
    found.sort(key=lambda one: one.start)
    if any(one.start < len(MAGIC) or one.start + one.size > end for one in found):
        raise StorageError(f"{where} is damaged: a column chunk lies outside of the file.")
    return found


def _chunk(chunk: Struct, row_group: int, column: int, where: str) -> _Chunk:
    crypto = chunk.get(_CRYPTO)
    if crypto is not None and _WITH_COLUMN_KEY in crypto.value:
        raise UnsupportedFeatureError(
            f"{where} has a key of its own for column {column + 1}; DuckLake has one key for a file."
        )
    metadata: Struct = chunk[_METADATA].value
    start = metadata[_DATA_PAGE].value
    dictionary = metadata[_DICTIONARY_PAGE].value if _DICTIONARY_PAGE in metadata else 0
    has_dictionary = 0 < dictionary < start
    return _Chunk(
        dictionary if has_dictionary else start,
        metadata[_COMPRESSED_SIZE].value,
        row_group,
        column,
        has_dictionary,
    )


def _without_encryption(footer: Struct) -> Struct:
    """Remove all signs of encryption from a footer, and the places of other modules."""
    for number in (_ALGORITHM, _SIGNING_KEY):
        footer.pop(number, None)
    for group in footer[_ROW_GROUPS].value.values:
        for chunk in group[_COLUMNS].value.values:
            for number in (_CRYPTO, _SEALED_METADATA, *_INDEXES):
                chunk.pop(number, None)
            for number in _BLOOM_FILTER:
                chunk[_METADATA].value.pop(number, None)
    return footer
