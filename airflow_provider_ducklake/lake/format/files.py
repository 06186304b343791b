"""Data and delete files: as a job wrote them, and as a snapshot holds them."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from ..errors import CatalogError
from .limits import KEY_BYTES
from .types.ducklake_types import DuckLakeType, ScalarKind
from .types.geometry import GeometryStats
from .types.values import OrderKey, order_key

if TYPE_CHECKING:
    from .snapshots import ColumnId, DataFileId, DeleteFileId, MappingId, PartitionId, SnapshotId


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column or nested field of a file, by the file's own name, and the table's column that it fills.

    ``parent`` is the place of the enclosing field in the same mapping. With ``is_partition`` the value does
    not lie in the file: it is the one of the folder ``name=value``.
    """

    source_name: str
    column_id: ColumnId
    parent: int | None = None
    is_partition: bool = False


NameMapping: TypeAlias = tuple[MappedColumn, ...]


def same_mapping_key(mapping: NameMapping) -> frozenset[tuple[tuple[str, ...], ColumnId, bool]]:
    """Return a key that is equal for equal mappings, whatever the order of a file's columns."""
    paths: list[tuple[str, ...]] = []
    for one in mapping:
        above = () if one.parent is None else paths[one.parent]
        paths.append((*above, one.source_name))
    return frozenset(
        (path, one.column_id, one.is_partition) for path, one in zip(paths, mapping, strict=True)
    )


@dataclass(frozen=True, slots=True)
class FirstDeletes:
    """The delete file of a data file that is registered with it: rows that no snapshot of the lake shows.

    ``path`` is absolute, or relative to the table's directory.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that was written and is not registered yet.

    ``path`` is absolute, or relative to the table's directory. ``footer_size`` is the length word before the
    trailing magic. ``column_stats`` has an entry for each leaf column; ``partition_values`` one text (or None
    for NULL) for each key of the partition spec, in key order. ``mapping`` is that of a file whose columns
    are found by name; without one they are found by field id. ``has_row_ids``: its rows carry their former
    row ids. ``row_group_count``: None if it was not read. ``deletes``: rows of it that were
    deleted elsewhere. ``narrower`` describes columns by whose types in the file DuckDB misreads conditions.
    """

    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    column_stats: Mapping[ColumnId, ColumnStats] = field(default_factory=dict)
    partition_values: tuple[str | None, ...] = ()
    mapping: NameMapping | None = None
    has_row_ids: bool = False
    row_group_count: int | None = None
    encryption_key: FileKey | None = None
    deletes: FirstDeletes | None = None
    narrower: tuple[str, ...] = ()

    @property
    def live_count(self) -> int:
        """The number of its rows that the lake shows."""
        return self.record_count - (self.deletes.delete_count if self.deletes else 0)


@dataclass(frozen=True, slots=True)
class LiveDeleteFile:
    """The delete file attached to a data file at a snapshot."""

    id: DeleteFileId
    path: str  # absolute
    format: str
    delete_count: int
    file_size_bytes: int
    begin_snapshot: SnapshotId
    partial_max: SnapshotId | None
    footer_size: int | None = None
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class LiveDataFile:
    """A data file as a snapshot holds it; ``mapping`` is that of ``mapping_id``.

    ``older_delete_files`` are others beside
    ``delete_file``, which there should not be: a flush of the reference's makes one of the marks of a file
    that has ended with a delete file of its own (observed on 1.5.5). The rows of all of them are deleted.
    """

    id: DataFileId
    path: str  # absolute
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    row_id_start: int | None
    begin_snapshot: SnapshotId
    partition_id: PartitionId | None = None
    mapping_id: MappingId | None = None
    mapping: NameMapping | None = None
    partial_max: SnapshotId | None = None
    delete_file: LiveDeleteFile | None = None
    older_delete_files: tuple[LiveDeleteFile, ...] = ()
    column_stats: Mapping[ColumnId, ColumnStats] = field(default_factory=dict)
    partition_values: tuple[str | None, ...] = ()
    encryption_key: FileKey | None = None

    @property
    def has_keys(self) -> bool:
        """True if it or one of its delete files is encrypted."""
        delete_files = (self.delete_file, *self.older_delete_files)
        return any(one is not None and one.encryption_key is not None for one in (self, *delete_files))


