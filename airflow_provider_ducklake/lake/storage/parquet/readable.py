"""Which schemas, encodings and codecs of files of others both DuckDB and pyarrow read.

*Source:* measured with DuckDB 1.5.5 and pyarrow 26: files of each physical type in each encoding and codec,
and of each layout of lists and maps (tests/interop/test_readable_files.py measures them again).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..arrow.reshape import PHYSICAL_TYPES, Leaf, SchemaNode
from ..files.filesystem import Location, open_input

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from .footer_scan import ChunkLayout


CODECS = {0: "UNCOMPRESSED", 1: "SNAPPY", 2: "GZIP", 3: "LZO", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4_RAW"}
ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
READ_CODECS = frozenset(CODECS.values()) - {"LZO", "LZ4"}  # pyarrow reads LZ4, which Hadoop frames
_ALWAYS = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
READ_ENCODINGS = {
    "BOOLEAN": frozenset({"PLAIN", "RLE", "PLAIN_DICTIONARY"}),  # the last is what Impala says of each column
    "INT32": _ALWAYS | {"DELTA_BINARY_PACKED"},
    "INT64": _ALWAYS | {"DELTA_BINARY_PACKED"},
    "INT96": _ALWAYS,
    "FLOAT": _ALWAYS | {"BYTE_STREAM_SPLIT"},
    "DOUBLE": _ALWAYS | {"BYTE_STREAM_SPLIT"},
    "BYTE_ARRAY": _ALWAYS | {"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"},
    "FIXED_LEN_BYTE_ARRAY": _ALWAYS | {"DELTA_BYTE_ARRAY"},
}
_WAY_OUT = "rewrite the file, or insert its rows with Spark"


def unread_chunks(leaf: Leaf, layouts: Iterable[ChunkLayout], where: str) -> list[str]:
    """List the codecs and encodings of a column that DuckDB does not read; ``where`` is its name."""
    physical = PHYSICAL_TYPES[leaf.physical]
    codecs = {CODECS[one.codec] for one in layouts} - READ_CODECS
    encodings = {ENCODINGS.get(number, str(number)) for one in layouts for number in one.encodings}
    found = [f"is compressed with {one}, which DuckDB does not read" for one in sorted(codecs)]
    found += [
        f"has values of the type {physical} in the encoding {one}, which DuckDB does not read"
        for one in sorted(encodings - READ_ENCODINGS[physical])
    ]
    return [f"column {where} {one}: {_WAY_OUT}" for one in found]


def unread_by_arrow(root: SchemaNode, error: str) -> str:
    """Explain why pyarrow refuses a schema, for the ``error`` that it gives."""
    for name, node in _nodes(root, ""):
        entries = node.children[0].children if node.is_map and node.children else ()
        if entries and not entries[0].is_required:
            return (
                f"the keys of its map {name} may be NULL by its schema, which Parquet forbids and pyarrow "
                f"does not read (DuckDB does). To have its rows in a lake, {_WAY_OUT}."
            )
    return f"pyarrow does not read its schema ({error.rstrip('. ')}). To have its rows in a lake, {_WAY_OUT}."


def unread_by_duckdb(root: SchemaNode) -> str | None:
    """Explain why DuckDB refuses a schema, whichever column it reads; None: it accepts it."""
    for name, node in _nodes(root, ""):
        if node.physical < 0 and not node.children:
            return f"its group {name} has no fields. To have its rows in a lake, {_WAY_OUT}."
        if node.is_map and not _has_entries(node):
            return (
                f"its map {name} does not have keys and values, and DuckDB cannot read any column of such a "
                f"file. To have its rows in a lake, {_WAY_OUT}."
            )
    return None


def has_wrong_flags(location: Location, metadata: pq.FileMetaData) -> bool:
    """Return True if pages of a file say that they are not compressed, and are, which DuckDB takes as keys.

    *Source:* Arrow's ``ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION``: pages of version 2.
    """
    if not (metadata.created_by or "").startswith("parquet-cpp version 1.") or not metadata.num_row_groups:
        return False
    group = metadata.row_group(0)
    chunks = [group.column(place) for place in range(metadata.num_columns)]
    offsets = [one.data_page_offset for one in chunks if one.compression != "UNCOMPRESSED"]
    with open_input(location) as source:
        return any(source.read_at(len(_PAGE_OF_VERSION_2), one) == _PAGE_OF_VERSION_2 for one in offsets)


_PAGE_OF_VERSION_2 = b"\x15\x06"  # how the header of one begins: field 1, the type, is 3


def _has_entries(node: SchemaNode) -> bool:
    return (
        len(node.children) == 1 and node.children[0].is_repeated and len(node.children[0].children) == 2  # noqa: PLR2004
    )


def list_element(node: SchemaNode) -> tuple[SchemaNode, str] | None:
    """Return the element of a list, and the name that it has in name mappings: that of what is repeated.

    Lists of today's layout have a group, a repeated group and the element, those of old ones a group and a
    repeated element, or the latter alone. None: DuckDB and pyarrow take different things for the element.
    """
    if node.is_repeated:
        repeated, is_element = node, True
    elif len(node.children) == 1:
        repeated = node.children[0]
        is_element = len(repeated.children) != 1 or repeated.is_list or repeated.is_map
    else:
        return None
    if not is_element:
        named_as_element = repeated.name == "array" or repeated.name.endswith("_tuple")
        if named_as_element or repeated.children[0].is_repeated:
            return None
        return repeated.children[0], repeated.name
    if len(repeated.children) == 1 and not (repeated.is_list or repeated.is_map):
        return None  # DuckDB leaves out a struct of one field
    return replace(repeated, repetition=0), repeated.name


def _nodes(node: SchemaNode, above: str) -> Iterator[tuple[str, SchemaNode]]:
    for child in node.children:
        name = f"{above}{child.name}"
        yield name, child
        yield from _nodes(child, f"{name}.")


# Which columns of a Parquet file Spark's own reader cannot decode, by its footer; pyarrow decodes them.
#
# *Source:* each codec, encoding and physical type, read by Spark 4.2 (``tests/spark/test_codings.py``).


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

    ``leaves`` are the indexes of those to look at; None: all. An unknown logical type concerns
    the whole file, as is a key of the footer without a value: Spark cannot open it. What a footer leaves
    out counts as not decodable. pyarrow ends the process over a plain footer of encrypted columns: the caller
    makes sure that there are none.
    """
    if any(not value and not key.startswith(_OF_SPARK) for key, value in (metadata.metadata or {}).items()):
        yield Undecodable("", "a key of its footer has no value")
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    is_of_impala = (metadata.created_by or "").startswith("impala")
    for leaf in range(metadata.num_columns):
        column = metadata.schema.column(leaf)
        reason = (
            "has a logical type that Spark has no reader for"
            if bool(column.logical_type.type == "UNDEFINED")
            else None
        )
        if leaves is None or leaf in leaves:
            chunks = (_chunk_problem(group.column(leaf), is_of_impala=is_of_impala) for group in groups)
            reason = reason or _type_problem(column) or next(filter(None, chunks), None)
        if reason is not None:
            yield Undecodable(column.path, reason)


