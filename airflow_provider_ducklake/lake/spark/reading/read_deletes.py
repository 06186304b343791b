"""What Spark needs for single files: their numbers and row ids, and their deleted rows.

It is one small table, joined to the rows by the path of their file. A file's deleted positions are a bitmap:
testing a bit costs less than looking a position up, and the whole takes a bit for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import __version__ as spark_version
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import StorageError
from ...format.files import LiveDataFile
from ...format.schema import Column, TableSchema
from ...planning.reading.scan import ScanPlan, columns_to_read
from ...storage.arrow.reshape import is_list, ordinals
from ...storage.files.filesystem import Location, StorageOptions, open_filesystem
from ...storage.files.parallel import in_threads
from ...storage.parquet.reader import carrier_schema, in_carriers
from ...storage.rows.inlined_values import inlined_in_schema
from ...storage.rows.table_reader import gone_positions, visible_rows
from ..job.codec import Json, decode, encode
from ..job.errors import marked
from ..sessions.kind import from_tasks
from ..sessions.settings import hadoop_path
from ..types.spark_types import read_type

if TYPE_CHECKING:
    from ..types.names import ReadNames


_SPARKS = ("_metadata", "_tmp_metadata_row_index")
_WORD_BITS = 64


def reserved(names: ReadNames) -> frozenset[str]:
    """Return the names that a column of a file must not have: ours and Spark's."""
    return frozenset({*names.numbers, names.row_id_start, names.file_key, names.gone, *_SPARKS})


def _hashed(path: str, names: ReadNames) -> str:
    return f"xxhash64({path}) AS {names.file_key}"


def place(names: ReadNames) -> tuple[str, str]:
    """Return a row's position and file as SQL, for rows straight from Spark's reader of the files."""
    return f"_metadata.row_index AS {names.position}", _hashed("_metadata.file_path", names)


def _table(names: ReadNames) -> t.StructType:
    return t.StructType(
        [
            t.StructField(names.file_key, t.StringType()),
            t.StructField(names.file_id, t.LongType()),
            t.StructField(names.row_id_start, t.LongType()),
            t.StructField(names.gone, t.ArrayType(t.LongType())),
        ]
    )


def _is_unset(names: ReadNames) -> str:
    """Build the SQL condition that a row's bit is not set; beyond the bitmap's end none is."""
    word = f"get({names.gone}, CAST(shiftright({names.position}, 6) AS INT))"
    return f"coalesce(getbit({word}, CAST({names.position} & 63 AS INT)) = 0, true)"


def numbered(
    rows: DataFrame,
    plan: ScanPlan,
    files: Sequence[LiveDataFile],
    locate: Callable[[str], Location],
    names: ReadNames,
) -> DataFrame:
    """Return the live ones of rows with their ``place``, and the ids of their files and of the first rows."""
    known = _files(rows.sparkSession, plan, files, locate, names)
    return rows.join(f.broadcast(known), names.file_key, "left").where(_is_live(plan, names))


def _is_live(plan: ScanPlan, names: ReadNames) -> SparkColumn:
    """Build the condition that a row is not deleted; a row of an unknown file raises an error."""
    problem = marked(
        f"Spark returned the name of a data file of {plan.table.name} in a form that this release cannot "
        "read, so its deleted rows cannot be determined.",
        StorageError,
    )
    unknown = f.raise_error(f.lit(problem)).cast("boolean")
    return f.when(f.isnull(names.file_id), unknown).otherwise(f.expr(_is_unset(names)))


def _files(
    spark: SparkSession,
    plan: ScanPlan,
    files: Sequence[LiveDataFile],
    locate: Callable[[str], Location],
    names: ReadNames,
) -> DataFrame:
    gone = in_threads(lambda file: gone_positions(plan, file, locate), files)
    table = pa.table(
        {
            names.file_key: [spark_path(file.path) for file in files],
            names.file_id: pa.array([file.id for file in files], pa.int64()),
            names.row_id_start: pa.array([file.row_id_start or 0 for file in files], pa.int64()),
            names.gone: _lists(_bitmaps(gone)),
        }
    )
    kept = (names.file_id, names.row_id_start, names.gone)
    return spark.createDataFrame(table, _table(names)).selectExpr(_hashed(names.file_key, names), *kept)


