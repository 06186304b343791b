"""CSV and JSON files that users have: every record and every field as DuckDB reads them, or one error.

Arrow reads the texts in Spark's tasks, whatever they are read for. Columns are matched by name over all
files; those of an existing table have its types. *Source:* DuckDB 1.5.5, ``read_csv`` and ``read_json``; the
options are Spark's.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ..errors import InvalidInputError, InvalidNameError, InvalidOptionError
from ..format.log_lines import logger
from ..format.names.identifiers import fold
from ..format.schema import TableSchema, new_columns
from ..format.types.ducklake_types import DuckLakeType, Field, ListType, MapType, ScalarType, StructType
from ..storage.files.filesystem import open_filesystem, open_input
from ..storage.files.parallel import in_threads
from ..storage.rows import csv_rows, json_rows
from ..storage.rows.csv_rows import Block, Dialect
from ..storage.rows.json_rows import Shape
from ..storage.rows.text_values import Formats, regex_of
from .job.codec import Json, decode, encode
from .job.errors import message_of
from .sessions.kind import from_tasks
from .source_files import OF_LISTING, check_links, listing_of, no_file, own_path
from .text_parts import (
    TextFile,
    Texts,
    as_utf8,
    documents,
    found_by_tasks,
    named,
    rows_of_part,
    shape_of_part,
    types_of_part,
)
from .types.names import quoted
from .types.spark_types import INFERRED, TYPE_KEY, fields_of_spark, read_type, text_type, to_insertable

if TYPE_CHECKING:
    import pyarrow as pa

    from .job.request import Dataset

log = logger(__name__)

_HEAD_BYTES = 2**20
_LONGEST_NAME = 10_000  # characters of a column: Spark takes minutes for a name of megabytes
_MOST_COLUMNS = 20_480  # of a header, as Spark's reader has it
_LISTS = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
_OF_BOTH = frozenset(_LISTS).union(
    ("schema", "encoding", "charset", "multiline", "mode", "dateformat", "timestampformat"),
    ("timestampntzformat", "timezone", "linesep", "samplingratio"),
)
_OPTIONS = {
    "csv": _OF_BOTH.union(
        ("sep", "delimiter", "quote", "escape", "header", "inferschema", "nullvalue", "emptyvalue"),
        ("mergeschema", "maxcolumns", "maxcharspercolumn"),
    ),
    "json": _OF_BOTH,
}
_FLAGS = ("header", "inferschema", "mergeschema", "multiline", "recursivefilelookup")
_ONLY = {  # the values of options that have no others here
    "mode": ("failfast",),
    "emptyvalue": ("",),
    "linesep": ("\n", "\r\n", "\r"),
    **dict.fromkeys(_FLAGS, ("true", "false")),
}


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset's options, and its files as Spark lists them, with the values of their folders."""

    spark: SparkSession
    dataset: Dataset
    name: str
    given: Mapping[str, str]
    paths: Sequence[str]
    folders: Mapping[str, t.DataType]
    fills: bool

    def error(self, text: str) -> InvalidInputError:
        return InvalidInputError(f"{self.name} cannot be read: {text}")

    def is_set(self, option: str) -> bool:
        return self.given.get(option, "false").lower() == "true"


