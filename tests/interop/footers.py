"""Parquet files with footers that pyarrow does not write: sound ones of other writers, and damaged ones."""

import io
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.storage.parquet.modules import (
    Items,
    ModuleKind,
    Struct,
    ThriftField,
    read_struct,
    write_struct,
)

SCHEMA, ROW_GROUPS, KEYS = 2, 4, 5  # of FileMetaData
COLUMNS, METADATA, PATH, ENCODINGS, CODEC, PAGES = (
    1,
    3,
    3,
    2,
    4,
    13,
)  # of RowGroup, ColumnChunk, ColumnMetaData
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
MAP, ENTRY, LIST = 1, 2, 3  # of ConvertedType
INT32, INT64, BYTE_ARRAY = 1, 2, 6


def parquet(columns: dict | pa.Table, **options: object) -> bytes:
    """Return a plain file of rows, without what only Arrow knows."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"store_schema": False, "compression": "none", **options})
    return sink.getvalue()


def footer_of(data: bytes) -> tuple[bytes, Struct]:
    """Return what stands before a file's footer, and the footer."""
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], read_struct(data[-8 - length : -8])[0]


def with_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def edited(data: bytes, change: Callable[[Struct], object]) -> bytes:
    """Return a file whose footer is changed."""
    body, footer = footer_of(data)
    change(footer)
    return with_footer(body, write_struct(footer))


def chunks_of(footer: Struct) -> list[Struct]:
    """Return what is said of each column chunk."""
    groups = footer[ROW_GROUPS].value.values
    return [chunk[METADATA].value for group in groups for chunk in group[COLUMNS].value.values]


def numbers(*values: int) -> ThriftField:
    return ThriftField(ModuleKind.LIST, Items(ModuleKind.I32, list(values)))


def element(
    name: str,
    repetition: int,
    type_: int | None = None,
    below: int = 0,
    converted: int | None = None,
    logical: Struct | None = None,
) -> Struct:
    """Return a field of a schema, with ``below`` fields in it; ``logical`` is a LogicalType, a union."""
    found = {3: ThriftField(ModuleKind.I32, repetition), 4: ThriftField(ModuleKind.BINARY, name.encode())}
    for number, value in ((1, type_), (5, below or None), (6, converted)):
        if value is not None:
            found[number] = ThriftField(ModuleKind.I32, value)
    if logical is not None:
        found[10] = ThriftField(ModuleKind.STRUCT, logical)
    return found


def with_schema(data: bytes, elements: Sequence[Struct], paths: Sequence[str]) -> bytes:
    """Return a file of another schema, whose values have the same levels; its columns have ``paths``."""

    def change(footer: Struct) -> None:
        root, *_ = footer[SCHEMA].value.values
        top, left = 0, 0
        for one in elements:  # in depth-first order
            top += left == 0
            left += one[5].value - (left > 0) if 5 in one else -(left > 0)
        root[5] = ThriftField(ModuleKind.I32, top)
        footer[SCHEMA].value.values = [root, *elements]
        for place, chunk in enumerate(chunks_of(footer)):
            path = [one.encode() for one in paths[place % len(paths)].split(".")]
            chunk[PATH] = ThriftField(ModuleKind.LIST, Items(ModuleKind.BINARY, path))

    return edited(data, change)
