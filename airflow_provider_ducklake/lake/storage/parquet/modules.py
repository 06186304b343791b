"""Modules of encrypted Parquet files: each a length, a nonce, AES-GCM's ciphertext and its tag.

DuckDB binds no module to its place: what AES-GCM calls additional data is empty. The standard has a file's
own bytes there, and the place. We read both, and write as DuckDB does, which cannot always read the other.
*Source:* Apache Parquet, "Parquet Modular Encryption"; the reference's files (docs/sources.md, encryption).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import StorageError, UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...format.files import FileKey


_LENGTH_BYTES, _NONCE_BYTES, _TAG_BYTES = 4, 12, 16
OVERHEAD = _LENGTH_BYTES + _NONCE_BYTES + _TAG_BYTES
# Of FileCryptoMetaData and what is in it.
_ALGORITHM, _GCM, _GCM_CTR, _AAD_PREFIX, _AAD_FILE, _AAD_IS_SUPPLIED = 1, 1, 2, 1, 2, 3


class Module(IntEnum):
    """What a module is, as the standard numbers it."""

    FOOTER = 0
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5


class Cipher:
    """Opens and seals the modules of one file; ``where`` is its path, for messages."""

    def __init__(self, key: FileKey, where: str) -> None:
        self._where = where
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise StorageError(
                f"{where} is encrypted, and the package cryptography is not installed where this runs: pip "
                "install cryptography."
            ) from None
        try:
            self._aes: Any = AESGCM(key.raw)
        except ValueError as error:
            raise StorageError(f"Cannot open {where}: {error}.") from None

    def opened(self, data: memoryview, start: int, additional: bytes = b"") -> tuple[bytes, int]:
        """Decrypt the module at ``start``, and return its content and its end."""
        from cryptography.exceptions import InvalidTag

        body = start + _LENGTH_BYTES
        length = int.from_bytes(data[start:body], "little")
        end = body + length
        if not length >= _NONCE_BYTES + _TAG_BYTES or end > len(data):
            raise StorageError(f"{self._where} is damaged: an encrypted module is cut off.")
        nonce = data[body : body + _NONCE_BYTES]
        try:
            return self._aes.decrypt(nonce, data[body + _NONCE_BYTES : end], additional), end
        except InvalidTag:
            raise StorageError(
                f"{self._where} cannot be decrypted: it was changed, or the catalog has another key for it."
            ) from None

    def sealed(self, plain: bytes | memoryview) -> bytes:
        """Return the module that holds ``plain``, as DuckDB writes it."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = self._aes.encrypt(nonce, plain, None)
        return (len(sealed) + _NONCE_BYTES).to_bytes(_LENGTH_BYTES, "little") + nonce + sealed


@dataclass(frozen=True, slots=True)
class Additional:
    """The additional data of a file's modules; ``file`` is empty where there is none, as DuckDB writes."""

    file: bytes = b""

    @classmethod
    def of(cls, crypto: Struct, where: str) -> Additional:
        """Return that of a file, by its FileCryptoMetaData."""
        algorithm: Struct = _checked(crypto, _ALGORITHM, dict, where) or {}
        if _GCM not in algorithm:
            name = "AES_GCM_CTR_V1" if _GCM_CTR in algorithm else "an unknown algorithm"
            raise UnsupportedFeatureError(
                f"{where} is encrypted with {name}; DuckLake's clients, and this release, read AES_GCM_V1."
            )
        gcm: Struct = _checked(algorithm, _GCM, dict, where)
        if _checked(gcm, _AAD_IS_SUPPLIED, bool, where):
            raise UnsupportedFeatureError(
                f"{where} is encrypted with an AAD prefix that is stored elsewhere, which a lake cannot keep."
            )
        parts = (_checked(gcm, number, bytes, where) for number in (_AAD_PREFIX, _AAD_FILE))
        return cls(b"".join(part or b"" for part in parts))

    def of_module(self, module: Module, *ordinals: int) -> bytes:
        """Return that of one module; ``ordinals`` are its row group's, its column's and its page's."""
        if not self.file:
            return b""
        places = b"".join((one & 0xFFFF).to_bytes(2, "little") for one in ordinals)
        return self.file + bytes([module]) + places


def _checked(struct: Struct, number: int, type_: type, where: str) -> Any:  # noqa: ANN401 - of that type
    """Return the value of a field, None if it is absent; what stands there is not authenticated."""
    value = struct[number].value if number in struct else None
    if not isinstance(value, type_ | None):
        raise StorageError(f"{where} is damaged: a field about its encryption has another type.")
    return value


# The end of a Parquet file: its last bytes, and how many rows its footer says that it has.


MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # footer length word and magic
READ_AHEAD_BYTES = (
    2**16
)  # at once from a store: as many as Arrow's reader asks for first, so that a cache helps
_MOST_BYTES = 2**29  # of a footer


