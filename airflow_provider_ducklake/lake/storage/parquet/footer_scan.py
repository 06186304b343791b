"""A Parquet footer's own bytes, checked before pyarrow shows a column: its accessors end the process.

pyarrow decodes the statistics and the encrypted metadata of a column in C++ code from which no exception
comes: what is wrong there is a SIGABRT. So ``scan`` passes over the whole footer once, collects the layouts
of the column chunks, and refuses whatever pyarrow would not survive.
*Source:* Apache Parquet, ``parquet.thrift``; pyarrow 26, ``metadata.cc`` and ``statistics.cc`` (measured with
damaged footers: tests/interop/test_damaged_footers.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...errors import StorageError, UnsupportedFeatureError
from ..arrow.reshape import BYTE_ARRAY, Leaf, SchemaNode, leaves_of, read_tree
from . import modules
from .modules import MAGIC, ModuleKind

# Fields of the footer's structs, by Parquet's own numbers.
_VERSION, _SCHEMA, _ROWS, _ROW_GROUPS, _CREATED_BY, _ALGORITHM = 1, 2, 3, 4, 6, 8  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_METADATA, _CRYPTO = 3, 8  # of ColumnChunk
_TYPE, _ENCODINGS, _CODEC, _STATISTICS, _PAGES, _SIZES = 1, 2, 4, 12, 13, 16  # of ColumnMetaData
_BOUNDS = frozenset({1, 2, 5, 6})  # of Statistics: the old ones and those of today
_TEXT_BYTES, _HISTOGRAMS = 1, (2, 3)  # of SizeStatistics
_PAGE_TYPE, _PAGE_ENCODING = 1, 2  # of PageEncodingStats
_DATA_PAGES = (0, 3)

# Of the protocol, as plain numbers: they are compared once for each field of a footer.
_I32, _I64, _BINARY, _LIST, _STRUCT = map(
    int, (ModuleKind.I32, ModuleKind.I64, ModuleKind.BINARY, ModuleKind.LIST, ModuleKind.STRUCT)
)
_LAST_ID = 2**15 - 1
_ONE_BYTE = 128  # from here on a number has more bytes
_LAST_CODEC = 7
_LEVELS = frozenset({3, 4})  # encodings that are named for levels, too: RLE, BIT_PACKED


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """How the values of a column chunk are stored: numbers of ``parquet.thrift``.

    ``encodings`` are those of data pages where the footer says so; otherwise of all pages, less those that
    may be of levels alone.
    """

    codec: int
    encodings: frozenset[int]


@dataclass(frozen=True, slots=True)
class FooterLayout:
    """A footer's schema, and how columns are stored; ``layouts`` has a set for each leaf."""

    root: SchemaNode
    leaves: tuple[Leaf, ...]
    layouts: tuple[frozenset[ChunkLayout], ...]


def scan(data: bytes, where: str) -> FooterLayout:
    """Return the layouts of a footer whose columns pyarrow may be asked for."""
    found = _Scan(data)
    try:
        found.file()
        return found.layout()
    except _Encrypted:
        raise UnsupportedFeatureError(
            f"{where} is an encrypted Parquet file: its footer can be read, but columns of it need keys, and "
            "no lake has a key for it. Decrypt it with the engine that wrote it, or insert its rows with it."
        ) from None
    except (IndexError, ValueError, TypeError, StorageError) as error:
        raise StorageError(f"{where} is damaged: its footer cannot be read ({error}).") from None


def with_schema_alone(footer: bytes) -> bytes:
    """Return a Parquet file without rows whose footer has the schema of another, and nothing else."""
    whole, _ = modules.read_struct(footer)
    bare = {_VERSION: whole[_VERSION], _SCHEMA: whole[_SCHEMA], _ROWS: modules.ThriftField(ModuleKind.I64, 0)}
    data = modules.write_struct(
        {**bare, _ROW_GROUPS: modules.ThriftField(ModuleKind.LIST, modules.Items(ModuleKind.STRUCT, []))}
    )
    return MAGIC + data + len(data).to_bytes(4, "little") + MAGIC