def read_texts(  # noqa: PLR0913 - what a dataset is read for
    spark: SparkSession, dataset: Dataset, path: str, name: str, target: TableSchema | None, *, fills: bool
) -> DataFrame:
    """Return the rows of CSV or JSON files at a path; ``name`` is how errors call them.

    Columns of ``target``, an existing table, decide the types of the columns of their names. ``fills``: the
    rows go into it, and keys that no JSON object has are columns of NULLs.

    Raises:
        InvalidInputError: a file is not what the options say, or has other columns than the others. Tasks
            raise it where a record cannot be read.
    """
    given = _options(dataset, name)
    listing = {key: value for key, value in given.items() if key in _LISTS}
    listed = listing_of(spark, path, listing, name)
    folders = {one.name: one.dataType for one in listed.schema if one.name not in OF_LISTING}
    paths = sorted(map(own_path, listed.inputFiles()))
    check_links(paths, path, name)
    source = _Dataset(spark, dataset, name, given, paths, folders, fills)
    if not source.paths:
        raise no_file(name, str(dataset.path))
    encoding = _encoding(source)
    dialect = _dialect(source) if dataset.format == "csv" else None
    nothing, of_folders = TableSchema(()), tuple(folders)
    looked = Texts(name, nothing, _formats(source), encoding, dialect, folders=of_folders, path=path)
    files = _looked_at(source, looked)
    names = None if dialect is None else _names(source, files, target)
    parts = list(documents(spark, files, looked))
    if names is not None:
        texts = replace(looked, columns=_typed(source, parts, looked, names, target))
    else:
        columns = _columns_of_json(source, parts, looked, target)
        texts = replace(looked, columns=columns, selects="schema" in given)
    rows = _frame(source, parts, texts, sum(file.size for file in files))
    return rows if dialect is not None else _with_variants(source, rows, target)


# --- options


def _options(dataset: Dataset, name: str) -> dict[str, str]:
    known = _OPTIONS[dataset.format]
    for key, value in dataset.options.items():
        only = _ONLY.get(key.lower())
        if key.lower() not in known or (only is not None and value.lower() not in only):
            ways = (
                f"it may be {' or '.join(map(repr, only))}"
                if only
                else f"those are {', '.join(sorted(known))}"
            )
            raise InvalidOptionError(
                f"{name}: the option {key} = {value!r} is not among those of {dataset.format} files: {ways}. "
                "Read the files by spark.read in a transform to have Spark's own reader."
            )
    return {key.lower(): value for key, value in dataset.options.items()}


def _encoding(source: _Dataset) -> str:
    encoding = source.given.get("encoding", source.given.get("charset", "UTF-8"))
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise source.error(f"encoding {encoding!r} is not one that Python has.") from None


def _formats(source: _Dataset) -> Formats:
    given = source.given
    formats = Formats(
        given.get("dateformat"),
        given.get("timestampformat"),
        given.get("timestampntzformat"),
        given.get("timezone", "UTC"),
    )
    for pattern in filter(None, (formats.date, formats.timestamp, formats.local)):
        regex_of(pattern)
    return formats


def _dialect(source: _Dataset) -> Dialect:
    given = source.given
    separator = given.get("sep", given.get("delimiter", ","))
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    quote = given.get("quote", '"')
    escape = given.get("escape", quote)
    if len(separator.encode()) != 1 or len(quote.encode()) > 1 or len(escape.encode()) > 1:
        raise source.error("the options sep, quote and escape are one character of ASCII each.")
    return Dialect(separator, quote, escape or quote, given.get("nullvalue", ""))


def _schema(source: _Dataset) -> tuple[Field, ...]:
    """Return the columns of the option schema, which is Spark's DDL."""
    try:
        schema = t.StructType.fromDDL(source.given["schema"])
    except ParseException as error:
        raise source.error(f"the option schema is not a list of columns: {message_of(error)}") from error
    if not isinstance(schema, t.StructType):
        raise source.error(
            "the option schema is one type, not a list of columns, such as id BIGINT, day DATE."
        )
    return fields_of_spark(schema)


# --- the beginning of each file


def _looked_at(source: _Dataset, texts: Texts) -> list[TextFile]:
    has_header = source.given.get("header", "true").lower() == "true"
    look = partial(_look, texts=texts, has_header=has_header, is_whole=source.is_set("multiline"))
    return [look(source.paths[0]), *in_threads(look, source.paths[1:])]  # else all would wait for one store


