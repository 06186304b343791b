"""Parts of CSV and JSON files in Spark's tasks: whole records, as rows in the types of their columns.

A large file is read in parts of some bytes: a part has the records that begin in it. Where a quoted field
of a CSV goes on over the border of two parts, the number of quotes before says so; each part ends where the
next one begins, or the file is refused.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.sessions.kind import from_tasks
from airflow_provider_ducklake.lake.spark.types.spark_types import INFERRED
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.partitioning import hive_values
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Field, ScalarType, StructType
from airflow_provider_ducklake.lake.spec.types.literals import parse_cast
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem, open_input
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import array_of, arrow_field
from airflow_provider_ducklake.lake.storage.parquet.reader import in_carriers
from airflow_provider_ducklake.lake.storage.rows import csv_rows, json_rows
from airflow_provider_ducklake.lake.storage.rows.csv_rows import Block, Dialect
from airflow_provider_ducklake.lake.storage.rows.json_rows import Shape
from airflow_provider_ducklake.lake.storage.rows.text_values import Formats, values_of_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.lake.spark.job.codec import Json
    from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema


_PART_BYTES = 32 * 2**20  # of a large file, that one task reads


_MOST_IN_MEMORY = 2**30  # bytes of a JSON file that is not a record a line


@dataclass(frozen=True, slots=True)
class Texts:
    """What tasks need of a dataset.

    ``shape`` is that of JSON records, as a document. ``selects``: the user named the columns, and other keys
    are left out. ``folders`` are columns whose values are in the names of folders.
    """

    name: str
    columns: TableSchema
    formats: Formats
    encoding: str
    dialect: Dialect | None
    shape: str = ""
    selects: bool = False
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's beginning: the names in its header, or the number of its fields.

    ``is_whole``: only one task can read it, from its beginning. ``is_lines``: its first record is one line.
    """

    path: str
    size: int
    names: tuple[str, ...] = ()
    count: int = 0
    is_whole: bool = False
    is_array: bool = False
    is_lines: bool = True
    is_old_mac: bool = False


def documents(spark: SparkSession, files: Sequence[TextFile], texts: Texts) -> Iterator[Json]:
    """Yield what each task is to read: a file, or a part of one, from record to record."""
    large = [one for one in files if _is_in_parts(one, texts)]
    counts = _quotes(spark, large, texts)
    for file in files:
        common = {
            "path": file.path,
            "names": list(file.names),
            "is_array": file.is_array,
            "is_lines": file.is_lines,
            "is_old_mac": file.is_old_mac,
            "folders": {name: hive_values(file.path).get(name) for name in texts.folders},
        }
        if file not in large:
            yield {**common, "start": 0, "end": None, "quoted": [False, False]}
            continue
        is_quoted = False
        for start in range(0, file.size, _PART_BYTES):
            before, is_quoted = is_quoted, is_quoted ^ bool(counts.get((file.path, start), 0) % 2)
            end = start + _PART_BYTES
            yield {
                **common,
                "start": start,
                "end": end if end < file.size else None,
                "quoted": [before, is_quoted],
            }


def _is_in_parts(file: TextFile, texts: Texts) -> bool:
    splits = file.is_lines if texts.dialect is None else texts.dialect.has_parity
    return splits and not file.is_whole and file.size > _PART_BYTES


def _quotes(spark: SparkSession, files: Sequence[TextFile], texts: Texts) -> dict[tuple[str, int], int]:
    """Return the number of quotes in each part of large files: it says where a quoted field goes on."""
    dialect = texts.dialect
    if dialect is None or not dialect.quote or not files:
        return {}
    parts = [
        {"path": file.path, "start": start, "length": _PART_BYTES}
        for file in files
        for start in range(0, file.size, _PART_BYTES)
    ]
    found = _collected(spark, parts, partial(_quotes_of_part, dialect=dialect))
    return {(one["path"], one["start"]): one["count"] for one in found}


def _quotes_of_part(document: Json, *, dialect: Dialect) -> Iterator[Json]:
    with open_input(open_filesystem(document["path"])) as stream:
        stream.seek(document["start"])
        yield {**document, "count": csv_rows.count_in(stream, document["length"], dialect.quote.encode())}


def found_by_tasks(
    spark: SparkSession,
    files: Sequence[TextFile],
    texts: Texts,
    function: Callable[[Json, Texts], Iterator[Json]],
) -> list[Json]:
    """Return the documents that tasks make of all parts of a dataset, in the order of these."""
    encoded = encode(texts, Texts)

    def found(document: Json) -> Iterator[Json]:
        texts = decode(encoded, Texts)
        with named(texts.name, document["path"]):
            yield from function(document, texts)

    return _collected(spark, list(documents(spark, files, texts)), found)


