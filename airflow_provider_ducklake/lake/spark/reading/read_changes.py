"""The change feed of a table as a Spark DataFrame: what ``storage.rows.table_reader`` gives, in no order.

Files that only brought rows are scanned as a table's are. Where rows also went, or came by several snapshots,
pyarrow reads the file in a task, with the snapshots that inserted and deleted each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from ...planning.reading.scan import END_SNAPSHOT, ChangeFeedPlan, FileHistory, ScanPlan
from ...storage.files.filesystem import StorageOptions, open_filesystem
from ...storage.parquet.reader import carrier_schema, in_carriers
from ...storage.rows.table_reader import lives_in_catalog, lives_of_file
from ..job.codec import Json, decode, encode
from ..sessions.kind import from_tasks
from ..sessions.settings import prepare_reading
from ..types.names import ReadNames, quoted
from ..types.spark_types import check_readable, to_insertable
from .read_deletes import carrier_types
from .read_files import Read, rows_of


def read_changes(
    spark: SparkSession,
    plan: ChangeFeedPlan,
    *,
    only_seen: bool = False,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Return ``snapshot_id``, ``rowid``, ``change_type`` and the table's columns, a row for each change.

    ``change_type`` is ``insert``, ``delete``, or for a row that a snapshot changed ``update_preimage`` and
    ``update_postimage``. Rows come in no order. Types, and what the session is set to, are those of
    ``read_table``. With ``only_seen`` those are left out that came and went by one snapshot, as a row that a
    transaction inserts and deletes: no reader ever saw them.
    """
    prepare_reading(spark)
    columns = plan.table.schema.columns
    check_readable(columns, plan.table.name)
    names = ReadNames.beside(plan.table.schema.names)
    lives = _lives(spark, plan, names, storage_options)
    if only_seen:
        lives = lives.where(f.col(names.deleted).isNull() | (f.col(names.inserted) != f.col(names.deleted)))
    events = _events(lives, plan, names)
    chosen = [to_insertable(f.col(quoted(column.name)), column).alias(column.name) for column in columns]
    return events.select(
        f.col(names.snapshot_id).alias("snapshot_id"),
        f.col(names.row_id).alias("rowid"),
        f.col(names.change_type).alias("change_type"),
        *chosen,
    )


def _lives(
    spark: SparkSession, plan: ChangeFeedPlan, names: ReadNames, storage_options: StorageOptions | None
) -> DataFrame:
    """Return rows in their carriers with the snapshots they came and went by, and their row ids."""
    simple = [history for history in plan.files if _only_brings_rows(history, plan)]
    others = [history for history in plan.files if not _only_brings_rows(history, plan)]
    lives = _changes_in_catalog(spark, plan, names)
    if simple:
        lives = lives.union(_changes_in_new_files(spark, plan, simple, names, storage_options))
    if others:
        lives = lives.union(_changes_in_old_files(spark, plan, others, names, storage_options))
    return lives


def _only_brings_rows(history: FileHistory, plan: ChangeFeedPlan) -> bool:
    file = history.file
    went = history.ended_by is not None or history.delete_files or history.marks
    return not went and file.partial_max is None and file.begin_snapshot not in plan.rewrites


def _changes_in_catalog(spark: SparkSession, plan: ChangeFeedPlan, names: ReadNames) -> DataFrame:
    rows = _carried(lives_in_catalog(plan), plan, names.life)
    return spark.createDataFrame(rows, carrier_types(plan.table.schema.columns, names.life))


def _changes_in_new_files(
    spark: SparkSession,
    plan: ChangeFeedPlan,
    histories: list[FileHistory],
    names: ReadNames,
    storage_options: StorageOptions | None,
) -> DataFrame:
    schema = plan.table.schema
    files = tuple(history.file for history in histories)
    scan = ScanPlan(plan.table, files, schema.names, columns_since=plan.columns_since)
    rows = rows_of(
        Read(spark, scan, schema.columns, names, is_numbered=True, storage_options=storage_options)
    )
    begins = pa.table(
        {names.file_id: [file.id for file in files], names.inserted: [file.begin_snapshot for file in files]}
    )
    begun = rows.join(f.broadcast(spark.createDataFrame(begins)), names.file_id)
    lives = begun.withColumn(names.deleted, f.lit(None).cast("bigint"))
    return lives.select(*map(quoted, (*schema.names, *names.life)))


def _changes_in_old_files(
    spark: SparkSession,
    plan: ChangeFeedPlan,
    histories: list[FileHistory],
    names: ReadNames,
    storage_options: StorageOptions | None,
) -> DataFrame:
    alone = (replace(plan, files=(history,), inlined=()) for history in histories)
    documents = (encode(one, ChangeFeedPlan) for one in alone)
    has_keys = any(history.has_keys for history in histories)
    options, life = None if storage_options is None else dict(storage_options), names.life

    def lives(document: Json) -> Iterator[pa.RecordBatch]:
        return _lives_of(document, life, options)

    schema = carrier_types(plan.table.schema.columns, life)
    return from_tasks(spark, documents, lives, schema, have_keys=has_keys)


def _lives_of(
    document: Json, life: Sequence[str], options: StorageOptions | None
) -> Iterator[pa.RecordBatch]:
    plan = decode(document, ChangeFeedPlan)
    (history,) = plan.files
    rows = lives_of_file(plan, history, lambda path: open_filesystem(path, options))
    yield from _carried(rows, plan, life).to_batches()


def _carried(lives: pa.Table, plan: ChangeFeedPlan, names: Sequence[str]) -> pa.Table:
    """Return rows with their lives, which stand in front, in carriers with the lives behind."""
    columns = plan.table.schema.columns
    life = lives.select(list(range(len(names))))
    own = in_carriers(lives.select(list(range(len(names), lives.num_columns))), columns)
    schema = pa.schema([*carrier_schema(columns), *(pa.field(name, pa.int64()) for name in names)])
    return pa.Table.from_arrays([*own.columns, *life.columns], schema=schema)


def _events(lives: DataFrame, plan: ChangeFeedPlan, names: ReadNames) -> DataFrame:
    """Return a row for each insert and delete within the range; both of one row are an update."""
    if not _may_end(plan):
        born = lives.where(f.col(names.inserted).between(plan.start, plan.end))
        return born.withColumns(
            {names.snapshot_id: f.col(names.inserted), names.change_type: f.lit("insert")}
        )
    came = f.struct(f.col(names.inserted).alias("snapshot_id"), f.lit("insert").alias("kind"))
    went = f.struct(f.col(names.deleted).alias("snapshot_id"), f.lit("delete").alias("kind"))
    events = lives.withColumn(names.event, f.explode(f.array(came, went)))
    snapshot_id, kind = (f.col(names.event).getField(field) for field in ("snapshot_id", "kind"))
    events = events.where(snapshot_id.between(plan.start, plan.end))
    events = events.withColumns({names.snapshot_id: snapshot_id, names.kind: kind})
    same_row = Window.partitionBy(names.snapshot_id, names.row_id)
    is_update = f.min(names.kind).over(same_row) != f.max(names.kind).over(same_row)
    update = f.when(f.col(names.kind) == "insert", "update_postimage").otherwise("update_preimage")
    return events.withColumn(names.change_type, f.when(is_update, update).otherwise(f.col(names.kind)))


def _may_end(plan: ChangeFeedPlan) -> bool:
    """Return True if any row may have gone."""
    ended = any(row[END_SNAPSHOT] is not None for part in plan.inlined for row in part.rows)
    return ended or not all(_only_brings_rows(history, plan) for history in plan.files)
