"""What Spark has to know of single files: their numbers and row ids, and which of their rows are gone.

It is one small table, joined to the rows by the path of their file. A file's deleted positions are a bitmap:
testing a bit costs less than looking a position up, and the whole takes a bit for each row.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.spark.hadoop_paths import hadoop_path
from airflow_provider_ducklake.spark.job_errors import marked
from airflow_provider_ducklake.storage.table_reader import gone_positions, ordinals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.storage.filesystem import Location

FILE_ID, ROW_ID_START, POSITION = "__ducklake_file_id", "__ducklake_row_id_start", "__ducklake_position"
_KEY, _GONE = "__ducklake_file_key", "__ducklake_gone"
# What a column of a file must not be called; the last two are Spark's own.
INTERNAL = frozenset({FILE_ID, ROW_ID_START, POSITION, _KEY, _GONE, "_metadata", "_tmp_metadata_row_index"})


def _hashed(path: str) -> str:
    return f"xxhash64({path}) AS {_KEY}"


# Where a row lies, as SQL, among rows straight from Spark's reader of the files.
PLACE = (f"_metadata.row_index AS {POSITION}", _hashed("_metadata.file_path"))
_TABLE = t.StructType(
    [
        t.StructField(_KEY, t.StringType()),
        t.StructField(FILE_ID, t.LongType()),
        t.StructField(ROW_ID_START, t.LongType()),
        t.StructField(_GONE, t.ArrayType(t.LongType())),
    ]
)
_THREADS = 16
_WORD_BITS = 64
# no word, no bit: the bitmap ends at its last one
_WORD = f"get({_GONE}, CAST(shiftright({POSITION}, 6) AS INT))"
_IS_UNSET = f"coalesce(getbit({_WORD}, CAST({POSITION} & 63 AS INT)) = 0, true)"


def numbered(
    rows: DataFrame, plan: ScanPlan, files: Sequence[LiveDataFile], locate: Callable[[str], Location]
) -> DataFrame:
    """Return the live ones of rows with ``PLACE``, with the columns ``FILE_ID`` and ``ROW_ID_START``.

    Raises:
        StorageError: a delete file is missing or damaged.
    """
    known = _files(rows.sparkSession, plan, files, locate)
    return rows.join(f.broadcast(known), _KEY, "left").where(_is_live(plan))


def _is_live(plan: ScanPlan) -> SparkColumn:
    """Whether a row is not deleted; a row of a file that we do not know must never pass for a live one."""
    problem = marked(
        f"Spark names a data file of {plan.table.name} in a way that this release does not know, so that "
        "its deleted rows cannot be told.",
        StorageError,
    )
    unknown = f.raise_error(f.lit(problem)).cast("boolean")
    return f.when(f.isnull(FILE_ID), unknown).otherwise(f.expr(_IS_UNSET))


def _files(
    spark: SparkSession, plan: ScanPlan, files: Sequence[LiveDataFile], locate: Callable[[str], Location]
) -> DataFrame:
    with ThreadPoolExecutor(_THREADS) as threads:
        gone = list(threads.map(lambda file: gone_positions(plan, file, locate), files))
    table = pa.table(
        {
            _KEY: [spark_path(file.path) for file in files],
            FILE_ID: pa.array([file.id for file in files], pa.int64()),
            ROW_ID_START: pa.array([file.row_id_start or 0 for file in files], pa.int64()),
            _GONE: _lists(_bitmaps(gone)),
        }
    )
    return spark.createDataFrame(table, _TABLE).selectExpr(_hashed(_KEY), FILE_ID, ROW_ID_START, _GONE)


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