def _collected(
    spark: SparkSession, documents: Sequence[Json], function: Callable[[Json], Iterator[Json]]
) -> list[Json]:
    def rows(document: Json) -> Iterator[pa.RecordBatch]:
        for one in function(document):
            number = pa.array([document["number"]], pa.int64())
            yield pa.record_batch({"number": number, "text": pa.array([json.dumps(one)], pa.string())})

    schema = t.StructType([t.StructField("number", t.LongType()), t.StructField("text", t.StringType())])
    numbered = [{**one, "number": number} for number, one in enumerate(documents)]
    found = from_tasks(spark, numbered, rows, schema, have_keys=False).collect()
    return [json.loads(row["text"]) for row in sorted(found, key=lambda row: int(row["number"]))]


def rows_of_part(document: Json, texts: Texts) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of a part of it, in carriers."""
    with named(texts.name, document["path"]):
        try:
            for table in _tables(document, texts, 0):
                yield from in_carriers(table, texts.columns.columns).to_batches()
        except InvalidInputError:
            if not document["start"]:
                raise
            for _ in _tables(document, texts, _lines_before(document, texts.dialect or _LINES)):
                pass  # it fails again, with the number of the line in the file
            raise


def _lines_before(document: Json, dialect: Dialect) -> int:
    """Return the number of lines before the first record of a part."""
    with open_input(open_filesystem(document["path"])) as stream:
        first = csv_rows.first_record(stream, document["start"], dialect, is_quoted=document["quoted"][0])
        stream.seek(0)
        return csv_rows.count_in(stream, first, b"\n")


def _tables(document: Json, texts: Texts, lines: int) -> Iterator[pa.Table]:
    columns = texts.columns.columns
    folders = {fold(name): text for name, text in document["folders"].items()}
    if texts.dialect is None:
        own = [one for one in columns if fold(one.name) not in folders]
        shape = Shape.load(json.loads(texts.shape))
        read = json_rows.arrow_of(shape, StructType(tuple(Field(one.name, one.type) for one in own)))
        how = json_rows.Reading(own, read and pa.schema(list(read)), texts.formats, texts.selects)
        for block in _json_blocks(document, texts, lines):
            table = json_rows.table_of(block.content, block.lines, how, is_array=document["is_array"])
            yield _with_folders(table, columns, folders, texts.formats)
        return
    for table, block in _fields_of_part(document, texts, lines):
        yield _in_columns(table, block, columns, folders, texts)


def _with_folders(
    table: pa.Table, columns: Sequence[Column], folders: Mapping[str, str | None], formats: Formats
) -> pa.Table:
    """Return rows in the order of columns, those of folders among them."""
    arrays = []
    for column in columns:
        name = fold(column.name)
        if name in folders:
            texts = pa.repeat(pa.scalar(folders[name], pa.string()), table.num_rows)
            arrays.append(_values(texts, column, formats))
        else:
            arrays.append(table.column(column.name))
    return pa.Table.from_arrays(
        arrays, schema=pa.schema([arrow_field(one, field_ids=False) for one in columns])
    )


def _fields_of_part(document: Json, texts: Texts, lines: int = 0) -> Iterator[tuple[pa.Table, Block]]:
    """Yield the fields of a CSV's records as texts, and the records."""
    dialect, names = texts.dialect, document["names"]
    assert dialect is not None
    has_header = bool(names) and not document["start"]
    folders = {fold(name) for name in document["folders"]}
    names = names or [column.name for column in texts.columns.columns if fold(column.name) not in folders]
    with opened(document["path"], texts.encoding) as stream:
        part = _part_of(stream, document, dialect)
        for read in csv_rows.blocks(part, dialect, is_old_mac=document["is_old_mac"], lines=lines):
            block = csv_rows.without_first(read, dialect) if has_header else read
            has_header = False
            if block.content.strip(b"\r\n") or (block.content and len(names) == 1):
                yield _trimmed(csv_rows.table_of(block, names, dialect), dialect), block


def _part_of(stream: pa.NativeFile, document: Json, dialect: Dialect) -> pa.NativeFile | _Part:
    start, end = document["start"], document["end"]
    if not start and end is None:
        return stream
    before, behind = document["quoted"]
    first = csv_rows.first_record(stream, start, dialect, is_quoted=before) if start else 0
    last = None if end is None else csv_rows.first_record(stream, end, dialect, is_quoted=behind)
    stream.seek(first)
    return _Part(stream, None if last is None else last - first)


@dataclass
class _Part:
    """The next bytes of a file."""

    stream: pa.NativeFile
    left: int | None

    def read(self, count: int) -> bytes:
        """Read up to so many bytes."""
        if self.left is None:
            return bytes(self.stream.read(count))
        read = bytes(self.stream.read(min(count, self.left)))
        self.left -= len(read)
        return read