def footer_length(tail: bytes, where: str, *, is_encrypted: bool = False) -> int:
    """Return the length word of a file that ends with ``tail``."""
    magic = tail[-4:]
    if len(tail) < TAIL_BYTES or magic not in (MAGIC, ENCRYPTED_MAGIC):
        raise StorageError(f"{where} is not a complete Parquet file: it does not end with a footer.")
    if is_encrypted and magic == MAGIC:
        raise StorageError(
            f"{where} is not encrypted, although its lake is. DuckLake's clients refuse it, too: it "
            "may have been put in the place of another file."
        )
    if not is_encrypted and magic == ENCRYPTED_MAGIC:
        raise UnsupportedFeatureError(f"{where} is an encrypted Parquet file, and no lake has a key for it.")
    length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
    if length > _MOST_BYTES:
        raise StorageError(
            f"{where} is damaged: its footer is to have {length} bytes, and one has {_MOST_BYTES} at most."
        )
    return length


_SIGNATURE_BYTES = 28  # of a plain footer behind encrypted columns: nonce and tag


def refuse_encrypted_columns(metadata: pq.FileMetaData, source: pa.NativeFile, where: str) -> None:
    """Refuse a file whose columns are encrypted though its footer is not.

    pyarrow does not say so, and ends the process when it is asked for such a column.
    """
    tail = source.read_at(TAIL_BYTES, max(0, source.size() - TAIL_BYTES))
    if footer_length(tail, where) - metadata.serialized_size == _SIGNATURE_BYTES:
        raise UnsupportedFeatureError(
            f"{where} has encrypted columns behind a plain footer, and no lake has a key for them."
        )


def check_row_counts(metadata: pq.FileMetaData, where: str, most: int | None = None) -> None:
    """Refuse a footer whose numbers of rows do not add up, or that has more than ``most`` rows."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise StorageError(
            f"{where} is damaged: its footer says {metadata.num_rows} rows, and its row groups {sum(counts)}."
        )
    if most is not None and metadata.num_rows > most:
        raise StorageError(f"{where} is damaged: it has {metadata.num_rows} rows, and may have {most}.")


# Thrift's compact protocol as Parquet uses it: structs read as trees, changed, and written again.
#
# A struct is a dictionary of its fields by their ids, without names: what this release does not
# support in a footer stays in it.
# *Source:* Apache Thrift, "Thrift Compact protocol encoding".


class ModuleKind(IntEnum):
    """The type of a field; ``TRUE`` and ``FALSE`` are values, too."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


@dataclass(slots=True)
class ThriftField:
    """A field's value: an int, bytes (a double's, too), a ``Struct``, a ``Items`` of them, a bool."""

    kind: ModuleKind
    value: Any


@dataclass(slots=True)
class Items:
    """The values of a list or a set, all of one kind."""

    kind: ModuleKind
    values: list[Any]


Struct: TypeAlias = dict[int, ThriftField]

_DEEPEST = 64
_MOST_VALUES = 2**25  # a byte may be one, and each takes a hundred in memory
_DOUBLE_BYTES = 8
_SHORT = 15  # a list's length, or the distance between two ids, has its own byte from here on