def _look(path: str, *, texts: Texts, has_header: bool, is_whole: bool) -> TextFile:
    with named(texts.name, path), open_input(open_filesystem(path)) as file:
        size, stream = file.size(), as_utf8(file, path, texts.encoding)
        head = csv_rows.Part(stream).read(_HEAD_BYTES)
        is_old_mac = b"\r" in head and b"\n" not in head
        is_whole = is_whole or stream is not file or is_old_mac
        found = TextFile(path, size, is_whole=is_whole, is_old_mac=is_old_mac)
        if texts.dialect is None:
            is_large = size > csv_rows.BLOCK_BYTES
            is_lines = is_large and not is_whole and json_rows.ends_in_a_line(head.lstrip())
            return replace(found, is_array=head.lstrip().startswith(b"["), is_lines=is_lines)
        return _with_header(found, head, texts.dialect, has_header=has_header)


def _with_header(file: TextFile, head: bytes, dialect: Dialect, *, has_header: bool) -> TextFile:
    is_cut = len(head) >= _HEAD_BYTES - len(csv_rows.BOM)
    head = (head.replace(b"\r", b"\n") if file.is_old_mac else head).lstrip(b"\r\n")
    record = dialect.record.match(head)
    if is_cut and (record is None or not record[0].endswith(b"\n")):
        raise InvalidInputError(
            f": its first {_HEAD_BYTES} bytes hold no whole record, but empty lines, a quoted field without "
            "an end, or a line that goes on. Correct the beginning."
        )
    if not head:
        return file
    if record is None or not record[0]:
        raise InvalidInputError(
            f", line 1: {head[:200].decode(errors='replace')!r} is no record: a quoted field has no end, or "
            "goes on behind its quote. Set the options sep, quote and escape to what the file has."
        )
    count = dialect.fields_of(record[0])
    if count > _MOST_COLUMNS:
        raise InvalidInputError(
            f", line 1: it has {count} columns, of {_MOST_COLUMNS} at most. Correct the line."
        )
    if not has_header:
        return replace(file, count=count)
    row = csv_rows.table_of(Block(record[0], 0), [str(number) for number in range(count)], dialect)
    return replace(file, names=tuple(str(column[0].as_py() or "") for column in row.columns))


# --- columns of CSV files


def _names(source: _Dataset, files: Sequence[TextFile], target: TableSchema | None) -> list[str]:
    """Return the names of the columns, those of the first file's header."""
    filled = [one for one in files if one.names or one.count]
    if not filled:
        raise source.error(f"{files[0].path} is empty: it has no header. Leave it out, or write one.")
    first = filled[0]
    if not first.names:
        return _names_by_position(source, filled, target)
    for file in filled:
        folded = [fold(one) for one in file.names]
        counts = Counter(folded)
        twice = next((one for one in file.names if counts[fold(one)] > 1), None)
        longest = max(map(len, file.names))
        if twice is not None or "" in folded or longest > _LONGEST_NAME:
            what = f"the name {twice!r} twice" if twice else "a column without a name"
            if longest > _LONGEST_NAME:
                what = f"a name of {longest} characters"
            raise source.error(
                f"{file.path} has {what} in its header. Correct it, or set the option header to false."
            )
        if sorted(folded) != sorted(map(fold, first.names)) and not source.is_set("mergeschema"):
            raise source.error(
                f"{file.path} has {_listed(file.names)} in its header where {first.path} has "
                f"{_listed(first.names)}. Make it a source of its own, or set the option mergeSchema to true "
                "to have NULL in the columns that a file lacks."
            )
    spelled = {fold(name): name for file in reversed(filled) for name in reversed(file.names)}
    names = [*dict.fromkeys(spelled[fold(name)] for file in filled for name in file.names)]
    if target is not None:
        _check_header(source, first.path, names, {fold(column.name) for column in target.columns})
    elif len(names) == 1 and not source.given.keys() & {"sep", "delimiter"}:
        (name,) = names
        for sep in (one for one in ";\t|" if one in name):
            raise source.error(
                f"the first line of {first.path}, {_listed(names)}, is one column, as the fields are not "
                f"separated by ','. Set the option sep to {sep!r}, or to ',' if that is its name."
            )
    return names