# Column statistics of files and tables: bounds and counts, and how they merge.
#
# A bound of ``None`` means *unknown* (or *no value at all*), never zero. Table statistics must cover the
# live data or have no row for the column: a row without bounds over data with values makes DuckDB lose rows
# after its next insert, so unknown absorbs. *Source:* observed behaviour of the reference (docs/sources.md,
# inserts and known faults).


_Bound: TypeAlias = tuple[str | None, bool | None]  # the text, and whether it is a value
_CUT = frozenset(
    {ScalarKind.STRING, ScalarKind.JSON, ScalarKind.BLOB, ScalarKind.UUID}
)  # what the format does not compare by value
STRING_BOUND_BYTES = 256  # longer strings are cut to a bound of this length


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one leaf column in one file; bounds are texts as in ``ducklake_file_column_stats``.

    ``min_is_exact``, ``max_is_exact``: the bound is a value of the column; None: not recorded.
    """

    column_id: ColumnId
    value_count: int | None  # non-null values
    null_count: int | None
    min_value: str | None
    max_value: str | None
    contains_nan: bool | None = None  # None for types without NaN, or unknown
    column_size_bytes: int | None = None
    only_nan: bool = False  # every non-null value is NaN: missing bounds are exact, not unknown
    extra_stats: str | None = None
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None

    def with_exactness(self, type_: DuckLakeType, *, low: bool = True, high: bool = True) -> ColumnStats:
        """Return statistics that say whether their bounds are values of the column.

        ``low`` and ``high`` say it of texts and bytes, which may be cut; bounds of other types always are.
        """
        by_value = type_.facts.kind not in _CUT
        return replace(
            self,
            min_is_exact=None if self.min_value is None else by_value or low,
            max_is_exact=None if self.max_value is None else by_value or high,
        )

    def without_bounds(self) -> ColumnStats:
        """Return the statistics of a column whose bounds are not kept: counts and sizes stay."""
        return replace(
            self,
            min_value=None,
            max_value=None,
            contains_nan=None,
            only_nan=False,
            extra_stats=None,
            min_is_exact=None,
            max_is_exact=None,
        )

    @property
    def bounds_unknown(self) -> bool:
        """Return True if values exist (or may exist) that the bounds do not cover."""
        if self.min_value is not None and self.max_value is not None:
            return False
        if self.extra_stats is not None:  # the format's statistics of geometries instead
            return False
        return self.value_count != 0 and not self.only_nan


@dataclass(frozen=True, slots=True)
class TableColumnStats:
    """A row of ``ducklake_table_column_stats``: a superset of every value ever added to the column."""

    column_id: ColumnId
    contains_null: bool
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None
    extra_stats: str | None = None
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None

    @classmethod
    def of_file(cls, stats: ColumnStats, type_: DuckLakeType) -> TableColumnStats | None:
        """Turn one file's statistics into the table's, or None if they are not enough for a row."""
        if stats.bounds_unknown and type_.facts.kind is not ScalarKind.VARIANT:
            return None
        return cls(
            stats.column_id,
            contains_null=stats.null_count is None or stats.null_count > 0,
            contains_nan=stats.contains_nan,
            min_value=stats.min_value,
            max_value=stats.max_value,
            extra_stats=stats.extra_stats,
            min_is_exact=stats.min_is_exact,
            max_is_exact=stats.max_is_exact,
        )

    def merge(self, other: TableColumnStats, type_: DuckLakeType) -> TableColumnStats:
        """Return statistics that cover both; a side without bounds holds no value that could widen them."""
        low = _wider(type_, self._low, other._low, largest=False)
        high = _wider(type_, self._high, other._high, largest=True)
        return TableColumnStats(
            self.column_id,
            contains_null=self.contains_null or other.contains_null,
            contains_nan=_either(self.contains_nan, other.contains_nan),
            min_value=low[0],
            max_value=high[0],
            extra_stats=_extra(type_, self.extra_stats, other.extra_stats),
            min_is_exact=low[1],
            max_is_exact=high[1],
        )

    @property
    def _low(self) -> _Bound:
        return self.min_value, self.min_is_exact

    @property
    def _high(self) -> _Bound:
        return self.max_value, self.max_is_exact


def _extra(type_: DuckLakeType, left: str | None, right: str | None) -> str | None:
    """Merge statistics of geometries; None, which is unknown, for variants, or if one side has none."""
    if type_.facts.kind is not ScalarKind.GEOMETRY:
        return None
    one, other = GeometryStats.of_text(left), GeometryStats.of_text(right)
    return None if one is None or other is None else one.merge(other).text


def _either(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001 - two of the same fact
    """Return the three-valued OR: None if only an unknown value could be true."""
    if left or right:
        return True
    return False if left is False and right is False else None


def _wider(type_: DuckLakeType, left: _Bound, right: _Bound, *, largest: bool) -> _Bound:
    """Return the bound that covers both, and if it is exact; of equal ones, if both are."""
    if left[0] is None or right[0] is None:
        return left if right[0] is None else right
    left_key, right_key = _key(type_, left[0]), _key(type_, right[0])
    if left_key == right_key:
        return left[0], _both(left[1], right[1])
    return right if (right_key > left_key if largest else right_key < left_key) else left


def _key(type_: DuckLakeType, text: str) -> OrderKey:
    try:
        return order_key(type_, text)
    except (ValueError, ArithmeticError) as error:
        raise CatalogError(
            f"The bound {text!r:.80} in the catalog is no {type_}. DuckLakeVerifyOperator names its column; "
            "correct the row, or restore the catalog from a backup."
        ) from error


def _both(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001 - two of the same fact
    return None if left is None or right is None else left and right


@dataclass(frozen=True, slots=True)
class TableStats:
    """A row of ``ducklake_table_stats``; its counts never fall, so only ``next_row_id`` is exact."""

    record_count: int = 0
    next_row_id: int = 0
    file_size_bytes: int = 0

    def add(self, record_count: int, file_size_bytes: int) -> TableStats:
        """Return the statistics after rows were appended."""
        return TableStats(
            self.record_count + record_count,
            self.next_row_id + record_count,
            self.file_size_bytes + file_size_bytes,
        )


def merge_files(
    files: Iterable[Mapping[ColumnId, ColumnStats]], types: Mapping[ColumnId, DuckLakeType]
) -> dict[ColumnId, TableColumnStats | None]:
    """Merge several new files' statistics of each leaf column; None if any of them lacks some."""
    return merge_known((_stats_of_file(stats, types) for stats in files), types)