class _Encrypted(Exception):  # noqa: N818 - it says what was found, and never leaves this module
    pass


@dataclass(slots=True)
class _Scan:
    """A pass over a footer: every method begins at a place, and returns where what it read ends."""

    data: bytes
    root: SchemaNode | None = None
    leaves: tuple[Leaf, ...] = ()
    # Of each leaf: codec, and the bytes of the lists of encodings and of pages.
    raw: list[set[tuple[int, bytes, bytes]]] = field(default_factory=list)

    def file(self) -> None:
        place = last = 0
        while self.data[place]:
            last, kind, place = self._head(place, last)
            if last == _SCHEMA:
                self.root, place = read_tree(self.data, place)
                self.leaves = leaves_of(self.root)
                self.raw = [set() for _ in self.leaves]
            elif last == _ROW_GROUPS:
                _expect(kind, _LIST)
                kind, count, place = modules.list_head(self.data, place)
                _expect(kind, _STRUCT)
                for _ in range(count):
                    place = self._row_group(place)
            elif last == _ALGORITHM:
                raise _Encrypted
            elif last == _CREATED_BY:
                _expect(kind, _BINARY)
                size, start = modules.varint(self.data, place)
                place = start + size
                self.data[start:place].decode()  # pyarrow shows it as a text
            else:
                place = modules.skip(self.data, place, kind)

    def layout(self) -> FooterLayout:
        if self.root is None:
            raise ValueError("it has no schema")
        layouts = tuple(frozenset(_decoded(*one) for one in raw) for raw in self.raw)
        return FooterLayout(self.root, self.leaves, layouts)

    def _head(self, place: int, last: int) -> tuple[int, int, int]:
        """Return id and kind of the field that begins at ``place``, and where its value does."""
        head = self.data[place]
        place += 1
        if head >> 4:
            _check_order(last + (head >> 4), last)
            return last + (head >> 4), head & 15, place
        number, place = modules.varint(self.data, place)
        number = number >> 1 ^ -(number & 1)
        _check_order(number, last)
        return number, head, place

    def _row_group(self, place: int) -> int:
        last = 0
        while self.data[place]:
            last, kind, place = self._head(place, last)
            if last != _COLUMNS:
                place = modules.skip(self.data, place, kind)
                continue
            _expect(kind, _LIST)
            kind, count, place = modules.list_head(self.data, place)
            _expect(kind, _STRUCT)
            if count != len(self.leaves):
                raise ValueError(f"a row group has {count} columns, and the schema {len(self.leaves)}")
            for leaf, layouts in zip(self.leaves, self.raw, strict=True):
                place = self._chunk(place, leaf, layouts)
        return place + 1

    def _chunk(self, place: int, leaf: Leaf, layouts: set[tuple[int, bytes, bytes]]) -> int:
        data, last, described = self.data, 0, False
        while data[place]:
            last, kind, place = self._head(place, last)
            if last == _METADATA:
                _expect(kind, _STRUCT)
                place, described = self._metadata(place, leaf, layouts), True
            elif last == _CRYPTO:
                raise _Encrypted
            else:
                place = modules.skip(data, place, kind)
        if not described:
            raise ValueError(f"column {leaf.name} has no metadata")
        return place + 1

    def _metadata(  # noqa: C901, PLR0912 - a field each; the loop runs for each field of each chunk
        self, place: int, leaf: Leaf, layouts: set[tuple[int, bytes, bytes]]
    ) -> int:
        data, last, physical, codec = self.data, 0, -1, -1
        encodings = pages = b""
        while head := data[place]:
            if head < 16:  # noqa: PLR2004 - the id does not stand in the byte
                last, kind, place = self._head(place, last)
            else:
                last, kind, place = last + (head >> 4), head & 15, place + 1
            start = place
            if kind == _I64:
                while data[place] >= _ONE_BYTE:
                    place += 1
                place += 1
            elif last == _STATISTICS:
                _expect(kind, _STRUCT)
                place = self._statistics(place, leaf)
                continue
            elif last == _SIZES:
                _expect(kind, _STRUCT)
                place = self._sizes(place, leaf)
                continue
            else:
                place = modules.skip(data, place, kind)
            if last == _TYPE:
                _expect(kind, _I32)
                physical = _small(data, start, place)
            elif last == _CODEC:
                _expect(kind, _I32)
                codec = _small(data, start, place)
            elif last == _ENCODINGS:
                _expect(kind, _LIST)
                encodings = data[start:place]
            elif last == _PAGES:
                _expect(kind, _LIST)
                pages = data[start:place]
        _check_order(last)
        if physical != leaf.physical:
            raise ValueError(f"column {leaf.name} has another type in a row group than in the schema")
        if not 0 <= codec <= _LAST_CODEC:
            raise ValueError(f"column {leaf.name} has a compression codec that Parquet does not have")
        layouts.add((codec, encodings, pages))
        return place + 1

    def _statistics(self, place: int, leaf: Leaf) -> int:
        data, last, width = self.data, 0, leaf.width
        while head := data[place]:
            if head < 16:  # noqa: PLR2004 - as above
                last, kind, place = self._head(place, last)
            else:
                last, kind, place = last + (head >> 4), head & 15, place + 1
            if last not in _BOUNDS:
                place = modules.skip(data, place, kind)
                continue
            _expect(kind, _BINARY)
            size = data[place]
            place += 1
            if size >= _ONE_BYTE:
                size, place = modules.varint(data, place - 1)
            if size < width:
                raise ValueError(f"column {leaf.name} has a bound of {size} bytes, and values of {width}")
            place += size
        _check_order(last)
        return place + 1

    def _sizes(self, place: int, leaf: Leaf) -> int:
        last = 0
        while self.data[place]:
            last, kind, place = self._head(place, last)
            start = place
            place = modules.skip(self.data, place, kind)
            if last == _TEXT_BYTES and leaf.physical != BYTE_ARRAY:
                raise ValueError(f"column {leaf.name} has a size of texts, and is none")
            if last in _HISTOGRAMS:
                _expect(kind, _LIST)
                kind, count, _ = modules.list_head(self.data, start)
                levels = leaf.repetition_levels if last == _HISTOGRAMS[0] else leaf.definition_levels
                if count not in {0, levels + 1}:
                    raise ValueError(
                        f"column {leaf.name} has counts of {count} levels, and {levels + 1} levels"
                    )
        return place + 1


