"""Parts of CSV and JSON files in Spark's tasks: whole records, as rows in the types of their columns.

A large file is read in parts of some bytes: a part has the records that begin in it. Where a quoted field
of a CSV goes on over the border of two parts, the number of quotes before says so; each part ends where the
next one begins, or the file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from ..errors import DuckLakeError, InvalidInputError, StorageError
from ..format.names.identifiers import fold
from ..format.types.ducklake_types import DuckLakeType, ScalarKind, ScalarType
from ..format.types.literals import parse_written
from ..storage.arrow.arrow_types import array_of, arrow_field
from ..storage.files.filesystem import open_filesystem, open_input
from ..storage.parquet.reader import in_carriers
from ..storage.rows import csv_rows, json_rows
from ..storage.rows.csv_rows import Block, Dialect, Part
from ..storage.rows.json_rows import Shape
from ..storage.rows.text_values import Formats, value_as_formatted, values_of_texts
from .job.codec import Json, decode, encode
from .sessions.kind import from_tasks
from .source_files import check_links, folder_values
from .types.spark_types import INFERRED

if TYPE_CHECKING:
    from ..format.schema import Column, TableSchema
    from ..format.types.values import Physical


_PART_BYTES = 32 * 2**20  # of a large file, that one task reads
_MOST_IN_MEMORY = 2**30  # bytes of a JSON file that is not a record a line


@dataclass(frozen=True, slots=True)
class Texts:
    """What tasks need of a dataset.

    ``selects``: the user named the columns of JSON records, and other keys are left out. ``folders`` are
    columns whose values are in the names of folders; ``path`` is the source's own.
    """

    name: str
    columns: TableSchema
    formats: Formats
    encoding: str
    dialect: Dialect | None
    selects: bool = False
    folders: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's beginning: the names in its header, or the number of its fields.

    ``is_whole``: only one task can read it, from its beginning. ``is_lines``: JSON of which each line is read
    by itself.
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
    counts = _quotes(spark, [one for one in files if _is_in_parts(one, texts)], texts)
    for file in files:
        is_quoted, folders = False, folder_values(file.path, texts.folders)
        step = _PART_BYTES if _is_in_parts(file, texts) else max(file.size, 1)
        for start in range(0, max(file.size, 1), step):
            before, is_quoted = is_quoted, is_quoted ^ bool(counts.get((file.path, start), 0) % 2)
            yield {
                "path": file.path,
                "names": list(file.names),
                "is_array": file.is_array,
                "is_lines": file.is_lines,
                "is_old_mac": file.is_old_mac,
                "folders": folders,
                "start": start,
                "end": start + step if start + step < file.size else None,
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
    parts: Sequence[Json],
    texts: Texts,
    function: Callable[[Json, Texts], Iterator[Json]],
) -> list[Json]:
    """Return the documents that tasks make of the parts of a dataset, in the order of these."""
    encoded = encode(texts, Texts)

    def found(document: Json) -> Iterator[Json]:
        texts = decode(encoded, Texts)
        with named(texts.name, document["path"]):
            yield from function(document, texts)

    return _collected(spark, parts, found)


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
    own = [one for one in columns if fold(one.name) not in folders]
    for table in (_json_tables if texts.dialect is None else _csv_tables)(document, texts, own, lines):
        arrays = [
            _folder_array(folders[name], column, table.num_rows, texts.formats)
            if (name := fold(column.name)) in folders
            else table.column(column.name)
            for column in columns
        ]
        fields = [arrow_field(column, field_ids=False) for column in columns]
        yield pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _folder_array(text: str | None, column: Column, count: int, formats: Formats) -> pa.Array:
    try:
        (value,) = _values(pa.array([text], pa.string()), column, formats)
    except ValueError:
        raise InvalidInputError(
            f": the folder {column.name}={text} is not a valid {column.type}. Rename the folder, or leave it "
            "out."
        ) from None
    return pa.repeat(value, count)


def _json_tables(document: Json, texts: Texts, columns: Sequence[Column], lines: int) -> Iterator[pa.Table]:
    how = json_rows.Reading(columns, texts.formats, texts.selects)
    for block in _json_blocks(document, texts, lines):
        json_rows.check_levels(block.content)
        yield json_rows.table_of(block.content, block.lines, how, is_array=document["is_array"])


def _csv_tables(document: Json, texts: Texts, columns: Sequence[Column], lines: int) -> Iterator[pa.Table]:
    for table, block in _fields_of_part(document, texts, lines):
        yield _in_columns(table, block, columns, texts)


def _fields_of_part(document: Json, texts: Texts, lines: int = 0) -> Iterator[tuple[pa.Table, Block]]:
    """Yield the fields of a CSV's records as texts, and the records."""
    dialect, names = texts.dialect, document["names"]
    assert dialect is not None
    has_header = bool(names) and not document["start"]
    folders = {fold(name) for name in document["folders"]}
    names = names or [column.name for column in texts.columns.columns if fold(column.name) not in folders]
    with opened(document["path"], texts) as stream:
        part = _part_of(stream, document, dialect)
        for read in csv_rows.blocks(part, dialect, is_old_mac=document["is_old_mac"], lines=lines):
            block = csv_rows.without_first(read, dialect) if has_header else read
            has_header = False
            if block.content.strip(b"\r\n") or (block.content and len(names) == 1):
                yield csv_rows.table_of(block, names, dialect), block