def _stats_of_file(
    stats: Mapping[ColumnId, ColumnStats], types: Mapping[ColumnId, DuckLakeType]
) -> dict[ColumnId, TableColumnStats | None]:
    return {one: TableColumnStats.of_file(stats[one], types[one]) if one in stats else None for one in types}


def merge_known(
    parts: Iterable[Mapping[ColumnId, TableColumnStats | None]], types: Mapping[ColumnId, DuckLakeType]
) -> dict[ColumnId, TableColumnStats | None]:
    """Merge the statistics of several batches of rows, by leaf column; None if one of them is unknown."""
    merged: dict[ColumnId, TableColumnStats | None] = {}
    for part in parts:
        for column_id, type_ in types.items():
            row = part.get(column_id)
            if column_id not in merged:
                merged[column_id] = row
                continue
            known = merged[column_id]
            merged[column_id] = known.merge(row, type_) if known is not None and row is not None else None
    return merged


def string_bounds(smallest: bytes, largest: bytes) -> tuple[str | None, str | None]:
    """Return texts that bound UTF-8 strings from ``smallest`` to ``largest``, cut as the reference does.

    A bound is None where the catalog cannot hold one: text with a NUL, or bytes that are not UTF-8. Where no
    short text lies above ``largest``, both are.

    >>> string_bounds(b"a", b"b" + "é".encode() * 200)
    ('a', 'c')
    """
    try:
        low, high = _cut(smallest).decode(), _text_above(largest)
    except UnicodeDecodeError:
        return None, None
    if high is None:
        return None, None
    return None if "\0" in low else low, None if "\0" in high else high


