"""The compaction job: one Spark task writes one file for each bin, with pyarrow, in the order of rows.

Where rows are to be sorted or clustered within the new files, they go through Spark's shuffle, which spills:
a task for each file reads its rows with their ids and snapshots, another for each bin writes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from ...format.log_lines import logger
from ...format.names.identifiers import fold
from ...format.schema import TableSchema
from ...planning.upkeep.compaction import Bin, Compaction
from ...planning.writing.write import RowOrder, WritePlan, WriteResult
from ...storage.files import writing
from ...storage.moving.compact import Rewriting, compactor, in_one_file
from ...storage.parquet.reader import carrier_schema, in_carriers
from ...storage.parquet.writer import RollingWriter
from ...storage.rows.table_reader import ROW_ID, SNAPSHOT_ID
from ..job.codec import Json, decode, encode
from ..job.io import directory_of, file_path, write_record
from ..job.request import CompactionSource, JobRequest
from ..reading.read_deletes import carrier_types
from ..sessions.classic import progress_lines
from ..sessions.kind import BatchFunction, from_tasks, map_in_arrow, sum_of_tasks
from ..types.names import free_prefix
from ..writing.row_order import clustered, ordered
from ..writing.write_arrow import runs

log = logger(__name__)


def compact(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Make a file of each bin; what is complete has a record, whatever becomes of the others."""
    (plan,), source = request.plans, request.source
    assert isinstance(source, CompactionSource)
    compaction = source.compaction
    log.info(
        "%s %d files of %s, %d bytes, into %d",
        "Rewriting" if compaction.is_rewrite else "Merging",
        *(compaction.file_count, compaction.table.name, compaction.file_size_bytes, len(compaction.bins)),
    )
    started = time.monotonic()
    with progress_lines(spark):
        is_sorted = plan.row_order != RowOrder()
        count = compact_sorted(spark, source, plan) if is_sorted else _compact_in_order(spark, source, plan)
    log.info("Wrote %d rows", count)
    details = {"seconds": round(time.monotonic() - started, 1)}
    return (WriteResult(plan.target, plan.partition_fields, (), 0, details),)


def _compact_in_order(spark: SparkSession, source: CompactionSource, plan: WritePlan) -> int:
    documents = _one_by_one(source.compaction)
    return sum_of_tasks(spark, documents, _task(plan, source), have_keys=source.compaction.has_keys)


def _one_by_one(compaction: Compaction) -> Iterator[Json]:
    """Yield each bin as JSON with its table, the largest first: it takes the longest."""
    bins = sorted(compaction.bins, key=lambda one: -one.file_size_bytes)
    return (encode(replace(compaction, bins=(one,)), Compaction) for one in bins)


def _task(plan: WritePlan, source: CompactionSource) -> Callable[[Json], int]:
    """Return the function that a task runs; it carries plain values, and the job's zip brings the rest."""
    document, staging_id, partition_id = encode(plan, WritePlan), source.staging_id, source.partition_id
    directory = directory_of(source)
    document_key = writing.key_of(directory)

    def run(item: Json) -> int:
        writing.learn(directory, document_key)
        alone = CompactionSource(decode(item, Compaction), staging_id, partition_id)
        return compact_bin(alone, decode(document, WritePlan))

    return run


def compact_bin(source: CompactionSource, plan: WritePlan) -> int:
    """Write the file of the only bin, then its record; return the number of rows."""
    (files,) = source.compaction.bins
    compacted = compactor(source.compaction, plan.settings).compact(files, file_path(files, plan, source))
    write_record(directory_of(source), compacted)
    return compacted.file.record_count if compacted.file is not None else 0


_BATCH_ROWS = 65_536
_WRITTEN = t.StructType([t.StructField("bin", t.LongType()), t.StructField("rows", t.LongType())])
_ARROW_WRITTEN = pa.schema([pa.field("bin", pa.int64()), pa.field("rows", pa.int64())])


def compact_sorted(spark: SparkSession, source: CompactionSource, plan: WritePlan) -> int:
    """Make a sorted file of each bin, with a record beside it; return the number of rows."""
    return sum(_AlikeBins(alike, plan).write(spark) for alike in _by_columns(source))


def _by_columns(source: CompactionSource) -> Iterator[CompactionSource]:
    """Yield the bins in parts with the same columns: Spark wants one type for each."""
    compaction = source.compaction
    schemas = list(dict.fromkeys(one.schema for one in compaction.bins))
    for schema in schemas:
        bins = tuple(one for one in compaction.bins if one.schema == schema)
        yield replace(source, compaction=replace(compaction, bins=bins))