def _bitmaps(gone: Sequence[pa.Array]) -> list[pa.Array]:
    """Return each file's positions as bits of int64 words, the lowest bit first."""
    words = [pc.max(one).as_py() // _WORD_BITS + 1 if len(one) else 0 for one in gone]
    places = ordinals(max(words) * _WORD_BITS)
    return [_bitmap(one, places[: count * _WORD_BITS]) for one, count in zip(gone, words, strict=True)]


def _bitmap(positions: pa.Array, places: pa.Array) -> pa.Array:
    bits = pc.is_in(places, value_set=positions)
    return pa.Array.from_buffers(pa.int64(), len(places) // _WORD_BITS, [None, bits.buffers()[1]])


def _lists(arrays: Sequence[pa.Array]) -> pa.Array:
    offsets = pa.array(
        [0, *pc.cumulative_sum(pa.array([len(one) for one in arrays])).to_pylist()], pa.int32()
    )
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(arrays))


# What Java encodes in the path of a URI: ASCII that is not allowed there, spaces and control characters.
_ENCODED = re.compile(
    r"[\x00-\x20\x7f\"#%<>?\[\\\]^`{|}\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)


def spark_path(path: str) -> str:
    """Return a lake path as ``_metadata.file_path`` has it.

    >>> spark_path("/data/a b/50%.parquet"), spark_path("s3://bucket/k=ü/x.parquet")
    ('file:/data/a%20b/50%25.parquet', 's3a://bucket/k=ü/x.parquet')
    """
    scheme, colon, rest = hadoop_path(path).partition(":")
    slashes = "//" if rest.startswith("//") else ""
    rest = re.sub("/+", "/", rest.removeprefix(slashes))
    return scheme + colon + slashes + _ENCODED.sub(lambda found: quote(found[0], safe=""), rest)


# Rows that Spark's own reader cannot read: through pyarrow, on the executors for files.
#
# It serves types and layouts that Spark has no reader for, and rows that lie in the catalog. Tasks import
# this package from the job's zip and reach the files with what the executors have: storage options, or
# their environment.


_BATCH_ROWS = 65_536


def carrier_types(columns: Sequence[Column], numbers: Sequence[str]) -> t.StructType:
    """Return the Spark schema of rows in their carriers, with columns of numbers at the end."""
    fields = [t.StructField(column.name, read_type(column)) for column in columns]
    return t.StructType([*fields, *(t.StructField(name, t.LongType()) for name in numbers)])


def rows_of_files(
    spark: SparkSession,
    plan: ScanPlan,
    columns: Sequence[Column],
    numbers: Sequence[str],
    *,
    storage_options: StorageOptions | None,
) -> DataFrame:
    """Return the live rows of the plan's files in their carriers, then row id, file id and position.

    ``numbers`` are the names of those; without names rows have none of them.
    """
    scan = encode(replace(plan, files=(), inlined_rows=(), inlined_deletes={}), ScanPlan)
    documents = (
        {"file": encode(file, LiveDataFile), "gone": list(plan.inlined_deletes.get(file.id, ()))}
        for file in plan.files
    )
    options = None if storage_options is None else dict(storage_options)

    def rows(document: Json) -> Iterator[pa.RecordBatch]:
        return rows_of_file(decode(scan, ScanPlan), document, numbers, options)

    has_keys = any(file.has_keys for file in plan.files)
    return from_tasks(spark, documents, rows, carrier_types(columns, numbers), have_keys=has_keys)


def rows_of_file(
    plan: ScanPlan, document: Json, numbers: Sequence[str], options: StorageOptions | None
) -> Iterator[pa.RecordBatch]:
    """Yield what ``rows_of_files`` returns of one file."""
    file = decode(document["file"], LiveDataFile)
    plan = replace(plan, inlined_deletes={file.id: document["gone"]})
    columns = columns_to_read(plan)
    rows = visible_rows(plan, file, lambda path: open_filesystem(path, options), numbered=bool(numbers))
    if not numbers:
        yield from in_carriers(rows, columns).to_batches(_BATCH_ROWS)
        return
    row_ids, places = rows.columns[-2:]
    file_ids = pa.repeat(pa.scalar(file.id, pa.int64()), rows.num_rows)
    named = dict(zip(numbers, (row_ids, file_ids, places), strict=True))
    yield from _with_numbers(rows, columns, named).to_batches(_BATCH_ROWS)


def inlined_rows(
    spark: SparkSession, plan: ScanPlan, columns: Sequence[Column], numbers: Sequence[str]
) -> DataFrame:
    """Return the rows that lie in the catalog as ``rows_of_files`` returns others: of no file."""
    rows = inlined_in_schema(plan.inlined_rows, TableSchema(tuple(columns)))
    row_ids = pa.array([one for part in plan.inlined_rows for one in part.row_ids], pa.int64())
    nowhere = pa.nulls(len(row_ids), pa.int64())
    table = _with_numbers(rows, columns, dict(zip(numbers, (row_ids, nowhere, nowhere), strict=True)))
    return spark.createDataFrame(table, carrier_types(columns, numbers))


def _with_numbers(rows: pa.Table, columns: Sequence[Column], named: Mapping[str, pa.Array]) -> pa.Table:
    carried = in_carriers(rows.select(list(range(len(columns)))), columns)
    numbers = pa.table(dict(named))
    arrays = [*carried.columns, *numbers.columns] if columns else numbers.columns
    return pa.Table.from_arrays(arrays, schema=pa.schema([*carrier_schema(columns), *numbers.schema]))


# Variants that Spark's own reader puts together, as its shredding has the same parts.


_FIRST = (4, 2)  # observed since this version
_SCALARS = frozenset(
    {
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(),
        pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
    }
)  # fmt: skip


def is_read_by_spark(group: pa.DataType) -> bool:
    """Return True if Spark's reader takes a file's group as a variant; it has no times of day, nor UUIDs."""
    is_known = tuple(map(int, spark_version.split(".")[:2])) >= _FIRST
    return is_known and pa.types.is_struct(group) and all(map(_is_part, group))


def _is_part(part: pa.Field) -> bool:
    if part.name in ("metadata", "value"):
        return bool(pa.types.is_binary(part.type))
    return part.name == "typed_value" and _is_typed(part.type)


def _is_typed(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return all(_is_group(field.type) for field in type_)
    if is_list(type_):
        return _is_group(type_.value_type)
    return type_ in _SCALARS or bool(pa.types.is_decimal128(type_))


def _is_group(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_)) and all(map(_is_part, type_))