_DICTIONARIES = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_OF_SPARK = b"org.apache.spark."  # these may have empty values, which pyarrow reads as none


def is_in_old_calendar(metadata: pq.FileMetaData, *, int96: bool = True, others: bool = True) -> bool:
    """Return True if Spark shifts dates and times of a file, which no other reader does.

    ``int96`` asks about times of that type, ``others`` about dates and other times. *Source:* Spark's
    ``DataSourceUtils``, ``int96RebaseSpec`` and ``datetimeRebaseSpec``.
    """
    keys = metadata.metadata or {}
    version = keys.get(b"org.apache.spark.version")
    return version is not None and (
        (int96 and (version < b"3.1.0" or b"org.apache.spark.legacyINT96" in keys))
        or (others and (version < b"3.0.0" or b"org.apache.spark.legacyDateTime" in keys))
    )


def _type_problem(column: pq.ColumnSchema) -> str | None:
    logical = column.logical_type.type
    if logical == "DECIMAL" and column.physical_type == "BYTE_ARRAY":
        return "holds decimals as BYTE_ARRAY"
    return "is FLOAT16" if logical == "FLOAT16" else None


def _chunk_problem(chunk: pq.ColumnChunkMetaData, *, is_of_impala: bool) -> str | None:
    if is_of_impala and _DICTIONARIES & set(chunk.encodings):
        return "has a dictionary of Impala's, whose last indexes are fewer than Spark wants"
    if chunk.compression not in _CODECS:
        return f"is compressed with {_codec(chunk.compression)}"
    if unknown := sorted(set(chunk.encodings) - _ENCODINGS):
        return f"is encoded as {unknown[0]}"
    return None if chunk.encodings else "does not say how it is encoded"


def _codec(name: str) -> str:
    return "the codec LZ4 in the framing of Hadoop or another" if name == "UNKNOWN" else name
