"""What Spark has to know of single files: their numbers and row ids, and which of their rows are gone.

It is one small table, joined to the rows by the path of their file. A file's deleted positions are a bitmap:
testing a bit costs less than looking a position up, and the whole takes a bit for each row.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.spark.job.errors import marked
from airflow_provider_ducklake.lake.spark.sessions.object_store import hadoop_path
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.rows.table_reader import gone_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.spark.types.names import ReadNames
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_SPARKS = ("_metadata", "_tmp_metadata_row_index")
_WORD_BITS = 64


def reserved(names: ReadNames) -> frozenset[str]:
    """Return what a column of a file must not be called: names of ours and of Spark's."""
    return frozenset({*names.numbers, names.row_id_start, names.file_key, names.gone, *_SPARKS})


def _hashed(path: str, names: ReadNames) -> str:
    return f"xxhash64({path}) AS {names.file_key}"


def place(names: ReadNames) -> tuple[str, str]:
    """Return where a row lies, as SQL, among rows straight from Spark's reader of the files."""
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
    """Return whether a row's bit is not set; no word, no bit: the bitmap ends at its last one."""
    word = f"get({names.gone}, CAST(shiftright({names.position}, 6) AS INT))"
    return f"coalesce(getbit({word}, CAST({names.position} & 63 AS INT)) = 0, true)"


def numbered(
    rows: DataFrame,
    plan: ScanPlan,
    files: Sequence[LiveDataFile],
    locate: Callable[[str], Location],
    names: ReadNames,
) -> DataFrame:
    """Return the live ones of rows with their ``place``, and the ids of their files and of the first rows.

    Raises:
        StorageError: a delete file is missing or damaged.
    """
    known = _files(rows.sparkSession, plan, files, locate, names)
    return rows.join(f.broadcast(known), names.file_key, "left").where(_is_live(plan, names))


def _is_live(plan: ScanPlan, names: ReadNames) -> SparkColumn:
    """Whether a row is not deleted; a row of a file that we do not know must never pass for a live one."""
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