def _check_header(source: _Dataset, path: str, names: Sequence[str], wanted: Collection[str]) -> None:
    """Refuse a first line that names none of a table's columns: it is no header, or is cut elsewhere."""
    if any(fold(name) in wanted for name in names):
        return
    seps = [sep for sep in ";\t|:," if any(fold(one.strip(' "')) in wanted for one in names[0].split(sep))]
    if seps or source.fills:
        hint = (
            f"They are separated by {seps[0]!r}: set the option sep to that."
            if seps
            else "Set the option header to false if the file has none: its columns are then the table's, in "
            "their order."
        )
        raise source.error(
            f"the first line of {path}, {_listed(names)}, names no column of the table. {hint}"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))[:200]


def _names_by_position(source: _Dataset, files: Sequence[TextFile], target: TableSchema | None) -> list[str]:
    count = files[0].count
    other = next((one for one in files if one.count != count), None)
    if other is not None:
        raise source.error(
            f"{other.path} has {other.count} columns where {files[0].path} has {count}. Make it a source of "
            "its own."
        )
    if "schema" in source.given:
        names = [one.name for one in _schema(source)]
        where = "the option schema"
    elif target is not None:
        names = [
            column.name for column in target.columns if fold(column.name) not in map(fold, source.folders)
        ]
        where = "the table"
    else:
        return [f"_c{number}" for number in range(count)]
    if len(names) != count:
        raise source.error(
            f"{files[0].path} has {count} columns and no header, and {where} has {len(names)}. Name them in "
            "the option schema."
        )
    return names


def _typed(
    source: _Dataset, parts: Sequence[Json], texts: Texts, names: Sequence[str], target: TableSchema | None
) -> TableSchema:
    """Return the columns in which a CSV's fields arrive, and the values of folders."""
    types: dict[str, DuckLakeType] = {}
    if "schema" in source.given:
        wanted = _schema(source)
        if sorted(fold(one.name) for one in wanted) != sorted(map(fold, names)):
            raise source.error(
                f"the option schema names {_listed([one.name for one in wanted])}, and the header "
                f"{_listed(names)}: columns go by name. Name those of the header, and rename them by sql."
            )
        types = {fold(one.name): one.type for one in wanted}
    elif source.is_set("inferschema"):
        types = _inferred(source, parts, texts, names)
    elif target is not None:
        types = {fold(column.name): column.type for column in target.columns}
    elif source.name == "source" and names:
        log.warning(
            "All %d columns of %s are strings: a CSV has no types. Give them in the source's option schema "
            '("id BIGINT, day DATE"), or set inferSchema to true',
            len(names),
            source.dataset.path,
        )
    has_format = bool(source.given.keys() & {"timestampformat", "timestampntzformat"})
    of_folders = {fold(one) for one in source.folders}
    fields = [
        Field(name, text_type(types.get(fold(name), ScalarType("varchar")), has_format=has_format))
        for name in names
        if fold(name) not in of_folders
    ]
    return _columns(source, [*fields, *_fields_of_folders(source, target)])


def _columns(source: _Dataset, fields: Sequence[Field]) -> TableSchema:
    try:
        return new_columns(fields)
    except InvalidNameError as error:
        raise source.error(f"{source.dataset.path}: {error}") from error


def _fields_of_folders(source: _Dataset, target: TableSchema | None) -> Iterator[Field]:
    types = {} if target is None else {fold(column.name): column.type for column in target.columns}
    for name, found in source.folders.items():
        (inferred,) = fields_of_spark(t.StructType([t.StructField(name, found)]))
        yield Field(name, text_type(types.get(fold(name), inferred.type), has_format=False))


def _inferred(
    source: _Dataset, parts: Sequence[Json], texts: Texts, names: Sequence[str]
) -> dict[str, DuckLakeType]:
    """Return the types that all fields of a column have, of those that ``inferSchema`` looks for."""
    columns = new_columns([Field(name, ScalarType("varchar")) for name in names])
    found: dict[str, set[str]] = {}
    for document in found_by_tasks(source.spark, parts, replace(texts, columns=columns), types_of_part):
        for name, types in document.items():
            found[fold(name)] = found.get(fold(name), set(INFERRED)) & set(types)
    return {
        name: ScalarType(next((one for one in INFERRED if one in types), "varchar"))
        for name, types in found.items()
    }