def _trimmed(table: pa.Table, dialect: Dialect) -> pa.Table:
    if not dialect.trims:
        return table
    arrays = [pc.utf8_trim_whitespace(one) for one in table.columns]
    quoted_too = next(
        (one for one in arrays if pc.any(pc.starts_with(one, dialect.quote or "\0")).as_py()), None
    )
    if quoted_too is not None:
        raise InvalidInputError(": a field has spaces before its quote. Write the file without them.")
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _json_blocks(document: Json, texts: Texts, lines: int = 0) -> Iterator[Block]:
    with opened(document["path"], texts.encoding) as stream:
        if not document["is_lines"]:
            content = stream.read(_MOST_IN_MEMORY + 1)
            if len(content) > _MOST_IN_MEMORY:
                raise InvalidInputError(
                    f": it has more than {_MOST_IN_MEMORY} bytes, and its records are not one a line. Write "
                    "each record into a line of its own, so that tasks can read parts of the file."
                )
            yield Block(content.removeprefix(csv_rows.BOM), 0)
            return
        part, rest = _part_of(stream, document, _LINES), b""
        while read := part.read(csv_rows.BLOCK_BYTES):
            content = rest + (read if lines or rest else read.removeprefix(csv_rows.BOM))
            end = content.rfind(b"\n") + 1
            if end:
                yield Block(content[:end], lines)
                lines += content.count(b"\n", 0, end)
            rest = content[end:]
        yield Block(rest, lines)


_LINES = Dialect(quote="")


def _in_columns(
    table: pa.Table, block: Block, columns: Sequence[Column], folders: Mapping[str, str | None], texts: Texts
) -> pa.Table:
    """Return a CSV's fields as values of their columns."""
    assert texts.dialect is not None
    places = {fold(name): place for place, name in enumerate(table.schema.names)}
    fields = [arrow_field(column, field_ids=False) for column in columns]
    arrays = []
    for column in columns:
        name = fold(column.name)
        if name in folders:
            found = pa.repeat(pa.scalar(folders[name], pa.string()), table.num_rows)
        elif name in places:
            found = table.column(places[name]).combine_chunks()
        else:
            found = pa.nulls(table.num_rows, pa.string())
        try:
            arrays.append(_values(found, column, texts.formats))
        except ValueError:
            row = _first_refused(found, column, texts.formats)
            line = csv_rows.line_of(block, row, texts.dialect, skips_blank=table.num_columns > 1)
            raise InvalidInputError(
                f", line {line}: column {column.name} has {found[row].as_py()[:200]!r}, which is not a valid "
                f"{column.type}. Correct the record, or give the column as string in the option schema and "
                "convert it by sql."
            ) from None
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _values(texts: pa.Array, column: Column, formats: Formats) -> pa.Array:
    if not column.children:
        return values_of_texts(texts, column.type, formats)
    values = [None if one is None else parse_cast(column.type, one) for one in texts.to_pylist()]
    return array_of(column, values, arrow_field(column, field_ids=False).type)


def _first_refused(texts: pa.Array, column: Column, formats: Formats) -> int:
    """Return the place of the first text that is no value."""
    first, count = 0, len(texts)
    while count > 1:
        half = count // 2
        try:
            _values(texts.slice(first, half), column, formats)
        except ValueError:
            count = half
        else:
            first, count = first + half, count - half
    return first


def types_of_part(document: Json, texts: Texts) -> Iterator[Json]:
    candidates: dict[str, set[str]] = {}
    for table, _ in _fields_of_part(document, texts):
        for name, column in zip(table.schema.names, table.columns, strict=True):
            values = column.combine_chunks().drop_null()
            if len(values):
                left = candidates.get(name, set(INFERRED))
                candidates[name] = {one for one in left if _is_of(values, one, texts.formats)}
    yield {name: sorted(types) for name, types in candidates.items()}


def _is_of(values: pa.Array, type_: str, formats: Formats) -> bool:
    if type_ == "boolean":
        return set(values.unique().to_pylist()) <= {"true", "false", "True", "False", "TRUE", "FALSE"}
    try:
        values_of_texts(values, ScalarType(type_), formats)
    except ValueError:
        return False
    return True


def shape_of_part(document: Json, texts: Texts) -> Iterator[Json]:
    shape = Shape()
    for block in _json_blocks(document, texts):
        shape.add(json_rows.shape_of(block.content, block.lines, is_array=document["is_array"]))
    yield shape.dump()


def codec_of(path: str) -> str | None:
    suffixes = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}
    return next((codec for suffix, codec in suffixes.items() if path.lower().endswith(suffix)), None)


@contextmanager
def opened(path: str, encoding: str) -> Iterator[pa.NativeFile]:
    """Yield a file's text as UTF-8; a plain one can be read from any place."""
    with open_input(open_filesystem(path)) as file:
        codec = codec_of(path)
        stream = file if codec is None else pa.CompressedInputStream(file, codec)
        yield stream if encoding == "utf-8" else pa.transcoding_input_stream(stream, encoding, "utf-8")


@contextmanager
def named(name: str, path: str) -> Iterator[None]:
    """Let an error say of which source and file it is."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(f"{name} cannot be read: {path}{error}") from error
    except (DuckLakeError, OSError, pa.ArrowException, ValueError) as error:
        raise InvalidInputError(f"{name} cannot be read: {path}: {error}") from error
