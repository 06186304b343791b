"""Rows become data files: tasks write through pyarrow straight to final names.

It stores what Spark's own writer cannot. Each task attempt gives its files names of their own and reports
them as its output rows; Spark keeps the output of successful attempts only, so what it collects is exactly
what counts. So are strings that cannot be stored: a task that meets some counts them and writes nothing.
See ``docs/adr/0008-map-in-arrow-without-pandas.md``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from ...errors import SparkJobError
from ...format.files import DataFile
from ...format.log_lines import logger
from ...planning.writing.write import WritePlan
from ...storage.arrow.rows import values_of_row
from ...storage.arrow.string_checks import BadStrings, bad_strings, error_of, together
from ...storage.parquet.writer import RollingWriter
from ..job.codec import decode, encode
from ..job.errors import typed
from ..sessions.kind import BatchFunction, kind_of, map_in_arrow
from ..types.frames import row_bytes
from .row_order import ordered

if TYPE_CHECKING:
    from ...format.schema import TableSchema


Key = tuple[pa.Scalar, ...]
_RESULT = t.StructType([t.StructField("file", t.StringType()), t.StructField("bad", t.StringType())])
_ARROW_RESULT = pa.schema([pa.field("file", pa.string()), pa.field("bad", pa.string())])


def write(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Write the rows by one Spark action and return the files; ``keys`` name the last columns."""
    df = ordered(df, keys, plan)
    rows = map_in_arrow(df, _task(plan, len(keys)), _RESULT).collect()
    found = together(BadStrings(**json.loads(row.bad)) for row in rows if row.bad is not None)
    if found:
        raise error_of(found, plan.table)
    return [decode(json.loads(row.file), DataFile) for row in rows]


def write_here(rows: pa.Table, keys: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Write rows that are there, sorted by ``keys``, with the errors of ``write``."""
    files, bad = write_batches(iter(rows.combine_chunks().to_batches()), plan, len(keys))
    if bad:
        raise error_of(bad, plan.table)
    return files


def _task(plan: WritePlan, key_count: int) -> BatchFunction:
    """Return the function that a task runs; it carries plain JSON and imports the rest from the job's zip."""
    document = encode(plan, WritePlan)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, bad = write_batches(batches, decode(document, WritePlan), key_count)
        rows = [{"file": json.dumps(encode(file, DataFile))} for file in files]
        rows += [{"bad": json.dumps(asdict(one))} for one in bad]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_RESULT)

    return run


def write_batches(
    batches: Iterator[pa.RecordBatch], plan: WritePlan, key_count: int
) -> tuple[list[DataFile], list[BadStrings]]:
    """Write one task's rows, sorted by their last ``key_count`` columns.

    Returns the files, and what is wrong with strings of all the rows; then the files are not to be used.
    """
    bad: list[BadStrings] = []
    files = _write_runs(runs(_without_bad_strings(batches, plan.target, bad), key_count), plan)
    return files, together(bad)


def _without_bad_strings(
    batches: Iterator[pa.RecordBatch], schema: TableSchema, bad: list[BadStrings]
) -> Iterator[pa.RecordBatch]:
    """Yield batches up to the first with bad strings; ``bad`` gets those of all of them."""
    for batch in batches:
        columns = batch.select(list(range(len(schema.columns))))
        bad += bad_strings(columns, schema)
        if not bad:
            yield batch


def _write_runs(groups: Iterator[tuple[Key, pa.RecordBatch]], plan: WritePlan) -> list[DataFile]:
    run = uuid.uuid4().hex
    files: list[DataFile] = []
    group: _Group | None = None
    try:
        for key, batch in groups:
            if group is None or group.key != key:
                if group is not None:
                    files += group.close()
                group = _Group(key, batch, plan, f"{run}-{len(files)}")
            group.writer.write(batch)
        if group is not None:
            files += group.close()
    except BaseException:
        if group is not None:
            group.writer.abort()
        raise
    return files


class _Group:
    """The files of rows with one key."""

    def __init__(self, key: Key, first: pa.RecordBatch, plan: WritePlan, name: str) -> None:
        self.key = key
        self.values = values_of_row(first, plan.target, plan.partition_fields)
        folder = plan.partition_folder(self.values)
        start = plan.directory + "part-" if folder is None else folder + plan.prefix
        numbers = iter(range(2**31))
        self.writer = RollingWriter(
            plan.target, lambda: f"{start}{name}-{next(numbers)}.parquet", plan.settings
        )

    def close(self) -> list[DataFile]:
        return [replace(file, partition_values=self.values) for file in self.writer.close()]