# --- columns of JSON files


def _columns_of_json(
    source: _Dataset, parts: Sequence[Json], texts: Texts, target: TableSchema | None
) -> TableSchema:
    has_format = bool(source.given.keys() & {"timestampformat", "timestampntzformat"})
    if "schema" in source.given:
        fields = [Field(one.name, text_type(one.type, has_format=has_format)) for one in _schema(source)]
        return _columns(source, fields)
    shape = Shape({"object"})
    for document in found_by_tasks(source.spark, parts, texts, shape_of_part):
        shape.add(Shape.load(document))
    types = {} if target is None else {fold(column.name): column for column in target.columns}
    spellings = shape.by_name()
    of_folders = {fold(one) for one in source.folders}
    fields = [
        Field(
            types[folded].name if folded in types else names[0],
            _fit(shape.merged(names), types[folded].type if folded in types else None, has_format=has_format),
        )
        for folded, names in spellings.items()
        if folded not in of_folders
    ]
    absent = [column for folded, column in types.items() if folded not in {*spellings, *of_folders}]
    if source.fills:
        fields += [Field(column.name, text_type(column.type, has_format=has_format)) for column in absent]
    fields += _fields_of_folders(source, target)
    if not fields:
        raise source.error(
            f"no record of {source.dataset.path} has a key. Correct the path, or give the option schema."
        )
    return _columns(source, fields)


def _fit(shape: Shape, wanted: DuckLakeType | None, *, has_format: bool) -> DuckLakeType:
    """Return the type in which values of a shape arrive for a type: with the fields that this lacks."""
    match wanted:
        case None:
            return json_rows.column_type(shape)
        case StructType(fields):
            spellings = shape.by_name()
            given = {fold(one.name): one for one in fields}
            members = [
                Field(
                    one.name, _fit(shape.merged(spellings.get(folded, [])), one.type, has_format=has_format)
                )
                for folded, one in given.items()
            ]
            others = [
                Field(one[0], json_rows.column_type(shape.merged(one)))
                for folded, one in spellings.items()
                if folded not in given
            ]
            return StructType((*members, *others))
        case ListType(element):
            return ListType(_fit(shape.items or Shape(), element, has_format=has_format))
        case MapType(key, item):
            values = Shape()
            for one in shape.fields.values():
                values.add(one)
            return MapType(text_type(key, has_format=has_format), _fit(values, item, has_format=has_format))
        case _:
            return text_type(wanted, has_format=has_format)


# --- tasks


def _frame(source: _Dataset, parts: Sequence[Json], texts: Texts, size_bytes: int) -> DataFrame:
    encoded = encode(texts, Texts)
    columns = texts.columns.columns

    def rows(document: Json) -> Iterator[pa.RecordBatch]:
        return rows_of_part(document, decode(encoded, Texts))

    schema = t.StructType([t.StructField(column.name, read_type(column)) for column in columns])
    read = from_tasks(source.spark, parts, rows, schema, have_keys=False, size_bytes=size_bytes)
    return read.select(
        *(
            to_insertable(f.col(quoted(one.name)), one).alias(one.name, metadata={TYPE_KEY: str(one.type)})
            for one in columns
        )
    )


_VARIANT = ScalarType("variant")


def _with_variants(source: _Dataset, rows: DataFrame, target: TableSchema | None) -> DataFrame:
    """Return rows of JSON with variants in the columns that are to hold some: they arrive as JSON."""
    wanted = _schema(source) if "schema" in source.given else () if target is None else target.columns
    variants = {fold(one.name) for one in wanted if one.type == _VARIANT}
    return rows.select(
        *(
            f.parse_json(f.col(quoted(name))).alias(name, metadata={TYPE_KEY: str(_VARIANT)})
            if fold(name) in variants
            else f.col(quoted(name))
            for name in rows.columns
        )
    )