def read_struct(data: bytes | memoryview, start: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at ``start``, and where it ends."""
    reader = _ThriftReader(memoryview(data), start)
    try:
        return reader.struct(0), reader.place
    except (IndexError, ValueError) as error:
        raise StorageError(f"the Thrift at byte {start} is damaged ({error})") from None


def read_items(data: bytes | memoryview, start: int) -> tuple[Items, int]:
    """Return the list that begins at ``start``, and where it ends."""
    reader = _ThriftReader(memoryview(data), start)
    return reader.items(0), reader.place


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number without sign at ``place``, and where it ends."""
    number = shift = 0
    while (byte := data[place]) >= 0x80:  # noqa: PLR2004 - the bit that says that more follows
        number |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
    return number | byte << shift, place + 1


def list_head(data: bytes, place: int) -> tuple[int, int, int]:
    """Return the kind and the number of a list's values, and where they begin."""
    head = data[place]
    if head >> 4 < _SHORT:
        return head & 0x0F, head >> 4, place + 1
    count, place = varint(data, place + 1)
    return head & 0x0F, count, place


def skip(data: bytes, place: int, kind: int, depth: int = 0) -> int:
    """Return the end of the value of a field that begins at ``place``, without parsing it."""
    if kind in _INTEGERS:
        while data[place] >= 0x80:  # noqa: PLR2004 - the bit that says that more follows
            place += 1
        return place + 1
    if kind == _BINARY:
        size, place = varint(data, place)
        return place + size
    if kind in _SIZES:
        return place + _SIZES[kind]
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if kind in _LISTS:
        return _skip_items(data, place, depth)
    if kind != _STRUCT:  # Parquet has no maps
        raise ValueError(f"kind {kind} is not known")
    while head := data[place]:
        place += 1
        if head <= _SHORT:  # the id follows
            _, place = varint(data, place)
        place = skip(data, place, head & 0x0F, depth + 1)
    return place + 1


def _skip_items(data: bytes, place: int, depth: int) -> int:
    kind, count, place = list_head(data, place)
    if count > len(data) - place:  # each takes a byte at least
        raise ValueError("a list is too long")
    if kind in _BOOLS:
        return place + count
    for _ in range(count):
        place = skip(data, place, kind, depth + 1)
    return place


# As plain numbers: they are compared once for each field of a footer.
_BINARY, _STRUCT = int(ModuleKind.BINARY), int(ModuleKind.STRUCT)
_INTEGERS = frozenset(map(int, (ModuleKind.I16, ModuleKind.I32, ModuleKind.I64)))
_LISTS = frozenset(map(int, (ModuleKind.LIST, ModuleKind.SET)))
_BOOLS = frozenset(map(int, (ModuleKind.TRUE, ModuleKind.FALSE)))
_SIZES = {
    int(ModuleKind.TRUE): 0,
    int(ModuleKind.FALSE): 0,
    int(ModuleKind.BYTE): 1,
    int(ModuleKind.DOUBLE): _DOUBLE_BYTES,
}


class _ThriftReader:
    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self.place = place
        self._left = _MOST_VALUES

    def _byte(self) -> int:
        byte = self._data[self.place]
        self.place += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise ValueError(f"{count} bytes are missing")
        self.place += count
        return bytes(self._data[self.place - count : self.place])

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
                return number
            shift += 7
            if shift > 63:  # noqa: PLR2004 - no number has more bits
                raise ValueError("a number is too long")

    def _integer(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST_VALUES} values")

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        found: Struct = {}
        last = 0
        while head := self._byte():
            self._take(1)
            kind = ModuleKind(head & 0x0F)
            last = last + (head >> 4) if head >> 4 else self._integer()
            value = (
                kind is ModuleKind.TRUE
                if kind in (ModuleKind.TRUE, ModuleKind.FALSE)
                else self._value(kind, depth)
            )
            found[last] = ThriftField(kind, value)
        return found

    def _value(self, kind: ModuleKind, depth: int) -> Any:  # noqa: ANN401 - see Field
        match kind:
            case ModuleKind.BYTE:
                return self._byte()
            case ModuleKind.I16 | ModuleKind.I32 | ModuleKind.I64:
                return self._integer()
            case ModuleKind.DOUBLE:
                return self._bytes(_DOUBLE_BYTES)
            case ModuleKind.BINARY:
                return self._bytes(self._varint())
            case ModuleKind.LIST | ModuleKind.SET:
                return self.items(depth + 1)
            case ModuleKind.STRUCT:
                return self.struct(depth + 1)
            case _:  # Parquet has no maps
                raise ValueError(f"kind {kind} is not known")

    def items(self, depth: int) -> Items:
        head = self._byte()
        kind, count = ModuleKind(head & 0x0F), head >> 4
        if count == _SHORT:
            count = self._varint()
        if depth > _DEEPEST or count > len(self._data) - self.place:  # each takes a byte at least
            raise ValueError("a list is too long")
        self._take(count)
        if kind in (ModuleKind.TRUE, ModuleKind.FALSE):
            return Items(kind, [self._byte() == ModuleKind.TRUE for _ in range(count)])
        return Items(kind, [self._value(kind, depth) for _ in range(count)])


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, field in sorted(struct.items()):
        kind = field.kind
        if kind in (ModuleKind.TRUE, ModuleKind.FALSE):
            kind = ModuleKind.TRUE if field.value else ModuleKind.FALSE
        distance = number - last
        if 0 < distance <= _SHORT:
            out.append(distance << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        if kind not in (ModuleKind.TRUE, ModuleKind.FALSE):
            _write_value(out, kind, field.value)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: ModuleKind, value: Any) -> None:  # noqa: ANN401 - see Field
    match kind:
        case ModuleKind.BYTE:
            out.append(value)
        case ModuleKind.I16 | ModuleKind.I32 | ModuleKind.I64:
            _write_integer(out, value)
        case ModuleKind.DOUBLE:
            out += value
        case ModuleKind.BINARY:
            _write_varint(out, len(value))
            out += value
        case ModuleKind.LIST | ModuleKind.SET:
            _write_items(out, value)
        case _:
            _write_struct(out, value)


def _write_items(out: bytearray, items: Items) -> None:
    count, kind = len(items.values), items.kind
    out.append(min(count, _SHORT) << 4 | kind)
    if count >= _SHORT:
        _write_varint(out, count)
    for value in items.values:
        if kind in (ModuleKind.TRUE, ModuleKind.FALSE):
            out.append(ModuleKind.TRUE if value else ModuleKind.FALSE)
        else:
            _write_value(out, kind, value)


def _write_integer(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else ~(number << 1))


def _write_varint(out: bytearray, number: int) -> None:
    while number >= 0x80:  # noqa: PLR2004 - the bit that says that more follows
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