def blob_bounds(smallest: bytes, largest: bytes) -> tuple[str | None, str | None]:
    """Return hexadecimal texts that bound byte strings, cut as the reference does; one None, both None.

    >>> blob_bounds(b"", bytes([0, 255]))
    ('', '00FF')
    """
    high = largest
    if len(largest) > STRING_BOUND_BYTES:
        kept = largest[:STRING_BOUND_BYTES].rstrip(b"\xff")
        if not kept:
            return None, None
        high = kept[:-1] + bytes([kept[-1] + 1])
    return smallest[:STRING_BOUND_BYTES].hex().upper(), high.hex().upper()


def fits(value: object) -> bool:
    """Return True if a bound of a file's statistics can be the value itself."""
    return not isinstance(value, bytes) or len(value) <= STRING_BOUND_BYTES


def _cut(value: bytes) -> bytes:
    """Return the longest prefix that ends with a whole character and is short enough for a bound."""
    end = STRING_BOUND_BYTES
    if len(value) <= end:
        return value
    while end and value[end] & _UTF8_KIND == _UTF8_CONTINUATION:
        end -= 1
    return value[:end]


def _text_above(value: bytes) -> str | None:
    """Return a short text at or above ``value``: cut behind its last ASCII letter that has a successor."""
    if len(value) <= STRING_BOUND_BYTES:
        return value.decode()
    head = _cut(value).decode()
    for end in range(len(head), 0, -1):
        if ord(head[end - 1]) < _LAST_ASCII:
            return head[: end - 1] + chr(ord(head[end - 1]) + 1)
    return None


_LAST_ASCII = 127
_UTF8_KIND, _UTF8_CONTINUATION = 0b1100_0000, 0b1000_0000


# How a catalog database stores inlined rows, and what it cannot store; each dialect has its own.


@dataclass(frozen=True, slots=True)
class InlinedForm:
    """The columns and values that a database accepts in tables for inlined rows.

    ``native``: the kinds of types whose values it gets as they are, besides whole numbers of up to 64 bits;
    all others are texts. ``finest_clock``: the most units a second of a time of day. ``kept_names``: names,
    folded, that no column can have there. ``max_name_bytes`` None: no limit.
    """

    max_columns: int
    native: frozenset[ScalarKind]
    has_decimals: bool
    nested_nul: bool
    finest_clock: int = 10**9
    kept_names: frozenset[str] = frozenset()
    max_name_bytes: int | None = None


# Keys of encrypted files, as the catalog has them.
#
# *Source:* what the reference writes and reads (docs/sources.md, encryption).


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of one encrypted file: ``text`` is the catalog's, base64; no log and no message shows it.

    Without a text it is the key that the catalog of an encrypted lake does not have.
    """

    text: str = field(repr=False)

    @classmethod
    def of_length(cls, length: int) -> FileKey:
        """Return a new random key of so many bytes."""
        return cls(base64.b64encode(secrets.token_bytes(length)).decode())

    @property
    def raw(self) -> bytes:
        """The bytes of the key."""
        if not self.text:
            raise ValueError("the catalog of this encrypted lake has no key for it")
        try:
            key = base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the key in the catalog is not base64") from None
        if len(key) not in KEY_BYTES:
            raise ValueError(f"the key in the catalog has {len(key)} bytes; AES takes 16, 24 or 32")
        return key


def key_text(key: FileKey | None) -> str | None:
    """Return the key as the catalog stores it, None for a file that is not encrypted."""
    return None if key is None else key.text
