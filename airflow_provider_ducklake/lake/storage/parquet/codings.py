"""Which columns of a Parquet file Spark's own reader cannot decode, by its footer; pyarrow decodes them.

*Source:* each codec, encoding and physical type, read by Spark 4.2 (``tests/spark/test_codings.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow.parquet as pq

# pyarrow calls LZ4_RAW so; the older LZ4, which it calls UNKNOWN, has two framings: one kills the JVM
_CODECS = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4"))
_ENCODINGS = frozenset(
    (
        "PLAIN",
        "PLAIN_DICTIONARY",
        "RLE_DICTIONARY",
        "RLE",
        "BIT_PACKED",
        "DELTA_BINARY_PACKED",
        "DELTA_LENGTH_BYTE_ARRAY",
        "DELTA_BYTE_ARRAY",
    )
)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A leaf column that Spark's own reader cannot decode: its path in the file, and what Spark lacks.

    Without a column it is the file that Spark cannot open.
    """

    column: str
    reason: str

    def __str__(self) -> str:
        """Name both, as a part of a sentence."""
        return f"column {self.column} {self.reason}" if self.column else self.reason


def undecodable(metadata: pq.FileMetaData, leaves: Collection[int] | None = None) -> Iterator[Undecodable]:
    """Yield the leaf columns of a file that Spark's own reader cannot decode, in order, once each.

    ``leaves`` are the indexes of those to look at; None: all. A logical type that Spark does not know is one
    of the whole file, as is a key of the footer without a value: Spark cannot open it. What a footer leaves
    out counts as not decodable. pyarrow ends the process over a plain footer of encrypted columns: the caller
    makes sure that there are none.
    """
    if any(not value and not key.startswith(_OF_SPARK) for key, value in (metadata.metadata or {}).items()):
        yield Undecodable("", "a key of its footer has no value")
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    is_of_impala = (metadata.created_by or "").startswith("impala")
    for leaf in range(metadata.num_columns):
        column = metadata.schema.column(leaf)
        reason = "has a logical type that Spark has no reader for" if _is_unknown(column) else None
        if leaves is None or leaf in leaves:
            chunks = (_of_chunk(group.column(leaf), is_of_impala=is_of_impala) for group in groups)
            reason = reason or _of_type(column) or next(filter(None, chunks), None)
        if reason is not None:
            yield Undecodable(column.path, reason)


_DICTIONARIES = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_OF_SPARK = b"org.apache.spark."  # whose keys may have empty values, which pyarrow does not tell from none


def is_in_old_calendar(metadata: pq.FileMetaData) -> bool:
    """Whether Spark shifts dates and times of a file, which no other reader does.

    *Source:* Spark's ``DataSourceUtils.datetimeRebaseSpec``.
    """
    said = metadata.metadata or {}
    version = said.get(b"org.apache.spark.version")
    return version is not None and (version < b"3.0.0" or any(key in said for key in _OLD_CALENDAR))


_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def _is_unknown(column: pq.ColumnSchema) -> bool:
    return bool(column.logical_type.type == "UNDEFINED")


def _of_type(column: pq.ColumnSchema) -> str | None:
    logical = column.logical_type.type
    if logical == "DECIMAL" and column.physical_type == "BYTE_ARRAY":
        return "holds decimals as BYTE_ARRAY"
    return "is FLOAT16" if logical == "FLOAT16" else None


def _of_chunk(chunk: pq.ColumnChunkMetaData, *, is_of_impala: bool) -> str | None:
    if is_of_impala and _DICTIONARIES & set(chunk.encodings):
        return "has a dictionary of Impala's, whose last indexes are fewer than Spark wants"
    if chunk.compression not in _CODECS:
        return f"is compressed with {_codec(chunk.compression)}"
    if unknown := sorted(set(chunk.encodings) - _ENCODINGS):
        return f"is encoded as {unknown[0]}"
    return None if chunk.encodings else "does not say how it is encoded"


def _codec(name: str) -> str:
    return "the codec LZ4 in the framing of Hadoop or another" if name == "UNKNOWN" else name
