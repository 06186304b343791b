"""Which schemas, encodings and codecs of files of others both DuckDB and pyarrow read.

*Source:* measured with DuckDB 1.5.5 and pyarrow 26: files of each physical type in each encoding and codec,
and of each layout of lists and maps (tests/interop/test_readable_files.py measures them again).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.storage.parquet.schema_tree import PHYSICAL_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_ducklake.lake.storage.parquet.footer_scan import ChunkLayout
    from airflow_provider_ducklake.lake.storage.parquet.schema_tree import Leaf, SchemaNode

CODECS = {
    0: "UNCOMPRESSED",
    1: "SNAPPY",
    2: "GZIP",
    3: "LZO",
    4: "BROTLI",
    5: "LZ4",
    6: "ZSTD",
    7: "LZ4_RAW",
}
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
    """Return what of the storage of a column is not read by each of the two; ``where`` is its name."""
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
    """Return what pyarrow refuses of a schema, for the ``error`` that it gives."""
    for name, node in _nodes(root, ""):
        entries = node.children[0].children if node.is_map and node.children else ()
        if entries and not entries[0].is_required:
            return (
                f"the keys of its map {name} may be NULL by its schema, which Parquet forbids and pyarrow "
                f"does not read (DuckDB does). To have its rows in a lake, {_WAY_OUT}."
            )
    return f"pyarrow does not read its schema ({error.rstrip('. ')}). To have its rows in a lake, {_WAY_OUT}."


def unread_by_duckdb(root: SchemaNode) -> str | None:
    """Return what DuckDB refuses of a schema, in whichever column it is."""
    for name, node in _nodes(root, ""):
        if node.physical < 0 and not node.children:
            return f"its group {name} has no fields. To have its rows in a lake, {_WAY_OUT}."
        if node.is_map and not _has_entries(node):
            return (
                f"its map {name} does not have keys and values, and DuckDB cannot read any column of such a "
                f"file. To have its rows in a lake, {_WAY_OUT}."
            )
    return None


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