def _part_of(stream: pa.NativeFile, document: Json, dialect: Dialect) -> Part:
    start, end = document["start"], document["end"]
    if not start and end is None:
        return Part(stream)
    before, behind = document["quoted"]
    first = csv_rows.first_record(stream, start, dialect, is_quoted=before) if start else 0
    last = None if end is None else csv_rows.first_record(stream, end, dialect, is_quoted=behind)
    stream.seek(first)
    return Part(stream, None if last is None else last - first, is_first=not start)


def _json_blocks(document: Json, texts: Texts, lines: int = 0) -> Iterator[Block]:
    with opened(document["path"], texts) as stream:
        part, rest = _part_of(stream, document, _LINES), b""
        if not document["is_lines"]:
            content = part.read(_MOST_IN_MEMORY + 1)
            if len(content) > _MOST_IN_MEMORY:
                raise InvalidInputError(
                    f": it has more than {_MOST_IN_MEMORY} bytes, and its records are not one a line. Write "
                    "each record into a line of its own, so that tasks can read parts of the file."
                )
            yield Block(content, 0)
            return
        while read := part.read(csv_rows.BLOCK_BYTES):
            content = rest + read
            end = content.rfind(b"\n") + 1
            if end:
                yield Block(content[:end], lines)
                lines += content.count(b"\n", 0, end)
            rest = content[end:]
        yield Block(rest, lines)


_LINES = Dialect(quote="")


def _in_columns(table: pa.Table, block: Block, columns: Sequence[Column], texts: Texts) -> pa.Table:
    """Return a CSV's fields as values of their columns, NULL in those that the file lacks."""
    assert texts.dialect is not None
    places = {fold(name): place for place, name in enumerate(table.schema.names)}
    arrays = []
    for column in columns:
        place = places.get(fold(column.name))
        nothing = pa.nulls(table.num_rows, pa.string())
        found = nothing if place is None else table.column(place).combine_chunks()
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
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _values(texts: pa.Array, column: Column, formats: Formats) -> pa.Array:
    if not column.children:
        return values_of_texts(texts, column.type, formats)

    def leaf(type_: DuckLakeType, text: str) -> Physical:
        return value_as_formatted(text, type_, formats)

    values = [None if one is None else parse_written(column.type, one, leaf) for one in texts.to_pylist()]
    return array_of(column, values, arrow_field(column, field_ids=False).type)


def _first_refused(texts: pa.Array, column: Column, formats: Formats) -> int:
    """Return the place of the first text that is not valid."""
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
    """Yield, for each column of a CSV with a value, those of ``INFERRED`` that all its values have."""
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
    if pc.any(pc.match_substring_regex(values, _LOSSY.get(ScalarType(type_).facts.kind, "^$"))).as_py():
        return False
    try:
        values_of_texts(values, ScalarType(type_), formats)
    except ValueError:
        return False
    return True


# Zip codes, telephone and account numbers: a number loses their zeros, signs or last digits.
_CODES = r"^\s*(?:\+|-?0[0-9])"
_LOSSY = {ScalarKind.INTEGER: _CODES, ScalarKind.FLOAT: rf"{_CODES}|^\s*-?[0-9]{{16,}}\s*$"}


def shape_of_part(document: Json, texts: Texts) -> Iterator[Json]:
    """Yield the shape of a JSON file's records."""
    shape = Shape()
    for block in _json_blocks(document, texts):
        json_rows.check_levels(block.content)
        shape.add(json_rows.shape_of(block.content, block.lines, is_array=document["is_array"]))
    yield shape.dump()


def codec_of(path: str) -> str | None:
    """Return the codec by which a file is compressed, which its suffix says."""
    suffixes = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}
    return next((codec for suffix, codec in suffixes.items() if path.lower().endswith(suffix)), None)


@contextmanager
def opened(path: str, texts: Texts) -> Iterator[pa.NativeFile]:
    """Yield a file's text as UTF-8; a plain one can be read from any place."""
    check_links([path], texts.path, texts.name)  # again: a link may have come since
    with open_input(open_filesystem(path)) as file:
        yield as_utf8(file, path, texts.encoding)


def as_utf8(file: pa.NativeFile, path: str, encoding: str) -> pa.NativeFile:
    """Return the text of an open file as UTF-8."""
    codec = codec_of(path)
    stream = file if codec is None else pa.CompressedInputStream(file, codec)
    return stream if encoding == "utf-8" else pa.transcoding_input_stream(stream, encoding, "utf-8")


@contextmanager
def named(name: str, path: str) -> Iterator[None]:
    """Let an error say of which source and file it is; that of a store, which may pass, stays one."""
    try:
        yield
    except StorageError:
        raise
    except InvalidInputError as error:
        raise type(error)(f"{name} cannot be read: {path}{error}") from error
    except OSError as error:
        if codec_of(path) is None:
            raise StorageError(f"Cannot read {path}: {error}") from error
        raise InvalidInputError(f"{name} cannot be read: {path} is damaged: {error}") from error
    except (DuckLakeError, pa.ArrowException, ValueError, LookupError, RecursionError) as error:
        raise InvalidInputError(f"{name} cannot be read: {path}: {error}") from error