def _small(data: bytes, start: int, end: int) -> int:
    """Return an integer that has a byte of its own; -1 if it is negative, or longer."""
    return data[start] >> 1 if end == start + 1 and not data[start] & 1 else -1


def _check_order(number: int, last: int = -1) -> None:
    """Refuse ids of fields that no writer writes, and that readers interpret differently."""
    if not last < number <= _LAST_ID:
        raise ValueError("fields are not in order")


def _expect(kind: int, wanted: int) -> None:
    if kind != wanted:
        raise ValueError(f"a field has the type {kind}, not {wanted}")


def _decoded(codec: int, encodings: bytes, pages: bytes) -> ChunkLayout:
    page_headers = (
        {key: one.value for key, one in page.items()}
        for page in (_items(pages, ModuleKind.STRUCT) if pages else ())
    )
    of_data = frozenset(
        int(page.get(_PAGE_ENCODING, -1)) for page in page_headers if page.get(_PAGE_TYPE) in _DATA_PAGES
    )
    if of_data:
        return ChunkLayout(codec, of_data)
    return ChunkLayout(codec, frozenset(_items(encodings, ModuleKind.I32) if encodings else ()) - _LEVELS)


def _items(data: bytes, kind: ModuleKind) -> list[Any]:
    found, _ = modules.read_items(data, 0)
    if found.kind is not kind and found.values:
        raise ValueError(f"a list has values of the type {int(found.kind)}, not {int(kind)}")
    return found.values