def runs(batches: Iterator[pa.RecordBatch], key_count: int) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows, without their keys, in runs of one Arrow key: Python's times end in 9999."""
    for batch in batches:
        if not batch.num_rows:
            continue
        width = batch.num_columns - key_count
        rows = batch.select(list(range(width)))
        starts = _run_starts([batch.column(width + index) for index in range(key_count)], batch.num_rows)
        for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            key = tuple(batch.column(width + index)[start] for index in range(key_count))
            yield key, rows.slice(start, stop - start)


def _run_starts(keys: Sequence[pa.Array], length: int) -> list[int]:
    """Return the first row of each run of equal keys."""
    starts = {0}
    for key in keys:
        ends = pc.run_end_encode(key).run_ends.to_pylist()
        starts.update(ends)
    return sorted(starts - {length})


# Few rows are fetched and written by this process: sooner done than tasks in Python have begun.
#
# How many bytes they take decides: by what the caller has counted, else by Spark's own estimate, where
# nothing in the plan makes more rows or bytes than it estimates. Spark may be wrong all the same: so no more
# rows are fetched than are few, and where there are more, tasks write them all. So they do where Spark
# fetches no more than the user's ``spark.driver.maxResultSize``.


log = logger(__name__)

_MOST_BYTES = 32 * 2**20  # in memory, once in the driver's JVM and once here
IN_MEMORY = 4  # bytes in memory for one in a compressed file, roughly
_MANY_ROWS = 10_000  # those of one of Spark's batches for Python
_FEW_PARTITIONS = 16  # one after the other; tasks write many at a time
_PLAN = re.compile(r"== Optimized Logical Plan ==\n(.*?)(?:\n\n|\Z)", re.DOTALL)
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+) (B|KiB|MiB)\b")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20}
# Nodes that make several rows of one, run code of users, or report the rows they have seen to it.
_UNKNOWN = re.compile(
    r"^[\s:|+-]*(?:Generate|Expand|\w*Map\w*|\w*Python\w*|\w*Arrow\w*|\w*Pandas\w*|Script\w*|\w*Stream\w*"
    r"|CoGroup|CollectMetrics)\b",
    re.MULTILINE,
)
# PySpark cannot fetch a variant that is NULL, and fetches another number of NULLs than such maps have keys
_NOT_FETCHED = (t.VariantType().json(), '"valueType":"void"')


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows there are at most, and the bytes that values take in each beside what their types say."""

    row_count: int
    row_bytes: float


def few_rows(
    df: DataFrame, keys: Sequence[str], plan: WritePlan, size: Size | None = None
) -> pa.Table | None:
    """Return the rows as a task would get them, in order; None where they may be many.

    ``keys`` name the last columns.
    """
    if plan.row_order.zorder_by or any(one in df.schema.json() for one in _NOT_FETCHED):
        return None
    most_rows = _MOST_BYTES // row_bytes(df.schema)
    if size is not None and size.row_count * (row_bytes(df.schema) + size.row_bytes) <= _MOST_BYTES:
        few = df.repartition(1) if keys or plan.row_order.sort_by else df
    elif is_small(kind_of(df.sparkSession).explained(df)):
        few = df.limit(most_rows + 1).coalesce(1)
    else:
        return None
    try:
        rows = ordered(few, keys, plan).toArrow()
    except Exception as error:
        if type(typed(error)) is not SparkJobError or _CANCELLED.search(str(error)):
            raise
        log.debug("The rows cannot be fetched; tasks write them", exc_info=error)
        return None
    return None if rows.num_rows > most_rows or _has_many_partitions(rows, len(keys)) else rows


_CANCELLED = re.compile(r"\bSPARK_JOB_CANCELLED\b|\bOPERATION_CANCELED\b")


def _has_many_partitions(rows: pa.Table, key_count: int) -> bool:
    if not key_count or rows.num_rows <= _MANY_ROWS:
        return False
    found = runs(iter(rows.combine_chunks().to_batches()), key_count)
    return next(islice(found, _FEW_PARTITIONS, None), None) is not None


def is_small(explained: str) -> bool:
    """Return True if a plan, explained with its costs, gives few bytes for certain enough to look."""
    found = _PLAN.search(explained)
    if found is None or _UNKNOWN.search(found[1]):
        return False
    sizes = _SIZE.findall(found[1].split("\n", 1)[0])
    return bool(sizes) and float(sizes[-1][0]) * _UNITS[sizes[-1][1]] * IN_MEMORY <= _MOST_BYTES