@dataclass(frozen=True, slots=True)
class _AlikeBins:
    """Bins of files with the same columns; a bin's number is its place."""

    source: CompactionSource
    plan: WritePlan

    def write(self, spark: SparkSession) -> int:
        bins, plan = self.source.compaction.bins, self._plan_as_named_now()
        bin_name = f"{free_prefix(plan.target.names)}bin"
        rows = clustered(self._rows(spark, plan.target, bin_name), plan).repartition(len(bins), bin_name)
        task = _write_task(self.source, self.plan)
        done = map_in_arrow(ordered(rows, [bin_name], plan), task, _WRITTEN).collect()
        for number in set(range(len(bins))) - {row["bin"] for row in done}:  # all rows of its files are gone
            making = compactor(self.source.compaction, self.plan.settings)
            assert isinstance(making, Rewriting)
            write_record(directory_of(self.source), making.compacted(bins[number], None))
        return sum(row["rows"] for row in done)

    def _plan_as_named_now(self) -> WritePlan:
        """Return the plan with the column names that its row order uses.

        Those gone since have none of these names; one that came later has one value in all rows.
        """
        names = {column.id: column.name for column in self.source.compaction.table.schema.columns}
        prefix = free_prefix(names.values())
        schema = TableSchema(
            tuple(
                replace(column, name=names.get(column.id, f"{prefix}gone_{column.id}"))
                for column in self.source.compaction.bins[0].schema.columns
            )
        )
        order = self.plan.row_order
        there = {fold(name) for name in schema.names}
        row_order = RowOrder(
            tuple(key for key in order.sort_by if fold(key.column_name or "") in there),
            tuple(name for name in order.zorder_by if fold(name) in there),
        )
        return replace(self.plan, schema=schema, row_order=row_order)

    def _rows(self, spark: SparkSession, named: TableSchema, bin_name: str) -> DataFrame:
        documents = (
            {"bin": number, "compaction": encode(alone, Compaction)}
            for number, one in enumerate(self.source.compaction.bins)
            for alone in _file_by_file(self.source.compaction, one)
        )
        numbers = (ROW_ID.name, SNAPSHOT_ID.name, bin_name)
        schema = carrier_types(named.columns, numbers)
        has_keys = self.source.compaction.has_keys
        return from_tasks(spark, documents, _read_task(self.plan), schema, have_keys=has_keys)


def _file_by_file(compaction: Compaction, files: Bin) -> Iterator[Compaction]:
    for file in files.files:
        marks = {file.id: compaction.marks[file.id]} if file.id in compaction.marks else {}
        yield replace(compaction, bins=(replace(files, files=(file,)),), marks=marks)


def _read_task(plan: WritePlan) -> Callable[[Json], Iterator[pa.RecordBatch]]:
    document = encode(plan, WritePlan)

    def rows(item: Json) -> Iterator[pa.RecordBatch]:
        yield from _rows_of_file(
            decode(item["compaction"], Compaction), decode(document, WritePlan), item["bin"]
        )

    return rows


def _rows_of_file(compaction: Compaction, plan: WritePlan, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the only file in their carriers, with their ids, snapshots and the bin's number."""
    (files,) = compaction.bins
    columns = files.schema.columns
    bin_name = f"{free_prefix(files.schema.names)}bin"
    numbers = (pa.field(name, pa.int64()) for name in (ROW_ID.name, SNAPSHOT_ID.name, bin_name))
    schema = pa.schema([*carrier_schema(columns), *numbers])
    for rows in compactor(compaction, plan.settings).numbered_rows(files.files[0], files.schema):
        carried = in_carriers(rows.select(files.schema.names), columns)
        bin_number = pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
        own = (rows[ROW_ID.name], rows[SNAPSHOT_ID.name], bin_number)
        yield from pa.Table.from_arrays([*carried.columns, *own], schema=schema).to_batches(_BATCH_ROWS)


def _write_task(source: CompactionSource, plan: WritePlan) -> BatchFunction:
    encoded = json.dumps(encode(source.compaction.without_keys(), Compaction))  # it reads no file
    document = encode(plan, WritePlan)
    staging_id, partition_id = source.staging_id, source.partition_id
    directory = directory_of(source)
    document_key = writing.key_of(directory)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writing.learn(directory, document_key)
        source = CompactionSource(decode(json.loads(encoded), Compaction), staging_id, partition_id)
        writer = _BinWriter(source, decode(document, WritePlan))
        for (key,), group in groupby(runs(batches, 1), key=itemgetter(0)):
            number = key.as_py()
            count = writer.write(number, (batch for _, batch in group))
            yield pa.RecordBatch.from_pydict({"bin": [number], "rows": [count]}, schema=_ARROW_WRITTEN)

    return run


@dataclass(frozen=True, slots=True)
class _BinWriter:
    source: CompactionSource
    plan: WritePlan

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the file of a bin, then its record; return the number of rows."""
        files = self.source.compaction.bins[number]
        making = compactor(self.source.compaction, self.plan.settings)
        target, path = making.target(files), file_path(files, self.plan, self.source)
        with RollingWriter(target, lambda: path, in_one_file(self.plan.settings)) as writer:
            for batch in batches:
                writer.write(batch.select(range(len(target.columns))))
        (written,) = writer.files
        write_record(directory_of(self.source), making.compacted(files, written))
        return written.record_count
