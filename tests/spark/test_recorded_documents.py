"""Documents that may outlive a release are written and read as version 5 of their format has them.

``golden/job_documents/version_5.json`` was written by hand from version 4, which named an engine.
"""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile, FileKey
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.options import Options
from airflow_provider_ducklake.lake.format.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.lake.format.schema import Default, TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    PartitionId,
    SchemaId,
    Snapshot,
    SnapshotId,
    TableId,
    TableSnapshot,
)
from airflow_provider_ducklake.lake.planning.reading.predicates import AllOf, Comparison, NullTest, Operator
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.planning.writing.write import NewDeletes, NewTable, WriteResult
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.codec import FORMAT_VERSION, decode, encode
from airflow_provider_ducklake.lake.spark.job.documents import check_filter, reading
from airflow_provider_ducklake.lake.spark.job.io import StreamOwner
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.job.results import (
    Batch,
    DeletesPart,
    Done,
    ResultPart,
    RowChangesDone,
    StagedWriteDocument,
    WrittenResult,
    summary,
)
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewriteSource, RewrittenFile

RECORDED = json.loads(
    (Path(__file__).parent.parent / "golden" / "job_documents" / "version_5.json").read_text()
)
JOB_ID, UUID = "0190f3c1-0000-7000-8000-000000000001", "0190f3c1-0000-7000-8000-00000000000a"
ROOT = "LAKE/main/t/"
KEY = FileKey("AAECAwQFBgcICQoLDA0ODw==")
DIRECTORY = job_directory(ROOT, JOB_ID)
COLUMNS = {
    "id": "int64",
    "day": "date",
    "s": "struct(a varchar, b decimal(18, 4)[])",
    "m": "map(varchar, float64)",
}
FIELDS = tuple(
    PartitionField(ColumnId(column), Transform.parse(text))
    for column, text in ((2, "year"), (1, "bucket(16)"))
)
SNAPSHOT = Snapshot(SnapshotId(7), 3, 12, 15, dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC))


def schema() -> TableSchema:
    first, day, *others = new_columns(COLUMNS, not_null=["id"]).columns
    late = replace(day, initial_default="2020-01-01", default=Default("2020-01-02", "literal", "duckdb"))
    return TableSchema((first, late, *others))


def file(number: int) -> DataFile:
    stats = (
        ColumnStats(ColumnId(1), 2, 0, "1", "2", None, 44),
        ColumnStats(ColumnId(4), None, None, None, None),
        ColumnStats(
            *(ColumnId(9), 2, 0, "0.5", "1.5"),
            contains_nan=True,
            column_size_bytes=40,
            only_nan=True,
            extra_stats='{"x": 1}',
            min_is_exact=True,
            max_is_exact=False,
        ),
    )
    return DataFile(
        f"{DIRECTORY}{number}.parquet",
        2,
        1000 + number,
        99 if number else None,
        {one.column_id: one for one in stats},
        ("2020", None),
        has_row_ids=bool(number),
        row_group_count=number + 1,
        encryption_key=KEY if number else None,
    )


def result(*numbers: int) -> WriteResult:
    details = {"seconds": 1.5, "application_id": None, "spark_version": "é"}
    return WriteResult(schema(), FIELDS, tuple(map(file, numbers)), 2 * len(numbers), details)


def written(*numbers: int) -> WrittenResult:
    return WrittenResult(**summary(result(*numbers)), parts=("part-00000.json",) if numbers else ())


NAME = QualifiedName.of(("main", "t"))
TABLE = TableSnapshot(
    *(SNAPSHOT, TableId(5), UUID, SchemaId(0), NAME, schema(), ROOT, PartitionSpec(FIELDS, PartitionId(6)))
)
NEW = NewTable(SNAPSHOT, SchemaId(0), NAME, UUID, ROOT, Options({"parquet_compression": "zstd"}))
STAGED = [StagedWrite(JOB_ID, DIRECTORY, "insert", target, result(0, 1)) for target in (TABLE, NEW)]
MATCHING = AllOf(
    (Comparison(ColumnId(1), Operator.AT_LEAST, -7), Comparison(ColumnId(2), Operator.AT_MOST, b"z"))
)
SOURCES = (RewriteSource(DataFileId(1), DeleteFileId(9), 2), RewriteSource(DataFileId(2), None))
COMPACTED = MergedFile | RewrittenFile
DOCUMENTS = {
    "part": (ResultPart(JOB_ID, (file(0), file(1))), ResultPart),
    "done": (Done(JOB_ID, (written(0, 1),)), Done),
    "deletes": (
        DeletesPart(JOB_ID, (NewDeletes(DataFileId(3), f"{DIRECTORY}d.parquet", 2, 500, 60, KEY),), (8, 9)),
        DeletesPart,
    ),
    "row changes done": (
        RowChangesDone(JOB_ID, (written(), written(1)), ("deletes-00000.json",), MATCHING),
        RowChangesDone,
    ),
    "stage of a table that is existing": (StagedWriteDocument.of(STAGED[0]), StagedWriteDocument),
    "stage of a table that is new": (StagedWriteDocument.of(STAGED[1]), StagedWriteDocument),
    "batch": (
        Batch(
            **summary(result(1)),
            query_id="00000000-0000-0000-0000-000000000007",
            batch_id=4,
            job_id=JOB_ID,
            data_files=(file(1),),
        ),
        Batch,
    ),
    "owner of a stream": (StreamOwner("main.t", UUID, "dag.task"), StreamOwner),
    "merged": (
        MergedFile(
            *(file(1), (DataFileId(1), DataFileId(2)), SnapshotId(3), SnapshotId(5), 20, PartitionId(6))
        ),
        COMPACTED,
    ),
    "rewritten": (RewrittenFile(file(1), SOURCES, SnapshotId(7), PartitionId(6)), COMPACTED),
    "rewritten, nothing left": (
        RewrittenFile(None, (RewriteSource(DataFileId(1), None, 3),), SnapshotId(7)),
        COMPACTED,
    ),
}


def test_every_recorded_document_is_tried():
    assert set(RECORDED) == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_written_and_read_as_it_was(name):
    value, type_ = DOCUMENTS[name]
    recorded = {key: item for key, item in RECORDED[name].items() if key != "v"}

    assert RECORDED[name]["v"] == FORMAT_VERSION
    assert encode(value, type_) == recorded
    assert decode(recorded, type_) == value


@pytest.mark.parametrize("staged", STAGED, ids=["existing", "new"])
def test_a_staged_write_comes_back_from_its_record(staged):
    assert StagedWriteDocument.of(staged).staged(staged.result) == staged


def test_a_staged_write_is_for_the_target_that_an_older_release_registered():
    digests = [job_io.target_of_stage(one.target).digest for one in STAGED]

    assert digests == [
        "dbab9e6c237b0a2e375702fa934815d3e69d53359935c3417a30a7a8ec096582",
        "d62a41eee629402cb20dd4187ac300b9b1ccb3d3ad1a866b705e7eaf223e5fdc",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        Comparison(ColumnId(99), Operator.EQUAL, 1),
        Comparison(ColumnId(1), Operator.EQUAL, b"z"),
        Comparison(ColumnId(1), Operator.EQUAL, None),
        NullTest(ColumnId(1)),
    ],
)
def test_what_a_job_says_of_matching_rows_is_a_comparison_of_the_tables_columns(rows):
    with pytest.raises(SparkJobError, match="is not a document"), reading("done.json"):
        check_filter(AllOf((Comparison(ColumnId(1), Operator.AT_LEAST, -7), rows)), schema())
